//! What names stand for while a kernel is written out.

use std::collections::BTreeMap;
use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::ast::Name;
use kernel_dsl::source::Span;

use super::constants::Const;
use super::operands::{Operand, Tile};
use crate::kernel::{ParamId, SmemId, TensorAtom, ValueId, VarId, ViewAxis, WgmmaAtom};

/// What a name stands for.
#[derive(Debug, Clone)]
pub(super) enum Entity {
    Const(Const),
    Tile(Tile),
    Range(RangeValue),
    Frag(Frag),
    Buffer(Buffer),
    /// What `mma … via` names.
    Atom(AnyAtom),
    /// Its definition has been refused.
    Refused,
}

/// What one instruction of a product does.
#[derive(Debug, Clone, Copy)]
pub(super) enum AnyAtom {
    /// On a warpgroup, with sums in registers.
    Wgmma(WgmmaAtom),
    /// With sums in tensor memory.
    Tensor(TensorAtom),
}

/// `a .. + L until n`, or `a..b` with a bound that is known at run time only.
#[derive(Debug, Clone)]
pub(super) struct RangeValue {
    pub(super) start: Operand,
    pub(super) end: RangeLimit,
    pub(super) until: Option<Operand>,
    pub(super) span: Span,
}

/// How a range ends.
#[derive(Debug, Clone)]
pub(super) enum RangeLimit {
    /// A constant length.
    Length(u32),
    /// The position behind the last one.
    End(Operand),
}

/// An assignable tile.
#[derive(Debug, Clone)]
pub(super) struct Frag {
    /// Absent when the tile has no elements.
    pub(super) var: Option<VarId>,
    pub(super) dtype: DType,
    pub(super) shape: Vec<u32>,
    pub(super) slots: u32,
    pub(super) ringed: bool,
}

/// A buffer, a tile in shared memory, or a view of one.
#[derive(Debug, Clone)]
pub(super) struct Buffer {
    pub(super) memory: Memory,
    pub(super) axes: Rc<[ViewAxis]>,
    /// Of memory of ranks what an argument has named already.
    pub(super) instance: Instance,
}

impl Buffer {
    pub(super) fn new(memory: Memory, axes: Rc<[ViewAxis]>) -> Buffer {
        Buffer { memory, axes, instance: Instance::default() }
    }
}

/// The rank and the slot of memory of ranks, as far as they are named.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Instance {
    pub(super) rank: Option<OfRank>,
    pub(super) slot: Option<ValueId>,
}

/// Whose memory it is.
#[derive(Debug, Clone, Copy)]
pub(super) enum OfRank {
    One(ValueId),
    Each,
}

/// What a buffer entity lies in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memory {
    /// A parameter.
    Param(ParamId),
    /// A tile in shared memory; `ringed` with `ring n`.
    Smem { tile: SmemId, ringed: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) entity: Entity,
    pub(super) span: Span,
}

/// The names of one kernel or function body.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// The file whose functions and constants are visible.
    pub(super) unit: usize,
    scopes: Vec<BTreeMap<&'a str, Named>>,
    /// Scopes outside of the role at hand.
    outside: usize,
    /// Shapes bound by `..S`.
    pub(super) packs: BTreeMap<&'a str, Vec<u32>>,
}

impl<'a> Frame<'a> {
    pub(super) fn new(unit: usize) -> Self {
        Frame { unit, scopes: vec![BTreeMap::new()], outside: 0, packs: BTreeMap::new() }
    }

    pub(super) fn open(&mut self) {
        self.scopes.push(BTreeMap::new());
    }

    pub(super) fn close(&mut self) {
        self.scopes.pop();
    }

    pub(super) fn define(&mut self, name: &'a Name, entity: Entity) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(&name.text, Named { entity, span: name.span });
        }
    }

    /// Begins a role; what is returned goes to [`Frame::leave_role`].
    pub(super) fn enter_role(&mut self) -> usize {
        std::mem::replace(&mut self.outside, self.scopes.len())
    }

    pub(super) fn leave_role(&mut self, outer: usize) {
        self.outside = outer;
    }

    /// What a name stands for, where that is defined outside of the role at hand.
    pub(super) fn lookup_outside(&self, name: &str) -> Option<&Named> {
        let depth = self.scopes.iter().rposition(|scope| scope.contains_key(name))?;
        self.scopes[depth].get(name).filter(|_| depth < self.outside)
    }

    pub(super) fn lookup(&self, name: &str) -> Option<&Named> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.scopes.iter().flat_map(|scope| scope.keys().copied())
    }
}
