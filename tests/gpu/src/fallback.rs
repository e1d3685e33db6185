//! Kernels of a bundle whose machine code is missing or damaged on purpose: where the driver takes no machine code, its
//! compiler takes the PTX, the runtime says so, and the results are the same; what is no whole file is refused.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use kernel_runtime::{Code, DeviceInfo, KernelImage};
use kernel_tests::gpu::Source;
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::arguments::Arguments;
use crate::case::{Bench, Outcome};
use crate::machine::{Machine, Stop as LaunchStop};
use crate::report::Report;

/// The cases, from one that is exact to those with shared memory, reductions and asynchronous copies.
const CASES: [&str; 4] = ["ops/abs.tile", "kimi_k3/rms_norm", "kimi_k3/softmax", "kimi_k3/o_proj"];

/// What is done to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// Nothing.
    None,
    /// It has PTX alone.
    NoCode,
    /// Its machine code says that it is for another architecture.
    OtherArchitecture,
    /// The same, and it has no PTX.
    OtherArchitectureAlone,
    /// Its machine code is cut off.
    Cut,
}

const HARMS: [Harm; 5] =
    [Harm::None, Harm::NoCode, Harm::OtherArchitecture, Harm::OtherArchitectureAlone, Harm::Cut];

/// What must come of it.
#[derive(Debug, PartialEq, Eq)]
enum Want {
    /// The machine code runs, without a warning.
    Code,
    /// The driver compiles the PTX, with a warning.
    Ptx,
    /// It is refused, R0303.
    Refused,
}

impl Harm {
    fn name(self) -> &'static str {
        match self {
            Harm::None => "as it was built",
            Harm::NoCode => "without machine code",
            Harm::OtherArchitecture => "machine code of another architecture",
            Harm::OtherArchitectureAlone => "machine code of another architecture, without PTX",
            Harm::Cut => "machine code that is cut off",
        }
    }

    fn want(self) -> Want {
        match self {
            Harm::None => Want::Code,
            Harm::NoCode | Harm::OtherArchitecture => Want::Ptx,
            Harm::OtherArchitectureAlone | Harm::Cut => Want::Refused,
        }
    }

    /// The machine code afterwards.
    fn code(self, code: &[u8], info: &DeviceInfo) -> Option<Vec<u8>> {
        match self {
            Harm::None => Some(code.to_vec()),
            Harm::NoCode => None,
            Harm::OtherArchitecture | Harm::OtherArchitectureAlone => {
                Some(of_other_architecture(code, info.capability))
            }
            Harm::Cut => Some(code[..code.len() / 2].to_vec()),
        }
    }

    fn has_ptx(self) -> bool {
        self != Harm::OtherArchitectureAlone
    }
}

/// The flags of an ELF file hold the number of the architecture in one of their bytes, which one depends on the toolkit.
fn of_other_architecture(code: &[u8], (major, minor): (u32, u32)) -> Vec<u8> {
    const FLAGS: std::ops::Range<usize> = 48..52;
    let own = u8::try_from(major * 10 + minor).unwrap_or(u8::MAX);
    let other = if own == 90 { 100 } else { 90 };
    let mut harmed = code.to_vec();
    for byte in harmed.get_mut(FLAGS).into_iter().flatten() {
        if *byte == own {
            *byte = other;
        }
    }
    harmed
}

/// Harms every case in every way and writes the report; 1 where anything else came of one than must.
///
/// # Errors
/// There is no device, or the bundle does not fit it.
pub(crate) fn main(all: &Arguments, sources: &[Source], say: fn(&str)) -> Result<u8, crate::Stop> {
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    let machine = Machine::open(all.device, all.care)
        .map_err(|error| format!("{}: {error}", error.code().name()))?;
    let info = machine.device.info().clone();
    let seed = all.seed.unwrap_or_else(crate::fresh_seed);
    let bench = Bench::new(bundle, machine, seed)?;
    let mut rows = Vec::new();
    for name in CASES {
        let found = sources.iter().find_map(|source| {
            let number = source.cases.iter().position(|case| case.name == name)?;
            Some((source, number))
        });
        let (source, number) = found.ok_or_else(|| format!("there is no case `{name}`"))?;
        for harm in HARMS {
            let row = run(&bench, source, number, harm, &info)?;
            let verdict = if row["right"] == true { "right" } else { "WRONG" };
            say(&format!("{verdict}: {name}, {}: {}\n", harm.name(), row["outcome"]));
            rows.push(row);
        }
    }
    let is_right = rows.iter().all(|row| row["right"] == true);
    report.finish(&json!({
        "gpu": info.name,
        "driver": kernel_runtime::probe().map(|driver| driver.version).unwrap_or(0),
        "seed": seed,
        "all_right": is_right,
        "cases": rows,
    }))?;
    let code = u8::from(!is_right);
    if bench.is_given_up() {
        kernel_runtime::end_process(code.max(1));
    }
    Ok(code)
}

