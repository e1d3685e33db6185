//! Runs a kernel on several ranks in one process, each with memory of its own.
//!
//! Every CTA of every rank is a part that takes turns with the others, so that one may wait for another. Launches of a
//! rank follow each other as in a stream; ranks run at their own pace, and one may be a launch ahead of another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kernel_abi::Access;
use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Launch, Param, ParamId, RANK};

use crate::cluster::{Cluster, Member};
use crate::counters::Trace;
use crate::error::{EmuError, ErrorKind};
use crate::fabric::{self, Between, Fabric, Party};
use crate::grid::{self, Clusters, Ended, Meets};
use crate::launch;
use crate::memory::{Argument, Memory};
use crate::options::Options;
use crate::record::Recorder;
use crate::turns::{self, Awaited, MAX_PARTS};
use crate::view::Launched;

/// What is run: a kernel of either level.
pub(crate) struct Ranks<'k> {
    pub(crate) params: &'k IndexVec<ParamId, Param>,
    pub(crate) launch: &'k Launch,
    /// Roles of the kernel.
    pub(crate) roles: usize,
    pub(crate) span: Span,
    /// What the CTAs of a rank have to do with each other.
    pub(crate) meets: Meets,
    /// How often each rank launches it.
    pub(crate) launches: usize,
    pub(crate) options: &'k Options,
    pub(crate) recorder: Option<&'k Recorder>,
}

/// A launch of a rank: the memory that it starts with, and what its CTAs left so far.
struct Stage {
    memory: OnceLock<Memory>,
    ended: Mutex<Vec<(usize, Ended)>>,
}

/// A cluster of a launch of a rank: the rank, the launch and the number of the cluster.
type ClusterKey = (usize, usize, usize);

/// A cluster of which some CTAs have begun.
struct Coming<S> {
    cluster: Arc<Cluster<S>>,
    /// How many.
    come: usize,
}

/// Clusters of which some CTA has begun and some has not.
struct Begun<S>(Mutex<BTreeMap<ClusterKey, Coming<S>>>);

impl<S> Begun<S> {
    /// The cluster to which one more CTA comes.
    fn come(
        &self,
        key: ClusterKey,
        size: usize,
        make: impl FnOnce() -> Cluster<S>,
    ) -> Arc<Cluster<S>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Coming { cluster: Arc::new(make()), come: 0 };
        let coming = all.entry(key).or_insert_with(new);
        coming.come += 1;
        let (cluster, is_whole) = (Arc::clone(&coming.cluster), coming.come == size);
        if is_whole {
            all.remove(&key);
        }
        cluster
    }
}

