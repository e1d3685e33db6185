//! Input that no compiler made: nothing panics, nothing hangs, and what cannot be read is not judged.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use std::path::PathBuf;
use std::sync::OnceLock;

use kernel_audit::{
    AssembleOptions, Declarations, Processes, ToolError, Toolchain, Verdict, audit_cubin, audit_ptx,
};
use proptest::prelude::*;
use support::{audit, folder, tools};

fn corpus() -> &'static Vec<String> {
    static FILES: OnceLock<Vec<String>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut paths: Vec<PathBuf> = ["hard", "own"]
            .iter()
            .flat_map(|name| std::fs::read_dir(folder(name)).unwrap())
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "ptx"))
            .collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    })
}

/// One change of a text: at a place, cut some bytes, then put others there.
#[derive(Clone, Debug)]
struct Edit {
    at: prop::sample::Index,
    cut: usize,
    put: String,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let words = prop::sample::select(vec![
        "",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        ":",
        ".",
        "@",
        "@!",
        "%",
        "\"",
        "/*",
        "//",
        "-",
        "+",
        "|",
        "%rd1",
        "%r1",
        "ld.global.nc.f32 ",
        "bra L;",
        "L:",
        ".loc 1 2 3",
        ".func f",
        ".entry k(",
        "call f;",
        "ret;",
        "0xffffffffffffffff",
        "99999999999999999999",
        ".reg .b32 %q<4294967295>;",
        ".branchtargets",
        "brx.idx %r1,ts;",
        "\u{e9}",
        "\0",
        "griddepcontrol.wait;",
        "<",
        ">",
        "=",
    ]);
    let edit = (any::<prop::sample::Index>(), 0usize..24, words).prop_map(|(at, cut, put)| Edit {
        at,
        cut,
        put: put.to_owned(),
    });
    prop::collection::vec(edit, 1..6)
}

fn change(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits {
        let at = edit.at.index(bytes.len().max(1)).min(bytes.len());
        let end = (at + edit.cut).min(bytes.len());
        bytes.splice(at..end, edit.put.bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A number from one end of its range or the other, or a small one.
fn number() -> impl Strategy<Value = i64> {
    let ends =
        prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX, 1 << 44, -(1 << 44), -1]);
    prop_oneof![ends, 0i64..70, any::<i64>()]
}

/// An instruction that computes with 64 bits, and three numbers for it.
fn sum() -> impl Strategy<Value = (&'static str, [i64; 3])> {
    let ops = prop::sample::select(vec![
        "add.s64 D,S,A",
        "sub.s64 D,A,S",
        "mul.lo.s64 D,S,A",
        "mul.hi.s64 D,S,A",
        "mad.lo.s64 D,S,A,B",
        "div.s64 D,S,A",
        "rem.s64 D,A,S",
        "shl.b64 D,S,A",
        "shr.s64 D,S,A",
        "and.b64 D,S,A",
        "not.b64 D,S",
        "bfe.u64 D,S,A,B",
        "bfi.b64 D,S,A,B,C",
        "bfi.b64 D,A,S,B,C",
        "min.s64 D,S,A",
        "neg.s64 D,S",
        "mov.b64 D,A",
    ]);
    (ops, number(), number(), number()).prop_map(|(op, a, b, c)| (op, [a, b, c]))
}

/// A kernel that stores to a computed place of shared memory and copies from a computed one.
fn computing(steps: &[(&str, [i64; 3])], offset: i64) -> String {
    let mut body = String::new();
    for (op, [a, b, c]) in steps {
        let op = op.replace(['S', 'D'], "%rd1").replace('A', &a.to_string());
        let op = op.replace('B', &b.to_string()).replace('C', &c.to_string());
        body.push_str(&format!(" {op};\n"));
    }
    format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.shared .align 128 .b8 tile[2048];\n\
         .visible .entry k(.param .u64 y)\n.reqntid 64\n{{\n .reg .b32 %r<4>; .reg .b64 %rd<8>;\n \
         mov.u32 %r1,%tid.x;\n mov.u64 %rd1,tile;\n cvt.u64.u32 %rd2,%r1;\n add.s64 %rd1,%rd1,%rd2;\n{body} \
         ld.param.u64 %rd3,[y];\n mov.u64 %rd4,tile;\n add.s64 %rd5,%rd1,{offset};\n \
         st.shared.u32 [%rd1+{offset}],%r1;\n bar.sync 0;\n cvt.u32.u64 %r2,%rd1;\n \
         cp.async.bulk.global.shared::cta.bulk_group [%rd3],[%rd5],%r2;\n \
         cp.async.bulk.commit_group;\n cp.async.bulk.wait_group 0;\n ret;\n}}\n"
    )
}

/// A listing that was made before.
struct Listing(String);

impl Toolchain for Listing {
    fn assemble(&self, _: &str, _: &AssembleOptions) -> Result<Vec<u8>, ToolError> {
        panic!("nothing is assembled here")
    }

    fn disassemble(&self, _: &[u8]) -> Result<String, ToolError> {
        Ok(self.0.clone())
    }
}

