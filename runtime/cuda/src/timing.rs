//! Times on a device: marks of the device around work, with its second-level cache cold where that is asked for.

use kernel_abi::DType;

use crate::error::RuntimeError;
use crate::graph::Graph;
use crate::memory::Buffer;
use crate::stream::{Event, Stream};

/// Runs before those that count.
const WARM_UP: usize = 3;

/// Bytes that a cold cache was filled with at least.
const FLUSH_BYTES: u64 = 256 << 20;

/// Times of several runs in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// Number of runs.
    pub runs: usize,
}

impl Times {
    /// A summary; nothing of nothing.
    pub fn of(mut times: Vec<f64>) -> Times {
        times.sort_unstable_by(f64::total_cmp);
        let runs = times.len();
        let at = |index: usize| times.get(index).copied().unwrap_or(0.0);
        let median = match runs % 2 {
            1 => at(runs / 2),
            _ => (at((runs / 2).saturating_sub(1)) + at(runs / 2)) / 2.0,
        };
        Times { median, least: at(0), greatest: at(runs.saturating_sub(1)), runs }
    }

    /// The same of each of `parts` equal parts.
    pub fn each_of(self, parts: usize) -> Times {
        let parts = parts.max(1) as f64;
        let (median, least, greatest) =
            (self.median / parts, self.least / parts, self.greatest / parts);
        Times { median, least, greatest, runs: self.runs }
    }
}

/// Memory that is written to push everything else out of the second-level cache.
#[derive(Debug)]
pub struct Flush(Buffer);

impl Flush {
    /// At least four times as much as the cache holds.
    ///
    /// # Errors
    /// There is too little memory.
    pub fn new(stream: &Stream) -> Result<Flush, RuntimeError> {
        let device = stream.device();
        let bytes = FLUSH_BYTES.max(4 * device.info().l2_bytes);
        Ok(Flush(Buffer::new(device, "flush", DType::U8, bytes)?))
    }

    /// What is written.
    pub fn buffer(&self) -> &Buffer {
        &self.0
    }

    /// Puts the flush into a queue.
    ///
    /// # Errors
    /// The device was lost.
    pub fn run(&self, stream: &Stream) -> Result<(), RuntimeError> {
        stream.fill(&self.0, 0)
    }
}

/// Times work that `work` puts into a queue, after a flush if there is one.
///
/// # Errors
/// The work fails, or does not end.
pub fn time(
    stream: &Stream,
    runs: usize,
    flush: Option<&Flush>,
    name: &str,
    mut work: impl FnMut() -> Result<(), RuntimeError>,
) -> Result<Times, RuntimeError> {
    let running = || vec![name.to_owned()];
    let (start, end) = (Event::new(stream.device())?, Event::new(stream.device())?);
    let mut times = Vec::with_capacity(runs);
    for run in 0..runs + WARM_UP {
        if let Some(flush) = flush {
            flush.run(stream)?;
        }
        stream.record(&start)?;
        work()?;
        stream.record(&end)?;
        stream.finish_to(&end, running)?;
        if run >= WARM_UP {
            times.push(end.microseconds_since(&start)?);
        }
    }
    Ok(Times::of(times))
}

/// Times the starts of a graph.
///
/// # Errors
/// A kernel of it does not end, or the device was lost.
pub fn time_graph(
    stream: &Stream,
    graph: &Graph,
    runs: usize,
    flush: Option<&Flush>,
    name: &str,
) -> Result<Times, RuntimeError> {
    time(stream, runs, flush, name, || stream.start(graph))
}

/// Bytes a second, read and written, of copies within the device of that many bytes.
///
/// # Errors
/// There is too little memory, or the device was lost.
pub fn copy_rate(stream: &Stream, bytes: u64, runs: usize) -> Result<f64, RuntimeError> {
    let device = stream.device();
    let from = Buffer::new(device, "copy source", DType::U8, bytes)?;
    let to = Buffer::new(device, "copy target", DType::U8, bytes)?;
    stream.fill(&from, 1)?;
    let copy = || stream.copy_bytes((&from, 0), (&to, 0), from.bytes());
    let times = time(stream, runs, None, "copy", copy)?;
    Ok(2.0 * bytes as f64 / (times.median * 1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        let times = Times::of(vec![4.0, 1.0, 9.0]);
        assert_eq!(times, Times { median: 4.0, least: 1.0, greatest: 9.0, runs: 3 });
        assert_eq!(Times::of(vec![4.0, 1.0, 9.0, 2.0]).median, 3.0);
        let each = times.each_of(2);
        assert_eq!((each.median, each.least, each.greatest), (2.0, 0.5, 4.5));
        assert_eq!(
            Times::of(Vec::new()),
            Times { median: 0.0, least: 0.0, greatest: 0.0, runs: 0 }
        );
    }
}
