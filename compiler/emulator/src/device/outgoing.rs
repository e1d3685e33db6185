//! Copies out of shared memory at device level: runs and boxes, by the first thread of a role or of the CTA.

use kernel_abi::{DType, numeric};
use kernel_ir::device::{Address, LocId, Piece, Place};
use kernel_ir::kernel::{MapId, ParamId, TensorMap};
use kernel_ir::ops::Elements;
use kernel_memory_model::event::{Proxy, Way};

use super::Machine;
use super::copies::vector;
use super::record::joined;
use crate::departures::{Landing, changed};
use crate::error::{EmuError, ErrorKind};
use crate::record::Noted;
use crate::roles::Late;

/// What a copy moves.
pub(super) struct Cargo {
    /// Pieces of shared memory, with what would have been read when the copy started.
    pieces: Vec<(i64, Vec<u8>)>,
    elements: Elements,
    /// Its reads and its writes, for the recorder.
    noted: [Noted; 2],
}

impl Machine<'_> {
    pub(super) fn copy_out(
        &mut self,
        source: &Place,
        dest: &Place,
        pieces: &[Piece],
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (Place::Shared { base, dtype }, Place::Global(param)) = (source, dest) else {
            unreachable!("copies go from shared memory to a buffer")
        };
        let span = self.span(loc);
        for piece in pieces {
            let (len, size) = (piece.len as usize, i64::from(dtype.bytes().unwrap_or(1)));
            let at = i64::from(*base) + self.start(&vector(piece, piece.source), 0, loc)? * size;
            let to = self.start(&vector(piece, piece.dest), 0, loc)?;
            let bytes = numeric::bytes_of(*dtype, len);
            let aligned = self.view.inside(*param, to, len, span)? as i64 * size % 16 == 0;
            if !bytes.is_multiple_of(16) || at % 16 != 0 || !aligned {
                let message = format!("a bulk copy of {bytes} bytes from byte {at}");
                return Err(EmuError::new(ErrorKind::Misaligned, span, message));
            }
            self.depart(vec![(at, bytes)], *dtype, *param, vec![(to as u64, len, 0)], loc)?;
        }
        Ok(())
    }

    /// A box: what lies outside of its buffer is left out.
    pub(super) fn box_out(
        &mut self,
        map: MapId,
        at: &[i64],
        source: (&Place, Address),
        loc: LocId,
    ) -> Result<(), EmuError> {
        let map: &TensorMap = &self.kernel.maps[map];
        let (dtype, places) = self.box_places(map, at, source, loc)?;
        let mut runs = Vec::new();
        self.each_row(map, at, |start, count, at| {
            runs.push((start as u64, count, at));
            Ok(())
        })?;
        let pieces = places.into_iter().map(|at| (at, super::tensor::PIECE)).collect();
        self.depart(pieces, dtype, map.param, runs, loc)
    }

    fn depart(
        &mut self,
        pieces: Vec<(i64, usize)>,
        dtype: DType,
        param: ParamId,
        runs: Vec<(u64, usize, usize)>,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let span = self.span(loc);
        let late = Late::new(&self.clock, span);
        let by = self.by(0, span);
        let landing = Landing::new(param, runs);
        let noted = self.note_copy_out(&pieces, &landing, loc);
        let mut shared = self.member.own();
        let (mut read, mut all) = (Vec::with_capacity(pieces.len()), Vec::new());
        for (at, len) in pieces {
            let mut bytes = vec![0; len];
            shared.read_published(at, &mut bytes, by, "a copy")?;
            shared.read_late(at, len, by, &late);
            all.extend_from_slice(&bytes);
            read.push((at, bytes));
        }
        drop(shared);
        let count = all.len() * 8 / dtype.bits() as usize;
        let code = |i| numeric::read_element(dtype, &all, i).expect("the element lies inside");
        let elements = Elements::from_codes(dtype, (0..count).map(code));
        for &(start, count, _) in &landing.runs {
            self.view.note_copy(param, start, count, span)?;
        }
        self.departures.start(Cargo { pieces: read, elements, noted }, landing, late, span)
    }

    fn note_copy_out(&self, read: &[(i64, usize)], landing: &Landing, loc: LocId) -> [Noted; 2] {
        let Some(recording) = self.recording() else { return [Noted::new(), Noted::new()] };
        let own = self.number_of(self.member.rank());
        let pieces = joined(read.iter().copied());
        let reads: Vec<_> = pieces
            .into_iter()
            .map(|(at, len)| (recording.shared(own, at, len), Way::Read))
            .collect();
        let write = |&(start, count, _): &(u64, usize, usize)| {
            (self.bytes_of(&recording, landing.param, start, count), Way::Write)
        };
        let writes: Vec<_> = landing.runs.iter().map(write).collect();
        [reads, writes].map(|all| recording.begin(0..1, &all, Proxy::Async, self.span(loc)))
    }

    pub(super) fn settle_departures(
        &mut self,
        pending: u32,
        reads: bool,
        loc: LocId,
    ) -> Result<(), EmuError> {
        let at = self.span(loc);
        let mut settled = self.departures.settled(pending as usize);
        for departure in settled.iter_mut().flatten() {
            let Cargo { pieces, elements, noted } = &departure.copy;
            let Landing { param, runs } = &departure.landing;
            let span = departure.span;
            if !std::mem::replace(&mut departure.has_read, true) {
                let by = self.by(0, span);
                let mut shared = self.member.own();
                for (place, bytes) in pieces {
                    if !shared.holds(*place, bytes) {
                        return Err(changed(&format!("byte {place} of shared memory"), at, span));
                    }
                    // The thread has read it until now.
                    shared.read(*place, &mut vec![0; bytes.len()], by)?;
                }
                departure.late.commit(self.clock.stamp(at));
                if let Some(recording) = self.recording() {
                    recording.complete(0..1, &noted[0]);
                }
            }
            if !reads {
                self.view.begin_store(*param, span)?;
                for &(start, count, at) in runs {
                    self.view.store(*param, start, count, elements, at, span)?;
                }
                if let Some(recording) = self.recording() {
                    recording.complete(0..1, &noted[1]);
                }
            }
        }
        if reads {
            self.departures.put_back(settled);
        }
        Ok(())
    }
}
