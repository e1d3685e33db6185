//! `atom MMA = wgmma(m = 64, …);`, `mma sA@t * (sB@t)^T -> acc via MMA add cond;`, `commit;`, `settle acc but n;`

use kernel_abi::DType;
use kernel_dsl::ast::{self, Atom, Callee, Expr, ExprKind, Mma, Path, Settle};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::Slice;
use super::constants::ConstValue;
use super::lower::Lower;
use super::operands::{Operand, describe};
use super::report::{Outcome, Refused};
use super::scope::{AnyAtom, Entity, Frag, Frame};
use crate::kernel::{
    AxisIndex, Extent, LeftOperand, Start, StmtKind, Storage, Tensor, TileAccess, VarId, Warpgroup,
    WarpgroupMma, WgmmaAtom, multiplies,
};
use crate::target::Target;

/// The words of an atom, in the order of its form; the last two may be missing.
pub(super) const WORDS: [&str; 8] = ["m", "n", "k", "a", "b", "d", "scale", "cta_group"];

/// How an atom is written.
const FORM: &str = "wgmma(m = 64, n = 16, k = 16, a = bf16, b = bf16, d = f32)";

/// The entries of an atom's value.
pub(super) struct Entries<'a> {
    /// Those that it has, in the order of [`WORDS`].
    pub(super) form: [&'a Expr; 6],
    /// The type of its scales.
    pub(super) scale: Option<&'a Expr>,
    /// The CTAs that share it.
    pub(super) group: Option<&'a Expr>,
}

/// The entries of an atom's value, or what is wrong with it.
pub(super) fn entries(value: &Expr) -> Result<Entries<'_>, Diagnostic> {
    let wrong = |span: Span, reason: String| {
        Diagnostic::error(Code::E0206, "an atom that is not complete")
            .label(span, reason)
            .help(format!("write `{FORM}`"))
    };
    let ExprKind::Call(call) = &value.kind else {
        return Err(wrong(value.span, "the form of an atom goes here".to_owned()));
    };
    let mut found: [Option<&Expr>; 8] = [None; 8];
    for arg in &call.args {
        let name = arg.name.as_ref().map(|name| name.text.as_str());
        let place = WORDS.iter().position(|word| Some(*word) == name);
        match place.map(|place| &mut found[place]) {
            Some(entry @ None) => *entry = Some(&arg.value),
            Some(Some(_)) => return Err(wrong(arg.value.span, "given twice".to_owned())),
            None => {
                let words = WORDS.join("`, `");
                return Err(wrong(arg.value.span, format!("not one of `{words}`")));
            }
        }
    }
    match found {
        [Some(m), Some(n), Some(k), Some(a), Some(b), Some(d), scale, group] => {
            Ok(Entries { form: [m, n, k, a, b, d], scale, group })
        }
        _ => {
            let missing = WORDS.iter().zip(&found).find(|(_, entry)| entry.is_none());
            let word = missing.map_or("", |(word, _)| word);
            Err(wrong(value.span, format!("`{word}` is missing")))
        }
    }
}

/// True for an atom of `wgmma` or of `tcgen05`.
pub(super) fn is_built(value: &Expr) -> bool {
    is_of(value, "wgmma") || is_tcgen05(value)
}

/// True for an atom of `tcgen05`.
fn is_tcgen05(value: &Expr) -> bool {
    is_of(value, "tcgen05")
}

fn is_of(value: &Expr, name: &str) -> bool {
    matches!(&value.kind, ExprKind::Call(call)
        if matches!(&call.callee, Callee::Path(path) if path.is(name)))
}

