//! run: tensors in, tensors out, comparison, seeds.

use kernel_tests::process::{Scratch, kernelc};

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("run-{name}"))
}

const SCALE: &str = "target sm_90a;\n\
    kernel scale<const N: int = 4>(input x : gmem f32[N], scalar s : f32, output y : gmem f32[N]) launch { grid: 1, warps: 1 } {\n\
    store load x * s -> y;\n}\n";

/// A `.npy` file of format 1.
pub(crate) fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
    bytes.extend(header.into_bytes());
    bytes.extend(data);
    bytes
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn tensors_go_in_and_come_out() {
    let folder = scratch("tensors");
    let source = folder.file("scale.tile", SCALE);
    let x = folder.file("x.npy", npy("<f4", "(4,)", &floats(&[1.0, -2.0, 0.5, 4.0])));
    let y = folder.path("y.npy");
    let (input, output) = (format!("x={x}"), format!("y={y}"));
    let base = ["run", &source, "--kernel", "scale", "--in", &input, "--in", "s=3.0"];
    let answer = kernelc(base.into_iter().chain(["--out", &output])).expect_code(0);
    assert!(answer.stdout.contains("y : f32[4] = [3, -6, 1.5, 12]"), "{}", answer.stdout);
    let want = floats(&[3.0, -6.0, 1.5, 12.0]);
    assert!(folder.read("y.npy").ends_with(&want));
    assert_eq!(folder.read("y.npy").len() % 64, want.len() % 64);
    // The result is equal to itself, and not to something else.
    let answer =
        kernelc(base.into_iter().chain(["--compare", &y, "--tolerance", "bits"])).expect_code(0);
    assert!(answer.stdout.contains("compare `y`: equal"), "{}", answer.stdout);
    let other = folder.file("other.npy", npy("<f4", "(4,)", &floats(&[3.0, -6.0, 1.5, 13.0])));
    let answer = kernelc(base.into_iter().chain(["--compare", &other])).expect_code(1);
    assert!(answer.stdout.contains("different"), "{}", answer.stdout);
    // The same by way of safetensors.
    let tensors = folder.path("y.safetensors");
    let output = format!("y={tensors}");
    kernelc(base.into_iter().chain(["--out", &output])).expect_code(0);
    let wanted = format!("y={tensors}:y");
    kernelc(base.into_iter().chain(["--compare", &wanted, "--tolerance", "bits"])).expect_code(0);
}

#[test]
fn missing_inputs_are_random_by_seed() {
    let folder = scratch("seed");
    let source = folder.file("scale.tile", SCALE);
    let run = |seed: &str| {
        kernelc(["run", &source, "--in", "s=1.0", "--seed", seed, "--format", "json"])
            .expect_code(0)
            .stdout
    };
    assert_eq!(run("5"), run("5"));
    assert_ne!(run("5"), run("6"));
}

#[test]
fn both_levels_print_the_same() {
    let folder = scratch("levels");
    let source = folder.file(
        "speak.tile",
        "target sm_90a;\nkernel speak(input x : gmem f32[64], output y : gmem f32[1]) launch { grid: 2, warps: 2 } {\n\
         let s = reduce.add(load x, axis = 0);\nprintf \"cta {}\\n\", cta.x;\nif cta.x == 0 { store s -> y[0]; }\n}\n",
    );
    let run = |level: &str| {
        kernelc(["run", &source, "--seed", "1", "--level", level]).expect_code(0).stdout
    };
    let both = run("both");
    assert!(both.contains("cta 0\ncta 1\n"), "{both}");
    assert_eq!((run("kernel"), run("device")), (both.clone(), both));
}

#[test]
fn an_error_of_the_run_names_the_line() {
    let folder = scratch("error");
    let source = folder.file(
        "poison.tile",
        "target sm_90a;\nkernel k(output y : gmem f32[4]) launch { grid: 1, warps: 1 } {\nfrag a : f32[4];\nstore a -> y;\n}\n",
    );
    let out = folder.path("y.npy");
    let answer = kernelc(["run", &source, "--out", &out]).expect_code(1);
    assert!(answer.stderr.contains("error[E0701]"), "{}", answer.stderr);
    assert!(answer.stderr.contains("poison.tile:4:"), "{}", answer.stderr);
    assert_eq!(folder.names(), ["poison.tile"]);
}

/// Two kernels, of which the second reads `x` where it is told to.
fn pair(read: &str, waited: &str) -> String {
    format!(
        "target sm_90a;\n\
         kernel first<const N: int = 2>(static w : gmem f32[N], output x : gmem f32[N]) launch {{ grid: N, warps: 1, pdl: both }} {{\n\
         grid_wait;\ngrid_launch;\nstore load w[cta.x .. + 1] -> x[cta.x .. + 1];\n}}\n\
         kernel second<const N: int = 2, const BY: int = 1>(input x : gmem f32[N], output y : gmem f32[N]) launch {{ grid: 1, warps: 1, pdl: both }} {{\n\
         {read}grid_wait;\n{waited}store v * f32(BY) -> y;\n}}\n"
    )
}

