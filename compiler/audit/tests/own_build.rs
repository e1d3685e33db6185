//! The check of our own builds: a sound kernel passes, and each fault that a compiler may bring in is
//! found.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use kernel_abi::Access;
use kernel_audit::{
    AssembleOptions, Behind, Code, KernelObligations, LoadLine, Obligations, PASSES, Report,
    Toolchain, Verdict, check_build,
};
use support::tools;

const W: u32 = 0;
const X: u32 = 1;
const Y: u32 = 2;

/// A kernel with `.loc` lines: 3 reads weights, 5 waits, 6 reads activations, 8 lets the next grid start.
fn kernel(name: &str, body: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 .ptr .global w, .param .u64 .ptr .global x, \
         .param .u64 .ptr .global y)\n.reqntid 128\n{{\n\
         .reg .b32 %r<8>; .reg .b64 %rd<12>; .reg .f32 %f<12>; .reg .pred %p<3>;\n\
         .loc 1 1 0\nld.param.b64 %rd1, [w];\nld.param.b64 %rd2, [x];\nld.param.b64 %rd3, [y];\n\
         .loc 1 2 0\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd4, %r1, 4;\n\
         add.s64 %rd5, %rd1, %rd4;\nadd.s64 %rd6, %rd2, %rd4;\nadd.s64 %rd7, %rd3, %rd4;\n\
         {body}\
         .loc 1 9 0\nst.global.b32 [%rd7], %f3;\nret;\n}}\n"
    )
}

fn module(kernels: &[String]) -> String {
    format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.file 1 \"k.tile\"\n{}",
        kernels.concat()
    )
}

fn duties(kernel: &str) -> KernelObligations {
    KernelObligations {
        kernel: kernel.to_owned(),
        params: vec![
            ("w".to_owned(), Access::Static),
            ("x".to_owned(), Access::Input),
            ("y".to_owned(), Access::Output),
        ],
        after: vec![LoadLine { line: 6, param: X }],
        before: vec![LoadLine { line: 3, param: W }],
        waits: vec![5],
        launches: vec![8],
        ..KernelObligations::default()
    }
}

fn check(ptx: &str, kernels: &[&str]) -> Report {
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(ptx, &options).unwrap();
    let obligations = Obligations { kernels: kernels.iter().map(|name| duties(name)).collect() };
    check_build(ptx, &cubin, &obligations, &tools)
}

const WEIGHTS: &str = ".loc 1 3 0\nld.global.b32 %f1, [%rd5];\n";
const WAIT: &str = ".loc 1 5 0\ngriddepcontrol.wait;\n";
const ACTIVATIONS: &str = ".loc 1 6 0\nld.global.b32 %f2, [%rd6];\n";
const PRODUCT: &str = ".loc 1 7 0\nmul.f32 %f3, %f1, %f2;\n";
const LAUNCH: &str = ".loc 1 8 0\ngriddepcontrol.launch_dependents;\n";

fn codes(report: &Report, kernel: &str) -> Vec<Code> {
    let mut codes: Vec<Code> =
        report.findings.iter().filter(|i| i.kernel == kernel).map(|i| i.code).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn a_sound_build_is_clean() {
    let ptx = module(&[kernel("good", &[WEIGHTS, WAIT, ACTIVATIONS, PRODUCT, LAUNCH].concat())]);
    let report = check(&ptx, &["good"]);
    assert_eq!(report.verdict, Verdict::Clean, "{}", report.to_text("k"));
}

/// Both arms of a choice wait, and LLVM makes one wait of no line of the two; one that is gone is no such.
#[test]
fn equal_waits_of_both_arms_are_one() {
    let merged = WAIT.replace(".loc 1 5 0", ".loc 1 0 0");
    let body = |wait: &str| [WEIGHTS, wait, ACTIVATIONS, PRODUCT, LAUNCH].concat();
    let ptx = module(&[kernel("merged", &body(&merged)), kernel("lost", &body(WAIT))]);
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let both = |name: &&str| KernelObligations { waits: vec![5, 9], ..duties(name) };
    let obligations = Obligations { kernels: ["merged", "lost"].iter().map(both).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "merged").is_empty(), "{text}");
    assert_eq!(codes(&report, "lost"), [Code::MissingSync], "{text}");
}

