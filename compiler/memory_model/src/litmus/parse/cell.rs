//! One cell of the table: a label, an instruction, both or nothing.

use super::super::condition::Compare;
use super::super::instruction::{
    Barrier, BarrierMode, Branch, Instruction, Line, Memory, Operation, Value,
};
use super::super::token::{Sign, Token};
use super::cursor::Cursor;
use super::names::Names;
use super::{is_name, is_number, is_register, number, spelled};
use crate::code::{Code, Diagnostic, Spot};
use crate::event::{FenceOrder, Proxy, ProxyFence, Scope, Strength};

/// Reads a cell of a column.
pub(super) fn read(cell: &[Token<'_>], column: usize, names: &mut Names) -> Result<(), Diagnostic> {
    let Some(first) = cell.first() else { return Ok(()) };
    let mut cursor = Cursor::within(cell, first.spot);
    if let (Some(Sign::Word(label)), Some(Sign::Mark(":"))) = (cursor.peek(0), cursor.peek(1)) {
        if !is_name(label) {
            return Err(Diagnostic::new(Code::M0102, first.spot, format!("`{label}` is no label")));
        }
        names.add_label(column, label, first.spot)?;
        cursor.advance();
        cursor.advance();
        if cursor.is_at_end() {
            return Ok(());
        }
    }
    let (spot, text) = (cursor.spot(), spelled(cursor.rest()));
    let mut reader = Reader { cursor, column, names, spot };
    let instruction = reader.instruction()?;
    if !reader.cursor.is_at_end() {
        return Err(reader.cursor.unexpected("the end of the instruction"));
    }
    names.add_line(column, Line { instruction, spot, text })
}

/// A qualifier that says how strong an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Weak,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
    Sc,
    /// `relaxed.sys`.
    Volatile,
}

/// The qualifiers of an opcode, sorted by what they say.
#[derive(Debug, Default)]
struct Qualifiers {
    order: Option<Order>,
    scope: Option<Scope>,
    operation: Option<Update>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Update {
    Operation(Operation),
    CompareAndSwap,
}

struct Reader<'c, 't> {
    cursor: Cursor<'t>,
    column: usize,
    names: &'c mut Names,
    spot: Spot,
}

impl<'t> Reader<'_, 't> {
    fn instruction(&mut self) -> Result<Instruction, Diagnostic> {
        let opcode = self.cursor.word("an instruction")?;
        let mut parts = opcode.split('.');
        let name = parts.next().unwrap_or(opcode);
        let parts: Vec<&str> = parts.collect();
        match name {
            "ld" => self.load(Proxy::Generic, &parts),
            "tld" => self.load(Proxy::Texture, &parts),
            "suld" => self.load(Proxy::Surface, &parts),
            "cold" => self.load(Proxy::Constant, &parts),
            "st" => self.store(Proxy::Generic, &parts),
            "sust" => self.store(Proxy::Surface, &parts),
            "atom" => self.atom(Proxy::Generic, &parts),
            "suatom" => self.atom(Proxy::Surface, &parts),
            "red" => self.reduce(Proxy::Generic, &parts),
            "sured" => self.reduce(Proxy::Surface, &parts),
            "fence" => self.fence(&parts),
            "membar" => self.membar(&parts),
            "bar" | "barrier" => self.barrier(&parts),
            "goto" | "bra" if parts.is_empty() => self.branch(None),
            "mov" if parts.is_empty() => self.move_value(),
            _ if parts.is_empty() => match (compare(name), arithmetic(name)) {
                (Some(compare), _) => self.branch(Some(compare)),
                (None, Some(operation)) => self.compute(operation),
                (None, None) => Err(self.unknown(opcode)),
            },
            _ => Err(self.unknown(opcode)),
        }
    }

    fn unknown(&self, opcode: &str) -> Diagnostic {
        let message = format!("`{opcode}` is no instruction of the dialect");
        Diagnostic::new(Code::M0103, self.spot, message)
    }

