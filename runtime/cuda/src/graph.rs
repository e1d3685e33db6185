//! Work that is written down once and started again and again.

use std::sync::Arc;

use kernel_abi::DType;

use crate::coverage::Coverage;
use crate::device::Device;
use crate::error::RuntimeError;
use crate::ffi::{CaptureHandle, DeviceMemory, GraphHandle, Kept, PinnedMemory};
use crate::kernel::Kernel;
use crate::launch::{Given, Value, arguments};
use crate::memory::Buffer;
use crate::stream::{Stream, rows_of};
use crate::watchdog::Progress;

/// How a kernel starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// When its predecessor is over.
    After,
    /// Before its predecessor is over, where both are kernels and it is made for that.
    Early,
}

/// Copies of numbers that tell the host how far a graph has come.
#[derive(Debug, Clone)]
struct Marks {
    /// The numbers from 0 on.
    numbers: Arc<DeviceMemory>,
    /// Its first word is the last number that was reached.
    reached: Arc<PinnedMemory>,
    most: u32,
}

/// Writes down what a graph shall do.
#[derive(Debug)]
pub struct Recorder<'s> {
    stream: &'s Stream,
    capture: CaptureHandle<'s>,
    kept: Vec<Kept>,
    progress: Progress,
    marks: Option<Marks>,
    launches: Coverage,
    follows_kernel: bool,
}

/// Prepares marks: at most as many as given.
#[derive(Debug, Clone)]
pub struct MarkTable(Marks);

impl MarkTable {
    /// A table for a graph with at most `most` marks.
    ///
    /// # Errors
    /// There is too little memory, or the device was lost.
    pub fn new(stream: &Stream, most: u32) -> Result<MarkTable, RuntimeError> {
        let device: &Device = stream.device();
        let numbers = Buffer::new(device, "marks", DType::U32, u64::from(most) + 1)?;
        let bytes: Vec<u8> = (0..=most).flat_map(u32::to_le_bytes).collect();
        stream.write(&numbers, &bytes)?;
        stream.finish(|| vec!["copy to `marks`".to_owned()])?;
        let reached = Arc::new(device.called(PinnedMemory::new(device.context()?, 4))?);
        Ok(MarkTable(Marks { numbers: numbers.memory().clone(), reached, most }))
    }
}

