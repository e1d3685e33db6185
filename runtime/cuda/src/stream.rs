//! Queues of work on a device.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::coverage::Coverage;
use crate::device::Device;
use crate::error::RuntimeError;
use crate::ffi::{DriverError, EventHandle, PinnedMemory, Rows, Start, StreamHandle};
use crate::graph::{Graph, Recorder};
use crate::kernel::Kernel;
use crate::launch::{Arguments, Given, arguments};
use crate::memory::{Buffer, POISON};
use crate::watchdog::{self, DEFAULT_LIMIT, SystemClock};

/// Bytes of each half of the memory through which the host's bytes go.
const HALF: usize = 16 << 20;

/// A mark in the work of a stream that keeps its time.
#[derive(Debug)]
pub struct Event {
    device: Device,
    handle: EventHandle,
}

impl Event {
    /// A mark that is nowhere yet.
    ///
    /// # Errors
    /// The device was lost.
    pub fn new(device: &Device) -> Result<Event, RuntimeError> {
        let handle = device.called(EventHandle::new(device.context()?))?;
        Ok(Event { device: device.clone(), handle })
    }

    /// Whether the work before it has ended.
    ///
    /// # Errors
    /// The device was lost.
    pub fn is_done(&self) -> Result<bool, RuntimeError> {
        self.device.context()?;
        self.device.called(self.handle.is_done())
    }

    /// Microseconds from an earlier mark to this one; both must be done.
    ///
    /// # Errors
    /// One of them is not done.
    pub fn microseconds_since(&self, earlier: &Event) -> Result<f64, RuntimeError> {
        self.device.context()?;
        let milliseconds = self.device.called(self.handle.milliseconds_since(&earlier.handle))?;
        Ok(f64::from(milliseconds) * 1000.0)
    }

    pub(crate) fn handle(&self) -> &EventHandle {
        &self.handle
    }
}

/// What a copy may still do with a half of the staging memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nothing.
    Free,
    /// It uses it until the work before the mark is done.
    UntilMark,
    /// It uses it, and no mark says until when: until all work is done.
    UntilIdle,
}

/// Half of the memory through which the host's bytes go, and whether a copy still uses it.
#[derive(Debug)]
struct Half {
    memory: PinnedMemory,
    free: EventHandle,
    used: Use,
}

/// The host fills one half while the device reads the other.
#[derive(Debug)]
struct Staging {
    halves: [Half; 2],
    next: usize,
}

/// A queue of work. What is put into it runs in order; every wait has an end.
#[derive(Debug)]
pub struct Stream {
    device: Device,
    handle: StreamHandle,
    staging: Mutex<Staging>,
    coverage: Mutex<Coverage>,
    limit: Duration,
}

impl Stream {
    /// An empty queue.
    ///
    /// # Errors
    /// There is too little memory for the staging of copies, or the device was lost.
    pub fn new(device: &Device) -> Result<Stream, RuntimeError> {
        let context = device.context()?;
        let half = || -> Result<Half, RuntimeError> {
            let memory = device.called(PinnedMemory::new(context, HALF))?;
            let free = device.called(EventHandle::new(context))?;
            Ok(Half { memory, free, used: Use::Free })
        };
        let staging = Mutex::new(Staging { halves: [half()?, half()?], next: 0 });
        Ok(Stream {
            device: device.clone(),
            handle: device.called(StreamHandle::new(context))?,
            staging,
            coverage: Mutex::new(Coverage::default()),
            limit: DEFAULT_LIMIT,
        })
    }

