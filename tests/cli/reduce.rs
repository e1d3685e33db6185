//! `kernelc reduce`: a smaller file in which the same goes wrong.

use kernel_tests::process::{Scratch, kernelc, kernelc_with_input};

const WRONG: &str = "target sm_90a, sm_100a, sm_103a;

// has nothing to do with it
fn twice(x: f32[..S]) -> f32[..S] { x + x }

kernel fine(input x : gmem f32[64], output y : gmem f32[64]) launch { grid: 1, warps: 2, pdl: none } {
    store twice(load x) -> y;
}

kernel reversed<const N: int = 512>(input x : gmem f32[4, N], static w : gmem f32[N], output y : gmem f32[4, N])
launch { grid: 4, warps: 4, pdl: both }
where N % 8 == 0
{
    smem s : f32[N] ring 2;
    let g = load w;
    grid_wait;
    for t in 0..2 {
        store twice(load x[cta.x, :]) * g -> s@t;
        if t > 0 { sync; }
        let i = N - 1 - iota(N);
        store load s@t[i] -> y[cta.x, :];
        sync;
    }
    grid_launch;
}
";

#[test]
fn what_has_nothing_to_do_with_a_finding_goes() {
    let folder = Scratch::new(env!("CARGO_TARGET_TMPDIR"), "cli-reduce");
    let (file, out) = (folder.file("wrong.tile", WRONG), folder.path("less.tile"));
    let answer = kernelc(["reduce", &file, "--kernel", "reversed", "--out", &out]).expect_code(0);
    assert!(answer.stderr.contains("still E0113"), "{}", answer.stderr);
    let less = std::fs::read_to_string(&out).expect("it was written");
    assert!(less.lines().count() <= 12, "{less}");
    assert!(!less.contains("twice") && !less.contains("fine") && !less.contains("//"), "{less}");
    let check = kernelc(["check", &out]).expect_code(1);
    assert!(check.stderr.contains("error[E0113]"), "{}", check.stderr);
}

/// A copy to all CTAs is refused without a cluster too, and that is another mistake.
#[test]
fn another_mistake_with_the_same_code_is_none() {
    let text = "target sm_90a;

kernel rows(static w : gmem f32[17, 64], output y : gmem f32[8, 64])
launch { grid: 8, cluster: 2, warps: 5, pdl: none }
{
    smem s : f32[64] ring 2;
    pipeline p { stages: 2; full: bytes(s) from ld to math; empty: from math to ld; }
    role ld: warps 4..5 elect one {
        for t in 0..8 + cta.x / 3 { open p@t; if cluster.rank == 0 { copy.bulk w[t, :] -> s@cta(*)@t into p.full@cta(*)@t; } }
    }
    role math: warps 0..4 {
        frag acc : f32[64] = 0.0;
        for t in 0..8 + cta.x / 3 { wait p.full@t; acc += load s@t; release p.empty@cta(*)@t; }
        store acc -> y[cta.x, :];
    }
}
";
    let of = |text: &str| {
        let check = kernelc_with_input(["check", "-"], text.as_bytes()).expect_code(1);
        let at = check.stderr.find("error[E0157]").expect("the code is kept");
        check.stderr[at..].lines().next().unwrap_or_default().to_owned()
    };
    let answer = kernelc_with_input(["reduce", "-"], text.as_bytes()).expect_code(0);
    assert!(answer.stdout.lines().count() < text.lines().count(), "{}", answer.stdout);
    assert!(answer.stdout.contains("cluster: 2"), "{}", answer.stdout);
    assert_eq!(of(&answer.stdout), of(text), "{}", answer.stdout);
}

#[test]
fn runs_that_end_badly_syntax_and_commands_are_kept_too() {
    let waived = WRONG.replace(
        "        store load s@t[i]",
        "        // allow E0113: on purpose\n        store load s@t[i]",
    );
    let broken = WRONG.replace("let g = load w;", "let g = = load w;");
    let answer = kernelc_with_input(["reduce", "-"], broken.as_bytes()).expect_code(0);
    assert!(answer.stdout.lines().count() <= 5, "{}", answer.stdout);
    let command = "grep -q iota";
    let answer = kernelc_with_input(["reduce", "-", "--test", command], waived.as_bytes());
    assert_eq!(answer.stdout, "iota\n", "{}", answer.stderr);
    let poison = "target sm_90a;
kernel p(scratch s : gmem f32[64], input x : gmem f32[64], output y : gmem f32[64]) launch { grid: 1, warps: 2, pdl: none } {
    let a = load x;
    store load s + a -> y;
}
";
    let answer = kernelc_with_input(["reduce", "-"], poison.as_bytes()).expect_code(0);
    assert!(answer.stderr.contains("on the emulator"), "{}", answer.stderr);
    assert!(!answer.stdout.contains("input x"), "{}", answer.stdout);
}

#[test]
fn a_right_file_and_wrong_arguments_are_told() {
    let right = "target sm_90a;\nkernel k(output y : gmem f32[64]) launch { grid: 1, warps: 2, pdl: none } { store splat(1.0, 64) -> y; }\n";
    let answer = kernelc_with_input(["reduce", "-"], right.as_bytes());
    assert!(answer.stderr.contains("nothing"), "{}", answer.stderr);
    answer.expect_code(1);
    kernelc_with_input(["reduce", "-", "--code", "E0999"], right.as_bytes()).expect_code(2);
    kernelc_with_input(["reduce", "-", "--test", "exit 3"], right.as_bytes()).expect_code(1);
    let folder = Scratch::new(env!("CARGO_TARGET_TMPDIR"), "cli-reduce-none");
    kernelc(["reduce", &folder.path("none.tile")]).expect_code(4);
}