impl<'s> Recorder<'s> {
    pub(crate) fn new(stream: &'s Stream, capture: CaptureHandle<'s>) -> Recorder<'s> {
        Recorder {
            stream,
            capture,
            kept: Vec::new(),
            progress: Progress::default(),
            marks: None,
            launches: Coverage::default(),
            follows_kernel: false,
        }
    }

    /// Uses a table for the marks that follow; without one a mark is nothing.
    pub fn set_marks(&mut self, table: &MarkTable) {
        self.marks = Some(table.0.clone());
        self.kept.push(Kept::Memory(table.0.numbers.clone()));
        self.kept.push(Kept::Pinned(table.0.reached.clone()));
    }

    /// Launches a kernel; `node` names it in messages.
    ///
    /// # Errors
    /// The arguments do not fit the kernel, or the driver does not take it.
    pub fn launch(
        &mut self,
        node: &str,
        kernel: &Kernel,
        given: &[Given<'_>],
        begin: Begin,
    ) -> Result<(), RuntimeError> {
        let arguments = arguments(kernel.name(), kernel.signature(), given)?;
        let early = begin == Begin::Early && self.follows_kernel && kernel.signature().starts_early;
        self.stream.start_kernel(kernel, &arguments, early)?;
        self.kept.push(Kept::Function(kernel.function().clone()));
        for (_, value) in given {
            match value {
                Value::Buffer(buffer) | Value::Ranks(buffer) => {
                    self.kept.push(Kept::Memory(buffer.memory().clone()));
                }
                Value::Scalar(_) => {}
            }
        }
        self.progress.node(format!("{node} ({})", kernel.name()));
        self.launches.count(kernel.name(), 1);
        self.follows_kernel = true;
        Ok(())
    }

    /// Sets every byte of a buffer.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn fill(&mut self, node: &str, buffer: &Buffer, byte: u8) -> Result<(), RuntimeError> {
        if buffer.bytes() == 0 {
            return Ok(());
        }
        let handle = self.stream.handle();
        // Words are set faster than bytes.
        let filled = if buffer.bytes().is_multiple_of(4) && buffer.offset().is_multiple_of(4) {
            let words = buffer.bytes() / 4;
            let word = u32::from_ne_bytes([byte; 4]);
            handle.fill_words(buffer.memory(), buffer.offset(), words, word)
        } else {
            handle.fill(buffer.memory(), buffer.offset(), buffer.bytes(), byte)
        };
        self.stream.device().called(filled)?;
        self.other(node, &[buffer]);
        Ok(())
    }

    /// Copies bytes between buffers; the ranges are inside of them and do not overlap.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn copy(
        &mut self,
        node: &str,
        from: (&Buffer, usize),
        to: (&Buffer, usize),
        len: usize,
    ) -> Result<(), RuntimeError> {
        if len == 0 {
            return Ok(());
        }
        self.stream.copy_bytes(from, to, len)?;
        self.other(node, &[from.0, to.0]);
        Ok(())
    }

    /// Copies `rows` rows of `width` bytes: from and to an offset, every so many bytes.
    ///
    /// # Errors
    /// The rows overlap or are not inside of the buffers, or the driver does not take it.
    pub fn copy_rows(
        &mut self,
        node: &str,
        from: (&Buffer, usize, usize),
        to: (&Buffer, usize, usize),
        width: usize,
        rows: usize,
    ) -> Result<(), RuntimeError> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        let source = rows_of(from.0, (from.1, from.2), width, rows)?;
        let target = rows_of(to.0, (to.1, to.2), width, rows)?;
        let copied = self.stream.handle().copy_rows(source, target, width, rows);
        self.stream.device().called(copied)?;
        self.other(node, &[from.0, to.0]);
        Ok(())
    }

    /// Lets the host know that the graph has come here.
    ///
    /// # Errors
    /// The driver does not take it.
    pub fn mark(&mut self) -> Result<(), RuntimeError> {
        let Some(marks) = self.marks.clone() else {
            return Ok(());
        };
        let number = self.progress.mark();
        let at = number.min(marks.most) as usize * 4;
        let copied = self.stream.handle().copy_out(&marks.numbers, at, &marks.reached, 0, 4);
        self.stream.device().called(copied)?;
        self.follows_kernel = false;
        Ok(())
    }

    fn other(&mut self, node: &str, buffers: &[&Buffer]) {
        self.kept.extend(buffers.iter().map(|buffer| Kept::Memory(buffer.memory().clone())));
        self.progress.node(node);
        self.follows_kernel = false;
    }

    pub(crate) fn finish(self) -> Result<Graph, RuntimeError> {
        let handle = self.stream.device().called(self.capture.finish(self.kept))?;
        tracing::debug!(nodes = handle.nodes(), "made a graph");
        Ok(Graph {
            handle,
            progress: self.progress,
            reached: self.marks.map(|marks| marks.reached),
            launches: self.launches,
        })
    }
}

/// Work that can be started again and again.
#[derive(Debug)]
pub struct Graph {
    handle: GraphHandle,
    progress: Progress,
    reached: Option<Arc<PinnedMemory>>,
    launches: Coverage,
}

impl Graph {
    /// Number of nodes that the driver made of it.
    pub fn nodes(&self) -> usize {
        self.handle.nodes()
    }

    /// Launches of each kernel at each start.
    pub fn launches(&self) -> &Coverage {
        &self.launches
    }

    /// What may be running now.
    pub fn running(&self) -> Vec<String> {
        let reached = self.reached.as_ref().map_or(0, |memory| memory.first_word());
        self.progress.running(reached)
    }

    /// Before a start the last number is that of no mark.
    pub(crate) fn restart_marks(&self) {
        if let Some(reached) = &self.reached {
            reached.clear_first_word();
        }
    }

    pub(crate) fn handle(&self) -> &GraphHandle {
        &self.handle
    }
}
