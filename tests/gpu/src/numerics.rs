//! How far a GPU is from the emulator and from the exact values: over all bf16 and over 10^7 random inputs and more.
//!
//! A kernel of `tests/gpu/numerics` runs on 2^20 elements at a time; the emulator runs it on the same elements on all
//! threads of the host, and every result is judged. Bounds come from [`kernel_ir::ops::hardware`].

mod checks;
mod inputs;
mod products;
mod tally;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use kernel_abi::{Access, DType};
use kernel_emulator::{Buffer, Memory, Options, run_device, run_kernel};
use kernel_ir::kernel::ParamId;
use kernel_ir::ops::UnaryOp;
use kernel_ir::ops::hardware::Slack;
use kernel_ir::pipeline::Built;
use kernel_ir::print;
use kernel_ir::target::Target;
use kernel_runtime::{KernelImage, probe};
use kernel_tests::program::{self, Program};
use serde_json::{Value, json};

use crate::Stop;
use crate::arguments::Arguments;
use crate::case::{hash, target_of};
use crate::machine::{Care, Machine};
use crate::report::Report;
use checks::{Check, Subject};
use inputs::{Place, Set};
use products::Matrices;
use tally::{Measured, merged, show};

/// Elements of one launch on a device, as `build.toml` has them.
const ELEMENTS: u64 = 1 << 20;
/// Elements of the one launch of a rehearsal.
const REHEARSED: u64 = 1 << 12;
/// Random elements of a set, at least.
const INPUTS: u64 = 10_000_000;

/// Runs a kernel and gives its outputs.
type Launch<'a> = dyn Fn(&Memory) -> Result<Vec<(ParamId, Vec<u8>)>, String> + Sync + 'a;

/// Measures, prints a line for each kernel and set, and writes the report; 1 where a bound does not hold.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    let chosen: Vec<Check> = checks::all(all.every)
        .into_iter()
        .filter(|check| {
            all.rest.is_empty() || all.rest.iter().any(|word| check.name.contains(word))
        })
        .collect();
    let report = Report::create(all.report.as_deref())?;
    let seed = all.seed.unwrap_or(1);
    let run = Run { seed, size: if all.rehearse { REHEARSED } else { ELEMENTS }, say };
    let mut head = json!({ "seed": seed });
    let (rows, is_given_up) = if all.rehearse {
        head = merged(head, json!({ "gpu": "none: the device level of the emulator" }));
        (run.rehearse(&chosen), false)
    } else {
        let bundle = all.open_bundle()?;
        let machine = Machine::open(all.device, Care::STANDARD)
            .map_err(|error| format!("{}: {error}", error.code().name()))?;
        let info = machine.device.info();
        let target = target_of(&bundle, info)?;
        let driver = probe().map(|driver| driver.version).unwrap_or_default();
        head = merged(head, json!({ "gpu": info.name, "driver_api": driver, "target": target }));
        let machine = Mutex::new(machine);
        let rows = run.on_device(&chosen, &bundle, &target, &machine);
        let machine = machine.into_inner().unwrap_or_else(PoisonError::into_inner);
        (rows, machine.device.is_given_up())
    };
    let code = match rows {
        Ok(rows) => {
            let holds = rows.iter().all(|row| row["holds"] == true);
            report.finish(&merged(head, json!({ "holds": holds, "rows": rows })))?;
            u8::from(!holds)
        }
        Err(reason) if is_given_up => {
            crate::complain(&format!("error: {reason}\n"));
            4
        }
        Err(reason) => return Err(reason.into()),
    };
    if is_given_up {
        kernel_runtime::end_process(code);
    }
    Ok(code)
}

struct Run {
    seed: u64,
    size: u64,
    say: fn(&str),
}

