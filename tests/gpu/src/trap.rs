//! The stale read of `tests/suite/audit/basic/flag_then_barrier_trap.ptx` on hardware: `k3` beside a kernel that writes
//! what it waits for, once with the non-coherent loads that it has and once with plain ones; and a pair of `.tile`
//! kernels that overlap through `grid_launch` and `grid_wait`.
//!
//! `k3` reads `x[0..128]`, thread 0 waits for the flag, a barrier follows, and then `x[128..256]` is read by a load of
//! the kind in question and `x[256..384]` by a plain one. The assembler may lift the former over the wait. The reader
//! is started first; the writer waits until it must have read what it reads too early.

use std::path::Path;
use std::time::Duration;

use kernel_abi::bundle::Bundle;
use kernel_abi::{Access, DType};
use kernel_runtime::kernel::fits;
use kernel_runtime::launch::Given;
use kernel_runtime::{Buffer, Device, Event, Kernel, KernelImage, RuntimeError, Stream, Value};
use serde_json::json;

use crate::Stop;
use crate::arguments::Arguments;
use crate::by_hand;
use crate::report::Report;

const TRAP: &str = include_str!("../../suite/audit/basic/flag_then_barrier_trap.ptx");

/// Writes `x[128..384]` a tenth of a millisecond after its start, and then the flag.
const WRITER: &str = "\
.version 8.8
.target sm_100a
.address_size 64
.visible .entry writer(.param .u64 x, .param .u64 flag)
.reqntid 128
{
  .reg .b32 %r<4>; .reg .b64 %rd<9>; .reg .f32 %f<3>; .reg .pred %p<3>;
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [flag];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  mov.u64 %rd5, %globaltimer;
  add.s64 %rd6, %rd5, 100000;
W:
  mov.u64 %rd7, %globaltimer;
  setp.lt.u64 %p1, %rd7, %rd6;
  @%p1 bra W;
  mov.f32 %f1, 0f40000000;
  mov.f32 %f2, 0f41A00000;
  st.global.f32 [%rd4+512], %f1;
  st.global.f32 [%rd4+1024], %f2;
  bar.sync 0;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra E;
  fence.acq_rel.sys;
  mov.u32 %r2, 1;
  st.release.sys.global.b32 [%rd2], %r2;
E:
  ret;
}
";

/// What `x[0..128]`, `x[128..256]` and `x[256..384]` hold before and after the writer.
const BEFORE: [f32; 3] = [0.0, 1.0, 10.0];
const AFTER: [f32; 3] = [0.0, 2.0, 20.0];
const THREADS: u64 = 128;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The three modules: name, symbol, PTX.
fn modules(target: &str) -> [(&'static str, &'static str, String); 3] {
    let of = |text: &str| text.replace(".target sm_100a", &format!(".target {target}"));
    let plain = TRAP.replace("ld.global.nc.f32", "ld.global.f32");
    [("trap", "k3", of(TRAP)), ("plain", "k3", of(&plain)), ("writer", "writer", of(WRITER))]
}

/// Writes the PTX, or runs everything and says how often which value came.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    if let Some(folder) = &all.ptx {
        for (name, _, text) in modules(&all.target) {
            crate::write(&folder.join(format!("{name}.ptx")), text.as_bytes())?;
        }
        say(&format!(
            "for each: ptxas -arch={} {}/NAME.ptx -o NAME.cubin\n",
            all.target,
            folder.display()
        ));
        return Ok(0);
    }
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    let device = Device::open(all.device).map_err(show)?;
    let outcome = measure(all, &bundle, &device);
    let code = match &outcome {
        Ok(counts) => {
            say(&counts.text());
            report.finish(&json!({
                "gpu": device.info().name,
                "runs": all.runs,
                "machine_code": if all.cubins.is_some() { "ptxas" } else { "the driver" },
                "non_coherent": counts.trap.json(),
                "plain": counts.plain.json(),
                "pair_right": counts.pair.right,
                "pair_us": counts.pair.early_us,
                "pair_one_after_the_other_us": counts.pair.plain_us,
            }))?;
            u8::from(!counts.are_as_expected(all.runs))
        }
        Err(reason) => {
            crate::complain(&format!("error: {reason}\n"));
            4
        }
    };
    if device.is_given_up() {
        kernel_runtime::end_process(code);
    }
    Ok(code)
}

