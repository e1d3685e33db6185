//! From the tree of a file to kernels whose shapes are numbers.
//!
//! * [`check`] reads every kernel and function without bindings: names, operations, arguments,
//!   qualifiers, headers. What parses and is not built in this version is refused here with one code,
//!   also where nothing calls it.
//! * [`instantiate`] takes one kernel, values for its `const` parameters and a target, and writes the
//!   kernel level of the IR: constants are folded, functions inlined, `unroll` loops written out,
//!   `const` choices decided, shapes and element types checked.
//!
//! Both collect what they find and report nothing twice. Neither reads files: a [`Program`] says which
//! imports it lacks, and the driver parses them. Neither panics on any tree; sizes, repetition and
//! nesting are limited, and constants are computed with checked arithmetic.

mod access;
mod atomics;
mod builtins;
mod calls;
mod check;
mod constants;
mod control;
mod copies;
mod elementwise;
mod expressions;
mod header;
mod inline;
mod inline_ptx;
mod limits;
mod lower;
mod mistakes;
mod moves;
mod multimem;
mod not_built;
mod operands;
mod packed;
mod pairs;
mod pieces;
mod pipes;
mod program;
mod ranks;
mod report;
mod roles;
mod scope;
mod smem;
mod statements;
mod stored;
mod suggest;
mod template;
mod tensor;
mod tiles;
mod tmem;
mod views;
mod warpgroup;
mod words;

pub use constants::ConstValue;
pub use program::{Import, Program};
pub use template::{Bindings, ConstParam, ConstType, KernelTemplate, Tuning};

use kernel_dsl::diag::{Diagnostic, Severity};

use crate::kernel::Kernel;
use crate::target::Target;

/// What [`check`] found.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The kernels of the root file, in order.
    pub templates: Vec<KernelTemplate>,
    /// Everything that is wrong without regard to bindings, by place.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Whether any finding refuses the program.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Checks all files of a program without bindings.
pub fn check(program: &Program) -> Checked {
    check::check(program)
}

/// Makes the kernel that a template stands for with these bindings on this target.
pub fn instantiate(
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
) -> Result<Kernel, Vec<Diagnostic>> {
    lower::instantiate(template, bindings, target)
}
