//! Worker processes: answers in order, one process for many jobs, and an abort that ends one job.

use kernel_codegen::{CodegenError, Stage, Tools};
use kernelc::worker::{Job, JobInput, Pool};

fn pool(workers: usize) -> Pool {
    Pool { program: env!("CARGO_BIN_EXE_kernelc").into(), tools: Tools::default(), workers }
}

fn llvm(name: &str, text: &str, target: &str) -> Job {
    Job {
        name: name.to_owned(),
        target: target.to_owned(),
        input: JobInput::Llvm(text.to_owned()),
        last: Stage::Ptx,
        reproduce: format!("kernelc emit --from llvm --stage ptx --target {target} {name}.ll"),
    }
}

fn good(name: &str) -> Job {
    let text = format!("define ptx_kernel void @{name}() {{\n  ret void\n}}\n");
    llvm(name, &text, "sm_90a")
}

/// An intrinsic that the target lacks: LLVM ends the process with "Cannot select".
fn aborting() -> Job {
    let text = "\
declare void @llvm.nvvm.tcgen05.relinq.alloc.permit.cg1()
define ptx_kernel void @aborting() {
  call void @llvm.nvvm.tcgen05.relinq.alloc.permit.cg1()
  ret void
}
";
    llvm("aborting", text, "sm_90a")
}

#[test]
fn answers_keep_the_order_of_the_jobs() {
    let names: Vec<String> = (0..7).map(|i| format!("kernel_{i}")).collect();
    let answers = pool(3).run(names.iter().map(|name| good(name)).collect());
    assert_eq!(answers.len(), names.len());
    for (name, answer) in names.iter().zip(answers) {
        let ptx = answer.expect("the job is good").ptx.expect("there is PTX");
        assert!(ptx.contains(&format!(".entry {name}")), "{ptx}");
    }
    assert!(pool(2).run(Vec::new()).is_empty());
}

/// T7: an abort of LLVM ends one job, with a report, and the next job runs.
#[test]
fn an_abort_of_llvm_ends_one_job() {
    let answers = pool(1).run(vec![good("before"), aborting(), good("after")]);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let Err(CodegenError::WorkerDied { kernel, stage, status, stderr, reproduce }) = &answers[1]
    else {
        panic!("{:?}", answers[1]);
    };
    assert_eq!((kernel.as_str(), *stage), ("aborting", Stage::Ptx));
    assert_eq!(status, "signal 6 (SIGABRT)");
    assert!(stderr.contains("Cannot select"), "{stderr}");
    assert!(reproduce.contains("--from llvm"), "{reproduce}");
    let on_blackwell = Job { target: "sm_100a".to_owned(), ..aborting() };
    assert!(pool(1).run(vec![on_blackwell])[0].is_ok(), "the target has the intrinsic");
}

#[test]
fn what_cannot_be_done_is_an_error_of_its_job() {
    let unknown = Job { target: "sm_1".to_owned(), ..good("k") };
    let broken = llvm("broken", "no module", "sm_90a");
    let cubin = Job { last: Stage::Cubin, ..good("k") };
    let answers = pool(1).run(vec![unknown, broken, cubin, good("k")]);
    assert!(matches!(answers[0], Err(CodegenError::Worker(_))), "{answers:?}");
    assert!(matches!(answers[1], Err(CodegenError::Backend(_))), "{answers:?}");
    assert!(matches!(answers[2], Err(CodegenError::ToolMissing { .. })), "{answers:?}");
    assert!(answers[3].is_ok(), "{answers:?}");
    let nowhere = Pool { program: "/nonexistent/kernelc".into(), ..pool(1) };
    assert!(matches!(nowhere.run(vec![good("k")])[0], Err(CodegenError::Worker(_))));
}

#[test]
fn a_process_that_is_no_worker_is_reported() {
    let silent = Pool { program: "/bin/true".into(), ..pool(1) };
    let answers = silent.run(vec![good("k")]);
    assert!(matches!(answers[0], Err(CodegenError::WorkerDied { .. })), "{answers:?}");
}
