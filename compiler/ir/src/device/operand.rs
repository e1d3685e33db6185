//! Registers, and which of them an operation takes.

use kernel_abi::DType;
use serde::{Deserialize, Serialize};

use super::FragId;

/// Registers of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frag {
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u32,
}

/// Registers of one thread that are assigned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// The author's name and ring slot, for printing.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Number of elements.
    pub len: u32,
}

/// An operand: element `i` of the operation takes element `map(i)` of `frag`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arg {
    /// Source registers.
    pub frag: FragId,
    /// Which element goes where.
    pub map: Map,
}

impl Arg {
    /// The operand whose elements are used in order.
    pub fn whole(frag: FragId) -> Arg {
        Arg { frag, map: Map::Identity }
    }

    /// The operand whose element `index` is used everywhere.
    pub fn all(frag: FragId, index: u32) -> Arg {
        Arg { frag, map: Map::All(index) }
    }

    /// The element of `frag` that element `i` of the operation takes.
    pub fn element(&self, i: u32) -> u32 {
        match &self.map {
            Map::Identity => i,
            Map::All(index) => *index,
            Map::Table(table) => table[i as usize],
        }
    }
}

/// Which element of an operand goes to which element of the operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Map {
    /// Element `i` to element `i`.
    Identity,
    /// One element to all.
    All(u32),
    /// Element `table[i]` to element `i`.
    Table(Vec<u32>),
}
