//! Roles: warps of a CTA that run statements of their own beside the others.

use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use crate::distribution::LANES;

/// Roles of a kernel at most: each has a named barrier, and number 0 is that of the whole CTA.
pub const MAX_ROLES: usize = 15;

/// Who runs the statements of a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// The author's name.
    pub name: String,
    /// Its first warp.
    pub first: u32,
    /// How many warps it has.
    pub warps: u32,
    /// `elect one`: the first thread alone runs it.
    pub elect: bool,
    /// `registers n`: registers of each of its threads while it runs.
    pub registers: Option<u32>,
    /// Where it is declared.
    #[serde(skip)]
    pub span: Span,
}

/// Registers of a multiprocessor.
const FILE: u32 = 1 << 16;

/// Warps that change their registers together.
pub const WARPGROUP: u32 = 4;

/// Registers that a thread has at the entry of a kernel with budgets: as many as fit, in steps of 8.
pub fn entry_registers(threads: u32, min_ctas: Option<u32>) -> u32 {
    /// What a thread can have at its entry.
    const MOST: u32 = 248;
    let all = threads.saturating_mul(min_ctas.unwrap_or(1)).max(1);
    (FILE / all / 8 * 8).min(MOST)
}

impl Role {
    /// Threads of its warps; those that `elect one` leaves out are among them.
    pub fn threads(&self) -> u32 {
        self.warps * LANES
    }

    /// Threads that run its statements.
    pub fn active(&self) -> u32 {
        if self.elect { 1 } else { self.threads() }
    }

    /// Its first thread, counted in the CTA.
    pub fn first_thread(&self) -> u32 {
        self.first * LANES
    }

    /// What is written behind the warps: ` elect one registers 24`.
    pub fn how(&self) -> String {
        let elect = if self.elect { " elect one" } else { "" };
        self.registers.map_or(elect.to_owned(), |n| format!("{elect} registers {n}"))
    }

    /// The warps, as they are written: `4..8`.
    pub fn range(&self) -> String {
        format!("{}..{}", self.first, self.first + self.warps)
    }
}
