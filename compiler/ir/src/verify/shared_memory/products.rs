//! Products of a warpgroup that are under way: what they may still read, in shared memory and in registers, and which sums
//! they may still change.

use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::super::scalars::Form;
use super::Walk;
use super::landing::BackEdge;
use super::state::{Kind, Touch};
use crate::kernel::{BarrierId, Op, Stmt, StmtKind, ValueId, VarId, Warpgroup, WarpgroupMma};

/// More groups than any `settle` leaves in flight.
const MAX_SINCE: u32 = 64;

/// How far a product is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flight {
    span: Span,
    /// Groups that were closed after its own; nothing while its own is open.
    since: Option<u32>,
}

impl Flight {
    /// What is known where either may be.
    fn join(&mut self, other: Flight) {
        self.since = self.since.zip(other.since).map(|(a, b)| a.min(b));
    }

    fn commit(&mut self) {
        self.since = Some(self.since.map_or(0, |since| since.saturating_add(1).min(MAX_SINCE)));
    }

    fn is_complete(self, pending: u32) -> bool {
        self.since.is_some_and(|since| since >= pending)
    }
}

/// Products that some path has started and not settled.
#[derive(Debug, Clone, Default)]
pub(super) struct Products {
    /// What they read.
    reads: Vec<(Touch, Flight)>,
    /// What they add to.
    sums: BTreeMap<(VarId, u32), Flight>,
    /// Their left operands in registers.
    lefts: BTreeMap<ValueId, Left>,
}

/// A left operand in registers that a product may still read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    flight: Flight,
    /// The product was started in a round before.
    is_earlier: bool,
}

impl PartialEq for Products {
    /// The order of reads does not matter.
    fn eq(&self, other: &Products) -> bool {
        self.sums == other.sums
            && self.lefts == other.lefts
            && self.reads.len() == other.reads.len()
            && self.reads.iter().all(|read| other.reads.contains(read))
    }
}

impl Products {
    /// True while one may still read shared memory.
    pub(super) fn may_read(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.reads.is_empty() && self.lefts.is_empty()
    }

    /// Reads under way.
    pub(super) fn len(&self) -> usize {
        self.reads.len()
    }

    fn add_read(&mut self, touch: Touch, flight: Flight) {
        match self.reads.iter_mut().find(|(known, _)| *known == touch) {
            Some((_, known)) => known.join(flight),
            None => self.reads.push((touch, flight)),
        }
    }

    fn commit(&mut self) {
        self.reads.iter_mut().for_each(|(_, flight)| flight.commit());
        self.sums.values_mut().for_each(Flight::commit);
        self.lefts.values_mut().for_each(|left| left.flight.commit());
    }

    /// The role comes to one more index of a pipeline.
    pub(super) fn come(&mut self, end: (BarrierId, bool), slots: u32) {
        for (read, _) in &mut self.reads {
            read.come_under_way(end, slots);
        }
    }

    /// Two paths meet.
    pub(super) fn join(&mut self, other: Products) {
        for (touch, flight) in other.reads {
            self.add_read(touch, flight);
        }
        for (sums, flight) in other.sums {
            self.sums.entry(sums).and_modify(|known| known.join(flight)).or_insert(flight);
        }
        for (value, left) in other.lefts {
            let known = self.lefts.entry(value).or_insert(left);
            known.flight.join(left.flight);
            known.is_earlier |= left.is_earlier;
        }
    }

    /// A back edge.
    pub(super) fn next_round(&mut self, edge: BackEdge<'_>) {
        for (mut touch, flight) in std::mem::take(&mut self.reads) {
            touch.next_round(edge, false);
            self.add_read(touch, flight);
        }
        self.lefts.values_mut().for_each(|left| left.is_earlier = true);
    }
}

/// True where the statements use tiles that are assigned to.
pub(super) fn uses_vars(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| {
        matches!(stmt.kind, StmtKind::SetVar { .. } | StmtKind::Def { op: Op::ReadVar { .. }, .. })
            || stmt.kind.bodies().into_iter().any(uses_vars)
    })
}

