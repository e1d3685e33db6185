//! The machine code of a PTX module, made with one line for each PTX instruction.

use crate::analysis::{Facts, Said, analyse};
use crate::kernel::Kernel;
use crate::moved::{self, Move};
use crate::ptx::{Module, rewrite};
use crate::sass::{self, elf::CubinInfo, lower::Lines};
use crate::toolchain::{AssembleOptions, ToolError, Toolchain};

/// The machine code of a module.
pub(crate) struct Machine {
    code: sass::Code,
    info: CubinInfo,
}

/// What the machine code of a kernel shows.
#[derive(Default)]
pub(crate) struct Compared {
    pub(crate) moves: Vec<Move>,
    pub(crate) gaps: Vec<String>,
}

impl Machine {
    /// Assembles a copy of the PTX with lines, and disassembles it.
    pub(crate) fn make(
        ptx: &str,
        module: &Module,
        target: &str,
        tools: &dyn Toolchain,
    ) -> Result<Self, ToolError> {
        let options = AssembleOptions { target: target.to_owned(), line_info: true };
        let cubin = match tools.assemble(&rewrite::with_lines(ptx, module), &options) {
            Err(ToolError::Refused { .. }) => {
                // What the assembler says of the text itself names lines that the user knows.
                let options = AssembleOptions { target: target.to_owned(), line_info: false };
                tools.assemble(ptx, &options)?
            }
            other => other?,
        };
        let code = sass::parse::parse(&tools.disassemble(&cubin)?);
        Ok(Machine { code, info: sass::elf::read(&cubin).unwrap_or_default() })
    }

    /// Finds the loads of the kernel that moved.
    pub(crate) fn compare(&self, kernel: &Kernel, facts: &Facts) -> Compared {
        let section = self.code.sections.iter().position(|section| section.name == kernel.name);
        let Some(section) = section else {
            return Compared {
                moves: Vec::new(),
                gaps: vec!["the kernel is not in the machine code".to_owned()],
            };
        };
        let mut machine =
            sass::lower::lower(&self.code, section, &self.info, Lines::Of(rewrite::FILE));
        for place in &mut machine.places {
            place.id = match place.id {
                u32::MAX => u32::MAX,
                line => rewrite::id_of(line).unwrap_or(u32::MAX),
            };
        }
        let machine_facts = analyse(&mut machine, &Said::default());
        let gaps = machine
            .gaps
            .iter()
            .filter(|gap| gap.node.is_none_or(|node| machine_facts.live.contains(node)))
            .map(|gap| format!("in the machine code {}", gap.message))
            .collect();
        Compared { moves: moved::moves((kernel, facts), (&machine, &machine_facts)), gaps }
    }
}
