//! Errors of a run that no `.tile` file can provoke: arguments that do not fit, and device kernels that are not
//! what expansion makes.

#![expect(clippy::unwrap_used, reason = "unwrap is how a test fails")]

use kernel_abi::{Access, DType};
use kernel_emulator::{
    Buffer, EmuError, ErrorKind, Memory, Options, Schedule, fill_ranks, run_device, run_kernel,
    run_kernel_on_ranks,
};
use kernel_ir::device::{DeviceKernel, DeviceOp, DeviceStmt, Special};
use kernel_ir::kernel::{Literal, Op, StmtKind};
use kernel_ir::ops::BinaryOp;
use kernel_ir::pipeline::Built;
use kernel_tests::program::Program;

/// The only kernel of a text.
fn build(kernel: &str) -> Built {
    let text = format!("target sm_90a;\n{kernel}");
    let mut read = |path: &str| Err(format!("there is no file `{path}`"));
    let program = Program::of_text("test.tile", &text, &mut read);
    assert!(!program.front.has_errors(), "{}", program.show(&program.front.diagnostics));
    program.build(&program.front.templates[0], &Vec::new(), None).unwrap()
}

fn sum_of_rows() -> Built {
    build(
        "kernel sums(input x : gmem f32[64, 32], output y : gmem f32[64]) launch { grid: 1, warps: 4 } {\n\
         let v = load x;\n\
         let s = reduce.add(reduce.add(v, axis = 1), axis = 0);\n\
         store reduce.add(v, axis = 1) / s -> y;\n}",
    )
}

/// The error of both levels, which is one.
fn launch(built: &Built, change: impl FnOnce(&mut Memory)) -> EmuError {
    let params = &built.kernel.params;
    let mut memory = Memory::new(params);
    memory.fill_missing(params, 1).unwrap();
    change(&mut memory);
    let before = memory.clone();
    let error = run_kernel(&built.kernel, &mut memory, &Options::STANDARD).unwrap_err();
    // The device level can name the thread besides.
    let mut device = run_device(&built.device, &mut memory, &Options::STANDARD).unwrap_err();
    device.detail.thread = None;
    assert_eq!(device, error);
    assert_eq!(memory, before, "a run that fails leaves memory as it was");
    error
}

/// The error of a device kernel that somebody has changed.
fn broken(built: &Built, change: impl FnOnce(&mut DeviceKernel)) -> EmuError {
    let mut device = built.device.clone().into_inner();
    change(&mut device);
    let mut memory = Memory::new(&device.params);
    memory.fill_missing(&device.params, 1).unwrap();
    run_device(&device, &mut memory, &Options::STANDARD).unwrap_err()
}

