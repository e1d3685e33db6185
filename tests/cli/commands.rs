//! check, fmt, layout, emit, explain, doctor, audit, completions, version.

use kernel_tests::process::{Scratch, kernelc, kernelc_with_input, root};

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("cli-{name}"))
}

const DOUBLE: &str = "target sm_90a, sm_100a, sm_103a;\n\
    \n\
    // Twice the input.\n\
    kernel double<const N: int = 256>(input x : gmem f32[N], output y : gmem f32[N])\n\
    launch { grid: 1, warps: 2, pdl: both }\n\
    {\n\
    \x20   grid_wait;\n\
    \x20   let v = load x;\n\
    \x20   grid_launch;\n\
    \x20   store v * 2.0 -> y;\n\
    }\n";

const EARLY: &str = "target sm_90a;\n\
    kernel early(input x : gmem f32[128], output y : gmem f32[128]) launch { grid: 1, warps: 4, pdl: both } {\n\
    \x20   let v = load x;\n\
    \x20   grid_wait;\n\
    \x20   store v -> y;\n\
    }\n";

#[test]
fn check_accepts_in_words_and_refuses_with_the_place() {
    let folder = scratch("check");
    let good = folder.file("good.tile", DOUBLE);
    let answer = kernelc(["check", &good]).expect_code(0);
    assert!(answer.stdout.contains("1 kernels, 3 instances, no errors"), "{}", answer.stdout);
    assert_eq!(answer.stderr, "");
    let bad = folder.file("bad.tile", EARLY);
    let answer = kernelc(["check", &bad]).expect_code(1);
    assert!(answer.stderr.contains("error[E0107]"), "{}", answer.stderr);
    assert!(answer.stderr.contains("bad.tile:3:13"), "{}", answer.stderr);
    // Both files: the worst exit code, and both answers.
    let answer = kernelc(["check", &good, &bad]).expect_code(1);
    assert!(answer.stdout.contains("no errors") && answer.stderr.contains("E0107"));
}

#[test]
fn check_answers_programs_in_json_and_sarif() {
    let folder = scratch("check-json");
    let bad = folder.file("bad.tile", EARLY);
    let answer = kernelc(["check", "--format", "json", &bad]).expect_code(1);
    assert_eq!(answer.stderr, "");
    let lines = answer.json_lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["code"], "E0107");
    assert_eq!(lines[0]["severity"], "error");
    let sarif = kernelc(["check", "--format", "sarif", &bad]).expect_code(1);
    let log: serde_json::Value = serde_json::from_str(&sarif.stdout).unwrap();
    assert_eq!(log["version"], "2.1.0");
    assert_eq!(log["runs"][0]["results"][0]["ruleId"], "E0107");
}

#[test]
fn check_reads_standard_input() {
    let answer = kernelc_with_input(["check", "-"], EARLY.as_bytes()).expect_code(1);
    assert!(answer.stderr.contains("<stdin>:3:13"), "{}", answer.stderr);
    let answer = kernelc_with_input(["check", "-"], DOUBLE.as_bytes()).expect_code(0);
    assert!(answer.stdout.contains("no errors"), "{}", answer.stdout);
}

#[test]
fn check_says_what_it_cannot_judge_without_bindings() {
    let open = "target sm_90a;\nkernel sized<const N: int>(input x : gmem f32[N], output y : gmem f32[N])\n\
        launch { grid: 1, warps: 1 } { store load x -> y; }\n";
    let answer = kernelc_with_input(["check", "-"], open.as_bytes()).expect_code(0);
    assert!(answer.stderr.contains("warning[E0208]"), "{}", answer.stderr);
    assert!(answer.stderr.contains("not judged"), "{}", answer.stderr);
}

#[test]
fn check_takes_a_folder_with_its_build_file() {
    let answer = kernelc(["check", "models/kimi_k3/kernels"]).expect_code(0);
    let files = kimi_k3::kernels::FILES.len();
    assert_eq!(answer.stdout.matches("no errors").count(), files, "{}", answer.stdout);
    assert!(!answer.stdout.contains("without bindings"), "{}", answer.stdout);
}

