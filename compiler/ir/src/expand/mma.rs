//! Contractions on the tensor core: which registers each atom takes.
//!
//! Operands that come from shared memory are read a few positions of k at a time, each time just before the
//! atoms that use them, so that no thread holds a whole operand.

use std::sync::Arc;

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Expander;
use super::builder::Pred;
use super::matrices::Matrices;
use super::notes::FoldNote;
use super::uses::each_use;
use super::vectors::{Cell, Cut};
use crate::device::{DeviceOp, FragId, MmaAtom, Place};
use crate::distribution::{AxisMap, Distribution};
use crate::kernel::{
    CachePolicy, ContractSpec, Kernel, Literal, Op, Stmt, StmtKind, Storage, TileAccess, ValueId,
};
use crate::ops::mma::{Depth, Roles, combinations};

/// Atoms of one contraction in one thread, at most.
const MAX_ATOMS: usize = 1 << 13;

/// Where the elements of an operand are.
enum Source<'k> {
    /// In registers, all of them.
    Registers(FragId),
    /// In shared memory, one cell a register.
    Shared {
        cells: Vec<Cell>,
        place: Place,
        offsets: DType,
        dtype: DType,
        access: &'k TileAccess,
        distribution: &'k Distribution,
        matrices: Option<Matrices>,
    },
}

/// Loads from shared memory whose only use is a contraction on the tensor core right behind them.
pub(super) fn read_in_place(kernel: &Kernel) -> FxHashSet<ValueId> {
    let mut uses = FxHashMap::default();
    count_uses(&kernel.body, &mut uses);
    let mut found = FxHashSet::default();
    mark(&kernel.body, &uses, &mut found);
    found
}

fn count_uses(stmts: &[Stmt], uses: &mut FxHashMap<ValueId, u32>) {
    for stmt in stmts {
        each_use(&stmt.kind, |value| *uses.entry(value).or_insert(0) += 1);
        for body in stmt.kind.bodies() {
            count_uses(body, uses);
        }
    }
}

fn mark(stmts: &[Stmt], uses: &FxHashMap<ValueId, u32>, found: &mut FxHashSet<ValueId>) {
    // Loads since the last statement that is no definition.
    let mut recent: Vec<ValueId> = Vec::new();
    for stmt in stmts {
        match &stmt.kind {
            StmtKind::Def { results, op: Op::Load { access, other: None, .. } } => {
                if let Storage::Smem(..) = access.storage {
                    recent.extend(results);
                }
            }
            StmtKind::Def { op: Op::Mma { a, b, .. }, .. } => {
                for operand in [a, b] {
                    if recent.contains(operand) && uses.get(operand) == Some(&1) {
                        found.insert(*operand);
                    }
                }
            }
            StmtKind::Def { .. } => {}
            StmtKind::SetVar { .. }
            | StmtKind::Store { .. }
            | StmtKind::CopyAsync { .. }
            | StmtKind::EmptyGroup
            | StmtKind::Outgoing(_)
            | StmtKind::Settle { .. }
            | StmtKind::Warpgroup(_)
            | StmtKind::Tensor(_)
            | StmtKind::Prefetch { .. }
            | StmtKind::Advance { .. }
            | StmtKind::Sync
            | StmtKind::Signal(_)
            | StmtKind::Await(_)
            | StmtKind::SyncCluster
            | StmtKind::SyncRole
            | StmtKind::Pipe(_)
            | StmtKind::GridWait
            | StmtKind::GridLaunch
            | StmtKind::Assert { .. }
            | StmtKind::Trace { .. }
            | StmtKind::Printf { .. }
            | StmtKind::Role { .. }
            | StmtKind::For { .. }
            | StmtKind::If { .. } => recent.clear(),
        }
        for body in stmt.kind.bodies() {
            mark(body, uses, found);
        }
    }
}

/// Axis-local positions by letter.
type Locals = FxHashMap<Arc<str>, u32>;

fn register(letters: &[Arc<str>], map: &Distribution, locals: &Locals) -> u32 {
    let own: Vec<u32> = letters.iter().map(|l| locals.get(l).copied().unwrap_or(0)).collect();
    map.register(&own)
}

