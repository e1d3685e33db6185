//! How fast the weights of routed experts come onto a device: packed in memory, packed into a file on the way, and read
//! from that file. Row-major they stand in memory, so that no disk is measured but by the file.

use std::borrow::Cow;
use std::convert::Infallible;
use std::time::Instant;

use kernel_abi::DType;
use kernel_abi::exec::Executor;
use kernel_abi::numeric::random;
use kernel_abi::plan::{BufferId, BufferRole, KernelKey, Plan, PlanBuilder, Promise, Scalar};
use kernel_runtime::{CudaExecutor, CudaOptions, Device, probe};
use kimi_k3::load::{Unwatched, load_weights, open_packed};
use kimi_k3::packed::{Packed, Place};
use kimi_k3::weights::{Piece, Recipe, TensorSource};
use serde_json::{Value, json};

use crate::Stop;
use crate::arguments::Arguments;
use crate::report::Report;

/// Layers whose experts are loaded: 656 MB each at sixteen ranks.
const LAYERS: usize = 12;
/// The kernel that reads them.
const KERNEL: &str = "expert_w13";

/// The same random bytes for every tensor.
struct Bytes(Vec<u8>);

impl TensorSource for Bytes {
    type Error = Infallible;

    fn matrix(
        &self,
        _: &str,
        _: DType,
        rows: u64,
        columns: u64,
    ) -> Result<Cow<'_, [u8]>, Infallible> {
        Ok(Cow::Borrowed(&self.0[..(rows * columns) as usize]))
    }
}

/// Sizes of the experts of a layer.
struct Experts {
    experts: u64,
    width: u64,
    latent: u64,
    picks: u64,
}

type Weights = Vec<(BufferId, Vec<Recipe>)>;

/// Times the ways and writes the report.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, Stop> {
    let folder = all.out.as_ref().ok_or_else(|| Stop::Usage("--out is missing".to_owned()))?;
    let bundle = all.open_bundle()?;
    let report = Report::create(all.report.as_deref())?;
    let head = bundle
        .kernels()
        .map(|kernel| kernel.head())
        .find(|head| head.kernel == KERNEL && head.bindings.get("M") == Some(&1))
        .ok_or_else(|| format!("the bundle has no {KERNEL} for one token"))?;
    let size = |name: &str| {
        let value = head.bindings.get(name).and_then(|&value| u64::try_from(value).ok());
        value.ok_or_else(|| format!("{KERNEL} has no size {name}"))
    };
    let experts =
        Experts { experts: size("E")?, width: size("I")?, latent: size("Z")?, picks: size("K")? };
    let key = KernelKey {
        file: head.file.clone(),
        kernel: head.kernel.clone(),
        bindings: head.bindings.clone(),
    };
    let (plan, weights) = plan(&key, &experts);
    let fault = |error: kernel_runtime::RuntimeError| format!("{}: {error}", error.code().name());
    let device = Device::open(all.device).map_err(fault)?;
    let options = CudaOptions::STANDARD;
    let mut executor = CudaExecutor::new(&device, plan, &bundle, options).map_err(fault)?;
    let largest = experts.experts * 2 * experts.width * experts.latent / 2;
    let words = (0..largest / 8).flat_map(|at| random::word(1, 0, at).to_le_bytes());
    let source = Bytes(words.collect());
    // There is no checkpoint.
    let model = folder.join("model");
    let place = Place { folder: folder.clone(), model, ranks: 1, checkpoint: [1; 32], least: 0 };
    let mut rows = Vec::new();
    for (way, keeps) in [
        ("packed in memory", false),
        ("packed in memory, once more", false),
        ("packed, and the file written", true),
        ("read from the file, its hashes compared", true),
    ] {
        let started = Instant::now();
        let packed =
            if keeps { open_packed(executor.plan(), &weights, &place) } else { Vec::new() };
        load_weights(&mut executor, &weights, &source, &packed, &Unwatched)
            .map_err(|error| error.to_string())?;
        executor.stream().finish(|| vec!["copies of weights".to_owned()]).map_err(fault)?;
        let faults: Vec<String> =
            packed.iter().flat_map(Packed::take_faults).map(|fault| fault.to_string()).collect();
        let loaded = started.elapsed().as_secs_f64();
        let kept = packed.into_iter().map(|packed| packed.finish().map_err(|e| e.to_string()));
        let kept: Vec<String> = kept.map(|kept| format!("{kept:?}")).collect();
        let all_of_it = started.elapsed().as_secs_f64();
        rows.push(row(say, way, &experts, [loaded, all_of_it], (&kept, &faults)));
    }
    // The copies without anything to be made: what the way could be at best.
    let bytes = executor.read(0, weights[0].0).map_err(fault)?;
    let started = Instant::now();
    for (buffer, _) in weights.iter().step_by(2) {
        executor.write(0, *buffer, &bytes).map_err(fault)?;
    }
    executor.stream().finish(|| vec!["copies of weights".to_owned()]).map_err(fault)?;
    let copied = started.elapsed().as_secs_f64();
    let rate = (bytes.len() * LAYERS) as f64 / copied / 1e9;
    say(&format!("copied alone: {rate:.2} GB/s\n"));
    report.finish(&json!({
        "device": device.info().name,
        "driver": probe().map(|driver| driver.version).unwrap_or(0),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "bytes": experts.bytes(),
        "layers": LAYERS,
        "rows": rows,
        "copied_alone_gigabytes_per_second": rate,
        "peak_memory_bytes": kimi_k3::memory::peak(),
        "row_major_bytes_in_memory": source.0.len(),
    }))?;
    Ok(0)
}

