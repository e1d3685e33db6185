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
    /// Where it is declared.
    #[serde(skip)]
    pub span: Span,
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

    /// The warps, as they are written: `4..8`.
    pub fn range(&self) -> String {
        format!("{}..{}", self.first, self.first + self.warps)
    }
}
