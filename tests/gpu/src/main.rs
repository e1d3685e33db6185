//! Every file test and every kernel of Kimi K3 on a GPU, on fresh random inputs, against the emulator.
//!
//! The program holds the emulator and no compiler: `gpu-tests sources` writes the kernels as a folder, `kernelc build`
//! makes a bundle of it, and `gpu-tests run` launches what is in the bundle and compares it with what the emulator
//! says of the same sources. `gpu-tests numerics` measures how far results are from the emulator's on many more
//! inputs. `gpu-tests plan` runs a plan as graphs, `gpu-tests fallback` kernels whose machine code is harmed, and
//! `gpu-tests hang` a step that does not end. `gpu-tests sanitize` runs `gpu-tests run` under compute-sanitizer.
//! `gpu-tests trap` shows on hardware the stale read that the audit looks for. `gpu-tests hostile` gives `kimi-k3` bad
//! input on a device, `gpu-tests upload` times the way of weights onto it. `gpu-tests ranks` runs the kernels of
//! `tests/ranks` on several devices at once.

mod arguments;
mod by_hand;
mod case;
mod child;
mod fallback;
mod flaw;
mod hang;
mod hostile;
mod judge;
mod machine;
mod numerics;
mod plan;
mod ranks;
mod report;
mod sanitize;
mod suite;
mod trap;
mod upload;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kernel_tests::gpu::{Source, folder, sources, sources_of};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::{Value, json};

use arguments::{Arguments, Task, USAGE};
use case::Bench;
use machine::Machine;
use report::Report;

/// Why nothing was run.
#[derive(Debug)]
enum Stop {
    /// The command line.
    Usage(String),
    /// What stands in the bundle.
    Refused(String),
    /// A file, or the driver.
    World(String),
}

impl From<String> for Stop {
    fn from(reason: String) -> Stop {
        Stop::World(reason)
    }
}

fn main() -> ExitCode {
    kernel_abi::bundle::end_on_bus_error(4);
    kernel_abi::bundle::fail_at_size_limit();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        say(USAGE);
        return ExitCode::SUCCESS;
    }
    if words.first().is_some_and(|word| word == "--version" || word == "-V") {
        say(concat!("gpu-tests ", env!("CARGO_PKG_VERSION"), "\n"));
        return ExitCode::SUCCESS;
    }
    let done =
        Arguments::parse(words.into_iter()).map_err(Stop::Usage).and_then(|all| match all.task {
            Task::Sources => write_sources(&all),
            Task::Run => run(&all),
            Task::Plan => plan::main(&all, say),
            Task::Fallback => fallback::main(&all, &own_sources(&all)?, say),
            Task::Hang => hang::main(&all, say),
            Task::Numerics => numerics::main(&all, say),
            Task::Sanitize => Ok(sanitize::main(&all, say)?),
            Task::Flaw => Ok(flaw::main(&all, say)?),
            Task::Trap => trap::main(&all, say),
            Task::Hostile => Ok(hostile::main(&all, say)?),
            Task::Upload => upload::main(&all, say),
            Task::Ranks => ranks::main(&all, say),
        });
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Usage(reason)) => {
            complain(&format!("error: {reason}\n{USAGE}"));
            ExitCode::from(2)
        }
        Err(Stop::Refused(reason)) => {
            complain(&format!("error: {reason}\n"));
            ExitCode::from(1)
        }
        Err(Stop::World(reason)) => {
            complain(&format!("error: {reason}\n"));
            ExitCode::from(4)
        }
    }
}

fn say(text: &str) {
    // Whoever closed the pipe does not want to read.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

fn complain(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The file tests of the named folder, otherwise those of the program, and the kernels of Kimi K3.
fn own_sources(all: &Arguments) -> Result<Vec<Source>, String> {
    match &all.suite {
        Some(folder) => sources(folder),
        None => sources_of(&suite::texts()),
    }
}

fn write_sources(all: &Arguments) -> Result<u8, Stop> {
    let out = all.out.as_ref().ok_or_else(|| Stop::Usage("--out is missing".to_owned()))?;
    let sources = own_sources(all)?;
    for (path, text) in folder(&sources) {
        write(&out.join(path), text.as_bytes())?;
    }
    let cases: usize = sources.iter().map(|source| source.cases.len()).sum();
    say(&format!("{cases} cases of {} files in {}\n", sources.len(), out.display()));
    Ok(0)
}

/// Writes a file and the folders that it lies in.
fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let written = match path.parent() {
        Some(folder) => std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, bytes)),
        None => std::fs::write(path, bytes),
    };
    written.map_err(|error| format!("{}: {error}", path.display()))
}

fn run(all: &Arguments) -> Result<u8, Stop> {
    let harness = libtest_mimic::Arguments::from_iter(
        std::iter::once("gpu-tests".to_owned()).chain(all.rest.iter().cloned()),
    );
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    let events = Report::create(all.trace.as_deref())?;
    let sources = own_sources(all)?;
    let seed = all.seed.unwrap_or_else(fresh_seed);
    let bench = match Machine::open(all.device, all.care) {
        Ok(machine) => {
            let info = machine.device.info();
            say(&format!("{}, seed {seed}: --seed {seed} repeats it\n", info.name));
            Ok(Arc::new(Bench::new(bundle, machine, seed)?))
        }
        Err(error) => Err(format!("{}: {error}", error.code().name())),
    };
    let fits = |source: &Source| bench.as_ref().map_or(true, |bench| bench.is_for(source));
    let trials =
        sources.into_iter().filter(fits).map(Arc::new).flat_map(|source| trials(&source, &bench));
    let conclusion = libtest_mimic::run(&harness, trials.collect());
    let code = u8::from(conclusion.has_failed());
    match bench {
        Ok(bench) => {
            report.finish(&bench.report())?;
            events.finish(&bench.events())?;
            if bench.is_given_up() {
                // The end of the process would wait for the kernel that does not end.
                kernel_runtime::end_process(code.max(1));
            }
        }
        Err(reason) => report.finish(&without_device(seed, &reason, &conclusion))?,
    }
    Ok(code)
}

/// The report where there is no device.
fn without_device(seed: u64, reason: &str, conclusion: &libtest_mimic::Conclusion) -> Value {
    json!({
        "gpu": null,
        "reason": reason,
        "seed": seed,
        "ignored": conclusion.num_ignored,
        "failed": conclusion.num_failed,
        "cases": [],
    })
}

/// One test a case.
fn trials(source: &Arc<Source>, bench: &Result<Arc<Bench>, String>) -> Vec<Trial> {
    let is_wanted = std::env::var_os("KERNEL_GPU").is_some_and(|value| value == "1");
    let trial = |number: usize| {
        let (source, bench) = (Arc::clone(source), bench.clone());
        Trial::ignorable_test(source.cases[number].name.clone(), move || match bench {
            Ok(bench) => bench.run(&source, number),
            Err(reason) if is_wanted => Err(Failed::from(reason)),
            Err(reason) => Ok(Completion::ignored_with(reason)),
        })
    };
    (0..source.cases.len()).map(trial).collect()
}

/// Another one for each second.
fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs())
}
