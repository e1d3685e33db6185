//! What threads do at barriers of roles, and copies that run on their own.

use serde::{Deserialize, Serialize};

use super::{Address, Arg, FragId, Piece, Place, Vector};
use crate::kernel::{BarrierId, Evict, MapId};

/// What threads do at a barrier of roles. `slot` is a register with an i32 below the number of slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DevicePipe {
    /// One thread of the CTA makes all barriers, for all threads and for copies.
    Init,
    /// Orders what the thread knows to be written in buffers ahead of what its copies read after it.
    Fence,
    /// Each thread of the role waits until so many rounds are complete; at once for none.
    Wait {
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
        /// How many (i32).
        rounds: (FragId, u32),
    },
    /// The first thread of the role arrives and announces the bytes of the round.
    Announce {
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
    },
    /// Each warp of the role arrives once, after what its threads have done; in a role of one thread, that one does.
    Arrive {
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
        /// In every CTA of the cluster.
        everywhere: bool,
    },
    /// The first thread of the role lets one arrival come when all products are complete that it has started before.
    Commit {
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
        /// In every CTA of the cluster.
        everywhere: bool,
    },
    /// The first thread of the role starts copies from a buffer to shared memory that count at the barrier.
    Copy {
        /// Where from.
        source: Place,
        /// Where to.
        dest: Place,
        /// One entry an instruction: whole multiples of 16 bytes, aligned to 16 on both sides.
        pieces: Vec<Piece>,
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
        /// Eviction priority.
        evict: Option<Evict>,
        /// To the same place of every CTA of the cluster, each of which counts the bytes.
        everywhere: bool,
    },
    /// The first thread of the role starts the copy of a box to shared memory that counts at the barrier.
    Box {
        /// How it sees the buffer.
        map: MapId,
        /// Registers (i32) with the place of the box along each axis of the map.
        at: Vec<(FragId, u32)>,
        /// Where to.
        dest: Place,
        /// First byte of the box there, in elements.
        offset: Address,
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
        /// Eviction priority.
        evict: Option<Evict>,
        /// To the same place of every CTA of the cluster, each of which counts the bytes.
        everywhere: bool,
    },
    /// The first thread of the role, or of the CTA outside of them, starts copies from shared memory to a buffer.
    CopyOut {
        /// Where from.
        source: Place,
        /// Where to.
        dest: Place,
        /// One entry an instruction: whole multiples of 16 bytes, aligned to 16 on both sides.
        pieces: Vec<Piece>,
        /// Eviction priority.
        evict: Option<Evict>,
    },
    /// The same of a box; what lies outside of the buffer is left out.
    BoxOut {
        /// How it sees the buffer.
        map: MapId,
        /// Registers (i32) with the place of the box along each axis of the map.
        at: Vec<(FragId, u32)>,
        /// Where from.
        source: Place,
        /// First byte of the box there, in elements.
        offset: Address,
        /// Eviction priority.
        evict: Option<Evict>,
    },
    /// That thread closes the group of its copies out of shared memory since the last one.
    CommitGroup,
    /// It waits until at most `pending` of those groups are not complete, or still read shared memory.
    WaitGroup {
        /// How many may be.
        pending: u32,
        /// Until they have read.
        reads: bool,
    },
    /// The first thread of the role, or of the CTA outside of them, brings a box into L2.
    Prefetch {
        /// How it sees the buffer.
        map: MapId,
        /// Registers (i32) with the place of the box along each axis of the map.
        at: Vec<(FragId, u32)>,
        /// Eviction priority.
        evict: Option<Evict>,
    },
    /// Threads send elements to shared memory of a CTA of the cluster, whose bytes count at the barrier of that CTA.
    Send {
        /// What is sent.
        src: Arg,
        /// Where to.
        dest: Place,
        /// Instructions.
        vectors: Vec<Vector>,
        /// The barrier.
        barrier: BarrierId,
        /// Which slot.
        slot: (FragId, u32),
    },
}

impl DevicePipe {
    /// Calls `see` with every register that it reads.
    pub fn each_register(&self, mut see: impl FnMut((FragId, u32))) {
        match self {
            DevicePipe::Init
            | DevicePipe::Fence
            | DevicePipe::CommitGroup
            | DevicePipe::WaitGroup { .. } => {}
            DevicePipe::Wait { barrier: _, slot, rounds } => {
                see(*slot);
                see(*rounds);
            }
            DevicePipe::Announce { barrier: _, slot }
            | DevicePipe::Arrive { barrier: _, slot, .. }
            | DevicePipe::Commit { barrier: _, slot, .. } => {
                see(*slot);
            }
            DevicePipe::Prefetch { at, .. } => at.iter().copied().for_each(see),
            DevicePipe::Box { slot, at, offset, .. } => {
                see(*slot);
                at.iter().copied().chain(offset.offset).for_each(see);
            }
            DevicePipe::Send { src, dest, vectors, barrier: _, slot } => {
                see(*slot);
                see((src.frag, 0));
                dest.owner().into_iter().for_each(&mut see);
                for vector in vectors {
                    vector.offset.into_iter().chain(vector.predicate).for_each(&mut see);
                }
            }
            DevicePipe::BoxOut { at, offset, .. } => {
                at.iter().copied().chain(offset.offset).for_each(see);
            }
            DevicePipe::Copy { slot, pieces, .. } => {
                see(*slot);
                each_register_of(pieces, see);
            }
            DevicePipe::CopyOut { pieces, .. } => each_register_of(pieces, see),
        }
    }
}

/// Registers of both sides.
fn each_register_of(pieces: &[Piece], mut see: impl FnMut((FragId, u32))) {
    for piece in pieces {
        [piece.source.offset, piece.dest.offset].into_iter().flatten().for_each(&mut see);
    }
}
