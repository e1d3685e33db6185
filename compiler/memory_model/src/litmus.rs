//! Litmus tests: their text and what it says.
//!
//! The dialect is the one of Dat3M's PTX tests: a name, prose, a block of initial values and aliases, a table
//! with a column for each thread, an optional filter, and a condition under `exists`, `~exists` or `forall`.
//! `docs/memory-model.md` has the grammar.

mod condition;
mod instruction;
mod parse;
mod token;

pub use self::condition::{Compare, Condition, Operand};
pub use self::instruction::{
    Barrier, BarrierMode, Branch, Instruction, Line, Memory, Operation, Value,
};
pub use self::parse::{MAX_INSTRUCTIONS, MAX_LOCATIONS, MAX_THREADS, parse};
pub use self::token::MAX_BYTES;

use crate::code::Spot;
use crate::event::Position;

/// What a register or a location holds: 64 bits, as in the tests that the verdicts come from.
pub type Word = i64;

/// A name for memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The name.
    pub name: String,
    /// The memory: locations with the same number are the same bytes.
    pub object: u32,
    /// The virtual address by which the bytes are reached.
    pub mapping: u32,
    /// Whether the name is an alias of another one, by a proxy or by a virtual address.
    pub is_alias: bool,
    /// The initial value.
    pub init: Word,
}

/// A column of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// The number in its name, `P0`.
    pub number: u32,
    /// Where it runs.
    pub position: Position,
    /// The names of its registers.
    pub registers: Vec<String>,
    /// What the registers hold at the start.
    pub init: Vec<Word>,
    /// The program.
    pub code: Vec<Line>,
}

/// What is asked of the executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantifier {
    /// Is there one that ends so?
    Exists,
    /// Is there none that ends so? (The answer is about the state, as for `exists`.)
    NotExists,
    /// Do all end so?
    Forall,
}

impl Quantifier {
    /// The word of the dialect.
    pub const fn name(self) -> &'static str {
        match self {
            Quantifier::Exists => "exists",
            Quantifier::NotExists => "~exists",
            Quantifier::Forall => "forall",
        }
    }
}

/// A test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// Every location that it names.
    pub locations: Vec<Location>,
    /// Its threads, in the order of the columns.
    pub threads: Vec<Thread>,
    /// Only executions that end so count.
    pub filter: Option<Condition>,
    /// What is asked.
    pub quantifier: Quantifier,
    /// How executions end.
    pub condition: Condition,
    /// The first place where the test uses a proxy or an alias, which model 6.0 does not have.
    pub proxies: Option<Spot>,
}
