//! Tensor memory at kernel level: products read their operands when the round is complete that they are committed to,
//! and loads are there when they settle.

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::index::Id;
use kernel_ir::kernel::{
    AxisIndex, BarrierId, SCALE_GROUP, Start, Tensor, TensorAtom, TensorMma, TileAccess, ValueId,
    VarId, stored,
};
use kernel_ir::ops::{Elements, wgmma};
use kernel_ir::smem_plan::slot_columns;

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use super::Machine;
use super::smem::{Places, SharedTiles};
use crate::cluster::Member;
use crate::error::{EmuError, ErrorKind};
use crate::pipes::HasRounds;
use crate::roles::{Clock, Late};
use crate::tmem::{Factors, ROWS, halves, joined, unfolded};

/// A matrix in shared memory.
struct Operand {
    places: Places,
    /// What would have been read when the product started.
    seen: Elements,
    name: String,
    span: Span,
}

/// A left operand: in shared memory, or in so many columns of tensor memory from one on.
enum Left {
    Shared(Operand),
    Tensor(i64, usize),
}

/// What a CTA has of a product.
struct Share {
    cta: usize,
    /// Its part of both operands.
    left: Left,
    right: Operand,
    /// Scales of its own rows, and of all columns.
    scales: Option<[Operand; 2]>,
}

impl Share {
    /// What is read from shared memory.
    fn reads(&self) -> impl Iterator<Item = &Operand> {
        let left = match &self.left {
            Left::Shared(left) => Some(left),
            Left::Tensor(..) => None,
        };
        left.into_iter().chain([&self.right]).chain(self.scales.iter().flatten())
    }
}

/// A product that is not committed yet.
struct Product {
    /// Of each CTA that shares it.
    shares: Vec<Share>,
    /// First column of the sums, and how many.
    columns: (i64, usize),
    atom: TensorAtom,
    from_zero: bool,
    span: Span,
}

/// What a role has under way in tensor memory.
#[derive(Default)]
pub(super) struct Flights<'k> {
    products: Vec<Product>,
    /// All that the role has started, for those who write what they read.
    started: Vec<Arc<Late>>,
    loads: Vec<(VarId, u32, &'k TileAccess)>,
    /// Products that another CTA shares are among them.
    pair: bool,
}

impl<'k> Machine<'k> {
    pub(super) fn tensor(&mut self, op: &'k Tensor, span: Span) -> Result<(), EmuError> {
        match op {
            Tensor::Mma(mma) => self.begin_tensor(mma, span),
            Tensor::Load { var, slot, access } => {
                self.vars[*var][*slot as usize] = None;
                self.flights.loads.push((*var, *slot, access));
                Ok(())
            }
            Tensor::Store { value, access } => self.store_tensor(*value, access),
            Tensor::Settle { var, slot } => self.settle_load(*var, *slot),
        }
    }

    /// The role ends.
    pub(super) fn end_tensor(&self) -> Result<(), EmuError> {
        let Some(product) = self.flights.products.first() else { return Ok(()) };
        let message = "a product that is never committed";
        Err(EmuError::new(ErrorKind::Phase, product.span, message))
    }

    /// The first column of an access, and how many.
    fn columns(&self, access: &TileAccess) -> Result<(i64, usize), EmuError> {
        let Some((tile, slot)) = access.storage.tile() else {
            unreachable!("sums lie in tensor memory")
        };
        let declared = &self.kernel.smem[tile];
        let slot = slot.map_or(0, |slot| self.int(slot));
        let start = match access.index.last() {
            // Of folded columns all are touched.
            Some(AxisIndex::Range { .. }) if declared.folded => (0, declared.columns()),
            Some(AxisIndex::Range { start, len, .. }) => (self.int(*start), *len),
            None | Some(AxisIndex::New) => (0, declared.columns() * declared.column_elements()),
            Some(AxisIndex::At(_) | AxisIndex::Gather(_) | AxisIndex::Along(_)) => {
                unreachable!("sema takes ranges of columns alone")
            }
        };
        let each = declared.column_elements();
        let start = (start.0 / i64::from(each), start.1.div_ceil(each));
        let inside = start.0 >= 0 && start.0 + i64::from(start.1) <= declared.columns().into();
        if slot < 0 || !inside {
            let message = format!("slot {slot}, column {} of `{}`", start.0, declared.name);
            return Err(EmuError::new(ErrorKind::OutOfBounds, access.span, message)
                .other(declared.span, "declared here"));
        }
        let step = slot_columns(declared.columns()) as i64;
        let first = self.plan.base(tile) as i64 + slot % i64::from(declared.slots) * step;
        Ok((first + start.0, start.1 as usize))
    }

