//! Several ranks: words that lanes raise and wait for.

use kernel_dsl::source::Span;
use kernel_ir::device::{DeviceKernel, FragId, LocId, Vector};
use kernel_ir::kernel::ParamId;
use kernel_memory_model::event::{Returns, Scope, Strength};

use super::Machine;
use super::shared::Shared;
use crate::cluster::Member;
use crate::counters::Trace;
use crate::error::EmuError;
use crate::memory::Memory;
use crate::options::Options;
use crate::ranks::{self, Ranks};
use crate::record::Recorder;
use crate::view::Launched;

/// Runs a device kernel on several ranks, `launches` times in a row; `memories` has an entry for each rank, with an
/// argument for every parameter.
///
/// Stores reach `memories` when every CTA of every launch has ended well.
pub fn run_device_on_ranks(
    kernel: &DeviceKernel,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
) -> Result<Vec<Trace>, EmuError> {
    run_all(kernel, memories, launches, options, None)
}

/// The same, with or without a recorder.
pub(super) fn run_all(
    kernel: &DeviceKernel,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
    recorder: Option<&Recorder>,
) -> Result<Vec<Trace>, EmuError> {
    let one = |cta, launched: Launched<'_>, member: Member<'_, Shared>| {
        let mut machine = Machine::new(kernel, launched, member, cta, options.max_steps);
        machine.note_start();
        machine.block(&kernel.body)?;
        machine.end()
    };
    let span = kernel.locs.iter().next().map_or(Span::default(), |loc| loc.span);
    let (params, launch, roles) = (&kernel.params, &kernel.launch, kernel.roles.len());
    let meets = super::meets(kernel);
    let ranks = Ranks { params, launch, roles, span, meets, launches, options, recorder };
    ranks::run(&ranks, memories, |rank| Shared::new(kernel, rank), one)
}

impl Machine<'_> {
    /// Who shares a word: the CTAs of a device, or all ranks.
    fn scope_of(&self, param: ParamId) -> Scope {
        if self.kernel.params[param].counts_arrivals() { Scope::Gpu } else { Scope::Sys }
    }

    /// Raises a word for each active thread.
    pub(super) fn signal(
        &self,
        param: ParamId,
        rank: Option<(FragId, u32)>,
        at: &Vector,
        add: u32,
        loc: LocId,
    ) -> Result<(), EmuError> {
        for t in (0..self.threads).filter(|&t| self.is_active(t)) {
            let rank = match rank {
                Some((frag, element)) => {
                    Some(i64::from(self.code(frag, element, t, loc)? as u32 as i32))
                }
                None => None,
            };
            let start = self.start(at, t, loc)?;
            if let Some(recording) = self.recording() {
                let place = u64::try_from(start).unwrap_or(0);
                let peer = rank.map_or(recording, |rank| recording.of_rank(rank));
                let bytes = self.bytes_of(&peer, param, place, 1);
                let strength = Strength::Release(self.scope_of(param));
                recording.update(t, bytes, strength, Returns::Nothing, self.span(loc));
            }
            let raised = self.view.signal((param, rank), start, add, self.span(loc));
            raised.map_err(|error| error.thread(t))?;
        }
        Ok(())
    }

    /// Waits for a word for each active thread.
    pub(super) fn wait_for(
        &self,
        param: ParamId,
        at: &Vector,
        until: FragId,
        loc: LocId,
    ) -> Result<(), EmuError> {
        for t in (0..self.threads).filter(|&t| self.is_active(t)) {
            let until = self.code(until, 0, t, loc)? as u32;
            let start = self.start(at, t, loc)?;
            let reached = self.view.wait_for(param, start, until, self.span(loc));
            reached.map_err(|error| error.thread(t))?;
            if let Some(recording) = self.recording() {
                let bytes = self.bytes_of(&recording, param, u64::try_from(start).unwrap_or(0), 1);
                recording.acquire(t, bytes, self.scope_of(param), self.span(loc));
            }
        }
        Ok(())
    }
}
