//! Where an access of a buffer lies, as far as forms say.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use super::Does;
use crate::distribution::Distribution;
use crate::kernel::{AxisIndex, ParamId, TileAccess, ValueId, ViewAxis};
use crate::ops::AtomicOp;

/// The positions of an access along an axis of its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// `len` positions from `start` on, absent from `until` on; `back` where they run downwards.
    Run { start: Form, len: u32, until: Option<Form>, back: bool },
    /// For each element this.
    Each(Form),
}

/// The positions along an axis of the view, and the axis of the tile that runs along it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) reach: Reach,
    pub(super) axis: Option<usize>,
}

/// An access of a buffer.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) param: ParamId,
    pub(super) is_store: bool,
    /// An atomic operation, which needs no order with others that do the same.
    pub(super) update: Option<AtomicOp>,
    pub(super) span: Span,
    /// The axes of the view that it is seen through.
    pub(super) axes: Vec<ViewAxis>,
    /// One an axis of the view.
    pub(super) sides: Vec<Side>,
    /// How the elements are spread over threads; a copy has none.
    pub(super) spread: Option<Distribution>,
    /// What holds on the path to it.
    pub(super) facts: Facts,
}

impl Place {
    /// True for the same access.
    pub(super) fn is_at(&self, other: &Place) -> bool {
        self.span == other.span && self.sides == other.sides && self.axes == other.axes
    }

    pub(super) fn new(
        known: &Knowledge<'_>,
        iotas: &BTreeSet<ValueId>,
        (param, access): (ParamId, &TileAccess),
        does: Does,
        spread: Option<&Distribution>,
        facts: &Facts,
    ) -> Place {
        let joint = access.index.iter().any(|index| matches!(index, AxisIndex::Along(_)));
        let mut sides = Vec::new();
        let (mut axis, mut gathered) = (0, 0);
        for index in &access.index {
            let side = match index {
                AxisIndex::New => {
                    axis += 1;
                    continue;
                }
                AxisIndex::At(at) => {
                    let start = known.form(*at);
                    Side {
                        reach: Reach::Run { start, len: 1, until: None, back: false },
                        axis: None,
                    }
                }
                AxisIndex::Range { start, len, until } => {
                    let until = until.map(|until| known.form(until));
                    let start = known.form(*start);
                    axis += 1;
                    let reach = Reach::Run { start, len: *len, until, back: false };
                    Side { reach, axis: Some(axis - 1) }
                }
                AxisIndex::Gather(tile) | AxisIndex::Along(tile) => {
                    if matches!(index, AxisIndex::Gather(_)) {
                        gathered = axis;
                        axis += 1;
                    }
                    let form = known.form(*tile);
                    let len = known.len(*tile);
                    let run = if joint { None } else { run(known, iotas, &form, len) };
                    Side { reach: run.unwrap_or(Reach::Each(form)), axis: Some(gathered) }
                }
            };
            sides.push(side);
        }
        Place {
            param,
            is_store: does != Does::Read,
            update: match does {
                Does::Change(op) => Some(op),
                Does::Read | Does::Write => None,
            },
            span: access.span,
            axes: access.axes.clone(),
            sides,
            spread: spread.cloned(),
            facts: facts.clone(),
        }
    }
}

/// An index tile that counts up or down is a slice.
fn run(known: &Knowledge<'_>, iotas: &BTreeSet<ValueId>, form: &Form, len: u32) -> Option<Reach> {
    let counted = |symbol: &Symbol| matches!(symbol, Symbol::Value(v) if iotas.contains(v));
    let (&iota, &factor) = form.terms.iter().find(|(symbol, _)| counted(symbol))?;
    let mut start = form.clone();
    start.terms.remove(&iota);
    if !known.is_uniform(&start) {
        return None;
    }
    match factor {
        1 => Some(Reach::Run { start, len, until: None, back: false }),
        -1 => {
            let first = start.plus(-(i128::from(len) - 1), &Form::constant(1))?;
            Some(Reach::Run { start: first, len, until: None, back: true })
        }
        _ => None,
    }
}
