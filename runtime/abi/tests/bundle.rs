//! Whole bundles are read as they were written; everything else is refused and nothing panics.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::bundle::{
    Artefact, AuditVerdict, Bundle, KernelHead, LaunchSpec, Maker, Policy, VERSION, encode,
};
use kernel_abi::plan::{
    ContractSpec, ExtentSpec, KernelKey, ParamSpec, ScaledBy, Signature, Touches, UpperBound,
    Waits, WordKind,
};
use kernel_abi::stored::{StoredDigit, StoredLayout};
use kernel_abi::{Access, DType};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const ANYTHING: Policy = Policy { allow_unaudited: true };

fn param(name: &str, access: Access, dtype: DType, shape: Vec<ExtentSpec>) -> ParamSpec {
    ParamSpec::new(name, access, dtype, shape)
}

fn artefact(name: &str, target: &str, bindings: &[(&str, i64)], named: &[&str]) -> Artefact {
    let rows = || ExtentSpec::Scalar("rows".to_owned());
    let contract = ContractSpec {
        lo: 0,
        hi: UpperBound::Scalar("rows".to_owned(), 1),
        distinct: true,
        except: Some(-1),
    };
    let ids = param("ids", Access::Input, DType::I32, vec![rows()]);
    let head = KernelHead {
        name: name.to_owned(),
        file: "gemv.tile".to_owned(),
        kernel: "gemv".to_owned(),
        entry: format!("{name}_entry"),
        target: target.to_owned(),
        bindings: bindings.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        named: named.iter().map(|name| (*name).to_owned()).collect(),
        signature: Signature::new(
            vec![
                param("rows", Access::Scalar, DType::I32, Vec::new()),
                param("w", Access::Static, DType::Bf16, vec![rows(), ExtentSpec::Const(64)]),
                ParamSpec { settled: true, contract: Some(contract), ..ids },
            ],
            true,
        ),
        launch: LaunchSpec {
            grid: [12, 2, 1],
            cluster: [2, 1, 1],
            threads: 128,
            static_shared_bytes: 16,
            dynamic_shared_bytes: 4096,
            tensor_columns: 64,
            registers: 40,
            spill_bytes: 0,
            launches_next: true,
            resident: false,
        },
        audit: AuditVerdict::Clean,
        kernel_ir: "0a".repeat(32),
        device_ir: "b1".repeat(32),
        waived: vec!["E0107: a reason".to_owned()],
        events: vec!["weights are there".to_owned()],
        roles: vec!["work".to_owned()],
    };
    Artefact {
        head,
        cubin: format!("machine code of {name}").into_bytes(),
        ptx: format!(".version 8.8 // {name}"),
        report: "{}".to_owned(),
        operations: "[]".to_owned(),
    }
}

fn maker() -> Maker {
    Maker { kernelc: "0.1.0".to_owned(), ..Maker::default() }
}

fn two() -> Vec<Artefact> {
    let [m1, m2] = [1, 2].map(|m| [("M", m), ("N", 64), ("STEP", 8)]);
    vec![
        artefact("b", "sm_90a", &m2, &["M", "N"]),
        artefact("a", "sm_90a", &m1, &["M", "N", "STEP"]),
    ]
}

fn whole() -> Vec<u8> {
    encode(&maker(), &two()).unwrap()
}

fn bindings(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
    list.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn code(bytes: &[u8]) -> &'static str {
    Bundle::from_bytes(bytes.to_vec(), Policy::AUDITED).unwrap_err().code.name()
}

/// A file with the right header and hash around any index and sections.
fn seal(index: &[u8], sections: &[u8]) -> Vec<u8> {
    let mut bytes = [index, &vec![0; index.len().next_multiple_of(64) - index.len()]].concat();
    bytes.extend_from_slice(sections);
    let mut head = b"KBUNDLE\0".to_vec();
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&(64 + bytes.len() as u64).to_le_bytes());
    head.extend_from_slice(&(index.len() as u64).to_le_bytes());
    let hash = Sha256::new().chain_update(&head).chain_update(&bytes).finalize();
    [head.as_slice(), &hash, &bytes].concat()
}