#[test]
fn every_fault_is_found() {
    let weights_nc = WEIGHTS.replace("ld.global", "ld.global.nc");
    let activations_nc = ACTIVATIONS.replace("ld.global", "ld.global.nc");
    let red = ".loc 1 7 0\nred.global.add.u32 [%rd7+4096], 1;\n";
    let kernels = [
        kernel("early", &[WEIGHTS, ACTIVATIONS, WAIT, PRODUCT, LAUNCH].concat()),
        kernel("late_weights", &[WAIT, WEIGHTS, ACTIVATIONS, PRODUCT, LAUNCH].concat()),
        kernel("sunk_weights", &[&weights_nc, WAIT, ACTIVATIONS, PRODUCT, LAUNCH].concat()),
        kernel("noncoherent", &[WEIGHTS, WAIT, &activations_nc, PRODUCT, LAUNCH].concat()),
        kernel("no_wait", &[WEIGHTS, ACTIVATIONS, PRODUCT, LAUNCH].concat()),
        kernel("no_launch", &[WEIGHTS, WAIT, ACTIVATIONS, PRODUCT].concat()),
        kernel("bare", &[WEIGHTS, WAIT, ACTIVATIONS, PRODUCT, red, LAUNCH].concat()),
        kernel(
            "one_path",
            &[
                WEIGHTS,
                ".loc 1 4 0\nsetp.gt.u32 %p1, %r1, 7;\n@%p1 bra SKIP;\n",
                WAIT,
                "SKIP:\n",
                ACTIVATIONS,
                PRODUCT,
                LAUNCH,
            ]
            .concat(),
        ),
    ];
    let names = [
        "early",
        "late_weights",
        "sunk_weights",
        "noncoherent",
        "no_wait",
        "no_launch",
        "bare",
        "one_path",
    ];
    let report = check(&module(&kernels), &names);
    assert_eq!(report.verdict, Verdict::Findings);
    let text = report.to_text("k");
    assert_eq!(codes(&report, "early"), [Code::Moved, Code::Early], "{text}");
    assert_eq!(codes(&report, "late_weights"), [Code::Sunk], "{text}");
    assert!(text.contains("E0903"), "{text}");
    assert_eq!(codes(&report, "sunk_weights"), [Code::NonCoherent, Code::Sunk], "{text}");
    assert_eq!(codes(&report, "noncoherent"), [Code::NonCoherent], "{text}");
    assert_eq!(codes(&report, "no_wait"), [Code::Moved, Code::Early, Code::MissingSync], "{text}");
    assert_eq!(codes(&report, "no_launch"), [Code::MissingSync], "{text}");
    assert_eq!(codes(&report, "bare"), [Code::BareAtomic], "{text}");
    assert_eq!(codes(&report, "one_path"), [Code::Moved, Code::Early], "{text}");
    let sunk = report
        .findings
        .iter()
        .find(|item| item.kernel == "sunk_weights" && item.code == Code::Sunk)
        .unwrap();
    assert_eq!(sunk.param.as_deref(), Some("w"));
    assert!(sunk.sass.as_ref().unwrap().wait.is_some());
}

