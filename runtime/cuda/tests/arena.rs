//! Buffers that are alive at the same time never share memory.

use kernel_abi::plan::{
    BufferId, BufferRole, ExtentSpec, KernelKey, ParamSpec, Plan, PlanBuilder, Region, Signature,
};
use kernel_abi::{Access, DType};
use kernel_runtime::arena::{
    self, Lifetime, Sharing, lifetimes, line_up, outlast, place, step_layout,
};
use kernel_runtime::memory::ALIGNMENT;
use proptest::prelude::*;

fn life(first: usize, last: usize) -> Lifetime {
    Lifetime { first, last }
}

#[test]
fn what_does_not_meet_shares_memory() {
    let blocks = [
        Some((1000, life(0, 2))),
        Some((500, life(1, 3))),
        Some((900, life(3, 4))),
        None,
        Some((0, life(0, 4))),
    ];
    let layout = place(&blocks);
    assert_eq!(layout.starts, [Some(0), Some(1024), Some(0), None, Some(0)]);
    assert_eq!(layout.bytes, 1536);
}

#[test]
fn gaps_are_filled() {
    // The large ones are at 0 and 2048; between them is room while the third is not alive.
    let blocks = [
        Some((2048, life(0, 9))),
        Some((1024, life(0, 4))),
        Some((1023, life(0, 9))),
        Some((512, life(5, 9))),
        Some((512, life(5, 6))),
    ];
    let layout = place(&blocks);
    let starts = [Some(0), Some(2048), Some(3072), Some(2048), Some(2560)];
    assert_eq!(layout.starts, starts);
    assert_eq!(layout.bytes, 4096);
}

/// A chain: `b0` is copied to `b1`, that to `b2`, and so on; the last one is the result.
fn chain(length: usize) -> Plan {
    let mut b = PlanBuilder::new(1);
    let host = b.buffer("x", DType::F32, &[64], BufferRole::Host { promise: None });
    let mut before = host;
    for at in 0..length {
        let next = b.buffer(format!("b{at}"), DType::F32, &[64], BufferRole::Step);
        let region = |buffer| Region { buffer, start: 0, len: 64 };
        b.copy(format!("copy{at}"), region(before), region(next));
        before = next;
    }
    b.buffer("idle", DType::F32, &[64], BufferRole::Step);
    b.finish()
}

#[test]
fn a_chain_needs_two_buffers_and_its_result_outlives_it() {
    let plan = chain(10);
    let all = lifetimes(&plan, Sharing::Tight, |_, _| false);
    // `x` is no buffer of the step, `idle` is touched by no node.
    assert_eq!((all[0], all[11]), (None, None));
    assert_eq!(all[1], Some(life(0, 1)));
    assert_eq!(all[10], Some(life(9, 10)));
    assert_eq!(step_layout(&plan, &all).unwrap().bytes, 512);
    let apart = lifetimes(&plan, Sharing::None, |_, _| false);
    assert_eq!(apart[3], Some(life(0, 10)));
    assert_eq!(step_layout(&plan, &apart).unwrap().bytes, 2560);
}

#[test]
fn results_of_kernels_are_what_they_write() {
    let mut b = PlanBuilder::new(1);
    let x = b.buffer("x", DType::F32, &[8], BufferRole::Step);
    let y = b.buffer("y", DType::F32, &[8], BufferRole::Step);
    b.kernel("fill", "f.tile", "fill", &[]).write("x", x).add();
    b.kernel("use", "f.tile", "use", &[]).read("x", x).write("y", y).add();
    let plan = b.finish();
    let writes = |node: usize, buffer: BufferId| (node, buffer) == (1, y);
    let all = lifetimes(&plan, Sharing::Tight, writes);
    assert_eq!(all, [Some(life(0, 1)), Some(life(1, 2))]);
}

#[test]
fn weights_stand_side_by_side() {
    let mut b = PlanBuilder::new(1);
    for (name, dtype, shape) in [
        ("a", DType::Bf16, &[3, 100][..]),
        ("packed", DType::E2m1, &[513]),
        ("nothing", DType::F32, &[0]),
        ("b", DType::F32, &[1]),
    ] {
        b.buffer(name, dtype, shape, BufferRole::Weight);
    }
    b.buffer("state", DType::F32, &[1000], BufferRole::State);
    let plan = b.finish();
    let layout = line_up(&plan, |role| *role == BufferRole::Weight).unwrap();
    assert_eq!(layout.starts, [Some(0), Some(768), Some(1280), Some(1280), None]);
    assert_eq!(layout.bytes, 1536);
}

