//! Shared memory of a CTA, with the last accesses to each byte.

use kernel_dsl::source::Span;

use crate::error::{EmuError, ErrorKind};

/// No thread, and more than one thread.
const NOBODY: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// A byte, and who touched it last.
#[derive(Clone, Copy)]
struct Cell {
    byte: u8,
    written: bool,
    write: Touch,
    read: Touch,
}

/// The last access of a kind.
#[derive(Clone, Copy)]
struct Touch {
    thread: u32,
    /// Barriers that had been passed.
    interval: u32,
    span: Span,
}

/// Shared memory of a CTA.
pub(super) struct Shared {
    cells: Vec<Cell>,
    interval: u32,
}

/// An access of one thread.
#[derive(Clone, Copy)]
pub(super) struct By {
    pub(super) thread: usize,
    pub(super) span: Span,
}

impl Shared {
    pub(super) fn new(bytes: u32) -> Shared {
        let never = Touch { thread: NOBODY, interval: 0, span: Span::default() };
        let cell = Cell { byte: 0, written: false, write: never, read: never };
        Shared { cells: vec![cell; bytes as usize], interval: 0 }
    }

    /// All threads meet.
    pub(super) fn barrier(&mut self) {
        self.interval += 1;
    }

    fn check_place(&self, at: i64, len: usize, by: By) -> Result<usize, EmuError> {
        let size = self.cells.len();
        let inside = usize::try_from(at).ok().filter(|&at| at + len <= size);
        inside.ok_or_else(|| {
            let message = format!("byte {at} of shared memory, which has {size}");
            EmuError::new(ErrorKind::OutOfBounds, by.span, message).thread(by.thread)
        })
    }

    fn race(by: By, byte: usize, other: Touch) -> EmuError {
        let message = format!(
            "threads touch byte {byte} of shared memory without a barrier between, and one of them writes"
        );
        let who = match other.thread {
            SEVERAL => "several threads read it here".into(),
            thread => format!("thread {thread} touches it here"),
        };
        EmuError::new(ErrorKind::SharedRace, by.span, message)
            .thread(by.thread)
            .other(other.span, who)
    }

    /// Reads bytes.
    pub(super) fn read(&mut self, at: i64, out: &mut [u8], by: By) -> Result<(), EmuError> {
        let at = self.check_place(at, out.len(), by)?;
        let (thread, interval) = (by.thread as u32, self.interval);
        for (i, out) in out.iter_mut().enumerate() {
            let cell = &mut self.cells[at + i];
            if !cell.written {
                let message =
                    format!("read of byte {} of shared memory, which nothing wrote", at + i);
                let error = EmuError::new(ErrorKind::Poison, by.span, message);
                return Err(error.thread(by.thread));
            }
            if cell.write.interval == interval && cell.write.thread != thread {
                return Err(Shared::race(by, at + i, cell.write));
            }
            let shared = cell.read.interval == interval
                && cell.read.thread != NOBODY
                && cell.read.thread != thread;
            let thread = if shared { SEVERAL } else { thread };
            cell.read = Touch { thread, interval, span: by.span };
            *out = cell.byte;
        }
        Ok(())
    }

    /// Bytes that a copy will fill: they hold nothing until it has arrived.
    pub(super) fn begin_copy(&mut self, at: i64, len: usize, by: By) -> Result<(), EmuError> {
        self.write(at, &vec![0; len], by)?;
        let at = self.check_place(at, len, by)?;
        for cell in &mut self.cells[at..at + len] {
            cell.written = false;
        }
        Ok(())
    }

    /// Writes bytes.
    pub(super) fn write(&mut self, at: i64, bytes: &[u8], by: By) -> Result<(), EmuError> {
        let at = self.check_place(at, bytes.len(), by)?;
        let (thread, interval) = (by.thread as u32, self.interval);
        for (i, &byte) in bytes.iter().enumerate() {
            let cell = &mut self.cells[at + i];
            for touch in [cell.write, cell.read] {
                let now = touch.thread != NOBODY && touch.interval == interval;
                if now && touch.thread != thread {
                    return Err(Shared::race(by, at + i, touch));
                }
            }
            cell.byte = byte;
            cell.written = true;
            cell.write = Touch { thread, interval, span: by.span };
        }
        Ok(())
    }
}
