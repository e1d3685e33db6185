//! The last accesses of an element, and which of them clash.

use kernel_dsl::source::Span;
use kernel_ir::ops::AtomicOp;

/// An access by a party in one of its intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) party: usize,
    pub(super) interval: u32,
    /// The warps of the party in its CTA, from the first one to that behind the last.
    pub(super) warps: (u32, u32),
    /// At a multicast address: in no order with what the same party does at other ones.
    pub(super) multicast: bool,
    pub(super) span: Span,
}

impl Mark {
    /// True where the accesses of one follow each other.
    pub(super) fn is_in_line_with(&self, other: &Mark) -> bool {
        self.party == other.party && self.multicast == other.multicast
    }

    /// True for two parties that never run side by side: the whole CTA, and roles that share warps.
    pub(super) fn shares_warps_with(&self, other: &Mark) -> bool {
        self.warps.0 < other.warps.1 && other.warps.0 < self.warps.1
    }
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    Write,
    /// An atomic operation, which needs no order with others that do the same.
    Update(AtomicOp),
}

impl Does {
    /// `reads`, `writes`, `updates`.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Does::Read => "reads",
            Does::Write => "writes",
            Does::Update(_) => "updates",
        }
    }
}

/// An access that comes before another one in time, and in no order that holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clash {
    pub(super) earlier: Mark,
    pub(super) did: Does,
}

/// The last accesses of an element.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    write: Option<Mark>,
    /// Since then, the last of each party.
    reads: Vec<Mark>,
    updates: Vec<(AtomicOp, Mark)>,
}

impl Marks {
    /// True where somebody has written it.
    pub(super) fn is_written(&self) -> bool {
        self.write.is_some() || !self.updates.is_empty()
    }

    /// Notes an access, where `knows` tells which earlier ones are in order before it.
    pub(super) fn note(
        &mut self,
        does: Does,
        mark: Mark,
        knows: impl Fn(&Mark) -> bool,
    ) -> Result<(), Clash> {
        let first = |marks: &[Mark], did: Does| {
            marks.iter().find(|earlier| !knows(earlier)).map(|&earlier| Clash { earlier, did })
        };
        let write = first(self.write.as_slice(), Does::Write);
        let updates = || {
            let mut others = self.updates.iter().filter(|(op, _)| does != Does::Update(*op));
            let unknown = others.find(|(_, earlier)| !knows(earlier));
            unknown.map(|&(op, earlier)| Clash { earlier, did: Does::Update(op) })
        };
        let reads = || match does {
            Does::Read => None,
            Does::Write | Does::Update(_) => first(&self.reads, Does::Read),
        };
        if let Some(clash) = write.or_else(updates).or_else(reads) {
            return Err(clash);
        }
        match does {
            Does::Write => *self = Marks { write: Some(mark), ..Marks::default() },
            Does::Read => {
                self.reads.retain(|known| !known.is_in_line_with(&mark));
                self.reads.push(mark);
            }
            Does::Update(op) => {
                self.updates.retain(|(of, known)| *of != op || !known.is_in_line_with(&mark));
                self.updates.push((op, mark));
            }
        }
        Ok(())
    }
}
