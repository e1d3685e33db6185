//! `kimi-k3 pack`: the packed weights of a rank, made ahead.

use std::collections::BTreeMap;

use kernel_abi::plan::KernelKey;
use kernel_emulator::{instantiate, signature};
use kimi_k3::load::{PackedRank, pack_weights};
use kimi_k3::packed::{self, Kept, Place};
use kimi_k3::plan::{DecodeOptions, DecodePlan, PAGE};
use kimi_k3::{Checkpoint, Config};

use crate::args::Pack;
use crate::error::CliError;
use crate::loading::{LoadWatch, check};
use crate::{interrupt, output};

pub(crate) fn run(options: &Pack) -> Result<(), CliError> {
    interrupt::listen();
    let folder = packed::folder(&options.model, options.packed.as_deref())?;
    let config = Config::open(&options.model)?;
    let checkpoint = Checkpoint::open(&options.model)?;
    let ranks = u32::try_from(options.ranks).unwrap_or(u32::MAX);
    let asked = match options.rank {
        None => 0..ranks,
        Some(rank) if rank < ranks => rank..rank + 1,
        Some(rank) => return Err(CliError::NoRank { rank, ranks }),
    };
    // How weights lie depends neither on the number of rows nor on the context.
    let shape = DecodeOptions { rows: 1, ranks: options.ranks, context: PAGE };
    let DecodePlan { plan, weights, .. } = DecodePlan::new(&config, shape)?;
    let keys: Vec<KernelKey> = plan.kernels().into_iter().cloned().collect();
    let text = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
    let kernels =
        instantiate(&keys, &text).map_err(|error| CliError::of_preparation(error.into()))?;
    let signatures: BTreeMap<_, _> =
        keys.into_iter().zip(kernels.iter().map(|k| signature(k))).collect();
    let plan = plan.check(signatures).map_err(kernel_emulator::PlanFailure::Plan)?;
    // Nothing is packed that would be refused where it is used.
    check(&config, &checkpoint)?;
    let place = Place {
        folder,
        model: options.model.clone(),
        ranks,
        checkpoint: checkpoint.identity(),
        least: 0,
    };
    for rank in asked {
        let watch = LoadWatch::new(options.progress);
        let done = pack_weights(&plan, &weights, &checkpoint, (&place, rank), &watch);
        watch.finish();
        let PackedRank { file, kept, faults } = done?;
        faults.iter().for_each(output::warning);
        let said = match (file, kept) {
            (Some((path, bytes)), Kept::Now) => format!("{}: {bytes} bytes packed", path.display()),
            (Some((path, bytes)), _) => format!("{}: {bytes} bytes, there before", path.display()),
            (None, _) => format!("rank {rank}: no weight of this model is packed"),
        };
        output::text(&format!("{said}\n"))?;
    }
    Ok(())
}
