//! Who may write a buffer while a kernel runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The qualifier of a kernel parameter. It decides which load instruction is legal: only `Static`
/// data may ever be read by a non-coherent load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Nobody writes it while any kernel that names it can run.
    Static,
    /// Written by an earlier kernel of the stream.
    Input,
    /// Written here; earlier kernels may still read or write it.
    Output,
    /// Read and written here.
    Inout,
    /// Private to the launch; earlier launches may have used it.
    Scratch,
    /// Symmetric memory: remote writes arrive at any time.
    Peer,
    /// A multicast address of symmetric memory: one store goes to all ranks, one load folds what all have.
    Multicast,
    /// By-value argument.
    Scalar,
}

impl Access {
    /// The qualifier as the language writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Static => "static",
            Access::Input => "input",
            Access::Output => "output",
            Access::Inout => "inout",
            Access::Scratch => "scratch",
            Access::Peer => "peer",
            Access::Multicast => "multicast",
            Access::Scalar => "scalar",
        }
    }

    /// True where the kernel itself may store.
    pub const fn is_writable(self) -> bool {
        matches!(self, Access::Output | Access::Inout | Access::Scratch | Access::Peer)
    }

    /// True where a read is legal before the kernel has waited for its predecessors.
    pub const fn may_read_before_wait(self) -> bool {
        matches!(self, Access::Static | Access::Scalar)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
