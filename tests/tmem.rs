//! Tensor memory on the emulator: every schedule gives the same bits at both levels, and what is left out of a kernel
//! is found.

#![expect(clippy::unwrap_used, reason = "unwrap is how a test fails")]

use kernel_emulator::{EmuError, ErrorKind, Memory, Options, run_device, run_kernel};
use kernel_ir::device::{DeviceOp, DevicePipe, DeviceStmt, TensorOp, WarpgroupOp};
use kernel_ir::kernel::{PipeOp, Stmt, StmtKind};
use kernel_ir::pipeline::Built;
use kernel_tests::program::build_text as build;
use kernel_tests::schedules::{Schedules, memory};

/// Sums that go round between the role that multiplies and the one that reads them.
fn rounds() -> Built {
    build(include_str!("suite/ops/tcgen05_rounds.tile"))
}

fn schedules(count: u64) -> impl Iterator<Item = Options> {
    Schedules { count, seed: 3 }.options()
}

#[test]
fn every_schedule_gives_the_same_bits_at_both_levels() {
    let built = rounds();
    let mut wanted = memory(&built.kernel);
    run_kernel(&built.kernel, &mut wanted, &Options::STANDARD).unwrap();
    for options in schedules(12) {
        let (mut kernel, mut device) = (memory(&built.kernel), memory(&built.kernel));
        run_kernel(&built.kernel, &mut kernel, &options).unwrap();
        run_device(&built.device, &mut device, &options).unwrap();
        assert!(kernel == wanted, "{:?}", options.schedule);
        assert!(device == wanted, "{:?}", options.schedule);
    }
}

fn retain(stmts: &mut Vec<Stmt>, keep: &impl Fn(&StmtKind) -> bool) {
    stmts.retain(|stmt| keep(&stmt.kind));
    for stmt in stmts {
        if let StmtKind::For { body, .. } | StmtKind::Role { body, .. } = &mut stmt.kind {
            retain(body, keep);
        }
    }
}

fn retain_device(stmts: &mut Vec<DeviceStmt>, keep: &impl Fn(&DeviceOp) -> bool) {
    stmts.retain(|stmt| keep(&stmt.op));
    for stmt in stmts {
        if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &mut stmt.op {
            retain_device(body, keep);
        }
        if let DeviceOp::If { then_body, else_body, .. } = &mut stmt.op {
            retain_device(then_body, keep);
            retain_device(else_body, keep);
        }
    }
}

fn kernel_errors(keep: impl Fn(&StmtKind) -> bool) -> Vec<EmuError> {
    let mut kernel = rounds().kernel.clone().into_inner();
    retain(&mut kernel.body, &keep);
    let run = |options| run_kernel(&kernel, &mut memory(&kernel), &options).unwrap_err();
    schedules(6).map(run).collect()
}

fn device_errors(keep: impl Fn(&DeviceOp) -> bool) -> Vec<EmuError> {
    let built = rounds();
    let mut device = built.device.clone().into_inner();
    retain_device(&mut device.body, &keep);
    let run = |options| run_device(&device, &mut memory(&built.kernel), &options).unwrap_err();
    schedules(6).map(run).collect()
}

fn all_of(found: &[EmuError], kinds: &[ErrorKind]) {
    for error in found {
        assert!(kinds.contains(&error.kind), "{:?}: {}", error.kind, error.message);
    }
}

#[test]
fn sums_that_are_not_waited_for_are_a_race() {
    let is_wait =
        |op: &PipeOp| matches!(op, PipeOp::Wait { barrier, .. } if barrier.to_string() == "b2");
    let found = kernel_errors(|kind| !matches!(kind, StmtKind::Pipe(op) if is_wait(op)));
    all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Poison]);
    let is_wait = |op: &DevicePipe| matches!(op, DevicePipe::Wait { barrier, .. } if barrier.to_string() == "b2");
    let found = device_errors(|op| !matches!(op, DeviceOp::Pipe(pipe) if is_wait(pipe)));
    all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Poison]);
}