#[test]
fn check_lists_the_passes() {
    let answer = kernelc(["check", "--list"]).expect_code(0);
    for word in ["memory-order", "bounds", "E0107", "E0401", "device", "E0901"] {
        assert!(answer.stdout.contains(word), "{word} is missing:\n{}", answer.stdout);
    }
    let rows = kernelc(["check", "--list", "--format", "json"]).expect_code(0).json_lines();
    assert!(rows.iter().all(|row| row["name"].is_string() && row["codes"].is_array()));
}

#[test]
fn check_prints_proofs() {
    let path = "tests/suite/verify/ranks/accept.tile";
    let answer = kernelc(["check", "--proofs", path]).expect_code(0);
    for text in
        ["ordered: store `inbox`", "-signal-> `await ready`", "apart: ", "used again after 2"]
    {
        assert!(answer.stdout.contains(text), "{text} is missing:\n{}", answer.stdout);
    }
    assert!(!answer.stdout.contains(": open: "), "{}", answer.stdout);
    let rows = kernelc(["check", "--proofs", "--format", "json", path]).expect_code(0).json_lines();
    assert!(rows.iter().any(|row| row["verdict"] == "ordered" && row["lines"].is_array()));
    let drawn = kernelc(["check", "--proofs", "--dot", path]).expect_code(0);
    assert!(drawn.stdout.contains("digraph \"plain"), "{}", drawn.stdout);
    // What is refused is open.
    let answer = kernelc_with_input(["check", "--proofs", "-"], EARLY.as_bytes()).expect_code(1);
    assert!(answer.stdout.contains("open: earlier launches and load `x`"), "{}", answer.stdout);
    kernelc(["check", "--proofs", "--format", "sarif", path]).expect_code(2);
}

#[test]
fn check_tells_how_long_the_passes_took() {
    let kernels = "models/kimi_k3/kernels/gemv.tile";
    let rows = kernelc(["check", "--timings", "--format", "json", kernels]);
    let rows = rows.expect_code(0).json_lines();
    let of_target = |row: &&serde_json::Value| row["target"] == "sm_90a";
    let row = rows.iter().find(of_target).expect("a line for each target");
    assert!(row["kernel"].as_str().is_some_and(|kernel| kernel.contains("K=")), "{row}");
    assert!(row["ms"].is_number() && row["passes"]["memory-order"].is_number(), "{row}");
    assert!(row["passes"]["device-memory-order"].is_number(), "{row}");
    let totals: Vec<f64> = rows.iter().filter_map(|row| row["ms"].as_f64()).collect();
    assert!(totals.is_sorted(), "{totals:?}");

    let answer = kernelc(["check", "--timings", kernels]).expect_code(0);
    assert!(answer.stdout.contains(" ms  gemv_bf16 "), "{}", answer.stdout);
    kernelc(["check", "--timings", "--format", "sarif", kernels]).expect_code(2);
}

#[test]
fn waivers_are_reported_with_their_reasons() {
    let text = EARLY.replace("    let v", "    // allow E0107: the host has waited\n    let v");
    let answer = kernelc_with_input(["check", "-"], text.as_bytes()).expect_code(0);
    assert!(answer.stdout.contains("waived E0107"), "{}", answer.stdout);
    assert!(answer.stdout.contains("the host has waited"), "{}", answer.stdout);
}

#[test]
fn fmt_formats_once_and_for_all() {
    let folder = scratch("fmt");
    let ugly = "target sm_90a;\nkernel k( input x:gmem f32[4],output y:gmem f32[4] ) launch{grid:1,warps:1}\n{ // kept\nstore load x->y; }\n";
    let path = folder.file("ugly.tile", ugly);
    let answer = kernelc(["fmt", "--check", &path]).expect_code(1);
    assert_eq!(answer.stdout, format!("{path}\n"));
    assert_eq!(folder.read("ugly.tile"), ugly.as_bytes(), "--check changes nothing");
    kernelc(["fmt", &path]).expect_code(0);
    let formatted = folder.read("ugly.tile");
    assert!(String::from_utf8_lossy(&formatted).contains("// kept"));
    kernelc(["fmt", "--check", &path]).expect_code(0);
    kernelc(["fmt", &path]).expect_code(0);
    assert_eq!(folder.read("ugly.tile"), formatted);
    let answer = kernelc_with_input(["fmt", "-"], ugly.as_bytes()).expect_code(0);
    assert_eq!(answer.stdout.as_bytes(), formatted);
    assert_eq!(folder.names(), ["ugly.tile"]);
}