fn show(error: RuntimeError) -> String {
    format!("{}: {error}", error.code().name())
}

/// Runs by what the reader saw.
#[derive(Debug, Default)]
struct Seen {
    /// Every thread saw the new values behind the wait.
    fresh: u32,
    /// Some thread saw an old value with the load in question.
    stale: u32,
    /// Some thread saw something else.
    other: u32,
}

impl Seen {
    fn json(&self) -> serde_json::Value {
        json!({ "fresh": self.fresh, "stale": self.stale, "other": self.other })
    }
}

#[derive(Debug, Default)]
struct Pair {
    right: u32,
    /// Median microseconds from the first launch to the end of the second.
    early_us: f64,
    plain_us: f64,
}

struct Counts {
    trap: Seen,
    plain: Seen,
    pair: Pair,
}

impl Counts {
    fn text(&self) -> String {
        let line = |name: &str, seen: &Seen| {
            format!("{name}: {} stale, {} fresh, {} other\n", seen.stale, seen.fresh, seen.other)
        };
        format!(
            "{}{}pair through grid_wait: {} right; {:.1} us overlapping, {:.1} us one after the other (medians)\n",
            line("ld.global.nc behind a flag and a barrier", &self.trap),
            line("ld.global there", &self.plain),
            self.pair.right,
            self.pair.early_us,
            self.pair.plain_us
        )
    }

    /// Plain loads and the verified pair are always right, and the trap is one.
    fn are_as_expected(&self, runs: u32) -> bool {
        self.trap.stale > 0
            && self.trap.other == 0
            && self.plain.fresh == runs
            && self.pair.right == runs
    }
}

fn measure(all: &Arguments, bundle: &Bundle, device: &Device) -> Result<Counts, String> {
    let stages = Stages::new(all, device)?;
    let [trap, plain] = [&stages.trap, &stages.plain].map(|reader| stages.run(reader, all.runs));
    let (trap, plain) = (trap.map_err(show)?, plain.map_err(show)?);
    Ok(Counts { trap, plain, pair: pair(bundle, device, all.runs)? })
}

/// The kernels of the trap and their memory.
struct Stages {
    trap: Kernel,
    plain: Kernel,
    writer: Kernel,
    readers: Stream,
    writers: Stream,
    x: Buffer,
    flag: Buffer,
    y: Buffer,
}

impl Stages {
    fn new(all: &Arguments, device: &Device) -> Result<Stages, String> {
        let buffer =
            |name: &str, dtype, elements| Buffer::new(device, name, dtype, elements).map_err(show);
        let stream = || -> Result<Stream, String> {
            let mut stream = Stream::new(device).map_err(show)?;
            stream.set_limit(LIMIT);
            Ok(stream)
        };
        let target = format!("{}a", device.info().architecture());
        let [trap, plain, writer] =
            modules(&target).map(|(name, symbol, text)| load(all, device, name, symbol, &text));
        Ok(Stages {
            trap: trap?,
            plain: plain?,
            writer: writer?,
            readers: stream()?,
            writers: stream()?,
            x: buffer("x", DType::F32, 3 * THREADS)?,
            flag: buffer("flag", DType::U32, 1)?,
            y: buffer("y", DType::F32, THREADS)?,
        })
    }