impl<'a> Lower<'a> {
    /// `atom NAME = wgmma(…);`
    pub(super) fn atom(&mut self, atom: &'a Atom) -> Outcome<()> {
        if is_tcgen05(&atom.value) {
            return self.tensor_atom(atom);
        }
        let Entries { form: [m, n, k, a, b, d], scale, group } =
            entries(&atom.value).map_err(|wrong| self.error(wrong))?;
        match self.target {
            Target::Sm90a => {}
            Target::Sm100a | Target::Sm103a => {
                let target = self.target;
                return Err(self.error(
                    Diagnostic::error(Code::E0502, format!("{target} has no `wgmma`"))
                        .label(atom.value.span, "only sm_90a has this instruction")
                        .help("put the products in an arm of `match arch`, or state `target sm_90a;` alone"),
                ));
            }
        }
        if let Some(scale) = scale {
            let target = self.target;
            return Err(self.error(
                Diagnostic::error(Code::E0502, format!("{target} has no block-scaled products"))
                    .label(
                        scale.span,
                        "`wgmma` knows no scales; `tcgen05` of sm_100a and sm_103a does",
                    )
                    .help("multiply the scales into the weights, or into the sums of each group"),
            ));
        }
        if let Some(group) = group {
            let target = self.target;
            return Err(self.error(
                Diagnostic::error(Code::E0502, format!("{target} has no products of several CTAs"))
                    .label(group.span, "`tcgen05` of sm_100a and sm_103a does")
                    .help("remove it"),
            ));
        }
        self.exactly(m, WgmmaAtom::ROWS, "`m`")?;
        let columns = self.const_extent(n, "`n`", 8, i64::from(WgmmaAtom::MAX_COLUMNS))?;
        if !columns.is_multiple_of(8) {
            return Err(self.error(
                Diagnostic::error(Code::E0206, format!("an atom of {columns} columns"))
                    .label(n.span, "`n` is a multiple of 8, at most 256"),
            ));
        }
        let types = self.types_of_product([a, b, d], "`wgmma`")?;
        let named = WgmmaAtom { n: columns, types };
        self.exactly(k, named.depth(), "`k`")?;
        self.frame.define(&atom.name, Entity::Atom(AnyAtom::Wgmma(named)));
        Ok(())
    }

