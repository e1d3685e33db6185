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

const RANKS: &str = "target sm_90a;
kernel sum<const W: int = 2>(
    input x: gmem f32[4], output y: gmem f32[4],
    peer inbox: sym f32[W, 4] ring 2, peer ready: sym_flag u32[1, W], inout epoch seq: gmem u32[1],
)
launch { grid: 1, warps: 1, pdl: both, world: W, resident: all }
{
    grid_wait;
    let t = load seq[0];
    for p in 0..W unroll { store load x -> inbox@peer(p)@t[rank, :]; }
    sync;
    signal ready@peer(*)[0, rank] add 1 order release scope sys;
    await ready[0, each] until t + 1 order acquire scope sys;
    frag total : f32[4] = 0.0;
    for r in 0..W unroll { total += load inbox@t[r, :]; }
    store total -> y;
    advance seq[0];
}
";

#[test]
fn a_kernel_over_ranks_goes_on_from_step_to_step() {
    let mut b = PlanBuilder::new(2);
    let x = b.buffer("x", DType::F32, &[4], BufferRole::Host { promise: None });
    let inbox = b.buffer("inbox", DType::F32, &[2, 2, 4], BufferRole::Symmetric);
    let ready = b.buffer("ready", DType::U32, &[1, 2], BufferRole::Symmetric);
    let seq = b.buffer("seq", DType::U32, &[1], BufferRole::State);
    let mut from = x;
    for name in ["first", "second", "third"] {
        let y = b.buffer(name, DType::F32, &[4], BufferRole::Step);
        b.kernel(name, "ranks.tile", "sum", &[])
            .read("x", from)
            .write("y", y)
            .arg("inbox", kernel_abi::Access::Peer, inbox)
            .arg("ready", kernel_abi::Access::Peer, ready)
            .update("seq", seq)
            .of_ranks()
            .add();
        from = y;
    }
    let sources = |name: &str| (name == "ranks.tile").then_some(RANKS);
    let mut executor = EmuExecutor::new(b.finish(), &sources).unwrap();
    executor.set_options(crate::Options { overlap: true, ..crate::Options::STANDARD });
    for step in 1..4 {
        for rank in 0..2 {
            let v = (step * (rank + 1)) as f32;
            executor.write(rank, x, &bytes(&[v, 2.0 * v, 3.0 * v, 4.0 * v])).unwrap();
        }
        executor.step().unwrap();
        let sum = (12 * step) as f32;
        for rank in 0..2 {
            let read = floats(&executor.read(rank, from).unwrap());
            assert_eq!(read, [sum, 2.0 * sum, 3.0 * sum, 4.0 * sum]);
        }
    }
    assert_eq!(executor.read(1, seq).unwrap(), [9, 0, 0, 0]);
}

const WAIVED: &str = "target sm_90a;
kernel regular(static w: gmem f32[4], settled input s: gmem f32[4], output y: gmem f32[4])
launch { grid: 1, warps: 1, pdl: both }
{
    let v = load w + load s;
    grid_wait;
    grid_launch;
    store v -> y;
}
// allow E0109: to see what a plan says
kernel odd(scalar n: i32 in 0..=4, input x: gmem f32[4, 8], output y: gmem f32[4, 8], output z: gmem f32[4])
launch { grid: 1, warps: 1, pdl: both }
{
    // allow E0107: to see what a plan says
    let early = load x[0 .. + 4 until n, :] else 0.0;
    // allow E0108: to see what a plan says
    store reduce.add(early, axis = 1) -> z;
    // allow E0110: to see what a plan says
    grid_launch;
    if n > 0 {
        grid_wait;
        store early + 1.0 -> y[0 .. + 4 until n, :];
    }
}
";

#[test]
fn a_signature_says_what_a_kernel_does_around_its_wait() {
    let key = |kernel: &str| kernel_abi::plan::KernelKey {
        file: "waived.tile".into(),
        kernel: kernel.into(),
        bindings: std::collections::BTreeMap::new(),
    };
    let sources = |name: &str| (name == "waived.tile").then_some(WAIVED);
    let built = super::instantiate(&[key("regular"), key("odd")], &sources).unwrap();
    let [regular, odd] = [0, 1].map(|at| super::signature(&built[at]));
    assert_eq!(regular.waits, kernel_abi::plan::Waits::default());
    assert!(regular.params.iter().all(|param| param.touches == Default::default()));
    assert!(odd.waits.may_not_wait && odd.waits.may_launch_first);
    let touches = |name: &str| &odd.param(name).unwrap().touches;
    assert!(touches("x").read_early && !touches("x").written_early);
    assert!(touches("z").written_early && !touches("y").written_early);
    assert_eq!(touches("x").rows.as_deref(), Some("n"));
    assert_eq!((touches("y").rows.as_deref(), &touches("z").rows), (Some("n"), &None));
}
