//! Makes the folder of cases that `tests/gpu/smoke.py` runs on a GPU.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use kernel_tests::gpu::{self, Config};

const USAGE: &str = "usage: gpu_cases --kernelc PATH --out DIR [--seed N] [--target sm_90a] [WORD…]\n\
    writes DIR/cases; then, on the machine with the GPU:\n\
    python3 tests/gpu/smoke.py DIR/cases --out result.json\n";

fn main() -> ExitCode {
    let (text, code) = match config(std::env::args().skip(1)) {
        Ok(config) => match gpu::make(&config) {
            Ok(count) => {
                let folder = config.out.join("cases");
                (format!("{count} cases in {}\n", folder.display()), ExitCode::SUCCESS)
            }
            Err(reason) => (format!("error: {reason}\n"), ExitCode::FAILURE),
        },
        Err(reason) => (format!("error: {reason}\n{USAGE}"), ExitCode::from(2)),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

fn config(mut args: impl Iterator<Item = String>) -> Result<Config, String> {
    let (mut kernelc, mut out, mut seed) = (None, None, 20_260_829);
    let (mut target, mut words) = ("sm_90a".to_owned(), Vec::new());
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--kernelc" => kernelc = Some(PathBuf::from(value()?)),
            "--out" => out = Some(PathBuf::from(value()?)),
            "--seed" => seed = value()?.parse().map_err(|_| "a seed is a number")?,
            "--target" => target = value()?,
            option if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            _ => words.push(arg),
        }
    }
    Ok(Config {
        kernelc: kernelc.ok_or("--kernelc is missing")?,
        out: out.ok_or("--out is missing")?,
        seed,
        target,
        words,
    })
}
