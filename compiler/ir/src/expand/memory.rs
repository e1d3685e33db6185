//! Loads and stores of tiles: the place of each element, whether it is present, and who writes it.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::Expander;
use super::builder::{Builder, Pred, fits};
use super::linear::Linear;
use super::vectors::{Cell, Check, Cut, VECTOR_BYTES};
use crate::device::{Arg, DeviceOp, FragId, Place};
use crate::distribution::{AxisMap, Digit, Distribution};
use crate::kernel::{
    AxisIndex, CachePolicy, ContractBound, Extent, ParamId, Storage, TileAccess, ValueId, ViewAxis,
};
use crate::layout::Swizzle;
use crate::ops::{AtomicOp, BinaryOp, multimem};

/// Buffers from here on need 64-bit offsets.
const SMALL_BUFFER_BYTES: u64 = 1 << 31;

impl Builder<'_> {
    /// The type of run-time offsets into a buffer.
    pub(super) fn offset_dtype(&self, param: ParamId) -> DType {
        let declared = &self.kernel.params[param];
        let elements = declared.shape.iter().try_fold(1u64, |n, extent| {
            n.checked_mul(match *extent {
                Extent::Const(c) => u64::from(c),
                Extent::Scalar(id) => match self.kernel.params[id].contract?.hi {
                    ContractBound::Const(hi) => u64::try_from(hi).ok()?,
                    ContractBound::Scalar(..) => return None,
                },
            })
        });
        // packed elements are more than the bytes that they take
        let bits = u64::from(declared.dtype.bits().max(8));
        let bits = elements.and_then(|n| n.checked_mul(bits));
        match bits {
            Some(bits) if bits / 8 < SMALL_BUFFER_BYTES => DType::I32,
            Some(_) | None => DType::I64,
        }
    }

    /// The part of an axis coordinate that depends on the thread.
    pub(super) fn thread_coordinate(&mut self, map: AxisMap) -> Linear {
        let lane = self.lane(map.lanes).times(i64::from(map.vec));
        let below = i64::from(map.vec) * i64::from(map.lanes.extent) * i64::from(map.inner);
        let warp = self.warp(map.warps).times(below);
        lane.zip(warp)
            .and_then(|(lane, warp)| lane.plus(1, &warp))
            .expect("coordinates are below the extent of a tile")
    }

    /// The part of an axis coordinate that depends on the register.
    pub(super) fn local_coordinate(map: AxisMap, local: u32) -> i64 {
        i64::from(map.coordinate(0, 0, local))
    }

    /// Elements from the start of the buffer to a position of a view axis.
    pub(super) fn axis_offset(&mut self, position: &Linear, view: &ViewAxis) -> Option<Linear> {
        let mut offset = Linear::default();
        let mut position = position.clone();
        for digit in view.digits.iter().skip(1).rev() {
            let divisor = i64::from(digit.extent.max(1));
            let (high, low) = match self.split(&position, divisor) {
                Some(parts) => parts,
                None => {
                    let range = self.range(&position);
                    let dtype = if fits(range, DType::I32) { DType::I32 } else { DType::I64 };
                    let by = Linear::constant(divisor);
                    (
                        self.int_binary(BinaryOp::Div, &position, &by, dtype),
                        self.int_binary(BinaryOp::Rem, &position, &by, dtype),
                    )
                }
            };
            offset = offset.plus(digit.stride, &low)?;
            position = high;
        }
        match view.digits.first() {
            Some(slowest) => offset.plus(slowest.stride, &position),
            None => Some(offset),
        }
    }

    /// Holds in the lowest replica of a tile alone.
    pub(super) fn lowest_replica(&mut self, distribution: &Distribution) -> Pred {
        let (lanes, warps) = (distribution.free_lanes(), distribution.free_warps());
        self.digits_are_zero(&lanes, &warps)
    }

    pub(super) fn digits_are_zero(&mut self, lanes: &[Digit], warps: &[Digit]) -> Pred {
        let mut all = Pred::Always;
        for (digits, is_lane) in [(lanes, true), (warps, false)] {
            for &digit in digits {
                let index = if is_lane { self.lane(digit) } else { self.warp(digit) };
                let zero = Linear::constant(0);
                let one = self.int_compare(crate::ops::CompareOp::Eq, &index, &zero, DType::I32);
                all = self.and(all, one);
            }
        }
        all
    }
}

