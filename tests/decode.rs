//! Whole models on the emulator: kimi-k3-mini against its goldens in the formats of the real model, tensor-parallel
//! ranks against one, and rows against each other.

mod decode {
    pub(crate) mod goldens;
    pub(crate) mod ranks;
    pub(crate) mod shapes;
}

use std::process::ExitCode;

use kimi_k3::sets::Model;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for prompt in ["text", "code", "recall", "json"] {
        trials.push(trial(format!("goldens {prompt}"), move || decode::goldens::check(prompt)));
    }
    for ranks in [2, 4] {
        trials.push(trial(format!("mini ranks={ranks}"), move || decode::ranks::mini(ranks)));
    }
    trials.push(trial("tiny_random ranks=16".to_owned(), || decode::ranks::tiny_random(16)));
    for rows in [2, 8] {
        trials.push(trial(format!("mini rows={rows}"), move || decode::ranks::rows(rows)));
    }
    for model in [Model::K3, Model::Mini] {
        for (ranks, rows) in decode::shapes::all(model) {
            let name = format!("plan of {} ranks={ranks} rows={rows}", decode::shapes::name(model));
            trials.push(trial(name, move || decode::shapes::holds(model, ranks, rows)));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: String, test: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(name, move || test().map_err(Failed::from))
}
