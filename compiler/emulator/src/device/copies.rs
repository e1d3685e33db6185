//! Asynchronous copies: they arrive when their thread waits for them, and not before.

use std::collections::VecDeque;

use kernel_abi::{DType, numeric};
use kernel_ir::device::{Address, LocId, Piece, Place, Vector};
use kernel_ir::ops::Elements;
use kernel_memory_model::event::{Proxy, Way};

use super::Machine;
use crate::error::EmuError;
use crate::record::Noted;

/// Bytes on their way.
struct Arrival {
    thread: usize,
    at: i64,
    bytes: Vec<u8>,
    noted: Noted,
}

/// The copies of all threads.
#[derive(Default)]
pub(super) struct Copies {
    /// Of the group that is not closed yet.
    open: Vec<Arrival>,
    /// Closed groups, oldest first.
    groups: VecDeque<Vec<Arrival>>,
}

impl Copies {
    /// Closes the group of every thread.
    pub(super) fn close(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }
}

impl Machine<'_> {
    /// Starts copies.
    pub(super) fn copy_async(
        &mut self,
        source: &Place,
        dest: &Place,
        pieces: &[Piece],
        loc: LocId,
    ) -> Result<(), EmuError> {
        let (Place::Global(param), Place::Shared { base, dtype }) = (source, dest) else {
            unreachable!("copies go from a buffer to shared memory")
        };
        let (param, dtype, span) = (*param, *dtype, self.span(loc));
        let mut buffer = Elements::new(dtype);
        for piece in pieces {
            for t in 0..self.threads {
                if !self.is_active(t) || !self.holds(piece, t, loc)? {
                    continue;
                }
                let from = vector(piece, piece.source);
                let start = self.start(&from, t, loc)?;
                self.check_alignment(start, &from, dtype, t, loc)?;
                let count = match piece.present {
                    None => piece.len as usize,
                    Some((frag, element)) => {
                        let code = self.code(frag, element, t, loc)?;
                        let count = numeric::to_i64(DType::I32, code).unwrap_or(0);
                        count.clamp(0, i64::from(piece.len)) as usize
                    }
                };
                buffer.fill(0, piece.len as usize);
                let mut read = None;
                if count > 0 {
                    let view = &mut self.view;
                    view.check_read(param, span)?;
                    let start = view.inside(param, start, count, span).map_err(|e| e.thread(t))?;
                    view.load(param, start as u64, count, &mut buffer, 0, span)
                        .map_err(|e| e.thread(t))?;
                    read = Some(start as u64);
                }
                let to = vector(piece, piece.dest);
                let start = self.start(&to, t, loc)?;
                let at = self.shared_byte(*base, dtype, start, &to, t, loc)?;
                let mut bytes = vec![0; numeric::bytes_of(dtype, piece.len as usize)];
                for i in 0..piece.len as usize {
                    numeric::write_element(dtype, &mut bytes, i, buffer.get(i));
                }
                let noted = match self.recording() {
                    Some(recording) => {
                        let own = self.number_of(self.member.rank());
                        let written = (recording.shared(own, at, bytes.len()), Way::Write);
                        let read = self.bytes_of(&recording, param, read.unwrap_or(0), count);
                        let both = [written, (read, Way::Read)];
                        let accesses = if count > 0 { &both[..] } else { &both[..1] };
                        recording.begin(t..t + 1, accesses, Proxy::Generic, span)
                    }
                    None => Noted::new(),
                };
                let by = self.by(t, span);
                self.member.own().begin_copy(at, bytes.len(), by)?;
                self.copies.open.push(Arrival { thread: t, at, bytes, noted });
            }
        }
        Ok(())
    }

    /// Lets all but the `pending` youngest groups arrive.
    pub(super) fn settle(&mut self, pending: usize, loc: LocId) -> Result<(), EmuError> {
        let span = self.span(loc);
        while self.copies.groups.len() > pending {
            for arrival in self.copies.groups.pop_front().into_iter().flatten() {
                let by = self.by(arrival.thread, span);
                self.member.own().write(arrival.at, &arrival.bytes, by)?;
                if let Some(recording) = self.recording() {
                    let thread = arrival.thread;
                    recording.complete(thread..thread + 1, &arrival.noted);
                }
            }
        }
        Ok(())
    }

    fn holds(&self, piece: &Piece, t: usize, loc: LocId) -> Result<bool, EmuError> {
        match piece.predicate {
            None => Ok(true),
            Some((frag, element)) => Ok(self.code(frag, element, t, loc)? != 0),
        }
    }
}

/// One side of a piece.
pub(super) fn vector(piece: &Piece, address: Address) -> Vector {
    let Address { offset, constant } = address;
    Vector { first: 0, len: piece.len, offset, constant, predicate: None }
}