impl Run {
    fn on_device(
        &self,
        checks: &[Check],
        bundle: &kernel_abi::bundle::Bundle,
        target: &str,
        machine: &Mutex<Machine>,
    ) -> Result<Vec<Value>, String> {
        let mut rows = Vec::new();
        for check in checks {
            let built = self.build(check, program::target(target)?)?;
            let bundled = bundle
                .artefact(&check.name, target)
                .ok_or_else(|| format!("the bundle has no `{}` for {target}", check.name))?;
            if hash(&print::kernel(&built.kernel)) != bundled.head().kernel_ir {
                return Err(format!(
                    "`{}` of the bundle was built from another source",
                    check.name
                ));
            }
            let lock = || machine.lock().unwrap_or_else(PoisonError::into_inner);
            let kernel = lock().load(&KernelImage::of(bundled)).map_err(|stop| stop.to_string())?;
            let launch = |memory: &Memory| {
                let params = &built.kernel.params;
                lock().launch(&kernel, params, memory).map_err(|stop| stop.to_string())
            };
            rows.extend(self.measure(check, &built, &launch)?);
        }
        Ok(rows)
    }

    fn rehearse(&self, checks: &[Check]) -> Result<Vec<Value>, String> {
        let mut rows = Vec::new();
        for check in checks {
            let built = self.build(check, None)?;
            let launch = |memory: &Memory| {
                let mut memory = memory.clone();
                run_device(&built.device, &mut memory, &OPTIONS)
                    .map_err(|error| error.to_string())?;
                let outputs = outputs(&built).into_iter();
                Ok(outputs
                    .filter_map(|id| Some((id, memory.buffer(id)?.bytes().to_vec())))
                    .collect())
            };
            rows.extend(self.measure(check, &built, &launch)?);
        }
        Ok(rows)
    }

    fn build(&self, check: &Check, target: Option<Target>) -> Result<Built, String> {
        let (file, text) = check.file;
        let program =
            Program::of_text(file, text, &mut |path| Err(format!("there is no `{path}`")));
        let template = program.front.template(&check.kernel);
        let template = template.ok_or_else(|| format!("{file} has no `{}`", check.kernel))?;
        let mut bind = check.bind.clone();
        // A matrix product has 64 by 64 outputs.
        let size = if check.file.0 == "products.tile" { self.size / 4096 } else { self.size };
        bind.push(("N".to_owned(), size as i64));
        program.build(template, &bind, target)
    }

    /// One row for each set of inputs and each output.
    fn measure(
        &self,
        check: &Check,
        built: &Built,
        launch: &Launch<'_>,
    ) -> Result<Vec<Value>, String> {
        let mut rows = Vec::new();
        for set in &check.sets {
            let start = Instant::now();
            let measured = self.all_parts(check, *set, built, launch)?;
            let seconds = start.elapsed().as_secs_f64();
            let inputs = set.elements().unwrap_or(u64::MAX).min(self.parts(*set) * self.size);
            for (id, measured) in measured {
                let output = &built.kernel.params[id].name;
                let head = json!({
                    "kernel": check.name,
                    "output": output,
                    "inputs": set.name(),
                    "elements": inputs,
                });
                let verdict = if measured.outside == 0 { "holds" } else { "DOES NOT HOLD" };
                (self.say)(&format!(
                    "{} {output}, {}: {verdict}, {} outside, {} bits differ, ulp {}, abs {:e}, exact {:.3}, units {:.3} ({seconds:.1} s)\n",
                    check.name,
                    set.name(),
                    measured.outside,
                    measured.different,
                    measured.ulp.value,
                    measured.abs.value,
                    measured.exact.value,
                    measured.units.value,
                ));
                rows.push(merged(head, check.subject.row(&measured)));
            }
        }
        Ok(rows)
    }

    /// Launches that a set of inputs takes.
    fn parts(&self, set: Set) -> u64 {
        let wanted = if self.size == ELEMENTS { INPUTS } else { self.size };
        let elements = match set.elements() {
            Some(all) if self.size == ELEMENTS => all,
            Some(_) | None => wanted,
        };
        elements.div_ceil(self.size)
    }

