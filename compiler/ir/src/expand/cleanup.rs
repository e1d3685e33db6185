//! Removes pure statements whose results nobody reads, and slots that nobody reads.

use std::collections::BTreeMap;

use crate::device::{Arg, DeviceKernel, DeviceOp, DeviceStmt, FragId, Lanes, SlotId, Vector};
use crate::index::{Id, IndexVec};

/// Drops what has no effect. Loads stay: reading is an effect of its own.
pub(super) fn remove_dead(device: &mut DeviceKernel) {
    loop {
        let mut used = vec![false; device.frags.len()];
        let mut read = vec![false; device.slots.len()];
        let mut changed = keep_used(&mut device.body, &mut used, &mut read);
        changed |= drop_unread(&mut device.body, &read);
        if !changed {
            renumber_slots(device, &read);
            return;
        }
    }
}

/// Calls `see` with every fragment that the operation itself reads; inner statements are left out.
pub(crate) fn each_read(op: &DeviceOp, mut see: impl FnMut(FragId)) {
    let mut args = |args: &[&Arg]| args.iter().for_each(|arg| see(arg.frag));
    match op {
        DeviceOp::Const { .. }
        | DeviceOp::Special { .. }
        | DeviceOp::ScalarParam { .. }
        | DeviceOp::ReadSlot { .. }
        | DeviceOp::CommitGroup
        | DeviceOp::WaitGroup { .. }
        | DeviceOp::Barrier
        | DeviceOp::ClusterBarrier
        | DeviceOp::RoleBarrier { .. }
        | DeviceOp::Role { .. }
        | DeviceOp::Fence
        | DeviceOp::GridWait
        | DeviceOp::GridLaunch => {}
        DeviceOp::Warpgroup(op) => op.each_read(see),
        DeviceOp::Tensor(op) => op.each_register(|(frag, _)| see(frag)),
        DeviceOp::Pipe(pipe) => pipe.each_register(|(frag, _)| see(frag)),
        DeviceOp::Atomic { at, change, .. } => {
            see(change.register().0);
            each_address(std::slice::from_ref(at), see);
        }
        DeviceOp::Signal { rank, at, .. } => {
            rank.iter().for_each(|(frag, _)| see(*frag));
            each_address(std::slice::from_ref(at), see);
        }
        DeviceOp::Await { at, until, .. } => {
            see(*until);
            each_address(std::slice::from_ref(at), see);
        }
        DeviceOp::Unary { x, .. }
        | DeviceOp::Convert { x, .. }
        | DeviceOp::Copy { x, .. }
        | DeviceOp::SetSlot { x, .. } => args(&[x]),
        DeviceOp::Binary { a, b, .. } | DeviceOp::Compare { a, b, .. } => args(&[a, b]),
        DeviceOp::Select { cond: a, a: b, b: c, .. } | DeviceOp::Fma { a, b, c, .. } => {
            args(&[a, b, c]);
        }
        DeviceOp::Inline { equals, inputs, .. } => {
            args(&[equals]);
            inputs.iter().for_each(|x| args(&[x]));
        }
        DeviceOp::Shuffle { x, lanes, .. } => {
            see(*x);
            match lanes {
                Lanes::Xor(_) => {}
                Lanes::Register((frag, _)) => see(*frag),
            }
        }
        DeviceOp::ReduceLanes { x, .. } => see(*x),
        DeviceOp::Mma { a, b, acc, .. } => {
            see(*a);
            see(*b);
            see(*acc);
        }
        DeviceOp::Join { from, .. } => from.iter().for_each(|(frag, _)| see(*frag)),
        DeviceOp::Load { place, vectors, other, .. } => {
            place.owner().into_iter().for_each(|(frag, _)| see(frag));
            other.iter().for_each(|&frag| see(frag));
            each_address(vectors, see);
        }
        DeviceOp::LoadMatrices { loads, .. } => {
            loads.iter().filter_map(|load| load.at.offset).for_each(|(frag, _)| see(frag));
        }
        DeviceOp::StoreMatrices { src, stores, .. } => {
            see(*src);
            stores.iter().filter_map(|store| store.at.offset).for_each(|(frag, _)| see(frag));
        }
        DeviceOp::Store { src, place, vectors, .. } => {
            place.owner().into_iter().for_each(|(frag, _)| see(frag));
            see(src.frag);
            each_address(vectors, see);
        }
        DeviceOp::Prefetch { vectors, bytes, .. } => {
            bytes.iter().for_each(|(frag, _)| see(*frag));
            each_address(vectors, see);
        }
        DeviceOp::CopyAsync { pieces, .. } => {
            for piece in pieces {
                let registers = [piece.source.offset, piece.dest.offset];
                let conditions = [piece.present, piece.predicate];
                registers.iter().chain(&conditions).flatten().for_each(|(frag, _)| see(*frag));
            }
        }
        DeviceOp::Assert { cond, .. } | DeviceOp::If { cond, .. } => see(*cond),
        DeviceOp::Trace { event: _ } => {}
        DeviceOp::Repeat { again, .. } => see(*again),
        DeviceOp::Printf { args, .. } => args.iter().for_each(|&frag| see(frag)),
        DeviceOp::For { start, end, .. } => {
            see(*start);
            see(*end);
        }
    }
}

