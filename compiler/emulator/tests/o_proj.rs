//! The output projection that pushes its sums to all ranks: both levels and every schedule give what a reference does.

use kernel_abi::DType;
use kernel_dsl::source::SourceMap;
use kernel_emulator::{
    Buffer, Memory, Options, Schedule, fill_ranks, run_device_on_ranks, run_kernel_on_ranks,
};
use kernel_ir::pipeline::{self, Built};
use kernel_ir::sema::{Bindings, ConstValue};
use kernel_ir::target::Target;

const SOURCE: &str = include_str!("../../../tests/ranks/o_proj_push.tile");
/// Launches in a row: slots of the ring are used again.
const LAUNCHES: usize = 3;

fn build(binds: &[(&str, i64)]) -> Built {
    let mut sources = SourceMap::new();
    let root = sources.add("o_proj_push.tile", SOURCE);
    let front = pipeline::front(&mut sources, root, &mut |_| Err("no imports".to_owned()));
    assert!(!front.has_errors());
    let bindings: Bindings =
        binds.iter().map(|(name, value)| ((*name).to_owned(), ConstValue::Int(*value))).collect();
    match pipeline::build(&front.templates[0], &bindings, Target::Sm90a) {
        Ok(built) => built,
        Err(found) => {
            use kernel_dsl::diag::render::{Look, text_of_all};
            panic!("{}", text_of_all(&sources, &found, Look::PLAIN))
        }
    }
}

fn bf16(value: i64) -> u64 {
    kernel_abi::numeric::float_from_f64(DType::Bf16, value as f64).expect("it has that type")
}

/// Whole numbers so small that every sum is exact in f32, whatever its order.
fn whole(seed: u64, rank: usize, stream: u64, len: usize) -> Vec<i64> {
    let word =
        |i: usize| kernel_abi::numeric::random::word(seed + rank as u64, stream, i as u64) % 7;
    (0..len).map(|i| word(i) as i64 - 3).collect()
}

struct Shape {
    m: usize,
    n: usize,
    k: usize,
    world: usize,
}

/// What each rank starts with.
fn start(built: &Built, shape: &Shape, seed: u64) -> Vec<Memory> {
    let params = &built.kernel.params;
    let mut memories = vec![Memory::new(params); shape.world];
    for (rank, memory) in memories.iter_mut().enumerate() {
        let mut give = |name: &str, values: Vec<i64>| {
            let id = Memory::find(params, name).expect("a parameter of the kernel");
            let codes: Vec<u64> = values.into_iter().map(bf16).collect();
            memory.set_buffer(id, Buffer::from_codes(DType::Bf16, &codes));
        };
        give("W", whole(seed, rank, 0, shape.n * shape.k));
        give("a", whole(seed, rank, 1, shape.m * shape.k));
        // The residual stream is the same on every rank.
        give("resid", whole(seed, 0, 2, shape.m * shape.n));
    }
    fill_ranks(params, &mut memories, seed).expect("as many as the kernel takes");
    memories
}

/// The residual stream after so many launches: rounded to bf16 after each.
fn wanted(shape: &Shape, seed: u64) -> Vec<u64> {
    let parts: Vec<(Vec<i64>, Vec<i64>)> = (0..shape.world)
        .map(|rank| {
            (whole(seed, rank, 0, shape.n * shape.k), whole(seed, rank, 1, shape.m * shape.k))
        })
        .collect();
    let resid = whole(seed, 0, 2, shape.m * shape.n);
    let one = |i: usize| {
        let (m, n) = (i / shape.n, i % shape.n);
        let product = |(w, a): &(Vec<i64>, Vec<i64>)| -> i64 {
            (0..shape.k).map(|k| w[n * shape.k + k] * a[m * shape.k + k]).sum()
        };
        let sum = parts.iter().map(product).sum::<i64>() as f32;
        let mut code = bf16(resid[i]);
        for _ in 0..LAUNCHES {
            let old = kernel_abi::numeric::float_to_f32(DType::Bf16, code).expect("a float");
            let total = f64::from(old + sum);
            code = kernel_abi::numeric::float_from_f64(DType::Bf16, total).expect("a float");
        }
        code
    };
    (0..shape.m * shape.n).map(one).collect()
}

fn check(shape: &Shape, warps: i64, next: i64, schedules: u64) {
    let Shape { m, n, k, world } = *shape;
    let binds = [
        ("M", m as i64),
        ("N", n as i64),
        ("K", k as i64),
        ("WORLD", world as i64),
        ("BN", 16),
        ("NW", warps),
        ("NEXT", next),
    ];
    let built = build(&binds);
    let begin = start(&built, shape, 3);
    let wanted = wanted(shape, 3);
    let id = Memory::find(&built.kernel.params, "resid").expect("the kernel has it");
    for number in 0..schedules {
        let options = Options { schedule: Schedule::numbered(7, number), ..Options::STANDARD };
        for level in ["kernel", "device"] {
            let mut memories = begin.clone();
            let run = match level {
                "kernel" => run_kernel_on_ranks(&built.kernel, &mut memories, LAUNCHES, &options),
                _ => run_device_on_ranks(&built.device, &mut memories, LAUNCHES, &options),
            };
            run.expect("the kernel runs");
            for (rank, memory) in memories.iter().enumerate() {
                let resid = memory.buffer(id).expect("it has memory");
                let got: Vec<u64> =
                    (0..resid.len()).map(|i| resid.code(i).expect("it is written")).collect();
                assert_eq!(got, wanted, "{m} tokens, rank {rank} of {world}, schedule {number}");
            }
        }
    }
}

#[test]
fn every_number_of_ranks_gives_the_sum() {
    for (world, schedules) in [(1, 6), (2, 12), (3, 8), (4, 6), (8, 3), (16, 2)] {
        check(&Shape { m: 3, n: 32, k: 32, world }, 2, 700, schedules);
    }
}

#[test]
fn every_number_of_tokens_gives_the_sum() {
    for m in 1..=16 {
        check(&Shape { m, n: 16, k: 64, world: 2 }, 4, 0, 2);
    }
}
