//! `tmem acc : f32[128, N];`, `atom MMA = tcgen05(…);`, `mma a * (b)^T -> acc via MMA add cond;`, loads from tensor memory.

use kernel_abi::DType;
use kernel_dsl::ast::{Atom, Expr, ExprKind, LoadExpr, Mma, Move, TileDecl};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::limits::MAX_RING;
use super::lower::Lower;
use super::not_built;
use super::operands::describe;
use super::report::Outcome;
use super::scope::{AnyAtom, Buffer, Entity, Frag, Memory};
use super::smem::initial_value;
use super::warpgroup::{Entries, entries};
use crate::distribution::LANES;
use crate::kernel::{
    AxisIndex, Extent, Kernel, Role, SCALE_GROUP, SCALE_ROWS, SCALE_WORD, Smem, SmemSwizzle, Space,
    Stmt, StmtKind, Storage, TENSOR_COLUMNS, TENSOR_WARPS, Tensor, TensorAtom, TensorMma,
    TileAccess, ViewAxis, ViewDigit, first_of_pair, scale_place,
};
use crate::target::Target;

/// Warps that share some rows of a tile, at most.
const PART_WARPS: u32 = 2;

impl<'a> Lower<'a> {
    /// Refuses what the target does not have.
    fn has_tensor_memory(&mut self, span: Span, what: &str) -> Outcome<()> {
        match self.target {
            Target::Sm100a | Target::Sm103a => Ok(()),
            Target::Sm90a => {
                let target = self.target;
                Err(self.error(
                    Diagnostic::error(Code::E0502, format!("{target} has no {what}"))
                        .label(span, "sm_100a and sm_103a have it")
                        .help("put it in an arm of `match arch`, or state only those targets"),
                ))
            }
        }
    }

    /// `tmem acc : f32[128, N] ring 2;`
    pub(super) fn tmem(&mut self, tile: &'a TileDecl) -> Outcome<()> {
        self.has_tensor_memory(tile.name.span, "tensor memory")?;
        if let Some((at, what)) = not_built::smem(tile).into_iter().next() {
            return Err(self.not_built(at, what));
        }
        if let Some(init) = &tile.init {
            return Err(self.error(initial_value(init)));
        }
        let extra = tile.swizzle.iter().chain(&tile.align).next();
        if let Some(extra) = extra {
            return Err(self.error(
                Diagnostic::error(Code::E0206, "a tile in tensor memory with a layout")
                    .label(extra.span, "rows and columns are all there is")
                    .help("remove it"),
            ));
        }
        let (dtype, shape) = self.tile_type(&tile.ty)?;
        let &[rows, columns] = shape.as_slice() else {
            return Err(self.error(not_rows(&describe(dtype, &shape), tile.ty.span)));
        };
        let has_rows = matches!(rows, TensorAtom::ROWS | TensorAtom::HALF);
        let is_half = matches!(dtype, DType::Bf16 | DType::F16);
        let most = if is_half { 2 * TENSOR_COLUMNS } else { TENSOR_COLUMNS };
        if !has_rows || columns == 0 || columns > most {
            return Err(self.error(not_rows(&describe(dtype, &shape), tile.ty.span)));
        }
        if dtype != DType::F32 && !is_half {
            return Err(self.not_built(tile.ty.dtype.span, &format!("{dtype} in tensor memory")));
        }
        if is_half && rows != TensorAtom::ROWS {
            let what = format!("{rows} rows of {dtype} in tensor memory");
            return Err(self.not_built(tile.ty.span, &what));
        }
        let slots = match &tile.ring {
            Some(ring) => self.const_extent(ring, "the number of slots", 1, MAX_RING)?,
            None => 1,
        };
        let axis = |extent: u32, stride: i64| ViewAxis {
            extent: Extent::Const(extent),
            digits: vec![ViewDigit { extent, stride }],
        };
        let axes = [axis(rows, i64::from(columns)), axis(columns, 1)];
        let id = self.kernel.smem.push(Smem {
            name: tile.name.text.clone(),
            space: Space::Tensor,
            dtype,
            shape,
            slots,
            swizzle: SmemSwizzle::None,
            align: 4,
            folded: false,
            span: tile.name.span,
        });
        let memory = Memory::Smem { tile: id, ringed: tile.ring.is_some() };
        let axes = axes.to_vec().into();
        self.frame.define(&tile.name, Entity::Buffer(Buffer::new(memory, axes)));
        Ok(())
    }