#[test]
fn products_that_are_not_committed_are_found() {
    let found = kernel_errors(|kind| !matches!(kind, StmtKind::Pipe(PipeOp::Commit { .. })));
    all_of(&found, &[ErrorKind::Phase, ErrorKind::Deadlock, ErrorKind::RoleRace]);
    let found = device_errors(|op| !matches!(op, DeviceOp::Pipe(DevicePipe::Commit { .. })));
    all_of(&found, &[ErrorKind::Phase, ErrorKind::Deadlock, ErrorKind::RoleRace]);
}

#[test]
fn fences_that_are_left_out_are_found() {
    for which in 0..3 {
        let found = device_errors(|op| {
            if let DeviceOp::Warpgroup(WarpgroupOp::ProxyFence) = op {
                return which != 2;
            }
            let DeviceOp::Tensor(op) = op else { return true };
            match op {
                TensorOp::FenceBefore => which != 0,
                TensorOp::FenceAfter => which != 1,
                TensorOp::Allocate { .. }
                | TensorOp::Attach { .. }
                | TensorOp::Free { .. }
                | TensorOp::CopyScales { .. }
                | TensorOp::Product(_)
                | TensorOp::Store { .. }
                | TensorOp::Load { .. } => true,
            }
        });
        all_of(&found, &[ErrorKind::RoleRace, ErrorKind::SharedRace]);
    }
}

#[test]
fn tensor_memory_that_is_not_allocated_has_no_columns() {
    let found = device_errors(|op| !matches!(op, DeviceOp::Tensor(TensorOp::Allocate { .. })));
    all_of(&found, &[ErrorKind::OutOfBounds]);
}

/// Split K over a cluster, weights and activations by tensor copies, against the sum in f64.
#[test]
fn split_k_is_the_product_in_every_schedule() {
    let built = build(include_str!("suite/run/splitk_tcgen05.tile"));
    // One rounding to bf16, and those of the sums.
    let bound = |sum: f64, size: f64| sum.abs() / 256.0 + size * 1e-6;
    is_the_product(&built, ["X", "W", "Y"], [16, 128, 256], bound);
}

/// Operands of both CTAs of a pair, and sums in both.
fn pair() -> Built {
    build(include_str!("suite/ops/tcgen05_pair.tile"))
}

#[test]
fn a_pair_of_ctas_is_the_product_in_every_schedule() {
    let rounds = build(include_str!("suite/ops/tcgen05_pair_rounds.tile"));
    let atoms = build(include_str!("suite/ops/tcgen05_pair_atoms.tile"));
    let low = build(include_str!("suite/ops/tcgen05_pair_low.tile"));
    let bound = |_: f64, size: f64| size * 1e-6;
    is_the_product(&pair(), ["w", "x", "y"], [256, 32, 192], bound);
    is_the_product(&rounds, ["w", "x", "y"], [256, 96, 64], bound);
    is_the_product(&low, ["w", "x", "y"], [128, 64, 128], bound);
    is_the_product(&atoms, ["w", "x", "y"], [256, 128, 192], bound);
}

/// Products whose left operand four warps store to tensor memory, to one slot that goes round.
fn left() -> Built {
    let text = include_str!("suite/ops/tcgen05_left.tile");
    build(&text.replace("v * 2.0", "v").replace("const Q: int = 2", "const Q: int = 1"))
}

#[test]
fn a_left_operand_in_tensor_memory_is_the_one_that_was_stored() {
    is_the_product(&left(), ["x", "w", "y"], [128, 32, 128], |_, size| size * 1e-6);
}

#[test]
fn a_left_operand_that_is_not_handed_over_is_found() {
    let built = left();
    for which in 0..3 {
        let found = errors_of(&built, |op| {
            let DeviceOp::Tensor(op) = op else { return true };
            let of = [
                matches!(op, TensorOp::FenceBefore),
                matches!(op, TensorOp::FenceAfter),
                matches!(op, TensorOp::Store { .. }),
            ];
            !of[which]
        });
        all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Poison]);
    }
    for name in ["left.full", "left.empty"] {
        let barriers = &built.kernel.barriers;
        let meant = barriers.iter_enumerated().find(|(_, b)| b.name == name).unwrap().0;
        let found = errors_of(
            &built,
            |op| !matches!(op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if *barrier == meant),
        );
        all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Poison, ErrorKind::Phase]);
    }
}

