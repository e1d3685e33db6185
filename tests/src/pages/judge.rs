//! Examples of the pages, each through the stage that gives the code.

use std::collections::BTreeSet;

use kernel_dsl::source::SourceMap;
use kernel_ir::layout::{AnswerOptions, answer_line};

use super::{Block, Page, Purpose};
use crate::directive::Directives;
use crate::program::{self, Program};
use crate::{recorded, suite};

/// What an example gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The codes.
    pub codes: BTreeSet<String>,
    /// All of it, as a terminal shows it.
    pub text: String,
}

/// The block gives the code of the page and no other, or nothing.
///
/// # Errors
/// It gives something else.
pub fn hold(page: &Page, block: &Block, found: &Found) -> Result<(), String> {
    let expected: BTreeSet<String> = match block.purpose {
        Purpose::Fails => [page.code.clone()].into(),
        Purpose::Passes | Purpose::File => BTreeSet::new(),
    };
    if found.codes == expected {
        return Ok(());
    }
    let list = |codes: &BTreeSet<String>| match codes.len() {
        0 => "nothing".to_owned(),
        _ => codes.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
    };
    Err(format!(
        "docs/codes/{}.md:{}: it gives {}, not {}\n{}",
        page.code,
        block.line,
        list(&found.codes),
        list(&expected),
        found.text
    ))
}

/// What an example in the language gives: findings up to the device level, and for a code of the emulator
/// (`E07xx`) the error of a run.
///
/// # Errors
/// A directive is not understood, or the two levels of the emulator differ.
pub fn tile(page: &Page, block: &Block) -> Result<Found, String> {
    let directives = Directives::parse(&block.text)?;
    let mut read = |path: &str| {
        page.file(path).map(str::to_owned).ok_or_else(|| format!("there is no file `{path}`"))
    };
    let program = Program::of_text("example.tile", &block.text, &mut read);
    let mut found = program.front.diagnostics.clone();
    if !program.front.has_errors() {
        let target = program::target_of(&directives)?;
        let is_run = page.code.starts_with("E07");
        let is_chain = is_run && !directives.chain.is_empty();
        if is_chain {
            found.extend(suite::error_of_chain(&program, &directives)?);
        }
        for template in program.chosen(&directives)? {
            match program.build_or_findings(template, &directives.bind, target) {
                Ok(built) if is_run && !is_chain => {
                    found.extend(built.diagnostics.iter().cloned());
                    found.extend(suite::error_of_run(&built, &directives)?);
                    if page.code == "E0721" {
                        found.extend(recorded::races(&built, &directives)?);
                    }
                }
                Ok(built) => found.extend(built.diagnostics),
                Err(findings) => found.extend(findings),
            }
        }
    }
    let codes = found.iter().map(|diagnostic| diagnostic.code.name().to_owned()).collect();
    Ok(Found { codes, text: program.show(&found) })
}

/// What `kernelc layout --map` says of an expression.
pub fn layout(block: &Block) -> Found {
    let options = AnswerOptions { json: false, map: true };
    let answer = answer_line(block.text.trim_end(), options);
    let code = answer.text.strip_prefix("error[").and_then(|rest| rest.split(']').next());
    let codes = code.filter(|_| answer.is_error).map(str::to_owned).into_iter().collect();
    Found { codes, text: answer.text }
}

/// What a file of these bytes gives; `\xff` stands for a byte.
///
/// # Errors
/// An escape is none.
pub fn bytes(block: &Block) -> Result<Found, String> {
    let mut bytes = Vec::new();
    for (index, part) in block.text.split("\\x").enumerate() {
        let (number, rest) = if index == 0 { ("", part) } else { part.split_at(2) };
        if index > 0 {
            let byte = u8::from_str_radix(number, 16);
            bytes.push(byte.map_err(|_| format!("`\\x{number}` is no byte"))?);
        }
        bytes.extend(rest.bytes());
    }
    let (_, diagnostic) = SourceMap::new().add_bytes("example.tile", &bytes);
    let codes = diagnostic.iter().map(|d| d.code.name().to_owned()).collect();
    let text = diagnostic.map_or_else(String::new, |d| d.message);
    Ok(Found { codes, text })
}
