//! Classes of axes: which axes of which tiles must be spread alike.

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use crate::index::Id;
use crate::kernel::{
    AxisIndex, ContractSpec, Kernel, Op, PipeOp, PrefetchRange, SlicePart, Stmt, StmtKind, Tensor,
    TileAccess, ValueId, VarId, Warpgroup,
};

/// A tile of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tile {
    Value(ValueId),
    Var(VarId),
}

impl Tile {
    pub(super) fn shape(self, kernel: &Kernel) -> &[u32] {
        match self {
            Tile::Value(id) => &kernel.values[id].shape,
            Tile::Var(id) => &kernel.vars[id].shape,
        }
    }

    /// Warps that it is spread over.
    pub(super) fn warps(self, kernel: &Kernel) -> u32 {
        match self {
            Tile::Value(id) => kernel.values[id].distribution.warps,
            Tile::Var(id) => kernel.vars[id].distribution.warps,
        }
    }

    pub(super) fn span(self, kernel: &Kernel) -> Span {
        match self {
            Tile::Value(id) => kernel.values[id].span,
            Tile::Var(id) => kernel.vars[id].span,
        }
    }

    /// The author's name for it, if there is one.
    pub(super) fn name(self, kernel: &Kernel) -> Option<&str> {
        match self {
            Tile::Value(id) => kernel.values[id].name.as_deref(),
            Tile::Var(id) => Some(&kernel.vars[id].name),
        }
    }
}

/// A load or store of a tile.
#[derive(Debug, Clone)]
pub(super) struct MemoryUse {
    pub(super) value: ValueId,
    pub(super) access: TileAccess,
    pub(super) is_store: bool,
}

/// Axes of an operation's iteration space that no tile may have together.
struct Clique {
    classes: Vec<Option<usize>>,
    span: Span,
}

/// The classes of all axes with an extent above 1.
pub(super) struct Classes {
    nodes: Nodes,
    parents: Vec<usize>,
    /// Loads and stores of tiles, in source order.
    pub(super) memory: Vec<MemoryUse>,
    /// Tiles of rank 1 or more, in the order of first use.
    pub(super) tiles: Vec<Tile>,
    /// Operations whose axes meet without a tile that has them all.
    cliques: Vec<(Vec<(Tile, usize)>, Span)>,
    /// Nodes of axes that are cut: they lie in registers whole.
    cut: Vec<usize>,
}

/// Numbers the axes of all tiles.
struct Nodes {
    values: Vec<usize>,
    vars: Vec<usize>,
}

impl Nodes {
    fn of(&self, tile: Tile, axis: usize) -> usize {
        axis + match tile {
            Tile::Value(id) => self.values[id.index()],
            Tile::Var(id) => self.vars[id.index()],
        }
    }
}

impl Classes {
    /// Joins the axes of every tile of the kernel.
    pub(super) fn of(kernel: &Kernel) -> Classes {
        let mut count = 0;
        let mut place = |rank: usize| {
            count += rank;
            count - rank
        };
        let values = kernel.values.iter().map(|v| place(v.shape.len())).collect();
        let vars = kernel.vars.iter().map(|v| place(v.shape.len())).collect();
        let mut classes = Classes {
            nodes: Nodes { values, vars },
            parents: (0..count).collect(),
            memory: Vec::new(),
            tiles: Vec::new(),
            cliques: Vec::new(),
            cut: Vec::new(),
        };
        let mut walk = Walk { kernel, classes: &mut classes, seen: Vec::new() };
        walk.seen = vec![false; kernel.values.len() + kernel.vars.len()];
        walk.block(&kernel.body);
        for id in kernel.vars.ids() {
            walk.see(Tile::Var(id));
        }
        for id in kernel.values.ids() {
            walk.see(Tile::Value(id));
        }
        for node in 0..count {
            classes.parents[node] = classes.find(node);
        }
        classes.cut = classes.cut.iter().map(|&node| classes.parents[node]).collect();
        classes.cut.sort_unstable();
        classes.cut.dedup();
        classes
    }

    fn find(&mut self, node: usize) -> usize {
        let mut root = node;
        while self.parents[root] != root {
            root = self.parents[root];
        }
        let mut at = node;
        while self.parents[at] != root {
            at = std::mem::replace(&mut self.parents[at], root);
        }
        root
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        let (low, high) = (a.min(b), a.max(b));
        self.parents[high] = low;
    }

    /// Number of node indices; classes are below it.
    pub(super) fn count(&self) -> usize {
        self.parents.len()
    }

