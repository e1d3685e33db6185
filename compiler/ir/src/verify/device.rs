//! Passes over the device level: it is well formed, and R1 and R2 hold of what `expand` made.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic, Sink};

use crate::device::{
    Address, Arg, DeviceKernel, DeviceOp, DevicePipe, DeviceStmt, Factor, FragId, Lanes, LocId,
    Map, Matrix, MatrixLoad, Piece, Place, ProductStart, TensorLeft, TensorOp, Vector, WaitOrder,
    WarpgroupOp,
};
use crate::distribution::LANES;
use crate::index::IndexVec;
use crate::kernel::{
    ParamId, RoleId, SCALE_BYTES, SCALE_ROWS, SCALE_WORD, TENSOR_COLUMNS, TensorAtom, WgmmaAtom,
    multiplies, stored,
};
use crate::ops::multimem;
use crate::order::{Effect, join};

pub(super) fn check_structure(kernel: &DeviceKernel, sink: &mut Sink) {
    let defined = kernel.frags.iter().map(|_| false).collect();
    let mut walk = Structure {
        kernel,
        defined,
        role: None,
        uses_multicast: false,
        unfenced: Vec::new(),
        sink,
    };
    walk.block(&kernel.body);
    walk.fences();
}

struct Structure<'a> {
    kernel: &'a DeviceKernel,
    defined: IndexVec<FragId, bool>,
    /// The role whose statements these are.
    role: Option<RoleId>,
    /// Memory is touched at a multicast address.
    uses_multicast: bool,
    /// Signals and waits that do not order that with what is done at other addresses.
    unfenced: Vec<LocId>,
    sink: &'a mut Sink,
}

