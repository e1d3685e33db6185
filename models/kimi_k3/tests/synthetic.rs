//! Random weights: they load, they are the same for a seed, and the model that they make computes numbers of a
//! sensible size.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::path::Path;

use kimi_k3::checkpoint::SINGLE_FILE;
use kimi_k3::reference::model::{Model, State};
use kimi_k3::synthetic::{TINY_RANDOM, write_checkpoint};
use kimi_k3::{Checkpoint, Config};

fn bytes(config: &Config, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_checkpoint(config, seed, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_random_model_runs_and_depends_on_its_seed() {
    let config = Config::parse(TINY_RANDOM).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("synthetic");
    std::fs::create_dir_all(&folder).unwrap();
    let file = bytes(&config, 7);
    std::fs::write(folder.join(SINGLE_FILE), &file).unwrap();
    let checkpoint = Checkpoint::open(&folder).unwrap();
    checkpoint.check(&config).unwrap();
    let model = Model::load(&config, &checkpoint).unwrap();
    let mut state = State::new(&config);
    let mut last = Vec::new();
    for token in [0, 17, 2047, 17] {
        let mut sizes = Vec::new();
        let x = model.step(&mut state, token, &mut |layer, name, values| {
            if name == "p_out" {
                sizes.push((layer, rms(values)));
            }
        });
        assert_eq!(sizes.len(), 5);
        assert!(sizes.iter().all(|(_, rms)| (0.1..100.0).contains(rms)), "{sizes:?}");
        let logits = model.logits(&x);
        assert!((0.1..10.0).contains(&rms(&logits)), "{}", rms(&logits));
        assert_ne!(logits, last, "the state matters");
        last = logits;
    }
    drop(checkpoint);
    std::fs::remove_dir_all(&folder).unwrap();
    let mut small = config;
    small.layers.truncate(2);
    small.moe.experts = 2;
    let again = bytes(&small, 7);
    assert_eq!(again, bytes(&small, 7));
    assert_ne!(again, bytes(&small, 8));
}

fn rms(values: &[f64]) -> f64 {
    (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt()
}
