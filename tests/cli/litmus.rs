//! `kernelc litmus`: one line a file, explanations, drawings, JSON and exit codes.

use kernel_tests::process::{Scratch, kernelc, kernelc_with_input};

const DATA: &str = "compiler/memory_model/tests/data";

fn path(name: &str) -> String {
    format!("{DATA}/{name}.litmus")
}

#[test]
fn one_line_a_file_in_the_order_of_the_command_line() {
    let files = [
        path("dat3m/Manual/MP-cta"),
        path("dat3m/Manual/MP-gpu"),
        path("dat3m/Manual/SB+sc-cta"),
        path("dat3m/Manual/SB+bar-diff-cta"),
    ];
    let answers = ["allowed", "forbidden", "holds", "violated"];
    let expected: String =
        files.iter().zip(answers).map(|(file, answer)| format!("{file}: {answer}\n")).collect();
    for model in ["6.0", "7.5"] {
        let mut args = vec!["litmus", "--model", model];
        args.extend(files.iter().map(String::as_str));
        let answer = kernelc(&args).expect_code(0);
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), (expected.as_str(), ""));
    }
}

#[test]
fn an_answer_is_explained_and_drawn() {
    let sound = path("patterns/C2_relaxed_poll_fence_fan_out");
    let text = kernelc(["litmus", "--explain", &sound]).expect_code(0).stdout;
    for part in ["forbidden\n", "Causality refuses 1 candidate", "-fr->", "-sync->", "-bar->"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let faulty = path("patterns/F4_missing_release");
    let text = kernelc(["litmus", "--explain", &faulty]).expect_code(0).stdout;
    assert!(text.contains("allowed\n  this execution ends so:\n"), "{text}");
    let dot = kernelc(["litmus", "--dot", &faulty]).expect_code(0).stdout;
    assert!(dot.starts_with(&format!("// {faulty}: allowed\ndigraph \"F4\" {{\n")), "{dot}");
    kernelc(["litmus", "--dot", "--explain", &faulty]).expect_code(2);
}

#[test]
fn programs_get_objects() {
    let file = path("patterns/F3_peer_flag_of_device_scope");
    let lines = kernelc(["litmus", "--format", "json", &file]).expect_code(0).json_lines();
    assert_eq!(lines[0]["file"], file);
    assert_eq!(lines[0]["verdict"], "allowed");
    assert_eq!(lines[0]["model"], "7.5");
    assert!(lines[0].get("witness").is_none());
    let explained =
        kernelc(["litmus", "--format", "json", "--explain", &file]).expect_code(0).json_lines();
    assert_eq!(explained[0]["witness"]["end"], "P1:r0=1 P1:r1=0");
    let sound = path("patterns/C3_cumulative_release");
    let explained =
        kernelc(["litmus", "--format", "json", "--explain", &sound]).expect_code(0).json_lines();
    assert_eq!(explained[0]["refusals"][0]["axiom"], "Causality");
    assert_eq!(explained[0]["refusals"][0]["cycle"][1]["edge"], "cause");
}

#[test]
fn what_is_no_test_is_refused_with_its_place_and_the_others_are_decided() {
    let folder = Scratch::new(env!("CARGO_TARGET_TMPDIR"), "cli-litmus");
    let text =
        "PTX t\n{ x=0; }\n P0@cta 0,gpu 0 ;\n stt.weak x, 1 ;\n ld.weak r0 ;\nexists (x == 1)\n";
    let broken = folder.file("broken.litmus", text);
    let good = path("dat3m/Manual/MP-gpu");
    let answer = kernelc(["litmus", &broken, &good]).expect_code(1);
    assert_eq!(answer.stdout, format!("{good}: forbidden\n"));
    for part in ["error[M0103]", "broken.litmus:4:2", "error[M0102]", "broken.litmus:5:10"] {
        assert!(answer.stderr.contains(part), "{part} is missing:\n{}", answer.stderr);
    }
    let lines = kernelc(["litmus", "--format", "json", &broken]).expect_code(1).json_lines();
    assert_eq!(lines[0]["code"], "M0103");
    assert_eq!(lines[0]["span"]["start"]["line"], 4);
    let proxy = path("dat3m/Nvidia/proxy/Proxy-MP-gpu1");
    let answer = kernelc(["litmus", "--model", "6.0", &proxy]).expect_code(1);
    assert!(answer.stderr.contains("error[M0201]"), "{}", answer.stderr);
    kernelc(["litmus", "nowhere.litmus", &broken]).expect_code(4);
    kernelc(["litmus"]).expect_code(2);
    kernelc(["litmus", "--model", "5.0", &good]).expect_code(2);
}

#[test]
fn a_test_that_is_too_large_is_not_judged() {
    let updates = " atom.add r0, x, r0 ;\n".repeat(60);
    let text = format!("PTX t\n{{ x=1; }}\n P0@cta 0,gpu 0 ;\n{updates}exists (x == 0)");
    let answer = kernelc_with_input(["litmus", "-"], text.as_bytes()).expect_code(3);
    assert!(answer.stderr.contains("error[M0202]"), "{}", answer.stderr);
    let twice = "PTX t\n{ }\n P0@cta 0,gpu 0 ;\n LC00: add r0, r0, 1 ;\n bne r0, 2, LC00 ;\nexists (P0:r0 == 2)";
    let once = kernelc_with_input(["litmus", "-"], twice.as_bytes()).expect_code(0);
    assert_eq!(once.stdout, "-: forbidden\n");
    let more =
        kernelc_with_input(["litmus", "--unroll", "2", "-"], twice.as_bytes()).expect_code(0);
    assert_eq!(more.stdout, "-: allowed\n");
}