impl<'k> Expander<'k> {
    /// A contraction on the tensor core.
    pub(super) fn mma(
        &mut self,
        result: ValueId,
        spec: &ContractSpec,
        a: ValueId,
        b: ValueId,
        acc: Option<ValueId>,
    ) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let (left, right) = (&kernel.values[a].distribution, &kernel.values[b].distribution);
        let out = &kernel.values[result].distribution;
        let span = self.b.locs[self.b.loc].span;
        let foreign = || {
            Diagnostic::error(
                Code::E0810,
                "operands of the tensor core are spread in a foreign way",
            )
            .label(span, "this contraction")
        };
        let roles = Roles::of(spec).map_err(|_| foreign())?;
        let map_of = |letters: &[Arc<str>], map: &Distribution, letter: &Arc<str>| {
            letters.iter().position(|own| own == letter).map(|axis| map.axes[axis])
        };
        let ks: Option<Vec<AxisMap>> = roles.k.iter().map(|l| map_of(&spec.a, left, l)).collect();
        let depth = ks.and_then(|ks| Depth::of(&ks)).ok_or_else(foreign)?;
        let counts = |letters: &[Arc<str>], own: &[Arc<str>], map: &Distribution| -> Vec<u32> {
            letters.iter().map(|l| map_of(own, map, l).map_or(1, |map| map.registers())).collect()
        };
        let batch = combinations(&counts(&roles.batch, &spec.out, out));
        let rows = combinations(&counts(&roles.m, &spec.out, out));
        let columns = combinations(&counts(&roles.n, &spec.b, right));
        let chunks = depth.chunks();
        let groups: usize = chunks.iter().map(|chunk| chunk.len() / 4).sum();
        let atoms = batch.len() * rows.len().div_ceil(2) * columns.len() * groups;
        if atoms > MAX_ATOMS {
            return Err(Diagnostic::error(
                Code::E0219,
                format!("this contraction takes {atoms} atoms in each thread"),
            )
            .label(span, "every atom is an instruction of its own")
            .note(format!("at most {MAX_ATOMS} are written out"))
            .help("take smaller tiles, or loop over a part of the contracted axes"));
        }
        let sources = [self.source(a)?, self.source(b)?];
        let len = out.registers();
        let mut sums = match acc {
            Some(acc) => self.frag(acc),
            None => {
                let values = vec![Literal::Float(0.0)];
                self.b.define(DType::F32, len, |dst| DeviceOp::Const { dst, values })
            }
        };
        let pick = |letters: &[Arc<str>], values: &[u32], locals: &mut Locals| {
            for (letter, &value) in letters.iter().zip(values) {
                locals.insert(letter.clone(), value);
            }
        };
        let pair_of = |letter: &Arc<str>| map_of(&spec.out, out, letter).map_or(1, |map| map.vec);
        for (number_of_chunk, chunk) in chunks.iter().enumerate() {
            // Registers of this chunk, in the order in which they are read.
            let mut wanted: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
            let mut locals = Locals::default();
            for one in &batch {
                pick(&roles.batch, one, &mut locals);
                for row in &rows {
                    pick(&roles.m, row, &mut locals);
                    for k in chunk {
                        pick(&roles.k, k, &mut locals);
                        wanted[0].push(register(&spec.a, left, &locals));
                    }
                }
                for column in &columns {
                    pick(&roles.n, column, &mut locals);
                    for k in chunk {
                        pick(&roles.k, k, &mut locals);
                        wanted[1].push(register(&spec.b, right, &locals));
                    }
                }
            }
            let (a_frag, a_at) = self.fetch(&sources[0], &wanted[0], number_of_chunk == 0);
            let (b_frag, b_at) = self.fetch(&sources[1], &wanted[1], number_of_chunk == 0);
            let mut atoms = Vec::new();
            let per = chunk.len();
            for (number, one) in batch.iter().enumerate() {
                let mut locals = Locals::default();
                pick(&roles.batch, one, &mut locals);
                for (pair, two) in rows.chunks(2).enumerate() {
                    for (block, column) in columns.iter().enumerate() {
                        let c = self::sums(spec, out, &roles, two, column, &pair_of, &locals);
                        for group in (0..per).step_by(4) {
                            let a_of = |row: usize, k: usize| {
                                let index = (number * rows.len() + pair * 2 + row) * per;
                                (row < two.len()).then(|| a_at[index + group + k])
                            };
                            let b_of =
                                |k: usize| b_at[(number * columns.len() + block) * per + group + k];
                            atoms.push(MmaAtom {
                                a: [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
                                    .map(|(row, k)| a_of(row, k)),
                                b: [0, 1, 2, 3].map(b_of),
                                c,
                            });
                        }
                    }
                }
            }
            let (a, b, acc) = (a_frag, b_frag, sums);
            sums = self.b.define(DType::F32, len, |dst| DeviceOp::Mma { dst, a, b, acc, atoms });
        }
        self.notes.folds.push(FoldNote {
            span,
            name: "mma_sync",
            thread: u32::try_from(groups).unwrap_or(u32::MAX),
            lanes: 1,
            warps: 1,
            exchange: None,
            shared_bytes: 0,
        });
        self.bind(result, sums);
        Ok(())
    }

