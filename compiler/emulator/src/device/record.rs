//! What a machine tells the recorder of a run, where there is one.

use std::ops::Range;

use kernel_ir::device::{DeviceKernel, LocId};
use kernel_ir::kernel::ParamId;
use kernel_memory_model::event::{EventId, Proxy, Returns, Scope, Strength, Way};

use super::{Machine, run_device_recorded};
use crate::counters::Trace;
use crate::error::EmuError;
use crate::memory::Memory;
use crate::options::Options;
use crate::pipes::Place;
use crate::record::{Bytes, MULTICAST, Noted, Record, Recorder, Recording, Slot};

/// Elements of a buffer: first ones and numbers.
pub(super) type Runs = (ParamId, Vec<(u64, usize)>);

/// Runs a device kernel on `memories`, one for each rank, `launches` times in a row, and keeps what happens for the
/// memory model; CTAs that have nothing to do with each other run one after the other. Where the run fails, with the
/// errors of [`run_device`](crate::run_device), the record has what happened until then, the access that failed included.
pub fn record_device(
    kernel: &DeviceKernel,
    memories: &mut [Memory],
    launches: usize,
    options: &Options,
) -> (Result<Vec<Trace>, EmuError>, Record) {
    let (recorder, options) = (Recorder::default(), Options { parallel: false, ..*options });
    let traces = run_device_recorded(kernel, memories, launches, &options, Some(&recorder));
    (traces, recorder.into_record())
}