    /// The class of an axis, once all axes are joined.
    pub(super) fn class(&self, tile: Tile, axis: usize) -> Option<usize> {
        self.parents.get(self.nodes.of(tile, axis)).copied()
    }

    /// True for a class that no thread index runs along, since one of its axes is cut.
    pub(super) fn is_cut(&self, class: usize) -> bool {
        self.cut.binary_search(&class).is_ok()
    }

    /// The classes of a tile's axes; none for an axis of extent 0 or 1, which every thread holds.
    pub(super) fn of_tile(&self, kernel: &Kernel, tile: Tile) -> Vec<Option<usize>> {
        let shape = tile.shape(kernel);
        (0..shape.len())
            .map(|axis| if shape[axis] > 1 { self.class(tile, axis) } else { None })
            .collect()
    }

    fn cliques(&self, kernel: &Kernel) -> impl Iterator<Item = Clique> {
        self.cliques.iter().map(|(axes, span)| Clique {
            classes: axes.iter().map(|&(tile, axis)| self.of_tile(kernel, tile)[axis]).collect(),
            span: *span,
        })
    }

    /// For each class the classes that it meets in a tile or an operation.
    pub(super) fn neighbours(&self, kernel: &Kernel) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); self.count()];
        let tiles = self.tiles.iter().map(|&tile| self.of_tile(kernel, tile));
        let cliques = self.cliques(kernel).map(|clique| clique.classes);
        for group in tiles.chain(cliques) {
            let group: Vec<usize> = group.into_iter().flatten().collect();
            for &a in &group {
                neighbours[a].extend(group.iter().copied().filter(|&b| b != a));
            }
        }
        for list in &mut neighbours {
            list.sort_unstable();
            list.dedup();
        }
        neighbours
    }

    /// Tiles and operations in which one class stands for two axes.
    pub(super) fn conflicts(&self, kernel: &Kernel) -> Vec<Diagnostic> {
        let mut found: BTreeMap<usize, Diagnostic> = BTreeMap::new();
        for &tile in &self.tiles {
            if let Some(class) = repeated(&self.of_tile(kernel, tile)) {
                found
                    .entry(class)
                    .or_insert_with(|| self.conflict(kernel, class, tile.span(kernel)));
            }
        }
        for clique in self.cliques(kernel) {
            if let Some(class) = repeated(&clique.classes) {
                found.entry(class).or_insert_with(|| self.conflict(kernel, class, clique.span));
            }
        }
        found.into_values().collect()
    }

    fn conflict(&self, kernel: &Kernel, class: usize, span: Span) -> Diagnostic {
        let source = self.tiles.iter().copied().find(|&tile| {
            let classes = self.of_tile(kernel, tile);
            classes.contains(&Some(class)) && repeated(&classes).is_none()
        });
        let name = source.and_then(|tile| tile.name(kernel));
        let shown = name.unwrap_or("x");
        let mut diagnostic =
            Diagnostic::error(Code::E0310, "two axes of this tile would be spread in the same way")
                .label(span, "both axes run along the same threads here");
        if let Some(tile) = source {
            diagnostic = diagnostic.secondary(
                tile.span(kernel),
                match name {
                    Some(name) => format!("`{name}` gives its layout to both axes"),
                    None => "this tile gives its layout to both axes".to_owned(),
                },
            );
        }
        diagnostic.help(format!(
            "write `relayout({shown})` for one of the two operands, or load the data a second time: each \
             load takes the layout that its own users need"
        ))
    }
}

/// The first class that stands twice in a list.
fn repeated(classes: &[Option<usize>]) -> Option<usize> {
    classes.iter().enumerate().find_map(|(i, class)| class.filter(|_| classes[..i].contains(class)))
}

struct Walk<'a> {
    kernel: &'a Kernel,
    classes: &'a mut Classes,
    seen: Vec<bool>,
}

