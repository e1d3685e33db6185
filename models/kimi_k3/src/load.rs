//! Loading weights: each is made from the checkpoint and packed as its kernels want it, while those before it are on
//! their way to where they are used.
//!
//! Never are all weights of a rank in the memory of the host at once: what is being made and what waits has at most
//! [`IN_FLIGHT`] bytes, or is a single weight. Weights that kernels want packed come from the file of [`crate::packed`].

mod budget;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use kernel_abi::DType;
use kernel_abi::exec::Executor;
use kernel_abi::numeric::bytes_of;
use kernel_abi::plan::{BufferId, CheckedPlan};
use kernel_abi::stored::{StoredError, StoredLayout};
use thiserror::Error;

use crate::packed::{Kept, Packed, PackedError, Place};
use crate::weights::{Recipe, TensorSource};
use budget::{Budget, Share};

/// Bytes of weights in the memory of the host that are not yet where they are used: room for four of the largest ones of
/// a rank of K3 among sixteen, 617 MB in both orders, at a time.
pub const IN_FLIGHT: u64 = 5 << 30;

/// Threads that make weights at most: more do not read faster.
const MAKERS: usize = 8;

/// Why weights cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError<T, E> {
    /// A tensor of the checkpoint.
    #[error(transparent)]
    Tensor(T),
    /// What gets the weights does not take one.
    #[error(transparent)]
    Executor(E),
    /// A weight is not of the size that its layout has: a fault of the plan.
    #[error("`{weight}` cannot be packed: {error}")]
    Pack {
        /// The weight.
        weight: String,
        /// Why.
        error: StoredError,
    },
    /// It was asked to stop.
    #[error("stopped")]
    Stopped,
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the executor has.
    pub done: u64,
    /// Bytes in all.
    pub all: u64,
}

/// Who watches: it is told of every weight, and says whether to go on.
pub trait Watch: Sync {
    /// A weight was taken by the executor.
    fn loaded(&self, progress: Progress);

    /// Whether to go on; asked before each weight, from several threads.
    fn goes_on(&self) -> bool;
}

/// Nobody watches.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn loaded(&self, _: Progress) {}

    fn goes_on(&self) -> bool {
        true
    }
}

/// A weight of a rank.
#[derive(Debug)]
pub(crate) struct Weight<'w> {
    pub(crate) buffer: BufferId,
    pub(crate) rank: u32,
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) bytes: u64,
    /// Row-major without.
    pub(crate) layout: Option<StoredLayout>,
    pub(crate) recipe: &'w Recipe,
}

impl<'w> Weight<'w> {
    /// Every weight of every rank.
    pub(crate) fn all(
        plan: &CheckedPlan,
        weights: &'w [(BufferId, Vec<Recipe>)],
    ) -> Vec<Weight<'w>> {
        let of_buffer = |(buffer, recipes): &'w (BufferId, Vec<Recipe>)| {
            let described = &plan.buffers[buffer.index()];
            let elements = described.elements().unwrap_or(0) as usize;
            (0..).zip(recipes).map(move |(rank, recipe)| Weight {
                buffer: *buffer,
                rank,
                name: described.name.clone(),
                dtype: described.dtype,
                bytes: bytes_of(described.dtype, elements) as u64,
                layout: plan.stored(*buffer).cloned(),
                recipe,
            })
        };
        weights.iter().flat_map(|weight| of_buffer(weight).collect::<Vec<_>>()).collect()
    }

    /// Every weight of a rank that is packed.
    fn packed(
        plan: &CheckedPlan,
        weights: &'w [(BufferId, Vec<Recipe>)],
        rank: u32,
    ) -> Vec<Weight<'w>> {
        let mut weights = Weight::all(plan, weights);
        weights.retain(|weight| weight.rank == rank && weight.layout.is_some());
        weights
    }

    /// Bytes of the host that it takes while it is made: what is packed is there in both orders.
    fn cost(&self, packed: &[Packed]) -> u64 {
        let is_kept = packed.iter().any(|packed| packed.rank() == self.rank && packed.is_kept());
        let is_packed_here = self.layout.is_some() && !is_kept;
        if is_packed_here { self.bytes.saturating_mul(2) } else { self.bytes }
    }

    /// Its bytes as the kernels want them, from the file of packed weights or made and kept there.
    fn bytes<S: TensorSource, E>(
        &self,
        source: &S,
        packed: &[Packed],
    ) -> Result<Vec<u8>, LoadError<S::Error, E>> {
        let packed = packed.iter().find(|packed| packed.rank() == self.rank);
        let packed = packed.filter(|_| self.layout.is_some());
        if let Some(bytes) = packed.and_then(|packed| packed.read(&self.name)) {
            return Ok(bytes);
        }
        let bytes = self.make(source)?;
        if let Some(packed) = packed {
            packed.keep(&self.name, &bytes);
        }
        Ok(bytes)
    }

    /// Its bytes as the kernels want them.
    fn make<S: TensorSource, E>(&self, source: &S) -> Result<Vec<u8>, LoadError<S::Error, E>> {
        let rows = self.recipe.make(source).map_err(LoadError::Tensor)?;
        match &self.layout {
            None => Ok(rows),
            Some(layout) => layout
                .pack(self.dtype, &rows)
                .map_err(|error| LoadError::Pack { weight: self.name.clone(), error }),
        }
    }
}