impl Walk<'_> {
    pub(super) fn warpgroup(&mut self, stmt: &Stmt, op: &Warpgroup) {
        match op {
            Warpgroup::Mma(mma) => self.product(stmt.span, mma),
            Warpgroup::Commit => self.state.products.commit(),
            Warpgroup::Settle { var, slot, pending } => {
                self.settle_products(stmt.span, *var, *slot, *pending);
            }
        }
    }

    fn product(&mut self, span: Span, mma: &WarpgroupMma) {
        let flight = Flight { span, since: None };
        for access in mma.reads() {
            let Some((tile, slot)) = access.storage.tile() else { continue };
            let known = &self.known;
            let mut touch = Touch::new(access, (tile, slot), Kind::Read, None, known);
            touch.guards = self.region.guards_of(self.kernel, &touch);
            self.meet(&touch);
            self.beside(&touch);
            self.state.products.add_read(touch, flight);
        }
        self.state.products.sums.insert((mma.var, mma.slot), flight);
        if let Some(value) = mma.left_value() {
            let left = self.state.products.lefts.get(&value).copied();
            if left.is_some_and(|left| left.is_earlier && left.flight.span == span) {
                self.left_written(span, value, "this hands the same operand to registers again");
            }
            self.state.products.lefts.insert(value, Left { flight, is_earlier: false });
        }
    }

    /// A value is made, maybe not for the first time: a loop makes it in the same registers in each round.
    pub(super) fn make_value(&mut self, span: Span, value: ValueId, op: &Op) {
        if let Op::ReadVar { var, slot } = op {
            self.read_from.insert(value, (*var, *slot));
        }
        if self.state.products.lefts.contains_key(&value) {
            self.left_written(span, value, "this makes the operand again, in the next round");
            self.state.products.lefts.remove(&value);
        }
    }

    /// A tile of registers is assigned, which products may still read.
    pub(super) fn assign_left(&mut self, span: Span, var: VarId, slot: u32) {
        let is_read = |value: &&ValueId| self.read_from.get(value) == Some(&(var, slot));
        if let Some(&value) = self.state.products.lefts.keys().find(is_read) {
            self.left_written(span, value, "assigned here");
        }
    }

    fn left_written(&mut self, span: Span, value: ValueId, why: &str) {
        let Some(left) = self.state.products.lefts.get(&value).copied() else { return };
        if !self.reported.insert((left.flight.span, span)) {
            return;
        }
        let var = self.read_from.get(&value).map(|(var, _)| &self.kernel.vars[*var].name);
        let name = var.map_or("a left operand in registers".to_owned(), |name| format!("`{name}`"));
        let round = if left.is_earlier { ", in a round before" } else { "" };
        self.sink.push(
            Diagnostic::error(
                Code::E0141,
                format!("{name} is written while a product may still read it"),
            )
            .label(span, why)
            .secondary(left.flight.span, format!("the product{round}: not settled on every path"))
            .help(
                "`settle` the sums before, so that the group of the product is complete; a loop that is unrolled has \
                 registers for each round",
            ),
        );
    }

    fn settle_products(&mut self, span: Span, var: VarId, slot: u32, pending: u32) {
        let flight = self.state.products.sums.get(&(var, slot)).copied();
        *self.sums_settled.entry((span, var)).or_insert(false) |= flight.is_some();
        if let Some(Flight { span: product, since: None }) = flight
            && self.reported.insert((product, span))
        {
            self.sink.push(
                Diagnostic::error(Code::E0142, "`settle` of a product whose group is open")
                    .label(span, "this waits for closed groups alone")
                    .secondary(product, "the product")
                    .help("write `commit;` between"),
            );
        }
        // What the products have read may be written once all threads have met.
        let products = &mut self.state.products;
        let (done, left) = std::mem::take(&mut products.reads)
            .into_iter()
            .partition(|(_, flight)| flight.is_complete(pending));
        products.reads = left;
        products.lefts.retain(|_, left| !left.flight.is_complete(pending));
        if flight.is_some_and(|flight| flight.is_complete(pending)) {
            products.sums.remove(&(var, slot));
        }
        let done: Vec<(Touch, Flight)> = done;
        for (touch, _) in done {
            self.state.add(touch);
        }
    }

    /// A write of shared memory against what products may still read.
    pub(super) fn meet_products(&mut self, touch: &Touch) {
        if touch.kind == Kind::Read {
            return;
        }
        let judge = self.judge();
        let reads = &self.state.products.reads;
        let Some((read, flight)) =
            reads.iter().find(|(read, _)| judge.may_overlap(read, touch)).cloned()
        else {
            return;
        };
        if !self.reported.insert((read.span, touch.span)) {
            return;
        }
        let tile = &self.kernel.smem[touch.tile];
        let round = if read.is_of_earlier_round() { ", in a round before" } else { "" };
        self.sink.push(
            Diagnostic::error(
                Code::E0141,
                format!("`{}` is written while a product may still read it", tile.name),
            )
            .label(touch.span, "this writes what the product reads")
            .secondary(flight.span, format!("the product{round}: not settled on every path"))
            .secondary(tile.span, "declared here")
            .help(
                "`settle` the sums, so that the group of the product is complete, and then `sync;`",
            ),
        );
    }

    /// What a role hands over, the slot of an index or anything, against what products may still read.
    pub(super) fn meet_release(&mut self, span: Span, slot: Option<(BarrierId, &Form)>) {
        let judge = self.judge();
        let meets = |(read, _): &&(Touch, Flight)| {
            slot.is_none_or(|(pipeline, index)| judge.may_hand_over(read, pipeline, index))
        };
        let Some((read, flight)) = self.state.products.reads.iter().find(meets).cloned() else {
            return;
        };
        if !self.reported.insert((read.span, span)) {
            return;
        }
        let tile = &self.kernel.smem[read.tile].name;
        let round = if read.is_of_earlier_round() { ", in a round before" } else { "" };
        let (what, done, why) = match slot {
            Some(_) => ("a slot of ", "released", "whoever waits for this may fill the slot again"),
            None => ("", "handed over", "whoever waits for this may write it"),
        };
        self.sink.push(
            Diagnostic::error(
                Code::E0143,
                format!("{what}`{tile}` is {done} while a product may still read it"),
            )
            .label(span, why)
            .secondary(read.span, format!("read by the product{round}"))
            .secondary(flight.span, "the product: not settled on every path")
            .help("release it after the `settle` that its group does not outlast: `settle acc but 1; release ld.empty@(t - 1);`"),
        );
    }

    /// A use of a tile against products that may still add to it.
    pub(super) fn use_sums(&mut self, span: Span, var: VarId, slot: u32, what: &str) {
        let Some(flight) = self.state.products.sums.get(&(var, slot)).copied() else { return };
        if !self.reported.insert((flight.span, span)) {
            return;
        }
        let var = &self.kernel.vars[var];
        self.sink.push(
            Diagnostic::error(
                Code::E0140,
                format!("`{}` is {what} while a product may still add to it", var.name),
            )
            .label(span, format!("{what} here"))
            .secondary(flight.span, "the product: not settled on every path")
            .help(format!("write `commit;` and `settle {};` between", var.name)),
        );
    }

    /// Reports what is under way when the kernel ends, and each `settle` that no round finds a product for.
    pub(super) fn report_products(&mut self) {
        for (&(var, _), flight) in &self.state.products.sums {
            let name = &self.kernel.vars[var].name;
            self.sink.push(
                Diagnostic::error(Code::E0142, format!("a product of `{name}` is never settled"))
                    .label(flight.span, "still under way when the kernel ends, on some path")
                    .help(format!("write `commit;` and `settle {name};` after it")),
            );
        }
        for (&(span, var), _) in self.sums_settled.iter().filter(|(_, found)| !**found) {
            let var = &self.kernel.vars[var];
            self.sink.push(
                Diagnostic::error(Code::E0142, format!("no product adds to `{}` here", var.name))
                    .label(span, "nothing is under way to these sums")
                    .secondary(var.span, "declared here")
                    .help("start the product before, or remove `settle`"),
            );
        }
    }
}
