//! One case: the kernel of the bundle on the device, its source on the emulator, the same inputs for both.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kernel_abi::bundle::{Bundle, KernelHead, KernelRef};
use kernel_abi::plan::ExtentSpec;
use kernel_abi::trace::{self, Names, Records};
use kernel_emulator::{Memory, Options, run_kernel};
use kernel_ir::kernel::ParamId;
use kernel_ir::ops::hardware::Slack;
use kernel_ir::pipeline::{self, Built};
use kernel_ir::print;
use kernel_runtime::kernel::fits;
use kernel_runtime::{DeviceInfo, KernelImage};
use kernel_tests::gpu::Source;
use kernel_tests::program::{bindings, target};
use kernel_tests::runner;
use libtest_mimic::{Completion, Failed};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::judge::{Tally, judge};
use crate::machine::Machine;

/// What all cases share.
#[derive(Debug)]
pub(crate) struct Bench {
    /// Compiled kernels.
    pub(crate) bundle: Bundle,
    /// The target of the bundle that the device runs.
    target: String,
    /// One launch at a time.
    machine: Mutex<Machine>,
    /// Of random inputs.
    seed: u64,
    /// What came out, one entry a case.
    rows: Mutex<Vec<Value>>,
    /// Events of cases that write them down, for viewers; by the name of the case.
    events: Mutex<BTreeMap<String, Value>>,
}

impl Bench {
    /// Puts bundle and device together.
    ///
    /// # Errors
    /// No kernel of the bundle runs on the device.
    pub(crate) fn new(bundle: Bundle, machine: Machine, seed: u64) -> Result<Bench, String> {
        let target = target_of(&bundle, machine.device.info())?;
        let machine = Mutex::new(machine);
        Ok(Bench {
            bundle,
            target,
            machine,
            seed,
            rows: Mutex::new(Vec::new()),
            events: Mutex::default(),
        })
    }

    /// Whether the kernels of a source are made for what the bundle is run for.
    pub(crate) fn is_for(&self, source: &Source) -> bool {
        source.targets.iter().any(|target| target.name() == self.target)
    }

    /// The report so far as JSON.
    pub(crate) fn report(&self) -> Value {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone();
        rows.sort_by_key(|row| row["name"].to_string());
        let machine = self.machine();
        json!({
            "gpu": machine.device.info().name,
            "target": self.target,
            "seed": self.seed,
            "most_bytes_of_buffers": machine.peak_bytes(),
            "cases": rows,
        })
    }