    fn store_tensor(&mut self, value: ValueId, access: &TileAccess) -> Result<(), EmuError> {
        let (first, _) = self.columns(access)?;
        let stored = self.value(value);
        let codes: Vec<u64> = (0..stored.len()).map(|i| stored.get(i)).collect();
        let (names, clock) = (self.names(), &self.clock);
        let tensor = &mut self.member.own().tensor;
        tensor.store(first, 0..ROWS, &joined(&codes), clock, names, access.span)
    }

    fn settle_load(&mut self, var: VarId, slot: u32) -> Result<(), EmuError> {
        let loads = &mut self.flights.loads;
        let Some(at) = loads.iter().position(|load| (load.0, load.1) == (var, slot)) else {
            return Ok(());
        };
        let (_, _, access) = loads.remove(at);
        let (first, count) = self.columns(access)?;
        let tile = access.storage.tile().map(|(tile, _)| &self.kernel.smem[tile]);
        let folded = tile.is_some_and(|tile| tile.folded);
        let start = match access.index.first() {
            Some(AxisIndex::Range { start, .. }) if !folded => self.int(*start).max(0) as usize,
            _ => 0,
        };
        let rows = if folded { ROWS } else { self.kernel.vars[var].shape[0] as usize };
        let (names, clock) = (self.names(), &self.clock);
        let mut shared = self.member.own();
        let tensor = &mut shared.tensor;
        let values = tensor.read(first, count, start..start + rows, clock, names, access.span)?;
        drop(shared);
        let values = if folded { unfolded(&values, count) } else { values };
        self.vars[var][slot as usize] = Some(Rc::new(Elements::from_f32(&values)));
        Ok(())
    }

    fn begin_tensor(&mut self, mma: &'k TensorMma, span: Span) -> Result<(), EmuError> {
        let own = self.member.rank();
        let across = self.member.own().rounds().other_of(&self.clock);
        let ctas = self.member.targets(mma.atom.pair);
        let mut shares = Vec::new();
        for cta in ctas {
            let by = (cta, if cta == own { &self.clock } else { &across });
            let left = match mma.a.storage.tile() {
                Some((tile, _)) if self.kernel.smem[tile].is_tensor() => {
                    let (first, count) = self.columns(&mma.a)?;
                    Left::Tensor(first, count)
                }
                _ => Left::Shared(self.tensor_operand(&mma.a, by)?),
            };
            let right = self.tensor_operand(&mma.b, by)?;
            let scales = match &mma.scales {
                None => None,
                Some([a, b]) => Some([self.tensor_operand(a, by)?, self.tensor_operand(b, by)?]),
            };
            shares.push(Share { cta, left, right, scales });
        }
        let from_zero = match mma.start {
            Start::Sums => false,
            Start::Zero => true,
            Start::When(cond) => self.code(cond) == 0,
        };
        let columns = self.columns(&mma.acc)?;
        let names = self.names();
        let late = Late::new(&self.clock, span);
        for share in &shares {
            let clock = if share.cta == own { &self.clock } else { &across };
            let mut shared = self.member.shared(share.cta);
            shared.tensor.begin(columns.0, columns.1, clock, names, span)?;
            if let Left::Tensor(first, count) = share.left {
                shared.tensor.use_left(first, count, clock, names, span)?;
            }
            for operand in share.reads() {
                shared.read_late(&operand.places, clock, operand.span, &late);
            }
        }
        self.flights.started.push(late);
        self.flights.pair |= mma.atom.pair;
        let elements: usize = shares.iter().map(|share| share.right.seen.len()).sum();
        self.count_flops(DType::F32, 2 * elements * mma.atom.m as usize);
        let atom = mma.atom;
        let product = Product { shares, columns, atom, from_zero, span };
        self.flights.products.push(product);
        Ok(())
    }

    /// An operand in shared memory of a CTA, for one who knows so much of it.
    fn tensor_operand(
        &self,
        access: &'k TileAccess,
        (cta, clock): (usize, &Clock),
    ) -> Result<Operand, EmuError> {
        let tile = self.resolve(access, "read by a product")?;
        let Some(target) = self.slot_of(access.storage, access.span)? else {
            unreachable!("operands of a product lie in shared memory")
        };
        let target = target.of(cta);
        let len = tile.shape().iter().map(|&e| e as usize).product();
        let mut seen = Elements::splat(self.kernel.dtype_of(access.storage), 0, len);
        self.load_slot_by(target, access, &tile, &mut seen, clock)?;
        let mut places = vec![0; len];
        tile.runs(|start, count, at| {
            (0..count).for_each(|i| places[at + i] = start as usize + i);
            Ok(())
        })?;
        let name = self.kernel.name_of(access.storage).to_owned();
        Ok(Operand { places: target.places(places), seen, name, span: access.span })
    }