#[test]
fn an_arrival_is_a_fence_an_atomic_and_a_fence() {
    const FENCE: &str = "@!%p1 fence.acq_rel.gpu;\n";
    const COUNT: &str = "@!%p1 atom.relaxed.gpu.global.inc.u32 %r2, [%rd3+4096], 7;\n";
    let arrive = |parts: &[&str]| {
        let first = ".loc 1 7 0\nmul.f32 %f3, %f1, %f2;\nst.global.b32 [%rd7+8192], %f3;\n\
                     .loc 1 10 0\nsetp.ne.u32 %p1, %r1, 0;\n";
        let last = "st.global.b32 [%rd7+16384], %r2;\n";
        [WEIGHTS, WAIT, ACTIVATIONS, first, &parts.concat(), last, LAUNCH].concat()
    };
    let kernels = [
        kernel("whole", &arrive(&[FENCE, COUNT, FENCE])),
        kernel("no_release", &arrive(&[COUNT, FENCE])),
        kernel("no_acquire", &arrive(&[FENCE, COUNT])),
        kernel("no_atomic", &arrive(&[FENCE, FENCE])),
    ];
    let ptx = module(&kernels);
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let names = ["whole", "no_release", "no_acquire", "no_atomic"];
    let arriving = |name: &&str| KernelObligations { arrivals: vec![10], ..duties(name) };
    let obligations = Obligations { kernels: names.iter().map(arriving).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "whole").is_empty(), "{text}");
    for (name, missing) in [
        ("no_release", "the fence ahead of the atomic"),
        ("no_acquire", "the fence behind the atomic"),
        ("no_atomic", "the atomic"),
    ] {
        assert_eq!(codes(&report, name), [Code::MissingSync], "{text}");
        let found = report.findings.iter().filter(|item| item.kernel == name).count();
        assert_eq!(found, 2, "in the PTX and in the machine code: {text}");
        assert!(text.contains(&format!("{missing} of `arrive.last`")), "{text}");
    }
}

#[test]
fn what_other_ctas_have_stored_is_loaded_behind_the_wait_for_their_signals() {
    const SIGNAL: &str = ".loc 1 10 0\nred.release.gpu.global.add.u32 [%rd3+4096], 1;\n";
    const AWAIT: &str = ".loc 1 11 0\nlook:\nld.acquire.gpu.global.u32 %r2, [%rd3+4096];\n\
                         sub.s32 %r2, %r2, 8;\nsetp.lt.s32 %p1, %r2, 0;\n@%p1 bra look;\nbar.sync 0;\n";
    const SHARED: &str = ".loc 1 12 0\nld.global.b32 %f2, [%rd7+8192];\n";
    let body =
        |parts: &[&str]| [WEIGHTS, WAIT, ACTIVATIONS, &parts.concat(), PRODUCT, LAUNCH].concat();
    let kernels = [
        kernel("behind", &body(&[SIGNAL, AWAIT, SHARED])),
        kernel("ahead", &body(&[SIGNAL, SHARED, AWAIT])),
        kernel("no_signal", &body(&[AWAIT, SHARED])),
        kernel("no_wait", &body(&[SIGNAL, SHARED])),
    ];
    let ptx = module(&kernels);
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let meeting = |name: &&str| KernelObligations {
        after: Vec::new(),
        signals: vec![10],
        awaits: vec![11],
        behind: vec![Behind { line: 12, param: Some(Y), waits: vec![11] }],
        ..duties(name)
    };
    let names = ["behind", "ahead", "no_signal", "no_wait"];
    let obligations = Obligations { kernels: names.iter().map(meeting).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "behind").is_empty(), "{text}");
    assert_eq!(codes(&report, "ahead"), [Code::Moved, Code::Early], "{text}");
    assert_eq!(codes(&report, "no_signal"), [Code::MissingSync], "{text}");
    assert_eq!(codes(&report, "no_wait"), [Code::Moved, Code::Early, Code::MissingSync], "{text}");
}