/// Opens the files of the packed weights of every rank of a plan.
pub fn open_packed(
    plan: &CheckedPlan,
    weights: &[(BufferId, Vec<Recipe>)],
    place: &Place,
) -> Vec<Packed> {
    let all = Weight::all(plan, weights);
    (0..plan.ranks).filter_map(|rank| Packed::open(place, rank, &all)).collect()
}

/// Makes the weights of every rank and gives them to the executor. What is packed comes from the files of `packed`, or
/// is put into them.
///
/// # Errors
/// A tensor is missing or is another, the executor does not take a weight, or it was asked to stop.
pub fn load_weights<E: Executor, S: TensorSource + Sync>(
    executor: &mut E,
    weights: &[(BufferId, Vec<Recipe>)],
    source: &S,
    packed: &[Packed],
    watch: &dyn Watch,
) -> Result<(), LoadError<S::Error, E::Error>>
where
    S::Error: Send,
    E::Error: Send,
{
    let weights = Weight::all(executor.plan(), weights);
    hand_over(&weights, source, packed, watch, |weight, bytes| {
        executor.write(weight.rank, weight.buffer, bytes)
    })
}

/// Packs the weights of a rank into its file, or finds that all of them are there.
///
/// # Errors
/// A tensor is missing or is another, the file cannot be written, or it was asked to stop.
pub fn pack_weights<S: TensorSource + Sync>(
    plan: &CheckedPlan,
    weights: &[(BufferId, Vec<Recipe>)],
    source: &S,
    (place, rank): (&Place, u32),
    watch: &dyn Watch,
) -> Result<PackedRank, LoadError<S::Error, PackedError>>
where
    S::Error: Send,
{
    let weights = Weight::packed(plan, weights, rank);
    let Some(packed) = Packed::open(place, rank, &weights) else {
        return Ok(PackedRank { file: None, kept: Kept::Nowhere, faults: Vec::new() });
    };
    let done = fill(packed, &weights, source, watch)?;
    match done.kept {
        Kept::Damaged => {
            let mut faults = done.faults;
            let done = renew(&weights, source, (place, rank), watch)?;
            faults.extend(done.faults);
            Ok(PackedRank { faults, ..done })
        }
        Kept::Before | Kept::Now | Kept::Nowhere => Ok(done),
    }
}

/// Packs the weights of a rank into a new file, whatever is there: for one that was found damaged.
///
/// # Errors
/// As [`pack_weights`].
pub fn repack_weights<S: TensorSource + Sync>(
    plan: &CheckedPlan,
    weights: &[(BufferId, Vec<Recipe>)],
    source: &S,
    at: (&Place, u32),
    watch: &dyn Watch,
) -> Result<PackedRank, LoadError<S::Error, PackedError>>
where
    S::Error: Send,
{
    renew(&Weight::packed(plan, weights, at.1), source, at, watch)
}