#[test]
fn fmt_leaves_a_broken_file_alone() {
    let folder = scratch("fmt-broken");
    let path = folder.file("broken.tile", "kernel (\n");
    let answer = kernelc(["fmt", &path]).expect_code(1);
    assert!(answer.stderr.contains("error[E0"), "{}", answer.stderr);
    assert_eq!(folder.read("broken.tile"), b"kernel (\n");
}

#[test]
fn layout_answers_one_expression() {
    let answer = kernelc(["layout", "composition((4,8):(1,4), 8:2)"]).expect_code(0);
    assert_eq!(answer.stdout, "8:2\n");
    let answer = kernelc(["layout", "composition((4, 6):(1, 8), 5:3)"]).expect_code(1);
    assert!(answer.stderr.contains("E0301"), "{}", answer.stderr);
    assert_eq!(answer.stdout, "");
    let answer = kernelc(["layout", "--map", "1000000000000:1"]).expect_code(1);
    assert!(answer.stderr.contains("E0303"), "{}", answer.stderr);
    let answer = kernelc(["layout", "--map", "--format", "json", "(2,2):(1,4)"]).expect_code(0);
    let line = &answer.json_lines()[0];
    assert_eq!(line["shape"], serde_json::json!([2, 2]));
    assert_eq!(line["stride"], serde_json::json!([1, 4]));
    assert_eq!(line["map"], serde_json::json!([0, 1, 4, 5]));
}

#[test]
fn layout_answers_each_line_of_standard_input_with_one_line() {
    let input = "8:2\n\n(8,):(1,)\nnonsense(\ncoalesce((2,4):(1,2))\n\n(4";
    let answer = kernelc_with_input(["layout", "-"], input.as_bytes()).expect_code(0);
    let lines: Vec<&str> = answer.stdout.split('\n').collect();
    assert_eq!(lines.len(), 8, "seven answers and the end:\n{}", answer.stdout);
    assert_eq!((lines[0], lines[2], lines[4]), ("8:2", "(8,):(1,)", "8:1"));
    for bad in [1, 3, 5, 6] {
        assert!(lines[bad].contains("E0302"), "line {bad}: {}", lines[bad]);
    }
    let json = kernelc_with_input(["layout", "--format", "json", "-"], input.as_bytes());
    let lines = json.expect_code(0).json_lines();
    assert_eq!(lines.len(), 7);
    assert_eq!(lines[0], serde_json::json!({ "shape": 8, "stride": 2 }));
    assert_eq!(lines[2], serde_json::json!({ "shape": [8], "stride": [1] }));
    assert_eq!(lines[3]["error"]["code"], "E0302");
}

#[test]
fn layout_draws_a_picture() {
    let folder = scratch("layout");
    let path = folder.path("picture.svg");
    kernelc(["layout", "--svg", &path, "(4,8):(8,1)"]).expect_code(0);
    assert!(String::from_utf8(folder.read("picture.svg")).unwrap().starts_with("<svg"));
    kernelc(["layout", "--svg", &folder.path("none.svg"), "(4"]).expect_code(1);
    assert_eq!(folder.names(), ["picture.svg"]);
}

#[test]
fn emit_prints_every_stage() {
    let folder = scratch("emit");
    let path = folder.file("double.tile", DOUBLE);
    for (stage, word) in [
        ("ast", "double"),
        ("kernel", "grid_wait"),
        ("device", "grid_wait"),
        ("mlir", "llvm.func"),
        ("llvm", "define"),
        ("ptx", ".visible .entry double"),
        ("sass", "EXIT"),
    ] {
        let answer =
            kernelc(["emit", "--stage", stage, "--target", "sm_90a", &path]).expect_code(0);
        assert!(answer.stdout.contains(word), "{stage} lacks `{word}`:\n{}", answer.stdout);
    }
}

