//! What a statement of the device level does to memory and to the order of memory; what it does to registers alone is
//! none of it.

use std::fmt;

use crate::device::{
    DeviceKernel, DeviceOp, DevicePipe, DeviceStmt, Factor, Place, SlotId, TensorLeft, TensorOp,
    WarpgroupOp,
};
use crate::kernel::{BarrierId, ParamId, RoleId};
use crate::ops::AtomicOp;

/// A memory that is touched. Where in it is not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::verify) enum Memory {
    Buffer(ParamId),
    /// A buffer on a rank that a register says.
    Peer(ParamId),
    /// A multicast address.
    Multicast(ParamId),
    /// A tile in shared memory, by its first byte.
    Tile(u32),
    /// The same in a CTA that a register says.
    Remote(u32),
    /// What the expansion itself exchanges between threads.
    Exchange,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verify) enum Event {
    Load(Memory),
    Store(Memory, Option<AtomicOp>),
    Atomic(ParamId),
    Prefetch,
    Signal(ParamId),
    Await(ParamId),
    CopyAsync(Memory, Memory),
    CloseCopies,
    AwaitCopies(u32),
    Fence,
    Meet,
    MeetRole(RoleId),
    MeetCluster,
    GridWait,
    GridLaunch,
    MakeBarriers,
    /// Of copies of global memory.
    CopyFence,
    Wait(BarrierId),
    Announce(BarrierId),
    Arrive(BarrierId, bool),
    Commit(BarrierId, bool),
    Copy {
        from: Memory,
        to: Memory,
        barrier: BarrierId,
        everywhere: bool,
    },
    CopyOut(Memory, Memory),
    CloseCopiesOut,
    AwaitCopiesOut {
        pending: u32,
        reads: bool,
    },
    Send(Memory, BarrierId),
    /// Of products and copies, in shared memory.
    SharedFence,
    HandOverSums(String),
    Product {
        sums: String,
        left: Option<u32>,
        right: u32,
    },
    CloseProducts,
    AwaitProducts {
        pending: u32,
        sums: String,
    },
    ReadSums(String),
    SetSums(String),
    AllocateTensor,
    AttachTensor,
    FreeTensor,
    TensorFenceBefore,
    TensorFenceAfter,
    CopyScales(u32),
    TensorProduct {
        left: Option<u32>,
        right: u32,
    },
    TensorStore,
    TensorLoad,
}