impl Structure<'_> {
    fn block(&mut self, stmts: &[DeviceStmt]) {
        let outer = self.defined.clone();
        for stmt in stmts {
            self.stmt(stmt);
        }
        self.defined = outer;
    }

    fn stmt(&mut self, stmt: &DeviceStmt) {
        let loc = stmt.loc;
        match &stmt.op {
            DeviceOp::Const { dst, values } => {
                let len = values.len();
                if len != 1 && len != self.len(*dst) as usize {
                    self.fault(loc, format!("{dst} takes {len} constants"));
                }
                self.define(loc, *dst);
            }
            DeviceOp::Special { dst, .. } | DeviceOp::ScalarParam { dst, .. } => {
                self.define(loc, *dst)
            }
            DeviceOp::Unary { dst, x, .. }
            | DeviceOp::Convert { dst, x }
            | DeviceOp::Copy { dst, x } => {
                self.args(loc, self.len(*dst), &[x]);
                self.define(loc, *dst);
            }
            DeviceOp::Binary { dst, a, b, .. } | DeviceOp::Compare { dst, a, b, .. } => {
                self.args(loc, self.len(*dst), &[a, b]);
                self.define(loc, *dst);
            }
            DeviceOp::Select { dst, cond, a, b } => {
                self.args(loc, self.len(*dst), &[cond, a, b]);
                self.define(loc, *dst);
            }
            DeviceOp::Fma { dst, a, b, c } => {
                self.args(loc, self.len(*dst), &[a, b, c]);
                self.define(loc, *dst);
            }
            DeviceOp::Inline { dst, text: _, equals, inputs } => {
                let all: Vec<&Arg> = std::iter::once(equals).chain(inputs).collect();
                self.args(loc, self.len(*dst), &all);
                self.define(loc, *dst);
            }
            DeviceOp::Join { dst, from } => {
                if from.len() != self.len(*dst) as usize {
                    self.fault(loc, format!("{dst} is joined from {} elements", from.len()));
                }
                for &(frag, index) in from {
                    self.element(loc, frag, index);
                }
                self.define(loc, *dst);
            }
            DeviceOp::Mma { dst, a, b, acc, atoms } => {
                for atom in atoms {
                    let left = atom.a.iter().flatten().map(|&i| (*a, i));
                    let right = atom.b.iter().map(|&i| (*b, i));
                    for (frag, index) in left.chain(right) {
                        self.element(loc, frag, index);
                    }
                    for &index in atom.c.iter().flatten() {
                        self.element(loc, *acc, index);
                    }
                }
                if self.len(*acc) != self.len(*dst) {
                    self.fault(loc, format!("{dst} has another length than the sums before"));
                }
                self.define(loc, *dst);
            }
            DeviceOp::Shuffle { dst, x, lanes } => {
                self.element(loc, *x, self.len(*dst).saturating_sub(1));
                match *lanes {
                    Lanes::Xor(xor) if (1..LANES).contains(&xor) => {}
                    Lanes::Xor(xor) => self.fault(loc, format!("a shuffle over {xor} lanes")),
                    Lanes::Register((frag, index)) => self.element(loc, frag, index),
                }
                self.define(loc, *dst);
            }
            DeviceOp::ReduceLanes { dst, x, op } => {
                self.element(loc, *x, self.len(*dst).saturating_sub(1));
                let dtype = self.kernel.frags.get(*dst).map(|frag| frag.dtype);
                if !dtype.is_some_and(|dtype| op.is_free_of_order(dtype)) {
                    self.fault(loc, format!("{dst} depends on the order of the lanes"));
                }
                self.define(loc, *dst);
            }
            DeviceOp::Load { dst, place, vectors, other, .. } => {
                self.vectors(loc, place, vectors, self.len(*dst));
                if let Some(other) = other {
                    self.element(loc, *other, 0);
                }
                self.define(loc, *dst);
            }
            DeviceOp::LoadMatrices { dst, place, loads } => {
                self.matrices(loc, *dst, place, loads);
                self.define(loc, *dst);
            }
            DeviceOp::StoreMatrices { src, place, stores } => {
                self.element(loc, *src, 0);
                self.matrices(loc, *src, place, stores);
            }
            DeviceOp::Store { src, place, vectors, .. } => {
                let len = vectors.iter().map(|v| v.first + v.len).max().unwrap_or(0);
                self.args(loc, len, &[src]);
                self.vectors(loc, place, vectors, len);
            }
            DeviceOp::Prefetch { vectors, bytes, .. } => {
                if let Some((frag, element)) = bytes {
                    self.element(loc, *frag, *element);
                }
                for vector in vectors {
                    self.vector_registers(loc, vector);
                }
            }
            DeviceOp::ReadSlot { dst, slot } => {
                if self.kernel.slots[*slot].len != self.len(*dst) {
                    self.fault(loc, format!("{dst} reads a slot of another length"));
                }
                self.define(loc, *dst);
            }
            DeviceOp::SetSlot { slot, x } => {
                self.args(loc, self.kernel.slots[*slot].len, &[x]);
            }
            DeviceOp::Signal { rank, at, alias, .. } => {
                self.unfenced.extend((!alias).then_some(loc));
                if let Some((frag, index)) = rank {
                    self.element(loc, *frag, *index);
                }
                self.vector_registers(loc, at);
            }
            DeviceOp::Await { at, until, alias, .. } => {
                self.unfenced.extend((!alias).then_some(loc));
                self.element(loc, *until, 0);
                self.vector_registers(loc, at);
            }
            DeviceOp::Warpgroup(op) => self.warpgroup(loc, op),
            DeviceOp::Tensor(op) => self.tensor(loc, op),
            DeviceOp::Atomic { dst, at, change, .. } => {
                self.vector_registers(loc, at);
                let (frag, index) = change.register();
                self.element(loc, frag, index);
                if at.len != 1 || self.len(*dst) != 1 {
                    self.fault(loc, "an atomic on more than one element".to_owned());
                }
                self.define(loc, *dst);
            }
            DeviceOp::CopyAsync { dest, pieces, .. } => {
                for piece in pieces {
                    self.piece(loc, dest, piece);
                }
            }
            DeviceOp::CommitGroup
            | DeviceOp::WaitGroup { .. }
            | DeviceOp::Barrier
            | DeviceOp::ClusterBarrier
            | DeviceOp::RoleBarrier { .. }
            | DeviceOp::Fence
            | DeviceOp::GridWait
            | DeviceOp::GridLaunch => {}
            DeviceOp::Pipe(pipe) => {
                let mut used = Vec::new();
                pipe.each_register(|register| used.push(register));
                for (frag, index) in used {
                    self.element(loc, frag, index);
                }
                if let DevicePipe::Box { map, at, .. }
                | DevicePipe::BoxOut { map, at, .. }
                | DevicePipe::Prefetch { map, at, .. } = pipe
                {
                    let axes = self.kernel.maps.get(*map).map(|map| map.axes.len());
                    if axes != Some(at.len()) {
                        self.fault(loc, format!("a box of {map} with {} places", at.len()));
                    }
                }
            }
            DeviceOp::Assert { cond, .. } => self.element(loc, *cond, 0),
            DeviceOp::Trace { event } => {
                if self.kernel.events.len() <= *event as usize {
                    self.fault(loc, "an event without a text".to_owned());
                }
            }
            DeviceOp::Printf { args, .. } => {
                for arg in args {
                    self.element(loc, *arg, 0);
                }
            }
            DeviceOp::For { var, start, end, step, body } => {
                self.element(loc, *start, 0);
                self.element(loc, *end, 0);
                if *step == 0 {
                    self.fault(loc, "a loop of step 0".to_owned());
                }
                let before = std::mem::replace(&mut self.defined[*var], true);
                self.block(body);
                self.defined[*var] = before;
            }
            DeviceOp::Repeat { body, again } => {
                let outer = self.defined.clone();
                for stmt in body {
                    self.stmt(stmt);
                }
                self.element(loc, *again, 0);
                self.defined = outer;
            }
            DeviceOp::Role { role, body } => {
                if self.kernel.roles.get(*role).is_none() {
                    self.fault(loc, format!("{role} is not declared"));
                }
                self.role = Some(*role);
                self.block(body);
                self.role = None;
            }
            DeviceOp::If { cond, then_body, else_body } => {
                self.element(loc, *cond, 0);
                self.block(then_body);
                self.block(else_body);
            }
        }
    }

    fn len(&self, frag: FragId) -> u32 {
        self.kernel.frags[frag].len
    }

    fn define(&mut self, loc: LocId, dst: FragId) {
        if std::mem::replace(&mut self.defined[dst], true) {
            self.fault(loc, format!("{dst} is defined twice"));
        }
    }

    fn args(&mut self, loc: LocId, len: u32, args: &[&Arg]) {
        for arg in args {
            let greatest = match &arg.map {
                Map::Identity => len.checked_sub(1),
                Map::All(index) => Some(*index),
                Map::Table(table) => {
                    if table.len() < len as usize {
                        self.fault(loc, format!("a table of {} entries for {len}", table.len()));
                    }
                    table.iter().copied().max()
                }
            };
            if let Some(greatest) = greatest {
                self.element(loc, arg.frag, greatest);
            }
        }
    }

    fn element(&mut self, loc: LocId, frag: FragId, index: u32) {
        if !self.defined[frag] {
            self.fault(loc, format!("{frag} is used before it is defined"));
        } else if index >= self.len(frag) {
            self.fault(loc, format!("element {index} of {frag}, which has {}", self.len(frag)));
        }
    }

    fn vector_registers(&mut self, loc: LocId, vector: &Vector) {
        for (frag, index) in vector.offset.into_iter().chain(vector.predicate) {
            self.element(loc, frag, index);
        }
    }

    fn piece(&mut self, loc: LocId, dest: &Place, piece: &Piece) {
        let registers = [piece.source.offset, piece.dest.offset, piece.present, piece.predicate];
        for (frag, index) in registers.into_iter().flatten() {
            self.element(loc, frag, index);
        }
        let Place::Shared { base, dtype } = dest else {
            return self.fault(loc, "a copy to what is not shared memory".to_owned());
        };
        let size = dtype.bits() / 8;
        if !matches!(piece.len.saturating_mul(size), 4 | 8 | 16) {
            self.fault(loc, format!("a copy of {} elements", piece.len));
        }
        let end = i64::from(*base) + (piece.dest.constant + i64::from(piece.len)) * i64::from(size);
        if piece.dest.offset.is_none()
            && (piece.dest.constant < 0 || end > i64::from(self.kernel.shared_bytes))
        {
            self.fault(loc, "shared memory past its end".to_owned());
        }
    }

    /// Where memory is touched at a multicast address, words order that with other accesses.
    fn fences(&mut self) {
        if self.uses_multicast
            && let Some(&loc) = self.unfenced.first()
        {
            self.fault(loc, "a word that does not order multicast addresses".to_owned());
        }
    }

    fn vectors(&mut self, loc: LocId, place: &Place, vectors: &[Vector], len: u32) {
        let mut covered = 0;
        self.uses_multicast |= matches!(place, Place::Multicast { .. });
        if let Some((frag, index)) = place.owner() {
            self.element(loc, frag, index);
        }
        for vector in vectors {
            self.vector_registers(loc, vector);
            let bits = match place {
                Place::Global(param)
                | Place::Peer { param, .. }
                | Place::Multicast { param, .. } => self.kernel.params[*param].dtype.bits(),
                Place::Shared { dtype, .. } | Place::Remote { dtype, .. } => dtype.bits(),
            };
            if let Place::Multicast { param, .. } = place
                && !multimem::moves(self.kernel.params[*param].dtype, vector.len)
            {
                self.fault(loc, format!("{} elements at a multicast address", vector.len));
            }
            let most = self.kernel.target.info().max_vector_bytes * 8;
            if !vector.len.is_power_of_two() || !(8..=most).contains(&(vector.len * bits)) {
                self.fault(loc, format!("a vector of {} elements", vector.len));
            }
            if let (Place::Shared { base, dtype } | Place::Remote { base, dtype, .. }, None) =
                (place, vector.offset)
            {
                let size = i64::from(dtype.bits() / 8);
                let end = i64::from(*base) + (vector.constant + i64::from(vector.len)) * size;
                if vector.constant < 0 || end > i64::from(self.kernel.shared_bytes) {
                    self.fault(loc, "shared memory past its end".to_owned());
                }
            }
            covered += vector.len;
        }
        if covered != len {
            self.fault(loc, format!("vectors cover {covered} of {len} elements"));
        }
    }

    /// Matrices that make or take all elements of a fragment.
    fn matrices(&mut self, loc: LocId, frag: FragId, place: &Place, moves: &[MatrixLoad]) {
        let made: u32 = moves.iter().map(|one| one.count * 2).sum();
        let ordered = moves.iter().zip(moves.iter().skip(1));
        let gapless = ordered.into_iter().all(|(a, b)| a.first + a.count * 2 == b.first);
        let counts = moves.iter().all(|one| matches!(one.count, 1 | 2 | 4));
        if !gapless || !counts || made != self.len(frag) {
            self.fault(loc, format!("matrices of {made} elements for {frag}"));
        }
        if !matches!(place, Place::Shared { dtype, .. } if dtype.bits() == 16) {
            self.fault(loc, "matrices of no shared memory".to_owned());
        }
        for (frag, index) in moves.iter().filter_map(|one| one.at.offset) {
            self.element(loc, frag, index);
        }
    }

    /// Whole warpgroups run the statements.
    fn whole_warpgroups(&self) -> bool {
        let (first, warps) = match self.role.and_then(|role| self.kernel.roles.get(role)) {
            Some(role) => (role.first, if role.elect { 1 } else { role.warps }),
            None => (0, self.kernel.launch.warps),
        };
        (first | warps).is_multiple_of(WgmmaAtom::WARPS)
    }

    fn warpgroup(&mut self, loc: LocId, op: &WarpgroupOp) {
        if let Some(slot) = op.slot()
            && self.kernel.slots.get(slot).is_none_or(|slot| slot.dtype != DType::F32)
        {
            self.fault(loc, "sums that are no slot of f32".to_owned());
            return;
        }
        let WarpgroupOp::Mma(product) = op else { return };
        let len = self.kernel.slots[product.slot].len;
        let is_atom =
            product.n.is_multiple_of(8) && (8..=WgmmaAtom::MAX_COLUMNS).contains(&product.n);
        if !is_atom
            || !multiplies(product.types)
            || product.sums.len() != product.n as usize / 2
            || product.sums.iter().any(|&register| register >= len)
            || !self.whole_warpgroups()
        {
            self.fault(loc, "a product of a warpgroup that is no instruction".to_owned());
        }
        let left = match &product.a {
            Factor::Shared(matrix) => Some((*matrix, WgmmaAtom::ROWS, product.types[0])),
            Factor::Registers { frag, elements } => {
                elements.iter().for_each(|&element| self.element(loc, *frag, element));
                if elements.len() != 8 || product.types[0].bits() != 16 {
                    self.fault(loc, "registers that are no left operand".to_owned());
                }
                None
            }
        };
        let right = (product.b, product.n, product.types[1]);
        for (matrix, rows, dtype) in left.into_iter().chain([right]) {
            let last = match matrix.across {
                None => i64::from(rows - 1) * i64::from(matrix.line) + 32,
                Some(_) => 15 * i64::from(matrix.line) + 16,
            };
            let size = i64::from(dtype.bits() / 8);
            let end = i64::from(matrix.base) + matrix.at.constant * size + last;
            let inside = matrix.at.constant >= 0
                && (matrix.at.offset.is_some() || end <= i64::from(self.kernel.shared_bytes));
            if !matches!(matrix.line, 32 | 64 | 128) || !inside {
                self.fault(loc, "a matrix that does not lie in shared memory".to_owned());
            }
            if let Some((frag, index)) = matrix.at.offset {
                self.element(loc, frag, index);
            }
        }
        if let ProductStart::When((frag, index)) = product.start {
            self.element(loc, frag, index);
        }
    }

    fn tensor(&mut self, loc: LocId, op: &TensorOp) {
        let mut used = Vec::new();
        op.each_register(|register| used.push(register));
        for (frag, index) in used {
            self.element(loc, frag, index);
        }
        let inside = |column: Address, count: u32| {
            let end = column.constant + i64::from(count);
            column.constant >= 0 && (column.offset.is_some() || end <= TENSOR_COLUMNS.into())
        };
        let fits = match op {
            TensorOp::Allocate { columns, .. } | TensorOp::Free { columns, .. } => {
                columns.is_power_of_two() && (32..=TENSOR_COLUMNS).contains(columns)
            }
            TensorOp::Attach { word } => word.is_multiple_of(4),
            TensorOp::Load { dst, rows, column } => {
                self.define(loc, *dst);
                let len = self.len(*dst);
                let columns = match *rows {
                    TensorAtom::ROWS => Some(len),
                    TensorAtom::HALF if len.is_multiple_of(4) => Some(len * 2),
                    _ => None,
                };
                let is_f32 = self.kernel.frags[*dst].dtype == DType::F32;
                is_f32 && columns.is_some_and(|columns| inside(*column, columns))
            }
            TensorOp::Store { src, column } => {
                let (len, bits) = (self.len(*src), self.kernel.frags[*src].dtype.bits());
                bits == 16 && len > 0 && len.is_multiple_of(2) && inside(*column, len / 2)
            }
            TensorOp::CopyScales { column, base, at, rows, pair } => {
                let end = i64::from(*base) + at.constant + i64::from(SCALE_BYTES);
                let lies = at.offset.is_some() || end <= self.kernel.shared_bytes.into();
                at.constant >= 0
                    && lies
                    && *rows <= SCALE_ROWS
                    && (!pair || self.kernel.launch.cluster_size() == 2)
                    && inside(Address { offset: None, constant: (*column).into() }, SCALE_WORD)
            }
            TensorOp::Product(product) => {
                let most = TensorAtom::MAX_COLUMNS;
                let step = TensorAtom::column_step(product.m, product.pair);
                let is_pair = product.pair
                    && (product.m == TensorAtom::PAIR
                        || product.m == TensorAtom::ROWS && product.scales.is_none())
                    && self.kernel.launch.cluster_size() == 2;
                let is_alone =
                    !product.pair && matches!(product.m, TensorAtom::ROWS | TensorAtom::HALF);
                let ctas = if product.pair { 2 } else { 1 };
                let is_atom = (is_pair || is_alone)
                    && (multiplies(product.types) || product.scales.is_some())
                    && product.n.is_multiple_of(step)
                    && (step..=most).contains(&product.n);
                let lies = |matrix: &Matrix, rows: u32, dtype: DType| {
                    let last = i64::from(rows.max(1) - 1) * i64::from(matrix.line) + 32;
                    let size = i64::from(stored(dtype).bits() / 8);
                    let end = i64::from(matrix.base) + matrix.at.constant * size + last;
                    let ends = end <= i64::from(self.kernel.shared_bytes);
                    matches!(matrix.line, 32 | 64 | 128)
                        && matrix.at.constant >= 0
                        && (matrix.at.offset.is_some() || ends)
                };
                is_atom
                    && inside(product.column, product.columns())
                    && match &product.a {
                        TensorLeft::Shared(a) => lies(a, product.m / ctas, product.types[0]),
                        TensorLeft::Tensor(at) => {
                            is_alone
                                && product.m == TensorAtom::ROWS
                                && product.scales.is_none()
                                && product.types[0].bits() == 16
                                && inside(*at, TensorAtom::DEPTH_BYTES / 4)
                        }
                    }
                    && lies(&product.b, product.n / ctas, product.types[1])
            }
            TensorOp::FenceBefore | TensorOp::FenceAfter => true,
        };
        if !fits {
            self.fault(loc, "an operation of tensor memory that is no instruction".to_owned());
        }
    }

    fn fault(&mut self, loc: LocId, message: String) {
        let mut diagnostic = Diagnostic::error(Code::E0810, "the device IR is malformed");
        diagnostic = match self.kernel.locs.get(loc) {
            Some(place) => diagnostic.label(place.span, message),
            None => diagnostic.note(message),
        };
        self.sink.push(diagnostic);
    }
}

