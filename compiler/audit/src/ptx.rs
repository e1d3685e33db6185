//! PTX modules of any origin: text to structure, and structure to a kernel for the rules.

pub(crate) mod effect;
pub(crate) mod inline;
pub(crate) mod lower;
pub(crate) mod parse;
pub(crate) mod rewrite;
pub(crate) mod token;

/// A PTX module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) functions: Vec<Function>,
    pub(crate) vars: Vec<Var>,
    /// All instructions in the order of the text; the index is the number of the instruction.
    pub(crate) places: Vec<SourcePlace>,
    /// Spans of the text that belong to debug information.
    pub(crate) debug_spans: Vec<(usize, usize)>,
    /// Where a `.file` directive may stand.
    pub(crate) header_end: usize,
    /// Whether addresses have 64 bits.
    pub(crate) wide: bool,
}

/// Where an instruction stands in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourcePlace {
    pub(crate) line: u32,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// Line of the `.loc` in force, 0 where there is none.
    pub(crate) loc: u32,
}

/// The state space of a variable or an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Const,
    Local,
    Param,
    Texture,
}

/// A variable outside registers.
#[derive(Clone, Debug)]
pub(crate) struct Var {
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) bytes: u32,
    /// Declared with a pointer attribute.
    pub(crate) is_pointer: bool,
    /// Declared as an array of bytes or words.
    pub(crate) is_array: bool,
}

/// A register, by its index in the function.
pub(crate) type RegId = u32;

/// A parameter or a return value of a function.
#[derive(Clone, Debug)]
pub(crate) enum Formal {
    Var(u32),
    Reg(RegId),
}

/// A kernel or a device function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) is_entry: bool,
    pub(crate) params: Vec<Formal>,
    pub(crate) returns: Vec<Formal>,
    pub(crate) body: Option<Body>,
    pub(crate) vars: Vec<Var>,
    /// Number of registers.
    pub(crate) regs: u32,
    /// Threads of a CTA at most, where the function says so.
    pub(crate) threads: Option<u32>,
}

/// The instructions of a function.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) instructions: Vec<Instruction>,
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// Number in the module.
    pub(crate) id: u32,
    pub(crate) guard: Option<(RegId, bool)>,
    pub(crate) opcode: String,
    pub(crate) modifiers: Vec<String>,
    pub(crate) operands: Vec<Operand>,
    /// Indices of the instructions that a branch may go to.
    pub(crate) targets: Targets,
}

/// Where control may go besides the next instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Targets {
    None,
    Labels(Vec<u32>),
    /// The label or the table is not in the function.
    Unknown,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Reg(RegId),
    /// A special register, a label, or a name that is not known.
    Name(String),
    /// A variable of the module, with a constant added.
    ModuleVar(u32, i64),
    /// A variable of the function, with a constant added.
    LocalVar(u32, i64),
    /// A function of the module by its name.
    Function(String),
    Integer(i64),
    Float,
    Vector(Vec<Operand>),
    /// A bracketed address: the parts that are added up, and what follows a comma inside.
    Address(Vec<Operand>, Vec<Operand>),
    /// Arguments in parentheses.
    List(Vec<Operand>),
    /// `a|b`.
    Pair(Box<Operand>, Box<Operand>),
    /// `!a` or `-a`.
    Negated(Box<Operand>),
}

impl Operand {
    /// The register, where the operand is one.
    pub(crate) fn register(&self) -> Option<RegId> {
        if let Operand::Reg(reg) = self { Some(*reg) } else { None }
    }

    /// The items of a list in parentheses; none where the operand is something else.
    pub(crate) fn items(&self) -> &[Operand] {
        if let Operand::List(items) = self { items } else { &[] }
    }
}