/// Scales that one CTA copies to its own tensor memory alone, or nobody does.
#[test]
fn scales_that_a_cta_of_a_pair_does_not_have_are_found() {
    let built = build(include_str!("suite/ops/tcgen05_pair_mxf8.tile"));
    let found =
        errors_of(&built, |op| !matches!(op, DeviceOp::Tensor(TensorOp::CopyScales { .. })));
    all_of(&found, &[ErrorKind::Poison]);
    let mut device = built.device.clone().into_inner();
    alone(&mut device.body);
    for options in schedules(6) {
        let found = run_device(&device, &mut memory(&built.kernel), &options).unwrap_err();
        all_of(&[found], &[ErrorKind::Poison]);
    }
}

/// Lets scales be copied in their own CTA alone.
fn alone(stmts: &mut [DeviceStmt]) {
    for stmt in stmts {
        if let DeviceOp::Tensor(TensorOp::CopyScales { pair, .. }) = &mut stmt.op {
            *pair = false;
        }
        if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &mut stmt.op {
            alone(body);
        }
        if let DeviceOp::If { then_body, else_body, .. } = &mut stmt.op {
            alone(then_body);
            alone(else_body);
        }
    }
}

/// `y[m, n] = a[m, k] b[n, k]^T`, of the named parameters, in every schedule against the sum in f64. The bound is of the
/// sum and of the sum of the sizes of its terms.
fn is_the_product(
    built: &Built,
    [a, b, y]: [&str; 3],
    [m, n, k]: [usize; 3],
    bound: impl Fn(f64, f64) -> f64,
) {
    let params = &built.kernel.params;
    let values = |memory: &Memory, name: &str| {
        memory.buffer(Memory::find(params, name).unwrap()).unwrap().to_f64()
    };
    let first = memory(&built.kernel);
    let (a, b) = (values(&first, a), values(&first, b));
    let mut wanted = None;
    for options in schedules(8) {
        let (mut kernel, mut device) = (memory(&built.kernel), memory(&built.kernel));
        run_kernel(&built.kernel, &mut kernel, &options).unwrap();
        run_device(&built.device, &mut device, &options).unwrap();
        assert!(kernel == device, "{:?}", options.schedule);
        let found = values(&kernel, y);
        let same = wanted.get_or_insert_with(|| found.clone());
        assert!(*same == found, "{:?}", options.schedule);
    }
    let found = wanted.unwrap();
    for row in 0..m {
        for column in 0..n {
            let terms = (0..k).map(|i| a[row * k + i] * b[column * k + i]);
            let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
            let y = found[row * n + column];
            assert!((y - sum).abs() <= bound(sum, size), "[{row}, {column}]: {y} for {sum}");
        }
    }
}

fn errors_of_pair(keep: impl Fn(&DeviceOp) -> bool) -> Vec<EmuError> {
    errors_of(&pair(), keep)
}

fn errors_of(built: &Built, keep: impl Fn(&DeviceOp) -> bool) -> Vec<EmuError> {
    let mut device = built.device.clone().into_inner();
    retain_device(&mut device.body, &keep);
    let run = |options| run_device(&device, &mut memory(&built.kernel), &options).unwrap_err();
    schedules(6).map(run).collect()
}

