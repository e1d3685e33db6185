//! Cubins judged from their machine code alone, with parameters by ordinal.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use std::collections::BTreeSet;

use kernel_audit::{
    AssembleOptions, Declarations, Report, ToolError, Toolchain, UsageError, Verdict, audit_cubin,
};
use support::merge::{can_merge, merge};
use support::{declared, rows, text, tools, word};

/// Files whose machine code says something else than their PTX: `ldu` becomes a plain load, and a read that
/// PTX has before the wait stands behind it.
const DIFFERENT: [&str; 2] = ["spell_ldu.ptx", "text_read_before_wait_one_line.ptx"];

/// A disassembly that was made before.
struct Listing(String);

impl Toolchain for Listing {
    fn assemble(&self, _: &str, _: &AssembleOptions) -> Result<Vec<u8>, ToolError> {
        panic!("a cubin is not assembled")
    }

    fn disassemble(&self, _: &[u8]) -> Result<String, ToolError> {
        Ok(self.0.clone())
    }
}

/// Name and parameters of the only kernel of a file.
fn signature(ptx: &str) -> (String, Vec<String>) {
    let entry = ptx.split(".entry").nth(1).unwrap();
    let (name, rest) = entry.split_once('(').unwrap();
    let list = &rest[..rest.find(')').unwrap()];
    let params = list
        .split(',')
        .map(|param| param.split_whitespace().last().unwrap().split('[').next().unwrap().to_owned())
        .collect();
    (name.trim().to_owned(), params)
}

fn check(folder: &str, target: &str) {
    let px = vec!["px".to_owned()];
    let mut seen = BTreeSet::new();
    let cases: Vec<_> = rows(folder)
        .into_iter()
        .filter(|row| row.target == target && row.value["moved_in_sass"].as_bool() == Some(false))
        .filter(|row| !DIFFERENT.contains(&row.file.as_str()))
        .filter(|row| {
            let ptx = text(folder, &row.file);
            ptx.matches(".entry").count() == 1 && can_merge(&ptx) && seen.insert(row.file.clone())
        })
        .collect();
    assert!(cases.len() > 10);
    let tools = tools();
    for part in cases.chunks(60) {
        let files: Vec<(String, String)> = part
            .iter()
            .enumerate()
            .map(|(index, row)| (format!("c{index}_"), text(folder, &row.file)))
            .collect();
        let options = AssembleOptions { target: target.to_owned(), line_info: false };
        let cubin = tools.assemble(&merge(&files, target), &options).unwrap();
        let listing = Listing(tools.disassemble(&cubin).unwrap());
        let run = |field: &str| -> Report {
            let mut names = Vec::new();
            for (row, (prefix, ptx)) in part.iter().zip(&files) {
                let (kernel, params) = signature(ptx);
                let (list, _) = match row.value.get(field) {
                    Some(value) if value.is_object() => declared(value),
                    Some(_) if folder == "basic" => (px.clone(), String::new()),
                    _ => continue,
                };
                for name in list {
                    let ordinal = params.iter().position(|param| *param == name).unwrap();
                    names.push(format!("{prefix}{kernel}:#{ordinal}"));
                }
            }
            let declarations = match field {
                "static" => Declarations::parse(&names, &[]),
                "mutable" => Declarations::parse(&[], &names),
                _ => Ok(Declarations::default()),
            };
            audit_cubin(&cubin, &declarations.unwrap(), &listing).unwrap()
        };
        let mut problems = Vec::new();
        for field in ["undeclared", "mutable", "static"] {
            let report = run(field);
            assert_ne!(report.verdict, Verdict::NotJudged, "{}", report.to_text("merged"));
            for (row, (prefix, ptx)) in part.iter().zip(&files) {
                let kernel = format!("{prefix}{}", signature(ptx).0);
                let due = match row.value.get(field) {
                    Some(value) if value.is_object() => declared(value).1,
                    Some(value) => value.as_str().unwrap().to_owned(),
                    None => continue,
                };
                let is = word(&report, Some(&kernel));
                if is != due {
                    problems.push(format!("{} {field}: {is}, due {due}", row.file));
                }
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

#[test]
fn basic_sm_90a() {
    check("basic", "sm_90a");
}

#[test]
fn basic_sm_100a() {
    check("basic", "sm_100a");
}

#[test]
fn hard_sm_90a() {
    check("hard", "sm_90a");
}

#[test]
fn hard_sm_100a() {
    check("hard", "sm_100a");
}

#[test]
fn a_flag_is_followed_through_the_warp_and_the_cta() {
    let tools = tools();
    for (file, due) in [
        ("wait_vote_spin.ptx", "error"),
        ("wait_barrier_reduction.ptx", "error"),
        ("wait_flag_through_shared.ptx", "error"),
        ("wait_flag_in_shared_word.ptx", "error"),
        ("wait_counts_arrivals.ptx", "error"),
        ("wait_until_all_arrived.ptx", "error"),
        ("nowait_bound_in_other_shared_variable.ptx", "silent"),
        ("nowait_bound_in_other_shared_word.ptx", "silent"),
        ("nowait_copies_into_other_shared_array.ptx", "silent"),
        ("nowait_generic_shared_acquire.ptx", "silent"),
    ] {
        let ptx = text("own", file);
        let target = ptx.split_whitespace().skip_while(|word| *word != ".target").nth(1).unwrap();
        let options = AssembleOptions { target: target.to_owned(), line_info: false };
        let cubin = tools.assemble(&ptx, &options).unwrap();
        let report = audit_cubin(&cubin, &Declarations::default(), &tools).unwrap();
        assert_ne!(report.verdict, Verdict::NotJudged, "{}", report.to_text(file));
        assert_eq!(word(&report, None), due, "{}", report.to_text(file));
    }
}

#[test]
fn names_ordinals_and_places() {
    let tools = tools();
    let options = AssembleOptions { target: "sm_90a".to_owned(), line_info: false };
    let cubin = tools.assemble(&text("hard", "weights_after_wait.ptx"), &options).unwrap();
    let listing = Listing(tools.disassemble(&cubin).unwrap());
    let open = audit_cubin(&cubin, &Declarations::default(), &listing).unwrap();
    assert_eq!(open.verdict, Verdict::Findings);
    let item = &open.findings[0];
    assert_eq!(item.param.as_deref(), Some("#0"));
    assert!(item.ptx.is_none() && item.sass.as_ref().unwrap().wait.is_some());
    let with = |statics: &[&str]| {
        audit_cubin(&cubin, &Declarations::parse(statics, &[]).unwrap(), &listing)
    };
    assert_eq!(with(&["#0"]).unwrap().verdict, Verdict::Clean);
    assert_eq!(with(&["gemv:#0"]).unwrap().verdict, Verdict::Clean);
    assert_eq!(with(&["#1"]).unwrap().verdict, Verdict::Findings);
    assert!(matches!(with(&["w"]), Err(UsageError::UnknownParam { .. })));
    assert!(matches!(with(&["#9"]), Err(UsageError::UnknownParam { .. })));
    assert!(matches!(with(&["gemm:#0"]), Err(UsageError::UnknownKernel(_))));
}

#[test]
fn what_is_no_cubin_is_not_judged() {
    let listing = Listing(String::new());
    for bytes in [&b""[..], b"\x7fELF", &[0u8; 4096], b".version 8.6"] {
        let report = audit_cubin(bytes, &Declarations::default(), &listing).unwrap();
        assert_eq!(report.verdict, Verdict::NotJudged);
    }
}
