//! The decode plans of the real model and of the small one: every kernel instantiates at the shapes of its ranks, and the plan holds.

use std::collections::BTreeMap;

use kernel_abi::plan::{KernelKey, NodeOp};
use kernel_emulator::{instantiate, signature};
use kimi_k3::Config;
use kimi_k3::plan::{DecodeOptions, DecodePlan};
use kimi_k3::sets::{CONTEXT, Model};

/// The name of a model.
pub(crate) fn name(model: Model) -> &'static str {
    match model {
        Model::K3 => "Kimi K3",
        Model::Mini => "kimi-k3-mini",
    }
}

fn config(model: Model) -> Config {
    let text = match model {
        Model::K3 => include_str!("../data/kimi_k3/config.json"),
        Model::Mini => include_str!("../../models/kimi_k3/mini/config.json"),
    };
    Config::parse(text).expect("the configuration is read by other tests too")
}

/// Every number of ranks and rows that there is a plan of a model for; with one rank the experts of Kimi K3 are too wide for
/// the registers of their kernel.
pub(crate) fn all(model: Model) -> Vec<(u64, u64)> {
    let least = match model {
        Model::K3 => 2,
        Model::Mini => 1,
    };
    let config = config(model);
    let is_there = |&(ranks, rows): &(u64, u64)| {
        DecodeOptions { rows, ranks, context: CONTEXT }.check(&config).is_ok()
    };
    let both = (least..=16).flat_map(|ranks| [1, 2, 4, 8].map(|rows| (ranks, rows)));
    both.filter(is_there).collect()
}

/// Builds and checks the plan of a model for a number of ranks and rows.
///
/// # Errors
/// A kernel is refused at its shape, or the plan.
pub(crate) fn holds(model: Model, ranks: u64, rows: u64) -> Result<(), String> {
    let options = DecodeOptions { rows, ranks, context: CONTEXT };
    let plan = DecodePlan::new(&config(model), options).map_err(|e| e.to_string())?.plan;
    let launches = plan.nodes.iter().filter(|n| matches!(n.op, NodeOp::Kernel { .. })).count();
    // 93 layers of at least 17 kernels each.
    assert!(model != Model::K3 || launches > 93 * 17, "{launches} launches");
    let keys: Vec<KernelKey> = plan.kernels().into_iter().cloned().collect();
    let sources = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
    let kernels = instantiate(&keys, &sources).map_err(|error| error.to_string())?;
    let signatures: BTreeMap<_, _> =
        keys.into_iter().zip(kernels.iter().map(|kernel| signature(kernel))).collect();
    match plan.check(signatures) {
        Ok(_) => Ok(()),
        Err(errors) => Err(errors.iter().take(10).map(|e| format!("{e}\n")).collect()),
    }
}