    /// All launches of a set; the parts are joined in order, so that the report does not depend on threads.
    fn all_parts(
        &self,
        check: &Check,
        set: Set,
        built: &Built,
        launch: &Launch<'_>,
    ) -> Result<Vec<(ParamId, Measured)>, String> {
        let parts = self.parts(set);
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let found = Mutex::new(Vec::new());
        let work = || {
            while !failed.load(Ordering::Relaxed) {
                let part = next.fetch_add(1, Ordering::Relaxed);
                if part >= parts {
                    return;
                }
                let result = self.part(check, set, part, built, launch);
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                found.lock().unwrap_or_else(PoisonError::into_inner).push((part, result));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(usize::try_from(parts).unwrap_or(usize::MAX)) {
                scope.spawn(work);
            }
        });
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by_key(|(part, _)| *part);
        let mut all: Vec<(ParamId, Measured)> =
            outputs(built).into_iter().map(|id| (id, Measured::default())).collect();
        for (_, result) in found {
            for ((_, all), one) in all.iter_mut().zip(result?) {
                all.add(one);
            }
        }
        Ok(all)
    }

    /// One launch: what was measured of each output.
    fn part(
        &self,
        check: &Check,
        set: Set,
        part: u64,
        built: &Built,
        launch: &Launch<'_>,
    ) -> Result<Vec<Measured>, String> {
        let params = &built.kernel.params;
        let mut memory = Memory::new(params);
        let mut given = Vec::new();
        let depth = check.subject_depth();
        for (id, param) in params.iter_enumerated() {
            if param.access != Access::Input {
                continue;
            }
            let elements = param.const_len().ok_or("an extent is no constant")?;
            let place = Place {
                operand: given.len() as u64,
                dtype: param.dtype,
                first: part * elements,
                depth,
            };
            let bytes = inputs::bytes(set, place, elements as usize, self.seed);
            let buffer = Buffer::filled(param.dtype, bytes);
            memory.set_buffer(id, buffer.clone());
            given.push((param.name.as_str(), buffer));
        }
        memory.fill_missing(params, self.seed).map_err(|error| error.to_string())?;
        let mut wanted = memory.clone();
        run_kernel(&built.kernel, &mut wanted, &OPTIONS)
            .map_err(|error| format!("on the emulator: {error}"))?;
        let got = launch(&memory).map_err(|reason| format!("{}: {reason}", check.name))?;
        let mut all = Vec::new();
        for (id, bytes) in got {
            let want = wanted.buffer(id).ok_or("an output is no buffer")?;
            all.push(judge(check.subject, &given, want, &Buffer::filled(want.dtype(), bytes))?);
        }
        Ok(all)
    }
}

/// The parts are what runs in parallel.
const OPTIONS: Options = Options { parallel: false, ..Options::STANDARD };

/// Parameters that the kernel writes.
fn outputs(built: &Built) -> Vec<ParamId> {
    let params = built.kernel.params.iter_enumerated();
    params.filter(|(_, param)| param.access == Access::Output).map(|(id, _)| id).collect()
}

impl Check {
    /// Products of one output: what the inputs of a product of matrices depend on.
    fn subject_depth(&self) -> u64 {
        let bound = self.bind.iter().find(|(name, _)| name == "K");
        bound.and_then(|(_, k)| u64::try_from(*k).ok()).unwrap_or(16)
    }
}

impl Subject {
    fn row(self, measured: &Measured) -> Value {
        match self {
            Subject::Exact => merged(measured.json(), json!({ "bound": "the same bits" })),
            Subject::Function(op) => measured.json_of_function(Slack::of(op)),
            Subject::Product { depth } => {
                measured.json_of_product(products::unit_name(depth), products::bound(depth))
            }
        }
    }
}

