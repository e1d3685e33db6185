//! What a test asks: `locations`, `filter` and the condition.

use super::super::Quantifier;
use super::super::condition::{Compare, Condition, Operand};
use super::super::token::Sign;
use super::cursor::Cursor;
use super::names::Names;
use super::{MAX_DEPTH, is_number, number, text_of, thread_number};
use crate::code::{Code, Diagnostic};

/// What was asked.
pub(super) struct Asked {
    pub(super) filter: Option<Condition>,
    pub(super) quantifier: Quantifier,
    pub(super) condition: Condition,
}

/// Whether the table ends here.
pub(super) fn begins(cursor: &Cursor<'_>) -> bool {
    match cursor.peek(0) {
        None | Some(Sign::Mark("~")) => true,
        Some(Sign::Word(word)) => {
            matches!(word, "exists" | "forall" | "filter" | "locations" | "final" | "not")
        }
        Some(Sign::Mark(_)) => false,
    }
}

/// Reads everything behind the table.
pub(super) fn read(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Asked, Diagnostic> {
    let mut filter = None;
    let mut question = None;
    while !cursor.is_at_end() {
        let spot = cursor.spot();
        let quantifier = if cursor.takes_word("locations") {
            cursor.expect("[")?;
            cursor.skip_until(&["]"]);
            cursor.expect("]")?;
            cursor.takes(";");
            continue;
        } else if cursor.takes_word("filter") {
            let condition = condition(cursor, names)?;
            if filter.replace(condition).is_some() {
                return Err(Diagnostic::new(Code::M0107, spot, "a test has one filter"));
            }
            continue;
        } else if cursor.takes_word("exists") {
            Quantifier::Exists
        } else if cursor.takes_word("forall") {
            Quantifier::Forall
        } else if cursor.takes("~") || cursor.takes_word("not") {
            if !cursor.takes_word("exists") {
                return Err(cursor.unexpected("`exists`"));
            }
            Quantifier::NotExists
        } else {
            return Err(cursor.unexpected("`exists`, `~exists` or `forall`"));
        };
        let condition = condition(cursor, names)?;
        if question.replace((quantifier, condition)).is_some() {
            return Err(Diagnostic::new(Code::M0107, spot, "a test has one condition"));
        }
    }
    let (quantifier, condition) =
        question.ok_or_else(|| cursor.unexpected("`exists`, `~exists` or `forall`"))?;
    Ok(Asked { filter, quantifier, condition })
}

fn condition(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Condition, Diagnostic> {
    let condition = implied(cursor, names, 0)?;
    cursor.takes(";");
    Ok(condition)
}

/// `a => b` is `~a \/ b`, and binds least of all, from the right.
fn implied(
    cursor: &mut Cursor<'_>,
    names: &mut Names,
    depth: usize,
) -> Result<Condition, Diagnostic> {
    let left = either(cursor, names, depth)?;
    if !cursor.takes("=>") {
        return Ok(left);
    }
    deep(cursor, depth)?;
    let right = implied(cursor, names, depth + 1)?;
    Ok(Condition::Or(vec![Condition::Not(Box::new(left)), right]))
}

fn deep(cursor: &Cursor<'_>, depth: usize) -> Result<(), Diagnostic> {
    if depth == MAX_DEPTH {
        let message = format!("conditions are at most {MAX_DEPTH} deep");
        return Err(Diagnostic::new(Code::M0109, cursor.spot(), message));
    }
    Ok(())
}

fn either(
    cursor: &mut Cursor<'_>,
    names: &mut Names,
    depth: usize,
) -> Result<Condition, Diagnostic> {
    let mut parts = vec![both(cursor, names, depth)?];
    while cursor.takes("\\/") || cursor.takes("||") {
        parts.push(both(cursor, names, depth)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::Or(parts) })
}

fn both(cursor: &mut Cursor<'_>, names: &mut Names, depth: usize) -> Result<Condition, Diagnostic> {
    let mut parts = vec![single(cursor, names, depth)?];
    while cursor.takes("/\\") || cursor.takes("&&") {
        parts.push(single(cursor, names, depth)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Condition::And(parts) })
}

fn single(
    cursor: &mut Cursor<'_>,
    names: &mut Names,
    depth: usize,
) -> Result<Condition, Diagnostic> {
    deep(cursor, depth)?;
    if cursor.takes("~") || cursor.takes_word("not") {
        return Ok(Condition::Not(Box::new(single(cursor, names, depth + 1)?)));
    }
    if cursor.takes("(") {
        let inner = implied(cursor, names, depth + 1)?;
        cursor.expect(")")?;
        return Ok(inner);
    }
    if cursor.takes_word("true") {
        return Ok(Condition::And(Vec::new()));
    }
    if cursor.takes_word("false") {
        return Ok(Condition::Or(Vec::new()));
    }
    let left = operand(cursor, names)?;
    let compare = compare(cursor)?;
    Ok(Condition::Compare(left, compare, operand(cursor, names)?))
}

fn compare(cursor: &mut Cursor<'_>) -> Result<Compare, Diagnostic> {
    let compare = match cursor.peek(0).map(text_of) {
        Some("=" | "==") => Compare::Equal,
        Some("!=" | "<>") => Compare::NotEqual,
        Some("<") => Compare::Less,
        Some("<=") => Compare::LessEqual,
        Some(">") => Compare::Greater,
        Some(">=") => Compare::GreaterEqual,
        _ => return Err(cursor.unexpected("a comparison")),
    };
    cursor.advance();
    Ok(compare)
}

fn operand(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<Operand, Diagnostic> {
    let is_bracketed = cursor.takes("[");
    let spot = cursor.spot();
    let word = cursor.word("a register, a location or a number")?;
    if is_bracketed {
        let location = names.known_location(word, spot)?;
        cursor.expect("]")?;
        return Ok(Operand::Location(location));
    }
    if cursor.takes(":") {
        let thread = names.thread(thread_number(word, spot)?, spot)?;
        let at = cursor.spot();
        let register = cursor.word("a register")?;
        return Ok(Operand::Register(thread, names.register(thread, register, at)?));
    }
    if is_number(word) {
        return Ok(Operand::Constant(number(word, spot)?));
    }
    Ok(Operand::Location(names.known_location(word, spot)?))
}