impl Expander<'_> {
    /// The element of the tile in each register: its place in the buffer, and when it is present.
    pub(super) fn cells(
        &mut self,
        access: &TileAccess,
        distribution: &Distribution,
    ) -> Result<Vec<Cell>, Diagnostic> {
        // What does not depend on the register: position of the first element along each axis.
        let mut starts: Vec<Linear> = Vec::new();
        let mut tile_axis = 0;
        for index in &access.index {
            match index {
                AxisIndex::New => tile_axis += 1,
                AxisIndex::At(position) => starts.push(self.integer(*position)),
                AxisIndex::Gather(_) => {
                    starts.push(Linear::default());
                    tile_axis += 1;
                }
                AxisIndex::Along(_) => starts.push(Linear::default()),
                AxisIndex::Range { start, .. } => {
                    let thread = self.b.thread_coordinate(distribution.axes[tile_axis]);
                    let start = self.integer(*start);
                    starts.push(start.plus(1, &thread).ok_or_else(|| too_far(access))?);
                    tile_axis += 1;
                }
            }
        }
        let slot = self.slot_start(access.storage).ok_or_else(|| too_far(access))?;
        let swizzle = self.swizzle(access.storage);
        let mut cells = Vec::new();
        for register in 0..distribution.registers() {
            let locals = distribution.locals(register);
            let cell = self.cell(access, distribution, &starts, &locals);
            let mut cell = cell.ok_or_else(|| too_far(access))?;
            cell.offset = cell.offset.plus(1, &slot).ok_or_else(|| too_far(access))?;
            cell.swizzle = swizzle;
            cells.push(cell);
        }
        Ok(cells)
    }

    fn cell(
        &mut self,
        access: &TileAccess,
        distribution: &Distribution,
        starts: &[Linear],
        locals: &[u32],
    ) -> Option<Cell> {
        let mut cell = Cell::default();
        let (mut tile_axis, mut gathered) = (0, 0);
        let mut views = access.axes.iter().zip(starts);
        for index in &access.index {
            if let AxisIndex::New = index {
                tile_axis += 1;
                continue;
            }
            let (view, start) = views.next()?;
            let position = match index {
                AxisIndex::At(_) | AxisIndex::New => start.clone(),
                AxisIndex::Range { until, .. } => {
                    let map = distribution.axes[tile_axis];
                    let local = Builder::local_coordinate(map, locals[tile_axis]);
                    let position = start.offset(local)?;
                    if let Some(bound) = until {
                        let bound = self.integer(*bound);
                        let margin = bound.plus(-1, &position)?;
                        let parts = Some((position.clone(), bound));
                        cell.checks.push(Check { margin, parts });
                    }
                    tile_axis += 1;
                    position
                }
                AxisIndex::Gather(positions) | AxisIndex::Along(positions) => {
                    if let AxisIndex::Gather(_) = index {
                        gathered = tile_axis;
                        tile_axis += 1;
                    }
                    let map = &self.kernel.values[*positions].distribution;
                    let register = map.register(&[locals[gathered]]);
                    let position = Linear::register((self.frag(*positions), register));
                    cell.checks.push(Check { margin: position.offset(1)?, parts: None });
                    position
                }
            };
            let offset = self.b.axis_offset(&position, view)?;
            cell.offset = cell.offset.plus(1, &offset)?;
        }
        // What always holds needs no look.
        let b = &self.b;
        cell.checks.retain(|check| b.range(&check.margin).0 <= 0);
        Some(cell)
    }

    /// The region of an access and the type of run-time offsets into it.
    pub(super) fn place(&mut self, storage: Storage) -> (Place, DType) {
        match storage {
            // A store to all ranks says itself which.
            Storage::Buffer(param) | Storage::Peers(param) => {
                (Place::Global(param), self.b.offset_dtype(param))
            }
            Storage::Multicast(memory, fold) => {
                let param = self.kernel.window_of(memory);
                let param = param.expect("an access at a multicast address names one");
                (Place::Multicast { param, fold }, self.b.offset_dtype(param))
            }
            Storage::Peer(param, rank) => {
                let rank = self.integer(rank);
                let rank = self.b.materialize(&rank, DType::I32);
                (Place::Peer { param, rank }, self.b.offset_dtype(param))
            }
            Storage::Smem(tile, _) => {
                let base = u32::try_from(self.smem.base(tile)).unwrap_or(u32::MAX);
                (Place::Shared { base, dtype: self.kernel.smem[tile].dtype }, DType::I32)
            }
            Storage::Remote(tile, _, cta) => {
                let base = u32::try_from(self.smem.base(tile)).unwrap_or(u32::MAX);
                let rank = self.integer(cta);
                let cta = self.b.materialize(&rank, DType::I32);
                (Place::Remote { cta, base, dtype: self.kernel.smem[tile].dtype }, DType::I32)
            }
        }
    }

    /// Elements from the start of a ring to the slot that is meant.
    pub(super) fn slot_start(&mut self, storage: Storage) -> Option<Linear> {
        let Some((tile, Some(slot))) = storage.tile() else { return Some(Linear::default()) };
        let tile = &self.kernel.smem[tile];
        let form = self.integer(slot);
        let slots = i64::from(tile.slots);
        let number = match form.as_constant() {
            Some(constant) => Linear::constant(constant.rem_euclid(slots)),
            None => {
                let by = Linear::constant(slots);
                self.b.int_binary(BinaryOp::Rem, &form, &by, DType::I32)
            }
        };
        let size = u64::from(tile.dtype.bytes().unwrap_or(1));
        number.times(i64::try_from(tile.slot_bytes() / size).ok()?)
    }

    /// How a region is permuted, in elements.
    pub(super) fn swizzle(&self, storage: Storage) -> Option<Swizzle> {
        let (tile, _) = storage.tile()?;
        let tile = &self.kernel.smem[tile];
        let bits = tile.swizzle.bits();
        let piece = (VECTOR_BYTES / tile.dtype.bytes().unwrap_or(1)).trailing_zeros();
        (bits > 0).then(|| Swizzle::new(i64::from(bits), i64::from(piece), 3).ok()).flatten()
    }

    /// A load into registers that are spread as `distribution`.
    pub(super) fn load(
        &mut self,
        access: &TileAccess,
        distribution: &Distribution,
        other: Option<ValueId>,
        cache: CachePolicy,
    ) -> Result<FragId, Diagnostic> {
        let dtype = self.kernel.dtype_of(access.storage);
        let cells = self.cells(access, distribution)?;
        let other_frag = other.map(|value| self.frag(value));
        let (place, offsets) = self.place(access.storage);
        let (dst, cut) =
            self.load_cells(&cells, dtype, place, offsets, other_frag, cache, Pred::Always);
        whole_instructions(dtype, &cut, access)?;
        if dtype.is_int()
            && other.is_none()
            && let Storage::Buffer(param) = access.storage
            && let Some(contract) = self.kernel.params[param].kept_contract()
        {
            for register in 0..distribution.registers() {
                self.b.promise((dst, register), contract.lo, contract.hi);
            }
        }
        self.note_access(access, dtype, distribution, &cut, false);
        Ok(dst)
    }

    /// Loads one element a cell; the result has them in the order of the cells.
    pub(super) fn load_cells(
        &mut self,
        cells: &[Cell],
        dtype: DType,
        place: Place,
        offsets: DType,
        other: Option<FragId>,
        cache: CachePolicy,
        extra: Pred,
    ) -> (FragId, Cut) {
        let cut = self.cut_at(&place, cells, dtype);
        let vectors = self.b.vectors(cells, &cut, offsets, extra);
        let len = cells.len() as u32;
        let loaded =
            self.b.define(dtype, len, |dst| DeviceOp::Load { dst, place, vectors, other, cache });
        if cut.in_order() {
            return (loaded, cut);
        }
        let mut table = vec![0; cells.len()];
        for (element, &cell) in cut.order.iter().enumerate() {
            table[cell] = element as u32;
        }
        let x = self.b.gather(loaded, table);
        (self.b.define(dtype, len, |dst| DeviceOp::Copy { dst, x }), cut)
    }

    /// The fewest instructions; integers at a multicast address go one by one.
    fn cut_at(&self, place: &Place, cells: &[Cell], dtype: DType) -> Cut {
        if matches!(place, Place::Multicast { .. }) && !dtype.is_float() {
            return Cut::of_single(cells.len());
        }
        self.b.cut(cells, dtype)
    }

    /// A store of a tile, by its lowest replica.
    pub(super) fn store(
        &mut self,
        value: ValueId,
        access: &TileAccess,
        update: Option<AtomicOp>,
        cache: CachePolicy,
    ) -> Result<(), Diagnostic> {
        let dtype = self.kernel.dtype_of(access.storage);
        let src = self.frag(value);
        let kernel = self.kernel;
        let distribution = &kernel.values[value].distribution;
        let is_peers = matches!(access.storage, Storage::Peers(_));
        let extra = self.b.lowest_replica(distribution);
        if update.is_none()
            && !is_peers
            && extra == Pred::Always
            && let Some((matrices, cut)) = self.store_matrices(src, access, dtype, distribution)
        {
            self.note_access(access, dtype, matrices.turned(), &cut, true);
            self.notes.accesses.last_mut().into_iter().for_each(|note| note.matrices = true);
            return Ok(());
        }
        let cells = self.cells(access, distribution)?;
        let cut = if let Storage::Peers(param) = access.storage {
            self.store_to_all(src, &cells, param, distribution, cache)
        } else {
            let to = self.place(access.storage);
            match update {
                None => self.store_cells(src, &cells, dtype, to.0, to.1, cache, extra),
                Some(op) => self.update_cells(op, src, &cells, to, extra),
            }
        };
        whole_instructions(dtype, &cut, access)?;
        self.note_access(access, dtype, distribution, &cut, true);
        Ok(())
    }

    /// Stores the elements of a fragment, one a cell.
    pub(super) fn store_cells(
        &mut self,
        src: FragId,
        cells: &[Cell],
        dtype: DType,
        place: Place,
        offsets: DType,
        cache: CachePolicy,
        extra: Pred,
    ) -> Cut {
        let cut = self.cut_at(&place, cells, dtype);
        if extra == Pred::Never || cells.is_empty() {
            return cut;
        }
        let vectors = self.b.vectors(cells, &cut, offsets, extra);
        let src = if cut.in_order() {
            Arg::whole(src)
        } else {
            self.b.gather(src, cut.order.iter().map(|&cell| cell as u32).collect())
        };
        self.b.emit(DeviceOp::Store { src, place, vectors, update: None, cache });
        cut
    }

    /// Changes elements by those of a fragment, one a cell and instruction.
    fn update_cells(
        &mut self,
        op: AtomicOp,
        src: FragId,
        cells: &[Cell],
        (place, offsets): (Place, DType),
        extra: Pred,
    ) -> Cut {
        let cut = Cut::of_single(cells.len());
        if extra != Pred::Never && !cells.is_empty() {
            let vectors = self.b.vectors(cells, &cut, offsets, extra);
            let (src, update, cache) = (Arg::whole(src), Some(op), CachePolicy::default());
            self.b.emit(DeviceOp::Store { src, place, vectors, update, cache });
        }
        cut
    }
}

pub(super) fn too_far(access: &TileAccess) -> Diagnostic {
    Diagnostic::error(Code::E0503, "an address of this access needs more than 64 bits")
        .label(access.span, "extents and strides multiply to more than any buffer has")
}

/// Elements that share a byte are moved together, and at a multicast address those that share a word.
fn whole_instructions(dtype: DType, cut: &Cut, access: &TileAccess) -> Result<(), Diagnostic> {
    let is_multicast = matches!(access.storage, Storage::Multicast(..));
    let is_whole = |len: u32| {
        (len * dtype.bits()).is_multiple_of(8) && (!is_multicast || multimem::moves(dtype, len))
    };
    if cut.pieces.iter().all(|&(_, len)| is_whole(len as u32)) {
        return Ok(());
    }
    let shared =
        if is_multicast { "two elements share a word" } else { "two elements share a byte" };
    Err(Diagnostic::error(Code::E0310, format!("a thread would move single elements of {dtype}"))
        .label(access.span, shared)
        .help("let vectors run along the last axis, over at least two elements"))
}