/// What stands in a block.
pub(in crate::verify) enum Item<'d> {
    Event(Event),
    For(&'d [DeviceStmt]),
    Repeat(&'d [DeviceStmt]),
    If([&'d [DeviceStmt]; 2]),
    Role(RoleId, &'d [DeviceStmt]),
}

/// Reads device statements.
pub(in crate::verify) struct Reader<'d> {
    kernel: &'d DeviceKernel,
    /// Where tiles and barriers end in shared memory.
    floor: u64,
    /// Slots with sums of products that run on their own.
    sums: Vec<SlotId>,
}

impl<'d> Reader<'d> {
    pub(in crate::verify) fn new(kernel: &'d DeviceKernel, floor: u64) -> Reader<'d> {
        let mut sums = Vec::new();
        find_sums(&kernel.body, &mut sums);
        Reader { kernel, floor, sums }
    }

    pub(in crate::verify) fn memory(&self, place: &Place) -> Memory {
        match place {
            Place::Global(param) => Memory::Buffer(*param),
            Place::Shared { base, .. } if u64::from(*base) >= self.floor => Memory::Exchange,
            Place::Shared { base, .. } => Memory::Tile(*base),
            Place::Remote { base, .. } => Memory::Remote(*base),
            Place::Peer { param, .. } => Memory::Peer(*param),
            Place::Multicast { param, .. } => Memory::Multicast(*param),
        }
    }

    fn slot(&self, slot: SlotId) -> String {
        self.kernel.slots.get(slot).map_or_else(String::new, |slot| slot.name.clone())
    }

    /// What a statement is; nothing where it touches registers alone.
    pub(in crate::verify) fn item(&self, op: &'d DeviceOp) -> Option<Item<'d>> {
        Some(Item::Event(match op {
            DeviceOp::For { body, .. } => return Some(Item::For(body)),
            DeviceOp::Repeat { body, .. } => return Some(Item::Repeat(body)),
            DeviceOp::If { then_body, else_body, .. } => {
                return Some(Item::If([then_body, else_body]));
            }
            DeviceOp::Role { role, body } => return Some(Item::Role(*role, body)),
            DeviceOp::Load { place, .. } | DeviceOp::LoadMatrices { place, .. } => {
                Event::Load(self.memory(place))
            }
            DeviceOp::StoreMatrices { place, .. } => Event::Store(self.memory(place), None),
            DeviceOp::Store { place, update, .. } => Event::Store(self.memory(place), *update),
            DeviceOp::Atomic { param, .. } => Event::Atomic(*param),
            DeviceOp::Prefetch { .. } => Event::Prefetch,
            DeviceOp::Signal { param, .. } => Event::Signal(*param),
            DeviceOp::Await { param, .. } => Event::Await(*param),
            DeviceOp::CopyAsync { source, dest, .. } => {
                Event::CopyAsync(self.memory(source), self.memory(dest))
            }
            DeviceOp::CommitGroup => Event::CloseCopies,
            DeviceOp::WaitGroup { pending } => Event::AwaitCopies(*pending),
            DeviceOp::Fence => Event::Fence,
            DeviceOp::Barrier => Event::Meet,
            DeviceOp::RoleBarrier { role } => Event::MeetRole(*role),
            DeviceOp::ClusterBarrier => Event::MeetCluster,
            DeviceOp::GridWait => Event::GridWait,
            DeviceOp::GridLaunch => Event::GridLaunch,
            DeviceOp::Pipe(pipe) => self.pipe(pipe),
            DeviceOp::Warpgroup(op) => self.warpgroup(op),
            DeviceOp::Tensor(op) => tensor(op),
            DeviceOp::ReadSlot { slot, .. } if self.sums.contains(slot) => {
                Event::ReadSums(self.slot(*slot))
            }
            DeviceOp::SetSlot { slot, .. } if self.sums.contains(slot) => {
                Event::SetSums(self.slot(*slot))
            }
            DeviceOp::Const { .. }
            | DeviceOp::Special { .. }
            | DeviceOp::ScalarParam { .. }
            | DeviceOp::Unary { .. }
            | DeviceOp::Binary { .. }
            | DeviceOp::Compare { .. }
            | DeviceOp::Select { .. }
            | DeviceOp::Fma { .. }
            | DeviceOp::Inline { .. }
            | DeviceOp::Convert { .. }
            | DeviceOp::Copy { .. }
            | DeviceOp::Join { .. }
            | DeviceOp::Shuffle { .. }
            | DeviceOp::ReduceLanes { .. }
            | DeviceOp::Mma { .. }
            | DeviceOp::ReadSlot { .. }
            | DeviceOp::SetSlot { .. }
            | DeviceOp::Assert { .. }
            | DeviceOp::Trace { .. }
            | DeviceOp::Printf { .. } => return None,
        }))
    }

    fn pipe(&self, pipe: &DevicePipe) -> Event {
        let buffer = |map| Memory::Buffer(self.kernel.maps[map].param);
        match pipe {
            DevicePipe::Init => Event::MakeBarriers,
            DevicePipe::Fence => Event::CopyFence,
            DevicePipe::Wait { barrier, .. } => Event::Wait(*barrier),
            DevicePipe::Announce { barrier, .. } => Event::Announce(*barrier),
            DevicePipe::Arrive { barrier, everywhere, .. } => Event::Arrive(*barrier, *everywhere),
            DevicePipe::Commit { barrier, everywhere, .. } => Event::Commit(*barrier, *everywhere),
            DevicePipe::Copy { source, dest, barrier, everywhere, .. } => Event::Copy {
                from: self.memory(source),
                to: self.memory(dest),
                barrier: *barrier,
                everywhere: *everywhere,
            },
            DevicePipe::Box { map, dest, barrier, everywhere, .. } => Event::Copy {
                from: buffer(*map),
                to: self.memory(dest),
                barrier: *barrier,
                everywhere: *everywhere,
            },
            DevicePipe::CopyOut { source, dest, .. } => {
                Event::CopyOut(self.memory(source), self.memory(dest))
            }
            DevicePipe::BoxOut { map, source, .. } => {
                Event::CopyOut(self.memory(source), buffer(*map))
            }
            DevicePipe::CommitGroup => Event::CloseCopiesOut,
            DevicePipe::WaitGroup { pending, reads } => {
                Event::AwaitCopiesOut { pending: *pending, reads: *reads }
            }
            DevicePipe::Prefetch { .. } => Event::Prefetch,
            DevicePipe::Send { dest, barrier, .. } => Event::Send(self.memory(dest), *barrier),
        }
    }

    fn warpgroup(&self, op: &WarpgroupOp) -> Event {
        match op {
            WarpgroupOp::ProxyFence => Event::SharedFence,
            WarpgroupOp::Fence { sums } => Event::HandOverSums(self.slot(*sums)),
            WarpgroupOp::Mma(product) => Event::Product {
                sums: self.slot(product.slot),
                left: match &product.a {
                    Factor::Shared(matrix) => Some(matrix.base),
                    Factor::Registers { .. } => None,
                },
                right: product.b.base,
            },
            WarpgroupOp::Commit => Event::CloseProducts,
            WarpgroupOp::Wait { pending, sums } => {
                Event::AwaitProducts { pending: *pending, sums: self.slot(*sums) }
            }
        }
    }
}

fn tensor(op: &TensorOp) -> Event {
    match op {
        TensorOp::Allocate { .. } => Event::AllocateTensor,
        TensorOp::Attach { .. } => Event::AttachTensor,
        TensorOp::Free { .. } => Event::FreeTensor,
        TensorOp::FenceBefore => Event::TensorFenceBefore,
        TensorOp::FenceAfter => Event::TensorFenceAfter,
        TensorOp::CopyScales { base, .. } => Event::CopyScales(*base),
        TensorOp::Product(product) => Event::TensorProduct {
            left: match product.a {
                TensorLeft::Shared(matrix) => Some(matrix.base),
                TensorLeft::Tensor(_) => None,
            },
            right: product.b.base,
        },
        TensorOp::Store { .. } => Event::TensorStore,
        TensorOp::Load { .. } => Event::TensorLoad,
    }
}

fn find_sums(stmts: &[DeviceStmt], found: &mut Vec<SlotId>) {
    for stmt in stmts {
        if let DeviceOp::Warpgroup(op) = &stmt.op {
            found.extend(op.slot().filter(|slot| !found.contains(slot)));
        }
        blocks(&stmt.op).into_iter().for_each(|body| find_sums(body, found));
    }
}

/// The blocks of a statement; two, some of them empty.
pub(in crate::verify) fn blocks(op: &DeviceOp) -> [&[DeviceStmt]; 2] {
    if let DeviceOp::For { body, .. }
    | DeviceOp::Repeat { body, .. }
    | DeviceOp::Role { body, .. } = op
    {
        [body, &[]]
    } else if let DeviceOp::If { then_body, else_body, .. } = op {
        [then_body, else_body]
    } else {
        [&[], &[]]
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Load(_) => "a load",
            Event::Store(_, None) => "a store",
            Event::Store(_, Some(_)) => "an update",
            Event::Atomic(_) => "an atomic operation",
            Event::Prefetch => "a prefetch",
            Event::Signal(_) => "a signal",
            Event::Await(_) => "a wait for words",
            Event::CopyAsync(..) | Event::Copy { .. } => "a copy to shared memory",
            Event::CloseCopies => "the end of a group of copies",
            Event::AwaitCopies(_) => "a wait for copies",
            Event::Fence => "a fence",
            Event::Meet => "a meeting of the CTA",
            Event::MeetRole(_) => "a meeting of a role",
            Event::MeetCluster => "a meeting of the cluster",
            Event::GridWait => "the wait for earlier kernels",
            Event::GridLaunch => "the launch of later kernels",
            Event::MakeBarriers => "the making of barriers",
            Event::CopyFence => "a fence for copies between buffers",
            Event::Wait(_) => "a wait at a barrier",
            Event::Announce(_) => "an announcement of bytes",
            Event::Arrive(..) => "an arrival",
            Event::Commit(..) => "an arrival of products",
            Event::CopyOut(..) => "a copy out of shared memory",
            Event::CloseCopiesOut => "the end of a group of copies out of shared memory",
            Event::AwaitCopiesOut { .. } => "a wait for copies out of shared memory",
            Event::Send(..) => "a send",
            Event::SharedFence => "a fence for copies and products",
            Event::HandOverSums(_) => "the hand-over of sums",
            Event::Product { .. } | Event::TensorProduct { .. } => "a product",
            Event::CloseProducts => "the end of a group of products",
            Event::AwaitProducts { .. } => "a wait for products",
            Event::ReadSums(_) => "a read of sums",
            Event::SetSums(_) => "an assignment of sums",
            Event::AllocateTensor => "the allocation of tensor memory",
            Event::AttachTensor => "the address of tensor memory",
            Event::FreeTensor => "the end of tensor memory",
            Event::TensorFenceBefore | Event::TensorFenceAfter => "a fence of tensor memory",
            Event::CopyScales(_) => "a copy of scales",
            Event::TensorStore => "a store to tensor memory",
            Event::TensorLoad => "a load from tensor memory",
        })
    }
}
