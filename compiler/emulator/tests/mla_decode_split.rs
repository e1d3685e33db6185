//! Split attention over a paged cache, merged by the last CTA: both levels and every schedule give one result, and it
//! is that of a reference in f64.

use kernel_abi::DType;
use kernel_abi::numeric::{float_from_f64, random, to_f64};
use kernel_dsl::source::SourceMap;
use kernel_emulator::{Buffer, Memory, Options, Schedule, run_device, run_kernel};
use kernel_ir::pipeline::{self, Built};
use kernel_ir::sema::{Bindings, ConstValue};
use kernel_ir::target::Target;

const SOURCE: &str = include_str!("../../../tests/suite/run/mla_decode_split.tile");
/// Part of the largest result: scores and weights are rounded to bf16, as the result is.
const TOLERANCE: f64 = 0.02;

/// `B` requests with `lens` positions in pages of 32, `H` heads, `L` latent and `P` rotary elements.
struct Shape {
    h: usize,
    l: usize,
    p: usize,
    split: i64,
    lens: Vec<usize>,
}

const PAGE: usize = 32;
/// Pages of a request.
const PAGES: usize = 4;
const SCALE: f64 = 0.125;

fn build(shape: &Shape) -> Built {
    let mut sources = SourceMap::new();
    let root = sources.add("mla_decode_split.tile", SOURCE);
    let front = pipeline::front(&mut sources, root, &mut |_| Err("no imports".to_owned()));
    assert!(!front.has_errors());
    let int = |n: usize| i64::try_from(n).expect("small");
    let binds = [
        ("B", int(shape.lens.len())),
        ("H", int(shape.h)),
        ("L", int(shape.l)),
        ("P", int(shape.p)),
        ("PAGE", int(PAGE)),
        ("NP", int(PAGES)),
        ("SPLIT", shape.split),
    ];
    let bindings: Bindings =
        binds.iter().map(|(name, n)| ((*name).to_owned(), ConstValue::Int(*n))).collect();
    match pipeline::build(&front.templates[0], &bindings, Target::Sm90a) {
        Ok(built) => built,
        Err(found) => {
            use kernel_dsl::diag::render::{Look, text_of_all};
            panic!("{}", text_of_all(&sources, &found, Look::PLAIN))
        }
    }
}

/// Values of bf16 between -1 and 1.
fn values(stream: u64, len: usize) -> Vec<f64> {
    let one = |i: usize| {
        let word = random::word(5, stream, i as u64) % 255;
        (word as f64 - 127.0) / 128.0
    };
    (0..len).map(one).collect()
}

/// Pages in use, the last request's first: none is shared.
fn page(shape: &Shape, request: usize, j: usize) -> usize {
    (shape.lens.len() - 1 - request) * PAGES + (PAGES - 1 - j)
}

fn wanted(shape: &Shape, q: &[f64], cache: &[f64]) -> Vec<f64> {
    let width = shape.l + shape.p;
    let mut out = Vec::new();
    for (b, &len) in shape.lens.iter().enumerate() {
        for h in 0..shape.h {
            let row =
                |t: usize| &cache[(page(shape, b, t / PAGE) * PAGE + t % PAGE) * width..][..width];
            let of_head = &q[(b * shape.h + h) * width..][..width];
            let score = |t: usize| -> f64 {
                let product: f64 = row(t).iter().zip(of_head).map(|(a, b)| a * b).sum();
                product * SCALE
            };
            let weights: Vec<f64> = (0..len).map(|t| score(t).exp2()).collect();
            let total: f64 = weights.iter().sum();
            for c in 0..shape.l {
                let sum: f64 = weights.iter().enumerate().map(|(t, w)| w * row(t)[c]).sum();
                out.push(if len == 0 { 0.0 } else { sum / total });
            }
        }
    }
    out
}

fn bf16(values: &[f64]) -> Buffer {
    let code = |&v: &f64| float_from_f64(DType::Bf16, v).expect("it has that type");
    Buffer::from_codes(DType::Bf16, &values.iter().map(code).collect::<Vec<_>>())
}

fn i32s(values: &[usize]) -> Buffer {
    Buffer::from_codes(DType::I32, &values.iter().map(|&v| v as u64).collect::<Vec<_>>())
}

fn holds(shape: &Shape) {
    let built = build(shape);
    let params = &built.kernel.params;
    let width = shape.l + shape.p;
    let requests = shape.lens.len();
    let pages = requests * PAGES;
    let q = values(1, requests * shape.h * width);
    let cache = values(2, pages * PAGE * width);
    let mut start = Memory::new(params);
    let find = |name: &str| Memory::find(params, name).expect("a parameter of the kernel");
    let table: Vec<usize> = (0..requests)
        .flat_map(|b| (0..PAGES).map(move |j| (b, j)))
        .map(|(b, j)| page(shape, b, j))
        .collect();
    start.set_buffer(find("len"), i32s(&shape.lens));
    start.set_buffer(find("table"), i32s(&table));
    start.set_buffer(find("q"), bf16(&q));
    start.set_buffer(find("cache"), bf16(&cache));
    start.set_scalar(find("pages"), DType::I32, pages as u64);
    start.set_scalar(find("scale"), DType::F32, u64::from((SCALE as f32).to_bits()));
    start.fill_missing(params, 1).expect("the rest is what the kernel writes, and zeros");
    let reference = wanted(shape, &q, &cache);
    let largest = reference.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    let mut first: Option<Memory> = None;
    for number in 0..12 {
        let options = Options { schedule: Schedule::numbered(3, number), ..Options::STANDARD };
        let (mut kernel, mut device) = (start.clone(), start.clone());
        run_kernel(&built.kernel, &mut kernel, &options).expect("the kernel level runs");
        run_device(&built.device, &mut device, &options).expect("the device level runs");
        assert!(kernel == device, "the levels differ in order {number}");
        assert!(first.get_or_insert_with(|| kernel.clone()) == &kernel, "order {number} differs");
        let out = kernel.buffer(find("o")).expect("a buffer");
        for (i, wanted) in reference.iter().enumerate() {
            let got = to_f64(DType::Bf16, out.code(i).expect("it is written"));
            assert!(
                (got - wanted).abs() <= TOLERANCE * largest,
                "element {i}: {got}, not {wanted}"
            );
        }
    }
}

#[test]
fn splits_of_every_length_merge_to_the_attention_of_all_positions() {
    // No position at all, one, a full page, parts of pages, splits without a page, all pages.
    holds(&Shape { h: 3, l: 32, p: 16, split: 3, lens: vec![0, 1, 32, 33, 100, 128] });
    holds(&Shape { h: 8, l: 64, p: 16, split: 4, lens: vec![128, 5] });
    holds(&Shape { h: 1, l: 16, p: 16, split: 1, lens: vec![77] });
}