/// Calls `f` on every block of statements, the outermost first.
fn blocks(stmts: &mut Vec<DeviceStmt>, f: &mut impl FnMut(&mut Vec<DeviceStmt>)) {
    f(stmts);
    for stmt in stmts {
        match &mut stmt.op {
            DeviceOp::For { body, .. } => blocks(body, f),
            DeviceOp::If { then_body, else_body, .. } => {
                blocks(then_body, f);
                blocks(else_body, f);
            }
            _ => {}
        }
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let built = build(
        "kernel k(scalar n : i32, input x : gmem f32[n, 2], output y : gmem f32[2]) launch { grid: 1, warps: 1 } {\n\
         store load x[0 .. + 1 until n, :] else 0.0 -> y[_, :];\n}",
    );
    let ids: Vec<_> = built.kernel.params.ids().collect();
    let (n, x, y) = (ids[0], ids[1], ids[2]);
    let kind = |change: &dyn Fn(&mut Memory)| {
        let error = launch(&built, change);
        assert_eq!((error.kind, error.code().name()), (ErrorKind::Argument, "E0706"));
        error.message
    };
    let message = kind(&|memory| memory.set_buffer(x, Buffer::filled(DType::F32, vec![0; 4])));
    assert!(message.contains("`x` is 32 elements of f32, the argument has 1"), "{message}");
    let message = kind(&|memory| memory.set_buffer(y, Buffer::poison(DType::Bf16, 2)));
    assert!(message.contains("2 elements of bf16"), "{message}");
    let message = kind(&|memory| memory.set_scalar(y, DType::F32, 0));
    assert!(message.contains("`y` is a buffer of f32"), "{message}");
    let message = kind(&|memory| memory.set_scalar(n, DType::I64, 2));
    assert!(message.contains("`n` is a scalar of i32"), "{message}");
    let message = kind(&|memory| memory.set_scalar(n, DType::I32, 0xffff_ffff));
    assert!(message.contains("`n` of `x` is -1, below zero"), "{message}");
    let message = kind(&|memory| *memory = Memory::new(&built.kernel.params));
    assert!(message.contains("the scalar `n` is missing"), "{message}");
}

#[test]
fn a_store_to_what_nobody_may_write_is_refused() {
    let built = sum_of_rows();
    let mut kernel = built.kernel.clone().into_inner();
    for id in kernel.params.ids().collect::<Vec<_>>() {
        kernel.params[id].access = Access::Input;
    }
    let mut memory = Memory::new(&kernel.params);
    memory.fill_missing(&kernel.params, 1).unwrap();
    let error = run_kernel(&kernel, &mut memory, &Options::STANDARD).unwrap_err();
    assert_eq!((error.kind, error.code().name()), (ErrorKind::ReadOnly, "E0708"));
}

#[test]
fn shared_memory_without_a_barrier_is_a_race() {
    let error = broken(&sum_of_rows(), |device| {
        let mut removed = 0;
        blocks(&mut device.body, &mut |block| {
            let before = block.len();
            block.retain(|stmt| !matches!(stmt.op, DeviceOp::Barrier));
            removed += before - block.len();
        });
        assert!(removed > 0, "a sum over warps has a barrier");
    });
    assert_eq!((error.kind, error.code().name()), (ErrorKind::SharedRace, "E0710"));
}

/// Every CTA of the cluster adds up what all of them have written to it.
fn sum_of_cluster() -> Built {
    build(
        "kernel sums(input x : gmem f32[4], output y : gmem f32[4]) launch { grid: 4, cluster: 4, warps: 1 } {\n\
         smem part : f32[4];\n\
         for c in 0..4 unroll { store load x[cta.x] -> part@cta(c)[cluster.rank]; }\n\
         sync cluster;\n\
         store reduce.add(load part, axis = 0) -> y[cta.x];\n}",
    )
}

/// All schedules of a few numbers.
fn schedules() -> impl Iterator<Item = Options> {
    (0..12).map(|number| Options { schedule: Schedule::numbered(5, number), ..Options::STANDARD })
}

#[test]
fn memory_of_a_cta_that_has_not_started_is_an_error() {
    let error = broken(&sum_of_cluster(), |device| {
        let first = device.body.iter().position(|s| matches!(s.op, DeviceOp::ClusterBarrier));
        device.body.remove(first.unwrap());
    });
    assert_eq!((error.kind, error.code().name()), (ErrorKind::Absent, "E0716"));
    assert!(error.message.contains("which has not started"), "{}", error.message);
}

/// Without the meeting some order reads what is not written yet, and every order that does not is a race.
#[test]
fn a_cluster_that_does_not_meet_fails_in_every_order() {
    let built = sum_of_cluster();
    let mut device = built.device.clone().into_inner();
    let last = device.body.iter().rposition(|s| matches!(s.op, DeviceOp::ClusterBarrier));
    device.body.remove(last.unwrap());
    let mut kernel = built.kernel.clone().into_inner();
    kernel.body.retain(|stmt| !matches!(stmt.kind, StmtKind::SyncCluster));
    let mut memory = Memory::new(&kernel.params);
    memory.fill_missing(&kernel.params, 1).unwrap();
    for options in schedules() {
        let errors = [
            run_kernel(&kernel, &mut memory.clone(), &options).unwrap_err(),
            run_device(&device, &mut memory.clone(), &options).unwrap_err(),
        ];
        for error in errors {
            let known = [ErrorKind::ClusterRace, ErrorKind::Poison].contains(&error.kind);
            assert!(known, "{:?}: {}", options.schedule, error.message);
        }
    }
}

#[test]
fn two_ctas_that_write_one_place_are_a_race() {
    let built = sum_of_cluster();
    let mut kernel = built.kernel.clone().into_inner();
    for stmt in &mut kernel.body {
        if let StmtKind::Def { op: op @ Op::ClusterIndex(_), .. } = &mut stmt.kind {
            *op = Op::Const(Literal::Int(0));
        }
    }
    let mut memory = Memory::new(&kernel.params);
    memory.fill_missing(&kernel.params, 1).unwrap();
    for options in schedules() {
        let error = run_kernel(&kernel, &mut memory.clone(), &options).unwrap_err();
        assert_eq!((error.kind, error.code().name()), (ErrorKind::ClusterRace, "E0715"));
    }
}

#[test]
fn a_vector_at_an_odd_place_is_refused() {
    let error = broken(&sum_of_rows(), |device| {
        blocks(&mut device.body, &mut |block| {
            for stmt in block {
                if let DeviceOp::Load { vectors, .. } = &mut stmt.op {
                    for vector in vectors.iter_mut().filter(|vector| vector.len > 1) {
                        vector.constant += 1;
                    }
                }
            }
        });
    });
    assert_eq!((error.kind, error.code().name()), (ErrorKind::Misaligned, "E0711"));
}

/// The barrier goes under a condition that holds in one lane only.
#[test]
fn a_barrier_that_some_threads_do_not_reach_is_refused() {
    let error = broken(&sum_of_rows(), |device| {
        use kernel_ir::device::{Arg, Frag};
        use kernel_ir::kernel::Literal;
        use kernel_ir::ops::CompareOp;
        let loc = device.body[0].loc;
        let mut frag = |dtype| device.frags.push(Frag { dtype, len: 1 });
        let (lane, zero, cond) = (frag(DType::I32), frag(DType::I32), frag(DType::Bool));
        let barrier = DeviceStmt { op: DeviceOp::Barrier, loc };
        let stmts = [
            DeviceOp::Special { dst: lane, which: Special::Lane },
            DeviceOp::Const { dst: zero, values: vec![Literal::Int(0)] },
            DeviceOp::Compare {
                dst: cond,
                op: CompareOp::Eq,
                a: Arg::whole(lane),
                b: Arg::whole(zero),
            },
            DeviceOp::If { cond, then_body: vec![barrier], else_body: Vec::new() },
        ];
        device.body.splice(0..0, stmts.map(|op| DeviceStmt { op, loc }));
    });
    assert_eq!((error.kind, error.code().name()), (ErrorKind::NotUniform, "E0712"));
}

/// Of several errors the one of the lowest CTA is told, whatever the threads of the host do.
#[test]
fn errors_do_not_depend_on_the_run() {
    let built = build(
        "kernel k(input n : gmem i32[64], output y : gmem i32[64]) launch { grid: 64, warps: 1 } {\n\
         let i = load n[cta.x];\n\
         assert i < 7;\n\
         store i -> y[cta.x];\n}",
    );
    let id = Memory::find(&built.kernel.params, "n").unwrap();
    let values: Vec<i32> = (0..64).map(|i| if i % 5 == 4 { 9 } else { 0 }).collect();
    for _ in 0..4 {
        let error = launch(&built, |memory| memory.set_buffer(id, Buffer::from_i32(&values)));
        assert_eq!((error.kind, error.detail.cta), (ErrorKind::Assert, Some([4, 0, 0])));
    }
}

/// The verifier does not take the compiler's word for anything.
#[test]
fn a_kernel_that_contradicts_itself_is_refused() {
    let built = sum_of_rows();
    let mut kernel = built.kernel.clone().into_inner();
    let last = kernel.body.len() - 1;
    kernel.body.swap(0, last);
    let outcome = kernel_ir::verify::kernel(kernel);
    assert!(outcome.verified.is_none());
    assert!(outcome.diagnostics.iter().any(|found| found.code.name() == "E0810"));
    let mut device = built.device.clone().into_inner();
    device.body.reverse();
    let outcome = kernel_ir::verify::device(device, &built.kernel);
    assert!(outcome.verified.is_none());
    assert!(outcome.diagnostics.iter().any(|found| found.code.name() == "E0810"));
}

fn exchange() -> Built {
    build(
        "kernel sums<const W: int = 3>(input x : gmem f32[4], output y : gmem f32[4], peer inbox : sym f32[W, 4] ring 2,\n\
         peer ready : sym_flag u32[1, W], inout epoch seq : gmem u32[1])\n\
         launch { grid: 1, warps: 2, world: W, resident: all } {\n\
         let t = load seq[0];\n\
         for p in 0..W unroll { store load x -> inbox@peer(p)@t[rank, :]; }\n\
         sync;\n\
         signal ready@peer(*)[0, rank] add 1 order release scope sys;\n\
         await ready[0, each] until t + 1 order acquire scope sys;\n\
         store reduce.add(load inbox@t, axis = 0) -> y;\n\
         advance seq[0];\n}",
    )
}

/// The error of each order in which the ranks of a changed kernel take turns, two launches in a row.
fn on_ranks(change: impl Fn(&StmtKind) -> bool) -> Vec<EmuError> {
    let mut kernel = exchange().kernel.into_inner();
    kernel.body.retain(|stmt| !change(&stmt.kind));
    let mut memories = vec![Memory::new(&kernel.params); 3];
    fill_ranks(&kernel.params, &mut memories, 1).unwrap();
    let run =
        |options| run_kernel_on_ranks(&kernel, &mut memories.clone(), 2, &options).unwrap_err();
    schedules().map(run).collect()
}

#[test]
fn what_threads_stored_since_they_met_is_not_published() {
    for error in on_ranks(|kind| matches!(kind, StmtKind::Sync)) {
        assert_eq!((error.kind, error.code().name()), (ErrorKind::RankRace, "E0717"), "{error}");
        assert!(error.message.contains("reads an element of `inbox` that CTA"), "{error}");
        assert!(error.detail.other.is_some() && error.detail.rank.is_some());
    }
}

/// Without the wait some order reads what is not there yet, and every order that does not is a race.
#[test]
fn ranks_that_do_not_wait_fail_in_every_order() {
    for error in on_ranks(|kind| matches!(kind, StmtKind::Await(_))) {
        assert!([ErrorKind::RankRace, ErrorKind::Poison].contains(&error.kind), "{error}");
    }
}

#[test]
fn ranks_that_nobody_signals_wait_for_each_other() {
    for error in on_ranks(|kind| matches!(kind, StmtKind::Signal(_))) {
        assert_eq!((error.kind, error.code().name()), (ErrorKind::Deadlock, "E0714"), "{error}");
        for rank in 0..3 {
            let wanted = format!("CTA (0, 0, 0) of rank {rank} waits until word 0 of `ready` is 1");
            assert!(error.message.contains(&wanted), "{error}");
        }
    }
}

/// The slot that a slower rank still reads is written again.
#[test]
fn a_rank_that_is_a_launch_ahead_needs_a_second_slot() {
    let mut kernel = exchange().kernel.into_inner();
    for stmt in &mut kernel.body {
        if let StmtKind::Def { op: Op::Binary { op: op @ BinaryOp::And, .. }, .. } = &mut stmt.kind
        {
            // Slot t & 1 becomes slot 0.
            *op = BinaryOp::Rem;
        }
    }
    let mut memories = vec![Memory::new(&kernel.params); 3];
    fill_ranks(&kernel.params, &mut memories, 1).unwrap();
    let raced = schedules().any(|options| {
        let ended = run_kernel_on_ranks(&kernel, &mut memories.clone(), 4, &options);
        ended.is_err_and(|error| error.kind == ErrorKind::RankRace)
    });
    assert!(raced, "some order finds it");
}

#[test]
fn a_kernel_over_ranks_takes_memory_for_each() {
    let built = exchange();
    let mut memories = vec![Memory::new(&built.kernel.params); 2];
    fill_ranks(&built.kernel.params, &mut memories, 1).unwrap();
    let few = run_kernel_on_ranks(&built.kernel, &mut memories, 1, &Options::STANDARD).unwrap_err();
    assert_eq!((few.kind, few.code().name()), (ErrorKind::Argument, "E0706"));
    assert_eq!(few.message, "a kernel over 3 ranks, with memory for 2");
}
