//! What a plan is refused for.

use thiserror::Error;

/// The stable code of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanCode {
    /// P0101: an id, a name or the number of ranks is not what it must be.
    Structure,
    /// P0102: an argument is missing, too many, or of the wrong kind, type or size.
    Argument,
    /// P0103: a buffer that a kernel declares `static` is not a weight, or a weight is written.
    StaticWritten,
    /// P0104: a read that no ordered write precedes.
    ReadBeforeWrite,
    /// P0105: two accesses, one of them a write, that no path orders.
    Race,
    /// P0106: a contract that the producer does not promise.
    Contract,
    /// P0107: a `settled` buffer that the launch before may still write.
    Settled,
    /// P0108: a collective or copy whose sizes or types do not fit.
    Collective,
    /// P0109: a weight is wanted in two orders, or what has a stored order is no weight that kernels alone read.
    Stored,
    /// P0110: memory that is touched before the wait while a launch that touches it too may still run.
    Early,
    /// P0111: memory that is touched behind a wait which does not cover a launch that touches it too.
    Chain,
    /// P0112: asynchronous copies read what earlier kernels have stored, and no fence is between.
    Proxy,
    /// P0113: ranks, or kernels, that do not agree on memory of ranks.
    Ranks,
    /// P0114: words of launches that something else touches, or that do not start at zero.
    Words,
    /// P0115: rows that are read and that their writer leaves out, or that ranks bound differently.
    Rows,
}

impl PlanCode {
    /// All of them, in order.
    pub const ALL: [PlanCode; 15] = [
        PlanCode::Structure,
        PlanCode::Argument,
        PlanCode::StaticWritten,
        PlanCode::ReadBeforeWrite,
        PlanCode::Race,
        PlanCode::Contract,
        PlanCode::Settled,
        PlanCode::Collective,
        PlanCode::Stored,
        PlanCode::Early,
        PlanCode::Chain,
        PlanCode::Proxy,
        PlanCode::Ranks,
        PlanCode::Words,
        PlanCode::Rows,
    ];

    /// What it is about, in one line.
    pub fn title(self) -> &'static str {
        match self {
            PlanCode::Structure => "id, name or number of ranks that is not what it must be",
            PlanCode::Argument => "argument that is missing or does not fit its parameter",
            PlanCode::StaticWritten => {
                "`static` data that is no weight, or a weight that is written"
            }
            PlanCode::ReadBeforeWrite => "read that no ordered write precedes",
            PlanCode::Race => "two accesses, one of them a write, that no path orders",
            PlanCode::Contract => "contract on values that nobody promises",
            PlanCode::Settled => "`settled` buffer that the launch before may still write",
            PlanCode::Collective => "collective or copy whose sizes or types do not fit",
            PlanCode::Stored => "weight that is wanted in two orders",
            PlanCode::Early => "access before the wait to what a launch that may still run touches",
            PlanCode::Chain => "wait that does not cover a launch further back",
            PlanCode::Proxy => {
                "asynchronous copy of what earlier kernels have stored, without a fence"
            }
            PlanCode::Ranks => "memory of ranks that ranks or kernels do not agree on",
            PlanCode::Words => {
                "counter, epoch or flag that is not the words of one kernel's launches"
            }
            PlanCode::Rows => "rows that are read and that their writer leaves out",
        }
    }

    /// Its text form.
    pub fn name(self) -> &'static str {
        match self {
            PlanCode::Structure => "P0101",
            PlanCode::Argument => "P0102",
            PlanCode::StaticWritten => "P0103",
            PlanCode::ReadBeforeWrite => "P0104",
            PlanCode::Race => "P0105",
            PlanCode::Contract => "P0106",
            PlanCode::Settled => "P0107",
            PlanCode::Collective => "P0108",
            PlanCode::Stored => "P0109",
            PlanCode::Early => "P0110",
            PlanCode::Chain => "P0111",
            PlanCode::Proxy => "P0112",
            PlanCode::Ranks => "P0113",
            PlanCode::Words => "P0114",
            PlanCode::Rows => "P0115",
        }
    }
}

/// One reason why a plan is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}: {node}: {message}", code.name())]
pub struct PlanError {
    /// The kind.
    pub code: PlanCode,
    /// Name of the node, or `plan`.
    pub node: String,
    /// What is wrong.
    pub message: String,
}