#[test]
fn more_than_memory_can_be_is_refused() {
    let mut b = PlanBuilder::new(1);
    b.buffer("a", DType::F32, &[1 << 60], BufferRole::Weight);
    b.buffer("b", DType::F32, &[1 << 60], BufferRole::Weight);
    b.buffer("c", DType::F32, &[1 << 60], BufferRole::Weight);
    let error = line_up(&b.finish(), |_| true).unwrap_err();
    assert_eq!(error.code().name(), "R0308");
}

proptest! {
    #[test]
    fn no_two_live_buffers_overlap(
        blocks in prop::collection::vec(
            prop::option::weighted(0.9, (0_u64..5000, 0_usize..40, 0_usize..40)),
            0..60,
        )
    ) {
        let blocks: Vec<Option<(u64, Lifetime)>> = blocks
            .into_iter()
            .map(|block| block.map(|(bytes, a, b)| (bytes, life(a.min(b), a.max(b)))))
            .collect();
        let layout = arena::place(&blocks);
        let mut most_alive = 0;
        for node in 0..40 {
            let here = |block: &&(u64, Lifetime)| block.1.first <= node && node <= block.1.last;
            let alive = blocks.iter().flatten().filter(here);
            most_alive = most_alive.max(alive.map(|b| b.0.next_multiple_of(ALIGNMENT)).sum::<u64>());
        }
        prop_assert!(layout.bytes >= most_alive);
        let all: u64 = blocks.iter().flatten().map(|b| b.0.next_multiple_of(ALIGNMENT)).sum();
        prop_assert!(layout.bytes <= all);
        for (i, a) in blocks.iter().enumerate() {
            prop_assert_eq!(a.is_some(), layout.starts[i].is_some());
            let Some((a_bytes, a_life)) = a else { continue };
            let a_start = layout.starts[i].unwrap();
            prop_assert!(a_start.is_multiple_of(ALIGNMENT) && a_start + a_bytes <= layout.bytes);
            for (j, b) in blocks.iter().enumerate().skip(i + 1) {
                let Some((b_bytes, b_life)) = b else { continue };
                let b_start = layout.starts[j].unwrap();
                let apart = a_start + a_bytes <= b_start || b_start + b_bytes <= a_start;
                prop_assert!(apart || !a_life.meets(*b_life), "{i} and {j}");
            }
        }
    }
}

#[test]
fn memory_of_a_launch_that_may_still_run_is_not_shared() {
    // `second` may end without a wait, so the wait of `third` does not cover `first`.
    let starts = |second_waits: bool| {
        let mut b = PlanBuilder::new(1);
        let x = b.buffer("x", DType::F32, &[64], BufferRole::Host { promise: None });
        let mut ids = Vec::new();
        for name in ["first", "second", "third"] {
            let scratch = b.buffer(name, DType::F32, &[64], BufferRole::Step);
            let kernel = if name == "second" { "odd" } else { "even" };
            b.kernel(name, "k.tile", kernel, &[])
                .read("x", x)
                .arg("s", Access::Scratch, scratch)
                .add();
            ids.push(scratch);
        }
        let param = |name: &str, access| {
            ParamSpec::new(name, access, DType::F32, vec![ExtentSpec::Const(64)])
        };
        let params = vec![param("x", Access::Input), param("s", Access::Scratch)];
        let even = Signature::new(params, true);
        let mut odd = even.clone();
        odd.waits.may_not_wait = !second_waits;
        let key = |kernel: &str| KernelKey {
            file: "k.tile".into(),
            kernel: kernel.into(),
            bindings: Default::default(),
        };
        let plan = b.finish().check([(key("even"), even), (key("odd"), odd)].into()).unwrap();
        let mut lives = lifetimes(&plan, Sharing::Tight, |_, _| false);
        outlast(&plan, &mut lives);
        let layout = step_layout(&plan, &lives).unwrap();
        ids.iter().map(|id| layout.starts[id.index()]).collect::<Vec<_>>()
    };
    assert_eq!(starts(true), [Some(0); 3]);
    let odd = starts(false);
    assert!(odd[0] != odd[2] && odd[0] != odd[1], "{odd:?}");
}
