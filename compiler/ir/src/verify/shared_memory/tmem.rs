//! Products in tensor memory: what they touch, as late as the barrier that they are committed to.

use kernel_dsl::diag::{Code, Diagnostic};

use super::super::scalars::Form;
use super::Walk;
use super::overlap::Judge;
use super::state::{Guard, Kind, Side, Touch};
use crate::kernel::{Tensor, TensorAtom, TensorMma, TileAccess};

impl Walk<'_> {
    pub(super) fn tensor(&mut self, op: &Tensor) {
        match op {
            Tensor::Mma(mma) => {
                mma.reads().for_each(|access| self.by_product(access, Kind::Read));
                self.by_product(&mma.acc, Kind::Write);
                self.sums(mma);
            }
            Tensor::Load { access, .. } => {
                let touch = self.tensor_touch(access, Kind::Read, false);
                touch.iter().for_each(|touch| self.beside(touch));
            }
            Tensor::Store { value, access } => {
                let spread = &self.kernel.values[*value].distribution;
                self.touch(access, Kind::Write, Some(spread));
            }
            Tensor::Settle { .. } => {}
        }
    }

    fn tensor_touch(&mut self, access: &TileAccess, kind: Kind, product: bool) -> Option<Touch> {
        let (tile, slot) = access.storage.tile()?;
        let known = &self.known;
        let mut touch = Touch::new(access, (tile, slot), kind, None, known);
        touch.product = product;
        touch.guards = self.region.guards_of(self.kernel, &touch);
        Some(touch)
    }

    fn by_product(&mut self, access: &TileAccess, kind: Kind) {
        let Some(touch) = self.tensor_touch(access, kind, true) else { return };
        // Products of one thread follow each other, so sums are met by none of the own role.
        if kind == Kind::Read {
            self.meet(&touch);
            self.state.read_by_product(touch.clone());
        }
        self.beside(&touch);
    }

    /// Products of one role on the same sums: the hardware keeps those in order that are of one shape and add to the same
    /// columns (PTX ISA, tcgen05 memory consistency, pipelined instructions), and others not.
    fn sums(&mut self, mma: &TensorMma) {
        let Some(touch) = self.tensor_touch(&mma.acc, Kind::Write, true) else { return };
        let all = self.region.written_by_product(&touch, mma.atom).to_vec();
        let judge = self.judge();
        let other = all.iter().find(|(earlier, atom)| {
            judge.may_overlap(earlier, &touch)
                && !(*atom == mma.atom && judge.adds_to_the_same(earlier, &touch, *atom))
        });
        let Some((earlier, _)) = other.cloned() else { return };
        if !self.reported.insert((earlier.span, touch.span)) {
            return;
        }
        let tile = &self.kernel.smem[touch.tile];
        self.sink.push(
            Diagnostic::error(
                Code::E0146,
                format!("products of several shapes on the sums `{}`", tile.name),
            )
            .label(touch.span, "may run before the other one")
            .secondary(earlier.span, "this adds to some of the same columns by another atom, or from others on")
            .secondary(tile.span, "declared here")
            .help("let one atom write these columns, the same each time; products of one shape follow each other"),
        );
    }

    /// A write of the own role against products that it has started: nothing but a slot that comes back orders them, and
    /// that the product has held as well.
    pub(super) fn meet_tensor(&mut self, touch: &Touch) {
        if touch.kind == Kind::Read {
            return;
        }
        let judge = self.judge();
        let came_back = |read: &Touch| {
            let is_at = |guard: &Guard| touch.guards.iter().any(|g| g.is_at(guard.end()));
            read.guards.iter().any(is_at)
        };
        let meets = |read: &&Touch| !came_back(read) && judge.may_overlap(read, touch);
        let Some(read) = self.state.tensor_reads.iter().find(meets).cloned() else { return };
        if !self.reported.insert((read.span, touch.span)) {
            return;
        }
        let tile = &self.kernel.smem[touch.tile];
        self.sink.push(
            Diagnostic::error(
                Code::E0141,
                format!("`{}` is written while a product may still read it", tile.name),
            )
            .label(touch.span, "this writes what the product reads")
            .secondary(read.span, "the product")
            .secondary(tile.span, "declared here")
            .help("hand the operands over by a pipeline, from another role"),
        );
    }
}

impl Judge<'_> {
    /// Whether each instruction of two products of one atom adds to the columns of one of the other, or to none of them.
    fn adds_to_the_same(&self, a: &Touch, b: &Touch, atom: TensorAtom) -> bool {
        let (Some(Side::Range { start: a, .. }), Some(Side::Range { start: b, .. })) =
            (a.sides.last(), b.sides.last())
        else {
            return false;
        };
        let n = i128::from(atom.n);
        let steps = |form: &Form| form.terms.values().all(|factor| factor % n == 0);
        let offset = a.constant.checked_sub(b.constant);
        steps(a) && steps(b) && offset.is_some_and(|offset| offset % n == 0)
    }
}
