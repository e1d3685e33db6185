//! Tokens to a module.
//!
//! Assumes nothing about who wrote the text. Guarantees that every instruction of every function is in
//! the module with its place, its operands resolved to registers and variables of the scope it stands
//! in, and its branch targets resolved to instructions. Text that cannot be read is an error, never
//! skipped; only debug sections, initial values and performance directives are.

use rustc_hash::FxHashMap;

use scope::{Binding, Draft};

use super::token::{Kind, Token, Unreadable, tokens};
use super::{
    Body, Formal, Function, Instruction, Module, Operand, SourcePlace, Space, Targets, Var,
};

mod operand;
mod scope;

/// Operands nest no deeper than this.
const DEEPEST: u32 = 12;
/// A function has no more instructions than this.
const MOST_INSTRUCTIONS: u32 = 200_000;
/// Braces nest no deeper than this.
const DEEPEST_SCOPE: usize = 256;

/// Reads a whole module.
pub(crate) fn parse(text: &str) -> Result<Module, Unreadable> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        text,
        tokens,
        at: 0,
        module: Module { wide: true, ..Module::default() },
        module_names: FxHashMap::default(),
        function_names: FxHashMap::default(),
        function: None,
        loc: 0,
    };
    while !parser.is_done() {
        parser.item()?;
    }
    Ok(parser.module)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    module: Module,
    module_names: FxHashMap<String, u32>,
    function_names: FxHashMap<String, ()>,
    function: Option<Draft>,
    loc: u32,
}

impl<'a> Parser<'a> {
    fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<Token> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn slice(&self, token: Token) -> &'a str {
        &self.text[token.start..token.end]
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, Unreadable> {
        let line =
            self.peek().or_else(|| self.tokens.last().copied()).map_or(1, |token| token.line);
        Err(Unreadable { line, message: message.into() })
    }

    fn next(&mut self) -> Result<Token, Unreadable> {
        match self.peek() {
            Some(token) => {
                self.at += 1;
                Ok(token)
            }
            None => self.fail("the file ends too early"),
        }
    }

    fn is_mark(&self, mark: u8) -> bool {
        self.peek().is_some_and(|t| t.kind == Kind::Mark(mark))
    }

