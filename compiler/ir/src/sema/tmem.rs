//! `tmem acc : f32[128, N];`, `atom MMA = tcgen05(…);`, `mma a * (b)^T -> acc via MMA add cond;`, loads from tensor memory.

use kernel_abi::DType;
use kernel_dsl::ast::{Atom, Expr, ExprKind, LoadExpr, Mma, TileDecl};
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
use super::warpgroup::entries;
use crate::kernel::{
    Extent, Smem, SmemSwizzle, Space, StmtKind, Storage, TENSOR_COLUMNS, TENSOR_WARPS, Tensor,
    TensorAtom, TensorMma, ViewAxis, ViewDigit,
};
use crate::target::Target;

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
        if rows != TensorAtom::ROWS || columns == 0 || columns > TENSOR_COLUMNS {
            return Err(self.error(not_rows(&describe(dtype, &shape), tile.ty.span)));
        }
        if dtype != DType::F32 {
            return Err(self.not_built(tile.ty.dtype.span, &format!("{dtype} in tensor memory")));
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
            span: tile.name.span,
        });
        let memory = Memory::Smem { tile: id, ringed: tile.ring.is_some() };
        let axes = axes.to_vec().into();
        self.frame.define(&tile.name, Entity::Buffer(Buffer { memory, axes }));
        Ok(())
    }

    /// `atom NAME = tcgen05(m = 128, n = N, k = 16, a = bf16, b = bf16, d = f32);`
    pub(super) fn tensor_atom(&mut self, atom: &'a Atom) -> Outcome<()> {
        let [m, n, k, a, b, d] = entries(&atom.value).map_err(|wrong| self.error(wrong))?;
        self.has_tensor_memory(atom.value.span, "`tcgen05`")?;
        let rows = self.const_int(m, "`m`")?;
        if rows == 64 {
            return Err(self.not_built(m.span, "`tcgen05` with 64 rows"));
        }
        self.exactly(m, TensorAtom::ROWS, "`m`")?;
        let columns = self.const_extent(n, "`n`", 16, i64::from(TensorAtom::MAX_COLUMNS))?;
        if !columns.is_multiple_of(16) {
            return Err(self.error(
                Diagnostic::error(Code::E0206, format!("an atom of {columns} columns"))
                    .label(n.span, "`n` is a multiple of 16, at most 256"),
            ));
        }
        let [left, right, sum] = [self.type_of(a)?, self.type_of(b)?, self.type_of(d)?];
        if !matches!(left, DType::Bf16 | DType::F16) {
            return Err(self.not_built(a.span, &format!("`tcgen05` of {left}")));
        }
        if right != left {
            return Err(self.error(
                Diagnostic::error(Code::E0203, format!("a product of {left} and {right}"))
                    .label(b.span, format!("both operands are {left}")),
            ));
        }
        if sum != DType::F32 {
            return Err(self.not_built(d.span, &format!("`tcgen05` with sums of {sum}")));
        }
        let named = TensorAtom { n: columns, dtype: left };
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
        let (a, b) = (self.operand_of_product(&mma.a), self.operand_of_product(right));
        let (acc, (a, a_slice), (b, b_slice)) = (acc?, a?, b?);
        let declared = self.kernel.declaration_of(acc.storage);
        let &[rows, columns] = acc.shape.as_slice() else {
            return Err(self.error(not_sums(&acc, atom, mma.acc.span, declared)));
        };
        if rows != TensorAtom::ROWS || !columns.is_multiple_of(atom.n) || columns == 0 {
            return Err(self.error(not_sums(&acc, atom, mma.acc.span, declared)));
        }
        for (slice, side, wanted) in [(&a_slice, &mma.a, rows), (&b_slice, right, columns)] {
            self.fits_product(
                slice,
                side,
                [wanted, a_slice.shape.last().copied().unwrap_or(0)],
                atom.dtype,
                declared,
            )?;
        }
        let start = self.start(mma.add.as_ref())?;
        let Some(acc) = acc.access else { return Ok(()) };
        let product = TensorMma { acc, a, b, atom, start };
        self.emit(StmtKind::Tensor(Tensor::Mma(Box::new(product))), span)
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
        let role = self.role.map(|role| self.kernel.roles[role].clone());
        let wrong = match &role {
            None => Some("outside of roles nobody has waited for its sums".to_owned()),
            Some(role) if role.elect || !role.warps.is_multiple_of(TENSOR_WARPS) => {
                Some(format!("`{}` has warps {}", role.name, role.range()))
            }
            Some(_) => None,
        };
        if let Some(why) = wrong {
            let mut found =
                Diagnostic::error(Code::E0145, "a load of rows that the warps do not reach");
            found = found.label(span, why);
            found = role.map_or(found.clone(), |role| found.secondary(role.span, "this role"));
            let help = "each warp reaches 32 of the 128 rows: take a role of 4, 8, … warps, without `elect one`";
            return Err(self.error(found.help(help)));
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
        let whole = slice.shape.len() == 2 && slice.shape[0] == TensorAtom::ROWS;
        if !whole {
            return Err(self.not_built(source.span, "a load of some rows of tensor memory"));
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

    /// A slice of a tile in tensor memory.
    fn tensor_slice(&mut self, e: &'a Expr, whole: Span) -> Outcome<Slice> {
        let slice = self.slice_of(e, whole, Space::Tensor)?;
        match slice.storage {
            Storage::Smem(..) => Ok(slice),
            Storage::Buffer(_) | Storage::Remote(..) | Storage::Peer(..) => Err(self.error(
                Diagnostic::error(Code::E0145, "tensor memory of another CTA")
                    .label(e.span, "a CTA reaches its own alone"),
            )),
        }
    }
}

fn not_rows(found: &str, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0206, format!("{found} in tensor memory"))
        .label(at, "128 rows, and at most 512 columns")
        .help("write `tmem acc : f32[128, N];`")
}

fn not_sums(found: &Slice, atom: TensorAtom, at: Span, declared: Span) -> Diagnostic {
    let found = describe(found.dtype, &found.shape);
    let (m, n) = (TensorAtom::ROWS, atom.n);
    Diagnostic::error(Code::E0204, format!("sums of {found}"))
        .label(at, format!("whole atoms of {m} by {n}, of f32, in tensor memory"))
        .secondary(declared, "declared here")
}

/// The finding for a tile in tensor memory where another one goes.
pub(super) fn tensor_misused(name: &str, at: Span, declared: Span) -> Diagnostic {
    Diagnostic::error(Code::E0145, format!("`{name}` lies in tensor memory"))
        .label(at, "products write it, and `load` to a tile in registers reads it")
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
