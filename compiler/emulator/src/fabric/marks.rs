//! The last accesses of an element, and which of them clash.

use kernel_dsl::source::Span;

/// An access by a party in one of its intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) party: usize,
    pub(super) interval: u32,
    pub(super) span: Span,
}

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    Read,
    Write,
    /// An atomic operation, which needs no order with others.
    Update,
}

impl Does {
    /// `reads`, `writes`, `updates`.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Does::Read => "reads",
            Does::Write => "writes",
            Does::Update => "updates",
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
    updates: Vec<Mark>,
}

impl Marks {
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
        let updates = || match does {
            Does::Update => None,
            Does::Read | Does::Write => first(&self.updates, Does::Update),
        };
        let reads = || match does {
            Does::Read => None,
            Does::Write | Does::Update => first(&self.reads, Does::Read),
        };
        if let Some(clash) = write.or_else(updates).or_else(reads) {
            return Err(clash);
        }
        let marks = match does {
            Does::Write => {
                *self = Marks { write: Some(mark), ..Marks::default() };
                return Ok(());
            }
            Does::Read => &mut self.reads,
            Does::Update => &mut self.updates,
        };
        marks.retain(|known| known.party != mark.party);
        marks.push(mark);
        Ok(())
    }
}
