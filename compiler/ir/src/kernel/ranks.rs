//! Words by which ranks tell each other that data is there.

use kernel_dsl::source::Span;

use super::{Kernel, Param, ParamId, Stmt, Storage, ValueId, Words, each_access};

/// Ranks of a launch at most: each has a lane of one warp.
pub const MAX_WORLD: u32 = crate::distribution::LANES;

/// Name of the scalar that says which rank this is; a kernel over several ranks gets it as its last parameter.
pub const RANK: &str = "rank";

/// `signal f@peer(*)[i, rank] add n order release scope sys`: raises a word of every rank, or of one, after what the CTA
/// did before the last `sync`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signal {
    /// The flags.
    pub param: ParamId,
    /// i32 scalars, one an axis.
    pub index: Vec<ValueId>,
    /// i32 scalar: the rank whose word is raised; the word of every rank without.
    pub to: Option<ValueId>,
    /// By how much, at least 1.
    pub add: u32,
    /// The text of the word.
    pub span: Span,
}

/// `await f[i, each] until v order acquire scope sys`: waits until the words have reached `v`, then all threads meet.
/// What was done before a signal that raised one of them is visible afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Await {
    /// The flags, those of the own rank.
    pub param: ParamId,
    /// i32 scalars, one an axis; none for `each`, which stands at most once and means every position.
    pub index: Vec<Option<ValueId>>,
    /// u32 scalar; a word has reached it where the difference is not negative as a signed number.
    pub until: ValueId,
    /// The text of the words.
    pub span: Span,
}

impl Await {
    /// The axis of `each`.
    pub fn each(&self) -> Option<usize> {
        self.index.iter().position(Option::is_none)
    }
}

impl Kernel {
    /// The multicast address of memory of ranks.
    pub fn window_of(&self, memory: ParamId) -> Option<ParamId> {
        let mut params = self.params.iter_enumerated();
        params.find(|(_, param)| param.of == Some(memory)).map(|(id, _)| id)
    }

    /// True where memory is touched at a multicast address: what is done there is in no order with what is done at the
    /// address of a rank before a fence.
    pub fn uses_multicast(&self) -> bool {
        uses_multicast(&self.body)
    }

    /// The parameter by which an access reaches what it touches, where it is no shared memory.
    pub fn reached_by(&self, storage: Storage) -> Option<ParamId> {
        match storage {
            Storage::Multicast(memory, _) => self.window_of(memory),
            Storage::Buffer(_)
            | Storage::Smem(..)
            | Storage::Remote(..)
            | Storage::Peer(..)
            | Storage::Peers(_) => storage.param(),
        }
    }
}

fn uses_multicast(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        let mut found = false;
        each_access(&stmt.kind, &mut |access| {
            found |= matches!(access.storage, Storage::Multicast(..));
        });
        found || stmt.kind.bodies().into_iter().any(uses_multicast)
    })
}

impl Param {
    /// True for memory that other ranks write data to; its outermost axis are the slots of a ring.
    pub fn is_inbox(&self) -> bool {
        self.access == kernel_abi::Access::Peer && self.words.is_none()
    }

    /// True for words that ranks raise.
    pub fn is_flag(&self) -> bool {
        self.words == Some(Words::Flag)
    }
}
