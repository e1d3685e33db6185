//! Events that a kernel writes down: no thread waits for another one, and none reads.

use kernel_abi::trace::{self, PARAM};
use kernel_ir::index::Id;
use kernel_ir::kernel::{Extent, ParamId};
use melior::ir::Value;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic;

/// Bytes of a word.
const WORD_BYTES: u64 = 8;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// A counter for each part of the buffer that the thread may write.
    pub(super) fn count_events(&mut self) {
        if self.kernel.events.is_empty() {
            return;
        }
        let b = self.build;
        for part in 0..=self.kernel.roles.len() as u32 {
            let cell = b.alloca(b.types.i32, 1);
            b.store(b.int(b.types.i32, 0), cell, 4);
            self.events.insert(part, cell);
        }
    }

    /// The buffer, and the words of a part of it.
    fn events_buffer(&self) -> Option<(ParamId, u64)> {
        let (id, param) =
            self.kernel.params.iter_enumerated().find(|(_, param)| param.name == PARAM)?;
        let [Extent::Const(words)] = param.shape.as_slice() else { return None };
        let (ctas, roles) = (self.kernel.launch.ctas(), self.kernel.roles.len());
        Some((id, trace::part_words(u64::from(*words), ctas, roles)))
    }

    /// The first thread of the role, or of the CTA, writes an event down with the time.
    pub(super) fn trace(&mut self, event: u32) -> Lowered<()> {
        let part = self.role.map_or(0, |role| role.index() as u32 + 1);
        let (Some((param, words)), Some(&cell)) = (self.events_buffer(), self.events.get(&part))
        else {
            return refuse("the kernel has no room for events");
        };
        let address = self.part_of_events(param, part, words)?;
        let b = self.build;
        let first = b.extui(b.types.i32, self.is_first_thread());
        let count = b.load(b.types.i32, cell, 4);
        b.effect(&mnemonic::trace(event, trace::records(words)), &[address, count, first]);
        b.store(b.addi(count, first), cell, 4);
        Ok(())
    }

    /// Where the part begins: CTAs one after the other, x fastest, each with what stands outside of roles and its roles.
    fn part_of_events(&self, param: ParamId, part: u32, words: u64) -> Lowered<Value<'c, 'm>> {
        let b = &self.build;
        let grid = self.kernel.launch.grid;
        let wide = |value: Value<'c, 'm>| b.extui(b.types.i64, value);
        let int = |value: u64| b.int(b.types.i64, value as i64);
        let axis = |axis: u8| self.special(kernel_ir::device::Special::CtaIndex(axis)).map(wide);
        let (y, z) = (u64::from(grid[0]), u64::from(grid[0]) * u64::from(grid[1]));
        let cta = b.addi(axis(0)?, b.muli(axis(1)?, int(y)));
        let cta = b.addi(cta, b.muli(axis(2)?, int(z)));
        let parts = self.kernel.roles.len() as u64 + 1;
        let number = b.addi(b.muli(cta, int(parts)), int(u64::from(part)));
        let bytes = b.muli(number, int(words * WORD_BYTES));
        let Some(&base) = self.params.get(param) else { return refuse("there is no such buffer") };
        Ok(b.offset(base, b.types.i8, bytes))
    }
}
