//! The pages of docs/codes, one for each code: a title, what the rule says and why, an example that is refused
//! for it, and the same one put right.
//!
//! ````text
//! # E0107: title of the code
//!
//! What must hold, and why.
//!
//! ## Fails
//!
//! ```tile fails
//! ```
//!
//! ## Passes
//!
//! ```tile passes
//! ```
//!
//! ## Seen in public
//!
//! - owner/project#123: what went wrong there
//! ````
//!
//! Each block marked `fails` or `passes` is judged by [`judge`]. A code that no text can provoke in one process has
//! `## Tested by` with lines ``- `path`, `name of the test` ``, or ``- `path` `` of a file test, in place of examples, and
//! these tests exist.

pub mod judge;

use std::path::PathBuf;

use kernel_abi::plan::PlanCode;
use kernel_dsl::diag::Code;

use crate::program;

/// A code that has a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As people write it: `E0107`.
    pub code: &'static str,
    /// What it is about, in one line.
    pub title: &'static str,
}

/// Every code that has a page, in the order of the index.
pub fn entries() -> Vec<Entry> {
    let diagnostics = Code::ALL.iter().map(|c| Entry { code: c.name(), title: c.title() });
    let plans = PlanCode::ALL.iter().map(|c| Entry { code: c.name(), title: c.title() });
    diagnostics.chain(plans).collect()
}

/// What a block of a page is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It is refused, or a run of it ends, with the code of the page and no other.
    Fails,
    /// Nothing is said of it.
    Passes,
    /// A file that the other blocks import.
    File,
}

/// A fenced block that is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `tile`, `ptx`, `layout`, `bytes` or `rust`.
    pub language: String,
    /// What it is there for.
    pub purpose: Purpose,
    /// Name of a file that others import.
    pub name: String,
    /// Line of the fence in the page, from 1.
    pub line: u32,
    /// The text between the fences.
    pub text: String,
}

/// A test elsewhere that provokes the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestedBy {
    /// Path from the root of the repository.
    pub path: String,
    /// Name of its function; a file test has none, and names the code instead.
    pub test: Option<String>,
}

/// A page.
#[derive(Debug, Clone)]
pub struct Page {
    /// The code, by its file name.
    pub code: String,
    /// All of it.
    pub text: String,
    /// What is judged.
    pub blocks: Vec<Block>,
    /// Tests elsewhere.
    pub tested_by: Vec<TestedBy>,
}

/// Root of the repository.
pub fn root() -> PathBuf {
    program::package_folder().join("..")
}

