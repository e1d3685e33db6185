//! What the assembler says of PTX that an author wrote, with the place of the author's text.

use kernel_ir::device::{DeviceKernel, DeviceOp, DeviceStmt};
use kernel_ir::index::Id;

use crate::error::CodegenError;
use crate::job::SourceLine;

/// The error of ptxas as one of an author's text, where it speaks of a line of one.
pub(crate) fn blame(
    error: CodegenError,
    ptx: &str,
    kernel: &DeviceKernel,
    places: &[SourceLine],
) -> CodegenError {
    let CodegenError::Ptxas { log, .. } = &error else { return error };
    let found = log.lines().find_map(|line| Some((line, number(line)?)));
    let Some((line, number)) = found else { return error };
    let Some(text) = operation(ptx, number).and_then(|loc| text_of(&kernel.body, loc)) else {
        return error;
    };
    let place = match operation(ptx, number).and_then(|loc| places.get(loc)) {
        Some(place) => format!("{}:{}", place.file, place.line),
        None => kernel.name.clone(),
    };
    let said = ["error", "fatal"].iter().find_map(|kind| line.rsplit_once(kind));
    let said = said.map_or(line, |(_, said)| said);
    let said = said.trim_start_matches([' ', ':']).trim().to_owned();
    CodegenError::Author { place, text: text.to_owned(), said }
}

/// The line that a message names: `FILE, line 71; error : …`.
fn number(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("line ")?;
    let (number, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    let kind = rest.trim_start_matches(';').trim_start();
    (kind.starts_with("error") || kind.starts_with("fatal")).then_some(())?;
    number.parse().ok()
}

/// The operation that a line of the PTX belongs to, from 0.
fn operation(ptx: &str, line: usize) -> Option<usize> {
    let before: Vec<&str> = ptx.lines().take(line).collect();
    let loc = before.iter().rev().find_map(|line| line.trim().strip_prefix(".loc"))?;
    loc.split_whitespace().nth(1)?.parse::<usize>().ok()?.checked_sub(1)
}

/// The author's text that an operation stands for.
fn text_of(body: &[DeviceStmt], loc: usize) -> Option<&str> {
    body.iter().find_map(|stmt| {
        if let DeviceOp::Inline { text, .. } = &stmt.op
            && stmt.loc.index() == loc
        {
            return Some(text.as_str());
        }
        let none: &[DeviceStmt] = &[];
        let bodies = if let DeviceOp::For { body, .. } | DeviceOp::Role { body, .. } = &stmt.op {
            [body, none]
        } else if let DeviceOp::If { then_body, else_body, .. } = &stmt.op {
            [then_body, else_body.as_slice()]
        } else {
            [none; 2]
        };
        bodies.into_iter().find_map(|body| text_of(body, loc))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_lead_to_operations() {
        let said = "ptxas k.ptx, line 4; error   : Arguments mismatch for instruction 'add'";
        assert_eq!(number(said), Some(4));
        assert_eq!(number("ptxas k.ptx, line 9; fatal   : Parsing error near '_'"), Some(9));
        assert_eq!(number("ptxas info    : 0 bytes gmem"), None);
        assert_eq!(number("line 4"), None);
        let ptx = ".entry k() {\n\t.loc\t1 7 0\n\tmov.u32 %r1, 0;\n\tadd.f32 %r1, %r1, 1;\n";
        assert_eq!(operation(ptx, 4), Some(6));
        assert_eq!(operation(ptx, 1), None);
    }
}