    /// Whether the device was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.machine().device.is_given_up()
    }

    /// Runs a case of a source.
    pub(crate) fn run(&self, source: &Source, number: usize) -> Result<Completion, Failed> {
        let name = &source.cases[number].name;
        let outcome = self.compare(source, number);
        let (status, tally, text) = match &outcome {
            Ok(Outcome::Agrees(tally)) => ("ok", *tally, None),
            Ok(Outcome::Differs(tally, text)) => ("failed", *tally, Some(text.clone())),
            Err(text) => ("failed", Tally::default(), Some(text.clone())),
        };
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).push(json!({
            "name": name,
            "status": status,
            "compared": tally.compared,
            "outside": tally.outside,
            "max_ulp": tally.max_ulp,
            "message": text,
        }));
        match outcome? {
            Outcome::Agrees(_) => Ok(Completion::Completed),
            Outcome::Differs(tally, text) => Err(Failed::from(format!(
                "{} of {} elements differ, up to {} codes, with seed {}; {text}",
                tally.outside, tally.compared, tally.max_ulp, self.seed
            ))),
        }
    }

    fn compare(&self, source: &Source, number: usize) -> Result<Outcome, String> {
        let (bundled, prepared) = self.prepare(source, number)?;
        let params = &prepared.built.kernel.params;
        let ran = self.machine().run(&KernelImage::of(bundled), params, &prepared.memory);
        let mut outputs = ran.map_err(|stop| stop.to_string())?;
        let traced = outputs.iter().position(|(id, _)| params[*id].name == trace::PARAM);
        if let Some(at) = traced {
            let (_, bytes) = outputs.remove(at);
            let events = events(bundled.head(), &bytes)?;
            let mut all = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(source.cases[number].name.clone(), events);
        }
        prepared.judge(outputs)
    }

    /// The events of all cases that wrote them down, one entry a case.
    pub(crate) fn events(&self) -> Value {
        json!(*self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The device, for one launch at a time.
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel of a case in the bundle, and what the emulator makes of its source.
    pub(crate) fn prepare(
        &self,
        source: &Source,
        number: usize,
    ) -> Result<(KernelRef<'_>, Prepared), String> {
        let (case, name) = (&source.cases[number], source.bundled(number));
        let bundled = self.bundle.artefact(&name, &self.target).ok_or_else(|| {
            format!("the bundle has no `{name}` for {}; build it from these sources", self.target)
        })?;
        let program = source.program();
        let template = program.front.template(&case.kernel).ok_or("the file has no such kernel")?;
        let bindings = bindings(template, &case.bind);
        let bindings = match room(bundled.head()) {
            Some(records) => bindings.traced(records),
            None => bindings,
        };
        let target = target(&self.target)?.ok_or("the bundle states no target")?;
        let built =
            pipeline::build(template, &bindings, target).map_err(|found| program.show(&found))?;
        if hash(&print::kernel(&built.kernel)) != bundled.head().kernel_ir {
            return Err("the bundle was built from another source".to_owned());
        }
        let mut directives = case.directives.clone();
        directives.seed = self.seed;
        let further = case.is_further.then_some(&case.bind);
        let memory = runner::memory(&built, &directives, further)?;
        let mut wanted = memory.clone();
        run_kernel(&built.kernel, &mut wanted, &Options::STANDARD)
            .map_err(|error| format!("on the emulator: {error}"))?;
        Ok((bundled, Prepared { built, memory, wanted, slack: case.directives.gpu }))
    }
}

/// Room of a kernel for records of each CTA and role, where it writes its events down.
fn room(head: &KernelHead) -> Option<u32> {
    let param = head.signature.param(trace::PARAM)?;
    let [ExtentSpec::Const(words)] = param.shape.as_slice() else { return None };
    let part = trace::part_words(*words, ctas(head), head.roles.len());
    Some(trace::records(part))
}

fn ctas(head: &KernelHead) -> u64 {
    head.launch.grid.iter().map(|&extent| u64::from(extent)).product()
}

/// What a launch has written down, for viewers.
///
/// # Errors
/// An event that the kernel does not have, or a thread whose time goes back.
fn events(head: &KernelHead, bytes: &[u8]) -> Result<Value, String> {
    let (words, _) = bytes.as_chunks::<8>();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let records = Records::read(&words, ctas(head), head.roles.len());
    for pair in records.list.windows(2) {
        let is_one = (pair[0].cta, pair[0].role) == (pair[1].cta, pair[1].role);
        if is_one && (pair[0].time > pair[1].time || pair[0].clock >= pair[1].clock) {
            return Err(format!("CTA {} has gone back in time", pair[0].cta));
        }
    }
    match records.list.iter().find(|record| head.events.len() <= record.event as usize) {
        Some(record) => Err(format!("CTA {} has written an unknown event", record.cta)),
        None if records.list.is_empty() && records.dropped == 0 => {
            Err("nothing was written down".to_owned())
        }
        None => {
            let names = Names { events: &head.events, roles: &head.roles, unit: "ns" };
            let text = trace::chrome(names, &[records]);
            serde_json::from_str(&text).map_err(|error| error.to_string())
        }
    }
}

/// A case before its launch on a device.
pub(crate) struct Prepared {
    /// The kernel as the emulator has it.
    pub(crate) built: Built,
    /// What the launch is given.
    pub(crate) memory: Memory,
    /// What it must leave.
    wanted: Memory,
    slack: Slack,
}

impl Prepared {
    /// Compares what a launch left in its outputs.
    pub(crate) fn judge(&self, outputs: Vec<(ParamId, Vec<u8>)>) -> Result<Outcome, String> {
        let (mut all, mut first) = (Tally::default(), None);
        for (id, bytes) in outputs {
            let buffer = self.wanted.buffer(id).ok_or("an output is no buffer")?;
            let (tally, text) = judge(buffer, &bytes, self.slack);
            all.add(tally);
            let name = &self.built.kernel.params[id].name;
            first = first.or(text.map(|text| format!("`{name}` {text}")));
        }
        Ok(match first {
            None => Outcome::Agrees(all),
            Some(text) => Outcome::Differs(all, text),
        })
    }
}

/// What a comparison says.
pub(crate) enum Outcome {
    Agrees(Tally),
    Differs(Tally, String),
}

/// The target of a bundle that a device runs.
///
/// # Errors
/// There is none.
pub(crate) fn target_of(bundle: &Bundle, info: &DeviceInfo) -> Result<String, String> {
    let fitting = |target: &&str| fits(target, info.capability);
    let found = bundle.targets().into_iter().find(fitting).map(str::to_owned);
    found.ok_or_else(|| {
        let targets: Vec<&str> = bundle.targets().into_iter().collect();
        format!("the bundle is for {}, the device is {}", targets.join(", "), info.architecture())
    })
}

/// What a bundle knows a kernel by.
pub(crate) fn hash(text: &str) -> String {
    kernel_abi::hex::text(&Sha256::digest(text.as_bytes()))
}