/// All pages, by code.
///
/// # Errors
/// The folder or a page cannot be read, or a block is of no known form.
pub fn all() -> Result<Vec<Page>, String> {
    let folder = root().join("docs/codes");
    let mut pages = Vec::new();
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("docs/codes: {error}"))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("docs/codes: {error}"))?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        pages.push(Page::parse(&stem, &text).map_err(|e| format!("docs/codes/{stem}.md: {e}"))?);
    }
    pages.sort_by(|a, b| a.code.cmp(&b.code));
    Ok(pages)
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// A block is of no known form, or does not end.
    pub fn parse(code: &str, text: &str) -> Result<Page, String> {
        let mut page = Page {
            code: code.to_owned(),
            text: text.to_owned(),
            blocks: Vec::new(),
            tested_by: Vec::new(),
        };
        let mut open: Option<Option<Block>> = None;
        for (number, line) in (1u32..).zip(text.lines()) {
            match &mut open {
                None => match line.strip_prefix("```") {
                    Some(info) => {
                        let block = opened(info, number);
                        open = Some(block.map_err(|reason| format!("line {number}: {reason}"))?);
                    }
                    None => page.tested_by.extend(tested_by(line)),
                },
                Some(block) if line == "```" => {
                    page.blocks.extend(block.take());
                    open = None;
                }
                Some(Some(block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                Some(None) => {}
            }
        }
        if open.is_some() { Err("a block does not end".to_owned()) } else { Ok(page) }
    }

    /// The texts that blocks import, by name.
    pub fn file(&self, name: &str) -> Option<&str> {
        let named = |block: &&Block| block.purpose == Purpose::File && block.name == name;
        self.blocks.iter().find(named).map(|block| block.text.as_str())
    }

    /// What the form of the page lacks.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match entries().iter().find(|entry| entry.code == self.code) {
            None => faults.push("there is no such code".to_owned()),
            Some(entry) => {
                let head = format!("# {}: {}\n\n", entry.code, entry.title);
                if !self.text.starts_with(&head) {
                    faults.push(format!("it does not begin with `{}`", head.trim_end()));
                }
            }
        }
        let has = |purpose| self.blocks.iter().any(|block| block.purpose == purpose);
        if self.tested_by.is_empty() && !(has(Purpose::Fails) && has(Purpose::Passes)) {
            faults.push("it lacks an example that fails, or one that passes".to_owned());
        }
        for tested in &self.tested_by {
            let text = std::fs::read_to_string(root().join(&tested.path)).unwrap_or_default();
            let sought = match &tested.test {
                Some(test) => format!("fn {test}("),
                None => format!("error[{}]", self.code),
            };
            if !text.contains(&sought) {
                faults.push(format!("`{}` has no `{sought}`", tested.path));
            }
        }
        faults.extend(self.sections());
        faults.extend(self.links());
        faults
    }

    /// Sections that are none of a page, empty ones, and reports in public that name no project and number.
    fn sections(&self) -> Vec<String> {
        let known = ["## Fails", "## Passes", "## Seen in public", "## Tested by"];
        let mut faults = Vec::new();
        let mut section = "";
        let mut in_block = false;
        for line in self.text.lines() {
            in_block ^= line.starts_with("```");
            if in_block {
                continue;
            }
            if line.starts_with("## ") {
                section = line;
                if !known.contains(&line) {
                    faults.push(format!("`{line}` is no section of a page"));
                }
            } else if section == "## Seen in public" && !line.is_empty() && !is_report(line) {
                faults.push(format!("`{line}` is no report `- owner/project#123: what`"));
            }
        }
        faults
    }

    /// Links to other pages and to their chapters that lead nowhere.
    fn links(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for part in self.text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let (path, chapter) = target.split_once('#').unwrap_or((target, ""));
            let text = std::fs::read_to_string(root().join("docs/codes").join(path));
            match text {
                Err(_) => faults.push(format!("the link `{target}` leads nowhere")),
                Ok(text) if !chapter.is_empty() && !chapters(&text).any(|c| c == chapter) => {
                    faults.push(format!("the link `{target}` leads to no chapter"));
                }
                Ok(_) => {}
            }
        }
        faults
    }
}

