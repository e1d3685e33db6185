//! Pieces of tiles and tiles put together: the axes that are cut lie in registers whole, so this only
//! chooses registers.

use super::Expander;
use crate::device::DeviceOp;
use crate::kernel::{SlicePart, ValueId};

impl Expander<'_> {
    /// The piece of `x` that `parts` names.
    pub(super) fn slice_tile(&mut self, result: ValueId, x: ValueId, parts: &[SlicePart]) {
        let frag = self.frag(x);
        let kernel = self.kernel;
        let (own, target) = (&kernel.values[x].distribution, &kernel.values[result].distribution);
        let table = (0..target.registers())
            .map(|register| {
                let mut kept = target.locals(register).into_iter();
                let position = |part: &SlicePart| match part.len {
                    Some(_) => part.start + kept.next().unwrap_or(0),
                    None => part.start,
                };
                let locals: Vec<u32> = parts.iter().map(position).collect();
                own.register(&locals)
            })
            .collect();
        let x = self.b.gather(frag, table);
        let frag = self.define_value(result, |dst| DeviceOp::Copy { dst, x });
        self.bind(result, frag);
    }

    /// `a`, then `b` along `axis`.
    pub(super) fn concat(&mut self, result: ValueId, a: ValueId, b: ValueId, axis: usize) {
        let (first, second) = (self.frag(a), self.frag(b));
        let kernel = self.kernel;
        let target = &kernel.values[result].distribution;
        let cut = kernel.values[a].shape[axis];
        let from = (0..target.registers())
            .map(|register| {
                let mut locals = target.locals(register);
                let (frag, own) = if locals[axis] < cut {
                    (first, &kernel.values[a].distribution)
                } else {
                    locals[axis] -= cut;
                    (second, &kernel.values[b].distribution)
                };
                (frag, own.register(&locals))
            })
            .collect();
        let frag = self.define_value(result, |dst| DeviceOp::Join { dst, from });
        self.bind(result, frag);
    }
}
