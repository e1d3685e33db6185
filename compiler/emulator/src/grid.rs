//! Runs the CTAs of a grid and merges what they stored.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Launch, Param, ParamId};
use rayon::prelude::*;

use crate::cluster::{Cluster, Member};
use crate::counters::Trace;
use crate::error::{EmuError, ErrorKind};
use crate::fabric::{self, Between, Fabric, Party};
use crate::launch;
use crate::memory::{Argument, Memory};
use crate::options::Options;
use crate::record::Recorder;
use crate::turns::{self, MAX_PARTS, Seat};
use crate::view::{Launched, PAGE, Stores};
use kernel_dsl::source::Span;

/// CTAs of a grid at most.
const MAX_CTAS: u64 = 1 << 22;

/// What a CTA leaves.
pub(crate) struct Ended {
    pub(crate) stores: Stores,
    pub(crate) trace: Trace,
}

/// What is run: a kernel of either level on one rank.
pub(crate) struct Grid<'k> {
    pub(crate) params: &'k IndexVec<ParamId, Param>,
    pub(crate) launch: &'k Launch,
    pub(crate) span: Span,
    /// Roles of the kernel.
    pub(crate) roles: usize,
    pub(crate) meets: Meets,
    pub(crate) options: &'k Options,
    pub(crate) recorder: Option<&'k Recorder>,
}

impl Grid<'_> {
    /// Number of CTAs.
    pub(crate) fn ctas(&self) -> u64 {
        let [x, y, z] = self.launch.grid.map(u64::from);
        x.saturating_mul(y).saturating_mul(z)
    }

    /// Refuses a grid that is too large to be run.
    pub(crate) fn check_size(&self) -> Result<(), EmuError> {
        let count = self.ctas();
        let limit = if self.meets == Meets::Waits { MAX_PARTS } else { MAX_CTAS };
        if count > limit {
            let message = format!("a grid of {count} CTAs; the emulator runs up to {limit}");
            return Err(EmuError::new(ErrorKind::StepLimit, self.span, message));
        }
        Ok(())
    }
}

/// What the CTAs of a kernel have to do with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meets {
    /// Each runs for itself, or with its cluster.
    Apart,
    /// They count arrivals or update words, and one never waits for another.
    Counts,
    /// What one does depends on how far others are.
    Waits,
}