#[test]
fn a_bundle_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.kbundle");
    std::fs::write(&path, whole()).unwrap();
    let bundle = Bundle::open(&path, Policy::AUDITED).unwrap();
    assert_eq!(bundle.maker(), &maker());
    assert_eq!(bundle.targets(), BTreeSet::from(["sm_90a"]));
    let names: Vec<&str> = bundle.kernels().map(|kernel| kernel.head().name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    for artefact in two() {
        let kernel = bundle.artefact(&artefact.head.name, "sm_90a").unwrap();
        assert_eq!(kernel.head(), &artefact.head);
        assert_eq!(kernel.cubin(), artefact.cubin);
        assert_eq!(kernel.cubin().as_ptr() as usize % 64, 0);
        assert_eq!((kernel.ptx(), kernel.report()), (&*artefact.ptx, &*artefact.report));
        assert_eq!(kernel.operations(), artefact.operations);
    }
}

#[test]
fn the_same_kernels_are_the_same_bytes_in_any_order() {
    let mut turned = two();
    turned.reverse();
    assert_eq!(encode(&maker(), &turned).unwrap(), whole());
}

#[test]
fn equal_sections_are_stored_once() {
    let mut same = two();
    same[1].cubin = vec![7; 4096];
    same[0].cubin = same[1].cubin.clone();
    let shared = encode(&maker(), &same).unwrap().len();
    same[0].cubin[0] = 8;
    assert!(encode(&maker(), &same).unwrap().len() >= shared + 4096);
}

#[test]
fn a_kernel_is_found_by_its_bindings_and_the_defaults_of_the_rest() {
    let bundle = Bundle::from_bytes(whole(), Policy::AUDITED).unwrap();
    let find = |list: &[(&str, i64)]| {
        bundle.kernel("gemv", &bindings(list), "sm_90a").map(|k| k.head().name.clone())
    };
    // `b` has the default of STEP, `a` has another value.
    assert_eq!(find(&[("M", 2), ("N", 64)]).as_deref(), Some("b"));
    assert_eq!(find(&[("M", 2), ("N", 64), ("STEP", 8)]).as_deref(), Some("b"));
    assert_eq!(find(&[("M", 1), ("N", 64), ("STEP", 8)]).as_deref(), Some("a"));
    assert_eq!(find(&[("M", 1), ("N", 64)]), None);
    assert_eq!(find(&[("M", 2)]), None);
    assert_eq!(find(&[("M", 2), ("N", 64), ("Q", 1)]), None);
    assert!(bundle.kernel("gemv", &bindings(&[("M", 2), ("N", 64)]), "sm_100a").is_none());
    let mut key = KernelKey {
        file: "gemv.tile".to_owned(),
        kernel: "gemv".to_owned(),
        bindings: bindings(&[("M", 2), ("N", 64)]),
    };
    assert!(bundle.find(&key, "sm_90a").is_some());
    key.file = "other.tile".to_owned();
    assert!(bundle.find(&key, "sm_90a").is_none());
}

#[test]
fn every_changed_byte_is_found() {
    let whole = whole();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        let expected = match at {
            0..8 => "B0102",
            8..12 => "B0103",
            16..24 => "B0104",
            _ => "B0105",
        };
        assert_eq!(code(&changed), expected, "byte {at}");
    }
}

#[test]
fn every_shorter_file_is_refused_and_a_longer_one() {
    let whole = whole();
    for length in 0..whole.len() {
        let expected = if length < 8 { "B0102" } else { "B0104" };
        assert_eq!(code(&whole[..length]), expected, "{length} bytes");
    }
    let longer = [whole.as_slice(), &[0]].concat();
    assert_eq!(code(&longer), "B0104");
}

#[test]
fn a_file_of_another_kind_or_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Bundle::open(&folder.path().join("no.kbundle"), Policy::AUDITED).unwrap_err();
    assert_eq!(missing.code.name(), "B0101");
    assert!(missing.to_string().contains("no.kbundle"), "{missing}");
    let is_folder = Bundle::open(folder.path(), Policy::AUDITED).unwrap_err();
    assert_eq!(is_folder.code.name(), "B0101");
    assert_eq!(code(b"\x7fELF and so on"), "B0102");
    let empty = folder.path().join("empty.kbundle");
    std::fs::write(&empty, b"").unwrap();
    let empty = Bundle::open(&empty, Policy::AUDITED).unwrap_err();
    assert!(matches!(empty.code.name(), "B0102" | "B0101"), "{empty}");
}

