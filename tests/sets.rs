//! `build.toml` names every kernel of every decode plan that is compiled ahead, and the verifier accepts each.

use std::collections::BTreeSet;

use kernel_tests::k3;
use kernel_tests::sets::{MARK, kernels, text};
use kimi_k3::sets::SETS;
use rayon::prelude::*;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/kimi_k3/kernels/build.toml");

#[test]
fn the_sets_are_those_of_the_plans() {
    let file = std::fs::read_to_string(PATH).unwrap();
    let by_hand = &file[..file.find(MARK).unwrap()];
    let wanted = format!("{by_hand}{}", text().unwrap());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, &wanted).unwrap();
    }
    let file = std::fs::read_to_string(PATH).unwrap();
    let differs = file.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(file == wanted, "run it with BLESS=1; the first line that differs: {differs:?}");
}

#[test]
fn every_kernel_of_the_sets_is_accepted() {
    let mut keys = BTreeSet::new();
    for set in SETS.iter() {
        keys.extend(kernels(set).unwrap());
    }
    let refused: Vec<String> = keys
        .into_par_iter()
        .filter_map(|key| {
            let bind: Vec<(&str, i64)> =
                key.bindings.iter().map(|(name, value)| (name.as_str(), *value)).collect();
            k3::build(&key.file, &key.kernel, &bind).err().map(|found| format!("{key}: {found}"))
        })
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