fn row(
    say: fn(&str),
    way: &str,
    experts: &Experts,
    [loaded, all]: [f64; 2],
    (kept, faults): (&[String], &[String]),
) -> Value {
    let rate = experts.bytes() as f64 / loaded / 1e9;
    say(&format!("{way}: {loaded:.2} s, {rate:.2} GB/s {kept:?} {faults:?}\n"));
    json!({
        "way": way,
        "seconds": loaded,
        "gigabytes_per_second": rate,
        "seconds_with_the_file_on_the_disk": all,
        "file": kept,
        "faults": faults,
    })
}

impl Experts {
    /// Bytes of all weights and their scales.
    fn bytes(&self) -> u64 {
        let elements = self.experts * 2 * self.width * self.latent;
        LAYERS as u64 * (elements / 2 + elements / 32)
    }
}

/// A plan that reads the experts of every layer, and where they come from.
fn plan(key: &KernelKey, sizes: &Experts) -> (Plan, Weights) {
    let &Experts { experts, width, latent, picks } = sizes;
    let mut plan = PlanBuilder::new(1);
    let promise = Promise { lo: 0, hi: experts as i64, distinct: false, except: None };
    let host = |promise| BufferRole::Host { promise };
    let ids = plan.buffer("ids", DType::I32, &[1, picks], host(Some(promise)));
    let z = plan.buffer("z", DType::Bf16, &[1, latent], host(None));
    let bindings: Vec<(&str, u64)> =
        key.bindings.iter().map(|(name, value)| (name.as_str(), *value as u64)).collect();
    let mut weights = Vec::new();
    for layer in 0..LAYERS {
        let mut weight = |name: &str, dtype, columns: u64, per_byte: u64| {
            let name = format!("layer{layer}.{name}");
            let shape = [experts, 2, width, columns];
            let id = plan.buffer(&name, dtype, &shape, BufferRole::Weight);
            let rows = experts * 2 * width;
            let piece = Piece::whole(&name, DType::U8, rows, columns / per_byte);
            weights.push((id, vec![Recipe::Rows(vec![piece])]));
            id
        };
        let w13 = weight("w13", DType::E2m1, latent, 2);
        let s13 = weight("w13.scale", DType::Ue8m0, latent / 32, 1);
        let act =
            plan.buffer(format!("act{layer}"), DType::Bf16, &[picks, width], BufferRole::Step);
        plan.kernel(format!("layer{layer}"), &key.file, &key.kernel, &bindings)
            .read("w13", w13)
            .read("s13", s13)
            .read("id", ids)
            .read("z", z)
            .write("act", act)
            .scalar("beta", Scalar::F32(4.0))
            .scalar("linear_beta", Scalar::F32(25.0))
            .add();
    }
    (plan.finish(), weights)
}