pub(super) fn check_memory_order(kernel: &DeviceKernel, sink: &mut Sink) {
    if !kernel.launch.pdl.is_consumer() {
        return;
    }
    let mut walk = Order { kernel, sink };
    walk.block(&kernel.body, WaitOrder::Before);
    if effect(&kernel.body).apply(WaitOrder::Before) != WaitOrder::After {
        let message = format!("kernel `{}` can finish without `grid_wait`", kernel.name);
        walk.sink.push(Diagnostic::error(Code::E0109, message));
    }
}

/// What the statements do to the order.
fn effect(stmts: &[DeviceStmt]) -> Effect {
    stmts.iter().fold(Effect::Nothing, |so_far, stmt| {
        so_far.then(match &stmt.op {
            DeviceOp::GridWait => Effect::EveryPath,
            DeviceOp::For { body, .. } => effect(body).repeated(),
            DeviceOp::Repeat { body, .. } => effect(body),
            DeviceOp::If { then_body, else_body, .. } => effect(then_body).or(effect(else_body)),
            DeviceOp::Role { body, .. } => effect(body),
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
            | DeviceOp::Atomic { .. }
            | DeviceOp::StoreMatrices { .. }
            | DeviceOp::Signal { .. }
            | DeviceOp::Await { .. }
            | DeviceOp::GridLaunch
            | DeviceOp::Store { .. }
            | DeviceOp::Prefetch { .. }
            | DeviceOp::CopyAsync { .. }
            | DeviceOp::CommitGroup
            | DeviceOp::WaitGroup { .. }
            | DeviceOp::ReadSlot { .. }
            | DeviceOp::SetSlot { .. }
            | DeviceOp::Warpgroup(_)
            | DeviceOp::Tensor(_)
            | DeviceOp::Barrier
            | DeviceOp::ClusterBarrier
            | DeviceOp::RoleBarrier { .. }
            | DeviceOp::Pipe(_)
            | DeviceOp::Fence
            | DeviceOp::Assert { .. }
            | DeviceOp::Trace { .. }
            | DeviceOp::Printf { .. } => Effect::Nothing,
        })
    })
}

