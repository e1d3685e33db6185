//! Times of contenders on a device.

use std::time::Duration;

use kernel_abi::DType;
use kernel_abi::numeric::{elements_in, read_element, to_f64};
use kernel_runtime::launch::Given;
use kernel_runtime::timing::Flush;
use kernel_runtime::{
    Begin, Device, Event, Graph, Kernel, KernelImage, Pool, PooledBuffer, RuntimeError, Stream,
    Value,
};

use crate::arguments::{Arguments, Start};
use crate::contenders::{Contender, Group};
use crate::data::{Need, block};

/// Starts before those that count.
const WARM_UP: u32 = 3;
/// Sets of buffers at most.
const MOST_COPIES: u64 = 256;
/// How much more than the second-level cache all sets of buffers hold.
const CACHES: u64 = 4;
/// How long one graph may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How often a graph launches a contender, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// Sets of buffers, which follow each other.
    pub(crate) copies: u64,
    /// Launches of a graph: each set as often.
    pub(crate) launches: u64,
    /// The sets together fit into the cache, so it is flushed before each start.
    pub(crate) is_flushed: bool,
}

impl Rounds {
    /// Sets enough that nothing of one is in the cache when its turn comes again.
    pub(crate) fn new(set_bytes: u64, l2_bytes: u64, launches: u32, is_warm: bool) -> Rounds {
        let launches = u64::from(launches);
        if is_warm {
            return Rounds { copies: 1, launches, is_flushed: false };
        }
        let wanted = CACHES.saturating_mul(l2_bytes);
        let needed = wanted.div_ceil(set_bytes.max(1)).max(1);
        let copies = needed.min(MOST_COPIES);
        let launches = launches.max(copies).next_multiple_of(copies);
        // A set of its own for every launch, so that a flush is enough for all.
        Rounds { copies, launches, is_flushed: copies < needed }
    }
}

/// What came out for a contender.
#[derive(Debug, Clone)]
pub(crate) struct Timed {
    pub(crate) rounds: Rounds,
    /// Microseconds of one launch of all kernels of the contender, a value a run.
    pub(crate) microseconds: Vec<f64>,
    /// Registers of each kernel as the device loaded it.
    pub(crate) registers: Vec<u32>,
}

/// What came out for a group.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) timed: Vec<Timed>,
    /// Of each buffer that must hold zeros, what it holds.
    pub(crate) zeros: Vec<Zeros>,
}

/// What a buffer that must hold zeros holds after all runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Zeros {
    pub(crate) name: String,
    /// Bytes that are not zero.
    pub(crate) bytes: u64,
    /// The sum of its elements: where a kernel counts there, what it has counted.
    pub(crate) sum: f64,
}

impl Zeros {
    /// Adds a buffer of that name.
    fn add(&mut self, dtype: DType, bytes: &[u8]) {
        self.bytes += bytes.iter().filter(|&&byte| byte != 0).count() as u64;
        let elements = (0..elements_in(dtype, bytes.len()))
            .filter_map(|at| read_element(dtype, bytes, at).map(|code| to_f64(dtype, code)));
        self.sum += elements.sum::<f64>();
    }
}

/// A stream for measurements.
///
/// # Errors
/// The device was lost.
pub(crate) fn stream(device: &Device) -> Result<Stream, RuntimeError> {
    let mut stream = Stream::new(device)?;
    stream.set_limit(LIMIT);
    Ok(stream)
}

/// Buffers for each parameter of a group.
type Set = Vec<PooledBuffer>;

/// Times all contenders of a group, by turns; its buffers come from a pool and go back to it for the next group.
///
/// # Errors
/// There is too little memory, a kernel is refused, or one does not end.
pub(crate) fn group(
    stream: &Stream,
    pool: &mut Pool<Device>,
    group: &Group<'_>,
    all: &Arguments,
) -> Result<Outcome, RuntimeError> {
    let device = stream.device();
    let l2_bytes = device.info().l2_bytes;
    // The smallest contender says how many sets are needed: others touch more.
    let least = group.contenders.iter().map(|contender| contender.bytes).min().unwrap_or(0);
    let rounds = Rounds::new(least.min(group.bytes()), l2_bytes, all.launches, all.is_warm);
    let name = group.contenders.first().map_or("", |contender| contender.name.as_str());
    let needed = group.bytes().saturating_mul(rounds.copies);
    pool.check_free(&format!("{} sets of the buffers of {name}", rounds.copies), needed)?;
    let sets = sets(stream, pool, group, rounds.copies, all.seed)?;
    let flush = if rounds.is_flushed { Some(Flush::new(stream)?) } else { None };
    let mut graphs = Vec::new();
    let mut timed = Vec::new();
    for contender in &group.contenders {
        let (graph, registers) = graph(stream, contender, &sets, rounds, all)?;
        graphs.push(graph);
        timed.push(Timed { rounds, microseconds: Vec::new(), registers });
    }
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    for run in 0..all.runs + WARM_UP {
        for turn in 0..graphs.len() {
            // Another one is first each time.
            let at = (turn + run as usize) % graphs.len();
            if let Some(flush) = &flush {
                flush.run(stream)?;
            }
            stream.record(&start)?;
            stream.start(&graphs[at])?;
            stream.record(&end)?;
            stream.finish_to(&end, || graphs[at].running())?;
            if run >= WARM_UP {
                let us = end.microseconds_since(&start)?;
                timed[at].microseconds.push(us / rounds.launches as f64);
            }
        }
    }
    let zeros = zeros(stream, group, &sets, &all.zeros)?;
    sets.into_iter().flatten().for_each(|buffer| pool.give_back_buffer(buffer));
    Ok(Outcome { timed, zeros })
}

