//! Machine code: the text of the disassembler to structure, and structure to a kernel for the rules.

pub(crate) mod elf;
pub(crate) mod lower;
pub(crate) mod opcode;
pub(crate) mod parse;

/// All code of a cubin.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) sections: Vec<Section>,
}

/// The code of one section: a kernel with its own subroutines.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) name: String,
    pub(crate) is_entry: bool,
    pub(crate) instructions: Vec<Instruction>,
    /// Names of places, with the index of the instruction that follows.
    pub(crate) labels: Vec<(String, u32)>,
}

/// One machine instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    pub(crate) guard: Option<Predicate>,
    /// The opcode before its first dot.
    pub(crate) base: String,
    pub(crate) modifiers: Vec<String>,
    pub(crate) operands: Vec<Operand>,
    /// The line that it was made from, with its file.
    pub(crate) line: Option<Line>,
}

/// A line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) file: std::rc::Rc<str>,
    pub(crate) line: u32,
}

/// A predicate; `reg` is none for the one that always holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Predicate {
    pub(crate) reg: Option<u32>,
    pub(crate) negated: bool,
}

/// A register of either file, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reg {
    /// Reads as zero, and forgets what is written.
    Zero,
    Numbered(u32),
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Reg {
        reg: Reg,
        negated: bool,
    },
    Predicate(Predicate),
    Integer(i64),
    /// A constant bank: bank, register added to the offset, offset.
    Constant {
        bank: u32,
        index: Option<Reg>,
        offset: i64,
    },
    /// A bracketed address.
    Address(Vec<Operand>),
    /// A name in the code.
    Label(String),
    /// The special register that says where shared memory of the CTA starts in its cluster.
    CtaInCluster,
    Other,
}

impl Operand {
    /// The number of a register that is not the zero register.
    pub(crate) fn register(&self) -> Option<u32> {
        if let Operand::Reg { reg: Reg::Numbered(number), .. } = self {
            Some(*number)
        } else {
            None
        }
    }

    /// The register of a predicate that is not the constant one.
    pub(crate) fn predicate(&self) -> Option<u32> {
        if let Operand::Predicate(predicate) = self { predicate.reg } else { None }
    }

    /// The value of an integer.
    pub(crate) fn integer(&self) -> Option<i64> {
        if let Operand::Integer(number) = self { Some(*number) } else { None }
    }

    /// The name of a place in the code.
    pub(crate) fn label(&self) -> Option<&str> {
        if let Operand::Label(name) = self { Some(name) } else { None }
    }

    /// The parts of a bracketed address.
    pub(crate) fn address(&self) -> Option<&[Operand]> {
        if let Operand::Address(parts) = self { Some(parts) } else { None }
    }
}

/// Vector registers come first, then uniform ones, then predicates of both kinds.
pub(crate) const FIRST_UNIFORM: u32 = 256;
pub(crate) const FIRST_PREDICATE: u32 = 512;
pub(crate) const FIRST_UNIFORM_PREDICATE: u32 = 520;
/// What a barrier with a reduction leaves.
pub(crate) const BARRIER_RESULT: u32 = 528;
pub(crate) const REGISTERS: u32 = 529;
