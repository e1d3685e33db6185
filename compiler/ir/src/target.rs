//! What kernels are compiled for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A GPU architecture, in its architecture-specific form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    /// Hopper: H100, H200.
    Sm90a,
    /// Blackwell: B200, GB200.
    Sm100a,
    /// Blackwell Ultra: B300, GB300.
    Sm103a,
}

/// What a target offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetInfo {
    /// Name for `--target`, ptxas and LLVM.
    pub name: &'static str,
    /// PTX version times ten: 88 is PTX 8.8. sm_100a needs 86, sm_103a needs 88 or later.
    pub ptx_version: u32,
    /// Shared memory that one CTA can have, in bytes (227 KiB on all three).
    pub max_shared_bytes: u32,
    /// Warps of a CTA at most.
    pub max_warps: u32,
    /// Registers of a thread at most.
    pub max_registers: u32,
    /// Widest global load or store of one thread, in bytes. 32 needs Blackwell; the compiler uses 16 on all
    /// targets until a measurement says that 32 pays.
    pub max_vector_bytes: u32,
}

impl Target {
    /// All targets, oldest first.
    pub const ALL: [Target; 3] = [Target::Sm90a, Target::Sm100a, Target::Sm103a];

    /// The target's row of the table.
    pub const fn info(self) -> TargetInfo {
        const HOPPER: TargetInfo = TargetInfo {
            name: "sm_90a",
            ptx_version: 88,
            max_shared_bytes: 227 * 1024,
            max_warps: 32,
            max_registers: 255,
            max_vector_bytes: 16,
        };
        match self {
            Target::Sm90a => HOPPER,
            Target::Sm100a => TargetInfo { name: "sm_100a", ..HOPPER },
            Target::Sm103a => TargetInfo { name: "sm_103a", ..HOPPER },
        }
    }

    /// The name, as in `target sm_90a;`.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The target of that name.
    pub fn from_name(name: &str) -> Option<Target> {
        Target::ALL.into_iter().find(|t| t.name() == name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
