//! A CTA of a launch that others overlap.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_dsl::source::Span;
use kernel_ir::kernel::ParamId;

use super::touches::{Does, Part, Site};
use super::{Begun, Stream};
use crate::error::EmuError;
use crate::memory::Memory;
use crate::roles::{Clock, Stamp};
use crate::turns::{Awaited, Seat};

/// What threads of a CTA have done.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    /// When threads waited.
    waits: Vec<Stamp>,
    has_let_go: bool,
}

/// A CTA, or a role of it, at work in a stream.
#[derive(Clone, Copy)]
pub(crate) struct Passenger<'m> {
    pub(super) stream: &'m Stream<'m>,
    pub(super) begun: &'m Begun,
    pub(super) seat: &'m Seat<'m>,
    pub(super) deeds: &'m Mutex<Deeds>,
    pub(super) launch: usize,
    pub(super) cta: [u32; 3],
}

impl<'m> Passenger<'m> {
    /// The same at another place: a role of the CTA.
    pub(crate) fn at<'s>(self, seat: &'s Seat<'s>) -> Passenger<'s>
    where
        'm: 's,
    {
        Passenger { seat, ..self }
    }

    fn deeds(&self) -> MutexGuard<'m, Deeds> {
        self.deeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `grid_wait`: what is known then of memory.
    pub(crate) fn wait(&self, clock: &Clock, span: Span) -> Result<&'m Memory, EmuError> {
        let (launch, [x, y, z]) = (self.launch, self.cta);
        let has_ended = || self.stream.has_ended_before(launch);
        if !has_ended() {
            let awaited = || {
                let before = launch - 1;
                let what = format!(
                    "CTA ({x}, {y}, {z}) of launch {launch} waits for launch {before} to end"
                );
                Awaited { what, span }
            };
            self.seat.wait(has_ended, awaited)?;
        }
        self.deeds().waits.push(clock.stamp(span));
        self.stream.lock().launches[launch].wait();
        Ok(self.begun.after_wait())
    }

    /// The memory after a wait that the threads with this clock know of.
    pub(crate) fn known_wait(&self, clock: &Clock) -> Option<&'m Memory> {
        let is_known = self.deeds().waits.iter().any(|&stamp| clock.has_seen(stamp));
        is_known.then(|| self.begun.after_wait())
    }

    /// `grid_launch`: as far as this CTA goes, the next launch may begin.
    pub(crate) fn let_go(&self, has_waited: bool, span: Span) -> Result<(), EmuError> {
        if !std::mem::replace(&mut self.deeds().has_let_go, true) {
            self.stream.lock().launches[self.launch].let_go(has_waited);
        }
        self.seat.pass(span)
    }

    /// Notes an access.
    pub(crate) fn note(
        &self,
        (does, has_waited): (Does, bool),
        param: ParamId,
        elements: std::ops::Range<usize>,
        span: Span,
    ) -> Result<(), EmuError> {
        let part = Part { launch: self.launch, has_waited };
        self.stream.note((part, does), elements, Site { cta: self.cta, param, span })
    }

    /// The error of a read of what nothing has written yet, where a launch that may still run may write it.
    pub(crate) fn too_early(
        &self,
        has_waited: bool,
        param: ParamId,
        index: usize,
        span: Span,
    ) -> Option<EmuError> {
        let part = Part { launch: self.launch, has_waited };
        self.stream.too_early(part, index, Site { cta: self.cta, param, span })
    }

    /// The CTA has ended.
    pub(super) fn end(&self) {
        let deeds = self.deeds();
        if !deeds.has_let_go {
            self.stream.lock().launches[self.launch].let_go(!deeds.waits.is_empty());
        }
    }
}