fn each_address(vectors: &[Vector], mut see: impl FnMut(FragId)) {
    for vector in vectors {
        for (frag, _) in vector.offset.iter().chain(&vector.predicate) {
            see(*frag);
        }
    }
}

/// The fragment that an operation defines.
pub(crate) fn result(op: &DeviceOp) -> Option<FragId> {
    match op {
        DeviceOp::Const { dst, .. }
        | DeviceOp::Special { dst, .. }
        | DeviceOp::ScalarParam { dst, .. }
        | DeviceOp::Unary { dst, .. }
        | DeviceOp::Binary { dst, .. }
        | DeviceOp::Compare { dst, .. }
        | DeviceOp::Select { dst, .. }
        | DeviceOp::Fma { dst, .. }
        | DeviceOp::Inline { dst, .. }
        | DeviceOp::Convert { dst, .. }
        | DeviceOp::Copy { dst, .. }
        | DeviceOp::Join { dst, .. }
        | DeviceOp::Shuffle { dst, .. }
        | DeviceOp::ReduceLanes { dst, .. }
        | DeviceOp::Mma { dst, .. }
        | DeviceOp::Load { dst, .. }
        | DeviceOp::LoadMatrices { dst, .. }
        | DeviceOp::Atomic { dst, .. }
        | DeviceOp::ReadSlot { dst, .. } => Some(*dst),
        DeviceOp::Tensor(op) => op.result(),
        DeviceOp::For { var, .. } => Some(*var),
        DeviceOp::Store { .. }
        | DeviceOp::StoreMatrices { .. }
        | DeviceOp::Prefetch { .. }
        | DeviceOp::CopyAsync { .. }
        | DeviceOp::CommitGroup
        | DeviceOp::WaitGroup { .. }
        | DeviceOp::SetSlot { .. }
        | DeviceOp::Warpgroup(_)
        | DeviceOp::Barrier
        | DeviceOp::ClusterBarrier
        | DeviceOp::Signal { .. }
        | DeviceOp::Await { .. }
        | DeviceOp::RoleBarrier { .. }
        | DeviceOp::Pipe(_)
        | DeviceOp::Role { .. }
        | DeviceOp::Fence
        | DeviceOp::GridWait
        | DeviceOp::GridLaunch
        | DeviceOp::Assert { .. }
        | DeviceOp::Trace { .. }
        | DeviceOp::Printf { .. }
        | DeviceOp::If { .. }
        | DeviceOp::Repeat { .. } => None,
    }
}

/// True for an operation that does nothing but define its result.
fn is_pure(op: &DeviceOp) -> bool {
    result(op).is_some()
        && !matches!(
            op,
            DeviceOp::Load { .. }
                | DeviceOp::Atomic { .. }
                | DeviceOp::Tensor(_)
                | DeviceOp::For { .. }
        )
}