    /// `atom NAME = tcgen05(m = 128, n = N, k = 16, a = bf16, b = bf16, d = f32);`
    pub(super) fn tensor_atom(&mut self, atom: &'a Atom) -> Outcome<()> {
        let Entries { form: [m, n, k, a, b, d], scale, group } =
            entries(&atom.value).map_err(|wrong| self.error(wrong))?;
        self.has_tensor_memory(atom.value.span, "`tcgen05`")?;
        let pair = match group {
            Some(group) => self.is_of_pair(group)?,
            None => false,
        };
        let rows = match self.const_int(m, "`m`")? {
            128 if pair && scale.is_some() => {
                return Err(self.not_built(m.span, "block scales of 128 rows of a pair of CTAs"));
            }
            128 if pair => TensorAtom::ROWS,
            _ if pair => {
                self.exactly(m, TensorAtom::PAIR, "`m`")?;
                TensorAtom::PAIR
            }
            64 => TensorAtom::HALF,
            _ => {
                self.exactly(m, TensorAtom::ROWS, "`m`")?;
                TensorAtom::ROWS
            }
        };
        let step = TensorAtom::column_step(rows, pair);
        let most = i64::from(TensorAtom::MAX_COLUMNS);
        let columns = self.const_extent(n, "`n`", i64::from(step), most)?;
        if !columns.is_multiple_of(step) {
            return Err(self.error(
                Diagnostic::error(Code::E0206, format!("an atom of {columns} columns"))
                    .label(n.span, format!("`n` is a multiple of {step}, at most 256")),
            ));
        }
        let types = match scale {
            None => self.types_of_product([a, b, d], "`tcgen05`")?,
            Some(scale) => {
                let whole = if pair { TensorAtom::PAIR } else { TensorAtom::ROWS };
                self.exactly(m, whole, "`m`")?;
                self.scaled_types([a, b, d], scale)?
            }
        };
        let named = TensorAtom { m: rows, n: columns, types, scaled: scale.is_some(), pair };
        self.exactly(k, named.depth(), "`k`")?;
        self.frame.define(&atom.name, Entity::Atom(AnyAtom::Tensor(named)));
        Ok(())
    }