/// The anchors of the chapters of a document, as its readers make them.
fn chapters(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

/// `- owner/project#123: what went wrong`.
fn is_report(line: &str) -> bool {
    let Some((place, what)) = line.strip_prefix("- ").and_then(|line| line.split_once(": ")) else {
        return false;
    };
    let is_place = |place: &str| {
        place.split_once('#').is_some_and(|(project, number)| {
            project.split('/').count() == 2
                && !number.is_empty()
                && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    place.split(", ").all(is_place) && !what.trim().is_empty()
}

/// The block that a fence opens; none for what nobody judges.
fn opened(info: &str, line: u32) -> Result<Option<Block>, String> {
    let words: Vec<&str> = info.split_whitespace().collect();
    let (purpose, name) = match words.as_slice() {
        [] | [_] => return Ok(None),
        [_, "fails"] => (Purpose::Fails, ""),
        [_, "passes"] => (Purpose::Passes, ""),
        [_, "file", name] => (Purpose::File, *name),
        _ => return Err(format!("`{info}` says neither `fails`, `passes` nor `file NAME`")),
    };
    let language = words[0].to_owned();
    let name = name.to_owned();
    Ok(Some(Block { language, purpose, name, line, text: String::new() }))
}

/// ``- `path`, `test` ``, or ``- `path` `` of a file test.
fn tested_by(line: &str) -> Option<TestedBy> {
    let inner = line.strip_prefix("- `")?.strip_suffix('`')?;
    let (path, test) = match inner.split_once("`, `") {
        Some((path, test)) => (path, Some(test.to_owned())),
        None => (inner, None),
    };
    path.contains('/').then(|| TestedBy { path: path.to_owned(), test })
}

/// The index, docs/codes.md, as it must be.
pub fn index() -> String {
    let mut text = String::from(INDEX_HEAD);
    for family in FAMILIES {
        text.push_str(&format!(
            "\n## {}xx: {}\n\n| code | about |\n|---|---|\n",
            family.0, family.1
        ));
        for entry in entries().iter().filter(|entry| entry.code.starts_with(family.0)) {
            let Entry { code, title } = entry;
            text.push_str(&format!("| [{code}](codes/{code}.md) | {title} |\n"));
        }
    }
    text.push_str(INDEX_TAIL);
    text
}

const INDEX_HEAD: &str = "# Diagnostic codes

Every refusal has a code. `kernelc explain CODE` prints its page: the rule and the reason for it, a file that is refused, the same one put right, and where the fault was seen in public.
The examples are whole files: a test builds or runs each of them, and holds it to exactly this code, or to none.
This index is written by `BLESS=1 cargo test -p kernel_tests --test codes`.
";

const INDEX_TAIL: &str = "
## Codes of other programs and formats

| codes | of | explained in |
|---|---|---|
| B0101 to B0108 | bundles | [architecture.md](architecture.md#a-bundle-is-what-a-device-needs) |
| M0101 to M0202 | litmus tests | [memory-model.md](memory-model.md#kernelc-litmus) |
| R0101 to R0402 | runs on a device | [runtime/cuda](../runtime/cuda/README.md) |
| K0101 to K0704 | `kimi-k3` | [models/kimi_k3](../models/kimi_k3/README.md) |
| T0101 to T0106 | tokenizers | [runtime/text](../runtime/text/README.md) |
";

/// First digits and what they have in common.
const FAMILIES: [(&str, &str); 11] = [
    ("E00", "files, words and grammar"),
    ("E01", "memory order and the other rules of the verifier"),
    ("E02", "names, types, shapes and constants"),
    ("E03", "layouts"),
    ("E04", "bounds and contracts"),
    ("E05", "targets and resources"),
    ("E06", "what this version lacks"),
    ("E07", "errors of a run on the emulator"),
    ("E08", "the back end and its tools"),
    ("E09", "findings of the audit"),
    ("P01", "plans"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_tests_are_read() {
        let text = "# E0201: unknown name\n\n```tile fails\na\n```\n```\nnot judged\n```\n```tile file b.tile\nb\n```\n- `a/x.rs`, `f`\n- `a/y.tile`\n- `b`\n";
        let page = Page::parse("E0201", text).unwrap();
        let blocks: Vec<_> =
            page.blocks.iter().map(|b| (b.purpose, b.line, b.text.as_str())).collect();
        assert_eq!(blocks, [(Purpose::Fails, 3, "a\n"), (Purpose::File, 9, "b\n")]);
        assert_eq!(page.file("b.tile"), Some("b\n"));
        assert_eq!(page.tested_by[0].test.as_deref(), Some("f"));
        assert_eq!((page.tested_by.len(), &page.tested_by[1].test), (2, &None));
        for fault in ["`a/x.rs` has no `fn f(`", "`a/y.tile` has no `error[E0201]`"] {
            assert!(page.faults().contains(&fault.to_owned()), "{fault}");
        }
        assert!(Page::parse("E0201", "```tile fails\n").is_err());
        assert!(Page::parse("E0201", "```tile soon\n```\n").is_err());
    }

    #[test]
    fn a_page_that_lacks_something_is_found() {
        let page = |text: &str| Page::parse("E0201", text).unwrap().faults().join("\n");
        let blocks = "```tile fails\n```\n```tile passes\n```\n";
        let head = "# E0201: unknown name\n\n";
        assert_eq!(page(&format!("{head}{blocks}")), "");
        assert!(page(blocks).contains("it does not begin with"));
        assert!(page(head).contains("it lacks an example"));
        assert!(page(&format!("{head}{blocks}## Notes\n")).contains("no section"));
        assert!(page(&format!("{head}{blocks}[x](nowhere.md)")).contains("leads nowhere"));
        assert!(page(&format!("{head}{blocks}[x](../language.md#no)")).contains("no chapter"));
        let seen = |line: &str| page(&format!("{head}{blocks}## Seen in public\n\n{line}\n"));
        assert_eq!(seen("- a/b#1, c/d#2: what"), "");
        for line in ["none known", "- a/b: what", "- b#1: what", "- a/b#x: what", "- a/b#1:"] {
            assert!(seen(line).contains("is no report"), "{line}");
        }
    }

    #[test]
    fn every_code_has_a_family() {
        for entry in entries() {
            assert!(FAMILIES.iter().any(|family| entry.code.starts_with(family.0)));
        }
    }
}