struct Order<'a> {
    kernel: &'a DeviceKernel,
    sink: &'a mut Sink,
}

impl Order<'_> {
    fn block(&mut self, stmts: &[DeviceStmt], at: WaitOrder) -> WaitOrder {
        stmts.iter().fold(at, |at, stmt| self.stmt(stmt, at))
    }

    fn stmt(&mut self, stmt: &DeviceStmt, at: WaitOrder) -> WaitOrder {
        match &stmt.op {
            DeviceOp::Load { place: Place::Global(param), .. }
            | DeviceOp::Prefetch { place: Place::Global(param), .. }
            | DeviceOp::CopyAsync { source: Place::Global(param), .. }
            | DeviceOp::Pipe(DevicePipe::Copy { source: Place::Global(param), .. }) => {
                let p = &self.kernel.params[*param];
                if !p.settled && !p.access.may_read_before_wait() {
                    self.require(Code::E0107, *param, stmt.loc, at);
                }
                at
            }
            DeviceOp::Pipe(DevicePipe::Box { map, .. } | DevicePipe::Prefetch { map, .. }) => {
                let param = self.kernel.maps[*map].param;
                let p = &self.kernel.params[param];
                if !p.settled && !p.access.may_read_before_wait() {
                    self.require(Code::E0107, param, stmt.loc, at);
                }
                at
            }
            DeviceOp::Await { param, .. } => {
                self.require(Code::E0107, *param, stmt.loc, at);
                at
            }
            DeviceOp::Pipe(DevicePipe::BoxOut { map, .. }) => {
                self.require(Code::E0108, self.kernel.maps[*map].param, stmt.loc, at);
                at
            }
            DeviceOp::Pipe(DevicePipe::CopyOut { dest: Place::Global(param), .. })
            | DeviceOp::Store {
                place:
                    Place::Global(param) | Place::Peer { param, .. } | Place::Multicast { param, .. },
                ..
            }
            | DeviceOp::Signal { param, .. }
            | DeviceOp::Atomic { param, .. } => {
                self.require(Code::E0108, *param, stmt.loc, at);
                at
            }
            DeviceOp::GridWait => WaitOrder::After,
            DeviceOp::GridLaunch => {
                if at != WaitOrder::After {
                    self.report(Code::E0110, "the next kernel", stmt.loc);
                }
                at
            }
            DeviceOp::For { body, .. } | DeviceOp::Repeat { body, .. } => {
                let entry = join(at, effect(body).apply(at));
                let end = self.block(body, entry);
                join(at, end)
            }
            DeviceOp::Role { body, .. } => {
                self.block(body, at);
                at
            }
            DeviceOp::If { then_body, else_body, .. } => {
                let then_end = self.block(then_body, at);
                let else_end = self.block(else_body, at);
                join(then_end, else_end)
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
            | DeviceOp::StoreMatrices { .. }
            | DeviceOp::Store { .. }
            | DeviceOp::Prefetch { .. }
            | DeviceOp::CopyAsync { .. }
            | DeviceOp::CommitGroup
            | DeviceOp::WaitGroup { .. }
            | DeviceOp::ReadSlot { .. }
            | DeviceOp::SetSlot { .. }
            | DeviceOp::Warpgroup(_)
            | DeviceOp::Tensor(_)
            | DeviceOp::Barrier
            | DeviceOp::ClusterBarrier
            | DeviceOp::RoleBarrier { .. }
            | DeviceOp::Pipe(_)
            | DeviceOp::Fence
            | DeviceOp::Assert { .. }
            | DeviceOp::Trace { .. }
            | DeviceOp::Printf { .. } => at,
        }
    }

    fn require(&mut self, code: Code, param: ParamId, loc: LocId, at: WaitOrder) {
        if at != WaitOrder::After {
            self.report(code, &format!("`{}`", self.kernel.params[param].name), loc);
        }
    }

    fn report(&mut self, code: Code, what: &str, loc: LocId) {
        let mut diagnostic = Diagnostic::error(
            code,
            format!("after expansion, {what} is not ordered after `grid_wait`"),
        );
        if let Some(place) = self.kernel.locs.get(loc) {
            diagnostic = diagnostic.label(place.span, "this operation");
        }
        self.sink.push(diagnostic);
    }
}