    /// `mma a * (b)^T -> acc via ATOM add cond;` with sums in tensor memory.
    pub(super) fn tensor_mma(
        &mut self,
        mma: &'a Mma,
        right: &'a Expr,
        atom: TensorAtom,
        span: Span,
    ) -> Outcome<()> {
        if self.role.is_none() {
            return Err(self.error(
                Diagnostic::error(Code::E0145, "a product in tensor memory outside of roles")
                    .label(span, "nobody could wait for it: barriers are between roles")
                    .help("put it into a role, `commit` it to a barrier, and read the sums in another role"),
            ));
        }
        let acc = self.tensor_slice(&mma.acc, mma.acc.span);
        let (left, left_scales) = self.parts_of_operand(&mma.a, atom)?;
        let (right, right_scales) = self.parts_of_operand(right, atom)?;
        let a = if self.names_tensor(left) {
            self.left_in_tensor(left, atom)
        } else {
            self.operand_of_product(left)
        };
        let b = self.operand_of_product(right);
        let (acc, (a, a_slice), (b, b_slice)) = (acc?, a?, b?);
        let declared = self.kernel.declaration_of(acc.storage);
        let &[rows, columns] = acc.shape.as_slice() else {
            return Err(self.error(not_sums(&acc, atom, mma.acc.span, declared)));
        };
        let is_atoms = columns.is_multiple_of(atom.n) && columns > 0;
        if rows != atom.own_rows() || !is_atoms || acc.dtype != DType::F32 {
            return Err(self.error(not_sums(&acc, atom, mma.acc.span, declared)));
        }
        if atom.folds() && (columns != atom.n || !self.is_all_columns(&acc)) {
            let what = "sums of 128 rows of a pair of CTAs in some columns";
            return Err(self.not_built(mma.acc.span, what));
        }
        if !self.is_all_rows(&acc) {
            return Err(self.not_built(mma.acc.span, "sums in some rows of tensor memory"));
        }
        let depth = a_slice.shape.last().copied().unwrap_or(0);
        let stored = atom.stored();
        for (slice, side, wanted, dtype) in
            [(&a_slice, left, rows, stored[0]), (&b_slice, right, columns / atom.ctas(), stored[1])]
        {
            let found = (slice.dtype, slice.shape.as_slice());
            self.fits_product(found, side, [wanted, depth], dtype, declared)?;
        }
        let scales = match (left_scales, right_scales) {
            (Some(left), Some(right)) => {
                if columns > atom.n && !atom.n.is_multiple_of(32) {
                    return Err(self.error(
                        Diagnostic::error(Code::E0206, "scales of atoms that lanes do not reach")
                            .label(mma.acc.span, format!("several atoms of {} columns", atom.n))
                            .help("take one atom, or atoms of a multiple of 32 columns"),
                    ));
                }
                let groups = depth * atom.packing() / SCALE_GROUP;
                let left = self.scales_of_operand(left, [rows, groups], declared)?;
                Some([left, self.scales_of_operand(right, [columns, groups], declared)?])
            }
            (_, _) => None,
        };
        let start = self.start(mma.add.as_ref())?;
        if atom.pair {
            self.of_pair();
        }
        let Some(acc) = acc.access else { return Ok(()) };
        let product = TensorMma { acc, a, b, atom, start, scales };
        self.emit(StmtKind::Tensor(Tensor::Mma(Box::new(product))), span)
    }

    /// A left operand in tensor memory, all rows of columns.
    fn left_in_tensor(&mut self, e: &'a Expr, atom: TensorAtom) -> Outcome<(TileAccess, Slice)> {
        let what = match atom {
            TensorAtom { pair: true, .. } => Some("of a pair of CTAs"),
            TensorAtom { scaled: true, .. } => Some("with block scales"),
            TensorAtom { m: TensorAtom::ROWS, types: [DType::Bf16 | DType::F16, _], .. } => None,
            TensorAtom { m: TensorAtom::ROWS, .. } => Some("but bf16 and f16"),
            TensorAtom { .. } => Some("of 64 rows"),
        };
        if let Some(what) = what {
            let what = format!("a left operand in tensor memory {what}");
            return Err(self.not_built(e.span, &what));
        }
        let slice = self.tensor_slice(e, e.span)?;
        self.columns_of_words(&slice, e.span)?;
        let access = slice.access.clone();
        let none = Diagnostic::error(Code::E0310, "an operand that the tensor core does not read")
            .label(e.span, "no elements");
        access.map(|access| (access, slice)).ok_or_else(|| self.error(none))
    }

