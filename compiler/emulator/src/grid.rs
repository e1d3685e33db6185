//! Runs the CTAs of a grid and merges what they stored.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Launch, Param, ParamId};
use rayon::prelude::*;

use crate::counters::Trace;
use crate::error::{EmuError, ErrorKind};
use crate::launch;
use crate::memory::{Argument, Memory};
use crate::options::Options;
use crate::together::{self, Together};
use crate::view::{Launched, PAGE, Stores};
use kernel_dsl::source::Span;

/// CTAs of a grid at most.
const MAX_CTAS: u64 = 1 << 22;

/// What a CTA leaves.
pub(crate) struct Ended {
    pub(crate) stores: Stores,
    pub(crate) trace: Trace,
}

/// Runs every CTA with `run` and merges the stores in the order of the CTAs. Of several errors the one of
/// the lowest CTA is reported.
pub(crate) fn run_grid(
    params: &IndexVec<ParamId, Param>,
    launch: &Launch,
    memory: &mut Memory,
    options: &Options,
    kernel_span: Span,
    run: impl Fn([u32; 3], Launched<'_>) -> Result<Ended, EmuError> + Sync,
) -> Result<Trace, EmuError> {
    let extents = launch::check(params, memory)?;
    let [x, y, z] = launch.grid;
    let count = u64::from(x) * u64::from(y).saturating_mul(u64::from(z));
    if count > MAX_CTAS {
        let message = format!("a grid of {count} CTAs; the emulator runs up to {MAX_CTAS}");
        return Err(EmuError::new(ErrorKind::StepLimit, kernel_span, message));
    }
    let cta = |i: usize| position(launch.grid, i);
    together::check_zero(params, memory)?;
    let together = Together::new(params).map(Mutex::new);
    let ended = if let Some(together) = &together {
        let launched = Launched::new(params, memory, &extents, launch, options).with(together);
        for i in 0..count as usize {
            let ended = run(cta(i), launched).map_err(|e| e.in_cta(cta(i)))?;
            locked(together).end(params, memory, ended);
        }
        let mut together = locked(together);
        together.check(params, &cta)?;
        std::mem::take(&mut together.ended)
    } else {
        let launched = Launched::new(params, memory, &extents, launch, options);
        let failed = AtomicUsize::new(usize::MAX);
        // CTAs after a failed one need not run; those before it must, since the lowest error counts.
        let one = |i: usize| {
            if i > failed.load(Ordering::Relaxed) {
                return None;
            }
            let result = run(cta(i), launched).map_err(|e| e.in_cta(cta(i)));
            if result.is_err() {
                failed.fetch_min(i, Ordering::Relaxed);
            }
            Some(result)
        };
        let all: Vec<Option<Result<Ended, EmuError>>> = if options.parallel && count > 1 {
            (0..count as usize).into_par_iter().map(one).collect()
        } else {
            (0..count as usize).map(one).collect()
        };
        all.into_iter().flatten().collect::<Result<Vec<Ended>, EmuError>>()?
    };
    check_conflicts(params, memory, &ended, &cta)?;
    let mut trace = Trace::default();
    for Ended { stores, trace: of_cta } in ended {
        trace.append(of_cta);
        merge(params, memory, &stores);
    }
    launch::check_promises(params, memory)?;
    Ok(trace)
}

/// The indices of a CTA by its number, x fastest.
pub(crate) fn position([x, y, _]: [u32; 3], number: usize) -> [u32; 3] {
    let (i, x, y) = (number as u64, u64::from(x), u64::from(y));
    [(i % x) as u32, (i / x % y) as u32, (i / (x * y)) as u32]
}

/// What CTAs share; one of them runs at a time.
pub(crate) fn locked(together: &Mutex<Together>) -> MutexGuard<'_, Together> {
    together.lock().unwrap_or_else(PoisonError::into_inner)
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
