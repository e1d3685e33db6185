//! The times of every kernel of a bundle on a GPU: events around graphs of launches, a cold second-level cache,
//! contenders by turns, and the rate of copies of the same run beside them. It holds no compiler.

mod arguments;
mod contenders;
mod data;
mod measure;
mod report;
#[cfg(test)]
mod testing;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kernel_abi::bundle::{Bundle, BundleError, Policy, end_on_bus_error, fail_at_size_limit};
use kernel_abi::whole::WholeFile;
use kernel_runtime::kernel::fits;
use kernel_runtime::{Device, Pool, RuntimeError, probe, timing};
use serde_json::{Value, json};

use arguments::{Arguments, USAGE};
use measure::Zeros;
use report::Row;

/// Bytes of the copies that the rate of the device is measured with.
const COPY_BYTES: u64 = 1 << 30;

/// Why nothing was measured.
enum Stop {
    /// The command line.
    Usage(String),
    /// A file.
    World(String),
    /// The bundle.
    Bundle(BundleError),
    /// The driver, the device, or a kernel.
    Runtime(RuntimeError),
}

impl From<RuntimeError> for Stop {
    fn from(error: RuntimeError) -> Stop {
        Stop::Runtime(error)
    }
}

fn main() -> ExitCode {
    end_on_bus_error(4);
    fail_at_size_limit();
    if let Some(text) = arguments::asked(std::env::args().skip(1)) {
        say(text);
        return ExitCode::SUCCESS;
    }
    let done = Arguments::parse(std::env::args().skip(1)).map_err(Stop::Usage).and_then(run);
    let code = match done {
        Ok(code) => code,
        Err(Stop::Usage(reason)) => {
            complain(&format!("error: {reason}\n{USAGE}"));
            2
        }
        Err(Stop::World(reason)) => {
            complain(&format!("error: {reason}\n"));
            4
        }
        Err(Stop::Bundle(error)) => {
            complain(&format!("error[{}]: {error}\n", error.code.name()));
            if error.code.is_of_the_world() { 4 } else { 1 }
        }
        Err(Stop::Runtime(error)) => {
            complain(&format!("error[{}]: {error}\n", error.code().name()));
            let code = if error.is_of_the_world() { 4 } else { 2 };
            if error.leaves_work_behind() {
                kernel_runtime::end_process(code);
            }
            code
        }
    };
    ExitCode::from(code)
}

fn say(text: &str) {
    // Whoever closed the pipe does not want to read.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn run(all: Arguments) -> Result<u8, Stop> {
    let policy = Policy { allow_unaudited: all.allow_unaudited };
    let bundle = Bundle::open(&all.bundle, policy).map_err(Stop::Bundle)?;
    // What cannot be written is known before the work.
    let begin = |path: &PathBuf| WholeFile::create(path).map_err(|error| unwritten(path, &error));
    let file = all.json.as_ref().map(begin).transpose()?;
    let device = Device::open(all.device)?;
    let info = device.info().clone();
    let targets = bundle.targets();
    let target = targets.iter().rev().find(|target| fits(target, info.capability));
    let target = *target.ok_or_else(|| RuntimeError::Architecture {
        kernel: "the bundle".to_owned(),
        built_for: targets.iter().copied().collect::<Vec<_>>().join(", "),
        device: info.architecture(),
    })?;
    let groups = contenders::groups(&bundle, target, &all)?;
    let stream = measure::stream(&device)?;
    let copy_rate = timing::copy_rate(&stream, COPY_BYTES, all.runs.min(100) as usize)?;
    say(&format!(
        "{}, {target}, copies {:.3} TB/s (read and written)\n",
        info.name,
        copy_rate / 1e12
    ));
    let mut list: Vec<Value> = Vec::new();
    let mut zeros: Vec<Zeros> = Vec::new();
    let mut pool = Pool::new(device.clone());
    for group in &groups {
        let outcome = measure::group(&stream, &mut pool, group, &all)?;
        let rows: Vec<Row> = group
            .contenders
            .iter()
            .zip(&outcome.timed)
            .map(|(contender, timed)| Row::new(contender, timed, copy_rate))
            .collect();
        say(&report::table(&rows));
        for Zeros { name, bytes, sum } in &outcome.zeros {
            say(&format!("{bytes} bytes of `{name}` are not 0, the sum is {sum}\n"));
        }
        list.push(Value::from(rows.iter().map(|row| row.json().clone()).collect::<Vec<_>>()));
        zeros.extend(outcome.zeros);
    }
    let is_right = zeros.iter().all(|one| one.bytes == 0);
    if let Some((path, file)) = all.json.as_ref().zip(file) {
        let maker = bundle.maker();
        let report = json!({
            "date": report::now(),
            "gpu": info.name,
            "driver": probe()?.version,
            "multiprocessors": info.multiprocessors,
            "l2_bytes": info.l2_bytes,
            "target": target,
            "kernelc": maker.kernelc,
            "ptxas": maker.ptxas,
            "commit": all.commit,
            "command": std::env::args().skip(1).collect::<Vec<String>>(),
            "seed": all.seed,
            "cold": !all.is_warm,
            "begin": all.begin.name(),
            "repeat": all.repeat.name(),
            "copy_bytes_per_second": copy_rate,
            "groups": list,
            "bytes_not_zero": zeros
                .iter()
                .map(|one| json!({ "buffer": one.name, "bytes": one.bytes, "sum": one.sum }))
                .collect::<Vec<_>>(),
        });
        let written = file.finish_with(format!("{report:#}\n").as_bytes());
        written.map_err(|error| unwritten(path, &error))?;
    }
    Ok(u8::from(!is_right))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Stop {
    Stop::World(format!("{}: {error}", path.display()))
}