    /// All rows of columns of two elements of 16 bits, from whole ones on.
    fn columns_of_words(&mut self, slice: &Slice, at: Span) -> Outcome<()> {
        if !self.is_all_rows(slice) {
            return Err(self.not_built(at, "some rows of elements of 16 bits in tensor memory"));
        }
        if slice.has_until || slice.gathers {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "absent elements in tensor memory")
                    .label(at, "columns that lie together are touched"),
            ));
        }
        let start = slice.access.as_ref().and_then(|access| match access.index.last() {
            Some(AxisIndex::Range { start, .. }) => Some(self.congruence(*start)),
            _ => None,
        });
        let is_even = |(modulus, residue): (i64, i64)| modulus % 2 == 0 && residue % 2 == 0;
        let columns = slice.shape.last().copied().unwrap_or(0);
        if start.is_none_or(is_even) && columns.is_multiple_of(2) {
            return Ok(());
        }
        Err(self.error(
            Diagnostic::error(Code::E0310, "elements of 16 bits that are no whole columns")
                .label(at, "two lie in each column of tensor memory")
                .help("take an even number of them, from an even one on"),
        ))
    }

    /// `store v -> p[:, a .. + n];`
    pub(super) fn tensor_store(&mut self, mv: &'a Move, dest: &'a Expr, span: Span) -> Outcome<()> {
        let value = self.expr(&mv.source);
        let slice = self.tensor_slice(dest, dest.span)?;
        self.reaches_all_rows(span, "a store to")?;
        self.no_policy(slice.storage, mv.policy, span)?;
        if slice.dtype == DType::F32 {
            return Err(self.not_built(dest.span, "a store of f32 to tensor memory"));
        }
        self.columns_of_words(&slice, dest.span)?;
        let tile = self.tile(value?, Some(slice.dtype), mv.source.span)?;
        let wanted = "the destination";
        self.same_type(&tile, slice.dtype, &slice.shape, mv.source.span, dest.span, wanted)?;
        match (tile.id(), slice.access) {
            (Some(value), Some(access)) => {
                self.emit(StmtKind::Tensor(Tensor::Store { value, access }), span)
            }
            (_, _) => Ok(()),
        }
    }

    /// The warps of the role reach all rows of tensor memory.
    fn reaches_all_rows(&mut self, span: Span, what: &str) -> Outcome<()> {
        let role = self.role.map(|role| self.kernel.roles[role].clone());
        let wrong = match &role {
            None => Some("outside of roles nobody has waited for it".to_owned()),
            Some(role) if role.elect || !role.warps.is_multiple_of(TENSOR_WARPS) => {
                Some(format!("`{}` has warps {}", role.name, role.range()))
            }
            Some(_) => None,
        };
        let Some(why) = wrong else { return Ok(()) };
        let message = format!("{what} rows that the warps do not reach");
        let mut found = Diagnostic::error(Code::E0145, message).label(span, why);
        found = role.map_or(found.clone(), |role| found.secondary(role.span, "this role"));
        let help = "each warp reaches a quarter of the rows: take a role of 4, 8, … warps, without `elect one`";
        Err(self.error(found.help(help)))
    }

    /// The warps of the role reach these rows of 128, 32 each: those of the number of the warp modulo four.
    fn reaches_rows(&mut self, slice: &Slice, span: Span) -> Outcome<()> {
        let of_tile =
            slice.storage.tile().and_then(|(tile, _)| self.kernel.smem[tile].shape.first());
        let (&[rows, _], Some(&TensorAtom::ROWS)) = (slice.shape.as_slice(), of_tile) else {
            return Err(self.not_built(span, "a load of some rows of tensor memory"));
        };
        let start = slice.access.as_ref().and_then(|access| match access.index.first() {
            Some(AxisIndex::Range { start, .. }) => Some(self.congruence(*start)),
            _ => None,
        });
        let role = self.role.map(|role| self.kernel.roles[role].clone());
        let reached = |role: &Role| {
            let first = i64::from(role.first % TENSOR_WARPS * LANES);
            let reaches = role.warps <= PART_WARPS && rows == role.warps * LANES;
            !role.elect && reaches && start == Some((0, first))
        };
        if role.as_ref().is_some_and(reached) {
            return Ok(());
        }
        let why = match &role {
            None => "outside of roles nobody has waited for its sums".to_owned(),
            Some(role) => format!("`{}` has warps {}", role.name, role.range()),
        };
        let mut found =
            Diagnostic::error(Code::E0145, "a load of rows that the warps do not reach")
                .label(span, why);
        found = role.map_or(found.clone(), |role| found.secondary(role.span, "this role"));
        Err(self.error(found.help(
            "warp w of the CTA reaches rows 32 (w mod 4) to 32 (w mod 4) + 31: let one or two warps load those, or take a \
             role of 4, 8, … warps for all rows",
        )))
    }

    /// The types of the operands of a block-scaled atom, whose sums are f32.
    fn scaled_types(&mut self, [a, b, d]: [&'a Expr; 3], scale: &'a Expr) -> Outcome<[DType; 2]> {
        let of_scales = self.type_of(scale)?;
        if of_scales != DType::Ue8m0 {
            return Err(self.not_built(scale.span, &format!("block scales of {of_scales}")));
        }
        let types = [self.type_of(a)?, self.type_of(b)?];
        let [left, right] = types;
        match types.map(DType::bits) {
            [4, 4] if self.type_of(d)? == DType::F32 => Ok(types),
            [8, 8] => self.types_of_product([a, b, d], "block-scaled `tcgen05`"),
            _ => {
                let what = format!("block-scaled `tcgen05` of {left} and {right}");
                Err(self.not_built(a.span, &what))
            }
        }
    }

    /// The elements and the scales of `(s@t, scales@t)`; the elements alone where the atom has no scales.
    fn parts_of_operand(
        &mut self,
        e: &'a Expr,
        atom: TensorAtom,
    ) -> Outcome<(&'a Expr, Option<&'a Expr>)> {
        match (&e.kind, atom.scaled) {
            (ExprKind::Tuple(parts), true) if parts.len() == 2 => Ok((&parts[0], Some(&parts[1]))),
            (ExprKind::Tuple(_), false) => Err(self.error(
                Diagnostic::error(Code::E0204, "scales of a product that takes none")
                    .label(e.span, "the atom is declared without `scale`")
                    .help("write `scale = ue8m0` into the atom, or leave the scales out"),
            )),
            (_, true) => Err(self.error(
                Diagnostic::error(Code::E0204, "an operand without its scales")
                    .label(e.span, "the atom is declared with `scale`")
                    .help("write both: `mma (a, a_scales) * (b, b_scales)^T -> acc via MMA;`"),
            )),
            (_, false) => Ok((e, None)),
        }
    }

    /// Scales in the order in which they are copied to tensor memory.
    fn scales_of_operand(
        &mut self,
        e: &'a Expr,
        [rows, groups]: [u32; 2],
        declared: Span,
    ) -> Outcome<TileAccess> {
        let slice = self.slice(e, e.span)?;
        let found = (slice.dtype, slice.shape.as_slice());
        self.fits_product(found, e, [rows, groups], DType::Ue8m0, declared)?;
        let wrong = |reason: String| {
            Diagnostic::error(Code::E0310, "scales that the tensor core does not read")
                .label(e.span, reason)
                .help(
                    "declare them as they are read, 128 rows and 4 groups a piece: `smem s : ue8m0[32, 4, 4];` with \
                     `view scales = s by \"r b k -> (b r) k\";`, whole or its first rows",
                )
        };
        let (Storage::Smem(tile, _), Some(access)) = (slice.storage, slice.access) else {
            return Err(self.error(wrong("not in shared memory of the own CTA".to_owned())));
        };
        let tile = &self.kernel.smem[tile];
        let at = tile.span;
        let [leading @ .., row_axis, group_axis] = access.axes.as_slice() else {
            return Err(self.error(wrong("less than two axes".to_owned())));
        };
        let chosen = access.index.len().saturating_sub(2);
        let pieces = |axis: &ViewAxis, every: u32| match axis.extent {
            Extent::Const(extent) => extent.is_multiple_of(every),
            Extent::Scalar(_) => false,
        };
        let place =
            |row: u32, group: u32| Some(row_axis.offset_of(row)? + group_axis.offset_of(group)?);
        let lies = |row: u32, group: u32| {
            let first = place(row - row % SCALE_ROWS, group - group % SCALE_WORD)?;
            Some(
                first % 16 == 0 && place(row, group)? - first == i64::from(scale_place(row, group)),
            )
        };
        let apart = leading.iter().flat_map(|axis| &axis.digits).all(|d| d.stride % 16 == 0);
        let mut problem = None;
        if tile.swizzle != SmemSwizzle::None || !tile.slot_bytes().is_multiple_of(16) || !apart {
            problem = Some("its pieces do not start at multiples of 16 bytes".to_owned());
        }
        if !groups.is_multiple_of(SCALE_WORD) {
            problem = Some(format!("{groups} groups of {SCALE_GROUP} where 4 or 8 are one word"));
        }
        let is_whole = pieces(row_axis, SCALE_ROWS) && pieces(group_axis, SCALE_WORD);
        let all = (0..rows).all(|row| (0..groups).all(|group| lies(row, group) == Some(true)));
        if !is_whole || !all {
            problem = Some("its elements lie in another order".to_owned());
        }
        for (index, every) in access.index[chosen..].iter().zip([SCALE_ROWS, SCALE_WORD]) {
            let AxisIndex::Range { start, until: None, .. } = index else {
                problem = Some("indices of single rows".to_owned());
                continue;
            };
            let (modulus, residue) = self.congruence(*start);
            let every = i64::from(every);
            let starts_well =
                (modulus, residue) == (0, 0) || modulus % every == 0 && residue % every == 0;
            if !starts_well {
                problem = Some(format!("scales from a multiple of {every} on"));
            }
        }
        match problem {
            None => Ok(access),
            Some(reason) => Err(self.error(wrong(reason).secondary(at, "declared here"))),
        }
    }

    /// The tile in tensor memory that a `load` names, if it does.
    pub(super) fn names_tensor(&self, e: &'a Expr) -> bool {
        let base = if let ExprKind::Index(base, _) = &e.kind { base } else { e };
        let ExprKind::Ref(reference) = &base.kind else { return false };
        let named = reference.path.single().and_then(|name| self.frame.lookup(&name.text));
        matches!(named.map(|named| &named.entity), Some(Entity::Buffer(buffer)) if self.is_tensor(buffer))
    }

    pub(super) fn is_tensor(&self, buffer: &Buffer) -> bool {
        match buffer.memory {
            Memory::Smem { tile, .. } => self.kernel.smem[tile].is_tensor(),
            Memory::Param(_) => false,
        }
    }

    /// `= load acc[:, a .. + n]` of a `frag`.
    pub(super) fn load_of_tensor(&self, init: &'a Expr) -> Option<&'a LoadExpr> {
        let ExprKind::Load(load) = &init.kind else { return None };
        self.names_tensor(&load.source).then_some(load)
    }

    /// `load acc[:, a .. + n] -> r;`
    pub(super) fn tensor_load(
        &mut self,
        source: &'a Expr,
        frag: &Frag,
        slot: u32,
        declared: Span,
        span: Span,
    ) -> Outcome<()> {
        let slice = self.tensor_slice(source, source.span)?;
        if self.is_all_rows(&slice) {
            self.reaches_all_rows(span, "a load of")?;
        } else {
            self.reaches_rows(&slice, span)?;
        }
        if slice.dtype != DType::F32 {
            let what = format!("a load of {} from tensor memory", slice.dtype);
            return Err(self.not_built(source.span, &what));
        }
        let found = describe(slice.dtype, &slice.shape);
        if slice.shape != frag.shape || slice.dtype != frag.dtype {
            let wanted = describe(frag.dtype, &frag.shape);
            return Err(self.error(
                Diagnostic::error(Code::E0204, format!("a load of {found} to {wanted}"))
                    .label(source.span, format!("this is {found}"))
                    .secondary(declared, format!("this is {wanted}")),
            ));
        }
        if slice.has_until || slice.gathers {
            return Err(self.error(
                Diagnostic::error(Code::E0222, "a load from tensor memory with absent elements")
                    .label(source.span, "columns that lie together are read"),
            ));
        }
        match (frag.var, slice.access) {
            (Some(var), Some(access)) => {
                self.loaded.insert((var, slot));
                self.emit(StmtKind::Tensor(Tensor::Load { var, slot, access }), span)
            }
            (_, _) => Ok(()),
        }
    }

    /// Whether columns of a tile in tensor memory have all its rows.
    fn is_all_rows(&self, slice: &Slice) -> bool {
        let tile = slice.storage.tile().map(|(tile, _)| &self.kernel.smem[tile].shape);
        slice.shape.len() == 2 && tile.is_some_and(|tile| tile.first() == slice.shape.first())
    }

    /// Whether it has all its columns.
    fn is_all_columns(&self, slice: &Slice) -> bool {
        let tile = slice.storage.tile().map(|(tile, _)| &self.kernel.smem[tile].shape);
        tile.is_some_and(|tile| tile.last() == slice.shape.last())
    }

    /// Where products of a pair of CTAs write tiles of 64 rows, these lie in two halves of columns one below the other.
    pub(super) fn fold_sums(&mut self) {
        if self.blocks.iter().all(|block| first_of_pair(&block.stmts).is_none()) {
            return;
        }
        for id in self.kernel.smem.ids() {
            let tile = &mut self.kernel.smem[id];
            tile.folded = tile.is_tensor() && tile.shape.first() == Some(&TensorAtom::HALF);
        }
        let mut parts = Vec::new();
        for block in &self.blocks {
            loads_of_parts(&self.kernel, &block.stmts, &mut parts);
        }
        for span in parts {
            self.not_built(span, "a load of some columns of 64 rows of a pair of CTAs");
        }
    }

    /// A slice of a tile in tensor memory.
    fn tensor_slice(&mut self, e: &'a Expr, whole: Span) -> Outcome<Slice> {
        let slice = self.slice_of(e, whole, Space::Tensor)?;
        match slice.storage {
            Storage::Smem(..) => Ok(slice),
            Storage::Buffer(_)
            | Storage::Remote(..)
            | Storage::Peer(..)
            | Storage::Peers(_)
            | Storage::Multicast(..) => Err(self.error(
                Diagnostic::error(Code::E0145, "tensor memory of another CTA")
                    .label(e.span, "a CTA reaches its own alone"),
            )),
        }
    }
}

/// Loads of some columns of tiles that are folded.
fn loads_of_parts(kernel: &Kernel, stmts: &[Stmt], found: &mut Vec<Span>) {
    for stmt in stmts {
        if let StmtKind::Tensor(Tensor::Load { var, access, .. }) = &stmt.kind
            && let Some((tile, _)) = access.storage.tile()
            && kernel.smem[tile].folded
            && kernel.smem[tile].shape != kernel.vars[*var].shape
        {
            found.push(access.span);
        }
        stmt.kind.bodies().into_iter().for_each(|body| loads_of_parts(kernel, body, found));
    }
}

fn not_rows(found: &str, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0206, format!("{found} in tensor memory"))
        .label(at, "128 or 64 rows, and at most 512 columns of 32 bits")
        .help("write `tmem acc : f32[128, N];`")
}