/// The buffers of a group, several times.
fn sets(
    stream: &Stream,
    pool: &mut Pool<Device>,
    group: &Group<'_>,
    copies: u64,
    seed: u64,
) -> Result<Vec<Set>, RuntimeError> {
    let mut new = |need: &Need| pool.buffer(&need.name, need.dtype, need.elements);
    let sets = (0..copies)
        .map(|_| group.needs.iter().map(&mut new).collect())
        .collect::<Result<Vec<Set>, RuntimeError>>()?;
    for (at, need) in group.needs.iter().enumerate() {
        let bytes = block(need, seed, at as u64)?;
        if bytes.is_empty() {
            continue;
        }
        let source = pool.buffer("block", DType::U8, bytes.len() as u64)?;
        stream.write(source.buffer(), &bytes)?;
        for set in &sets {
            let target = set[at].buffer();
            let mut to = 0;
            while to < target.bytes() {
                let len = bytes.len().min(target.bytes() - to);
                stream.copy_bytes((source.buffer(), 0), (target, to), len)?;
                to += len;
            }
        }
        stream.finish(|| vec![format!("copies to `{}`", need.name)])?;
        pool.give_back_buffer(source);
    }
    Ok(sets)
}

/// All launches of a contender.
fn graph(
    stream: &Stream,
    contender: &Contender<'_>,
    sets: &[Set],
    rounds: Rounds,
    all: &Arguments,
) -> Result<(Graph, Vec<u32>), RuntimeError> {
    let load = |link: &crate::contenders::Link<'_>| {
        Kernel::load(stream.device(), &KernelImage::of(link.kernel))
    };
    let kernels = contender.links.iter().map(load).collect::<Result<Vec<Kernel>, _>>()?;
    let begin = |start| match start {
        Start::After => Begin::After,
        Start::Early => Begin::Early,
    };
    let graph = stream.capture(|recorder| {
        for round in 0..rounds.launches {
            let set = &sets[(round % rounds.copies) as usize];
            for (at, (link, kernel)) in contender.links.iter().zip(&kernels).enumerate() {
                let value = |i: usize| Value::Buffer(set[i].buffer());
                let buffers = link.buffers.iter().map(|&(name, i)| (name, value(i)));
                let scalars =
                    link.scalars.iter().map(|(name, s)| (name.as_str(), Value::Scalar(*s)));
                let given: Vec<Given<'_>> = buffers.chain(scalars).collect();
                let begin = begin(if at == 0 { all.repeat } else { all.begin });
                recorder.launch(&link.kernel.head().name, kernel, &given, begin)?;
            }
        }
        Ok(())
    })?;
    Ok((graph, kernels.iter().map(Kernel::registers).collect()))
}

fn zeros(
    stream: &Stream,
    group: &Group<'_>,
    sets: &[Set],
    names: &[String],
) -> Result<Vec<Zeros>, RuntimeError> {
    let mut found = Vec::new();
    for (at, need) in group.needs.iter().enumerate() {
        if names.contains(&need.name) {
            let mut one = Zeros { name: need.name.clone(), bytes: 0, sum: 0.0 };
            for set in sets {
                one.add(need.dtype, &stream.read(set[at].buffer())?);
            }
            found.push(one);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_buffers_are_more_than_the_cache_holds() {
        let l2 = 60 << 20;
        let rounds = |set: u64, launches: u32| Rounds::new(set, l2, launches, false);
        // 46 MB: six sets, so 36 launches.
        let (copies, launches) = (6, 36);
        assert_eq!(rounds(46_000_000, 32), Rounds { copies, launches, is_flushed: false });
        let (copies, launches) = (1, 32);
        assert_eq!(rounds(1 << 30, 32), Rounds { copies, launches, is_flushed: false });
        let (copies, launches) = (256, 256);
        assert_eq!(rounds(1000, 32), Rounds { copies, launches, is_flushed: true });
        assert_eq!(rounds(0, 1).copies, 256);
        let warm = Rounds::new(1000, l2, 5, true);
        assert_eq!(warm, Rounds { copies: 1, launches: 5, is_flushed: false });
    }

    #[test]
    fn what_was_counted_is_summed_up() {
        let mut zeros = Zeros { name: "bad".to_owned(), bytes: 0, sum: 0.0 };
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        zeros.add(DType::F32, &bytes([0.0, 0.0]));
        assert_eq!((zeros.bytes, zeros.sum), (0, 0.0));
        zeros.add(DType::F32, &bytes([3.0, 1.0]));
        // 0x40400000 and 0x3f800000.
        assert_eq!((zeros.bytes, zeros.sum), (4, 4.0));
    }
}