/// Every element of an output.
fn judge(
    subject: Subject,
    given: &[(&str, Buffer)],
    want: &Buffer,
    got: &Buffer,
) -> Result<Measured, String> {
    let mut all = Measured::default();
    let code = |buffer: &Buffer, index| buffer.code(index).ok_or("an element was not written");
    let at = |index: usize| {
        let operands = given.iter().filter(|(_, buffer)| buffer.len() == want.len());
        let shown: Vec<String> = operands
            .filter_map(|(name, buffer)| {
                Some(format!("{name} = {}", show(buffer.dtype(), buffer.code(index)?)))
            })
            .collect();
        if shown.is_empty() { format!("element {index}") } else { shown.join(", ") }
    };
    match subject {
        Subject::Exact => {
            for index in 0..want.len() {
                let (got, want_code) = (code(got, index)?, code(want, index)?);
                all.exact(want.dtype(), got, want_code, || at(index));
            }
        }
        Subject::Function(op) => {
            let [(_, x)] = given else { return Err("a function has one input".to_owned()) };
            for index in 0..want.len() {
                let x = f32::from_bits(code(x, index)? as u32);
                let (got, want) = (code(got, index)? as u32, code(want, index)? as u32);
                all.near(got, want, exact_value(op, f64::from(x)), Slack::of(op), || at(index));
            }
        }
        Subject::Product { depth } => {
            let matrices = Matrices::of(given, depth as usize).ok_or("a product has two inputs")?;
            for index in 0..want.len() {
                let (got, want) = (code(got, index)? as u32, code(want, index)? as u32);
                if let Some(aligned) = matrices.aligned(index) {
                    all.alike(got, aligned);
                }
                match matrices.unit(index, f32::from_bits(want)) {
                    Some(unit) => {
                        all.sum(got, want, unit, products::bound(depth), || matrices.show(index))
                    }
                    None => all.unjudged += 1,
                }
            }
        }
    }
    debug_assert!(want.dtype() == DType::F32 || subject == Subject::Exact);
    Ok(all)
}

/// The mathematical function, in f64.
fn exact_value(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Abs => x.abs(),
        UnaryOp::Neg => -x,
        UnaryOp::Not | UnaryOp::ScaleUp => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(_: &str) {}

    /// The device level with every result moved by so many codes.
    fn rows(name: &str, codes: u32) -> Vec<Value> {
        let run = Run { seed: 3, size: REHEARSED, say: quiet };
        let check = checks::all(false).into_iter().find(|check| check.name == name).unwrap();
        let built = run.build(&check, None).unwrap();
        let launch = |memory: &Memory| {
            let mut memory = memory.clone();
            run_device(&built.device, &mut memory, &OPTIONS).unwrap();
            let moved = |id: ParamId| {
                let bytes = memory.buffer(id).unwrap().bytes().chunks(4);
                let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
                // Zeros, infinities and NaN stay.
                let up = |w: u32| if f32::from_bits(w).is_normal() { w + codes } else { w };
                (id, bytes.flat_map(|b| up(word(b)).to_le_bytes()).collect())
            };
            Ok(outputs(&built).into_iter().map(moved).collect())
        };
        run.measure(&check, &built, &launch).unwrap()
    }

    #[test]
    fn a_function_is_judged_by_its_bound() {
        for row in rows("of_exp2", 0) {
            assert_eq!((&row["holds"], &row["bits_differ"]), (&json!(true), &json!(0)));
            assert!(row["greatest_ulp_from_exact"]["value"].as_f64().unwrap() <= 0.5);
        }
        let most = Slack::of(UnaryOp::Exp2).ulp as u32;
        for row in rows("of_exp2", most) {
            assert_eq!(
                (&row["holds"], &row["greatest_ulp"]["value"]),
                (&json!(true), &json!(f64::from(most)))
            );
        }
        for row in rows("of_exp2", most + 1) {
            assert_eq!(row["holds"], json!(false), "{row}");
            assert!(row["first_outside"].as_str().unwrap().starts_with("x = "), "{row}");
        }
    }

    #[test]
    fn sums_and_exact_results_are_judged_too() {
        for row in rows("order_rows", 1) {
            assert_eq!(row["holds"], json!(false));
        }
        let groups = rows("group_bf16", 1);
        assert!(groups.len() == 5 && groups.iter().all(|row| row["holds"] == true));
        // One code is at most two units of the greatest of what was added.
        assert!(groups.iter().all(|row| row["greatest"]["value"].as_f64().unwrap() <= 2.0));
        assert!(groups[0]["greatest"]["value"].as_f64().unwrap() > 0.25);
    }
}