fn not_sums(found: &Slice, atom: TensorAtom, at: Span, declared: Span) -> Diagnostic {
    let found = describe(found.dtype, &found.shape);
    let (m, n) = (atom.own_rows(), atom.n);
    Diagnostic::error(Code::E0204, format!("sums of {found}"))
        .label(at, format!("whole atoms of {m} by {n}, of f32, in tensor memory"))
        .secondary(declared, "declared here")
}

/// The finding for a tile in tensor memory where another one goes.
pub(super) fn tensor_misused(name: &str, at: Span, declared: Span) -> Diagnostic {
    Diagnostic::error(Code::E0145, format!("`{name}` lies in tensor memory"))
        .label(at, "products and `store` write it, and `load` to a tile in registers reads it")
        .secondary(declared, "declared here")
        .help(format!("write `frag r : f32[128, N] = load {name}[:, 0 .. + N]; settle r;`"))
}

/// The finding for a tile in another memory where tensor memory is meant.
pub(super) fn not_tensor(name: &str, at: Span, declared: Span) -> Diagnostic {
    Diagnostic::error(Code::E0204, format!("`{name}` does not lie in tensor memory"))
        .label(at, "sums of `tcgen05` lie there")
        .secondary(declared, "declared here")
        .help(format!("declare it: `tmem {name} : f32[128, N];`"))
}
