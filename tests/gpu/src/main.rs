//! Every file test and every kernel of Kimi K3 on a GPU, on fresh random inputs, against the emulator.
//!
//! The program holds the emulator and no compiler: `gpu-tests sources` writes the kernels as a folder, `kernelc build`
//! makes a bundle of it, and `gpu-tests run` launches what is in the bundle and compares it with what the emulator
//! says of the same sources. `gpu-tests numerics` measures how far results are from the emulator's on many more
//! inputs. `gpu-tests sanitize` runs `gpu-tests run` under compute-sanitizer. `gpu-tests trap` shows on hardware the stale read that the audit looks for.
//! `gpu-tests hostile` gives `kimi-k3` bad input on a device, `gpu-tests upload` times the way of weights onto it.

mod arguments;
mod case;
mod flaw;
mod hostile;
mod judge;
mod machine;
mod numerics;
mod sanitize;
mod trap;
mod upload;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kernel_tests::gpu::{Source, folder, sources};
use libtest_mimic::{Completion, Failed, Trial};

use arguments::{Arguments, Task, USAGE};
use case::Bench;
use machine::Machine;

/// Why nothing was run.
enum Stop {
    /// The command line.
    Usage(String),
    /// A file, the driver, or the bundle.
    World(String),
}

fn main() -> ExitCode {
    kernel_abi::bundle::end_on_bus_error(4);
    kernel_abi::bundle::fail_at_size_limit();
    let done = Arguments::parse(std::env::args().skip(1)).map_err(Stop::Usage).and_then(|all| {
        match all.task {
            Task::Sources => write_sources(&all),
            Task::Run => run(&all),
            Task::Numerics => numerics::main(&all, say).map_err(Stop::World),
            Task::Sanitize => sanitize::main(&all, say).map_err(Stop::World),
            Task::Flaw => flaw::main(&all, say).map_err(Stop::World),
            Task::Trap => trap::main(&all, say).map_err(Stop::World),
            Task::Hostile => hostile::main(&all, say).map_err(Stop::World),
            Task::Upload => upload::main(&all, say).map_err(Stop::World),
        }
    });
    match done {
        Ok(code) => ExitCode::from(code),
        Err(Stop::Usage(reason)) => {
            say(&format!("error: {reason}\n{USAGE}"));
            ExitCode::from(2)
        }
        Err(Stop::World(reason)) => {
            say(&format!("error: {reason}\n"));
            ExitCode::from(4)
        }
    }
}

fn say(text: &str) {
    // Whoever closed the pipe does not want to read.
    let _ = std::io::stdout().write_all(text.as_bytes());
    let _ = std::io::stdout().flush();
}

/// The folder of the file tests: the one that is named, that of the repository we are in, or that of the build.
fn suite(all: &Arguments) -> PathBuf {
    let here = Path::new("tests/suite");
    let own = || kernel_tests::program::package_folder().join("suite");
    all.suite.clone().unwrap_or_else(|| if here.is_dir() { here.to_owned() } else { own() })
}

fn write_sources(all: &Arguments) -> Result<u8, Stop> {
    let out = all.out.as_ref().ok_or_else(|| Stop::Usage("--out is missing".to_owned()))?;
    let sources = sources(&suite(all)).map_err(Stop::World)?;
    for (path, text) in folder(&sources) {
        write(&out.join(path), text.as_bytes()).map_err(Stop::World)?;
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
    let sources = sources(&suite(all)).map_err(Stop::World)?;
    let seed = all.seed.unwrap_or_else(fresh_seed);
    let bench = match Machine::open(all.device, all.care) {
        Ok(machine) => {
            let bundle = all.open_bundle().map_err(Stop::World)?;
            let info = machine.device.info();
            say(&format!("{}, seed {seed}: --seed {seed} repeats it\n", info.name));
            Ok(Arc::new(Bench::new(bundle, machine, seed).map_err(Stop::World)?))
        }
        Err(error) => Err(format!("{}: {error}", error.code().name())),
    };
    let trials = sources.into_iter().map(Arc::new).flat_map(|source| trials(&source, &bench));
    let conclusion = libtest_mimic::run(&harness, trials.collect());
    let code = u8::from(conclusion.has_failed());
    if let Ok(bench) = bench {
        if let Some(path) = &all.report {
            write(path, format!("{:#}\n", bench.report()).as_bytes()).map_err(Stop::World)?;
        }
        if bench.is_given_up() {
            // The end of the process would wait for the kernel that does not end.
            kernel_runtime::end_process(code.max(1));
        }
    }
    Ok(code)
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