/// Runs every CTA with `run`. Where they have nothing to do with each other, or with their cluster alone, their stores
/// are merged in the order of the CTAs, and of several errors the one of the lowest cluster is reported. Else they run
/// one after the other in the order of the schedule, or take turns where one may wait for another. Each has shared
/// memory of its own, made by `shared`.
pub(crate) fn run_grid<S: Send>(
    grid: &Grid<'_>,
    memory: &mut Memory,
    shared: impl Fn(usize) -> S + Sync,
    run: impl Fn([u32; 3], Launched<'_>, Member<'_, S>) -> Result<Ended, EmuError> + Sync,
) -> Result<Trace, EmuError> {
    let Grid { params, launch, span: _, roles, meets, options, recorder } = *grid;
    let extents = launch::check(params, memory)?;
    grid.check_size()?;
    let count = grid.ctas();
    fabric::check_zero(params, memory)?;
    let clusters = Clusters::new(launch);
    let fabric = (meets != Meets::Apart).then(|| {
        let memories = std::slice::from_ref(&*memory);
        Fabric::new(params, memories, Between::Ctas, count as usize, roles)
    });
    let launched = Launched::new(params, memory, &extents, launch, options).recorded(recorder);
    let one = |cluster: &Cluster<S>, seat: Option<&Seat<'_>>, rank: usize| {
        let position = cluster.position(rank);
        let member = Member::start(cluster, seat, rank);
        let Some(fabric) = &fabric else {
            let ended = run(position, launched, member);
            member.end();
            return ended;
        };
        let cta = clusters.number(position);
        let (world, grid, role) = (1, launch.grid, None);
        let party = Party { fabric, seat, rank: 0, world, grid, cta, role };
        let ended = run(position, launched.among(party), member);
        member.end();
        fabric.end_cta(cta);
        ended
    };
    let run_cluster = |number: usize| -> Result<Vec<Ended>, EmuError> {
        let ctas = clusters.ctas(number);
        let cluster = Cluster::new(ctas.clone(), &shared);
        if ctas.len() == 1 && roles == 0 {
            return one(&cluster, None, 0).map(|ended| vec![ended]).map_err(|e| e.in_cta(ctas[0]));
        }
        turns::run(ctas.len(), options.schedule, |seat, rank| one(&cluster, Some(seat), rank))
            .map_err(|(rank, error)| error.in_cta(ctas[rank]))
    };
    let ended = match meets {
        Meets::Waits => {
            let of = |number: usize| Cluster::new(clusters.ctas(number), &shared);
            let all: Vec<Cluster<S>> = (0..clusters.count()).map(of).collect();
            let size = launch.cluster_size().max(1) as usize;
            let part = |seat: &Seat<'_>, i: usize| one(&all[i / size], Some(seat), i % size);
            let ended = turns::run(count as usize, options.schedule, part);
            let ended =
                ended.map_err(|(i, error)| error.in_cta(all[i / size].position(i % size)))?;
            let mut ended = ended.into_iter();
            let all = all.iter().map(|_| ended.by_ref().take(size).collect()).collect();
            clusters.in_order_of_ctas(all)
        }
        Meets::Counts => {
            let mut all: Vec<Option<Vec<Ended>>> = (0..clusters.count()).map(|_| None).collect();
            for number in turns::order(clusters.count(), options.schedule) {
                all[number] = Some(run_cluster(number)?);
            }
            clusters.in_order_of_ctas(all.into_iter().flatten().collect())
        }
        Meets::Apart => {
            let failed = AtomicUsize::new(usize::MAX);
            // Clusters after a failed one need not run; those before it must, since the lowest error counts.
            let one = |i: usize| {
                if i > failed.load(Ordering::Relaxed) {
                    return None;
                }
                let result = run_cluster(i);
                if result.is_err() {
                    failed.fetch_min(i, Ordering::Relaxed);
                }
                Some(result)
            };
            let all: Vec<Option<Result<Vec<Ended>, EmuError>>> = if options.parallel && count > 1 {
                (0..clusters.count()).into_par_iter().map(one).collect()
            } else {
                (0..clusters.count()).map(one).collect()
            };
            let all = all.into_iter().flatten().collect::<Result<Vec<Vec<Ended>>, EmuError>>()?;
            clusters.in_order_of_ctas(all)
        }
    };
    let Some(fabric) = fabric else { return finish(params, launch.grid, memory, ended) };
    fabric.check_counters(params, 0)?;
    fabric.into_memories(std::slice::from_mut(memory));
    gather(params, memory, ended)
}

/// What the CTAs of a launch report, whose stores are in the memory already.
pub(crate) fn gather(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
    ended: Vec<Ended>,
) -> Result<Trace, EmuError> {
    let mut trace = Trace::default();
    ended.into_iter().for_each(|ended| trace.append(ended.trace));
    launch::check_promises(params, memory)?;
    Ok(trace)
}

/// Merges what the CTAs of a launch left, in their order.
pub(crate) fn finish(
    params: &IndexVec<ParamId, Param>,
    grid: [u32; 3],
    memory: &mut Memory,
    ended: Vec<Ended>,
) -> Result<Trace, EmuError> {
    check_conflicts(params, memory, &ended, &|i| position(grid, i))?;
    let mut trace = Trace::default();
    for Ended { stores, trace: of_cta } in ended {
        trace.append(of_cta);
        merge(params, memory, &stores);
    }
    launch::check_promises(params, memory)?;
    Ok(trace)
}

/// The clusters of a grid.
pub(crate) struct Clusters {
    grid: [u32; 3],
    cluster: [u32; 3],
}

impl Clusters {
    /// Those of a launch.
    pub(crate) fn new(launch: &Launch) -> Clusters {
        Clusters { grid: launch.grid, cluster: launch.cluster }
    }

