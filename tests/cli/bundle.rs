//! Bundles: what a build leaves for a device, that nothing is half written, and that the audit reads them back.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use kernel_abi::Access;
use kernel_abi::bundle::{AuditVerdict, Bundle, Policy};
use kernel_tests::process::{Scratch, answer, kernelc, kernelc_path, root};

fn scratch(name: &str) -> Scratch {
    Scratch::new(env!("CARGO_TARGET_TMPDIR"), &format!("bundle-{name}"))
}

const TWO: &str = "target sm_90a, sm_100a;\n\
    kernel a<const N: int = 128, const B: int = 32>(input x : gmem f32[N], scalar n : i32, output y : gmem f32[N])\n\
    launch { grid: N / B, warps: 1, pdl: none } where N % B == 0 {\n\
    store load x[cta.x * B .. + B] + f32(n) -> y[cta.x * B .. + B];\n}\n\
    kernel b<const N: int = 128>(static w : gmem f32[N], input x : gmem f32[N], output y : gmem f32[1])\n\
    launch { grid: 1, warps: 4, pdl: both } {\n\
    let f = load w;\ngrid_wait;\nlet s = reduce.add(f * load x, axis = 0);\ngrid_launch;\nstore s -> y[0];\n}\n";

fn bindings(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
    list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn bundle(folder: &Scratch, path: &str) -> Bundle {
    Bundle::from_bytes(folder.read(path), Policy::AUDITED).unwrap()
}

#[test]
fn a_build_writes_a_bundle_of_all_its_targets() {
    let folder = scratch("whole");
    let source = folder.file("two.tile", TWO);
    let answer = kernelc(["build", &source, "--out", &folder.path("out")]).expect_code(0);
    assert!(answer.stdout.contains("two.kbundle: "), "{}", answer.stdout);
    let bundle = bundle(&folder, "out/two.kbundle");
    assert!(bundle.targets().iter().eq(["sm_100a", "sm_90a"].iter()));
    assert!(!bundle.maker().ptxas.is_empty());
    for target in ["sm_90a", "sm_100a"] {
        let a = bundle.kernel("a", &BTreeMap::new(), target).unwrap();
        let head = a.head();
        assert_eq!((head.name.as_str(), head.file.as_str()), ("a", "two.tile"));
        assert_eq!(head.bindings, bindings(&[("N", 128), ("B", 32)]));
        assert_eq!(head.audit, AuditVerdict::Clean);
        assert_eq!((a.launch().grid, a.launch().threads), ([4, 1, 1], 32));
        assert_eq!((a.launch().spill_bytes, a.launch().cluster), (0, [1, 1, 1]));
        assert!(!a.signature().starts_early && !a.launch().launches_next);
        assert_eq!(a.cubin(), folder.read(&format!("out/a.{target}.cubin")));
        assert_eq!(a.ptx().as_bytes(), folder.read(&format!("out/a.{target}.ptx")));
        assert!(a.ptx().contains(&format!(".entry {}(", a.entry())), "{}", a.ptx());
        assert!(a.report().contains("\"clean\""), "{}", a.report());
        let accesses: Vec<Access> = a.signature().params.iter().map(|p| p.access).collect();
        assert_eq!(accesses, [Access::Input, Access::Scalar, Access::Output]);
        let b = bundle.kernel("b", &BTreeMap::new(), target).unwrap();
        assert!(b.signature().starts_early && b.launch().launches_next);
        assert_eq!(b.launch().threads, 128);
    }
}

#[test]
fn a_bundle_is_named_after_its_set_and_holds_what_the_entries_say() {
    let folder = scratch("set");
    folder.file("one.tile", TWO);
    folder.file("sub/two.tile", TWO.replace("f32(n)", "f32(n) + 1.0"));
    folder.file(
        "build.toml",
        "[[set.s]]\nkernel = \"a\"\nbind = { N = 64 }\n\
         [[set.s]]\nkernel = \"a\"\nname = \"other\"\nfile = \"sub/two.tile\"\nbind = { N = 64, B = 64 }\n",
    );
    let dir = folder.path("");
    kernelc(["build", &dir, "--set", "s", "--target", "sm_90a", "--out", &folder.path("out")])
        .expect_code(0);
    let bundle = bundle(&folder, "out/s.kbundle");
    let find = |list: &[(&str, i64)]| {
        let found = bundle.kernel("a", &bindings(list), "sm_90a");
        found.map(|kernel| (kernel.head().name.clone(), kernel.head().file.clone()))
    };
    let (one, other) = (("a".into(), "one.tile".into()), ("other".into(), "two.tile".into()));
    assert_eq!(find(&[("N", 64)]), Some(one.clone()));
    assert_eq!(find(&[("N", 64), ("B", 32)]), Some(one));
    assert_eq!(find(&[("N", 64), ("B", 64)]), Some(other));
    assert_eq!(find(&[]), None, "N has another default");
    let [a, other] = ["a", "other"].map(|name| bundle.artefact(name, "sm_90a").unwrap());
    assert_ne!(a.head().kernel_ir, other.head().kernel_ir);
    // A file that lacks the kernel.
    folder.file("build.toml", "[[set.s]]\nkernel = \"a\"\nfile = \"no.tile\"\n");
    let none = kernelc(["build", &dir, "--set", "s", "--out", &folder.path("out")]).expect_code(4);
    assert!(none.stderr.contains("no.tile"), "{}", none.stderr);
    folder.file("build.toml", "[[set.s]]\nkernel = \"c\"\nfile = \"one.tile\"\n");
    let none = kernelc(["build", &dir, "--set", "s", "--out", &folder.path("out")]).expect_code(2);
    assert!(none.stderr.contains("has no kernel `c`"), "{}", none.stderr);
}

#[test]
fn a_build_that_changes_nothing_keeps_the_bundle() {
    let folder = scratch("kept");
    let source = folder.file("two.tile", TWO);
    let out = folder.path("out");
    let build = || kernelc(["build", &source, "--out", &out]).expect_code(0).stdout;
    build();
    let before = folder.read("out/two.kbundle");
    assert_eq!(build().matches("(unchanged)").count(), 4);
    assert!(folder.read("out/two.kbundle") == before);
    // Without a whole bundle everything is made again.
    let mut broken = before.clone();
    broken[100] ^= 1;
    std::fs::write(folder.path("out/two.kbundle"), &broken).unwrap();
    assert!(!build().contains("unchanged"));
    assert!(folder.read("out/two.kbundle") == before);
}

#[test]
fn the_audit_reads_a_bundle_back() {
    let folder = scratch("audit");
    let source = folder.file("two.tile", TWO);
    kernelc(["build", &source, "--out", &folder.path("out")]).expect_code(0);
    let path = folder.path("out/two.kbundle");
    let clean = kernelc(["audit", &path]).expect_code(0);
    assert!(clean.stdout.ends_with("two.kbundle: clean\n"), "{}", clean.stdout);
    let json = kernelc(["audit", &path, "--format", "json"]).expect_code(0);
    assert!(json.stdout.contains("\"verdict\": \"clean\""), "{}", json.stdout);
    let usage = kernelc(["audit", &path, "--static", "x"]).expect_code(2);
    assert!(usage.stderr.contains("a bundle says itself"), "{}", usage.stderr);
    let whole = folder.read("out/two.kbundle");
    for (name, bytes, code) in [
        ("changed", [&whole[..whole.len() - 1], &[!whole[whole.len() - 1]]].concat(), "B0105"),
        ("cut", whole[..whole.len() / 2].to_vec(), "B0104"),
        ("newer", [&whole[..8], &[2], &whole[9..]].concat(), "B0103"),
    ] {
        let path = folder.file(name, bytes);
        let refused = kernelc(["audit", &path]).expect_code(1);
        assert!(refused.stderr.contains(&format!("error[{code}]")), "{}", refused.stderr);
    }
}

/// A bundle whose machine code reads an activation ahead of its wait, with the right hash and the word `clean`.
#[test]
fn the_audit_does_not_believe_what_a_bundle_says_of_itself() {
    use kernel_abi::bundle::{Artefact, encode};
    let folder = scratch("liar");
    let source = folder.file("two.tile", TWO);
    kernelc(["build", &source, "--target", "sm_90a", "--out", &folder.path("out")]).expect_code(0);
    let bundle = bundle(&folder, "out/two.kbundle");
    let b = bundle.artefact("b", "sm_90a").unwrap();
    let ptx = b.ptx().replace("ld.global.", "ld.global.nc.");
    assert_ne!(ptx, b.ptx());
    let liar = Artefact {
        head: b.head().clone(),
        cubin: b.cubin().to_vec(),
        ptx,
        report: b.report().to_owned(),
        operations: b.operations().to_owned(),
    };
    let path = folder.file("liar.kbundle", encode(bundle.maker(), &[liar]).unwrap());
    let found = kernelc(["audit", &path]).expect_code(1);
    assert!(found.stdout.contains("E0901"), "{}", found.stdout);
    assert!(found.stdout.contains("b.sm_90a"), "{}", found.stdout);
}

/// Bundles whose index and code say two things, each with the right hash.
#[test]
fn the_audit_holds_what_a_bundle_says_to_its_code() {
    use kernel_abi::bundle::{Artefact, encode};
    let folder = scratch("head");
    let source = folder.file("two.tile", TWO);
    kernelc(["build", &source, "--out", &folder.path("out")]).expect_code(0);
    let bundle = bundle(&folder, "out/two.kbundle");
    let part = |name: &str, target: &str| {
        let kernel = bundle.artefact(name, target).unwrap();
        Artefact {
            head: kernel.head().clone(),
            cubin: kernel.cubin().to_vec(),
            ptx: kernel.ptx().to_owned(),
            report: kernel.report().to_owned(),
            operations: kernel.operations().to_owned(),
        }
    };
    let a = part("a", "sm_90a");
    let refused = |liar: &[Artefact]| {
        let path = folder.file("liar.kbundle", encode(bundle.maker(), liar).unwrap());
        let answer = kernelc(["audit", &path]).expect_code(1);
        assert!(answer.stderr.contains("error[B0106]"), "{}", answer.stderr);
        answer.stderr
    };
    let changed = |change: &dyn Fn(&mut Artefact)| {
        let mut liar = a.clone();
        change(&mut liar);
        refused(&[liar])
    };
    let other = part("a", "sm_100a");
    assert!(refused(&[]).contains("there is no kernel in it"));
    assert!(changed(&|a| a.cubin = other.cubin.clone()).contains("its machine code is for sm_100"));
    assert!(changed(&|a| a.ptx = other.ptx.clone()).contains("its PTX is for sm_100a"));
    assert!(changed(&|a| a.head.launch.registers = 1).contains("it has 1 registers"));
    assert!(changed(&|a| a.head.launch.threads = 64).contains("it has 64 threads"));
    assert!(changed(&|a| a.head.entry = "c".to_owned()).contains("has no kernel `c`"));
    let fewer = changed(&|a| a.head.signature.params.truncate(2));
    assert!(fewer.contains("its parameters have 8, 4 bytes"), "{fewer}");
    let b = part("b", "sm_90a");
    assert!(changed(&|a| a.cubin = b.cubin.clone()).contains("has no kernel `a`"));
    for (name, bytes) in [("empty.kbundle", &b""[..]), ("other.kbundle", b"KBUNDEL0")] {
        let answer = kernelc(["audit", &folder.file(name, bytes)]).expect_code(1);
        assert!(answer.stderr.contains("error[B010"), "{}", answer.stderr);
    }
}

/// The limit is below the size of the bundle and above that of every other file of the build.
fn with_little_room(arguments: &str) -> kernel_tests::process::Answer {
    let kernelc = kernelc_path();
    let script = format!("ulimit -f 64; exec '{}' {arguments}", kernelc.display());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(root());
    answer(command, b"")
}

#[test]
fn a_full_disk_leaves_the_old_bundle() {
    let folder = scratch("disk");
    // More kernels than fit below the limit.
    let kernel = |name: usize, by: f32| {
        format!(
            "kernel k{name}(input x : gmem f32[4096], output y : gmem f32[4096]) launch {{ grid: 1, warps: 4 }} {{\n\
             store load x * {by:?} -> y;\n}}\n"
        )
    };
    let text = |count: usize, by: f32| -> String {
        let kernels: String = (0..count).map(|name| kernel(name, by)).collect();
        format!("target sm_90a;\n{kernels}")
    };
    let source = folder.file("k.tile", text(1, 2.0));
    let out = folder.path("out");
    kernelc(["build", &source, "--out", &out]).expect_code(0);
    let before = folder.read("out/k.kbundle");
    let names = folder.names();
    folder.file("k.tile", text(8, 3.0));
    let arguments = format!("build '{source}' --out '{out}'");
    let full = with_little_room(&arguments).expect_code(4);
    assert!(full.stderr.contains("E0805") && full.stderr.contains("k.kbundle"), "{}", full.stderr);
    assert!(folder.read("out/k.kbundle") == before);
    assert_eq!(folder.names(), names, "nothing is left half written");
    kernelc(["build", &source, "--out", &out]).expect_code(0);
    assert_eq!(bundle(&folder, "out/k.kbundle").kernels().count(), 8);
}

/// Wherever it is killed, the bundle is the old one or the new one, and the next build works and leaves nothing else.
#[test]
fn a_killed_process_leaves_a_whole_bundle() {
    let folder = scratch("killed");
    let source = folder.file("two.tile", TWO);
    let out = folder.path("out");
    kernelc(["build", &source, "--out", &out]).expect_code(0);
    let names = folder.names();
    for milliseconds in [20, 150, 600] {
        folder
            .file("two.tile", TWO.replace("f * load x", &format!("f * {milliseconds}.0 * load x")));
        let mut child = Command::new(kernelc_path())
            .args(["build", &source, "--out", &out])
            .current_dir(root())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        bundle(&folder, "out/two.kbundle");
    }
    kernelc(["build", &source, "--out", &out]).expect_code(0);
    assert_eq!(folder.names(), names);
}