    /// Sets how long a wait may take; [`DEFAULT_LIMIT`] without.
    pub fn set_limit(&mut self, limit: Duration) {
        self.limit = limit;
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Launches of every kernel so far.
    pub fn coverage(&self) -> Coverage {
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the content of a buffer. The bytes may be changed afterwards; the copy runs in the order of the queue.
    ///
    /// # Errors
    /// They are more or fewer than the buffer has, or the device was lost or hangs.
    pub fn write(&self, buffer: &Buffer, bytes: &[u8]) -> Result<(), RuntimeError> {
        if bytes.len() != buffer.bytes() {
            let (wanted, found) = (buffer.bytes() as u64, bytes.len() as u64);
            return Err(RuntimeError::Size { buffer: buffer.name().to_owned(), wanted, found });
        }
        self.device.context()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = buffer.offset();
        for chunk in bytes.chunks(HALF) {
            let next = staging.next;
            staging.next = 1 - next;
            let half = &mut staging.halves[next];
            self.wait_half(half, || vec![format!("copy to `{}`", buffer.name())])?;
            half.memory.write(0, chunk);
            half.used = Use::UntilIdle;
            let copied = self.handle.copy_in(&half.memory, 0, buffer.memory(), at, chunk.len());
            self.device.called(copied)?;
            self.device.called(self.handle.record(&half.free))?;
            half.used = Use::UntilMark;
            at += chunk.len();
        }
        Ok(())
    }

    /// The content of a buffer after the work so far.
    ///
    /// # Errors
    /// The device was lost or hangs.
    pub fn read(&self, buffer: &Buffer) -> Result<Vec<u8>, RuntimeError> {
        self.device.context()?;
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::with_capacity(buffer.bytes());
        let next = staging.next;
        let half = &mut staging.halves[next];
        let name = || vec![format!("copy of `{}`", buffer.name())];
        self.wait_half(half, name)?;
        while bytes.len() < buffer.bytes() {
            let len = (buffer.bytes() - bytes.len()).min(HALF);
            let at = buffer.offset() + bytes.len();
            half.used = Use::UntilIdle;
            let copied = self.handle.copy_out(buffer.memory(), at, &half.memory, 0, len);
            self.device.called(copied)?;
            self.device.called(self.handle.record(&half.free))?;
            half.used = Use::UntilMark;
            self.wait_half(half, name)?;
            half.memory.read(0, len, &mut bytes);
        }
        Ok(bytes)
    }

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    /// The device was lost.
    pub fn fill(&self, buffer: &Buffer, byte: u8) -> Result<(), RuntimeError> {
        self.device.context()?;
        let filled = self.handle.fill(buffer.memory(), buffer.offset(), buffer.bytes(), byte);
        self.device.called(filled)
    }

    /// Makes every element of a buffer poison: what reads it computes NaN.
    ///
    /// # Errors
    /// The device was lost.
    pub fn poison(&self, buffer: &Buffer) -> Result<(), RuntimeError> {
        self.fill(buffer, POISON)
    }

    /// Copies `len` bytes between buffers that do not overlap.
    ///
    /// # Errors
    /// The ranges are not inside of the buffers, or the device was lost.
    pub fn copy_bytes(
        &self,
        from: (&Buffer, usize),
        to: (&Buffer, usize),
        len: usize,
    ) -> Result<(), RuntimeError> {
        self.device.context()?;
        for (buffer, start) in [from, to] {
            if start.checked_add(len).is_none_or(|end| end > buffer.bytes()) {
                let (wanted, found) = (buffer.bytes() as u64, start.saturating_add(len) as u64);
                return Err(RuntimeError::Size { buffer: buffer.name().to_owned(), wanted, found });
            }
        }
        let (source, target) = (from.0.offset() + from.1, to.0.offset() + to.1);
        let copied = self.handle.copy(from.0.memory(), source, to.0.memory(), target, len);
        self.device.called(copied)
    }

    /// Launches a kernel whose predecessor is over when it starts.
    ///
    /// # Errors
    /// The arguments do not fit the kernel, or the device was lost.
    pub fn launch(&self, kernel: &Kernel, given: &[Given<'_>]) -> Result<(), RuntimeError> {
        self.launch_with(kernel, given, false)
    }

    /// Launches a kernel that may start before its predecessor is over, where the kernel is made for that; the
    /// predecessor must be a kernel.
    ///
    /// # Errors
    /// The arguments do not fit the kernel, or the device was lost.
    pub fn launch_early(&self, kernel: &Kernel, given: &[Given<'_>]) -> Result<(), RuntimeError> {
        self.launch_with(kernel, given, kernel.signature().starts_early)
    }

    fn launch_with(
        &self,
        kernel: &Kernel,
        given: &[Given<'_>],
        early: bool,
    ) -> Result<(), RuntimeError> {
        self.device.context()?;
        let arguments = arguments(kernel.name(), kernel.signature(), given)?;
        self.start_kernel(kernel, &arguments, early)?;
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).count(kernel.name(), 1);
        Ok(())
    }

    pub(crate) fn start_kernel(
        &self,
        kernel: &Kernel,
        arguments: &Arguments,
        early: bool,
    ) -> Result<(), RuntimeError> {
        let shape = kernel.shape();
        let start = Start {
            grid: shape.grid,
            threads: shape.threads,
            dynamic_shared_bytes: shape.dynamic_shared_bytes,
            cluster: shape.cluster,
            early,
        };
        let started = kernel.function().start(&self.handle, &start, arguments).map_err(|error| {
            match RuntimeError::from(error) {
                RuntimeError::Driver(error) => RuntimeError::Shape {
                    kernel: kernel.name().to_owned(),
                    fault: error.to_string(),
                },
                RuntimeError::Lost { error, .. } => {
                    RuntimeError::Lost { error, kernels: vec![kernel.name().to_owned()] }
                }
                other => other,
            }
        });
        self.device.noticed(started)
    }

    /// Writes work down instead of doing it.
    ///
    /// # Errors
    /// What `work` fails with, or the driver does not make a graph of it.
    pub fn capture(
        &self,
        work: impl FnOnce(&mut Recorder<'_>) -> Result<(), RuntimeError>,
    ) -> Result<Graph, RuntimeError> {
        self.device.context()?;
        // Where `work` fails or panics the capture ends with the recorder, and nothing is made of it.
        let mut recorder = Recorder::new(self, self.device.called(self.handle.begin_capture())?);
        work(&mut recorder)?;
        recorder.finish()
    }

    /// Starts a graph.
    ///
    /// # Errors
    /// The device was lost.
    pub fn start(&self, graph: &Graph) -> Result<(), RuntimeError> {
        self.device.context()?;
        graph.restart_marks();
        let started = self.handle.start(graph.handle());
        self.device.called(started)?;
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).add(graph.launches());
        Ok(())
    }

    /// Sets a mark behind the work so far.
    ///
    /// # Errors
    /// The device was lost.
    pub fn record(&self, event: &Event) -> Result<(), RuntimeError> {
        self.device.context()?;
        self.device.called(self.handle.record(event.handle()))
    }

    /// Waits until all work is done; `running` names what may be running if it is not.
    ///
    /// # Errors
    /// A kernel does not end in time, or the device was lost.
    pub fn finish(&self, running: impl Fn() -> Vec<String>) -> Result<(), RuntimeError> {
        self.device.context()?;
        self.wait(|| self.handle.is_idle(), running)
    }

    /// Waits until the work before a mark is done.
    ///
    /// # Errors
    /// A kernel does not end in time, or the device was lost.
    pub fn finish_to(
        &self,
        event: &Event,
        running: impl Fn() -> Vec<String>,
    ) -> Result<(), RuntimeError> {
        self.device.context()?;
        self.wait_handle(event.handle(), running)
    }

    pub(crate) fn handle(&self) -> &StreamHandle {
        &self.handle
    }

    fn wait_handle(
        &self,
        event: &EventHandle,
        running: impl Fn() -> Vec<String>,
    ) -> Result<(), RuntimeError> {
        self.wait(|| event.is_done(), running)
    }

    /// Waits until no copy uses a half of the staging memory.
    fn wait_half(
        &self,
        half: &mut Half,
        running: impl Fn() -> Vec<String>,
    ) -> Result<(), RuntimeError> {
        match half.used {
            Use::Free => {}
            Use::UntilMark => self.wait_handle(&half.free, running)?,
            Use::UntilIdle => self.wait(|| self.handle.is_idle(), running)?,
        }
        half.used = Use::Free;
        Ok(())
    }

    fn wait(
        &self,
        is_done: impl FnMut() -> Result<bool, DriverError>,
        running: impl Fn() -> Vec<String>,
    ) -> Result<(), RuntimeError> {
        let waited = watchdog::wait(&SystemClock::new(), self.limit, is_done, running);
        self.device.noticed(waited)
    }
}

/// `rows` rows of `width` bytes in a buffer: from an offset, every `pitch` bytes.
///
/// # Errors
/// They overlap, or are not inside of the buffer: what lies behind it in the same memory belongs to others.
pub(crate) fn rows_of(
    buffer: &Buffer,
    (offset, pitch): (usize, usize),
    width: usize,
    rows: usize,
) -> Result<Rows<'_>, RuntimeError> {
    let name = buffer.name();
    if pitch < width {
        let what = format!("rows of {width} bytes every {pitch} bytes of `{name}`");
        return Err(RuntimeError::Unsupported(what));
    }
    let end = rows_end((offset, pitch), width, rows);
    if end > buffer.bytes() as u64 {
        let wanted = buffer.bytes() as u64;
        return Err(RuntimeError::Size { buffer: name.to_owned(), wanted, found: end });
    }
    Ok(Rows { memory: buffer.memory(), offset: buffer.offset() + offset, pitch })
}

/// The byte behind the last of some rows.
fn rows_end((offset, pitch): (usize, usize), width: usize, rows: usize) -> u64 {
    let [offset, pitch, width, rows] = [offset, pitch, width, rows].map(|n| n as u64);
    match rows.checked_sub(1) {
        None => offset,
        Some(before) => {
            let last = before.saturating_mul(pitch).saturating_add(offset);
            last.saturating_add(width)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_behind_the_last_one() {
        assert_eq!(rows_end((16, 32), 8, 3), 16 + 2 * 32 + 8);
        assert_eq!(rows_end((16, 32), 8, 1), 24);
        assert_eq!(rows_end((16, 32), 8, 0), 16);
        assert_eq!(rows_end((16, usize::MAX), 8, 3), u64::MAX);
    }
}
