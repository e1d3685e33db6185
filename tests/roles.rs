//! Roles and their barriers on the emulator: every schedule gives the same bits at both levels, and what is left out
//! of a kernel is found in every schedule.

#![expect(clippy::unwrap_used, reason = "unwrap is how a test fails")]

use kernel_abi::DType;
use kernel_emulator::{Buffer, EmuError, ErrorKind, Memory, Options, run_device, run_kernel};
use kernel_ir::device::{DeviceKernel, DeviceOp, DevicePipe, DeviceStmt};
use kernel_ir::kernel::{Kernel, PipeOp, Stmt, StmtKind};
use kernel_ir::pipeline::Built;
use kernel_tests::program::{Program, build_text};
use kernel_tests::schedules::{Schedules, memory};

/// A kernel for one target.
fn build(kernel: &str) -> Built {
    build_text(&format!(
        "target sm_90a;
{kernel}"
    ))
}

/// A loader, a role that sums, and one that takes the sums over.
fn chain() -> Built {
    build(
        "kernel chain(input x : gmem f32[9, 64], output y : gmem f32[64], output top : gmem f32[1])\n\
         launch { grid: 2, warps: 5 } {\n\
         smem s : f32[64] ring 3;\n\
         smem sums : f32[64];\n\
         pipeline ld { stages: 3; full: bytes(s) from loader to math; empty: from math to loader; }\n\
         barrier done : from math to last;\n\
         role loader: warps 0..1 elect one {\n\
             for t in 0..9 { open ld@t; copy.bulk x[t, :] -> s@t into ld.full@t; }\n\
         }\n\
         role math: warps 1..3 {\n\
             frag sum : f32[64] = 0.0;\n\
             for t in 0..9 { wait ld.full@t; sum += load s@t; release ld.empty@t; }\n\
             store sum -> sums;\n\
             release done;\n\
         }\n\
         role last: warps 3..5 {\n\
             wait done;\n\
             if cta.x == 0 { store load sums -> y; }\n\
             if cta.x == 1 { store reduce.max(load sums, axis = 0) -> top[0]; }\n\
         }\n}",
    )
}

fn schedules(count: u64) -> impl Iterator<Item = Options> {
    Schedules { count, seed: 7 }.options()
}

#[test]
fn every_schedule_gives_the_same_bits_at_both_levels() {
    let built = chain();
    let mut wanted = memory(&built.kernel);
    run_kernel(&built.kernel, &mut wanted, &Options::STANDARD).unwrap();
    for options in schedules(60) {
        let (mut kernel, mut device) = (memory(&built.kernel), memory(&built.kernel));
        run_kernel(&built.kernel, &mut kernel, &options).unwrap();
        run_device(&built.device, &mut device, &options).unwrap();
        assert!(kernel == wanted, "{:?}", options.schedule);
        assert!(device == wanted, "{:?}", options.schedule);
    }
}

fn retain(stmts: &mut Vec<Stmt>, keep: &mut impl FnMut(&StmtKind) -> bool) {
    stmts.retain(|stmt| keep(&stmt.kind));
    for stmt in stmts {
        if let StmtKind::For { body, .. } | StmtKind::Role { body, .. } = &mut stmt.kind {
            retain(body, keep);
        }
    }
}

fn retain_device(stmts: &mut Vec<DeviceStmt>, keep: &mut impl FnMut(&DeviceOp) -> bool) {
    stmts.retain(|stmt| keep(&stmt.op));
    for stmt in stmts {
        if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &mut stmt.op {
            retain_device(body, keep);
        }
    }
}

/// The errors of a broken kernel at both levels, in every schedule.
fn errors(
    keep: impl Fn(&StmtKind) -> bool,
    keep_device: impl Fn(&DeviceOp, &DeviceKernel) -> bool,
) -> Vec<EmuError> {
    let built = chain();
    let (mut kernel, mut device) =
        (built.kernel.clone().into_inner(), built.device.clone().into_inner());
    retain(&mut kernel.body, &mut |kind| keep(kind));
    let whole = device.clone();
    retain_device(&mut device.body, &mut |op| keep_device(op, &whole));
    let mut found = Vec::new();
    for options in schedules(12) {
        found.push(run_kernel(&kernel, &mut memory(&kernel), &options).unwrap_err());
        found.push(run_device(&device, &mut memory(&kernel), &options).unwrap_err());
    }
    found
}

