//! `kernelc mutate`: each mutant with what sees it, the table, JSON and exit codes.

use kernel_tests::process::{Scratch, kernelc, kernelc_with_input};

const RIGHT: &str = "target sm_90a;
kernel pass(input x : gmem f32[64], output y : gmem f32[64]) launch { grid: 1, warps: 2, pdl: both } {
    smem s : f32[64];
    grid_wait;
    copy.async x -> s;
    settle s;
    sync;
    store load s -> y;
}
";

#[test]
fn every_mutant_is_told_with_what_sees_it() {
    let answer = kernelc_with_input(["mutate", "-"], RIGHT.as_bytes()).expect_code(0);
    for part in [
        "<stdin>:4:5: remove grid_wait: refused: E0109",
        "remove settle: refused: ",
        "remove sync: refused: ",
        "mutants  seen  same program  not built  left  change",
    ] {
        assert!(answer.stdout.contains(part), "{part} is missing:\n{}", answer.stdout);
    }
    let lines =
        kernelc_with_input(["mutate", "--format", "json", "-"], RIGHT.as_bytes()).expect_code(0);
    let lines = lines.json_lines();
    assert!(lines.iter().any(|line| line["verdict"] == "refused" && line["code"] == "E0107"));
}

#[test]
fn what_nothing_sees_is_left_and_a_wrong_kernel_is_refused() {
    let twice = RIGHT.replace("    sync;\n", "    settle s;\n    sync;\n    sync;\n");
    let answer = kernelc_with_input(["mutate", "-"], twice.as_bytes());
    assert!(answer.stdout.contains("the same program of the device"), "{}", answer.stdout);
    let wrong = RIGHT.replace("    sync;\n", "");
    let refused = kernelc_with_input(["mutate", "-"], wrong.as_bytes()).expect_code(1);
    assert!(refused.stderr.contains("error[E0118]"), "{}", refused.stderr);
    kernelc_with_input(["mutate", "-"], b"kernel").expect_code(1);
    let folder = Scratch::new(env!("CARGO_TARGET_TMPDIR"), "cli-mutate");
    kernelc(["mutate", &folder.path("none.tile")]).expect_code(4);
}