#[test]
fn what_was_not_found_clean_needs_permission() {
    for verdict in [AuditVerdict::Findings, AuditVerdict::NotJudged, AuditVerdict::NotRun] {
        let mut artefacts = two();
        artefacts[0].head.audit = verdict;
        let bytes = encode(&maker(), &artefacts).unwrap();
        let refused = Bundle::from_bytes(bytes.clone(), Policy::AUDITED).unwrap_err();
        assert_eq!(refused.code.name(), "B0107");
        assert!(refused.message.contains(verdict.name()), "{refused}");
        let allowed = Bundle::from_bytes(bytes, ANYTHING).unwrap();
        assert_eq!(allowed.artefact("b", "sm_90a").unwrap().head().audit, verdict);
    }
}

#[test]
fn an_index_that_lies_is_refused_though_its_hash_is_right() {
    let fault = |change: &dyn Fn(&mut KernelHead)| {
        let mut artefacts = two();
        change(&mut artefacts[0].head);
        encode(&maker(), &artefacts).unwrap_err().code.name()
    };
    let layout = |extent, stride| {
        let axes =
            vec![vec![StoredDigit { extent, stride }], vec![StoredDigit { extent: 4, stride: 1 }]];
        StoredLayout::new(axes).unwrap()
    };
    let faults: [&dyn Fn(&mut KernelHead); 20] = [
        &|head| {
            head.signature.params[1].shape = vec![ExtentSpec::Const(4); 2];
            head.signature.params[1].stored = Some(layout(8, 4));
        },
        &|head| {
            let scaled = ScaledBy { param: "s".to_owned(), group: 32 };
            head.signature.params[1].scaled = Some(scaled);
        },
        &|head| head.name = "a".to_owned(),
        &|head| head.entry = String::new(),
        &|head| head.entry = "a\0b".to_owned(),
        &|head| head.kernel_ir = "not a hash".to_owned(),
        &|head| head.named.extend(["Q".to_owned()]),
        &|head| head.launch.grid[1] = 0,
        &|head| head.launch.grid[2] = 70_000,
        &|head| head.launch.cluster = [5, 1, 1],
        &|head| head.launch.cluster = [0, 1, 1],
        &|head| head.launch.threads = 0,
        &|head| head.launch.dynamic_shared_bytes = u32::MAX,
        &|head| head.launch.tensor_columns = 1024,
        &|head| head.signature.params[1].name = "rows".to_owned(),
        &|head| head.signature.params[1].shape = vec![ExtentSpec::Const(u64::MAX); 2],
        &|head| head.signature.params[0].access = Access::Input,
        &|head| head.signature.params[1].touches.rows = Some("columns".to_owned()),
        &|head| head.signature.params[1].touches.rows = Some("ids".to_owned()),
        &|head| head.signature.world = Some(0),
    ];
    for (number, change) in faults.iter().enumerate() {
        assert_eq!(fault(change), "B0106", "{number}");
    }
}

#[test]
fn what_a_kernel_does_around_its_wait_is_read_back_and_is_as_it_should_be_where_nothing_says_so() {
    let [plain, mut odd] = ["plain", "odd"].map(|name| artefact(name, "sm_90a", &[("M", 1)], &[]));
    odd.head.signature.waits = Waits { may_not_wait: true, may_launch_first: true };
    odd.head.signature.world = Some(2);
    let params = &mut odd.head.signature.params;
    params[1].touches = Touches {
        read_early: true,
        written_early: true,
        copied_unfenced: true,
        rows: Some("rows".to_owned()),
    };
    params[2].words = Some(WordKind::Raised);
    let bytes = encode(&maker(), &[plain.clone(), odd.clone()]).unwrap();
    let bundle = Bundle::from_bytes(bytes.clone(), ANYTHING).unwrap();
    let read = |name: &str| bundle.artefact(name, "sm_90a").unwrap().signature();
    assert_eq!(read("odd"), &odd.head.signature);
    assert_eq!(read("plain"), &plain.head.signature);
    let index = String::from_utf8_lossy(&bytes);
    for word in ["waits", "world", "touches", "words"] {
        assert_eq!(index.matches(&format!("\"{word}\"")).count(), 1, "{word}");
    }
}

