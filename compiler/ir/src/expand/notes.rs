//! What an expansion decided, for `kernelc explain`.

use kernel_abi::DType;
use kernel_dsl::source::Span;

use super::Expander;
use super::banks::Banks;
use super::vectors::Cut;
use crate::device::WaitOrder;
use crate::distribution::Distribution;
use crate::kernel::{Storage, TileAccess};

/// A fold: lengths of its three parts.
#[derive(Debug, Clone)]
pub(crate) struct FoldNote {
    pub(crate) span: Span,
    pub(crate) name: &'static str,
    /// Elements that one thread folds.
    pub(crate) thread: u32,
    pub(crate) lanes: u32,
    pub(crate) warps: u32,
    /// The exchange that it takes part in.
    pub(crate) exchange: Option<usize>,
    pub(crate) shared_bytes: u32,
}

/// An exchange through shared memory.
#[derive(Debug, Clone)]
pub(crate) struct ExchangeNote {
    /// What it is made for; several folds may share it.
    pub(crate) spans: Vec<Span>,
    pub(crate) shared_bytes: u32,
}

/// How a tile changes its distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelayoutWay {
    /// Each thread has its elements already.
    Registers,
    /// Between lanes.
    Shuffles,
    /// Through shared memory.
    Shared,
}

/// A change of distribution.
#[derive(Debug, Clone)]
pub(crate) struct RelayoutNote {
    pub(crate) span: Span,
    pub(crate) way: RelayoutWay,
    /// Shuffles of 32 bits of a thread.
    pub(crate) shuffles: u32,
    /// Choices between two registers of a thread.
    pub(crate) choices: u32,
    /// The exchange through shared memory.
    pub(crate) exchange: Option<usize>,
}

/// A load or store.
#[derive(Debug, Clone)]
pub(crate) struct AccessNote {
    pub(crate) span: Span,
    pub(crate) storage: Storage,
    pub(crate) is_store: bool,
    pub(crate) order: WaitOrder,
    /// Instructions of one thread.
    pub(crate) instructions: u32,
    /// Bytes of the narrowest and of the widest of them.
    pub(crate) bytes: (u32, u32),
    /// Threads that hold each element.
    pub(crate) replicas: u32,
    /// Matrices of 8 by 8, `ldmatrix` or `stmatrix`.
    pub(crate) matrices: bool,
    /// Of shared memory: wavefronts of one warp.
    pub(crate) banks: Option<Banks>,
}

/// Everything that an expansion tells.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    pub(crate) folds: Vec<FoldNote>,
    pub(crate) exchanges: Vec<ExchangeNote>,
    pub(crate) relayouts: Vec<RelayoutNote>,
    pub(crate) accesses: Vec<AccessNote>,
}

impl Expander<'_> {
    pub(super) fn note_access(
        &mut self,
        access: &TileAccess,
        dtype: DType,
        distribution: &Distribution,
        cut: &Cut,
        is_store: bool,
    ) {
        let free = distribution.free_lanes().into_iter().chain(distribution.free_warps());
        let widths = cut.pieces.iter().map(|&(_, len)| len as u32 * dtype.bits() / 8);
        let banks = match access.storage {
            Storage::Buffer(_) | Storage::Peer(..) | Storage::Peers(_) | Storage::Multicast(..) => {
                None
            }
            Storage::Smem(..) | Storage::Remote(..) => {
                let pieces = cut.pieces.iter();
                let instructions: Vec<(u32, u32)> =
                    pieces.map(|&(first, len)| (cut.order[first] as u32, len as u32)).collect();
                self.banks(access, distribution, &instructions, is_store)
            }
        };
        self.notes.accesses.push(AccessNote {
            matrices: false,
            banks,
            span: access.span,
            storage: access.storage,
            is_store,
            order: self.order,
            instructions: cut.pieces.len() as u32,
            bytes: (widths.clone().min().unwrap_or(0), widths.max().unwrap_or(0)),
            replicas: free.map(|digit| digit.extent).product(),
        });
    }
}
