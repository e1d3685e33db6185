//! Several ranks: what other ranks are told, and what is waited for.

use kernel_dsl::source::Span;
use kernel_ir::kernel::{Await, Extent, Kernel, ParamId, Signal, ValueId};

use super::smem::SharedTiles;
use super::{Machine, Prepared};
use crate::cluster::Member;
use crate::counters::Trace;
use crate::error::EmuError;
use crate::memory::Memory;
use crate::options::Options;
use crate::ranks::{self, Ranks};
use crate::view::Launched;

/// Runs a kernel on several ranks, `launches` times in a row; `memories` has an entry for each rank, with an argument
/// for every parameter.
///
/// Stores reach `memories` when every CTA of every launch has ended well.
pub fn run_kernel_on_ranks(
    kernel: &Kernel,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    run(kernel, &Prepared::new(kernel), memories, launches, options)
}

pub(super) fn run(
    kernel: &Kernel,
    prepared: &Prepared,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    let one = |cta, launched: Launched<'_>, member: Member<'_, SharedTiles>| {
        let mut machine = Machine::new(kernel, prepared, launched, member, cta, options.max_steps);
        machine.block(&kernel.body)?;
        machine.end()
    };
    let (params, launch, span) = (&kernel.params, &kernel.launch, kernel.span);
    let roles = kernel.roles.len();
    let meets = super::meets(kernel);
    let ranks = Ranks { params, launch, roles, span, meets, launches, options, recorder: None };
    ranks::run(&ranks, memories, |rank| SharedTiles::new(kernel, rank), one)
}

impl Machine<'_> {
    pub(super) fn signal(&mut self, signal: &Signal) -> Result<(), EmuError> {
        let index: Vec<Option<ValueId>> = signal.index.iter().copied().map(Some).collect();
        let at = self.flag(signal.param, &index, 0);
        let at_own = (signal.param, None);
        if !self.kernel.params[signal.param].is_flag() {
            return self.view.signal(at_own, at, signal.add, signal.span);
        }
        let world = i64::from(self.kernel.launch.world.unwrap_or(1));
        let ranks = match signal.to {
            Some(to) => self.int(to)..self.int(to).saturating_add(1),
            None => 0..world,
        };
        for rank in ranks {
            self.view.signal((signal.param, Some(rank)), at, signal.add, signal.span)?;
        }
        Ok(())
    }

    pub(super) fn wait_for(&mut self, wait: &Await, span: Span) -> Result<(), EmuError> {
        let extents = &self.kernel.params[wait.param].shape;
        let words = match wait.each().and_then(|axis| extents.get(axis)) {
            Some(Extent::Const(words)) => i64::from(*words),
            Some(Extent::Scalar(_)) | None => 1,
        };
        let until = self.code(wait.until) as u32;
        for word in 0..words {
            let at = self.flag(wait.param, &wait.index, word);
            self.view.wait_for(wait.param, at, until, span)?;
        }
        self.view.meet();
        Ok(())
    }

    /// The place of a word; `each` is `word`.
    fn flag(&self, param: ParamId, index: &[Option<ValueId>], word: i64) -> i64 {
        let extents = self.kernel.params[param].shape.iter();
        extents.zip(index).fold(0, |place, (extent, position)| {
            let extent = match extent {
                Extent::Const(extent) => i64::from(*extent),
                Extent::Scalar(_) => 1,
            };
            place * extent + position.map_or(word, |position| self.int(position))
        })
    }
}