#[test]
fn sections_outside_of_the_file_are_refused() {
    let index = |start: u64, length: u64| {
        let bytes = whole();
        let length_of_index = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
        let text = std::str::from_utf8(&bytes[64..64 + length_of_index]).unwrap();
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value["kernels"][0]["cubin"] = serde_json::json!({ "start": start, "length": length });
        value.to_string()
    };
    for (start, length) in [(0, 1 << 40), (u64::MAX, 1), (1 << 40, 0), (u64::MAX - 8, u64::MAX)] {
        let bytes = seal(index(start, length).as_bytes(), &[0; 1024]);
        assert_eq!(code(&bytes), "B0106", "{start} {length}");
    }
    // Text that is none.
    let bytes = seal(index(0, 8).as_bytes(), &[0xff; 1024]);
    assert_eq!(code(&bytes), "B0106");
    // An index that says it is longer than the file, with the right hash.
    assert_eq!(code(&seal(b"{", &[])), "B0106");
    assert_eq!(code(&seal("[".repeat(100_000).as_bytes(), &[])), "B0106");
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(Bundle::from_bytes(bytes, Policy::AUDITED).is_err());
    }

    #[test]
    fn arbitrary_bytes_behind_a_right_header_are_refused(
        index in proptest::collection::vec(any::<u8>(), 0..256),
        sections in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        let bytes = seal(&index, &sections);
        let refused = Bundle::from_bytes(bytes, ANYTHING).is_err();
        prop_assert!(refused);
    }

    /// An index with changed characters and a right hash never makes the reader panic, and what it accepts can be
    /// used in every way.
    #[test]
    fn a_changed_index_with_a_right_hash_never_panics(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), "[0-9a-z\"{}:,\\[\\]-]"), 1..4),
    ) {
        let bytes = whole();
        let length = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
        let mut index = bytes[64..64 + length].to_vec();
        for (at, by) in &changes {
            let at = at.index(index.len());
            index[at] = by.as_bytes()[0];
        }
        let sections = &bytes[(64 + length).next_multiple_of(64)..];
        let sealed = seal(&index, sections);
        if let Ok(bundle) = Bundle::from_bytes(sealed, ANYTHING) {
            for kernel in bundle.kernels() {
                let _ = (kernel.cubin(), kernel.ptx(), kernel.report(), kernel.operations());
            }
        }
    }
}

/// Names the bundle that the process of the test below opens.
#[cfg(unix)]
const CUT: &str = "KERNEL_TEST_CUT_BUNDLE";

#[cfg(unix)]
#[test]
fn a_bundle_that_is_cut_off_while_it_is_mapped_is_named() {
    use std::os::unix::process::ExitStatusExt;
    if let Some(path) = std::env::var_os(CUT) {
        // In the child: the part of a program.
        kernel_abi::bundle::end_on_bus_error(4);
        let others: Vec<Bundle> =
            (0..70).map(|_| Bundle::open(path.as_ref(), ANYTHING).unwrap()).collect();
        drop(others);
        let bundle = Bundle::open(path.as_ref(), ANYTHING).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        if std::env::var_os("KERNEL_TEST_KILL").is_some() {
            let id = std::process::id().to_string();
            std::process::Command::new("kill").args(["-BUS", &id]).status().unwrap();
            std::thread::sleep(std::time::Duration::from_secs(10));
        }
        let sum: u64 = bundle.kernels().flat_map(|k| k.cubin()).map(|&byte| u64::from(byte)).sum();
        std::process::exit(if sum == 0 { 90 } else { 91 });
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.kbundle");
    let name = "a_bundle_that_is_cut_off_while_it_is_mapped_is_named";
    let child = |more: &[(&str, &str)]| {
        let mut large = artefact("gemv", "sm_90a", &[("N", 4)], &["N"]);
        large.cubin = vec![7; 1 << 20];
        std::fs::write(&path, encode(&Maker::default(), &[large]).unwrap()).unwrap();
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(CUT, &path).envs(more.iter().copied());
        let output = command.output().unwrap();
        (output.status, String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = child(&[]);
    let line = format!(
        "error[B0108]: {}: a part of it is gone: it was cut off while it was in use\n",
        path.display()
    );
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(said.ends_with(&line), "{said}");
    // A bus error of another origin is what it was.
    let (status, said) = child(&[("KERNEL_TEST_KILL", "1")]);
    assert!(status.signal().is_some() && !said.contains("B0108"), "{status} {said}");
}
