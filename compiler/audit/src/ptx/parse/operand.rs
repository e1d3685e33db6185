//! Operands of instructions.

use super::super::token::{Kind, Unreadable};
use super::super::{Operand, Space};
use super::{Binding, DEEPEST, Parser, integer};

impl Parser<'_> {
    /// One operand, up to the comma or the end after it.
    pub(super) fn operand(&mut self, depth: u32) -> Result<Operand, Unreadable> {
        if depth > DEEPEST {
            return self.fail("operands nest too deep");
        }
        let Some(token) = self.peek() else { return self.fail("expected an operand") };
        let first = match token.kind {
            Kind::Mark(b'{') => {
                self.at += 1;
                Operand::Vector(self.operands_until(b'}', depth)?)
            }
            Kind::Mark(b'(') => {
                self.at += 1;
                Operand::List(self.operands_until(b')', depth)?)
            }
            Kind::Mark(b'[') => {
                self.at += 1;
                self.address(depth)?
            }
            Kind::Mark(b'!' | b'~') => {
                self.at += 1;
                Operand::Negated(Box::new(self.operand(depth + 1)?))
            }
            Kind::Mark(b'-') => {
                self.at += 1;
                match self.primary(depth)? {
                    Operand::Integer(number) => Operand::Integer(number.wrapping_neg()),
                    Operand::Float => Operand::Float,
                    other => Operand::Negated(Box::new(other)),
                }
            }
            Kind::Mark(b'+') => {
                self.at += 1;
                self.primary(depth)?
            }
            Kind::Word | Kind::Number | Kind::Dotted | Kind::Text | Kind::Mark(_) => {
                self.primary(depth)?
            }
        };
        if self.eat(b'|') {
            let second = self.operand(depth + 1)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        self.constant_tail(first, depth)
    }

    /// `+ 4`, `- 4` after a name or number; other constant expressions are an unknown constant.
    fn constant_tail(&mut self, mut first: Operand, depth: u32) -> Result<Operand, Unreadable> {
        loop {
            let sign = if self.is_mark(b'+') {
                1i64
            } else if self.is_mark(b'-') {
                -1
            } else {
                break;
            };
            self.at += 1;
            let by = match self.primary(depth)? {
                Operand::Integer(number) => number.wrapping_mul(sign),
                _ => return self.fail("expected a constant"),
            };
            first = match first {
                Operand::Integer(number) => Operand::Integer(number.wrapping_add(by)),
                Operand::ModuleVar(var, at) => Operand::ModuleVar(var, at.wrapping_add(by)),
                Operand::LocalVar(var, at) => Operand::LocalVar(var, at.wrapping_add(by)),
                _ => return self.fail("a constant is added to what is no name or number"),
            };
        }
        let ends = |parser: &Self| {
            parser.peek().is_none_or(|t| {
                matches!(t.kind, Kind::Mark(b',' | b';' | b'}' | b')' | b']' | b'|') | Kind::Dotted)
            })
        };
        if ends(self) {
            return Ok(first);
        }
        // A constant expression: its value does not matter, its end does.
        if !matches!(first, Operand::Integer(_) | Operand::Float | Operand::List(_)) {
            let found = self.peek().map_or("", |t| self.slice(t));
            return self.fail(format!("expected `,` or `;`, found `{found}`"));
        }
        while !ends(self) {
            if self.is_mark(b'(') {
                self.skip_group()?;
            } else {
                self.next()?;
            }
        }
        Ok(Operand::Float)
    }

    fn operands_until(&mut self, close: u8, depth: u32) -> Result<Vec<Operand>, Unreadable> {
        let mut list = Vec::new();
        while !self.eat(close) {
            list.push(self.operand(depth + 1)?);
            if !self.eat(b',') && !self.is_mark(close) {
                return self.fail(format!("expected `,` or `{}`", char::from(close)));
            }
        }
        Ok(list)
    }

    /// Inside of `[ ]`: parts joined by signs, then what follows commas.
    fn address(&mut self, depth: u32) -> Result<Operand, Unreadable> {
        let mut parts = Vec::new();
        let mut negative = self.eat(b'-');
        loop {
            let part = match self.primary(depth)? {
                Operand::Integer(number) if negative => Operand::Integer(number.wrapping_neg()),
                part if negative => Operand::Negated(Box::new(part)),
                part => part,
            };
            parts.push(part);
            if self.eat(b'+') {
                negative = self.eat(b'-');
            } else if self.eat(b'-') {
                negative = true;
            } else {
                break;
            }
        }
        let mut rest = Vec::new();
        while self.eat(b',') {
            rest.push(self.operand(depth + 1)?);
        }
        self.expect(b']')?;
        Ok(Operand::Address(parts, rest))
    }

    fn primary(&mut self, depth: u32) -> Result<Operand, Unreadable> {
        let token = self.next()?;
        let text = self.slice(token);
        match token.kind {
            Kind::Number => Ok(integer(text).map_or(Operand::Float, Operand::Integer)),
            Kind::Dotted if text[1..].bytes().all(|b| b.is_ascii_digit()) => Ok(Operand::Float),
            Kind::Text => Ok(Operand::Float),
            Kind::Mark(b'(') => {
                self.at -= 1;
                self.skip_group()?;
                Ok(Operand::Float)
            }
            Kind::Word => self.named(text, depth),
            Kind::Dotted | Kind::Mark(_) => {
                self.at -= 1;
                self.fail(format!("expected an operand, found `{text}`"))
            }
        }
    }

    fn named(&mut self, text: &str, depth: u32) -> Result<Operand, Unreadable> {
        let binding = self.draft().find(text);
        let mut operand = match binding {
            Some(Binding::Reg(reg)) => Operand::Reg(reg),
            Some(Binding::Var(var)) => Operand::LocalVar(var, 0),
            None => match self.module_names.get(text) {
                Some(&var) => Operand::ModuleVar(var, 0),
                None if self.function_names.contains_key(text) => {
                    Operand::Function(text.to_owned())
                }
                None => Operand::Name(text.to_owned()),
            },
        };
        // Parts of special registers and of vectors: `%tid.x`, `v.y`, `a.b0`.
        let part = self.dotted().is_some_and(|name| {
            matches!(
                name,
                ".x" | ".y"
                    | ".z"
                    | ".w"
                    | ".r"
                    | ".g"
                    | ".b"
                    | ".a"
                    | ".b0"
                    | ".b1"
                    | ".b2"
                    | ".b3"
                    | ".h0"
                    | ".h1"
            ) || name.len() == 4
                && (name.starts_with(".b") || name.starts_with(".h"))
                && name[2..].bytes().all(|b| b.is_ascii_digit())
                && super::type_bits(name).is_none()
        });
        if part {
            if let (Operand::Name(name), Some(part)) = (&mut operand, self.dotted()) {
                name.push_str(part);
            }
            self.at += 1;
        }
        if self.is_mark(b'[') && matches!(operand, Operand::LocalVar(..) | Operand::ModuleVar(..)) {
            self.at += 1;
            let index = self.operand(depth + 1)?;
            self.expect(b']')?;
            let unit = match operand {
                Operand::LocalVar(var, _) => {
                    let var = &self.draft().vars[var as usize];
                    if var.space == Space::Param { 1 } else { i64::from(var.bytes.min(8)) }
                }
                _ => 1,
            };
            if let Operand::Integer(number) = index {
                let by = number.wrapping_mul(unit);
                operand = match operand {
                    Operand::LocalVar(var, at) => Operand::LocalVar(var, at.wrapping_add(by)),
                    Operand::ModuleVar(var, at) => Operand::ModuleVar(var, at.wrapping_add(by)),
                    other => other,
                };
            }
        }
        Ok(operand)
    }
}
