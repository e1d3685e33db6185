//! Where an access of a buffer lies, as far as forms say.

use std::collections::BTreeSet;

use kernel_dsl::source::Span;

use super::super::scalars::{Facts, Form, Joint, Knowledge, Symbol};
use super::Does;
use super::flight::Flight;
use crate::distribution::Distribution;
use crate::kernel::{AxisIndex, ParamId, RoleId, Storage, TileAccess, ValueId, ViewAxis};
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

/// Which threads of the CTA do an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who {
    /// The number of the role in the text, and which one it is; all threads without.
    pub(super) role: Option<(u32, RoleId)>,
    /// Their first warp.
    pub(super) first: u32,
    /// One thread alone.
    pub(super) elect: bool,
}

/// An access of a buffer.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Of all accesses which one it is, in the order of the text.
    pub(super) number: u32,
    pub(super) who: Who,
    pub(super) param: ParamId,
    pub(super) is_store: bool,
    /// An atomic operation, which needs no order with others that do the same.
    pub(super) update: Option<AtomicOp>,
    pub(super) span: Span,
    /// The axes of the view that it is seen through.
    pub(super) axes: Vec<ViewAxis>,
    /// One an axis of the view.
    pub(super) sides: Vec<Side>,
    /// Sums of their positions that say more than these.
    pub(super) joint: Vec<Joint>,
    /// How the elements are spread over threads; a copy has none.
    pub(super) spread: Option<Distribution>,
    /// A store to every rank, which is not done by the lowest replica alone.
    pub(super) everywhere: bool,
    /// A store that is known to come to no element twice.
    pub(super) is_once: bool,
    /// A copy that may go on.
    pub(super) flight: Option<Flight>,
    /// What holds on the path to it.
    pub(super) facts: Facts,
}

impl Place {
    /// True where a later access meets one as it meets the other.
    pub(super) fn is_like(&self, other: &Place) -> bool {
        let of = |place: &Place| {
            (place.param, place.is_store, place.update, place.everywhere, place.is_once, place.who)
        };
        of(self) == of(other)
            && self.sides == other.sides
            && self.axes == other.axes
            && self.spread == other.spread
            && self.flight == other.flight
    }

    /// Along each axis of the view the first position, and how many there are.
    pub(super) fn starts(&self) -> Vec<(Form, u32)> {
        let along = |side: &Side| match &side.reach {
            Reach::Run { start, len, .. } => (start.clone(), *len),
            Reach::Each(form) => (form.clone(), 1),
        };
        self.sides.iter().map(along).collect()
    }

    /// A word that one thread changes, which lies apart from nothing.
    pub(super) fn of_word(
        (param, start, span): (ParamId, Form, Span),
        who: Who,
        facts: &Facts,
    ) -> Place {
        let reach = Reach::Run { start, len: 1, until: None, back: false };
        Place {
            number: 0,
            who,
            param,
            is_store: true,
            update: None,
            span,
            axes: Vec::new(),
            sides: vec![Side { reach, axis: None }],
            joint: Vec::new(),
            spread: None,
            everywhere: false,
            is_once: true,
            flight: None,
            facts: facts.clone(),
        }
    }

    pub(super) fn new(
        known: &Knowledge<'_>,
        iotas: &BTreeSet<ValueId>,
        (param, access): (ParamId, &TileAccess),
        does: Does,
        (who, spread): (Who, Option<&Distribution>),
        facts: &Facts,
    ) -> Place {
        let is_joint = access.index.iter().any(|index| matches!(index, AxisIndex::Along(_)));
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
                    let run = if is_joint { None } else { run(known, iotas, &form, len) };
                    Side { reach: run.unwrap_or(Reach::Each(form)), axis: Some(gathered) }
                }
            };
            sides.push(side);
        }
        let start = |side: &Side| match &side.reach {
            Reach::Run { start, len, .. } => Some((start.clone(), *len)),
            Reach::Each(_) => None,
        };
        let joint = known.joined(&sides.iter().map(start).collect::<Vec<_>>());
        Place {
            number: 0,
            who,
            param,
            is_store: does != Does::Read,
            update: match does {
                Does::Change(op) => Some(op),
                Does::Read | Does::Write => None,
            },
            span: access.span,
            axes: access.axes.clone(),
            sides,
            joint,
            spread: spread.cloned(),
            everywhere: matches!(access.storage, Storage::Peers(_)),
            is_once: does == Does::Write,
            flight: None,
            facts: facts.clone(),
        }
    }
}

/// An index tile that counts up or down is a slice.
fn run(known: &Knowledge<'_>, iotas: &BTreeSet<ValueId>, form: &Form, len: u32) -> Option<Reach> {
    let counted = |symbol: &Symbol| matches!(symbol, Symbol::Value(v) if iotas.contains(v));
    let (&iota, &factor) = form.terms.iter().find(|(symbol, _)| counted(symbol))?;
    // One number that stands for all entries counts nothing.
    if !matches!(iota, Symbol::Value(iota) if known.len(iota) == len) {
        return None;
    }
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