#[test]
fn a_slot_that_is_not_waited_for_is_found_in_every_schedule() {
    let name = |device: &DeviceKernel, at| device.barriers[at].barrier.name.clone();
    let found = errors(
        |kind| !matches!(kind, StmtKind::Pipe(PipeOp::Wait { barrier, .. }) if barrier.to_string() == "b0"),
        |op, device| !matches!(op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if name(device, *barrier) == "ld.full"),
    );
    for error in found {
        let known = [ErrorKind::Poison, ErrorKind::RoleRace, ErrorKind::Phase];
        assert!(known.contains(&error.kind), "{:?}: {}", error.kind, error.message);
    }
}

#[test]
fn a_result_that_is_not_waited_for_is_a_race() {
    let name = |device: &DeviceKernel, at| device.barriers[at].barrier.name.clone();
    let found = errors(
        |kind| !matches!(kind, StmtKind::Pipe(PipeOp::Wait { barrier, .. }) if barrier.to_string() == "b2"),
        |op, device| !matches!(op, DeviceOp::Pipe(DevicePipe::Wait { barrier, .. }) if name(device, *barrier) == "done"),
    );
    let mut races = 0;
    for error in found {
        let known = [ErrorKind::Poison, ErrorKind::RoleRace];
        assert!(known.contains(&error.kind), "{:?}: {}", error.kind, error.message);
        if error.kind == ErrorKind::RoleRace {
            assert_eq!(error.code().name(), "E0718");
            races += 1;
        }
    }
    assert!(races > 0);
}

#[test]
fn slots_that_are_never_released_are_a_deadlock_that_says_who_waits() {
    let found = errors(
        |kind| !matches!(kind, StmtKind::Pipe(PipeOp::Release { barrier, .. }) if barrier.to_string() == "b1"),
        |op, device| {
            !matches!(op, DeviceOp::Pipe(DevicePipe::Arrive { barrier, .. })
                if device.barriers[*barrier].barrier.name == "ld.empty")
        },
    );
    for error in found {
        assert_eq!(
            (error.kind, error.code().name()),
            (ErrorKind::Deadlock, "E0714"),
            "{}",
            error.message
        );
        let says = |text: &str| error.message.contains(text);
        assert!(
            says("role `loader` waits for round 1 of slot 0 of `ld.empty`"),
            "{}",
            error.message
        );
        assert!(says("role `math` waits for round 2 of slot 0 of `ld.full`"), "{}", error.message);
        assert!(says("role `last` waits for round 1 of `done`"), "{}", error.message);
    }
}

#[test]
fn one_arrival_too_many_is_out_of_turn() {
    let built = chain();
    let mut kernel = built.kernel.clone().into_inner();
    for id in kernel.barriers.ids().collect::<Vec<_>>() {
        kernel.barriers[id].arrivals = 1;
    }
    let error = run_kernel(&kernel, &mut memory(&kernel), &Options::STANDARD).unwrap_err();
    assert_eq!((error.kind, error.code().name()), (ErrorKind::Phase, "E0719"));
}

/// Small integers, whose products and sums are exact in f32.
fn integers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7 + i / 13 + seed) % 5) as f32 - 2.0).collect()
}

#[test]
fn split_k_over_a_cluster_is_the_product_in_every_schedule() {
    let folder = kernel_tests::program::package_folder().join("suite");
    let [async_copies, boxes] = ["ops/splitk_async.tile", "ops/splitk.tile"];
    let cases =
        [(async_copies, 8, 256, 2), (boxes, 16, 256, 4), (boxes, 8, 320, 1), (boxes, 8, 512, 8)];
    for (file, m, k, split) in cases {
        let program = Program::read(&folder, file).unwrap();
        let binding = [("M", m), ("K", k), ("SPLIT", split), ("STAGES", 3)];
        let binding = binding.map(|(name, value): (&str, i64)| (name.to_owned(), value));
        let built = program.build_or_findings(&program.front.templates[0], &binding.to_vec(), None);
        let built = built.unwrap_or_else(|found| panic!("{}", program.show(&found)));
        let params = &built.kernel.params;
        let (n, m, k) = (128, m as usize, k as usize);
        let (w, x) = (integers(n * k, 1), integers(m * k, 3));
        let mut memory = Memory::new(params);
        for (name, values) in [("W", &w), ("X", &x)] {
            let param = Memory::find(params, name).unwrap();
            memory.set_buffer(param, Buffer::from_f32(DType::Bf16, values));
        }
        memory.fill_missing(params, 1).unwrap();
        let dot = |i: usize, j: usize| (0..k).map(|t| x[i * k + t] * w[j * k + t]).sum::<f32>();
        let wanted: Vec<f32> = (0..m * n).map(|at| dot(at / n, at % n)).collect();
        let wanted = Buffer::from_f32(DType::Bf16, &wanted);
        let y = Memory::find(params, "Y").unwrap();
        for options in schedules(4) {
            let (mut kernel, mut device) = (memory.clone(), memory.clone());
            run_kernel(&built.kernel, &mut kernel, &options).unwrap();
            run_device(&built.device, &mut device, &options).unwrap();
            assert!(kernel.buffer(y).unwrap().bytes() == wanted.bytes(), "{:?}", options.schedule);
            assert!(device.buffer(y).unwrap().bytes() == wanted.bytes(), "{:?}", options.schedule);
        }
    }
}

