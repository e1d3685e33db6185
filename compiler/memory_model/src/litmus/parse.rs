//! From signs to a test: the block of declarations, the table, what is asked.

mod ask;
mod cell;
mod cursor;
mod names;

use self::cursor::Cursor;
use self::names::Names;
use super::token::{self, Sign, Token};
use super::{Test, Word};
use crate::code::{Code, Diagnostic, Spot};
use crate::event::{Position, Proxy};

/// The most threads of a test.
pub const MAX_THREADS: usize = 16;
/// The most instructions of a thread.
pub const MAX_INSTRUCTIONS: usize = 64;
/// The most locations of a test.
pub const MAX_LOCATIONS: usize = 64;
/// How deep conditions may be nested.
const MAX_DEPTH: usize = 64;

/// Reads a test.
///
/// # Errors
/// Everything that was found wrong with it, in the order of the text.
pub fn parse(text: &str) -> Result<Test, Vec<Diagnostic>> {
    let (name, tokens) = token::read(text).map_err(|found| vec![found])?;
    let mut cursor = Cursor::new(&tokens);
    let mut found = Vec::new();
    let mut names = Names::default();
    let declared = declarations(&mut cursor, &mut names, &mut found)?;
    head(&mut cursor, &mut names).map_err(|one| with(&mut found, one))?;
    for declaration in declared {
        if let Err(one) = names.initialize(&declaration) {
            found.push(one);
        }
    }
    rows(&mut cursor, &mut names, &mut found).map_err(|one| with(&mut found, one))?;
    let asked = ask::read(&mut cursor, &mut names).map_err(|one| with(&mut found, one))?;
    let proxies = names.first_proxy();
    match names.finish() {
        Ok((locations, threads)) if found.is_empty() => Ok(Test {
            name: name.to_owned(),
            locations,
            threads,
            filter: asked.filter,
            quantifier: asked.quantifier,
            condition: asked.condition,
            proxies,
        }),
        Ok(_) => Err(in_order(found)),
        Err(more) => {
            found.extend(more);
            Err(in_order(found))
        }
    }
}

fn with(found: &mut Vec<Diagnostic>, one: Diagnostic) -> Vec<Diagnostic> {
    found.push(one);
    in_order(std::mem::take(found))
}

fn in_order(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by_key(|one| one.spot);
    // A name that is refused where it is declared is refused again where it is given its value.
    found.dedup();
    found
}

/// What an initial value is.
enum Initial<'t> {
    Number(Word),
    AddressOf(&'t str),
}

/// One declaration of the block.
enum Declaration<'t> {
    Location { name: &'t str, initial: Initial<'t> },
    Register { thread: u32, name: &'t str, initial: Initial<'t> },
    Alias { name: &'t str, proxy: Proxy, of: &'t str },
}

/// A declaration with its place.
struct Declared<'t> {
    spot: Spot,
    what: Declaration<'t>,
}

/// Reads `{ … }`. A broken declaration is reported and the next one is read.
fn declarations<'t>(
    cursor: &mut Cursor<'t>,
    names: &mut Names,
    found: &mut Vec<Diagnostic>,
) -> Result<Vec<Declared<'t>>, Vec<Diagnostic>> {
    cursor.expect("{").map_err(|one| vec![one])?;
    let mut declared = Vec::new();
    loop {
        while cursor.takes(";") {}
        if cursor.takes("}") {
            while cursor.takes(";") {}
            return Ok(declared);
        }
        if cursor.is_at_end() {
            let one = Diagnostic::new(Code::M0102, cursor.spot(), "the block is not closed by `}`");
            return Err(with(found, one));
        }
        match declaration(cursor) {
            Ok(one) => {
                // Aliases and locations are known to the table whatever order they come in.
                if let Declaration::Location { name, .. } | Declaration::Alias { name, .. } =
                    &one.what
                    && let Err(fault) = names.declare(name, one.spot)
                {
                    found.push(fault);
                }
                declared.push(one);
            }
            Err(one) => {
                found.push(one);
                cursor.skip_until(&[";", "}"]);
            }
        }
    }
}

fn declaration<'t>(cursor: &mut Cursor<'t>) -> Result<Declared<'t>, Diagnostic> {
    let spot = cursor.spot();
    let name = cursor.word("a location or a register")?;
    let what = if cursor.takes(":") {
        let thread = thread_number(name, spot)?;
        let register = cursor.word("a register")?;
        cursor.expect("=")?;
        Declaration::Register { thread, name: register, initial: initial(cursor)? }
    } else if cursor.takes("@") {
        let at = cursor.spot();
        let proxy = proxy(cursor.word("a proxy")?, at)?;
        let at = cursor.spot();
        if cursor.word("`aliases`")? != "aliases" {
            return Err(Diagnostic::new(Code::M0102, at, "`aliases` is missing here"));
        }
        Declaration::Alias { name, proxy, of: cursor.word("a location")? }
    } else {
        cursor.expect("=")?;
        Declaration::Location { name, initial: initial(cursor)? }
    };
    Ok(Declared { spot, what })
}