#[test]
fn emit_goes_on_from_text() {
    let folder = scratch("emit-from");
    let path = folder.file("double.tile", DOUBLE);
    let emit =
        |args: &[&str]| kernelc([&["emit", "--target", "sm_100a"], args].concat()).expect_code(0);
    let ptx = emit(&["--stage", "ptx", &path]).stdout;
    for stage in ["mlir", "llvm"] {
        let text = folder.file(stage, emit(&["--stage", stage, &path]).stdout);
        assert_eq!(emit(&["--from", stage, "--stage", "ptx", &text]).stdout, ptx, "from {stage}");
    }
    let text = folder.file("ptx", &ptx);
    assert!(emit(&["--from", "ptx", "--stage", "sass", &text]).stdout.contains("EXIT"));
    // A stage that lies behind is wrong usage.
    kernelc(["emit", "--from", "ptx", "--stage", "llvm", "--target", "sm_90a", &text])
        .expect_code(2);
    kernelc(["emit", "--from", "ptx", "--stage", "sass", &text]).expect_code(2);
}

#[test]
fn explain_knows_codes_and_kernels() {
    for (code, home) in [("B0105", "docs/architecture.md"), ("R0401", "runtime/cuda/README.md")] {
        let answer = kernelc(["explain", code]).expect_code(2);
        assert!(answer.stderr.contains(home), "{}", answer.stderr);
    }
    for code in ["E0107", "e0107", "P0105"] {
        let page = format!("docs/codes/{}.md", code.to_uppercase());
        let page = std::fs::read_to_string(root().join(page)).unwrap();
        assert_eq!(kernelc(["explain", code]).expect_code(0).stdout, page);
        let json = kernelc(["explain", "--format", "json", code]).json_lines();
        assert_eq!(json[0]["page"], page);
    }
    kernelc(["explain", "P0999"]).expect_code(2);
    let answer = kernelc(["explain", "E9999"]).expect_code(2);
    assert!(answer.stderr.contains("E9999"), "{}", answer.stderr);
    let gemv =
        ["explain", "models/kimi_k3/kernels/gemv.tile", "gemv_bf16", "--bind", "M=1,N=3216,K=7168"];
    let answer = kernelc(gemv).expect_code(0);
    for word in ["w", "acc", "16 bytes"] {
        assert!(answer.stdout.contains(word), "`{word}` is missing:\n{}", answer.stdout);
    }
    let json = kernelc(gemv.into_iter().chain(["--format", "json"])).expect_code(0);
    assert!(json.json_lines()[0].is_object());
    // Stored layouts are shown, and fragments that follow them are read whole.
    let stored = "tests/suite/ops/stored_fragments.tile";
    let answer = kernelc(["explain", stored, "stored_fragments", "--bind", "W=2"]).expect_code(0);
    for line in [
        "a: bf16 ((8, 4), (8, 4, 2)):((32, 512), (1, 8, 256))",
        "load a: 4 of 16 bytes",
        "load b: 4 of 16 bytes",
    ] {
        assert!(answer.stdout.contains(line), "`{line}` is missing:\n{}", answer.stdout);
    }
    for (name, way) in [
        ("relayout_registers", "relayout(s): registers alone and 28 choices"),
        ("relayout_shuffles", "relayout(tb): 4 shuffles and 16 choices in each thread"),
        ("relayout_shared", "relayout(half): 4096 bytes of shared memory"),
    ] {
        let file = format!("tests/suite/ops/{name}.tile");
        let answer = kernelc(["explain", &file, name]).expect_code(0);
        assert!(answer.stdout.contains(way), "`{way}` is missing:\n{}", answer.stdout);
    }
}