fn machine_code() -> &'static (Vec<u8>, String) {
    static CODE: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    CODE.get_or_init(|| {
        let tools = tools();
        let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: true };
        let table = support::text("hard", "flow_branch_table_wait_apart.ptx");
        let calls = support::text("hard", "func_two_deep.ptx");
        let text = format!("{table}{}", calls.split_once("64\n").unwrap().1);
        let cubin = tools.assemble(&text, &options).unwrap();
        let listing = tools.disassemble(&cubin).unwrap();
        (cubin, listing)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_ptx_is_read_or_refused(file in any::<prop::sample::Index>(), edits in edits()) {
        let text = change(&corpus()[file.index(corpus().len())], &edits);
        let report = audit_ptx(&text, &Declarations::default(), "sm_90a", None).unwrap();
        let _ = (report.to_json(), report.to_text("x"), report.to_sarif("x"));
    }

    #[test]
    fn changed_ptx_computes_with_any_numbers(steps in prop::collection::vec(sum(), 1..12), offset in number()) {
        let text = computing(&steps, offset);
        let report = audit_ptx(&text, &Declarations::default(), "sm_90a", None).unwrap();
        let _ = (report.to_json(), report.to_text("x"), report.to_sarif("x"));
    }

    #[test]
    fn changed_listings_are_read_or_refused(edits in edits()) {
        let (cubin, listing) = machine_code();
        let listing = Listing(change(listing, &edits));
        let report = audit_cubin(cubin, &Declarations::default(), &listing).unwrap();
        let _ = report.to_json();
    }

    #[test]
    fn changed_cubins_are_read_or_refused(
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let (cubin, listing) = machine_code();
        let mut bytes = cubin.clone();
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(keep.index(bytes.len()));
        }
        let listing = Listing(listing.clone());
        let report = audit_cubin(&bytes, &Declarations::default(), &listing).unwrap();
        let _ = report.to_json();
    }
}

fn not_judged(text: &str) {
    let report = audit(text, "sm_90a", &[], &[], None);
    assert_eq!(report.verdict, Verdict::NotJudged, "{}", &text[..text.len().min(60)]);
    assert!(!report.notes.is_empty());
}

#[test]
fn large_and_deep_input_is_refused_in_time() {
    let head = ".version 8.6\n.target sm_90a\n.address_size 64\n";
    not_judged(&"{".repeat(10 << 20));
    not_judged(&"(".repeat(1 << 20));
    not_judged(&format!("{head}.visible .entry k() {}", "{".repeat(1 << 20)));
    not_judged(&format!("{head}.visible .entry k() {{ mov.u32 {}", "{".repeat(1 << 20)));
    not_judged(&format!("{head}{}", ".extern ".repeat(1 << 18)));
    not_judged(&format!("{head}.visible .entry k() {{ call {}", "(".repeat(1 << 18)));
    not_judged("\u{feff}.version 8.6");
    not_judged("/* no end");
}

#[test]
fn calls_that_multiply_are_given_up() {
    let mut text =
        ".version 8.6\n.target sm_90a\n.address_size 64\n.func f0() { ret; }\n".to_owned();
    for level in 1..40 {
        let below = level - 1;
        text +=
            &format!(".func f{level}() {{ call f{below}; call f{below}; call f{below}; ret; }}\n");
    }
    text += ".visible .entry k() { call f39; ret; }\n";
    not_judged(&text);
}

#[test]
fn a_long_kernel_is_judged_in_time() {
    let mut text =
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n\
                    .reg .b64 %rd<9>; .reg .b32 %r<9>; .reg .pred %p<3>;\nld.param.u64 %rd1,[x];\n"
            .to_owned();
    for block in 0..2000 {
        text += &format!(
            "L{block}: add.s64 %rd1,%rd1,%rd2; ld.global.u32 %r1,[%rd1]; setp.eq.u32 %p1,%r1,{block};\n\
             @%p1 bra L{};\n",
            block / 2
        );
    }
    text += "griddepcontrol.wait; ld.global.nc.u32 %r2,[%rd1]; st.global.u32 [%rd1],%r2; ret; }\n";
    let start = std::time::Instant::now();
    let report = audit(&text, "sm_90a", &[], &[], None);
    assert_eq!(report.verdict, Verdict::Findings);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn missing_and_broken_tools_say_what_to_do() {
    let text = support::text("hard", "weights_both_sides.ptx");
    let plain = support::text("own", "plain_wait_vote_spin.ptx");
    let scratch = std::env::temp_dir();
    let none = Processes { ptxas: None, nvdisasm: None, scratch: scratch.clone() };
    // What PTX alone shows stands; a file that nothing is found in is not judged.
    let report = audit(&text, "sm_100a", &[], &[], Some(&none));
    assert_eq!(report.verdict, Verdict::Findings);
    let report = audit(&plain, "sm_103a", &[], &[], Some(&none));
    assert_eq!(report.verdict, Verdict::NotJudged);
    assert!(report.notes.iter().any(|n| n.message.contains("pip install")), "{report:?}");
    let absent = Processes {
        ptxas: Some(PathBuf::from("/nonexistent/ptxas")),
        nvdisasm: None,
        scratch: scratch.clone(),
    };
    let report = audit(&plain, "sm_103a", &[], &[], Some(&absent));
    assert!(report.notes.iter().any(|n| n.message.contains("KERNELC_PTXAS")), "{report:?}");
    // A tool that ends without a word has crashed.
    let broken = Processes { ptxas: Some(PathBuf::from("/bin/false")), nvdisasm: None, scratch };
    let report = audit(&plain, "sm_103a", &[], &[], Some(&broken));
    assert_eq!(report.verdict, Verdict::NotJudged);
    assert!(report.notes.iter().any(|n| n.message.contains("crashed")), "{report:?}");
    let report = audit(&plain, "sm_12345", &[], &[], Some(&tools()));
    assert!(report.notes.iter().any(|n| n.message.contains("refused")), "{report:?}");
}
