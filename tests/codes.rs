//! The pages of docs/codes: each example gives exactly the code of its page, or nothing, and the index names all.

#[path = "codes/plans.rs"]
mod plans;

use std::collections::BTreeSet;
use std::process::ExitCode;

use kernel_audit::{Declarations, Verdict, audit_ptx};
use kernel_tests::pages::judge::{self, Found};
use kernel_tests::pages::{self, Block, Page, Purpose};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let pages = pages::all().expect("the pages can be read");
    let mut trials = vec![Trial::test("the index", || index().map_err(Failed::from))];
    for page in pages {
        trials.push(Trial::test(page.code.clone(), move || of_page(&page).map_err(Failed::from)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The form of a page holds, and each of its examples does what it says.
fn of_page(page: &Page) -> Result<(), String> {
    let mut faults = page.faults();
    for block in page.blocks.iter().filter(|block| block.purpose != Purpose::File) {
        let found = match block.language.as_str() {
            "tile" => judge::tile(page, block)?,
            "layout" => judge::layout(block),
            "bytes" => judge::bytes(block)?,
            "ptx" => ptx(block)?,
            "rust" => plans::judge(page, block)?,
            other => return Err(format!("line {}: nothing judges `{other}`", block.line)),
        };
        faults.extend(judge::hold(page, block, &found).err());
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// What the audit says of PTX, with what `//@ static: NAME` and `//@ mutable: NAME` declare.
fn ptx(block: &Block) -> Result<Found, String> {
    let declared = |kind: &str| {
        let lines = block.text.lines().filter_map(|line| line.strip_prefix("//@ "));
        lines.filter_map(|line| line.strip_prefix(kind)).map(|s| s.trim().to_owned()).collect()
    };
    let (statics, mutables): (Vec<String>, Vec<String>) =
        (declared("static:"), declared("mutable:"));
    let declarations =
        Declarations::parse(&statics, &mutables).map_err(|error| error.to_string())?;
    let report =
        audit_ptx(&block.text, &declarations, "sm_90a", None).map_err(|error| error.to_string())?;
    let codes: BTreeSet<String> = report
        .findings
        .iter()
        .chain(&report.notes)
        .map(|item| item.code.code().to_owned())
        .collect();
    let text = report.to_text("example.ptx");
    if codes.is_empty() && report.verdict != Verdict::Clean {
        return Err(format!("line {}: not clean, and no code says why\n{text}", block.line));
    }
    Ok(Found { codes, text })
}

/// The index is what the codes are, and each has a page; with `BLESS` set it is written.
fn index() -> Result<(), String> {
    let page = |code: &str| pages::root().join(format!("docs/codes/{code}.md"));
    let without: Vec<&str> =
        pages::entries().iter().map(|e| e.code).filter(|code| !page(code).is_file()).collect();
    if !without.is_empty() {
        return Err(format!("there is no page docs/codes/CODE.md of {}", without.join(", ")));
    }
    let path = pages::root().join("docs/codes.md");
    if std::env::var_os("BLESS").is_some() {
        return std::fs::write(path, pages::index()).map_err(|error| error.to_string());
    }
    if std::fs::read_to_string(path).is_ok_and(|written| written == pages::index()) {
        Ok(())
    } else {
        Err("docs/codes.md does not name all codes: write it by `BLESS=1 cargo test -p kernel_tests --test codes`".to_owned())
    }
}