    /// The types of the operands of an atom, whose sums are f32.
    pub(super) fn types_of_product(
        &mut self,
        [a, b, d]: [&'a Expr; 3],
        atom: &str,
    ) -> Outcome<[DType; 2]> {
        let [left, right, sum] = [self.type_of(a)?, self.type_of(b)?, self.type_of(d)?];
        if !multiplies([left, left]) {
            return Err(self.not_built(a.span, &format!("{atom} of {left}")));
        }
        if !multiplies([left, right]) {
            let both = if left.bits() == 8 { "e4m3 or e5m2".to_owned() } else { left.to_string() };
            return Err(self.error(
                Diagnostic::error(Code::E0203, format!("a product of {left} and {right}"))
                    .label(b.span, format!("both operands are {both}")),
            ));
        }
        if sum != DType::F32 {
            return Err(self.not_built(d.span, &format!("{atom} with sums of {sum}")));
        }
        Ok([left, right])
    }

    /// Whole warpgroups run the statement at hand.
    fn whole_warpgroups(&mut self, span: Span) -> Outcome<()> {
        let (first, warps, place) = match self.role {
            None => {
                let warps = self.kernel.launch.warps;
                (0, warps, (self.kernel.span, format!("launched with `warps: {warps}`")))
            }
            Some(role) => {
                let role = &self.kernel.roles[role];
                let text = if role.elect { "one thread" } else { "these warps" };
                (role.first, role.warps, (role.span, text.to_owned()))
            }
        };
        let is_thread = self.elected().is_some();
        if !is_thread && (first | warps).is_multiple_of(WgmmaAtom::WARPS) {
            return Ok(());
        }
        let what = match self.role {
            None => format!("`wgmma` in a kernel of {warps} warps"),
            Some(_) => format!("`wgmma` in a role of warps {first}..{}", first + warps),
        };
        Err(self.error(
            Diagnostic::error(Code::E0215, what)
                .label(span, "four warps are a warpgroup, which works together")
                .secondary(place.0, place.1)
                .help("take a multiple of 4 warps, the first of them a multiple of 4, without `elect one`"),
        ))
    }

    pub(super) fn exactly(&mut self, e: &'a Expr, wanted: u32, what: &str) -> Outcome<()> {
        let value = self.const_int(e, what)?;
        if value == i64::from(wanted) {
            return Ok(());
        }
        Err(self.error(
            Diagnostic::error(Code::E0206, format!("{what} of this atom is {wanted}"))
                .label(e.span, format!("this is {value}")),
        ))
    }

    /// An element type, written as a value.
    pub(super) fn type_of(&mut self, e: &'a Expr) -> Outcome<DType> {
        if let ExprKind::Ref(reference) = &e.kind
            && let Some(name) = reference.path.single()
        {
            return self.dtype(name);
        }
        Err(self.error(
            Diagnostic::error(Code::E0206, "an element type goes here").label(e.span, "a value"),
        ))
    }

    /// An atom of the file, or of one that it imports; it sees the names of its own file alone.
    fn file_atom(&mut self, name: &str) -> Option<Outcome<AnyAtom>> {
        let modules = self.modules;
        let (unit, atom) = modules.atom(self.frame.unit, name)?;
        let outer = std::mem::replace(&mut self.frame, Frame::new(unit));
        let made = self.atom(atom);
        let inner = std::mem::replace(&mut self.frame, outer);
        let made = made.and_then(|()| match inner.lookup(name).map(|named| &named.entity) {
            Some(&Entity::Atom(atom)) => Ok(atom),
            Some(
                Entity::Const(_)
                | Entity::Tile(_)
                | Entity::Range(_)
                | Entity::Frag(_)
                | Entity::Buffer(_)
                | Entity::Refused,
            )
            | None => Err(Refused),
        });
        Some(made)
    }

    /// The atom of a `via`.
    fn atom_named(&mut self, via: &'a Path) -> Outcome<AnyAtom> {
        let Some(name) = via.single() else {
            return Err(self.unknown(&via.text(), via.span));
        };
        let Some(named) = self.frame.lookup(&name.text).cloned() else {
            let of_file = self.file_atom(&name.text);
            return of_file.unwrap_or_else(|| Err(self.unknown(&name.text, name.span)));
        };
        let defined = named.span;
        match named.entity {
            Entity::Atom(atom) => Ok(atom),
            Entity::Refused => Err(Refused),
            Entity::Const(_)
            | Entity::Tile(_)
            | Entity::Range(_)
            | Entity::Frag(_)
            | Entity::Buffer(_) => Err(self.error(not_an_atom(&name.text, via.span, defined))),
        }
    }

    /// `mma a * (b)^T -> acc via ATOM add cond;`
    pub(super) fn mma(&mut self, mma: &'a Mma, span: Span) -> Outcome<()> {
        let atom = self.atom_named(&mma.via);
        let (right, across) = match &mma.b.kind {
            ExprKind::Transpose(right) => (&**right, false),
            _ => (&mma.b, true),
        };
        let atom = match atom? {
            AnyAtom::Tensor(_) if across => {
                return Err(self.not_built(mma.b.span, "a right operand of `tcgen05` without `^T`"));
            }
            AnyAtom::Tensor(atom) => return self.tensor_mma(mma, right, atom, span),
            AnyAtom::Wgmma(atom) => atom,
        };
        self.whole_warpgroups(span)?;
        let sums = self.assignable(&mma.acc);
        let a = self.left_operand(&mma.a, atom);
        let b = match across {
            false => self.operand_of_product(right),
            true => self.operand_across(right, atom),
        };
        let (frag, slot, declared) = sums?;
        let ((a, left), (b, b_slice)) = (a?, b?);
        let (var, columns) = self.sums_of_product(&frag, &atom, mma.acc.span, declared)?;
        let depth = left.1.last().copied().unwrap_or(0);
        self.fits_product(
            (left.0, &left.1),
            &mma.a,
            [frag.shape[0], depth],
            atom.types[0],
            declared,
        )?;
        let wanted = if across { [depth, columns] } else { [columns, depth] };
        let found = (b_slice.dtype, b_slice.shape.as_slice());
        self.fits_product(found, right, wanted, atom.types[1], declared)?;
        let start = self.start(mma.add.as_ref())?;
        let product = WarpgroupMma { var, slot, a, b, across, atom, start };
        self.emit(StmtKind::Warpgroup(Warpgroup::Mma(Box::new(product))), span)
    }

    /// A left operand with its type and shape: a tile in registers, or a matrix in shared memory.
    fn left_operand(
        &mut self,
        e: &'a Expr,
        atom: WgmmaAtom,
    ) -> Outcome<(LeftOperand, (DType, Vec<u32>))> {
        if self.names_memory(e) {
            let (access, slice) = self.operand_of_product(e)?;
            return Ok((LeftOperand::Shared(Box::new(access)), (slice.dtype, slice.shape)));
        }
        let operand = self.expr(e)?;
        let tile = self.tile(operand, Some(atom.types[0]), e.span)?;
        let wrong = |reason: String| {
            Diagnostic::error(Code::E0310, "an operand that the tensor core does not read")
                .label(e.span, reason)
                .help("put it into shared memory")
        };
        if tile.dtype.bits() != 16 {
            let what = format!("in registers operands are bf16 or f16, not {}", tile.dtype);
            return Err(self.error(wrong(what)));
        }
        match (tile.id(), tile.shape.as_slice()) {
            (Some(id), [_, depth]) if depth.is_multiple_of(atom.depth()) => {
                Ok((LeftOperand::Registers(id), (tile.dtype, tile.shape.clone())))
            }
            _ => {
                let depth = atom.depth();
                let found = describe(tile.dtype, &tile.shape);
                Err(self.error(wrong(format!("{found} has no multiple of {depth} positions of k"))))
            }
        }
    }

    /// A matrix `[k, n]` in shared memory: lines of its swizzle run along n, and columns beyond a line lie in blocks.
    fn operand_across(&mut self, e: &'a Expr, atom: WgmmaAtom) -> Outcome<(TileAccess, Slice)> {
        let slice = self.slice(e, e.span)?;
        let wrong = |reason: String| {
            Diagnostic::error(Code::E0310, "an operand that the tensor core does not read")
                .label(e.span, reason)
                .help(
                    "without `^T` an operand is `smem s : bf16[K, 64] swizzle b128` (32 columns with b64, 16 with \
                     b32), a slot of it, or of more columns `smem s : bf16[N / 64, K, 64] swizzle b128` with a view \
                     `\"j k n -> k (j n)\"`",
                )
        };
        let Storage::Smem(tile, _) = slice.storage else {
            return Err(self.error(wrong("not in shared memory of the own CTA".to_owned())));
        };
        if slice.dtype.bits() != 16 {
            let what = format!("of {} an operand is `[n, k]`, with `^T`", slice.dtype);
            return Err(self.error(wrong(what)));
        }
        let declared = &self.kernel.smem[tile];
        let at = declared.span;
        let Some(line) = declared.swizzle.line() else {
            return Err(self.error(
                wrong("a tile without a swizzle".to_owned()).secondary(at, "declared here"),
            ));
        };
        let columns = line / 2;
        let period = i64::from(declared.swizzle.period() / 2);
        let Some(access) = slice.access.clone() else {
            return Err(self.error(wrong("no elements".to_owned())));
        };
        let [leading @ .., lines, across] = access.axes.as_slice() else {
            return Err(self.error(wrong("less than two axes".to_owned())));
        };
        let mut problem = None;
        let wide = i64::from(columns);
        let is_line = matches!(lines.digits.as_slice(), [d] if d.stride == wide);
        let is_across = match across.digits.as_slice() {
            [d] => d.stride == 1 && across.extent == Extent::Const(columns),
            [blocks, d] => d.stride == 1 && d.extent == columns && blocks.stride % period == 0,
            _ => false,
        };
        if !is_line || !is_across {
            problem = Some(format!("its rows are not lines of {columns} columns"));
        }
        if !leading.iter().flat_map(|axis| &axis.digits).all(|d| d.stride % period == 0) {
            problem =
                Some("its matrices do not start where the pattern of the swizzle does".to_owned());
        }
        if !atom.n.is_multiple_of(columns) && !columns.is_multiple_of(atom.n) {
            problem = Some(format!("atoms of {} columns do not share lines of {columns}", atom.n));
        }
        let count = access.index.len();
        for (i, index) in access.index.iter().enumerate() {
            let AxisIndex::Range { start, until, .. } = index else {
                if i + 2 >= count || !matches!(index, AxisIndex::At(_)) {
                    problem = Some("indices of single rows".to_owned());
                }
                continue;
            };
            if i + 2 < count {
                problem = Some("more than two axes".to_owned());
                continue;
            }
            let every = if i + 1 == count { wide } else { period / wide };
            let (modulus, residue) = self.congruence(*start);
            let starts_well =
                (modulus, residue) == (0, 0) || modulus % every == 0 && residue % every == 0;
            if until.is_some() || !starts_well {
                problem = Some(format!("rows and columns from a multiple of {every} on"));
            }
        }
        match problem {
            None => Ok((access, slice)),
            Some(reason) => Err(self.error(wrong(reason).secondary(at, "declared here"))),
        }
    }

    /// An operand has the shape and the type that the sums and the atom want.
    pub(super) fn fits_product(
        &mut self,
        (found_type, found): (DType, &[u32]),
        side: &'a Expr,
        shape: [u32; 2],
        dtype: DType,
        declared: Span,
    ) -> Outcome<()> {
        if found == shape && found_type == dtype {
            return Ok(());
        }
        let found = describe(found_type, found);
        Err(self.error(
            Diagnostic::error(Code::E0204, format!("an operand of {found}"))
                .label(side.span, format!("{} goes here", describe(dtype, &shape)))
                .secondary(declared, "the sums"),
        ))
    }

    /// The tile of the sums, and its columns.
    fn sums_of_product(
        &mut self,
        frag: &Frag,
        atom: &WgmmaAtom,
        at: Span,
        declared: Span,
    ) -> Outcome<(VarId, u32)> {
        if let (Some(var), [rows, columns]) = (frag.var, frag.shape.as_slice())
            && rows.is_multiple_of(WgmmaAtom::ROWS)
            && columns.is_multiple_of(atom.n)
            && frag.dtype == DType::F32
        {
            return Ok((var, *columns));
        }
        let found = describe(frag.dtype, &frag.shape);
        let (m, n) = (WgmmaAtom::ROWS, atom.n);
        Err(self.error(
            Diagnostic::error(Code::E0204, format!("sums of {found}"))
                .label(at, format!("whole atoms of {m} by {n}, of f32"))
                .secondary(declared, "declared here"),
        ))
    }

    pub(super) fn start(&mut self, add: Option<&'a Expr>) -> Outcome<Start> {
        let Some(add) = add else { return Ok(Start::Sums) };
        match self.expr(add)? {
            Operand::Const(c) if c.value == ConstValue::Bool(true) => Ok(Start::Sums),
            Operand::Const(c) if c.value == ConstValue::Bool(false) => Ok(Start::Zero),
            operand => {
                let cond = self.scalar(operand, DType::Bool, "the condition of `add`", add.span)?;
                Ok(Start::When(cond))
            }
        }
    }

    /// A matrix in shared memory whose rows are the lines of its swizzle.
    pub(super) fn operand_of_product(&mut self, e: &'a Expr) -> Outcome<(TileAccess, Slice)> {
        let slice = self.slice(e, e.span)?;
        let wrong = |reason: String| {
            Diagnostic::error(Code::E0310, "an operand that the tensor core does not read")
                .label(e.span, reason)
                .help(
                    "an operand is `smem s : bf16[ROWS, 64] swizzle b128` (32 columns with b64, 16 with b32), a \
                     slot of it, or `s[i, :, :]` of more axes",
                )
        };
        let Storage::Smem(tile, _) = slice.storage else {
            return Err(self.error(wrong("not in shared memory of the own CTA".to_owned())));
        };
        let declared = &self.kernel.smem[tile];
        let Some(line) = declared.swizzle.line() else {
            let wrong = wrong("a tile without a swizzle".to_owned());
            let at = declared.span;
            return Err(self.error(wrong.secondary(at, "declared here")));
        };
        let size = declared.dtype.bytes().unwrap_or(1);
        let columns = line / size;
        let period = i64::from(declared.swizzle.period() / size);
        let at = declared.span;
        let Some(access) = slice.access.clone() else {
            return Err(self.error(wrong("no elements".to_owned())));
        };
        // Axes but for the last two are chosen whole patterns apart; rows start where a pattern does.
        let mut problem = None;
        let [leading @ .., _, _] = access.index.as_slice() else {
            return Err(self.error(wrong("less than two axes".to_owned())));
        };
        if !leading.iter().all(|index| matches!(index, AxisIndex::At(_))) {
            problem = Some("more than two axes".to_owned());
        }
        let strides: Vec<Option<i64>> = access
            .axes
            .iter()
            .map(|axis| match axis.digits.as_slice() {
                [digit] => Some(digit.stride),
                _ => None,
            })
            .collect();
        let [outer @ .., rows, inner] = strides.as_slice() else {
            return Err(self.error(wrong("less than two axes".to_owned())));
        };
        if (*rows, *inner) != (Some(i64::from(columns)), Some(1))
            || slice.shape.last() != Some(&columns)
        {
            problem = Some(format!("its rows are not lines of {columns} elements"));
        }
        if !outer.iter().all(|stride| stride.is_some_and(|s| s % period == 0)) {
            problem =
                Some("its matrices do not start where the pattern of the swizzle does".to_owned());
        }
        let row_period = period / i64::from(columns);
        for (index, every) in access.index.iter().rev().zip([i64::MAX, row_period]) {
            let AxisIndex::Range { start, until, .. } = index else {
                problem = Some("indices of single rows".to_owned());
                continue;
            };
            let (modulus, residue) = self.congruence(*start);
            let starts_well = match every {
                i64::MAX => (modulus, residue) == (0, 0),
                every => modulus % every == 0 && residue % every == 0,
            };
            if until.is_some() || !starts_well {
                problem = Some(format!("rows from a multiple of {row_period} on, and all columns"));
            }
        }
        match problem {
            None => Ok((access, slice)),
            Some(reason) => Err(self.error(wrong(reason).secondary(at, "declared here"))),
        }
    }

    /// `commit;`
    pub(super) fn commit(&mut self, barrier: Option<&'a Expr>, span: Span) -> Outcome<()> {
        match barrier {
            Some(barrier) => self.commit_to(barrier, span),
            None => {
                self.whole_warpgroups(span)?;
                self.emit(StmtKind::Warpgroup(Warpgroup::Commit), span)
            }
        }
    }

    /// The tile in registers that a `settle` names, if it names one.
    pub(super) fn names_sums(&self, settle: &ast::Settle) -> bool {
        let ExprKind::Ref(reference) = &settle.value.kind else { return false };
        let entity = reference.path.single().and_then(|name| self.frame.lookup(&name.text));
        matches!(entity.map(|named| &named.entity), Some(Entity::Frag(_)))
    }

    /// `settle acc but n;`
    pub(super) fn settle_sums(&mut self, settle: &'a Settle, span: Span) -> Outcome<()> {
        let (frag, slot, _) = self.assignable(&settle.value)?;
        if let Some(var) = frag.var.filter(|&var| self.loaded.contains(&(var, slot))) {
            if let Some(but) = &settle.but {
                return Err(self.not_built(but.span, "`settle … but n` of a load"));
            }
            return self.emit(StmtKind::Tensor(Tensor::Settle { var, slot }), span);
        }
        self.whole_warpgroups(span)?;
        let pending = match &settle.but {
            Some(but) => self.const_extent(but, "the groups that stay in flight", 0, 7)?,
            None => 0,
        };
        match frag.var {
            Some(var) => {
                self.emit(StmtKind::Warpgroup(Warpgroup::Settle { var, slot, pending }), span)
            }
            None => Ok(()),
        }
    }
}

/// The finding for a name after `via` that is no atom.
pub(super) fn not_an_atom(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0206, format!("`{name}` is no atom"))
        .label(at, "an atom goes here")
        .secondary(defined, "defined here")
        .help(format!("define one: `atom MMA = {FORM};`"))
}