    fn wrong(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Code::M0104, self.spot, message)
    }

    fn qualifiers(&self, parts: &[&str]) -> Result<Qualifiers, Diagnostic> {
        let mut found = Qualifiers::default();
        // `.mmio` asks that the access is really performed, which changes no order.
        for part in parts.iter().filter(|part| **part != "mmio") {
            let is_second = if let Some(order) = order(part) {
                found.order.replace(order).is_some()
            } else if let Some(scope) = scope(part) {
                found.scope.replace(scope).is_some()
            } else if let Some(update) = update(part) {
                found.operation.replace(update).is_some()
            } else {
                return Err(self.wrong(format!("`.{part}` is no qualifier of this instruction")));
            };
            if is_second {
                return Err(self.wrong(format!("`.{part}` says the same thing twice")));
            }
        }
        Ok(found)
    }

    /// The strength of a load or a store, whose strong kind is `own`.
    fn strength(
        &self,
        found: &Qualifiers,
        own: (Order, fn(Scope) -> Strength),
    ) -> Result<Strength, Diagnostic> {
        if found.operation.is_some() {
            return Err(self.wrong("loads and stores compute nothing"));
        }
        let scope = || found.scope.ok_or_else(|| self.wrong("a strong access needs a scope"));
        match found.order {
            None | Some(Order::Weak) if found.scope.is_none() => Ok(Strength::Weak),
            None | Some(Order::Weak) => Err(self.wrong("a weak access has no scope")),
            Some(Order::Volatile) if found.scope.is_none() => Ok(Strength::Relaxed(Scope::Sys)),
            Some(Order::Relaxed) => Ok(Strength::Relaxed(scope()?)),
            Some(order) if order == own.0 => Ok(own.1(scope()?)),
            Some(order) => {
                Err(self.wrong(format!("{order:?} does not fit this access").to_lowercase()))
            }
        }
    }

    fn load(&mut self, proxy: Proxy, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let found = self.qualifiers(parts)?;
        let into = self.register()?;
        self.cursor.expect(",")?;
        let is_plain = matches!(found.order, None | Some(Order::Weak)) && found.scope.is_none();
        if let Some(Sign::Word(word)) = self.cursor.peek(0)
            && (is_number(word) || is_register(word))
        {
            if !is_plain || proxy != Proxy::Generic {
                return Err(self.wrong("this load needs a location"));
            }
            let right = self.value()?;
            let left = Value::Constant(0);
            return Ok(Instruction::Compute { into, operation: Operation::Exchange, left, right });
        }
        let read = self.strength(&found, (Order::Acquire, Strength::Acquire))?;
        let memory = self.memory(proxy, read, Strength::Weak)?;
        Ok(Instruction::Load { into, memory })
    }

    fn store(&mut self, proxy: Proxy, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let found = self.qualifiers(parts)?;
        let write = self.strength(&found, (Order::Release, Strength::Release))?;
        let memory = self.memory(proxy, Strength::Weak, write)?;
        self.cursor.expect(",")?;
        Ok(Instruction::Store { memory, value: self.value()? })
    }

    /// The strengths of both halves of an update: relaxed and of the device where nothing is said.
    fn halves(&self, found: &Qualifiers) -> Result<(Strength, Strength), Diagnostic> {
        let scope = found.scope.unwrap_or(Scope::Gpu);
        let relaxed = Strength::Relaxed(scope);
        Ok(match found.order {
            None | Some(Order::Relaxed) => (relaxed, relaxed),
            Some(Order::Acquire) => (Strength::Acquire(scope), relaxed),
            Some(Order::Release) => (relaxed, Strength::Release(scope)),
            Some(Order::AcqRel) => (Strength::Acquire(scope), Strength::Release(scope)),
            Some(Order::Weak | Order::Sc | Order::Volatile) => {
                return Err(self.wrong("an update is relaxed, acquire, release or acq_rel"));
            }
        })
    }

    fn atom(&mut self, proxy: Proxy, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let found = self.qualifiers(parts)?;
        let (read, write) = self.halves(&found)?;
        let update = found.operation.ok_or_else(|| self.wrong("an update needs an operation"))?;
        let into = self.register()?;
        self.cursor.expect(",")?;
        let memory = self.memory(proxy, read, write)?;
        self.cursor.expect(",")?;
        let first = self.value()?;
        Ok(match update {
            Update::Operation(operation) => {
                Instruction::Update { into: Some(into), memory, operation, value: first }
            }
            Update::CompareAndSwap => {
                self.cursor.expect(",")?;
                let value = self.value()?;
                Instruction::CompareAndSwap { into, memory, expected: first, value }
            }
        })
    }

    fn reduce(&mut self, proxy: Proxy, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let found = self.qualifiers(parts)?;
        let (read, write) = self.halves(&found)?;
        let operation = match found.operation {
            Some(Update::Operation(operation)) if operation != Operation::Exchange => operation,
            Some(_) => return Err(self.wrong("`red` neither exchanges nor compares")),
            None => return Err(self.wrong("an update needs an operation")),
        };
        let memory = self.memory(proxy, read, write)?;
        self.cursor.expect(",")?;
        Ok(Instruction::Update { into: None, memory, operation, value: self.value()? })
    }

    fn fence(&mut self, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        if let Some(("proxy", kind)) = parts.split_first().map(|(first, rest)| (*first, rest)) {
            return self.proxy_fence(kind);
        }
        let found = self.qualifiers(parts)?;
        let order = match found.order {
            None | Some(Order::AcqRel) => FenceOrder::AcqRel,
            Some(Order::Sc) => FenceOrder::Sc,
            Some(Order::Acquire) => FenceOrder::Acquire,
            Some(Order::Release) => FenceOrder::Release,
            Some(Order::Weak | Order::Relaxed | Order::Volatile) => {
                return Err(self.wrong("a fence is acquire, release, acq_rel or sc"));
            }
        };
        match (found.scope, found.operation) {
            (Some(scope), None) => Ok(Instruction::Fence(order, scope)),
            (None, None) => Err(self.wrong("a fence needs a scope")),
            (_, Some(_)) => Err(self.wrong("a fence computes nothing")),
        }
    }

    fn proxy_fence(&mut self, kind: &[&str]) -> Result<Instruction, Diagnostic> {
        let fence = match kind {
            ["alias"] => ProxyFence::Alias,
            ["generic"] => ProxyFence::Proxy(Proxy::Generic),
            ["constant"] => ProxyFence::Proxy(Proxy::Constant),
            ["texture"] => ProxyFence::Proxy(Proxy::Texture),
            ["surface"] => ProxyFence::Proxy(Proxy::Surface),
            ["async"] | ["async", "global" | "shared::cta" | "shared::cluster"] => {
                ProxyFence::Proxy(Proxy::Async)
            }
            _ => {
                let message =
                    "a proxy fence is of alias, generic, constant, texture, surface or async";
                return Err(self.wrong(message));
            }
        };
        self.names.note_proxy(self.spot);
        Ok(Instruction::ProxyFence(fence))
    }

    fn membar(&mut self, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let scope = match parts {
            ["cta"] => Scope::Cta,
            ["gl" | "gpu"] => Scope::Gpu,
            ["sys"] => Scope::Sys,
            ["proxy", kind @ ..] => return self.proxy_fence(kind),
            _ => return Err(self.wrong("`membar` is of cta, gl or sys")),
        };
        Ok(Instruction::Fence(FenceOrder::Sc, scope))
    }

    fn barrier(&mut self, parts: &[&str]) -> Result<Instruction, Diagnostic> {
        let parts: Vec<&str> = parts.iter().copied().filter(|part| *part != "aligned").collect();
        let mode = match parts.as_slice() {
            ["cluster", "arrive"] | ["cluster", "arrive", "release"] => {
                return Ok(Instruction::ClusterArrive(true));
            }
            ["cluster", "arrive", "relaxed"] => return Ok(Instruction::ClusterArrive(false)),
            ["cluster", "wait"] | ["cluster", "wait", "acquire"] => {
                return Ok(Instruction::ClusterWait);
            }
            ["sync" | "red"] | ["cta", "sync" | "red"] => BarrierMode::Sync,
            ["arrive"] | ["cta", "arrive"] => BarrierMode::Arrive,
            _ => {
                return Err(
                    self.wrong("a barrier is sync, red or arrive of a cta, or of a cluster")
                );
            }
        };
        let instance = self.value()?;
        let mut more = [None, None];
        for operand in &mut more {
            if self.cursor.takes(",") {
                *operand = Some(self.value()?);
            }
        }
        let [resource, quorum] = more;
        Ok(Instruction::Barrier(Barrier { mode, instance, resource, quorum }))
    }

    fn move_value(&mut self) -> Result<Instruction, Diagnostic> {
        let into = self.register()?;
        self.cursor.expect(",")?;
        let (left, right) = (Value::Constant(0), self.value()?);
        Ok(Instruction::Compute { into, operation: Operation::Exchange, left, right })
    }

    fn compute(&mut self, operation: Operation) -> Result<Instruction, Diagnostic> {
        let into = self.register()?;
        self.cursor.expect(",")?;
        let left = self.value()?;
        self.cursor.expect(",")?;
        Ok(Instruction::Compute { into, operation, left, right: self.value()? })
    }

    fn branch(&mut self, compare: Option<Compare>) -> Result<Instruction, Diagnostic> {
        let condition = match compare {
            None => None,
            Some(compare) => {
                let left = self.value()?;
                self.cursor.expect(",")?;
                let right = self.value()?;
                self.cursor.expect(",")?;
                Some((left, compare, right))
            }
        };
        let spot = self.cursor.spot();
        let label = self.cursor.word("a label")?;
        self.names.add_jump(self.column, label, spot);
        Ok(Instruction::Branch(Branch { condition, target: 0 }))
    }

    fn register(&mut self) -> Result<usize, Diagnostic> {
        let spot = self.cursor.spot();
        let name = self.cursor.word("a register")?;
        self.names.register(self.column, name, spot)
    }

    fn value(&mut self) -> Result<Value, Diagnostic> {
        let spot = self.cursor.spot();
        let word = self.cursor.word("a number or a register")?;
        if is_number(word) {
            return Ok(Value::Constant(number(word, spot)?));
        }
        self.names.register(self.column, word, spot).map(Value::Register)
    }

    fn memory(
        &mut self,
        proxy: Proxy,
        read: Strength,
        write: Strength,
    ) -> Result<Memory, Diagnostic> {
        let is_bracketed = self.cursor.takes("[");
        let spot = self.cursor.spot();
        let name = self.cursor.word("a location")?;
        if is_register(name) {
            let message = "addresses in registers are not read; name the location";
            return Err(Diagnostic::new(Code::M0102, spot, message));
        }
        let location = self.names.location(name, spot)?;
        if is_bracketed {
            self.cursor.expect("]")?;
        }
        if proxy != Proxy::Generic {
            self.names.note_proxy(self.spot);
        }
        Ok(Memory { location, proxy, read, write })
    }
}

