//! The sets of `models/kimi_k3/kernels/build.toml`, made from the decode plans whose kernels they are.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::plan::KernelKey;
use kimi_k3::Config;
use kimi_k3::plan::DecodePlan;
use kimi_k3::sets::{KernelSet, Model, SETS};

/// The line of the file behind which everything is made here.
pub const MARK: &str = "# Made from the decode plans";

const LANES: usize = 4;

/// The sets as text.
///
/// # Errors
/// A plan cannot be made.
pub fn text() -> Result<String, String> {
    let mut text = format!("{MARK} by `BLESS=1 cargo test -p kernel_tests --test sets`.\n");
    // A plan holds the recipe of every weight of every rank, which takes its time.
    let plans: Vec<_> = std::thread::scope(|scope| {
        let lanes: Vec<_> = SETS
            .chunks(SETS.len().div_ceil(LANES))
            .map(|sets| scope.spawn(|| sets.iter().map(kernels).collect::<Vec<_>>()))
            .collect();
        let join = |lane: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            lane.join().expect("making a plan does not panic")
        };
        lanes.into_iter().flat_map(join).collect()
    });
    for (set, plan) in SETS.iter().zip(plans) {
        text.push_str(&format!("\n{} = [\n", set.name));
        for (name, key) in named(&plan?) {
            let bind: Vec<String> =
                key.bindings.iter().map(|(n, v)| format!("{n} = {v}")).collect();
            let kernel = &key.kernel;
            let name = if name == *kernel { String::new() } else { format!(" name = \"{name}\",") };
            let bind = bind.join(", ");
            text.push_str(&format!(
                "    {{ kernel = \"{kernel}\",{name} bind = {{ {bind} }} }},\n"
            ));
        }
        text.push_str("]\n");
    }
    Ok(text)
}

/// Every kernel of the plan of a set, once.
///
/// # Errors
/// The plan cannot be made.
pub fn kernels(set: &KernelSet) -> Result<BTreeSet<KernelKey>, String> {
    let config = match set.model {
        Model::K3 => include_str!("../data/kimi_k3/config.json"),
        Model::Mini => include_str!("../../models/kimi_k3/mini/config.json"),
    };
    let config = Config::parse(config).map_err(|error| error.to_string())?;
    let plan = DecodePlan::new(&config, set.options).map_err(|error| error.to_string())?.plan;
    Ok(plan.kernels().into_iter().cloned().collect())
}

/// A name for each kernel: its own, and as many of the bindings in which the kernels of that name differ as tell them
/// apart, those with the most values first.
fn named(keys: &BTreeSet<KernelKey>) -> Vec<(String, &KernelKey)> {
    let mut groups: BTreeMap<&str, Vec<&KernelKey>> = BTreeMap::new();
    for key in keys {
        groups.entry(&key.kernel).or_default().push(key);
    }
    groups.into_iter().flat_map(|(kernel, group)| named_alike(kernel, &group)).collect()
}

fn named_alike<'k>(kernel: &str, group: &[&'k KernelKey]) -> Vec<(String, &'k KernelKey)> {
    let count = |name: &str| -> usize {
        group.iter().map(|key| key.bindings.get(name)).collect::<BTreeSet<_>>().len()
    };
    let all: BTreeSet<&str> =
        group.iter().flat_map(|key| key.bindings.keys().map(String::as_str)).collect();
    let mut differing: Vec<&str> = all.into_iter().filter(|name| count(name) > 1).collect();
    differing.sort_by_key(|name| (std::cmp::Reverse(count(name)), name.len()));
    let mut names = vec![kernel.to_owned(); group.len()];
    let distinct = |names: &[String]| names.iter().collect::<BTreeSet<_>>().len();
    for binding in differing {
        let longer: Vec<String> = names
            .iter()
            .zip(group)
            .map(|(name, key)| match key.bindings.get(binding) {
                Some(value) => format!("{name}_{}{value}", binding.to_lowercase()),
                None => name.clone(),
            })
            .collect();
        if distinct(&longer) > distinct(&names) {
            names = longer;
        }
    }
    names.into_iter().zip(group.iter().copied()).collect()
}
