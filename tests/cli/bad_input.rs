//! Bad input: a coded error, the documented exit code, and nothing written.

use std::process::Command;
use std::time::{Duration, Instant};

use kernel_tests::process::{
    Answer, Scratch, answer, kernelc, kernelc_path, kernelc_with_input, root,
};

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("bad-{name}"))
}

const COPY: &str = "target sm_90a;\n\
    kernel copies<const N: int = 128, const B: int = 32>(input x : gmem f32[N], output y : gmem f32[N])\n\
    launch { grid: N / B, warps: 1 }\nwhere N % B == 0\n\
    { store load x[cta.x * B .. + B] -> y[cta.x * B .. + B]; }\n";

/// Builds a text and expects a refusal that leaves the folder as it was.
fn refused_build(name: &str, text: &[u8], more: &[&str], code: i32) -> Answer {
    let folder = scratch(name);
    let source = folder.file("k.tile", text);
    let out = folder.path("out");
    let answer = kernelc([&["build", &source, "--out", &out], more].concat()).expect_code(code);
    assert_eq!(folder.names(), ["k.tile"], "nothing is written");
    answer
}

fn says(answer: &Answer, words: &[&str]) {
    for word in words {
        assert!(answer.stderr.contains(word), "`{word}` is missing:\n{}", answer.stderr);
    }
}

#[test]
fn a_file_that_is_not_utf_8() {
    let answer = refused_build("utf8", b"target sm_90a;\n\xff\xfe", &[], 1);
    says(&answer, &["E0001", "offset 15"]);
}

#[test]
fn ten_megabytes_of_brackets() {
    for (name, bracket) in [("round", "("), ("curly", "{"), ("square", "["), ("closing", ")")] {
        let text = format!(
            "target sm_90a;\nkernel k() launch {{ grid: 1, warps: 1 }} {{ {}",
            bracket.repeat(10 << 20)
        );
        let start = Instant::now();
        let answer = refused_build(&format!("brackets-{name}"), text.as_bytes(), &[], 1);
        assert!(
            answer.stderr.contains("error[E00"),
            "{name}: {}",
            &answer.stderr[..answer.stderr.len().min(2000)]
        );
        assert!(
            answer.stderr.len() < 100_000,
            "{name}: a message of {} bytes",
            answer.stderr.len()
        );
        assert!(start.elapsed() < Duration::from_secs(60), "{name}: {:?}", start.elapsed());
    }
}

#[test]
fn an_unknown_target() {
    let answer = refused_build("target", COPY.as_bytes(), &["--target", "sm_80"], 2);
    says(&answer, &["E0501", "sm_90a"]);
    let text = COPY.replace("sm_90a", "sm_91a");
    let answer = refused_build("target-in-file", text.as_bytes(), &[], 1);
    says(&answer, &["E0501", "sm_90a"]);
    // One that the file does not state.
    let answer = refused_build("target-not-stated", COPY.as_bytes(), &["--target", "sm_100a"], 2);
    says(&answer, &["sm_100a"]);
}

#[test]
fn an_unknown_kernel_or_set() {
    let answer = refused_build("kernel", COPY.as_bytes(), &["--kernel", "moves"], 2);
    says(&answer, &["moves", "copies"]);
    let answer = refused_build("set", COPY.as_bytes(), &["--set", "tp16"], 2);
    says(&answer, &["tp16"]);
}

#[test]
fn bindings_that_do_not_fit() {
    let build = |name: &str, bind: &str, code: i32| {
        refused_build(name, COPY.as_bytes(), &["--kernel", "copies", "--bind", bind], code)
    };
    says(&build("where", "N=100", 1), &["E0209", "N % B == 0"]);
    says(&build("unknown-binding", "M=1", 1), &["E0208", "M"]);
    says(&build("no-number", "N=many", 2), &["E0208", "many"]);
}

#[test]
fn a_load_of_an_input_before_the_wait() {
    let text = "target sm_90a;\nkernel early(input x : gmem f32[128], output y : gmem f32[128]) launch { grid: 1, warps: 4, pdl: both } {\n\
        let v = load x;\ngrid_wait;\nstore v -> y;\n}\n";
    let answer = refused_build("early", text.as_bytes(), &[], 1);
    says(&answer, &["E0107", "k.tile:3:9", "`x`", "grid_wait"]);
}

#[test]
fn a_missing_ptxas_says_how_to_get_it() {
    let answer = refused_build("ptxas", COPY.as_bytes(), &["--ptxas", "nowhere/ptxas"], 4);
    says(&answer, &["E0801", "ptxas is missing", "cargo xtask"]);
}