/// Loads and runs a case with its machine code harmed.
fn run(
    bench: &Bench,
    source: &Source,
    number: usize,
    harm: Harm,
    info: &DeviceInfo,
) -> Result<Value, String> {
    let (bundled, prepared) = bench.prepare(source, number)?;
    let whole = KernelImage::of(bundled);
    let code = whole.cubin.and_then(|code| harm.code(code, info));
    let ptx = whole.ptx.filter(|_| harm.has_ptx());
    let image = KernelImage { cubin: code.as_deref(), ptx, ..KernelImage::of(bundled) };
    let machine = bench.machine();
    let (loaded, warnings) = heard(|| machine.load(&image));
    let is_warned = warnings.iter().any(|text| text.contains("compiles the PTX"));
    let (outcome, is_compiled, agrees) = match &loaded {
        Ok(kernel) => {
            let ran = machine.launch(kernel, &prepared.built.kernel.params, &prepared.memory);
            match prepared.judge(ran.map_err(|stop| stop.to_string())?)? {
                Outcome::Agrees(tally) => {
                    (format!("{} elements agree", tally.compared), kernel.is_compiled_here(), true)
                }
                Outcome::Differs(_, text) => (text, kernel.is_compiled_here(), false),
            }
        }
        Err(stop) => (stop.to_string(), false, false),
    };
    let is_refused = match &loaded {
        Err(LaunchStop::Runtime(error)) => error.code() == Code::R0303,
        Err(LaunchStop::Guard(_) | LaunchStop::Missing(_)) | Ok(_) => false,
    };
    let is_right = match harm.want() {
        Want::Code => agrees && !is_compiled && warnings.is_empty(),
        Want::Ptx => agrees && is_compiled && is_warned,
        Want::Refused => is_refused && warnings.is_empty(),
    };
    Ok(json!({
        "case": source.cases[number].name,
        "machine_code": harm.name(),
        "outcome": outcome,
        "compiled_by_the_driver": is_compiled,
        "warnings": warnings,
        "right": is_right,
    }))
}

/// What `work` gives, and the warnings that were told meanwhile on this thread.
fn heard<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let done = tracing::subscriber::with_default(Listener(Arc::clone(&warnings)), work);
    let heard = warnings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (done, heard)
}

/// Keeps warnings.
struct Listener(Arc<Mutex<Vec<String>>>);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The fields of an event as text.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let space = if self.0.is_empty() { "" } else { ", " };
        self.0.push_str(&format!("{space}{}: {value:?}", field.name()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_there() {
        let sources = kernel_tests::gpu::sources_of(&crate::suite::texts()).expect("they are read");
        for name in CASES {
            let count = sources.iter().flat_map(|s| &s.cases).filter(|c| c.name == name).count();
            assert_eq!(count, 1, "{name}");
        }
    }

    #[test]
    fn warnings_are_heard() {
        let (done, warnings) = heard(|| {
            tracing::warn!(kernel = "gemv", "the driver compiles the PTX of a kernel");
            tracing::info!("loaded");
            7
        });
        assert_eq!(done, 7);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("compiles the PTX") && warnings[0].contains("gemv"));
    }

    #[test]
    fn machine_code_is_made_one_of_another_architecture() {
        let mut code = vec![0_u8; 64];
        code[49] = 90;
        code[60] = 90;
        let harmed = of_other_architecture(&code, (9, 0));
        assert_eq!((harmed[49], harmed[60]), (100, 90));
        assert_eq!(of_other_architecture(&harmed, (10, 0))[49], 90);
        assert_eq!(of_other_architecture(b"\x7fELF", (9, 0)), b"\x7fELF");
    }
}