    fn source(&mut self, value: ValueId) -> Result<Source<'k>, Diagnostic> {
        let kernel = self.kernel;
        let Some(access) = self.in_place.get(&value).copied() else {
            return Ok(Source::Registers(self.frag(value)));
        };
        let distribution = &kernel.values[value].distribution;
        let cells = self.cells(access, distribution)?;
        let (place, offsets) = self.place(access.storage);
        let dtype = kernel.values[value].dtype;
        let matrices = self.matrices(access, dtype, distribution);
        Ok(Source::Shared { cells, place, offsets, dtype, access, distribution, matrices })
    }

    /// The wanted registers in a fragment, and where each is.
    fn fetch(&mut self, source: &Source<'k>, wanted: &[u32], first: bool) -> (FragId, Vec<u32>) {
        match source {
            Source::Registers(frag) => (*frag, wanted.to_vec()),
            Source::Shared { cells, place, offsets, dtype, access, distribution, matrices } => {
                let by_matrices = matrices.as_ref().and_then(|matrices| {
                    let place = place.clone();
                    let loaded =
                        self.load_matrices(matrices, distribution, wanted, place, *offsets, *dtype);
                    loaded.map(|(frag, cut)| (frag, cut, matrices.turned()))
                });
                if let Some((frag, cut, turned)) = by_matrices {
                    if first {
                        self.note_access(access, *dtype, turned, &cut, false);
                        self.notes.accesses.last_mut().into_iter().for_each(|a| a.matrices = true);
                    }
                    return (frag, (0..wanted.len() as u32).collect());
                }
                let cells: Vec<Cell> = wanted.iter().map(|&r| cells[r as usize].clone()).collect();
                let cache = CachePolicy::default();
                let place = place.clone();
                let (frag, cut) =
                    self.load_cells(&cells, *dtype, place, *offsets, None, cache, Pred::Always);
                if first {
                    let order = cut.order.iter().map(|&cell| wanted[cell] as usize).collect();
                    let cut = Cut { order, pieces: cut.pieces };
                    self.note_access(access, *dtype, distribution, &cut, false);
                }
                (frag, (0..wanted.len() as u32).collect())
            }
        }
    }
}

/// The registers of the sums of one atom: rows g and g + 8, columns 2t and 2t + 1. What repeats another
/// column, or lies below the last row, has none.
fn sums(
    spec: &ContractSpec,
    out: &Distribution,
    roles: &Roles,
    rows: &[Vec<u32>],
    column: &[u32],
    pair_of: &impl Fn(&Arc<str>) -> u32,
    batch: &Locals,
) -> [Option<u32>; 4] {
    let mut c = [None; 4];
    let paired = roles.n.iter().map(pair_of).max().unwrap_or(1);
    for (row, locals_of_row) in rows.iter().enumerate() {
        for v in 0..paired.min(2) {
            let mut locals = batch.clone();
            for (letter, &local) in roles.m.iter().zip(locals_of_row) {
                locals.insert(letter.clone(), local);
            }
            for (letter, &local) in roles.n.iter().zip(column) {
                // In the right operand a block of columns is one position; here it is a vector.
                let vec = pair_of(letter);
                let own = if vec > 1 { local * vec + v } else { local };
                locals.insert(letter.clone(), own);
            }
            c[row * 2 + v as usize] = Some(register(&spec.out, out, &locals));
        }
    }
    c
}