#[test]
fn kernels_one_after_another_overlap() {
    let folder = scratch("then");
    let right = folder.file("right.tile", pair("", "let v = load x;\n"));
    let w = folder.file("w.npy", npy("<f4", "(4,)", &floats(&[4.0, 5.0, 6.0, 7.0])));
    let input = format!("w={w}");
    let chain = ["--kernel", "first", "--then", "second", "--schedules", "9", "--launches", "2"];
    let args = ["--bind", "N=4,BY=3", "--in", &input];
    let answer = kernelc(["run", &right].into_iter().chain(chain).chain(args)).expect_code(0);
    assert!(answer.stdout.contains("x : f32[4] = [4, 5, 6, 7]\n"), "{}", answer.stdout);
    assert!(answer.stdout.contains("y : f32[4] = [12, 15, 18, 21]\n"), "{}", answer.stdout);
    let early = "// allow E0107: to see what the emulator says\nlet v = load x;\n";
    let wrong = folder.file("wrong.tile", pair(early, ""));
    let answer = kernelc(["run", &wrong].into_iter().chain(chain)).expect_code(1);
    for part in ["error[E0720]", "wrong.tile:9:", "launch 0, `first`, writes", "in launch 1"] {
        assert!(answer.stderr.contains(part), "{part}: {}", answer.stderr);
    }
    let answer = kernelc(["run", &right, "--kernel", "first", "--then", "third"]).expect_code(2);
    assert!(answer.stderr.contains("no kernel `third`"), "{}", answer.stderr);
    let unknown = ["--kernel", "first", "--then", "second", "--bind", "Q=1"];
    let answer = kernelc(["run", &right].into_iter().chain(unknown)).expect_code(2);
    assert!(answer.stderr.contains("E0208"), "{}", answer.stderr);
}

/// A kernel whose threads read what others wrote, with or without a meeting between.
fn turned(meeting: &str) -> String {
    format!(
        "target sm_90a;\n\
         kernel turn(input x : gmem f32[64], output y : gmem f32[64], output z : gmem f32[64]) launch {{ grid: 1, warps: 2 }} {{\n\
         store load x -> y;\n\
         {meeting}\n\
         store load y[63 - iota(64)] -> z;\n}}\n"
    )
}

#[test]
fn an_order_that_differs_is_shrunk_and_named() {
    let folder = scratch("schedule");
    let text = "target sm_90a;\nkernel first(inout n : gmem u32[1], output y : gmem u32[4]) launch { grid: 4, warps: 1 } {\n\
        let at = atomic.add(n[0], 1) order relaxed scope gpu;\n\
        // allow E0171: to see the orders\n\
        store at -> y[cta.x];\n}\n";
    let file = folder.file("first.tile", text);
    let answer = kernelc(["run", &file, "--schedules", "8"]).expect_code(1);
    assert!(answer.stderr.contains("E0715"), "{}", answer.stderr);
    let (_, named) = answer.stderr.split_once("`--schedule ").expect("the order is named");
    let (schedule, _) = named.split_once('`').expect("in backticks");
    // The order in which the CTAs begin is enough.
    assert!(schedule.ends_with(":0..1"), "{schedule}");
    let usual = kernelc(["run", &file]).expect_code(0).stdout;
    let other = kernelc(["run", &file, "--schedule", schedule]).expect_code(0).stdout;
    assert_ne!(usual, other);
    assert_eq!(other, kernelc(["run", &file, "--schedule", schedule]).expect_code(0).stdout);
    kernelc(["run", &file, "--schedule", "fair:1"]).expect_code(2);
    kernelc(["run", &file, "--schedule", schedule, "--schedules", "2"]).expect_code(2);
}

#[test]
fn the_memory_model_judges_a_run() {
    let folder = scratch("memory_model");
    let right = folder.file("right.tile", turned("sync;"));
    let answer = kernelc(["run", &right, "--memory-model"]).expect_code(0);
    assert!(answer.stderr.contains("no race in the memory model"), "{}", answer.stderr);
    let wrong = folder.file("wrong.tile", turned("// allow E0120: to see what the model says"));
    kernelc(["run", &wrong]).expect_code(0);
    let answer = kernelc(["run", &wrong, "--memory-model"]).expect_code(1);
    for part in [
        "error[E0721]",
        "wrong.tile:5:",
        "3 | store load x -> y",
        "reads it here",
        "writes it here",
    ] {
        assert!(answer.stderr.contains(part), "{part}: {}", answer.stderr);
    }
    let large = folder.file(
        "large.tile",
        "target sm_90a;\nkernel large(input x : gmem f32[65536], output y : gmem f32[65536]) launch { grid: 64, warps: 8 } {\n\
         store load x[cta.x * 1024 .. + 1024] -> y[cta.x * 1024 .. + 1024];\n}\n",
    );
    let answer = kernelc(["run", &large, "--memory-model"]).expect_code(3);
    assert!(answer.stderr.contains("more than 3000 events"), "{}", answer.stderr);
    kernelc(["run", &right, "--memory-model", "--launches", "2"]).expect_code(2);
    kernelc(["run", &right, "--launches", "1000000000"]).expect_code(2);
    kernelc(["run", &right, "--launches", "0"]).expect_code(2);
}
