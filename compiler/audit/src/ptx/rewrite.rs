//! A copy of a module in which every instruction has its own line.
//!
//! The copy says the same; the lines let the disassembler tell which instruction each machine
//! instruction was made from, also where it was moved.

use super::Module;

/// Name that the lines of the copy belong to.
pub(crate) const FILE: &str = "audit.ptx";

/// The line of an instruction in the copy.
pub(crate) fn line_of(id: u32) -> u32 {
    id + 1
}

/// The instruction of a line in the copy.
pub(crate) fn id_of(line: u32) -> Option<u32> {
    line.checked_sub(1)
}

/// Writes the copy.
pub(crate) fn with_lines(text: &str, module: &Module) -> String {
    let mut edits: Vec<(usize, usize, String)> =
        module.debug_spans.iter().map(|&(start, end)| (start, end, String::new())).collect();
    edits.push((module.header_end, module.header_end, format!("\n.file 1 \"{FILE}\"\n")));
    for (id, place) in module.places.iter().enumerate() {
        let line = line_of(id as u32);
        edits.push((place.start, place.start, format!("\n.loc 1 {line} 1\n")));
    }
    edits.sort_by_key(|edit| (edit.0, edit.1));
    let mut copy = String::with_capacity(text.len() + edits.len() * 16);
    let mut at = 0;
    for (start, end, insert) in edits {
        if start < at {
            continue;
        }
        copy.push_str(&text[at..start]);
        copy.push_str(&insert);
        at = end;
    }
    copy.push_str(&text[at..]);
    copy
}
