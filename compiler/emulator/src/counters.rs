//! What a run reports besides its memory.

use kernel_abi::trace::{Record, Records};

/// What a run reports besides its memory. Counts are those of the level that ran: the kernel level counts
/// each element of a tile once, the device level each replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Output of `printf`, ordered by CTA (x fastest) and by time within one.
    pub printed: Vec<Printed>,
    /// Events that were written down, ordered as the lines are.
    pub events: Vec<Event>,
    /// Bytes that loads took from buffers.
    pub bytes_read: u64,
    /// Bytes that stores wrote to buffers.
    pub bytes_written: u64,
    /// Floating-point operations: 2 for a fused product and sum, 1 for any other element-wise
    /// operation or step of a reduction.
    pub flops: u64,
    /// Statements executed, over all CTAs.
    pub steps: u64,
}

/// One line of `printf`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// The CTA that printed.
    pub cta: [u32; 3],
    /// The text.
    pub text: String,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The CTA.
    pub cta: [u32; 3],
    /// The role, by number.
    pub role: Option<u32>,
    /// Place in the list of events of the kernel.
    pub event: u32,
    /// Statements that the CTA, or the role in it, had run.
    pub step: u64,
}

impl Trace {
    /// The events as a launch on a device has them, of a kernel with this grid and room for so many records of each CTA
    /// and role; the clock counts statements too.
    pub fn records(&self, grid: [u32; 3], room: u32) -> Records {
        let record = |event: &Event| {
            let [x, y, z] = event.cta;
            let cta = x + grid[0] * (y + grid[1] * z);
            let (time, clock) = (event.step, event.step);
            Record { event: event.event, role: event.role, cta, sm: 0, time, clock }
        };
        Records::new(self.events.iter().map(record).collect(), room)
    }

    /// Appends what another CTA reports.
    pub(crate) fn append(&mut self, mut other: Trace) {
        self.printed.append(&mut other.printed);
        self.events.append(&mut other.events);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.flops += other.flops;
        self.steps += other.steps;
    }
}