#[test]
fn doctor_names_tools_and_targets() {
    let answer = kernelc(["doctor"]);
    for word in ["ptxas", "nvdisasm", "LLVM", "sm_90a", "sm_100a", "sm_103a"] {
        assert!(answer.stdout.contains(word), "{word} is missing:\n{}", answer.stdout);
    }
    let lost = kernelc(["doctor", "--ptxas", "nowhere/ptxas"]).expect_code(4);
    assert!(lost.stdout.contains("missing"), "{}", lost.stdout);
    let json = kernelc(["doctor", "--format", "json"]).json_lines();
    assert_eq!(json[0]["targets"].as_array().map(Vec::len), Some(3));
}

#[test]
fn audit_gives_its_verdict_as_exit_code() {
    let trap = "tests/suite/audit/basic/flag_then_barrier_trap.ptx";
    let answer = kernelc(["audit", "--format", "json", trap]).expect_code(1);
    let report: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(report["verdict"], "findings");
    let findings = report["findings"].as_array().unwrap();
    for finding in findings {
        for key in ["code", "kernel", "param", "ptx", "wait", "sass", "message", "help"] {
            assert!(finding.get(key).is_some(), "`{key}` is missing: {finding}");
        }
    }
    // ptxas moves the loads of k3 above the loop that waits.
    let moved = findings.iter().find(|finding| finding["code"] == "E0902").unwrap();
    assert_eq!(moved["kernel"], "k3");
    assert!(moved["sass"]["load"].is_string() && moved["sass"]["wait"].is_string(), "{moved}");
    let clean = "tests/suite/audit/basic/sm_90a_both_griddep_weak.ptx";
    kernelc(["audit", clean]).expect_code(0);
    kernelc(["audit", "--static", "nobody", clean]).expect_code(2);
    let unknown = "\
        .version 8.8\n.target sm_90a\n.address_size 64\n\
        .visible .entry k(.param .u64 p) { .reg .b64 %r<3>; ld.param.u64 %r1, [p]; frob.global.u64 %r2, [%r1]; ret; }\n";
    let answer =
        kernelc_with_input(["audit", "--ptx-only", "-"], unknown.as_bytes()).expect_code(3);
    assert!(answer.stdout.contains("E0904"), "{}", answer.stdout);
}

#[test]
fn declarations_of_an_audit_stand_in_a_file() {
    let folder = scratch("declarations");
    let ptx = "tests/suite/audit/own/addr_difference_cancels.ptx";
    let audit = |toml: &str, more: &[&str]| {
        let file = folder.file("who_writes.toml", toml.as_bytes());
        let mut args = vec!["audit", "--ptx-only", "--declarations", &file, ptx];
        args.extend(more);
        kernelc(args)
    };
    audit("", &[]).expect_code(1);
    audit("static = [\"w\"]\n", &[]).expect_code(1);
    let answer = audit("static = [\"x\"]\n", &[]).expect_code(0);
    assert!(answer.stdout.contains("assumed: `k:x` is static"), "{}", answer.stdout);
    let of_kernel = "[kernel.k]\nstatic = [\"#0\"]\nmutable = [\"flag\"]\n";
    let answer = audit(of_kernel, &[]).expect_code(0);
    assert!(answer.stdout.contains("assumed: `k:x` is static"), "{}", answer.stdout);
    audit(of_kernel, &["--static", "w"]).expect_code(0);
    let answer = audit("mutable = [\"x\"]\n", &[]).expect_code(1);
    assert!(answer.stdout.contains("mutable `x`"), "{}", answer.stdout);
}

#[test]
fn help_and_version_and_completions_are_no_errors() {
    let version = kernelc(["--version"]).expect_code(0).stdout;
    for word in ["kernelc", "LLVM", "ptxas", "nvdisasm"] {
        assert!(version.contains(word), "{word} is missing:\n{version}");
    }
    let help = kernelc(["--help"]).expect_code(0).stdout;
    assert!(help.contains("Exit codes"), "{help}");
    let commands = [
        "check", "build", "emit", "run", "audit", "explain", "fmt", "layout", "litmus", "mutate",
        "reduce", "doctor",
    ];
    for command in commands {
        assert!(help.contains(command), "{command} is missing:\n{help}");
        kernelc([command, "--help"]).expect_code(0);
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(kernelc(["completions", shell]).expect_code(0).stdout.contains("kernelc"));
    }
}