/// Each CTA of a cluster sends its row to the first.
fn sends() -> Built {
    build(
        "kernel sends(input x : gmem f32[4, 64], output y : gmem f32[64])\n\
         launch { grid: 4, cluster: 4, warps: 4 } {\n\
         smem part : f32[3, 64];\n\
         barrier inbox : bytes(part) scope cluster to math;\n\
         role math: warps 0..4 {\n\
             frag sum : f32[64] = load x[cluster.rank, :];\n\
             if cluster.rank != 0 { copy.st_async sum -> part@cta(0)[cluster.rank - 1, :] into inbox@cta(0); }\n\
             else {\n\
                 wait inbox;\n\
                 for c in 0..3 unroll { sum += load part[c, :]; }\n\
                 store sum -> y;\n\
             }\n\
         }\n}",
    )
}

/// Takes the waits out of a kernel, at both levels.
fn without_waits(built: &Built) -> (Kernel, DeviceKernel) {
    fn kernel(stmts: &mut Vec<Stmt>) {
        stmts.retain(|stmt| !matches!(stmt.kind, StmtKind::Pipe(PipeOp::Wait { .. })));
        for stmt in stmts {
            if let StmtKind::Role { body, .. } = &mut stmt.kind {
                kernel(body);
            } else if let StmtKind::If { then_body, else_body, .. } = &mut stmt.kind {
                kernel(then_body);
                kernel(else_body);
            }
        }
    }
    fn device(stmts: &mut Vec<DeviceStmt>) {
        stmts.retain(|stmt| !matches!(stmt.op, DeviceOp::Pipe(DevicePipe::Wait { .. })));
        for stmt in stmts {
            if let DeviceOp::Role { body, .. } = &mut stmt.op {
                device(body);
            } else if let DeviceOp::If { then_body, else_body, .. } = &mut stmt.op {
                device(then_body);
                device(else_body);
            }
        }
    }
    let (mut first, mut second) =
        (built.kernel.clone().into_inner(), built.device.clone().into_inner());
    kernel(&mut first.body);
    device(&mut second.body);
    (first, second)
}

#[test]
fn what_is_sent_and_not_waited_for_is_found_in_every_schedule() {
    let built = sends();
    let mut wanted = memory(&built.kernel);
    run_kernel(&built.kernel, &mut wanted, &Options::STANDARD).unwrap();
    let (kernel, device) = without_waits(&built);
    for options in schedules(40) {
        let mut whole = memory(&built.kernel);
        run_device(&built.device, &mut whole, &options).unwrap();
        assert!(whole == wanted, "{:?}", options.schedule);
        for error in [
            run_kernel(&kernel, &mut memory(&kernel), &options).unwrap_err(),
            run_device(&device, &mut memory(&kernel), &options).unwrap_err(),
        ] {
            let known = [ErrorKind::Poison, ErrorKind::RoleRace, ErrorKind::Absent];
            assert!(known.contains(&error.kind), "{:?}: {}", error.kind, error.message);
        }
    }
}

#[test]
fn bytes_that_never_come_are_a_deadlock() {
    let built = sends();
    let mut kernel = built.kernel.clone().into_inner();
    for id in kernel.barriers.ids().collect::<Vec<_>>() {
        kernel.barriers[id].bytes *= 2;
    }
    let error = run_kernel(&kernel, &mut memory(&kernel), &Options::STANDARD).unwrap_err();
    assert_eq!((error.kind, error.code().name()), (ErrorKind::Deadlock, "E0714"));
    assert!(error.message.contains("waits for 1536 bytes at `inbox`"), "{}", error.message);
}