/// Two waits for signals, and a load that the source has behind both: behind the first one it is early.
#[test]
fn a_load_stands_behind_each_of_its_waits() {
    const SIGNAL: &str = ".loc 1 10 0\nred.release.gpu.global.add.u32 [%rd3+4096], 1;\n";
    const SHARED: &str = ".loc 1 12 0\nld.global.b32 %f2, [%rd7+8192];\n";
    let wait = |line: u32, at: u32| {
        format!(
            ".loc 1 {line} 0\nlook{line}:\nld.acquire.sys.global.u32 %r2, [%rd3+{at}];\n\
             sub.s32 %r2, %r2, 8;\nsetp.lt.s32 %p1, %r2, 0;\n@%p1 bra look{line};\nbar.sync 0;\n"
        )
    };
    let (first, second) = (wait(11, 4096), wait(13, 8192));
    let body = |parts: &[&str]| {
        [WEIGHTS, WAIT, ACTIVATIONS, SIGNAL, &parts.concat(), PRODUCT, LAUNCH].concat()
    };
    let kernels = [
        kernel("behind_both", &body(&[&first, &second, SHARED])),
        kernel("behind_one", &body(&[&first, SHARED, &second]).replace("look", "look_one")),
        kernel("ahead", &body(&[SHARED, &first, &second]).replace("look", "look_none")),
    ];
    let ptx = module(&kernels);
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let meeting = |name: &&str| KernelObligations {
        after: Vec::new(),
        signals: vec![10],
        awaits: vec![11, 13],
        behind: vec![Behind { line: 12, param: Some(Y), waits: vec![11, 13] }],
        ..duties(name)
    };
    let names = ["behind_both", "behind_one", "ahead"];
    let obligations = Obligations { kernels: names.iter().map(meeting).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "behind_both").is_empty(), "{text}");
    assert_eq!(codes(&report, "behind_one"), [Code::Moved, Code::Early], "{text}");
    assert_eq!(codes(&report, "ahead"), [Code::Moved, Code::Early], "{text}");
}

/// What other CTAs of the cluster store is loaded behind the wait of the meeting, not between its two halves.
#[test]
fn a_load_of_the_cluster_stands_behind_its_meeting() {
    const MEET: &str = ".loc 1 11 0\nbarrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n";
    const ARRIVE: &str = ".loc 1 11 0\nbarrier.cluster.arrive.release.aligned;\n";
    const COMPLETE: &str = ".loc 1 11 0\nbarrier.cluster.wait.acquire.aligned;\n";
    const SHARED: &str =
        ".loc 1 12 0\nld.shared::cluster.b32 %f6, [%r3];\nadd.f32 %f2, %f2, %f6;\n";
    const OWN: &str = ".loc 1 13 0\nld.shared.b32 %f4, [buf];\nadd.f32 %f2, %f2, %f4;\n";
    const BUFFER: &str = ".loc 1 14 0\nld.global.b32 %f5, [%rd7+8192];\nadd.f32 %f2, %f2, %f5;\n";
    let place = ".loc 1 10 0\nmov.u32 %r4, buf;\nmapa.shared::cluster.u32 %r3, %r4, 1;\n";
    let body = |parts: &[&str]| {
        [WEIGHTS, WAIT, ACTIVATIONS, place, &parts.concat(), PRODUCT, LAUNCH].concat()
    };
    let kernels = [
        kernel("behind", &body(&[MEET, SHARED, OWN, BUFFER])),
        kernel("between", &body(&[ARRIVE, SHARED, COMPLETE, OWN, BUFFER])),
        kernel(
            "own_ahead",
            &body(&[SHARED.replace("12", "15").as_str(), OWN, MEET, SHARED, BUFFER]),
        ),
        kernel("buffer_ahead", &body(&[BUFFER, MEET, SHARED, OWN])),
        kernel("no_meeting", &body(&[SHARED, OWN, BUFFER])),
    ];
    let ptx = module(&kernels)
        .replace(".file 1 \"k.tile\"\n", ".file 1 \"k.tile\"\n.shared .align 4 .b8 buf[64];\n")
        .replace(".reqntid 128\n", ".reqntid 128\n.reqnctapercluster 2\n");
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let load = |line, param| Behind { line, param, waits: vec![11] };
    let meeting = |name: &&str| KernelObligations {
        meetings: vec![11],
        behind: vec![load(12, None), load(13, None), load(14, Some(Y))],
        ..duties(name)
    };
    let names = ["behind", "between", "own_ahead", "buffer_ahead", "no_meeting"];
    let obligations = Obligations { kernels: names.iter().map(meeting).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "behind").is_empty(), "{text}");
    for name in ["between", "own_ahead", "buffer_ahead"] {
        assert_eq!(codes(&report, name), [Code::Moved, Code::Early], "{name}: {text}");
    }
    assert_eq!(
        codes(&report, "no_meeting"),
        [Code::Moved, Code::Early, Code::MissingSync],
        "{text}"
    );
    assert!(text.contains("a load that has to follow `sync cluster`"), "{text}");
}

