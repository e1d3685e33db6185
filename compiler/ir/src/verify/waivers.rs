//! Waivers: `// allow E0107: reason` before a statement silences findings of that code in it.

use kernel_dsl::diag::{Code, Diagnostic};

use crate::kernel::Waiver;

/// A finding that the author has waived.
#[derive(Debug, Clone)]
pub struct Waived {
    /// What was found.
    pub diagnostic: Diagnostic,
    /// Why the author accepts it.
    pub reason: String,
}

/// What only kernels of several CTAs can do wrong.
const BETWEEN_CTAS: [Code; 3] = [Code::E0116, Code::E0172, Code::E0175];

/// The number of the waiver that silences a finding.
pub(super) fn silencing(waivers: &[Waiver], found: &Diagnostic) -> Option<usize> {
    waivers.iter().position(|waiver| {
        waiver.code == found.code.name()
            && found.primary().is_some_and(|label| {
                let (span, of) = (label.span, waiver.span);
                span.file == of.file && of.lo <= span.lo && span.hi <= of.hi
            })
    })
}

/// Splits `found` into what stands and what is waived; a waiver that silences nothing is a warning, but for what takes more
/// CTAs than the bindings of the kernel give.
pub(super) fn apply(
    waivers: &[Waiver],
    found: Vec<Diagnostic>,
    grid: [u32; 3],
) -> (Vec<Diagnostic>, Vec<Waived>) {
    let mut used = vec![false; waivers.len()];
    let mut standing = Vec::new();
    let mut waived = Vec::new();
    for diagnostic in found {
        match silencing(waivers, &diagnostic) {
            Some(index) => {
                used[index] = true;
                waived.push(Waived { diagnostic, reason: waivers[index].reason.clone() });
            }
            None => standing.push(diagnostic),
        }
    }
    let is_alone = grid == [1; 3];
    for (waiver, used) in waivers.iter().zip(used) {
        let may_be_idle = is_alone && BETWEEN_CTAS.iter().any(|code| code.name() == waiver.code);
        if !used && !may_be_idle {
            standing.push(
                Diagnostic::warning(
                    Code::E0112,
                    format!("this waiver of {} silences nothing", waiver.code),
                )
                .label(waiver.span, "no such finding in this statement")
                .help("remove the waiver"),
            );
        }
    }
    (standing, waived)
}