/// Makes a program in the place of ptxas.
fn fake_ptxas(folder: &Scratch, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.file(
        "ptxas",
        format!("#!/bin/sh\ncase \"$1\" in --version) echo 'V13.5.37'; exit 0;; esac\n{script}\n"),
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn products_that_ptxas_serialises() {
    let folder = scratch("serialised");
    let source = folder.file("k.tile", COPY);
    let line = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
    let script = format!("echo \"{line}\" >&2; echo cubin");
    let ptxas = fake_ptxas(&folder, &script);
    let out = folder.path("out");
    let answer = kernelc(["build", &source, "--ptxas", &ptxas, "--out", &out]).expect_code(4);
    says(&answer, &["E0811", "copies", "serialized"]);
}

#[test]
fn ptx_of_an_author_that_ptxas_refuses() {
    let source = "target sm_90a;\nkernel by_hand(input x : gmem f16[32], output y : gmem f16[32])\n\
        launch { grid: 1, warps: 1 } {\n    let v = load x;\n    \
        unsafe { ptx \"add.rz.f16 %0, %1, %1;\" out(w) in(v) = v + v; }\n    store w -> y;\n}\n";
    let answer = refused_build("author", source.as_bytes(), &[], 4);
    says(&answer, &["E0812", "k.tile:5", "add.rz.f16 %0, %1, %1;", "Illegal rounding modifier"]);
}

#[test]
fn a_crash_of_ptxas() {
    let folder = scratch("crash");
    let source = folder.file("k.tile", COPY);
    let ptxas = fake_ptxas(&folder, "kill -SEGV $$");
    let out = folder.path("out");
    let answer = kernelc(["build", &source, "--ptxas", &ptxas, "--out", &out]).expect_code(4);
    says(&answer, &["E0803", "copies", "kernelc emit"]);
    assert_eq!(folder.names(), ["k.tile", "ptxas"]);
}

#[test]
fn a_refusal_of_ptxas_shows_its_log() {
    let folder = scratch("refusal");
    let source = folder.file("k.tile", COPY);
    let ptxas = fake_ptxas(&folder, "echo 'ptxas error : no' >&2; exit 255");
    let out = folder.path("out");
    let answer = kernelc(["build", &source, "--ptxas", &ptxas, "--out", &out]).expect_code(4);
    says(&answer, &["E0802", "copies", "ptxas error : no"]);
    assert_eq!(folder.names(), ["k.tile", "ptxas"]);
}

#[test]
fn a_disassembler_that_fails() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch("nvdisasm");
    let source = folder.file("k.tile", COPY);
    let nvdisasm = folder.file("nvdisasm", "#!/bin/sh\necho 'nvdisasm fatal : no' >&2\nexit 1\n");
    std::fs::set_permissions(&nvdisasm, std::fs::Permissions::from_mode(0o755)).unwrap();
    let args = ["emit", "--stage", "sass", "--nvdisasm", &nvdisasm, &source];
    let answer = kernelc(args).expect_code(4);
    says(&answer, &["E0807", "nvdisasm fatal : no"]);
}

#[test]
fn text_that_is_no_stage() {
    let folder = scratch("stage");
    let source = folder.file("text", "no module");
    for from in ["mlir", "llvm"] {
        let args = ["emit", "--from", from, "--stage", "ptx", "--target", "sm_90a", &source];
        says(&kernelc(args).expect_code(4), &["E0808"]);
    }
    let args = ["emit", "--from", "ptx", "--stage", "sass", "--target", "sm_90a", &source];
    says(&kernelc(args).expect_code(4), &["E0802"]);
}

/// LLVM ends the process when it cannot select an instruction; a worker takes the blow.
#[test]
fn an_abort_of_llvm() {
    let text = "target triple = \"nvptx64-nvidia-cuda\"\n\
        declare void @llvm.nvvm.tcgen05.alloc.cg1(ptr, i32)\n\
        define ptx_kernel void @k(ptr %p) {\n  call void @llvm.nvvm.tcgen05.alloc.cg1(ptr %p, i32 32)\n  ret void\n}\n";
    let folder = scratch("abort");
    let source = folder.file("k.ll", text);
    let args = ["emit", "--from", "llvm", "--stage", "ptx", "--target", "sm_90a", &source];
    let answer = kernelc(args).expect_code(4);
    says(&answer, &["E0804", "k.ll", "ptx", "kernelc emit --from llvm"]);
    assert_eq!(answer.stdout, "");
    // It would have been fine for a target that has the instruction.
    kernelc(["emit", "--from", "llvm", "--stage", "ptx", "--target", "sm_100a", &source])
        .expect_code(0);
}

/// A disk that is full while writing, by way of a limit on the size of files.
#[test]
fn a_full_disk_while_writing() {
    let folder = scratch("disk");
    let source = folder.file(
        "big.tile",
        "target sm_90a;\nkernel big(output y : gmem f32[1024, 256]) launch { grid: 1024, warps: 1 } {\n\
         store splat(1.0, 256) -> y[cta.x, :];\n}\n",
    );
    let script = format!(
        "trap '' XFSZ; ulimit -f 64; exec '{}' run '{source}' --out '{}'",
        kernelc_path().display(),
        folder.path("y.npy")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(root());
    let full = answer(command, b"").expect_code(4);
    says(&full, &["E0805", "y.npy"]);
    assert_eq!(folder.names(), ["big.tile"], "nothing is left half written");
}

#[test]
fn a_folder_that_cannot_be_written() {
    let folder = scratch("folder");
    let source = folder.file("k.tile", COPY);
    let answer = kernelc(["build", &source, "--out", &format!("{source}/out")]).expect_code(4);
    says(&answer, &["E0805"]);
    assert_eq!(folder.names(), ["k.tile"]);
    assert_eq!(folder.read("k.tile"), COPY.as_bytes());
}

#[test]
fn a_tensor_of_the_wrong_type_or_shape() {
    let folder = scratch("npy");
    let source = folder.file("k.tile", COPY);
    let run = |name: &str, content: Vec<u8>, code: i32| {
        let x = folder.file(name, content);
        let answer =
            kernelc(["run", &source, "--in", &format!("x={x}"), "--out", &folder.path("y.npy")]);
        std::fs::remove_file(x).unwrap();
        assert_eq!(folder.names(), ["k.tile"]);
        answer.expect_code(code)
    };
    let npy = super::run::npy;
    says(&run("ints.npy", npy("<i4", "(128,)", &[0; 512]), 1), &["E0706", "i32", "f32"]);
    says(&run("short.npy", npy("<f4", "(64,)", &[0; 256]), 1), &["E0706", "[64]", "128"]);
    says(&run("doubles.npy", npy("<f8", "(128,)", &[0; 1024]), 1), &["E0706", "f64", "f32"]);
    says(&run("cut.npy", npy("<f4", "(128,)", &[0; 100]), 4), &["E0806"]);
    says(&run("text.npy", b"no tensor".to_vec(), 4), &["E0806"]);
    says(&run("huge.npy", npy("<f4", "(18446744073709551615, 4)", &[]), 4), &["E0806"]);
    let out = format!("x={}", folder.path("x.npy"));
    says(&kernelc(["run", &source, "--out", &out]).expect_code(2), &["does not write"]);
    let answer = kernelc(["run", &source, "--in", "x=nowhere.npy"]).expect_code(4);
    says(&answer, &["E0806", "nowhere.npy"]);
}

#[test]
fn files_and_imports_that_are_not_there() {
    let answer = kernelc(["check", "nowhere.tile"]).expect_code(4);
    says(&answer, &["E0806", "nowhere.tile"]);
    let text = "import \"nowhere.tile\";\ntarget sm_90a;\n";
    let answer = kernelc_with_input(["check", "-"], text.as_bytes()).expect_code(1);
    says(&answer, &["E0211", "nowhere.tile"]);
}

#[test]
fn a_wrong_command_line() {
    for args in [
        &["frobnicate"][..],
        &[],
        &["build"],
        &["emit", "--stage", "sauce", "x"],
        &["check", "--no-such-option", "x"],
    ] {
        let answer = kernelc(args).expect_code(2);
        assert!(!answer.stderr.is_empty());
    }
    let answer =
        kernelc(["build", "models/kimi_k3/kernels/gemv.tile", "--out", "nowhere"]).expect_code(2);
    says(&answer, &["gemv_bf16", "--set", "--bind"]);
}

#[test]
fn errors_are_told_to_programs_too() {
    let folder = scratch("json");
    let source = folder.file("k.tile", COPY);
    let args = [
        "build",
        &source,
        "--ptxas",
        "nowhere/ptxas",
        "--format",
        "json",
        "--out",
        &folder.path("out"),
    ];
    let answer = kernelc(args).expect_code(4);
    assert_eq!(
        (answer.json_lines()[0]["code"].as_str(), answer.stderr.as_str()),
        (Some("E0801"), "")
    );
}

/// A text in which every byte is turned over, one at a time, is never a fault of the compiler.
#[test]
fn damaged_texts_are_refused_or_accepted() {
    let base = COPY.as_bytes();
    let mut text = Vec::new();
    for at in (0..base.len()).step_by(5) {
        text.clear();
        text.extend(base);
        text[at] ^= 0x15;
        let answer = kernelc_with_input(["check", "-"], &text);
        assert!(
            answer.code == 0 || answer.code == 1,
            "byte {at}: exit code {}\n{}\n{}",
            answer.code,
            answer.stdout,
            answer.stderr
        );
    }
}

#[test]
fn what_never_ends_or_never_comes_is_refused() {
    let folder = scratch("endless");
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let source = folder.file("k.tile", COPY.as_bytes());
    for path in ["/dev/zero", pipe.as_str()] {
        let import = format!("import \"{}\";\n{COPY}", path.rsplit('/').next().unwrap());
        let importer = folder.file("importer.tile", import.as_bytes());
        let start = Instant::now();
        for args in [
            vec!["check", path],
            vec!["fmt", path],
            vec!["audit", path, "--ptx-only"],
            vec!["run", source.as_str(), "--in", &format!("x={path}")],
        ] {
            let answer = kernelc(&args).expect_code(4);
            says(&answer, &["E0806", "not a regular file"]);
        }
        if path == pipe {
            says(&kernelc(["check", &importer]).expect_code(1), &["E0211", "not a regular file"]);
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{path}: {:?}", start.elapsed());
    }
    let absolute =
        folder.file("absolute.tile", format!("import \"/dev/zero\";\n{COPY}").as_bytes());
    says(&kernelc(["check", &absolute]).expect_code(1), &["E0211", "relative"]);
}

#[test]
fn declarations_that_do_not_fit_are_refused() {
    let folder = scratch("bad_declarations");
    let ptx = "tests/suite/audit/basic/sm_90a_both_griddep_weak.ptx";
    for (toml, words) in [
        ("static = [\"px\"\n", &["who.toml:1"][..]),
        ("constant = [\"px\"]\n", &["who.toml:1:1", "constant"]),
        ("static = \"px\"\n", &["who.toml:1:10"]),
        ("mutable = [\n  \"#x\",\n]\n", &["who.toml:2:3", "ordinal"]),
        ("static = [\"nobody\"]\n", &["who.toml:1:11", "no kernel has a parameter `nobody`"]),
        ("[kernel.none]\nstatic = [\"px\"]\n", &["who.toml:2:11", "no kernel `none`"]),
        ("static = [\"px\"]\nmutable = [\"px\"]\n", &["who.toml:2:12", "both"]),
        ("[kernel.k]\nstatic = [\"k:px\"]\n", &["who.toml:2:11", "inside of the table"]),
    ] {
        let file = folder.file("who.toml", toml.as_bytes());
        let answer = kernelc(["audit", "--ptx-only", "--declarations", &file, ptx]).expect_code(4);
        says(&answer, &["E0806"]);
        says(&answer, words);
    }
    let file = folder.file("who.toml", b"static = [\"\xff\"]\n");
    let answer = kernelc(["audit", "--ptx-only", "--declarations", &file, ptx]).expect_code(4);
    says(&answer, &["E0806", "not UTF-8"]);
    let missing = folder.path("nowhere.toml");
    let answer = kernelc(["audit", "--ptx-only", "--declarations", &missing, ptx]).expect_code(4);
    says(&answer, &["E0806", "nowhere.toml"]);
    for empty in [&b""[..], b" \n"] {
        let file = folder.file("empty.ptx", empty);
        says(&kernelc(["audit", "--ptx-only", &file]).expect_code(4), &["E0806", "it is empty"]);
    }
}

#[test]
fn more_than_a_kind_of_input_may_have_is_refused() {
    let folder = scratch("large");
    let large = folder.path("large.tile");
    std::fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    let source = folder.file("k.tile", COPY.as_bytes());
    let tensor = folder.path("large.safetensors");
    std::fs::File::create(&tensor).unwrap().set_len(1 << 40).unwrap();
    for args in [
        vec!["check", large.as_str()],
        vec!["audit", large.as_str(), "--ptx-only"],
        vec!["run", source.as_str(), "--in", &format!("x={large}")],
    ] {
        says(&kernelc(&args).expect_code(4), &["E0806", "more than"]);
    }
    let input = format!("x={tensor}");
    says(&kernelc(["run", &source, "--in", &input]).expect_code(4), &["E0806", "header"]);
    let answer = kernelc_with_input(["check", "-"], &vec![b' '; (16 << 20) + 1]).expect_code(4);
    says(&answer, &["E0806", "more than 16777216 bytes"]);
}
