//! What values and tiles depend on, of what is not the same in every run or in every CTA.

use std::collections::BTreeMap;

use kernel_dsl::source::Span;

use crate::kernel::{SmemId, ValueId, VarId};

/// Who may be the one that came last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Last {
    pub(super) at: Span,
    /// The bits of the arrivals.
    pub(super) arrivals: u64,
}

/// What something depends on, with the place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Taint {
    /// What an atomic finds, or which rounds of a work list a CTA did.
    pub(super) order: Option<Span>,
    /// Which CTA it is, along each axis of the grid.
    pub(super) ctas: [Option<Span>; 3],
    /// Which round of a work list it is.
    pub(super) round: Option<Span>,
    /// The bits of arrivals whose index does not say all of this.
    pub(super) unsaid: u64,
    /// Who came last.
    pub(super) last: Option<Last>,
}

impl Taint {
    /// Another thing in each CTA.
    pub(super) fn of_cta(at: Span) -> Taint {
        Taint { ctas: [Some(at); 3], unsaid: u64::MAX, ..Taint::default() }
    }

    pub(super) fn or(self, other: Taint) -> Taint {
        let last = match (self.last, other.last) {
            (Some(a), Some(b)) => Some(Last { at: a.at, arrivals: a.arrivals | b.arrivals }),
            (a, b) => a.or(b),
        };
        Taint {
            order: self.order.or(other.order),
            ctas: [0, 1, 2].map(|axis| self.ctas[axis].or(other.ctas[axis])),
            round: self.round.or(other.round),
            unsaid: self.unsaid | other.unsaid,
            last,
        }
    }

    /// The CTA that it depends on.
    pub(super) fn cta(&self) -> Option<Span> {
        self.ctas.into_iter().flatten().next()
    }

    /// Who came last, and what is another thing for another one that might have.
    pub(super) fn of_last(&self) -> Option<(Span, Span)> {
        let last = self.last.filter(|last| last.arrivals & self.unsaid != 0)?;
        Some((last.at, self.cta().or(self.round)?))
    }
}

/// A slot of a tile in shared memory or in tensor memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// This one of the ring.
    Number(i64),
    /// The one that a scalar says, while it has this value.
    Value(ValueId),
}

/// What the content of a tile depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Content {
    /// That of any slot.
    any: Taint,
    /// That of slots of which more is known.
    slots: BTreeMap<Slot, Taint>,
}

/// What tiles in registers and in memory of the CTA depend on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct State {
    vars: BTreeMap<(VarId, u32), Taint>,
    tiles: BTreeMap<SmemId, Content>,
}

impl State {
    pub(super) fn var(&self, place: (VarId, u32)) -> Taint {
        self.vars.get(&place).copied().unwrap_or_default()
    }

    pub(super) fn set_var(&mut self, place: (VarId, u32), source: Taint) {
        self.vars.insert(place, source);
    }

    pub(super) fn content(&self, tile: SmemId, slot: Slot) -> Taint {
        let content = self.tiles.get(&tile);
        content.map(|c| c.slots.get(&slot).copied().unwrap_or(c.any)).unwrap_or_default()
    }

    /// Something fills a slot of a tile of `ring` slots; all of it where `whole`.
    pub(super) fn fill(
        &mut self,
        tile: SmemId,
        (slot, ring): (Slot, u32),
        source: Taint,
        whole: bool,
    ) {
        let content = self.tiles.entry(tile).or_default();
        content.any = if whole && ring == 1 { source } else { content.any.or(source) };
        let is_apart =
            |other: Slot| matches!((slot, other), (Slot::Number(a), Slot::Number(b)) if a != b);
        for (&other, known) in &mut content.slots {
            if !is_apart(other) {
                *known = known.or(source);
            }
        }
        if whole && ring > 1 {
            content.slots.insert(slot, source);
        }
    }

    /// Tiles that somebody may leave behind.
    pub(super) fn leave(&mut self, vars: &[(VarId, u32)], tiles: &[SmemId], left: Taint) {
        for &var in vars {
            let known = self.vars.entry(var).or_default();
            *known = known.or(left);
        }
        for &tile in tiles {
            let content = self.tiles.entry(tile).or_default();
            content.any = content.any.or(left);
            content.slots.values_mut().for_each(|known| *known = known.or(left));
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: &State) {
        for (&place, &taint) in &other.vars {
            let known = self.vars.entry(place).or_default();
            *known = known.or(taint);
        }
        for (tile, content) in &mut self.tiles {
            let theirs = other.tiles.get(tile);
            let of_theirs = |slot: &Slot| theirs.and_then(|theirs| theirs.slots.get(slot));
            content.slots.retain(|slot, _| of_theirs(slot).is_some());
            for (slot, known) in &mut content.slots {
                *known = known.or(of_theirs(slot).copied().unwrap_or_default());
            }
        }
        for (&tile, theirs) in &other.tiles {
            let content = self.tiles.entry(tile).or_default();
            content.any = content.any.or(theirs.any);
        }
    }
}
