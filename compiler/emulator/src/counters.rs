//! What a run reports besides its memory.

/// What a run reports besides its memory. Counts are those of the level that ran: the kernel level counts
/// each element of a tile once, the device level each replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// Output of `printf`, ordered by CTA (x fastest) and by time within one.
    pub printed: Vec<Printed>,
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

impl Trace {
    /// Appends what another CTA reports.
    pub(crate) fn append(&mut self, mut other: Trace) {
        self.printed.append(&mut other.printed);
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.flops += other.flops;
        self.steps += other.steps;
    }
}