fn order(word: &str) -> Option<Order> {
    Some(match word {
        "weak" => Order::Weak,
        "relaxed" => Order::Relaxed,
        "acquire" => Order::Acquire,
        "release" => Order::Release,
        "acq_rel" => Order::AcqRel,
        "sc" => Order::Sc,
        "volatile" => Order::Volatile,
        _ => return None,
    })
}

fn scope(word: &str) -> Option<Scope> {
    Some(match word {
        "cta" => Scope::Cta,
        "cluster" => Scope::Cluster,
        "gpu" => Scope::Gpu,
        "sys" => Scope::Sys,
        _ => return None,
    })
}

fn update(word: &str) -> Option<Update> {
    Some(match word {
        "exch" => Update::Operation(Operation::Exchange),
        "inc" => Update::Operation(Operation::Inc),
        "dec" => Update::Operation(Operation::Dec),
        "cas" => Update::CompareAndSwap,
        _ => Update::Operation(arithmetic(word)?),
    })
}

fn arithmetic(word: &str) -> Option<Operation> {
    Some(match word {
        "add" => Operation::Add,
        "sub" => Operation::Sub,
        "mul" => Operation::Mul,
        "div" => Operation::Div,
        "and" => Operation::And,
        "or" => Operation::Or,
        "xor" => Operation::Xor,
        "min" => Operation::Min,
        "max" => Operation::Max,
        _ => return None,
    })
}

fn compare(word: &str) -> Option<Compare> {
    Some(match word {
        "beq" => Compare::Equal,
        "bne" => Compare::NotEqual,
        "blt" => Compare::Less,
        "ble" => Compare::LessEqual,
        "bgt" => Compare::Greater,
        "bge" => Compare::GreaterEqual,
        _ => return None,
    })
}
