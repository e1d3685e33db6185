use kernel_abi::DType;
use kernel_abi::exec::Executor;
use kernel_abi::plan::{BufferId, BufferRole, Plan, PlanBuilder, Region, Scalar};

use super::{EmuExecutor, PlanFailure};

const SOURCE: &str = "target sm_90a;
kernel scale<const N: int>(
    static w: gmem f32[N], input x: gmem f32[N], inout total: gmem f32[N], output y: gmem f32[N], scalar by: f32,
)
launch { grid: 1, warps: 1, pdl: both }
export \"scale\"
{
    let a = load w;
    grid_wait;
    let v = a * load x * by;
    grid_launch;
    let so_far = load total;
    sync;
    store so_far + v -> total;
    store v -> y;
}
";

fn sources(name: &str) -> Option<&'static str> {
    (name == "scale.tile").then_some(SOURCE)
}

/// `y` of each rank is summed over the ranks and gathered in two ways; `total` is kept.
fn plan(ranks: u32) -> (Plan, Vec<BufferId>) {
    let mut b = PlanBuilder::new(ranks);
    let wide = u64::from(ranks) * 4;
    let w = b.buffer("w", DType::F32, &[4], BufferRole::Weight);
    let x = b.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let total = b.buffer("total", DType::F32, &[4], BufferRole::State);
    let y = b.buffer("y", DType::F32, &[4], BufferRole::Step);
    let sum = b.buffer("sum", DType::F32, &[4], BufferRole::Step);
    let all = b.buffer("all", DType::F32, &[wide], BufferRole::Step);
    let part = b.buffer("part", DType::F32, &[4], BufferRole::Step);
    let tail = b.buffer("tail", DType::F32, &[2], BufferRole::Step);
    b.kernel("scale", "scale.tile", "scale", &[("N", 4)])
        .read("w", w)
        .read("x", x)
        .update("total", total)
        .write("y", y)
        .scalars("by", (0..ranks).map(|r| Scalar::F32(1.0 + r as f32)).collect())
        .add();
    b.all_reduce("sum", y, sum);
    b.all_gather("all", y, all, 2);
    b.reduce_scatter("part", all, part, 2);
    let region = |buffer, start| Region { buffer, start, len: 2 };
    b.copy("tail", region(y, 2), region(tail, 0));
    (b.finish(), vec![w, x, total, sum, all, part, tail])
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn ranks_sum_gather_and_scatter_in_order() {
    let (plan, ids) = plan(2);
    let [w, x, total, sum, all, part, tail] = ids[..] else { panic!("seven buffers") };
    let mut executor = EmuExecutor::new(plan, &sources).unwrap();
    for rank in 0..2 {
        executor.write(rank, w, &bytes(&[1.0, 10.0, 100.0, 1000.0])).unwrap();
        executor.write(rank, x, &bytes(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    }
    executor.step().unwrap();
    executor.step().unwrap();
    let read = |rank, id| floats(&executor.read(rank, id).unwrap());
    for rank in 0..2 {
        assert_eq!(read(rank, sum), [3.0, 60.0, 900.0, 12000.0]);
        assert_eq!(read(rank, all), [1.0, 20.0, 2.0, 40.0, 300.0, 4000.0, 600.0, 8000.0]);
    }
    // Both ranks hold `all`, so each part of its sum is twice that part.
    assert_eq!(read(0, part), [2.0, 40.0, 600.0, 8000.0]);
    assert_eq!(read(1, part), [4.0, 80.0, 1200.0, 16000.0]);
    assert_eq!(read(1, tail), [600.0, 8000.0]);
    assert_eq!(read(0, total), [2.0, 40.0, 600.0, 8000.0]);
}

#[test]
fn what_was_not_written_is_an_error() {
    let (plan, ids) = plan(1);
    let (w, x, sum) = (ids[0], ids[1], ids[3]);
    let mut executor = EmuExecutor::new(plan, &sources).unwrap();
    assert!(matches!(executor.read(0, sum), Err(PlanFailure::Unwritten { element: 0, .. })));
    assert!(matches!(executor.write(0, w, &[0; 3]), Err(PlanFailure::Size { wanted: 16, .. })));
    let absent = executor.write(5, w, &[0; 16]).unwrap_err();
    assert_eq!(absent.to_string(), format!("there is no buffer {} of rank 5", w.0));
    executor.write(0, w, &[0; 16]).unwrap();
    let error = executor.step().unwrap_err().to_string();
    assert!(error.starts_with("scale, rank 0: scale<N = 4>: "), "{error}");
    // The buffers are back in place.
    executor.write(0, x, &[0; 16]).unwrap();
    executor.step().unwrap();
}

#[test]
fn refused_sources_and_plans_are_named() {
    let (mut broken, _) = plan(1);
    let failure = EmuExecutor::new(broken.clone(), &|_| None).unwrap_err();
    assert_eq!(failure.to_string(), "there is no kernel file `scale.tile`");
    let text = |_: &str| Some("target sm_90a;\nkernel scale<const N: int>(");
    assert!(matches!(EmuExecutor::new(broken.clone(), &text), Err(PlanFailure::Source(_))));
    broken.nodes[0].name = "sum".into();
    let failure = EmuExecutor::new(broken, &sources).unwrap_err().to_string();
    assert!(failure.contains("P0101"), "{failure}");
}