fn renew<S: TensorSource + Sync>(
    weights: &[Weight<'_>],
    source: &S,
    (place, rank): (&Place, u32),
    watch: &dyn Watch,
) -> Result<PackedRank, LoadError<S::Error, PackedError>>
where
    S::Error: Send,
{
    match Packed::renew(place, rank, weights) {
        Some(packed) => fill(packed, weights, source, watch),
        None => Ok(PackedRank { file: None, kept: Kept::Nowhere, faults: Vec::new() }),
    }
}

/// Reads a file through, or fills a new one. There is one afterwards, which may be damaged.
fn fill<S: TensorSource + Sync>(
    packed: Packed,
    weights: &[Weight<'_>],
    source: &S,
    watch: &dyn Watch,
) -> Result<PackedRank, LoadError<S::Error, PackedError>>
where
    S::Error: Send,
{
    let packed = [packed];
    // Without a file there is nothing to do it for.
    if packed[0].has_file() {
        hand_over(weights, source, &packed, watch, |_, _| Ok(()))?;
        source.check_unchanged().map_err(LoadError::Tensor)?;
    }
    let [packed] = packed;
    let file = (packed.path().to_owned(), packed.bytes());
    let mut faults = packed.take_faults();
    match packed.finish().map_err(LoadError::Executor)? {
        kept @ (Kept::Before | Kept::Now | Kept::Damaged) => {
            Ok(PackedRank { file: Some(file), kept, faults })
        }
        Kept::Nowhere => {
            let fault = faults.pop().filter(|fault| !fault.is_damage());
            Err(LoadError::Executor(fault.unwrap_or_else(|| PackedError::nowhere(&file.0))))
        }
    }
}

/// What [`pack_weights`] and [`repack_weights`] did.
#[derive(Debug)]
pub struct PackedRank {
    /// The file and the bytes of the weights in it; none where no weight of the model is packed.
    pub file: Option<(PathBuf, u64)>,
    /// Whether it was there.
    pub kept: Kept,
    /// What was wrong with an earlier one.
    pub faults: Vec<PackedError>,
}

/// Makes weights on several threads and hands them to `take` on this one.
fn hand_over<S: TensorSource + Sync, E: Send>(
    weights: &[Weight<'_>],
    source: &S,
    packed: &[Packed],
    watch: &dyn Watch,
    take: impl FnMut(&Weight<'_>, &[u8]) -> Result<(), E>,
) -> Result<(), LoadError<S::Error, E>>
where
    S::Error: Send,
{
    let all = weights.iter().map(|weight| weight.bytes).sum();
    let budget = Budget::new(IN_FLIGHT);
    let next = AtomicUsize::new(0);
    let makers = std::thread::available_parallelism().map_or(1, usize::from).min(MAKERS);
    std::thread::scope(|scope| {
        let (give, taken) = mpsc::channel();
        for _ in 0..makers.min(weights.len()) {
            let (give, next, budget) = (give.clone(), &next, &budget);
            scope.spawn(move || {
                while let Some(weight) = weights.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Some(share) = budget.take(weight.cost(packed)) else { break };
                    let made = if watch.goes_on() {
                        weight.bytes(source, packed).map(|bytes| (weight, bytes, share))
                    } else {
                        Err(LoadError::Stopped)
                    };
                    let is_last = made.is_err();
                    // Where nobody takes it any more, something failed.
                    if give.send(made).is_err() || is_last {
                        break;
                    }
                }
            });
        }
        drop(give);
        let taken = take_all(taken, take, |done| watch.loaded(Progress { done, all }));
        budget.close();
        taken
    })
}

/// A weight that was made, its bytes, and what it takes of the budget.
type Made<'m> = (&'m Weight<'m>, Vec<u8>, Share<'m>);

/// Takes the weights as they come; `loaded` is told how many bytes were taken.
fn take_all<T, E>(
    made: mpsc::Receiver<Result<Made<'_>, LoadError<T, E>>>,
    mut take: impl FnMut(&Weight<'_>, &[u8]) -> Result<(), E>,
    loaded: impl Fn(u64),
) -> Result<(), LoadError<T, E>> {
    let mut done = 0;
    for made in made {
        let (weight, bytes, share) = made?;
        take(weight, &bytes).map_err(LoadError::Executor)?;
        drop((bytes, share));
        done += weight.bytes;
        loaded(done);
    }
    Ok(())
}
