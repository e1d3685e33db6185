//! PTX that an author writes: which texts are taken, and what they may do.
//!
//! A text is a list of instructions that compute from registers alone, in order, in each thread for itself: `%0` is
//! the result, `%1`, `%2`, … are the operands, and registers between them are declared by `.reg`. There is nothing in
//! it that touches memory, meets other threads, looks at where it runs, or branches, so the same operands give the
//! same result everywhere. Every register is written before it is read, operands are not written, and each operand of
//! an instruction has as many bits as the instruction says. What remains is for the assembler to refuse.

mod table;
mod token;

use kernel_abi::DType;
use rustc_hash::FxHashMap;

use table::{Place, Width, instruction};
use token::{Token, tokens};

/// Instructions of a text at most.
const MOST: usize = 256;

/// Why a text is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

type Read<T> = Result<T, Fault>;

fn fault<T>(message: impl Into<String>) -> Read<T> {
    Err(Fault(message.into()))
}

/// Bits of a register that holds an element; none for types that PTX has no arithmetic for.
pub fn register_bits(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F16 | DType::Bf16 => Some(16),
        DType::F32 | DType::I32 | DType::U32 => Some(32),
        DType::I64 | DType::U64 => Some(64),
        DType::Bool
        | DType::I8
        | DType::U8
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => None,
    }
}

/// Reads a text whose result and operands have these types; the text that is assembled.
///
/// # Errors
/// What is not taken, and why.
pub fn read(text: &str, types: &[DType]) -> Read<String> {
    let mut widths = Vec::with_capacity(types.len());
    for (number, &dtype) in types.iter().enumerate() {
        match register_bits(dtype) {
            Some(bits) => widths.push(bits),
            None => return fault(format!("`%{number}` is {dtype}, which PTX computes nothing of")),
        }
    }
    let mut reader = Reader {
        tokens: tokens(text)?,
        at: 0,
        widths,
        registers: FxHashMap::default(),
        result: false,
        used: vec![false; types.len()],
        lines: Vec::new(),
        instructions: 0,
    };
    let braced = reader.eat("{");
    while reader.at < reader.tokens.len() && !(braced && reader.is("}")) {
        reader.statement()?;
    }
    if braced {
        reader.expect("}")?;
        if reader.at < reader.tokens.len() {
            return fault("nothing follows the closing brace");
        }
    }
    reader.finish()
}

/// A register of the text.
struct Register {
    width: Width,
    is_written: bool,
}

