//! Which tiles and buffers of a kernel are touched in two ways, so that a fence has to stand between.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::Access;

use crate::device::{DeviceKernel, DeviceStmt};
use crate::kernel::{BarrierId, RoleId};
use crate::verify::expansion::{Event, Item, Memory, Reader, blocks};

/// What the statements of a kernel touch, by the way that they go. Tiles are named by their first byte.
#[derive(Debug, Default)]
pub(super) struct Needs {
    pub(super) read_by_products: BTreeSet<u32>,
    read_by_copies: BTreeSet<u32>,
    /// Tiles that asynchronous copies of threads fill and products read.
    pub(super) filled_by_threads: BTreeSet<(Option<RoleId>, u32)>,
    /// Other CTAs store what products read.
    pub(super) stored_by_others: bool,
    touched: BTreeSet<u32>,
    filled: BTreeSet<(BarrierId, u32)>,
    sends: BTreeSet<(BarrierId, u32)>,
    waited: BTreeSet<BarrierId>,
    partners: BTreeMap<BarrierId, BarrierId>,
    /// Barriers with an `open` ahead of each copy, which is into a tile that threads touch.
    pub(super) reopened: BTreeSet<BarrierId>,
    /// Copies read or write buffers that earlier kernels may have touched.
    pub(super) follows_kernels: bool,
    /// Roles that touch tensor memory.
    pub(super) tensor_roles: BTreeSet<RoleId>,
}

impl Needs {
    pub(super) fn of(device: &DeviceKernel, reader: &Reader<'_>) -> Needs {
        let mut needs = Needs::default();
        for (id, placed) in device.barriers.iter_enumerated() {
            needs.partners.extend(placed.barrier.partner.map(|partner| (id, partner)));
        }
        let (mut filled_async, mut remote) = (BTreeSet::new(), BTreeSet::new());
        needs.walk(device, reader, &device.body, None, &mut filled_async, &mut remote);
        filled_async.retain(|(_, tile)| needs.read_by_products.contains(tile));
        needs.filled_by_threads = filled_async;
        needs.stored_by_others = remote.iter().any(|tile| needs.read_by_products.contains(tile));
        let reopened = needs.filled.iter().filter(|(full, tile)| {
            let empty = needs.partners.get(full);
            needs.touched.contains(tile) && empty.is_some_and(|empty| needs.waited.contains(empty))
        });
        needs.reopened = reopened.map(|&(full, _)| full).collect();
        needs
    }

    /// True for a tile that copies fill and threads touch.
    pub(super) fn is_refilled(&self, memory: Memory) -> bool {
        matches!(memory, Memory::Tile(tile) | Memory::Remote(tile) if self.touched.contains(&tile))
    }

    /// The barriers whose slots a wait at this one gives back.
    pub(super) fn reopened_by(&self, empty: BarrierId) -> impl Iterator<Item = BarrierId> {
        let full = self.partners.get(&empty).copied();
        full.filter(|full| self.reopened.contains(full)).into_iter()
    }

    /// The tiles that other CTAs send to at a barrier, of those that products or copies read.
    pub(super) fn sent_at(&self, barrier: BarrierId) -> impl Iterator<Item = u32> {
        let own = self.sends.iter().filter(move |(at, _)| *at == barrier).map(|&(_, tile)| tile);
        own.filter(|tile| {
            self.read_by_products.contains(tile) || self.read_by_copies.contains(tile)
        })
    }

    fn walk(
        &mut self,
        device: &DeviceKernel,
        reader: &Reader<'_>,
        stmts: &[DeviceStmt],
        role: Option<RoleId>,
        filled_async: &mut BTreeSet<(Option<RoleId>, u32)>,
        remote: &mut BTreeSet<u32>,
    ) {
        for stmt in stmts {
            let inner = match reader.item(&stmt.op) {
                Some(Item::Role(role, _)) => Some(role),
                _ => role,
            };
            if let Some(Item::Event(event)) = reader.item(&stmt.op) {
                self.note(device, &event, role);
                match event {
                    Event::CopyAsync(_, Memory::Tile(tile)) => {
                        filled_async.insert((role, tile));
                    }
                    Event::Store(Memory::Remote(tile), _) => {
                        remote.insert(tile);
                    }
                    _ => {}
                }
            }
            for body in blocks(&stmt.op) {
                self.walk(device, reader, body, inner, filled_async, remote);
            }
        }
    }

    fn note(&mut self, device: &DeviceKernel, event: &Event, role: Option<RoleId>) {
        let may_change = |memory: Memory| match memory {
            Memory::Buffer(param) => device.params[param].access != Access::Static,
            _ => false,
        };
        match event {
            Event::Load(Memory::Tile(tile) | Memory::Remote(tile))
            | Event::Store(Memory::Tile(tile) | Memory::Remote(tile), _)
            | Event::CopyAsync(_, Memory::Tile(tile) | Memory::Remote(tile)) => {
                self.touched.insert(*tile);
            }
            Event::Send(Memory::Tile(tile) | Memory::Remote(tile), barrier) => {
                self.touched.insert(*tile);
                self.sends.insert((*barrier, *tile));
            }
            Event::Copy { from, to, barrier, .. } => {
                self.follows_kernels |= may_change(*from);
                if let Memory::Tile(tile) | Memory::Remote(tile) = to {
                    self.filled.insert((*barrier, *tile));
                }
            }
            Event::CopyOut(from, to) => {
                self.follows_kernels |= may_change(*to);
                if let Memory::Tile(tile) = from {
                    self.read_by_copies.insert(*tile);
                }
            }
            Event::Product { left, right, .. } => {
                self.read_by_products.extend(left.iter().chain([right]));
            }
            Event::TensorProduct { left, right } => {
                self.read_by_products.extend(left.iter().chain([right]));
                self.tensor_roles.extend(role);
            }
            Event::CopyScales(tile) => {
                self.read_by_products.insert(*tile);
                self.tensor_roles.extend(role);
            }
            Event::TensorStore | Event::TensorLoad => self.tensor_roles.extend(role),
            Event::Wait(barrier) => {
                self.waited.insert(*barrier);
            }
            _ => {}
        }
    }
}