    /// `commit b@t;`
    pub(super) fn commit_tensor(
        &mut self,
        barrier: BarrierId,
        at: ValueId,
        everywhere: bool,
        span: Span,
    ) -> Result<(), EmuError> {
        let (place, _) = self.slot_and_round(barrier, at, span)?;
        let (post, seat) = self.post();
        let round = post.pipes.stamp(place, span);
        let products = std::mem::take(&mut self.flights.products);
        let own = self.member.rank();
        let across = self.clock.elsewhere(Vec::new());
        for cta in self.member.targets(self.flights.pair) {
            let clock = if cta == own { &self.clock } else { &across };
            self.member.shared(cta).tensor.commit(clock, round);
        }
        self.flights.started.iter().for_each(|late| late.commit(round));
        let complete = move |member: Member<'_, SharedTiles>| -> Result<(), EmuError> {
            products.iter().try_for_each(|product| product.complete(member))
        };
        let by = (post.role.index(), &self.clock);
        post.pipes.commit(own, (place, everywhere), by, span, Box::new(complete));
        seat.pass(span)
    }
}

/// The elements that a tile in shared memory holds: of packed ones two in a byte, the first in its low half.
fn unpacked(seen: &Elements, dtype: DType) -> Cow<'_, Elements> {
    if stored(dtype) == dtype {
        return Cow::Borrowed(seen);
    }
    let bytes = (0..seen.len()).map(|i| seen.get(i));
    Cow::Owned(Elements::from_codes(dtype, bytes.flat_map(|byte| [byte & 15, byte >> 4 & 15])))
}

impl Product {
    /// The rows of the right operand, one a column of the sums: of each atom those of every CTA.
    fn right(&self, factors: impl Fn(&Operand) -> Vec<f64>) -> Vec<f64> {
        let parts: Vec<Vec<f64>> = self.shares.iter().map(|share| factors(&share.right)).collect();
        let [first, others @ ..] = parts.as_slice() else { return Vec::new() };
        if others.is_empty() {
            return first.clone();
        }
        let wide = if self.atom.folds() { 2 * self.columns.1 } else { self.columns.1 };
        let atoms = wide / (self.atom.n as usize).max(1);
        let len = first.len() / atoms.max(1);
        let of_atom = |atom: usize| {
            parts.iter().flat_map(move |part| part.iter().skip(atom * len).take(len).copied())
        };
        (0..atoms).flat_map(of_atom).collect()
    }

    /// Every CTA gets its rows of the left operand times all of the right one.
    fn complete(&self, member: Member<'_, SharedTiles>) -> Result<(), EmuError> {
        for share in &self.shares {
            let shared = member.shared(share.cta);
            for Operand { places, seen, name, span } in share.reads() {
                if shared.read_places(places, seen.dtype()) != *seen {
                    let message = format!("`{name}` is written while a product may still read it");
                    return Err(EmuError::new(ErrorKind::SharedRace, *span, message)
                        .other(self.span, "the product"));
                }
            }
        }
        let [left, right] = self.atom.types;
        let factors = |operand: &Operand, dtype| wgmma::factors(&unpacked(&operand.seen, dtype));
        let all = self.right(|operand| factors(operand, right));
        for share in &self.shares {
            let (rows, step) = (self.atom.own_rows() as usize, self.atom.depth() as usize);
            let mut a = match &share.left {
                Left::Shared(a) => factors(a, left),
                &Left::Tensor(first, count) => {
                    let tensor = &mut member.shared(share.cta).tensor;
                    wgmma::factors(&halves(left, &tensor.words(first, count, rows, self.span)?))
                }
            };
            let mut b = all.clone();
            if let Some(scales) = &share.scales {
                for (factors, of) in [&mut a, &mut b].into_iter().zip(scales) {
                    wgmma::scale(factors, &wgmma::factors(&of.seen), SCALE_GROUP as usize);
                }
            }
            let depth = a.len() / rows;
            let (from_zero, folded) = (self.from_zero, self.atom.folds());
            let factors = Factors { a, b, depth, step, from_zero, folded };
            let tensor = &mut member.shared(share.cta).tensor;
            tensor.multiply(self.columns.0, self.columns.1, &factors, self.span)?;
        }
        Ok(())
    }
}
