//! One kernel as both readers hand it to the rules: a program, and what each instruction does.

use crate::dataflow::{Program, Source};

/// A kernel with everything that it calls, ready to be judged.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    /// Names of the variables in global memory, by their index in the module.
    pub(crate) globals: Vec<String>,
    pub(crate) program: Program,
    pub(crate) initial: Vec<(u32, crate::values::ValueId)>,
    pub(crate) values: crate::values::Values,
    pub(crate) roles: Vec<Role>,
    pub(crate) places: Vec<Place>,
    /// What was not understood, and makes the kernel not judged.
    pub(crate) gaps: Vec<Gap>,
    /// What rules of proxies ask for; empty for machine code.
    pub(crate) traffic: crate::traffic::Traffic,
}

/// A parameter of the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    /// Name in PTX, `#0` in a cubin.
    pub(crate) label: String,
    pub(crate) bytes: u32,
    /// Whether the declaration itself says that it is a pointer.
    pub(crate) is_pointer: bool,
    /// Whether it is passed as bytes, so that any part of it may be a pointer.
    pub(crate) is_bytes: bool,
}

/// Where an instruction stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// Number of the PTX instruction in its module, or of the line in the machine code.
    pub(crate) id: u32,
    /// Address in the machine code.
    pub(crate) address: u64,
}

/// An instruction that was not understood.
#[derive(Clone, Debug)]
pub(crate) struct Gap {
    /// The node, where the gap belongs to one; a gap without node counts always.
    pub(crate) node: Option<u32>,
    pub(crate) message: String,
}

/// Which memory an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Global memory, said in the instruction.
    Global,
    /// No state space: the address decides.
    Generic,
}

/// How a load orders itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Weak,
    /// Relaxed, volatile, or made to reach memory each time: a wait when its own branch repeats it.
    Strong,
    Acquire,
}

/// What an instruction means to the rules.
#[derive(Clone, Debug)]
pub(crate) enum Role {
    /// Nothing.
    None,
    /// Reads data from memory that others may write.
    Read { noncoherent: bool, order: Order, named: Named, addr: Vec<Source> },
    /// Reads through a texture or surface handle.
    Texture { handle: Vec<Source> },
    /// An atomic; `polls` where it can be the repeated test of a flag or a lock.
    Atomic { acquire: bool, polls: bool, named: Named, addr: Vec<Source> },
    /// Names an address without reading data that others write.
    Touch { addr: Vec<Source> },
    /// Waits for the grids before this one.
    GridWait,
    /// Tells the grids after this one that they may start.
    GridLaunch,
    /// Orders threads of the own CTA or cluster among each other; one that only arrives does not wait for the others.
    Barrier { waits: bool, cluster: bool },
    /// Reads shared memory, of the own CTA or of another one of the cluster.
    SharedRead,
    /// Another synchronisation that brings no data from outside.
    Fence,
}

impl Role {
    /// The sum that makes the address, where there is one.
    pub(crate) fn address(&self) -> Option<&Vec<Source>> {
        match self {
            Role::Read { addr, .. } | Role::Atomic { addr, .. } | Role::Touch { addr } => {
                Some(addr)
            }
            Role::Texture { handle } => Some(handle),
            Role::None
            | Role::GridWait
            | Role::GridLaunch
            | Role::Barrier { .. }
            | Role::SharedRead
            | Role::Fence => None,
        }
    }
}

/// Functions outside of the file that read no memory of the kernel's data.
pub(crate) fn is_harmless_function(name: &str) -> bool {
    matches!(name, "vprintf" | "__assertfail" | "malloc" | "free" | "__nvvm_reflect")
}