impl Walk<'_> {
    fn see(&mut self, tile: Tile) {
        let index = match tile {
            Tile::Value(id) => id.index(),
            Tile::Var(id) => self.kernel.values.len() + id.index(),
        };
        if !std::mem::replace(&mut self.seen[index], true) && !tile.shape(self.kernel).is_empty() {
            self.classes.tiles.push(tile);
        }
    }

    /// Joins one axis of two tiles; an axis of extent 1 that is repeated stays apart.
    fn axis(&mut self, a: (Tile, usize), b: (Tile, usize)) {
        let extents = (a.0.shape(self.kernel)[a.1], b.0.shape(self.kernel)[b.1]);
        if extents.0 == extents.1 {
            let nodes = (self.classes.nodes.of(a.0, a.1), self.classes.nodes.of(b.0, b.1));
            self.classes.join(nodes.0, nodes.1);
        }
    }

    /// Joins an operand with the result, aligned at the last axis.
    fn broadcast(&mut self, operand: Tile, result: Tile) {
        let ranks = (operand.shape(self.kernel).len(), result.shape(self.kernel).len());
        for back in 1..=ranks.0.min(ranks.1) {
            self.axis((operand, ranks.0 - back), (result, ranks.1 - back));
        }
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def { results, op } => {
                    for &result in results {
                        self.see(Tile::Value(result));
                    }
                    self.op(results, op, stmt.span);
                }
                StmtKind::SetVar { var, slot: _, value } => {
                    self.see(Tile::Var(*var));
                    self.broadcast(Tile::Value(*value), Tile::Var(*var));
                }
                StmtKind::Store { value, access, update: _, cache: _ } => {
                    self.access(*value, access, true);
                }
                StmtKind::Prefetch { what, evict: _ } => match what {
                    PrefetchRange::Tile(access) => self.prefetch(access),
                    PrefetchRange::Elements { .. } | PrefetchRange::Box(_) => {}
                },
                StmtKind::For { body, .. } | StmtKind::Role { body, .. } => self.block(body),
                StmtKind::If { then_body, else_body, .. } => {
                    self.block(then_body);
                    self.block(else_body);
                }
                StmtKind::CopyAsync { source, .. }
                | StmtKind::Pipe(PipeOp::Copy { source, .. }) => self.prefetch(source),
                StmtKind::Pipe(PipeOp::Send { value, dest, .. }) => {
                    self.access(*value, dest, true);
                }
                StmtKind::Warpgroup(Warpgroup::Mma(mma)) => {
                    self.see(Tile::Var(mma.var));
                    mma.left_value().into_iter().for_each(|left| self.see(Tile::Value(left)));
                }
                StmtKind::Tensor(Tensor::Load { var, .. }) => self.see(Tile::Var(*var)),
                StmtKind::Tensor(Tensor::Store { value, .. }) => self.see(Tile::Value(*value)),
                StmtKind::EmptyGroup
                | StmtKind::Outgoing(_)
                | StmtKind::Settle { .. }
                | StmtKind::Warpgroup(Warpgroup::Commit | Warpgroup::Settle { .. })
                | StmtKind::Tensor(Tensor::Mma(_) | Tensor::Settle { .. })
                | StmtKind::Sync
                | StmtKind::Signal(_)
                | StmtKind::Await(_)
                | StmtKind::SyncCluster
                | StmtKind::SyncRole
                | StmtKind::Pipe(_)
                | StmtKind::Advance { .. }
                | StmtKind::GridWait
                | StmtKind::GridLaunch
                | StmtKind::Assert { .. }
                | StmtKind::Trace { .. }
                | StmtKind::Printf { .. } => {}
            }
        }
    }

    fn op(&mut self, results: &[ValueId], op: &Op, span: Span) {
        let Some(&first) = results.first() else { return };
        let result = Tile::Value(first);
        match op {
            Op::Const(_)
            | Op::CtaIndex(_)
            | Op::ClusterIndex(_)
            | Op::ScalarParam(_)
            | Op::Iota
            | Op::Splat { .. }
            | Op::ArriveLast { .. }
            | Op::Atomic { .. }
            | Op::Relayout { .. } => {}
            Op::Unary { x, .. } | Op::Convert { x } | Op::Scan { x, .. } => {
                self.broadcast(Tile::Value(*x), result)
            }
            Op::Binary { a, b, .. } | Op::Compare { a, b, .. } => {
                for x in [a, b] {
                    self.broadcast(Tile::Value(*x), result);
                }
            }
            Op::Select { cond: a, a: b, b: c } | Op::Fma { a, b, c } => {
                for x in [a, b, c] {
                    self.broadcast(Tile::Value(*x), result);
                }
            }
            Op::Inline { text: _, equals, inputs } => {
                for x in std::iter::once(equals).chain(inputs) {
                    self.broadcast(Tile::Value(*x), result);
                }
            }
            Op::Expand { x, axes } => {
                for (axis, source) in axes.iter().enumerate() {
                    if let Some(source) = source {
                        self.axis((result, axis), (Tile::Value(*x), usize::from(*source)));
                    }
                }
            }
            Op::Load { access, .. } => self.access(first, access, false),
            Op::ReadVar { var, .. } => self.broadcast(Tile::Var(*var), result),
            Op::Reduce { x, axis, .. } | Op::Argmax { x, axis } => {
                for &result in results {
                    self.reduced(*x, usize::from(*axis), Tile::Value(result));
                }
            }
            Op::Slice { x, parts } => self.slice(*x, parts, result),
            Op::Concat { a, b, axis } => {
                let axis = usize::from(*axis);
                for tile in [Tile::Value(*a), Tile::Value(*b)] {
                    self.cut(tile, axis);
                    for other in (0..tile.shape(self.kernel).len()).filter(|&other| other != axis) {
                        self.axis((tile, other), (result, other));
                    }
                }
                self.cut(result, axis);
            }
            Op::Mma { spec, a, b, acc } => {
                self.mma(spec, *a, *b, result);
                if let Some(acc) = acc {
                    self.broadcast(Tile::Value(*acc), result);
                }
            }
            Op::Contract { spec, a, b, acc } => {
                self.contract(spec, *a, *b, result, span);
                if let Some(acc) = acc {
                    self.broadcast(Tile::Value(*acc), result);
                }
            }
        }
    }

    /// Marks an axis that lies in registers whole.
    fn cut(&mut self, tile: Tile, axis: usize) {
        let node = self.classes.nodes.of(tile, axis);
        self.classes.cut.push(node);
    }

    /// Axes that are taken whole are those of the operand; the others are cut on both sides.
    fn slice(&mut self, x: ValueId, parts: &[SlicePart], result: Tile) {
        let source = Tile::Value(x);
        let mut kept = 0;
        for (axis, part) in parts.iter().enumerate() {
            if part.is_whole(source.shape(self.kernel)[axis]) {
                self.axis((source, axis), (result, kept));
            } else {
                self.cut(source, axis);
                if part.len.is_some() {
                    self.cut(result, kept);
                }
            }
            kept += usize::from(part.len.is_some());
        }
    }

    fn reduced(&mut self, x: ValueId, axis: usize, result: Tile) {
        for kept in 0..result.shape(self.kernel).len() {
            let source = if kept < axis { kept } else { kept + 1 };
            self.axis((result, kept), (Tile::Value(x), source));
        }
    }

    fn contract(&mut self, spec: &ContractSpec, a: ValueId, b: ValueId, result: Tile, span: Span) {
        let operands = [(Tile::Value(a), &spec.a), (Tile::Value(b), &spec.b), (result, &spec.out)];
        let mut letters: BTreeMap<&str, (Tile, usize)> = BTreeMap::new();
        for (tile, names) in operands {
            for (axis, name) in names.iter().enumerate() {
                match letters.get(&**name) {
                    Some(&first) => self.axis(first, (tile, axis)),
                    None => {
                        letters.insert(name, (tile, axis));
                    }
                }
            }
        }
        self.classes.cliques.push((letters.into_values().collect(), span));
    }

    /// On the tensor core a letter of n alone is spread in one way in the right operand and in another in
    /// the result.
    fn mma(&mut self, spec: &ContractSpec, a: ValueId, b: ValueId, result: Tile) {
        let (a, b) = (Tile::Value(a), Tile::Value(b));
        for (axis, letter) in spec.a.iter().enumerate() {
            let place = |letters: &[std::sync::Arc<str>]| letters.iter().position(|l| l == letter);
            if let Some(other) = place(&spec.b) {
                self.axis((a, axis), (b, other));
            }
            if let Some(out) = place(&spec.out) {
                self.axis((a, axis), (result, out));
            }
        }
    }

    fn access(&mut self, value: ValueId, access: &TileAccess, is_store: bool) {
        let (mut axis, mut gathered) = (0, 0);
        for index in &access.index {
            match index {
                AxisIndex::At(_) => continue,
                AxisIndex::Range { .. } | AxisIndex::New => {}
                AxisIndex::Gather(positions) => {
                    self.axis((Tile::Value(value), axis), (Tile::Value(*positions), 0));
                    gathered = axis;
                }
                AxisIndex::Along(positions) => {
                    self.axis((Tile::Value(value), gathered), (Tile::Value(*positions), 0));
                    continue;
                }
            }
            axis += 1;
        }
        if axis > 0 {
            self.classes.memory.push(MemoryUse { value, access: access.clone(), is_store });
        }
    }

    /// Index tiles of one prefetch are used together.
    fn prefetch(&mut self, access: &TileAccess) {
        let tiles = access.index.iter().filter_map(|index| match index {
            AxisIndex::Gather(positions) => Some((Tile::Value(*positions), 0)),
            AxisIndex::At(_) | AxisIndex::Range { .. } | AxisIndex::Along(_) | AxisIndex::New => {
                None
            }
        });
        let axes: Vec<(Tile, usize)> = tiles.collect();
        self.classes.cliques.push((axes, access.span));
    }
}
