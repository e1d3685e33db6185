//! The instructions of the dialect.

use super::Word;
use super::condition::Compare;
use crate::code::Spot;
use crate::event::{FenceOrder, Proxy, ProxyFence, Scope, Strength};

/// A number or a register of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Constant(Word),
    /// A register, by its place in the thread.
    Register(usize),
}

/// What `atom`, `red` and arithmetic compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Signed quotient; all ones when the divisor is zero.
    Div,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// Bits of one alone.
    Xor,
    /// Smaller, signed.
    Min,
    /// Larger, signed.
    Max,
    /// One more, from zero again past the operand.
    Inc,
    /// One less, from the operand again at zero or past it.
    Dec,
    /// The operand.
    Exchange,
}

impl Operation {
    /// What the operation makes of the old value and its operand.
    pub const fn apply(self, old: Word, operand: Word) -> Word {
        match self {
            Operation::Add => old.wrapping_add(operand),
            Operation::Sub => old.wrapping_sub(operand),
            Operation::Mul => old.wrapping_mul(operand),
            Operation::Div => {
                if operand == 0 {
                    -1
                } else {
                    old.wrapping_div(operand)
                }
            }
            Operation::And => old & operand,
            Operation::Or => old | operand,
            Operation::Xor => old ^ operand,
            Operation::Min => {
                if operand < old {
                    operand
                } else {
                    old
                }
            }
            Operation::Max => {
                if operand > old {
                    operand
                } else {
                    old
                }
            }
            Operation::Inc => {
                if old as u64 >= operand as u64 {
                    0
                } else {
                    old.wrapping_add(1)
                }
            }
            Operation::Dec => {
                if old == 0 || old as u64 > operand as u64 {
                    operand
                } else {
                    old.wrapping_sub(1)
                }
            }
            Operation::Exchange => operand,
        }
    }
}

/// Where and how an instruction accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The location, by its place in the test.
    pub location: usize,
    /// The proxy.
    pub proxy: Proxy,
    /// How strong the read is, if there is one.
    pub read: Strength,
    /// How strong the write is, if there is one.
    pub write: Strength,
}

/// How a thread meets others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BarrierMode {
    /// Arrives and waits.
    Sync,
    /// Arrives and goes on.
    Arrive,
}

/// `bar.cta.sync INSTANCE [, RESOURCE [, QUORUM]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// Whether the thread waits.
    pub mode: BarrierMode,
    /// Which barrier of the program.
    pub instance: Value,
    /// Which barrier of the hardware.
    pub resource: Option<Value>,
    /// How many arrivals open it; without it, all threads that have the barrier in their program.
    pub quorum: Option<Value>,
}

/// Where a branch goes, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// When it is taken; always if nothing is said.
    pub condition: Option<(Value, Compare, Value)>,
    /// The line it goes to.
    pub target: usize,
}

/// What one cell of the table does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instruction {
    /// `ld`, `tld`, `suld`, `cold`.
    Load {
        /// The register that gets the value.
        into: usize,
        /// What is read.
        memory: Memory,
    },
    /// `st`, `sust`.
    Store {
        /// What is written.
        memory: Memory,
        /// The value.
        value: Value,
    },
    /// `atom`, `red` and their surface forms.
    Update {
        /// The register that gets the old value; `None` for `red`.
        into: Option<usize>,
        /// What is updated.
        memory: Memory,
        /// How.
        operation: Operation,
        /// The operand.
        value: Value,
    },
    /// `atom.cas`.
    CompareAndSwap {
        /// The register that gets the old value.
        into: usize,
        /// What is updated.
        memory: Memory,
        /// The value that must be there.
        expected: Value,
        /// The value that takes its place.
        value: Value,
    },
    /// Arithmetic on registers.
    Compute {
        /// The register that gets the result.
        into: usize,
        /// How.
        operation: Operation,
        /// The first operand.
        left: Value,
        /// The second operand.
        right: Value,
    },
    /// `fence`, `membar`.
    Fence(FenceOrder, Scope),
    /// `fence.proxy`.
    ProxyFence(ProxyFence),
    /// `bar`, `barrier`.
    Barrier(Barrier),
    /// `barrier.cluster.arrive`; whether it releases.
    ClusterArrive(bool),
    /// `barrier.cluster.wait`.
    ClusterWait,
    /// `beq` and its kind, `goto`.
    Branch(Branch),
}

/// An instruction with its place and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What it does.
    pub instruction: Instruction,
    /// Where it stands.
    pub spot: Spot,
    /// As it is written, with single blanks.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_total() {
        assert_eq!(Operation::Add.apply(Word::MAX, 1), Word::MIN);
        assert_eq!(Operation::Div.apply(7, 0), -1);
        assert_eq!(Operation::Div.apply(Word::MIN, -1), Word::MIN);
        assert_eq!(Operation::Inc.apply(3, 3), 0);
        assert_eq!(Operation::Dec.apply(0, 3), 3);
        assert_eq!(Operation::Dec.apply(5, 3), 3);
        assert_eq!(Operation::Min.apply(-1, 1), -1);
        assert_eq!(Operation::Max.apply(-1, 1), 1);
        assert_eq!(Operation::Exchange.apply(1, 2), 2);
    }
}