fn initial<'t>(cursor: &mut Cursor<'t>) -> Result<Initial<'t>, Diagnostic> {
    let is_address = cursor.takes("&");
    let spot = cursor.spot();
    let word = cursor.word("a number or a location")?;
    if !is_address && is_number(word) {
        return Ok(Initial::Number(number(word, spot)?));
    }
    Ok(Initial::AddressOf(word))
}

/// Reads `P0@cta 0,gpu 0 | … ;`.
fn head(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<(), Diagnostic> {
    loop {
        let spot = cursor.spot();
        let number = thread_number(cursor.word("a thread such as `P0`")?, spot)?;
        cursor.expect("@")?;
        let position = position(cursor)?;
        names.add_thread(number, position, spot)?;
        if cursor.takes(";") {
            return Ok(());
        }
        cursor.expect("|")?;
    }
}

fn position(cursor: &mut Cursor<'_>) -> Result<Position, Diagnostic> {
    let spot = cursor.spot();
    let (mut cta, mut cluster, mut gpu) = (None, None, None);
    loop {
        let at = cursor.spot();
        let level = match cursor.word("`cta`, `cluster` or `gpu`")? {
            "cta" => &mut cta,
            "cluster" => &mut cluster,
            "gpu" => &mut gpu,
            other => {
                let message = format!("a thread has a cta, a cluster and a gpu, no `{other}`");
                return Err(Diagnostic::new(Code::M0102, at, message));
            }
        };
        let at = cursor.spot();
        let value = number(cursor.word("a number")?, at)?;
        let value = u32::try_from(value)
            .map_err(|_| Diagnostic::new(Code::M0108, at, format!("{value} is no place")))?;
        if level.replace(value).is_some() {
            return Err(Diagnostic::new(Code::M0107, at, "this level is stated twice"));
        }
        if !cursor.takes(",") {
            break;
        }
    }
    match (cta, gpu) {
        (Some(cta), Some(gpu)) => Ok(Position { gpu, cluster, cta }),
        _ => Err(Diagnostic::new(Code::M0102, spot, "a thread needs a cta and a gpu")),
    }
}

/// Reads the rows of the table.
fn rows(
    cursor: &mut Cursor<'_>,
    names: &mut Names,
    found: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    while !ask::begins(cursor) {
        let spot = cursor.spot();
        let mut column = 0;
        loop {
            let cell = cursor.cell();
            if column < names.thread_count() {
                found.extend(cell::read(cell, column, names).err());
            }
            column += 1;
            if !cursor.takes("|") {
                break;
            }
        }
        if column != names.thread_count() {
            let message =
                format!("the row has {column} columns, there are {} threads", names.thread_count());
            found.push(Diagnostic::new(Code::M0105, spot, message));
        }
        cursor.expect(";")?;
    }
    Ok(())
}

/// The number of a thread: `P0` or `0`.
fn thread_number(word: &str, spot: Spot) -> Result<u32, Diagnostic> {
    let digits = word.strip_prefix('P').unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let message = format!("`{word}` is no thread; threads are called `P0`, `P1` and so on");
        return Err(Diagnostic::new(Code::M0102, spot, message));
    }
    digits.parse().map_err(|_| {
        Diagnostic::new(Code::M0108, spot, format!("the number of `{word}` is too large"))
    })
}

fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// A number: decimal, or hexadecimal after `0x`.
fn number(word: &str, spot: Spot) -> Result<Word, Diagnostic> {
    if !is_number(word) {
        return Err(Diagnostic::new(Code::M0102, spot, format!("`{word}` is no number")));
    }
    let parsed = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        // All 64 bits may be written.
        Some(digits) => u64::from_str_radix(digits, 16).map(u64::cast_signed),
        None => word.parse(),
    };
    parsed.map_err(|_| {
        Diagnostic::new(Code::M0108, spot, format!("`{word}` is no number of 64 bits"))
    })
}

/// A proxy by its name in the dialect.
fn proxy(word: &str, spot: Spot) -> Result<Proxy, Diagnostic> {
    match word {
        "generic" => Ok(Proxy::Generic),
        "constant" => Ok(Proxy::Constant),
        "texture" => Ok(Proxy::Texture),
        "surface" => Ok(Proxy::Surface),
        _ => {
            let message =
                format!("`{word}` is no proxy; there are generic, constant, texture and surface");
            Err(Diagnostic::new(Code::M0106, spot, message))
        }
    }
}

/// Whether a word is a register: `r` and digits.
fn is_register(word: &str) -> bool {
    word.strip_prefix('r')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a word may name a location or a label.
fn is_name(word: &str) -> bool {
    let rest = word.trim_start_matches('_');
    rest.starts_with(|c: char| c.is_ascii_alphabetic())
        && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

fn text_of(sign: Sign<'_>) -> &str {
    match sign {
        Sign::Word(text) | Sign::Mark(text) => text,
    }
}

/// The text of a cell, with single blanks.
fn spelled(tokens: &[Token<'_>]) -> String {
    let mut text = String::new();
    for token in tokens {
        let piece = text_of(token.sign);
        if !text.is_empty() && !matches!(piece, "," | ":" | "]") && !text.ends_with('[') {
            text.push(' ');
        }
        text.push_str(piece);
    }
    text
}