/// Runs `run` for each CTA of each launch of each rank; `memories` has one entry a rank and gets what the last launch
/// left. A run that fails leaves all but the number of the rank as it was.
pub(crate) fn run<S: Send>(
    ranks: &Ranks<'_>,
    memories: &mut [Memory],
    shared: impl Fn(usize) -> S + Sync,
    run: impl Fn([u32; 3], Launched<'_>, Member<'_, S>) -> Result<Ended, EmuError> + Sync,
) -> Result<Vec<Trace>, EmuError> {
    let Ranks { params, launch, roles, span, meets, launches, options, recorder } = *ranks;
    let world = launch.world.unwrap_or(1) as usize;
    if memories.len() != world {
        let message = format!("a kernel over {world} ranks, with memory for {}", memories.len());
        return Err(EmuError::new(ErrorKind::Argument, span, message));
    }
    let [x, y, z] = launch.grid.map(u64::from);
    let all = x.saturating_mul(y).saturating_mul(z).saturating_mul(world as u64);
    if all > MAX_PARTS {
        let message =
            format!("{all} CTAs of all ranks; the emulator runs up to {MAX_PARTS} that may wait");
        return Err(EmuError::new(ErrorKind::StepLimit, span, message));
    }
    let ctas = (x * y * z) as usize;
    for (rank, memory) in memories.iter_mut().enumerate() {
        set_rank(params, memory, rank);
        launch::check(params, memory)?;
    }
    check_extents(params, memories)?;
    for memory in memories.iter() {
        fabric::check_zero(params, memory)?;
    }
    let between = if meets == Meets::Apart { Between::Ranks } else { Between::All };
    let fabric = Fabric::new(params, memories, between, ctas, roles);
    let stage = |memory: Option<&Memory>| Stage {
        memory: memory.cloned().map_or_else(OnceLock::new, OnceLock::from),
        ended: Mutex::new(Vec::new()),
    };
    let stages: Vec<Vec<Stage>> = memories
        .iter()
        .map(|memory| {
            let first = std::iter::once(stage(Some(memory)));
            first.chain((0..launches).map(|_| stage(None))).collect()
        })
        .collect();

    let clusters = Clusters::new(launch);
    let size = launch.cluster_size().max(1) as usize;
    // The CTAs of a cluster follow each other.
    let place = |part: usize| (part / ctas, part % ctas / size, part % size);
    let begun = Begun(Mutex::default());
    let part = |seat: &turns::Seat<'_>, part: usize| -> Result<Vec<Trace>, EmuError> {
        let (rank, group, member) = place(part);
        let position = clusters.ctas(group)[member];
        let cta = clusters.number(position);
        let mut finished = Vec::new();
        for number in 0..launches {
            let stage = &stages[rank][number];
            let awaited = || {
                let what = format!("rank {rank} waits for its launch {number} to end");
                Awaited { what, span }
            };
            seat.wait(|| stage.memory.get().is_some(), awaited)?;
            let memory = stage.memory.get().expect("it was waited for");
            let extents = launch::check(params, memory)?;
            let (fabric, grid, role, seat) = (&fabric, launch.grid, None, Some(seat));
            let party = Party { fabric, seat, rank, world, grid, cta, role };
            let launched = Launched::new(params, memory, &extents, launch, options)
                .among(party)
                .recorded(recorder);
            let make = || Cluster::new(clusters.ctas(group), &shared);
            let cluster = begun.come((rank, number, group), size, make);
            let member = Member::start(&cluster, seat, member);
            let ended = run(position, launched, member)?;
            member.end();
            let mut all = stage.ended.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((cta, ended));
            if all.len() == ctas {
                all.sort_by_key(|(cta, _)| *cta);
                let ended: Vec<Ended> = all.drain(..).map(|(_, ended)| ended).collect();
                let mut memory = memory.clone();
                if between == Between::Ranks {
                    finished.push(grid::finish(params, launch.grid, &mut memory, ended)?);
                } else {
                    fabric.check_counters(params, rank)?;
                    let mut trace = Trace::default();
                    ended.into_iter().for_each(|ended| trace.append(ended.trace));
                    finished.push(trace);
                }
                fabric.end_launch(rank);
                let next = &stages[rank][number + 1].memory;
                next.set(memory).expect("a launch ends once");
            }
        }
        Ok(finished)
    };
    let finished = turns::run(world * ctas, options.schedule, part).map_err(|(part, error)| {
        let (rank, group, member) = place(part);
        error.in_cta(clusters.ctas(group)[member]).on_rank(rank)
    })?;
    let mut traces: Vec<Trace> = (0..world).map(|_| Trace::default()).collect();
    for (part, finished) in finished.into_iter().enumerate() {
        finished.into_iter().for_each(|trace| traces[part / ctas].append(trace));
    }
    for (memory, stages) in memories.iter_mut().zip(stages) {
        let last = stages.into_iter().next_back().and_then(|stage| stage.memory.into_inner());
        *memory = last.expect("every launch has ended");
    }
    fabric.into_memories(memories);
    for memory in memories.iter() {
        launch::check_promises(params, memory)?;
    }
    Ok(traces)
}

/// Refuses memory of ranks that has other extents on one rank than on another: each proves its accesses with its own.
fn check_extents(params: &IndexVec<ParamId, Param>, memories: &[Memory]) -> Result<(), EmuError> {
    let Some((first, others)) = memories.split_first() else { return Ok(()) };
    let wanted = launch::check_arguments(params, first)?;
    for (rank, memory) in (1..).zip(others) {
        let found = launch::check_arguments(params, memory)?;
        let of_ranks = params.iter_enumerated().filter(|(_, param)| param.access == Access::Peer);
        for (id, param) in of_ranks {
            let (wanted, found) = (&wanted[id], &found[id]);
            if found != wanted {
                let message = format!(
                    "`{}` has the extents {wanted:?} on rank 0 and {found:?} on rank {rank}, slots of the ring first",
                    param.name
                );
                return Err(EmuError::new(ErrorKind::Argument, param.span, message));
            }
        }
    }
    Ok(())
}

/// Tells a memory which rank it is of.
fn set_rank(params: &IndexVec<ParamId, Param>, memory: &mut Memory, rank: usize) {
    if let Some(id) = Memory::find(params, RANK) {
        memory.set_scalar(id, params[id].dtype, rank as u64);
    }
}

/// Gives every missing argument of every rank a value, as [`Memory::fill_missing`] does: buffers of rank r with the
/// seed `seed + r`, scalars the same on all ranks, but for the number of the rank.
///
/// # Errors
/// There is no value that fits.
pub fn fill_ranks(
    params: &IndexVec<ParamId, Param>,
    memories: &mut [Memory],
    seed: u64,
) -> Result<(), EmuError> {
    let mut scalars: Option<Vec<(ParamId, Argument)>> = None;
    for (rank, memory) in memories.iter_mut().enumerate() {
        for (id, scalar) in scalars.iter().flatten() {
            if *memory.argument(*id) == Argument::Missing {
                memory.arguments[*id] = scalar.clone();
            }
        }
        memory.fill_missing(params, seed.wrapping_add(rank as u64))?;
        set_rank(params, memory, rank);
        scalars.get_or_insert_with(|| {
            let of = |&id: &ParamId| params[id].access == Access::Scalar;
            params.ids().filter(of).map(|id| (id, memory.arguments[id].clone())).collect()
        });
    }
    Ok(())
}