/// One walk from the end: what is read later is known when a definition is met.
fn keep_used(stmts: &mut Vec<DeviceStmt>, used: &mut [bool], read: &mut [bool]) -> bool {
    let mut changed = false;
    let mut kept = Vec::with_capacity(stmts.len());
    for mut stmt in std::mem::take(stmts).into_iter().rev() {
        let unread = result(&stmt.op).is_some_and(|dst| !used[dst.index()]);
        if unread && is_pure(&stmt.op) {
            changed = true;
            continue;
        }
        match &mut stmt.op {
            DeviceOp::For { body, .. } => {
                changed |= keep_used(body, used, read);
                if body.is_empty() {
                    changed = true;
                    continue;
                }
            }
            DeviceOp::Repeat { body, again } => {
                used[again.index()] = true;
                changed |= keep_used(body, used, read);
            }
            DeviceOp::If { then_body, else_body, .. } => {
                changed |= keep_used(then_body, used, read);
                changed |= keep_used(else_body, used, read);
                if then_body.is_empty() && else_body.is_empty() {
                    changed = true;
                    continue;
                }
            }
            // An empty role stays: it keeps its warps out of the others'.
            DeviceOp::Role { body, .. } => changed |= keep_used(body, used, read),
            DeviceOp::ReadSlot { slot, .. } => read[slot.index()] = true,
            DeviceOp::Warpgroup(op) => {
                op.slot().into_iter().for_each(|slot| read[slot.index()] = true);
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
            | DeviceOp::Load { .. }
            | DeviceOp::LoadMatrices { .. }
            | DeviceOp::Store { .. }
            | DeviceOp::StoreMatrices { .. }
            | DeviceOp::Prefetch { .. }
            | DeviceOp::CopyAsync { .. }
            | DeviceOp::CommitGroup
            | DeviceOp::WaitGroup { .. }
            | DeviceOp::SetSlot { .. }
            | DeviceOp::Tensor(_)
            | DeviceOp::Barrier
            | DeviceOp::ClusterBarrier
            | DeviceOp::Signal { .. }
            | DeviceOp::Await { .. }
            | DeviceOp::RoleBarrier { .. }
            | DeviceOp::Pipe(_)
            | DeviceOp::Fence
            | DeviceOp::Atomic { .. }
            | DeviceOp::GridWait
            | DeviceOp::GridLaunch
            | DeviceOp::Assert { .. }
            | DeviceOp::Trace { .. }
            | DeviceOp::Printf { .. } => {}
        }
        each_read(&stmt.op, |frag| used[frag.index()] = true);
        kept.push(stmt);
    }
    kept.reverse();
    *stmts = kept;
    changed
}

/// Drops assignments of slots that nobody reads.
fn drop_unread(stmts: &mut Vec<DeviceStmt>, read: &[bool]) -> bool {
    let before = stmts.len();
    stmts.retain(|stmt| match &stmt.op {
        DeviceOp::SetSlot { slot, .. } => read[slot.index()],
        _ => true,
    });
    let mut changed = stmts.len() != before;
    for stmt in stmts {
        each_block(&mut stmt.op, |body| changed |= drop_unread(body, read));
    }
    changed
}

fn each_block(op: &mut DeviceOp, mut see: impl FnMut(&mut Vec<DeviceStmt>)) {
    if let DeviceOp::For { body, .. }
    | DeviceOp::Role { body, .. }
    | DeviceOp::Repeat { body, .. } = op
    {
        see(body);
    } else if let DeviceOp::If { then_body, else_body, .. } = op {
        see(then_body);
        see(else_body);
    }
}

fn renumber_slots(device: &mut DeviceKernel, read: &[bool]) {
    let mut numbers = BTreeMap::new();
    let mut slots = IndexVec::new();
    for (id, slot) in device.slots.iter_enumerated() {
        if read[id.index()] {
            numbers.insert(id, slots.push(slot.clone()));
        }
    }
    device.slots = slots;
    rename_slots(&mut device.body, &numbers);
}

fn rename_slots(stmts: &mut [DeviceStmt], numbers: &BTreeMap<SlotId, SlotId>) {
    for stmt in stmts {
        if let DeviceOp::ReadSlot { slot, .. } | DeviceOp::SetSlot { slot, .. } = &mut stmt.op
            && let Some(&number) = numbers.get(slot)
        {
            *slot = number;
        }
        if let DeviceOp::Warpgroup(op) = &mut stmt.op
            && let Some(slot) = op.slot_mut()
            && let Some(&number) = numbers.get(slot)
        {
            *slot = number;
        }
        each_block(&mut stmt.op, |body| rename_slots(body, numbers));
    }
}
