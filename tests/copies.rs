//! Copies out of shared memory and to all CTAs of a cluster, on the emulator: what is left out of a kernel is found.

use kernel_emulator::{EmuError, ErrorKind, Options, run_device, run_kernel};
use kernel_ir::device::{DeviceOp, DevicePipe, DeviceStmt, WarpgroupOp};
use kernel_ir::kernel::{Kernel, Outgoing, PipeOp, Stmt, StmtKind, Storage};
use kernel_ir::pipeline::Built;
use kernel_tests::program::build_text as build;
use kernel_tests::schedules::{Schedules, memory};

fn leaving() -> Built {
    build(include_str!("suite/ops/copy_out.tile"))
}

fn multicast() -> Built {
    build(include_str!("suite/ops/multicast.tile"))
}

fn schedules() -> impl Iterator<Item = Options> {
    Schedules { count: 6, seed: 9 }.options()
}

/// Statements that a change keeps, changed.
fn change(stmts: &mut Vec<Stmt>, keep: &impl Fn(&mut StmtKind) -> bool) {
    stmts.retain_mut(|stmt| keep(&mut stmt.kind));
    for stmt in stmts {
        if let StmtKind::For { body, .. } | StmtKind::Role { body, .. } = &mut stmt.kind {
            change(body, keep);
        }
    }
}

fn change_device(stmts: &mut Vec<DeviceStmt>, keep: &impl Fn(&mut DeviceOp) -> bool) {
    stmts.retain_mut(|stmt| keep(&mut stmt.op));
    for stmt in stmts {
        if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &mut stmt.op {
            change_device(body, keep);
        }
    }
}

/// What each schedule finds in a changed kernel at kernel level.
fn errors(built: &Built, keep: impl Fn(&mut StmtKind) -> bool) -> Vec<Option<ErrorKind>> {
    let mut kernel: Kernel = built.kernel.clone().into_inner();
    change(&mut kernel.body, &keep);
    let run = |options: Options| run_kernel(&kernel, &mut memory(&built.kernel), &options).err();
    schedules().map(run).map(|found| found.map(|found: EmuError| found.kind)).collect()
}

fn device_errors(built: &Built, keep: impl Fn(&mut DeviceOp) -> bool) -> Vec<Option<ErrorKind>> {
    let mut device = built.device.clone().into_inner();
    change_device(&mut device.body, &keep);
    let run = |options: Options| run_device(&device, &mut memory(&built.kernel), &options).err();
    schedules().map(run).map(|found| found.map(|found: EmuError| found.kind)).collect()
}

#[track_caller]
fn all(found: &[Option<ErrorKind>], wanted: ErrorKind) {
    assert!(!found.is_empty() && found.iter().all(|kind| *kind == Some(wanted)), "{found:?}");
}

#[test]
fn what_is_not_published_is_not_copied() {
    let built = leaving();
    let found =
        errors(&built, |kind| !matches!(kind, StmtKind::Outgoing(Outgoing::Publish { .. })));
    all(&found, ErrorKind::SharedRace);
    let found =
        device_errors(&built, |op| !matches!(op, DeviceOp::Warpgroup(WarpgroupOp::ProxyFence)));
    all(&found, ErrorKind::SharedRace);
}

#[test]
fn a_slot_that_has_not_been_read_is_not_written() {
    let built = leaving();
    let waits = |storage: &Storage| storage.tile().is_some();
    let found = errors(
        &built,
        |kind| !matches!(kind, StmtKind::Outgoing(Outgoing::Settle { storage, .. }) if waits(storage)),
    );
    all(&found, ErrorKind::SharedRace);
    let found = device_errors(&built, |op| {
        !matches!(op, DeviceOp::Pipe(DevicePipe::WaitGroup { reads: true, .. }))
    });
    all(&found, ErrorKind::SharedRace);
}

#[test]
fn threads_do_not_end_with_copies_under_way() {
    let built = leaving();
    let waits = |storage: &Storage| storage.tile().is_none();
    let found = errors(
        &built,
        |kind| !matches!(kind, StmtKind::Outgoing(Outgoing::Settle { storage, .. }) if waits(storage)),
    );
    all(&found, ErrorKind::Absent);
    let found = device_errors(&built, |op| {
        !matches!(op, DeviceOp::Pipe(DevicePipe::WaitGroup { reads: false, .. }))
    });
    all(&found, ErrorKind::Absent);
}

#[test]
fn two_copies_under_way_do_not_write_one_element() {
    let built = build(
        "target sm_90a;
         kernel again(input x : gmem f32[2, 128], output y : gmem f32[256])
         launch { grid: 1, warps: 2, pdl: none }
         {
             smem s : f32[128] ring 2;
             store load x[0, :] -> s@0;
             store load x[1, :] -> s@1;
             publish s;
             sync;
             copy.bulk s@0 -> y[0 .. + 128];
             copy.bulk s@1 -> y[128 .. + 128];
             settle y;
             copy.bulk s@1 -> y[64 .. + 128];
             settle y;
         }",
    );
    let mut wanted = memory(&built.kernel);
    run_kernel(&built.kernel, &mut wanted, &Options::STANDARD).unwrap();
    let mut device = memory(&built.kernel);
    run_device(&built.device, &mut device, &Options::STANDARD).unwrap();
    assert!(device == wanted);
    // Without the first of the two.
    let seen = std::cell::Cell::new(0);
    let is_first = || seen.replace(seen.get() + 1) == 0;
    let found = errors(&built, |kind| {
        !(matches!(kind, StmtKind::Outgoing(Outgoing::Settle { .. })) && is_first())
    });
    all(&found, ErrorKind::StoreConflict);
    seen.set(0);
    let found = device_errors(&built, |op| {
        !(matches!(op, DeviceOp::Pipe(DevicePipe::WaitGroup { .. })) && is_first())
    });
    all(&found, ErrorKind::StoreConflict);
}

#[test]
fn slots_that_go_back_to_one_cta_alone_leave_the_others_waiting() {
    let built = multicast();
    let found = errors(&built, |kind| {
        if let StmtKind::Pipe(PipeOp::Release { everywhere, .. }) = kind {
            *everywhere = false;
        }
        true
    });
    all(&found, ErrorKind::Deadlock);
    let found = device_errors(&built, |op| {
        if let DeviceOp::Pipe(DevicePipe::Arrive { everywhere, .. }) = op {
            *everywhere = false;
        }
        true
    });
    all(&found, ErrorKind::Deadlock);
}

#[test]
fn a_slot_that_is_not_opened_is_not_filled_while_others_read_it() {
    let built = multicast();
    let found = errors(&built, |kind| !matches!(kind, StmtKind::Pipe(PipeOp::Open { .. })));
    assert!(found.iter().all(Option::is_some), "{found:?}");
}

#[test]
fn every_schedule_gives_the_same_bits_at_both_levels() {
    let built = multicast();
    let mut wanted = memory(&built.kernel);
    run_kernel(&built.kernel, &mut wanted, &Options::STANDARD).unwrap();
    for options in schedules() {
        let (mut kernel, mut device) = (memory(&built.kernel), memory(&built.kernel));
        run_kernel(&built.kernel, &mut kernel, &options).unwrap();
        run_device(&built.device, &mut device, &options).unwrap();
        assert!(kernel == wanted && device == wanted, "{:?}", options.schedule);
    }
}