    /// Clusters along each axis.
    fn extents(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis] / self.cluster[axis])
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.extents().into_iter().map(|extent| extent as usize).product()
    }

    /// The CTAs of a cluster, by rank.
    pub(crate) fn ctas(&self, number: usize) -> Vec<[u32; 3]> {
        let first = position(self.extents(), number);
        let size = self.cluster.iter().product::<u32>() as usize;
        let within = |rank: usize| {
            let place = position(self.cluster, rank);
            std::array::from_fn(|axis| first[axis] * self.cluster[axis] + place[axis])
        };
        (0..size).map(within).collect()
    }

    /// The number of a CTA of the grid, x fastest.
    pub(crate) fn number(&self, [i, j, k]: [u32; 3]) -> usize {
        let [x, y, _] = self.grid.map(|extent| extent as usize);
        i as usize + x * (j as usize + y * k as usize)
    }

    fn in_order_of_ctas(&self, all: Vec<Vec<Ended>>) -> Vec<Ended> {
        if self.cluster == [1, 1, 1] {
            return all.into_iter().flatten().collect();
        }
        let ctas = (0..all.len()).flat_map(|cluster| self.ctas(cluster));
        let ctas = ctas.map(|cta| self.number(cta));
        let mut numbered: Vec<(usize, Ended)> = ctas.zip(all.into_iter().flatten()).collect();
        numbered.sort_by_key(|(number, _)| *number);
        numbered.into_iter().map(|(_, ended)| ended).collect()
    }
}

/// The indices of a CTA by its number, x fastest.
pub(crate) fn position([x, y, _]: [u32; 3], number: usize) -> [u32; 3] {
    let (i, x, y) = (number as u64, u64::from(x), u64::from(y));
    [(i % x) as u32, (i / x % y) as u32, (i / (x * y)) as u32]
}

/// Refuses two CTAs that store to one address.
fn check_conflicts(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
    ended: &[Ended],
    cta: &impl Fn(usize) -> [u32; 3],
) -> Result<(), EmuError> {
    if ended.len() < 2 {
        return Ok(());
    }
    for (id, param) in params.iter_enumerated() {
        let Argument::Buffer(buffer) = &memory.arguments[id] else { continue };
        if ended.iter().all(|e| e.stores.overlays[id].pages.is_empty()) {
            continue;
        }
        // The elements of each page that some CTA stored.
        let mut stored: BTreeMap<usize, [u64; PAGE / 64]> = BTreeMap::new();
        for (i, Ended { stores, .. }) in ended.iter().enumerate() {
            for (&number, page) in &stores.overlays[id].pages {
                let before = stored.entry(number).or_default();
                let mut twice = None;
                for (word, (before, now)) in before.iter_mut().zip(page.touched()).enumerate() {
                    let both = *before & now;
                    if both != 0 && twice.is_none() {
                        twice = Some(word * 64 + both.trailing_zeros() as usize);
                    }
                    *before |= now;
                }
                let Some(twice) = twice else { continue };
                let index = number * PAGE + twice;
                let has = |e: &&Ended| e.stores.overlays[id].site(index).is_some_and(|s| s > 0);
                let first = ended.iter().position(|e| has(&e)).unwrap_or(0);
                let place = |stores: &Stores, site: u32| stores.sites[site as usize - 1];
                let earlier = &ended[first].stores;
                let site = earlier.overlays[id].site(index);
                let own = stores.overlays[id].site(index).unwrap_or(1);
                let ([ax, ay, az], [bx, by, bz]) = (cta(first), cta(i));
                let message = format!(
                    "CTAs ({ax}, {ay}, {az}) and ({bx}, {by}, {bz}) store to one element of `{}`",
                    param.name
                );
                let coordinate = launch::coordinate(&extents(param, buffer.len()), index as u64);
                let error = EmuError::new(ErrorKind::StoreConflict, place(stores, own), message)
                    .at(coordinate)
                    .in_cta(cta(i));
                return Err(match site {
                    Some(site) => error
                        .other(place(earlier, site), format!("CTA ({ax}, {ay}, {az}) stores here")),
                    None => error,
                });
            }
        }
    }
    Ok(())
}

/// The extents of a buffer of `len` elements; the outermost follows from the others.
fn extents(param: &Param, len: usize) -> Vec<u64> {
    use kernel_ir::kernel::Extent;
    let inner = |e: &Extent| match e {
        Extent::Const(c) => u64::from(*c),
        Extent::Scalar(_) => len as u64,
    };
    param.shape.iter().map(inner).collect()
}

fn merge(params: &IndexVec<ParamId, Param>, memory: &mut Memory, stores: &Stores) {
    for id in params.ids() {
        let Argument::Buffer(buffer) = &mut memory.arguments[id] else { continue };
        for (number, page) in &stores.overlays[id].pages {
            page.merge(buffer, number * PAGE);
        }
    }
}
