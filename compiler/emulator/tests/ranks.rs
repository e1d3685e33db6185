//! The push all-reduce on several ranks in one process: both levels and every schedule give the sum in rank order.

use kernel_dsl::source::SourceMap;
use kernel_emulator::{
    Buffer, EmuError, ErrorKind, Memory, Options, Schedule, fill_ranks, run_device_on_ranks,
    run_kernel_on_ranks,
};
use kernel_ir::pipeline::{self, Built};
use kernel_ir::sema::{Bindings, ConstValue};
use kernel_ir::target::Target;

const PUSH: &str = include_str!("../../../tests/ranks/all_reduce_push.tile");

fn build(text: &str, binds: &[(&str, i64)]) -> Built {
    let mut sources = SourceMap::new();
    let root = sources.add("push.tile", text);
    let front = pipeline::front(&mut sources, root, &mut |_| Err("no imports".to_owned()));
    let show = |found: &[kernel_dsl::diag::Diagnostic]| {
        use kernel_dsl::diag::render::{Look, text_of_all};
        text_of_all(&sources, found, Look::PLAIN)
    };
    assert!(!front.has_errors(), "{}", show(&front.diagnostics));
    let bindings: Bindings =
        binds.iter().map(|(name, value)| ((*name).to_owned(), ConstValue::Int(*value))).collect();
    match pipeline::build(&front.templates[0], &bindings, Target::Sm90a) {
        Ok(built) => built,
        Err(found) => panic!("{}", show(&found)),
    }
}

fn memories(built: &Built, world: usize, seed: u64) -> Vec<Memory> {
    let params = &built.kernel.params;
    let mut memories = vec![Memory::new(params); world];
    fill_ranks(params, &mut memories, seed).expect("as many as the kernel takes");
    memories
}

fn buffer<'m>(built: &Built, memory: &'m Memory, name: &str) -> &'m Buffer {
    let id = Memory::find(&built.kernel.params, name).expect("a parameter of the kernel");
    memory.buffer(id).expect("it has memory")
}

/// The sum in rank order, in f32.
fn wanted(built: &Built, memories: &[Memory]) -> Vec<u64> {
    let inputs: Vec<&Buffer> = memories.iter().map(|m| buffer(built, m, "x")).collect();
    let value = |b: &Buffer, i: usize| f32::from_bits(b.code(i).expect("it is filled") as u32);
    let sum = |i| inputs.iter().fold(0.0f32, |sum, b| sum + value(b, i));
    (0..inputs[0].len()).map(|i| u64::from(f32::to_bits(sum(i)))).collect()
}

type Runner<'b> = &'b dyn Fn(&mut [Memory], usize, &Options) -> Result<(), EmuError>;

fn both(built: &Built, mut check: impl FnMut(Runner<'_>)) {
    check(&|memories, launches, options| {
        run_kernel_on_ranks(&built.kernel, memories, launches, options).map(|_| ())
    });
    check(&|memories, launches, options| {
        run_device_on_ranks(&built.device, memories, launches, options).map(|_| ())
    });
}

fn options(number: u64) -> Options {
    Options { schedule: Schedule::numbered(7, number), ..Options::STANDARD }
}

#[test]
fn every_rank_gets_the_sum_in_rank_order() {
    for (world, schedules) in [(1, 6), (2, 40), (3, 30), (4, 20), (8, 8), (16, 3)] {
        let built = build(PUSH, &[("WORLD", world)]);
        let start = memories(&built, world as usize, 3);
        let wanted = wanted(&built, &start);
        both(&built, |run| {
            for number in 0..schedules {
                let mut memories = start.clone();
                run(&mut memories, 3, &options(number)).unwrap();
                for memory in &memories {
                    let y = buffer(&built, memory, "y");
                    let got: Vec<u64> = (0..y.len()).map(|i| y.code(i).unwrap()).collect();
                    assert_eq!(got, wanted, "{world} ranks, schedule {number}");
                    let seq = buffer(&built, memory, "seq");
                    assert_eq!(seq.code(0), Some(3));
                }
            }
        });
    }
}

#[test]
fn epochs_wrap() {
    let built = build(PUSH, &[("WORLD", 3)]);
    let params = &built.kernel.params;
    let mut start = memories(&built, 3, 5);
    let last = u64::from(u32::MAX) - 1;
    for memory in &mut start {
        for name in ["seq", "ready"] {
            let len = buffer(&built, memory, name).len();
            let codes = vec![last; len];
            let id = Memory::find(params, name).unwrap();
            memory.set_buffer(id, Buffer::from_codes(kernel_abi::DType::U32, &codes));
        }
    }
    let wanted = wanted(&built, &start);
    both(&built, |run| {
        for number in 0..6 {
            let mut memories = start.clone();
            run(&mut memories, 4, &options(number)).unwrap();
            let y = buffer(&built, &memories[2], "y");
            let got: Vec<u64> = (0..y.len()).map(|i| y.code(i).unwrap()).collect();
            assert_eq!(got, wanted);
            assert_eq!(buffer(&built, &memories[0], "seq").code(1), Some(2));
        }
    });
}

#[test]
fn words_that_nobody_raises_far_enough_are_named() {
    let built = build(PUSH, &[("WORLD", 2)]);
    let id = Memory::find(&built.kernel.params, "ready").unwrap();
    let mut start = memories(&built, 2, 5);
    let late = vec![u64::from(u32::MAX); 4];
    for memory in &mut start {
        memory.set_buffer(id, Buffer::from_codes(kernel_abi::DType::U32, &late));
    }
    both(&built, |run| {
        let error = run(&mut start.clone(), 1, &options(0)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Deadlock);
        assert!(error.message.contains("CTA (1, 0, 0) of rank 1 waits until word"), "{error}");
        assert!(error.message.contains("of `ready` is 1, and it is 0"), "{error}");
    });
}

#[test]
fn a_rank_with_another_epoch_reads_nothing() {
    let built = build(PUSH, &[("WORLD", 2)]);
    let id = Memory::find(&built.kernel.params, "seq").unwrap();
    let mut start = memories(&built, 2, 5);
    start[1].set_buffer(id, Buffer::from_codes(kernel_abi::DType::U32, &[1, 1]));
    both(&built, |run| {
        let error = run(&mut start.clone(), 1, &options(0)).unwrap_err();
        assert_eq!((error.kind, error.detail.rank), (ErrorKind::Poison, Some(0)));
    });
}

#[test]
fn ranks_agree_on_the_rows_of_their_memory() {
    const ROWS: &str = include_str!("../../../tests/suite/ops/ranks/extents.tile");
    let built = build(ROWS, &[("WORLD", 2)]);
    let params = &built.kernel.params;
    let n = Memory::find(params, "n").unwrap();
    both(&built, |run| {
        for (rows, agree) in [([5, 5], true), ([5, 3], false), ([0, 1], false)] {
            let mut memories = vec![Memory::new(params); 2];
            for (memory, rows) in memories.iter_mut().zip(rows) {
                memory.set_scalar(n, params[n].dtype, rows);
            }
            fill_ranks(params, &mut memories, 1).unwrap();
            let found = run(&mut memories, 2, &options(0));
            match found {
                Ok(()) => assert!(agree, "{rows:?}"),
                Err(error) => {
                    assert!(!agree, "{error}");
                    assert_eq!(error.kind, ErrorKind::Argument);
                    assert!(error.message.contains("`inbox` has the extents [2, "), "{error}");
                }
            }
        }
    });
}
