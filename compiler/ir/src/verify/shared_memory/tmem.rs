//! Products in tensor memory: what they touch, as late as the barrier that they are committed to.

use kernel_dsl::diag::{Code, Diagnostic};

use super::Walk;
use super::state::{Kind, Touch};
use crate::kernel::{Tensor, TileAccess};

impl Walk<'_> {
    pub(super) fn tensor(&mut self, op: &Tensor) {
        match op {
            Tensor::Mma(mma) => {
                mma.reads().for_each(|access| self.by_product(access, Kind::Read));
                self.by_product(&mma.acc, Kind::Write);
            }
            Tensor::Load { access, .. } => {
                let touch = self.tensor_touch(access, Kind::Read, false);
                touch.iter().for_each(|touch| self.beside(touch));
            }
            Tensor::Settle { .. } => {}
        }
    }

    fn tensor_touch(&mut self, access: &TileAccess, kind: Kind, product: bool) -> Option<Touch> {
        let (tile, slot) = access.storage.tile()?;
        let known = &self.known;
        let mut touch = Touch::new(access, tile, slot, kind, None, |value| known.form(value));
        touch.product = product;
        touch.guards = self.region.guards_of(self.kernel, &touch);
        Some(touch)
    }

    fn by_product(&mut self, access: &TileAccess, kind: Kind) {
        let Some(touch) = self.tensor_touch(access, kind, true) else { return };
        // Products of one thread follow each other, so sums are met by none of the own role.
        if kind == Kind::Read {
            self.meet(&touch);
            self.region.read_by_product(&touch);
        }
        self.beside(&touch);
    }

    /// A write of the own role against products that it has started: nothing but a slot that comes back orders them.
    pub(super) fn meet_tensor(&mut self, touch: &Touch) {
        if touch.kind == Kind::Read || !touch.guards.is_empty() {
            return;
        }
        let judge = self.judge();
        let reads = self.region.product_reads();
        let Some(read) = reads.iter().find(|read| judge.may_overlap(read, touch)).cloned() else {
            return;
        };
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