struct Reader<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    /// Bits of `%0`, `%1`, ….
    widths: Vec<u32>,
    registers: FxHashMap<&'t str, Register>,
    /// `%0` has a value.
    result: bool,
    used: Vec<bool>,
    lines: Vec<String>,
    instructions: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).copied()
    }

    fn is(&self, mark: &str) -> bool {
        self.peek().is_some_and(|token| token == Token::Mark(mark))
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = self.is(mark);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &str) -> Read<()> {
        if self.eat(mark) {
            return Ok(());
        }
        match self.peek() {
            Some(token) => fault(format!("`{mark}` is missing ahead of `{token}`")),
            None => fault(format!("`{mark}` is missing at the end")),
        }
    }

    fn word(&mut self, what: &str) -> Read<&'t str> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            Some(token) => fault(format!("{what} is missing ahead of `{token}`")),
            None => fault(format!("{what} is missing at the end")),
        }
    }

    fn statement(&mut self) -> Read<()> {
        if self.eat(".") {
            return self.declaration();
        }
        self.instructions += 1;
        if self.instructions > MOST {
            return fault(format!("there are more than {MOST} instructions"));
        }
        let guard = self.guard()?;
        let (name, parts) = self.name()?;
        let form = instruction(name, &parts)?;
        let full = std::iter::once(name).chain(parts.iter().copied()).collect::<Vec<_>>().join(".");
        let mut operands = Vec::with_capacity(form.places.len());
        let mut written = None;
        for (number, place) in form.places.iter().enumerate() {
            if number > 0 {
                self.expect(",")?;
            }
            let (operand, target) = self.operand(&full, *place, number == 0)?;
            written = written.or(target);
            operands.push(operand);
        }
        if self.is(",") {
            return fault(format!("`{full}` has {} operands", form.places.len()));
        }
        self.expect(";")?;
        for target in written.into_iter().flatten() {
            self.write(target, guard.is_some());
        }
        let guard = guard.unwrap_or_default();
        self.lines.push(format!("{guard}{full} {};", operands.join(", ")));
        Ok(())
    }

    /// `.reg .b32 a, b;`
    fn declaration(&mut self) -> Read<()> {
        let word = self.word("`reg`")?;
        if word != "reg" {
            return fault(format!(
                "`.{word}` does not belong here; a text declares registers alone"
            ));
        }
        self.expect(".")?;
        let name = self.word("a type")?;
        let width = match name {
            "b16" => Width::Bits(16),
            "b32" => Width::Bits(32),
            "b64" => Width::Bits(64),
            "pred" => Width::Predicate,
            other => {
                return fault(format!("registers are .b16, .b32, .b64 or .pred, not `.{other}`"));
            }
        };
        let mut names = Vec::new();
        loop {
            let register = self.word("the name of a register")?;
            if self.registers.contains_key(register) {
                return fault(format!("`{register}` is declared twice"));
            }
            self.registers.insert(register, Register { width, is_written: false });
            names.push(register);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(";")?;
        self.lines.push(format!(".reg .{name} {};", names.join(", ")));
        Ok(())
    }

    /// `@p` or `@!p`.
    fn guard(&mut self) -> Read<Option<String>> {
        if !self.eat("@") {
            return Ok(None);
        }
        let not = if self.eat("!") { "!" } else { "" };
        let name = self.word("a predicate")?;
        self.register(name, Width::Predicate, false)?;
        Ok(Some(format!("@{not}{name} ")))
    }

    /// `fma`, `[rn, f32]`.
    fn name(&mut self) -> Read<(&'t str, Vec<&'t str>)> {
        let name = self.word("an instruction")?;
        let mut parts = Vec::new();
        while self.eat(".") {
            parts.push(self.word("a part of the instruction")?);
        }
        Ok((name, parts))
    }

    /// An operand as text, and what it writes.
    fn operand(
        &mut self,
        of: &str,
        place: Place,
        is_target: bool,
    ) -> Read<(String, Option<Vec<&'t str>>)> {
        if self.is("{") {
            return self.vector(of, place, is_target);
        }
        if place == Place::Number {
            return match self.peek() {
                Some(Token::Number(number)) if token::is_integer(number) => {
                    self.at += 1;
                    Ok((number.to_owned(), None))
                }
                _ => fault(format!("the last operand of `{of}` is a number")),
            };
        }
        let width = place.width();
        match self.peek() {
            Some(Token::Word(name)) => {
                self.at += 1;
                self.register(name, width, is_target)?;
                Ok((name.to_owned(), is_target.then(|| vec![name])))
            }
            Some(Token::Operand(name)) => {
                self.at += 1;
                self.own(of, name, width, is_target)?;
                Ok((name.to_owned(), is_target.then(|| vec![name])))
            }
            Some(Token::Number(number)) if !is_target && width != Width::Predicate => {
                self.at += 1;
                if token::is_integer(number) == place.is_float() {
                    let wanted =
                        if place.is_float() { "0f3f800000 or 1.0" } else { "a whole number" };
                    return fault(format!("`{of}` takes {wanted}, not `{number}`"));
                }
                Ok((number.to_owned(), None))
            }
            Some(token) => fault(format!("`{token}` is no operand of `{of}`")),
            None => fault(format!("an operand of `{of}` is missing")),
        }
    }

    /// `{a, b}`, half as wide each: `mov` puts registers together and takes them apart.
    fn vector(
        &mut self,
        of: &str,
        place: Place,
        is_target: bool,
    ) -> Read<(String, Option<Vec<&'t str>>)> {
        let half = match (place.width(), place.is_packed()) {
            (Width::Bits(bits @ (32 | 64)), true) => Width::Bits(bits / 2),
            (Width::Bits(_) | Width::Predicate, _) => {
                return fault(format!("`{of}` takes no list of registers"));
            }
        };
        self.expect("{")?;
        let mut names = Vec::with_capacity(2);
        for number in 0..2 {
            if number > 0 {
                self.expect(",")?;
            }
            match self.peek() {
                Some(Token::Word(name)) => {
                    self.at += 1;
                    self.register(name, half, is_target)?;
                    names.push(name);
                }
                Some(Token::Operand(name)) => {
                    self.at += 1;
                    self.own(of, name, half, is_target)?;
                    names.push(name);
                }
                _ => return fault(format!("a list of `{of}` has two registers")),
            }
        }
        self.expect("}")?;
        Ok((format!("{{{}}}", names.join(", ")), is_target.then_some(names)))
    }

    /// A declared register.
    fn register(&mut self, name: &str, width: Width, is_target: bool) -> Read<()> {
        let Some(register) = self.registers.get(name) else {
            return fault(format!("`{name}` is no register that the text declares"));
        };
        if register.width != width {
            return fault(format!("`{name}` is {}, where {width} is needed", register.width));
        }
        if !is_target && !register.is_written {
            return fault(format!("`{name}` is read before it has a value on every path"));
        }
        Ok(())
    }

    /// `%0`, `%1`, ….
    fn own(&mut self, of: &str, name: &str, width: Width, is_target: bool) -> Read<()> {
        let number = name[1..].parse::<usize>().ok();
        let Some((number, bits)) = number.and_then(|n| Some((n, *self.widths.get(n)?))) else {
            let last = self.widths.len().saturating_sub(1);
            return fault(format!("there is no `{name}`; the last operand is `%{last}`"));
        };
        self.used[number] = true;
        if width != Width::Bits(bits) {
            return fault(format!("`{name}` has {bits} bits, where `{of}` needs {width}"));
        }
        match (number, is_target) {
            (0, false) if !self.result => fault("`%0` is read before it has a value on every path"),
            (1.., true) => fault(format!("`{name}` is an operand, and is not written")),
            (_, _) => Ok(()),
        }
    }

    /// A register has a value, where nothing decides whether it is written.
    fn write(&mut self, name: &str, is_guarded: bool) {
        if is_guarded {
            return;
        }
        if name == "%0" {
            self.result = true;
        } else if let Some(register) = self.registers.get_mut(name) {
            register.is_written = true;
        }
    }

    fn finish(self) -> Read<String> {
        if !self.result {
            return fault("no instruction writes `%0` on every path");
        }
        if let Some(number) = self.used.iter().position(|used| !used) {
            return fault(format!("nothing reads `%{number}`"));
        }
        Ok(self.lines.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::{F16, F32, I32, U32, U64};

    #[test]
    fn texts_are_taken_and_written_in_one_way() {
        let taken = |text, types: &[DType]| read(text, types).unwrap();
        assert_eq!(
            taken("fma.rn.f32 %0,%1 , %2, 0f3F800000 ; // a comment", &[F32, F32, F32]),
            "fma.rn.f32 %0, %1, %2, 0f3F800000;"
        );
        let text = "{ .reg .pred p; .reg .b32 t; setp.lt.s32 p, %1, 0; mov.b32 t, %1; @p neg.s32 t, %1; \
                    mov.b32 %0, t; }";
        assert!(taken(text, &[I32, I32]).ends_with("@p neg.s32 t, %1; mov.b32 %0, t;"));
        taken("mov.b32 %0, {%1, %2};", &[U32, F16, F16]);
        taken("mul.wide.u32 %0, %1, 7;", &[U64, U32]);
        taken("cvt.rn.bf16x2.f32 %0, %1, %2;", &[U32, F32, F32]);
        taken("lop3.b32 %0, %1, %2, %3, 0x96;", &[U32; 4]);
    }

    #[test]
    fn what_is_more_than_arithmetic_is_not_taken() {
        for (text, why) in [
            ("ld.global.u32 %0, [%1];", "`ld`"),
            ("st.global.u32 [%1], %1;", "`st`"),
            ("atom.add.u32 %0, [%1], 1;", "`atom`"),
            ("bar.sync 0;", "`bar`"),
            ("bra there;", "`bra`"),
            ("there: mov.b32 %0, %1;", "`there`"),
            ("mov.u32 %0, %laneid;", "`%laneid`"),
            ("shfl.sync.bfly.b32 %0, %1, 1, 31, -1;", "`shfl`"),
            ("vote.sync.ballot.b32 %0, 1, -1;", "`vote`"),
            ("call f;", "`call`"),
            ("exit;", "`exit`"),
            ("griddepcontrol.wait;", "`griddepcontrol`"),
            ("fence.acq_rel.gpu;", "`fence`"),
            ("add.f32.volatile %0, %1, %1;", "`volatile`"),
            (".shared .b32 x;", "`.shared`"),
            ("mov.b32 %0, %1; } { mov.b32 %0, %1;", "`}`"),
            ("mov.b32 %0, %1; \"", "`\"`"),
        ] {
            let found = read(text, &[U32, U32]).unwrap_err();
            assert!(found.0.contains(why), "{text}: {found}");
        }
    }

    #[test]
    fn what_is_not_well_formed_is_not_taken() {
        for (text, why) in [
            ("", "no instruction writes"),
            ("add.u32 %0, %1, %1", "`;` is missing"),
            ("add.u32 %0, %1;", "`,` is missing"),
            ("add.u32 %0, %1, %1, %1;", "3 operands"),
            ("add.u32 %1, %1, %1;", "is not written"),
            ("add.u32 %0, %2, %1;", "no `%2`"),
            ("add.u64 %0, %1, %1;", "32 bits"),
            ("add.u32 %0, %0, %1;", "read before"),
            ("add.u32 %0, x, %1;", "no register"),
            (".reg .b32 x; add.u32 %0, x, %1;", "read before"),
            (".reg .pred p; setp.eq.u32 p, %1, 0; @p mov.b32 %0, %1;", "on every path"),
            (".reg .f32 x; mov.b32 %0, %1;", "`.f32`"),
            ("mov.b32 %0, 7;", "nothing reads `%1`"),
            ("add.f32 %0, %1, 1;", "0f3f800000"),
            ("add.u32 %0, %1, 1.0;", "whole number"),
            ("add %0, %1, %1;", "type"),
            ("add.b32 %0, %1, %1;", "`b32`"),
            ("mul.u32 %0, %1, %1;", "lo"),
            ("frobnicate.u32 %0, %1;", "`frobnicate`"),
        ] {
            let found = read(text, &[U32, U32]).unwrap_err();
            assert!(found.0.contains(why), "{text}: {found}");
        }
        assert!(read("mov.b16 %0, %1;", &[DType::E4m3, F16]).unwrap_err().0.contains("e4m3"));
    }
}