    fn reset(&self, flag: u32) -> Result<(), RuntimeError> {
        let x: Vec<u8> = BEFORE
            .iter()
            .flat_map(|value| std::iter::repeat_n(value.to_le_bytes(), THREADS as usize))
            .flatten()
            .collect();
        self.readers.write(&self.x, &x)?;
        self.readers.write(&self.flag, &flag.to_le_bytes())?;
        self.readers.fill(&self.y, 0xff)?;
        self.readers.finish(|| vec!["the copies before a run".to_owned()])
    }

    fn read(&self, reader: &Kernel) -> Result<(), RuntimeError> {
        let (x, flag, y) =
            (Value::Buffer(&self.x), Value::Buffer(&self.flag), Value::Buffer(&self.y));
        self.readers.launch(reader, &[("x", x), ("flag", flag), ("y", y)])
    }

    fn write(&self) -> Result<(), RuntimeError> {
        let given: [Given<'_>; 2] =
            [("x", Value::Buffer(&self.x)), ("flag", Value::Buffer(&self.flag))];
        self.writers.launch(&self.writer, &given)
    }

    fn finish(&self, reader: &Kernel) -> Result<(), RuntimeError> {
        self.writers.finish(|| vec!["writer".to_owned()])?;
        self.readers.finish(|| vec![reader.name().to_owned()])
    }

    fn run(&self, reader: &Kernel, runs: u32) -> Result<Seen, RuntimeError> {
        // Each alone once: a kernel that is loaded at its first launch would wait for the one that spins.
        self.reset(1)?;
        self.read(reader)?;
        self.finish(reader)?;
        self.write()?;
        self.finish(reader)?;
        let mut seen = Seen::default();
        for _ in 0..runs {
            self.reset(0)?;
            self.read(reader)?;
            self.write()?;
            self.finish(reader)?;
            let values: Vec<f32> = self
                .readers
                .read(&self.y)?
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let fresh = AFTER.iter().sum::<f32>();
            let stale = BEFORE[1] + AFTER[2];
            if values.iter().any(|&value| value != fresh && value != stale) {
                seen.other += 1;
            } else if values.contains(&stale) {
                seen.stale += 1;
            } else {
                seen.fresh += 1;
            }
        }
        Ok(seen)
    }
}

/// A module of the trap: the cubin that ptxas made, otherwise the PTX through the driver.
fn load(
    all: &Arguments,
    device: &Device,
    name: &str,
    symbol: &str,
    text: &str,
) -> Result<Kernel, String> {
    let target = format!("{}a", device.info().architecture());
    let cubin = match &all.cubins {
        Some(folder) => Some(read(&folder.join(format!("{name}.cubin")))?),
        None => None,
    };
    let mut params = vec![
        by_hand::buffer("x", Access::Inout, DType::F32, 3 * THREADS),
        by_hand::buffer("flag", Access::Inout, DType::U32, 1),
    ];
    if symbol == "k3" {
        params.push(by_hand::buffer("y", Access::Output, DType::F32, THREADS));
    }
    let image = KernelImage {
        name: name.to_owned(),
        cubin: cubin.as_deref(),
        ..by_hand::image(symbol, params, THREADS as u32, &target, text)
    };
    Kernel::load(device, &image).map_err(show)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// `overlap_first.tile` and `overlap_second.tile`, the second started before the first has written.
fn pair(bundle: &Bundle, device: &Device, runs: u32) -> Result<Pair, String> {
    let capability = device.info().capability;
    let targets = bundle.targets();
    let target = targets.iter().find(|target| fits(target, capability));
    let target = target.ok_or("the bundle has nothing for this device")?;
    let [first, second] = ["first", "second"].map(|name| {
        let artefact = format!("run_overlap_{name}.tile.0");
        let kernel = bundle.artefact(&artefact, target);
        let kernel = kernel.ok_or_else(|| format!("the bundle has no `{artefact}`"))?;
        Kernel::load(device, &KernelImage::of(kernel)).map_err(show)
    });
    Overlap::new(device, first?, second?).and_then(|overlap| overlap.run(runs)).map_err(show)
}

struct Overlap {
    first: Kernel,
    second: Kernel,
    stream: Stream,
    /// Weights of both, what goes from the first to the second, and the result.
    w: Buffer,
    x: Buffer,
    y: Buffer,
    marks: [Event; 2],
}

impl Overlap {
    fn new(device: &Device, first: Kernel, second: Kernel) -> Result<Overlap, RuntimeError> {
        let buffer = |name: &str| Buffer::new(device, name, DType::F32, THREADS);
        let mut stream = Stream::new(device)?;
        stream.set_limit(LIMIT);
        let (w, x, y) = (buffer("w")?, buffer("x")?, buffer("y")?);
        let marks = [Event::new(device)?, Event::new(device)?];
        Ok(Overlap { first, second, stream, w, x, y, marks })
    }

    fn run(&self, runs: u32) -> Result<Pair, RuntimeError> {
        // Powers of two: the sums of the first kernel are exact in any form of its loop.
        let weights: Vec<f32> = (0..THREADS).map(|i| f32::powi(2.0, i as i32 % 16 - 8)).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.stream.write(&self.w, &bytes)?;
        let (mut pair, mut early, mut plain) = (Pair::default(), Vec::new(), Vec::new());
        for _ in 0..runs {
            let (values, us) = self.once(true)?;
            early.push(us);
            plain.push(self.once(false)?.1);
            // The loop ends at twice the weight, after as many halvings as f32 tells apart.
            let right = values.iter().zip(&weights).all(|(value, w)| *value == 3.0 * w);
            pair.right += u32::from(right);
        }
        (pair.early_us, pair.plain_us) = (median(early), median(plain));
        Ok(pair)
    }

    fn once(&self, overlaps: bool) -> Result<(Vec<f32>, f64), RuntimeError> {
        let buffers = [&self.w, &self.x, &self.y].map(Value::Buffer);
        let [w, x, y] = buffers;
        self.stream.fill(&self.x, 0)?;
        self.stream.fill(&self.y, 0xff)?;
        self.stream.record(&self.marks[0])?;
        self.stream.launch(&self.first, &[("w", w), ("y", x)])?;
        let given = [("w", w), ("x", x), ("y", y)];
        if overlaps {
            self.stream.launch_early(&self.second, &given)?;
        } else {
            self.stream.launch(&self.second, &given)?;
        }
        self.stream.record(&self.marks[1])?;
        self.stream.finish(|| vec!["first".to_owned(), "second".to_owned()])?;
        let us = self.marks[1].microseconds_since(&self.marks[0])?;
        let bytes = self.stream.read(&self.y)?;
        let value = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        Ok((bytes.chunks_exact(4).map(value).collect(), us))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_are_the_trap_with_another_target_and_other_loads() {
        let [trap, plain, writer] = modules("sm_90a");
        assert!(trap.2.contains(".target sm_90a\n") && trap.2.contains(".entry k3("));
        assert_eq!(trap.2.matches("ld.global.nc").count(), TRAP.matches("ld.global.nc").count());
        assert!(!plain.2.contains("ld.global.nc") && plain.2.contains(".entry k3("));
        assert!(writer.2.contains(".target sm_90a\n"));
    }

    #[test]
    fn a_run_is_as_expected_when_the_trap_shows_and_nothing_else_is_wrong() {
        let counts = |stale: u32, plain: u32, right: u32| Counts {
            trap: Seen { stale, fresh: 5 - stale, other: 0 },
            plain: Seen { fresh: plain, ..Seen::default() },
            pair: Pair { right, ..Pair::default() },
        };
        assert!(counts(5, 5, 5).are_as_expected(5));
        assert!(!counts(0, 5, 5).are_as_expected(5));
        assert!(!counts(5, 4, 5).are_as_expected(5));
        assert!(!counts(5, 5, 4).are_as_expected(5));
    }
}