#[test]
fn a_pair_meets_before_its_tensor_memory_comes_and_goes() {
    let built = pair();
    let ops = || built.device.body.iter().map(|stmt| &stmt.op);
    let meets = |op: &DeviceOp| matches!(op, DeviceOp::ClusterBarrier);
    let at = |is: &dyn Fn(&TensorOp) -> bool| {
        ops().position(|op| matches!(op, DeviceOp::Tensor(op) if is(op))).unwrap()
    };
    let allocate = at(&|op| matches!(op, TensorOp::Allocate { pair: true, .. }));
    let attach = at(&|op| matches!(op, TensorOp::Attach { .. }));
    let free = at(&|op| matches!(op, TensorOp::Free { pair: true, .. }));
    let roles = ops().position(|op| matches!(op, DeviceOp::Role { .. })).unwrap();
    assert!(ops().take(allocate).any(meets));
    assert!(ops().take(attach).skip(allocate).any(meets) && attach < roles);
    assert!(ops().take(free).skip(roles).any(meets));
}

/// What another CTA commits arrives on its own, and the last time no `open` waits for it.
#[test]
fn the_last_commits_of_all_ctas_are_waited_for() {
    let texts = [
        include_str!("suite/ops/tcgen05_pair.tile"),
        include_str!("suite/ops/tcgen05_multicast.tile"),
    ];
    for text in texts {
        let built = build(text);
        let empty = built.kernel.barriers.iter_enumerated().find(|(_, b)| b.name == "ld.empty");
        let (empty, slots) = empty.map(|(id, b)| (id, b.slots as usize)).unwrap();
        let loader = built.device.body.iter().find_map(|stmt| match &stmt.op {
            DeviceOp::Role { role, body } if built.kernel.barriers[empty].to.contains(role) => {
                Some(body)
            }
            _ => None,
        });
        let is_wait = |stmt: &&DeviceStmt| matches!(&stmt.op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if *barrier == empty);
        assert_eq!(loader.unwrap().iter().filter(is_wait).count(), slots);
    }
}

/// cutlass#3435: one CTA gives tensor memory back while the other one has not come so far.
#[test]
fn a_pair_that_does_not_meet_is_found() {
    let found = errors_of_pair(|op| !matches!(op, DeviceOp::ClusterBarrier));
    all_of(&found, &[ErrorKind::ClusterRace, ErrorKind::Absent]);
    let left = std::cell::Cell::new(0);
    for which in 0..3 {
        left.set(0);
        let found = errors_of_pair(|op| {
            let meets = matches!(op, DeviceOp::ClusterBarrier);
            left.set(left.get() + u32::from(meets));
            !meets || left.get() != which + 1
        });
        all_of(&found, &[ErrorKind::ClusterRace, ErrorKind::Absent]);
    }
}

#[test]
fn what_a_pair_is_not_told_is_found() {
    // The first CTA does not wait for what both have copied.
    let is_full = |barrier: &dyn std::fmt::Display| barrier.to_string() == "b0";
    let found = errors_of_pair(
        |op| !matches!(op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if is_full(barrier)),
    );
    all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Poison, ErrorKind::Phase]);
    // It does not wait until both have read the sums of a slot.
    let rounds = build(include_str!("suite/ops/tcgen05_pair_rounds.tile"));
    let found = errors_of(
        &rounds,
        |op| !matches!(op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if barrier.to_string() == "b3"),
    );
    all_of(&found, &[ErrorKind::RoleRace, ErrorKind::Phase]);
    // Nobody announces bytes.
    let found = errors_of_pair(|op| !matches!(op, DeviceOp::Pipe(DevicePipe::Announce { .. })));
    all_of(&found, &[ErrorKind::Deadlock]);
    // The other CTA is not told.
    let built = pair();
    let mut device = built.device.clone().into_inner();
    only_own(&mut device.body);
    for options in schedules(6) {
        let found = run_device(&device, &mut memory(&built.kernel), &options).unwrap_err();
        all_of(&[found], &[ErrorKind::Deadlock]);
    }
}

/// Lets commits arrive in their own CTA alone.
fn only_own(stmts: &mut [DeviceStmt]) {
    for stmt in stmts {
        if let DeviceOp::Pipe(DevicePipe::Commit { everywhere, .. }) = &mut stmt.op {
            *everywhere = false;
        }
        if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &mut stmt.op {
            only_own(body);
        }
        if let DeviceOp::If { then_body, else_body, .. } = &mut stmt.op {
            only_own(then_body);
            only_own(else_body);
        }
    }
}