#[test]
fn multicast_addresses_are_touched_by_forms_of_their_own() {
    const FOLD: &str = ".loc 1 7 0\nmultimem.ld_reduce.weak.global.add.f32 %f3, [%rd7];\n";
    const STORE: &str = ".loc 1 8 0\nmultimem.st.weak.global.f32 [%rd7+64], %f3;\n";
    const PLAIN: &str = ".loc 1 8 0\nst.global.b32 [%rd7+64], %f3;\n";
    const FENCE: &str = "fence.proxy.alias;\n";
    const SIGNAL: &str = "red.release.sys.global.add.u32 [%rd7+4096], 1;\n";
    let body = |store: &str, fence: &str| {
        [WEIGHTS, WAIT, ACTIVATIONS, FOLD, store, ".loc 1 9 0\n", fence, SIGNAL, LAUNCH].concat()
    };
    let kernels = [
        kernel("whole", &body(STORE, FENCE)),
        kernel("plain", &body(PLAIN, FENCE)),
        kernel("unfenced", &body(STORE, "")),
        kernel("unknown", &body(STORE, FENCE)),
    ];
    let ptx = module(&kernels);
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
    let cubin = tools.assemble(&ptx, &options).unwrap();
    let of = |name: &str| {
        let multicast = if name == "unknown" { vec![7] } else { vec![7, 8] };
        KernelObligations { multicast, signals: vec![9], ..duties(name) }
    };
    let names = ["whole", "plain", "unfenced", "unknown"];
    let obligations = Obligations { kernels: names.into_iter().map(of).collect() };
    let report = check_build(&ptx, &cubin, &obligations, &tools);
    let text = report.to_text("k");
    assert!(codes(&report, "whole").is_empty(), "{text}");
    assert_eq!(codes(&report, "plain"), [Code::Multicast], "{text}");
    assert_eq!(codes(&report, "unfenced"), [Code::MissingSync], "{text}");
    assert_eq!(codes(&report, "unknown"), [Code::Multicast], "{text}");
    assert!(text.contains("E0909"), "{text}");
}

#[test]
fn a_missing_kernel_and_bad_text_are_not_judged() {
    let ptx = module(&[kernel("good", &[WEIGHTS, WAIT, ACTIVATIONS, PRODUCT, LAUNCH].concat())]);
    let report = check(&ptx, &["other"]);
    assert_eq!(report.verdict, Verdict::NotJudged);
    let report = check_build("what is this", &[], &Obligations::default(), &tools());
    assert_eq!(report.verdict, Verdict::NotJudged);
}

#[test]
fn passes_name_known_codes() {
    let known: Vec<&str> = Code::ALL.iter().map(|code| code.code()).collect();
    let all = [
        "E0901", "E0902", "E0903", "E0904", "E0905", "E0906", "E0907", "E0908", "E0909", "E0910",
        "E0911",
    ];
    assert_eq!(known, all);
    for pass in PASSES {
        assert!(pass.codes.iter().all(|code| known.contains(code)), "{}", pass.name);
    }
}