    fn eat(&mut self, mark: u8) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, mark: u8) -> Result<Token, Unreadable> {
        if self.is_mark(mark) {
            return self.next();
        }
        let found = self.peek().map_or("the end of the file", |t| self.slice(t));
        self.fail(format!("expected `{}`, found `{found}`", char::from(mark)))
    }

    fn dotted(&self) -> Option<&'a str> {
        self.peek().filter(|t| t.kind == Kind::Dotted).map(|t| self.slice(t))
    }

    fn word(&mut self) -> Result<&'a str, Unreadable> {
        match self.peek() {
            Some(token) if token.kind == Kind::Word => {
                self.at += 1;
                Ok(self.slice(token))
            }
            _ => self.fail("expected a name"),
        }
    }

    fn number(&mut self) -> Result<i64, Unreadable> {
        match self.peek() {
            Some(token) if token.kind == Kind::Number => {
                self.at += 1;
                Ok(integer(self.slice(token)).unwrap_or(0))
            }
            _ => self.fail("expected a number"),
        }
    }

    /// Passes over a bracketed group whose opening mark is next.
    fn skip_group(&mut self) -> Result<(), Unreadable> {
        let mut depth = 0usize;
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Mark(b'{' | b'(' | b'[') => depth += 1,
                Kind::Mark(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
                Kind::Word | Kind::Dotted | Kind::Number | Kind::Text | Kind::Mark(_) => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn skip_statement(&mut self) -> Result<(), Unreadable> {
        while !self.is_mark(b';') {
            if self.is_mark(b'{') || self.is_mark(b'(') || self.is_mark(b'[') {
                self.skip_group()?;
            } else {
                self.next()?;
            }
        }
        self.expect(b';').map(|_| ())
    }

    /// One item of the module.
    fn item(&mut self) -> Result<(), Unreadable> {
        let linked = self.skip_linkage();
        let Some(directive) = self.dotted() else {
            if linked {
                return self.fail("expected a declaration");
            }
            if self.eat(b';') {
                return Ok(());
            }
            let found = self.peek().map_or("", |t| self.slice(t));
            return self.fail(format!("expected a directive, found `{found}`"));
        };
        match directive {
            ".version" => {
                self.at += 1;
                self.number()?;
            }
            ".target" => self.target()?,
            ".address_size" => {
                self.at += 1;
                self.module.wide = self.number()? == 64;
                self.module.header_end = self.end_before();
            }
            ".file" => self.file()?,
            ".loc" => self.location()?,
            ".section" => self.section()?,
            ".pragma" | ".alias" => self.skip_statement()?,
            ".entry" | ".func" => self.function()?,
            _ => match space_of(directive) {
                Some(space) => {
                    self.at += 1;
                    for var in self.variables(space)? {
                        let index = self.module.vars.len() as u32;
                        self.module_names.insert(var.name.clone(), index);
                        self.module.vars.push(var);
                    }
                }
                None => return self.fail(format!("the directive `{directive}` is not known")),
            },
        }
        Ok(())
    }

    /// Passes over linkage directives; true where there was one.
    fn skip_linkage(&mut self) -> bool {
        let before = self.at;
        while matches!(
            self.dotted(),
            Some(".extern" | ".visible" | ".weak" | ".common" | ".internal")
        ) {
            self.at += 1;
        }
        self.at > before
    }

    fn end_before(&self) -> usize {
        self.at.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |t| t.end)
    }

    fn target(&mut self) -> Result<(), Unreadable> {
        self.at += 1;
        self.word()?;
        self.module.header_end = self.end_before();
        while self.is_mark(b',') {
            let comma = self.next()?;
            if self.word()? == "debug" {
                self.module.debug_spans.push((comma.start, self.end_before()));
            }
            self.module.header_end = self.end_before();
        }
        Ok(())
    }

    fn file(&mut self) -> Result<(), Unreadable> {
        let start = self.next()?.start;
        self.number()?;
        if !matches!(self.peek(), Some(t) if t.kind == Kind::Text) {
            return self.fail("expected a file name");
        }
        self.at += 1;
        while self.eat(b',') {
            self.number()?;
        }
        self.module.debug_spans.push((start, self.end_before()));
        Ok(())
    }

    fn location(&mut self) -> Result<(), Unreadable> {
        let start = self.next()?.start;
        self.number()?;
        let line = self.number()?;
        self.loc = u32::try_from(line).unwrap_or(0);
        if matches!(self.peek(), Some(t) if t.kind == Kind::Number) {
            self.number()?;
        }
        while self.eat(b',') {
            let name = self.word()?;
            match name {
                "function_name" => {
                    self.next()?;
                    if self.eat(b'+') {
                        self.number()?;
                    }
                }
                "inlined_at" => {
                    for _ in 0..3 {
                        self.number()?;
                    }
                }
                _ => return self.fail(format!("`{name}` is not known in a `.loc`")),
            }
        }
        self.module.debug_spans.push((start, self.end_before()));
        Ok(())
    }

    fn section(&mut self) -> Result<(), Unreadable> {
        let start = self.next()?.start;
        let debug = self.dotted().is_some_and(|name| name.starts_with(".debug"));
        while !self.is_mark(b'{') {
            self.next()?;
        }
        self.skip_group()?;
        if debug {
            self.module.debug_spans.push((start, self.end_before()));
        }
        Ok(())
    }

    /// The rest of a declaration after its state space, to the semicolon.
    fn variables(&mut self, space: Space) -> Result<Vec<Var>, Unreadable> {
        let mut list = Vec::new();
        let shape = self.attributes(space)?;
        loop {
            list.push(self.variable(&shape)?);
            if self.eat(b'=') {
                while !self.is_mark(b',') && !self.is_mark(b';') {
                    if self.is_mark(b'{') || self.is_mark(b'(') {
                        self.skip_group()?;
                    } else {
                        self.next()?;
                    }
                }
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(list)
    }

    /// Attributes and type of a declaration.
    fn attributes(&mut self, space: Space) -> Result<Var, Unreadable> {
        let mut shape =
            Var { name: String::new(), space, bytes: 4, is_pointer: false, is_array: false };
        let mut lanes = 1;
        while let Some(name) = self.dotted() {
            self.at += 1;
            match name {
                ".align" => {
                    self.number()?;
                }
                ".attribute" => self.skip_group()?,
                ".ptr" => shape.is_pointer = true,
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                ".v8" => lanes = 8,
                ".texref" | ".samplerref" | ".surfref" => {
                    shape.space = Space::Texture;
                    shape.bytes = 8;
                }
                _ => {
                    if let Some(bits) = type_bits(name) {
                        shape.bytes = bits.div_ceil(8);
                    }
                }
            }
        }
        shape.bytes *= lanes;
        Ok(shape)
    }

    fn variable(&mut self, shape: &Var) -> Result<Var, Unreadable> {
        let mut var = shape.clone();
        var.name = self.word()?.to_owned();
        while self.eat(b'[') {
            var.is_array = true;
            if self.is_mark(b']') {
                var.bytes = 0;
            } else {
                let count = self.number()?;
                let count = u32::try_from(count).unwrap_or(u32::MAX);
                var.bytes = var.bytes.saturating_mul(count);
                while !self.is_mark(b']') {
                    self.next()?;
                }
            }
            self.expect(b']')?;
        }
        Ok(var)
    }

    /// Parameters or return values in parentheses.
    fn formals(&mut self) -> Result<Vec<Formal>, Unreadable> {
        self.expect(b'(')?;
        let mut list = Vec::new();
        while !self.eat(b')') {
            let Some(space) = self.dotted() else {
                return self.fail("expected a parameter");
            };
            self.at += 1;
            let is_reg = space == ".reg";
            if !is_reg && space != ".param" {
                return self.fail(format!("a parameter cannot be `{space}`"));
            }
            let shape = self.attributes(Space::Param)?;
            let mut var = self.variable(&shape)?;
            let draft = self.draft();
            if is_reg {
                list.push(Formal::Reg(draft.declare_reg(&var.name)));
                // A count after the name, `%a<4>`, does not occur in parameters.
            } else {
                if var.bytes == 0 {
                    var.bytes = u32::MAX;
                }
                list.push(Formal::Var(draft.declare_var(var)));
            }
            if !self.eat(b',') && !self.is_mark(b')') {
                return self.fail("expected `,` or `)` after a parameter");
            }
        }
        Ok(list)
    }

    fn draft(&mut self) -> &mut Draft {
        self.function.get_or_insert_with(Draft::default)
    }

    fn function(&mut self) -> Result<(), Unreadable> {
        let is_entry = self.dotted() == Some(".entry");
        self.at += 1;
        self.loc = 0;
        let mut draft = Draft::default();
        draft.open_scope();
        self.function = Some(draft);
        while self.dotted() == Some(".attribute") || self.dotted() == Some(".noreturn") {
            self.at += 1;
            if self.is_mark(b'(') {
                self.skip_group()?;
            }
        }
        let returns = if self.is_mark(b'(') { self.formals()? } else { Vec::new() };
        let name = self.word()?.to_owned();
        let params = if self.is_mark(b'(') { self.formals()? } else { Vec::new() };
        self.function_names.insert(name.clone(), ());
        let threads = self.performance_directives()?;
        let body = if self.eat(b';') {
            None
        } else {
            self.expect(b'{')?;
            Some(self.body()?)
        };
        let draft = self.function.take().unwrap_or_default();
        let (vars, regs) = (draft.vars, draft.regs);
        let function = Function { name, is_entry, params, returns, body, vars, regs, threads };
        // A declaration without body gives way to the definition.
        match self.module.functions.iter_mut().find(|f| f.name == function.name) {
            Some(old) if old.body.is_none() => *old = function,
            Some(_) if function.body.is_none() => {}
            Some(_) => return self.fail(format!("`{}` is defined twice", function.name)),
            None => self.module.functions.push(function),
        }
        Ok(())
    }

    /// Reads up to the body; gives the threads of a CTA at most.
    fn performance_directives(&mut self) -> Result<Option<u32>, Unreadable> {
        let mut threads: Option<u32> = None;
        let mut counts = false;
        while !self.is_mark(b'{') && !self.is_mark(b';') {
            let token = self.next()?;
            let text = self.slice(token);
            match token.kind {
                Kind::Dotted => {
                    counts = matches!(text, ".maxntid" | ".reqntid");
                    threads = if counts { Some(1) } else { threads };
                }
                Kind::Number if counts => {
                    let along = integer(text).and_then(|number| u32::try_from(number).ok());
                    threads = threads.zip(along).and_then(|(all, along)| all.checked_mul(along));
                }
                Kind::Number | Kind::Word | Kind::Text | Kind::Mark(_) => {}
            }
        }
        Ok(threads)
    }

    fn body(&mut self) -> Result<Body, Unreadable> {
        loop {
            let Some(token) = self.peek() else { return self.fail("the function does not end") };
            match token.kind {
                Kind::Mark(b'}') => {
                    self.at += 1;
                    let draft = self.draft();
                    draft.open.pop();
                    if draft.open.is_empty() {
                        break;
                    }
                }
                Kind::Mark(b'{') => {
                    self.at += 1;
                    if self.draft().open.len() >= DEEPEST_SCOPE {
                        return self.fail("braces nest too deep");
                    }
                    self.draft().open_scope();
                }
                Kind::Mark(b';') => self.at += 1,
                Kind::Dotted => self.body_directive()?,
                Kind::Word if self.peek_at(1).is_some_and(|t| t.kind == Kind::Mark(b':')) => {
                    self.label()?;
                }
                Kind::Word | Kind::Mark(b'@') => self.instruction()?,
                Kind::Number | Kind::Text | Kind::Mark(_) => {
                    let found = self.slice(token);
                    return self.fail(format!("expected an instruction, found `{found}`"));
                }
            }
        }
        let draft = self.draft();
        draft.resolve_branches();
        Ok(Body { instructions: std::mem::take(&mut draft.instructions) })
    }

    fn label(&mut self) -> Result<(), Unreadable> {
        let name = self.word()?.to_owned();
        self.expect(b':')?;
        match self.dotted() {
            Some(".branchtargets") => {
                self.at += 1;
                let mut list = vec![self.word()?.to_owned()];
                while self.eat(b',') {
                    list.push(self.word()?.to_owned());
                }
                self.expect(b';')?;
                let draft = self.draft();
                let scope = draft.scope();
                draft.tables.insert((scope, name), list);
            }
            Some(".calltargets" | ".callprototype") => self.skip_statement()?,
            _ => {
                let draft = self.draft();
                let key = (draft.scope(), name);
                let place = draft.instructions.len() as u32;
                draft.labels.insert(key, place);
            }
        }
        Ok(())
    }

    fn body_directive(&mut self) -> Result<(), Unreadable> {
        self.skip_linkage();
        let Some(directive) = self.dotted() else { return self.fail("expected a directive") };
        match directive {
            ".loc" => self.location(),
            ".file" => self.file(),
            ".section" => self.section(),
            ".reg" => {
                self.at += 1;
                self.registers()
            }
            ".pragma"
            | ".callprototype"
            | ".calltargets"
            | ".branchtargets"
            | ".minnctapersm"
            | ".maxnreg"
            | ".maxntid"
            | ".reqntid"
            | ".abi_preserve"
            | ".abi_preserve_control" => self.skip_statement(),
            _ => match space_of(directive) {
                Some(space) => {
                    self.at += 1;
                    for var in self.variables(space)? {
                        self.draft().declare_var(var);
                    }
                    Ok(())
                }
                None => self.fail(format!("the directive `{directive}` is not known")),
            },
        }
    }

    fn registers(&mut self) -> Result<(), Unreadable> {
        while self.dotted().is_some() {
            self.at += 1;
        }
        loop {
            let name = self.word()?.to_owned();
            if self.eat(b'<') {
                let count = self.number()?;
                self.expect(b'>')?;
                let count = u64::try_from(count).unwrap_or(0);
                let draft = self.draft();
                let scope = draft.scope();
                draft.scopes[scope].ranges.push((name, count));
            } else {
                self.draft().declare_reg(&name);
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';').map(|_| ())
    }

    fn instruction(&mut self) -> Result<(), Unreadable> {
        let first = match self.peek() {
            Some(token) => token,
            None => return self.fail("expected an instruction"),
        };
        let mut guard = None;
        if self.eat(b'@') {
            let negated = self.eat(b'!');
            let name = self.word()?;
            let Some(Binding::Reg(reg)) = self.draft().find(name) else {
                return self.fail(format!("the predicate `{name}` is not declared"));
            };
            guard = Some((reg, negated));
        }
        let opcode = self.word()?.to_owned();
        let mut modifiers = Vec::new();
        while let Some(name) = self.dotted() {
            self.at += 1;
            modifiers.push(name[1..].to_owned());
        }
        let mut operands = Vec::new();
        if !self.is_mark(b';') {
            loop {
                operands.push(self.operand(0)?);
                while let Some(name) = self.dotted() {
                    self.at += 1;
                    modifiers.push(name[1..].to_owned());
                }
                if !self.eat(b',') {
                    break;
                }
            }
        }
        let last = self.expect(b';')?;
        let id = self.module.places.len() as u32;
        self.module.places.push(SourcePlace {
            line: first.line,
            start: first.start,
            end: last.end,
            loc: self.loc,
        });
        let draft = self.draft();
        let index = draft.instructions.len() as u32;
        if index >= MOST_INSTRUCTIONS {
            return self.fail("the function is too long");
        }
        let scope = draft.scope();
        let mut targets = Targets::None;
        if opcode == "bra" || opcode == "brx" {
            targets = Targets::Unknown;
            if let Some(Operand::Name(label)) = operands.last() {
                draft.branches.push((index, scope, label.clone(), opcode == "brx"));
            }
        }
        draft.instructions.push(Instruction { id, guard, opcode, modifiers, operands, targets });
        Ok(())
    }
}

fn space_of(directive: &str) -> Option<Space> {
    Some(match directive {
        ".global" => Space::Global,
        ".shared" | ".shared::cta" | ".shared::cluster" => Space::Shared,
        ".const" => Space::Const,
        ".local" => Space::Local,
        ".param" => Space::Param,
        ".tex" => Space::Texture,
        _ => return None,
    })
}

/// Bits of a type, given with its dot.
pub(crate) fn type_bits(name: &str) -> Option<u32> {
    Some(match name {
        ".pred" => 1,
        ".b8" | ".u8" | ".s8" | ".e4m3" | ".e5m2" => 8,
        ".b16" | ".u16" | ".s16" | ".f16" | ".bf16" => 16,
        ".b32" | ".u32" | ".s32" | ".f32" | ".f16x2" | ".bf16x2" | ".tf32" => 32,
        ".b64" | ".u64" | ".s64" | ".f64" | ".f32x2" => 64,
        ".b128" | ".u128" | ".s128" => 128,
        _ => return None,
    })
}

/// The value of an integer literal; `None` for floats and what does not fit.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let text = text.strip_suffix('U').unwrap_or(text);
    let parsed = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16)
    } else if let Some(bits) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) {
        u64::from_str_radix(bits, 2)
    } else if text.len() > 1 && text.starts_with('0') {
        u64::from_str_radix(text, 8)
    } else {
        text.parse()
    };
    parsed.ok().map(|number| number as i64)
}