impl<'k> Machine<'k> {
    /// The recorder, as this CTA or role is known to it.
    pub(super) fn recording(&self) -> Option<Recording<'k>> {
        let recorder = self.view.launched.recorder?;
        let launch = &self.kernel.launch;
        let [x, y, _] = launch.grid;
        let number = |[i, j, k]: [u32; 3]| i + x * (j + y * k);
        let cluster = (launch.cluster_size() > 1).then(|| number(self.member.position(0)));
        let first_thread = u32::try_from(self.first_thread).unwrap_or(u32::MAX);
        let (rank, cta) = (self.view.launched.rank(), number(self.cta));
        let launch = recorder.launch(rank, cta);
        Some(Recording { recorder, rank, launch, cta, cluster, first_thread })
    }

    /// The number of a CTA of the cluster in its grid.
    pub(super) fn number_of(&self, rank: usize) -> u32 {
        let [i, j, k] = self.member.position(rank);
        let [x, y, _] = self.kernel.launch.grid;
        i + x * (j + y * k)
    }

    /// The CTA starts: behind the launch ahead, unless it may start early.
    pub(super) fn note_start(&self) {
        let Some(recording) = self.recording() else { return };
        let Recording { recorder, rank, cta, .. } = recording;
        let recording = Recording { launch: recorder.start(rank, cta), ..recording };
        if !self.kernel.launch.pdl.is_consumer() {
            recording.after_launch_ahead(self.threads);
        }
    }

    /// The CTA waits for the launch ahead.
    pub(super) fn note_grid_wait(&self) {
        if let Some(recording) = self.recording() {
            recording.after_launch_ahead(self.threads);
        }
    }

    /// The CTA ends.
    pub(super) fn note_end(&self) {
        if let Some(recording) = self.recording() {
            recording.end(self.threads);
        }
    }

    /// All threads of the CTA or of the role meet.
    pub(super) fn note_meeting(&self) {
        if let Some(recording) = self.recording() {
            recording.meet(self.threads);
        }
    }

    /// They arrive at a meeting of the cluster, or go on after it.
    pub(super) fn note_cluster(&self, number: u32, arrives: bool) {
        if let Some(recording) = self.recording() {
            recording.meet_cluster(self.threads, number, arrives);
        }
    }

    /// Active threads fence for the device.
    pub(super) fn note_fence(&self) {
        if let Some(recording) = self.recording() {
            (0..self.threads)
                .filter(|&t| self.is_active(t))
                .for_each(|t| recording.fence(t, Scope::Gpu));
        }
    }

    /// All threads fence what they did from copies and products.
    pub(super) fn note_proxy_fence(&self) {
        if let Some(recording) = self.recording() {
            recording.fence_async(self.threads);
        }
    }

    /// A thread changes an element in one step; fences stand as operations of their own.
    pub(super) fn note_update(&self, t: usize, (param, start): (ParamId, i64), loc: LocId) {
        if let Some(recording) = self.recording() {
            let start = u64::try_from(start).unwrap_or(0);
            let bytes = self.bytes_of(&recording, param, start, 1);
            let strength = Strength::Relaxed(Scope::Gpu);
            recording.update(t, bytes, strength, Returns::Value, self.span(loc));
        }
    }

    /// A thread touches elements of a buffer of the own rank.
    pub(super) fn note_buffer(
        &self,
        t: usize,
        (param, start, count): (ParamId, usize, usize),
        way: Way,
        loc: LocId,
    ) {
        if let Some(recording) = self.recording() {
            let bytes = self.bytes_of(&recording, param, start as u64, count);
            recording.access(t, bytes, way, self.span(loc));
        }
    }

    pub(super) fn bytes_of(
        &self,
        recording: &Recording<'_>,
        param: ParamId,
        start: u64,
        count: usize,
    ) -> Bytes {
        recording.buffer(param, start, count, self.kernel.params[param].dtype.bits())
    }

    /// A thread touches elements of a buffer of all ranks at a multicast address.
    pub(super) fn note_multicast(
        &self,
        t: usize,
        (param, start, count): (ParamId, usize, usize),
        way: Way,
        loc: LocId,
    ) {
        let Some(recording) = self.recording() else { return };
        for rank in 0..self.kernel.launch.world.unwrap_or(1) {
            let of_rank = recording.of_rank(rank.into());
            let bytes = self.bytes_of(&of_rank, param, start as u64, count);
            recording.access(t, Bytes { mapping: MULTICAST, ..bytes }, way, self.span(loc));
        }
    }

    /// Active threads order what they do at different addresses of one memory, where the operation does that.
    pub(super) fn note_alias_fence(&self, is_there: bool) {
        if let (true, Some(recording)) = (is_there, self.recording()) {
            let active = (0..self.threads).filter(|&t| self.is_active(t));
            active.for_each(|t| recording.fence_alias(t));
        }
    }

    /// A thread touches bytes of shared memory of a CTA of the cluster.
    pub(super) fn note_shared(
        &self,
        t: usize,
        (owner, at, len): (usize, i64, usize),
        way: Way,
        loc: LocId,
    ) {
        if let Some(recording) = self.recording() {
            let bytes = recording.shared(self.number_of(owner), at, len);
            recording.access(t, bytes, way, self.span(loc));
        }
    }

    /// Threads start something that reads pieces of shared memory of a CTA of the cluster later.
    pub(super) fn note_reads(
        &self,
        (threads, owner): (Range<usize>, usize),
        pieces: impl Iterator<Item = (i64, usize)>,
        loc: LocId,
    ) -> Noted {
        let Some(recording) = self.recording() else { return Noted::new() };
        let own = self.number_of(owner);
        let accesses: Vec<(Bytes, Way)> = joined(pieces)
            .into_iter()
            .map(|(at, len)| (recording.shared(own, at, len), Way::Read))
            .collect();
        recording.begin(threads, &accesses, Proxy::Async, self.span(loc))
    }

    /// Threads arrive at a slot of CTAs of the cluster.
    pub(super) fn note_arrival(
        &self,
        place: Place,
        threads: usize,
        (arrivals, ctas): (u32, Range<usize>),
    ) {
        let Some(recording) = self.recording() else { return };
        for cta in ctas {
            recording.arrive(threads, self.noted_slot(cta, place), arrivals);
        }
    }

    /// What the first thread has started arrives at a slot when it is complete.
    pub(super) fn note_commit(&self, place: Place, everywhere: bool, noted: &[EventId]) {
        let Some(recording) = self.recording() else { return };
        for cta in self.member.targets(everywhere) {
            recording.arrive_when_complete(self.noted_slot(cta, place), noted);
        }
    }

    /// All threads have waited for rounds of a slot.
    pub(super) fn note_wait(&self, place: Place, rounds: u64) {
        if let Some(recording) = self.recording() {
            recording.wait(self.threads, self.noted_slot(self.member.rank(), place), rounds);
        }
    }

    /// Pieces go to shared memory of CTAs of the cluster, from a buffer by a copy or else from registers of all
    /// threads, and count at a slot of each.
    pub(super) fn note_fill(
        &self,
        ctas: Range<usize>,
        pieces: &[(i64, Vec<u8>)],
        source: Option<&Runs>,
        place: Place,
        loc: LocId,
    ) {
        let Some(recording) = self.recording() else { return };
        let (threads, proxy) = match source {
            Some(_) => (0..1, Proxy::Async),
            None => (0..self.threads, Proxy::Generic),
        };
        let bytes = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let reads = source.into_iter().flat_map(|(param, runs)| {
            let read = |&(start, count)| self.bytes_of(&recording, *param, start, count);
            runs.iter().map(read).collect::<Vec<_>>()
        });
        let reads: Vec<(Bytes, Way)> = reads.map(|read| (read, Way::Read)).collect();
        for cta in ctas {
            let written = joined(pieces.iter().map(|(at, bytes)| (*at, bytes.len())));
            let number = self.number_of(cta);
            let write = |(at, len)| (recording.shared(number, at, len), Way::Write);
            let all: Vec<(Bytes, Way)> =
                written.into_iter().map(write).chain(reads.iter().copied()).collect();
            let noted = recording.begin(threads.clone(), &all, proxy, self.span(loc));
            let counted = self.post().0.pipes.counts_in(cta, place);
            recording.count_bytes(self.noted_slot(counted, place), &noted, bytes);
        }
    }

    /// A slot of a barrier of a CTA of the cluster.
    pub(super) fn noted_slot(&self, owner: usize, place: Place) -> Slot {
        let declared = &self.barriers[place.barrier];
        let (arrivals, bytes) = (declared.arrivals, declared.bytes_awaited());
        let arrivals = if declared.is_prepaid() { 0 } else { arrivals };
        let cta = self.number_of(owner);
        Slot { cta, barrier: place.barrier, slot: place.slot, arrivals, bytes }
    }
}

/// Pieces, those that follow each other as one.
pub(super) fn joined(pieces: impl Iterator<Item = (i64, usize)>) -> Vec<(i64, usize)> {
    let mut all: Vec<(i64, usize)> = pieces.collect();
    all.sort_unstable();
    let mut runs: Vec<(i64, usize)> = Vec::new();
    for (at, len) in all {
        match runs.last_mut() {
            Some((first, so_far)) if first.saturating_add_unsigned(*so_far as u64) >= at => {
                let end = at.saturating_add_unsigned(len as u64).saturating_sub(*first);
                *so_far = (*so_far).max(usize::try_from(end).unwrap_or(0));
            }
            Some(_) | None => runs.push((at, len)),
        }
    }
    runs
}
