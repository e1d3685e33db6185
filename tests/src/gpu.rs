//! What `tests/gpu/smoke.py` needs on a machine with a GPU and nothing else: machine code, launch shapes, the
//! recipe of every input, and what the emulator says comes out.
//!
//! A folder of cases holds `index.json`, one cubin a case, and `data.bin` with given inputs and expected outputs
//! as little-endian memory. Random inputs are not stored: the script makes them by the recipe of
//! `kernel_abi::numeric::random`.

mod plan;

use std::path::{Path, PathBuf};
use std::process::Command;

use kernel_abi::numeric::to_f64;
use kernel_abi::{Access, DType};
use kernel_emulator::{Argument, Buffer, Memory, Options, run_kernel};
use kernel_ir::kernel::{ContractBound, Kernel, ParamId};
use kernel_ir::pipeline::Built;
use serde_json::{Value, json};

pub use plan::{Case, Source, folder, sources};

use crate::program::Program;
use crate::runner;
use crate::values;

/// How the cases are made.
#[derive(Debug, Clone)]
pub struct Config {
    /// The compiler.
    pub kernelc: PathBuf,
    /// Where the compiler works and the cases end up: `build/` and `cases/`.
    pub out: PathBuf,
    /// Of random inputs.
    pub seed: u64,
    /// Name of the target.
    pub target: String,
    /// Sources whose name holds one of these words; all without.
    pub words: Vec<String>,
}

/// Makes all cases and gives their number.
///
/// # Errors
/// A file cannot be read or written, the compiler refuses, or a kernel does not run.
pub fn make(config: &Config) -> Result<usize, String> {
    let folder = config.out.join("cases");
    create(&folder)?;
    let mut writer = Writer { folder, data: Vec::new(), cases: Vec::new() };
    for source in sources(&crate::program::package_folder().join("suite"))? {
        if config.words.is_empty() || config.words.iter().any(|word| source.name.contains(word)) {
            compile_and_run(config, &source, &mut writer)
                .map_err(|reason| format!("{}: {reason}", source.name))?;
        }
    }
    let count = writer.cases.len();
    let index = json!({ "seed": config.seed, "target": config.target, "cases": writer.cases });
    write(&writer.folder.join("data.bin"), &writer.data)?;
    write(&writer.folder.join("index.json"), format!("{index:#}\n").as_bytes())?;
    Ok(count)
}

/// What goes into the folder of cases.
struct Writer {
    folder: PathBuf,
    data: Vec<u8>,
    cases: Vec<Value>,
}

impl Writer {
    /// Where the bytes lie in `data.bin`.
    fn place(&mut self, bytes: &[u8]) -> Value {
        let at = self.data.len();
        self.data.extend_from_slice(bytes);
        json!({ "at": at, "bytes": bytes.len() })
    }
}

fn compile_and_run(config: &Config, source: &Source, writer: &mut Writer) -> Result<(), String> {
    let stem = source.name.replace(['/', '.'], "_");
    let work = config.out.join("build").join(&stem);
    for (path, text) in &source.files {
        let path = work.join(path);
        create(path.parent().unwrap_or(&work))?;
        write(&path, text.as_bytes())?;
    }
    let root = work.join(&source.path);
    let folder = root.parent().unwrap_or(&work).to_owned();
    write(&folder.join("build.toml"), source.build_file().as_bytes())?;
    let built = work.join("out");
    let output = Command::new(&config.kernelc)
        .arg("build")
        .arg(&root)
        .args(["--set", "gpu", "--target", &config.target, "--out"])
        .arg(&built)
        .output()
        .map_err(|error| format!("{}: {error}", config.kernelc.display()))?;
    // Exit code 1 may be a finding of the audit, which is judged elsewhere; then there is a manifest.
    if !built.join("manifest.json").is_file() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let manifest: Value = serde_json::from_slice(&read(&built.join("manifest.json"))?)
        .map_err(|error| format!("manifest.json: {error}"))?;
    let program = Program::read(&work, &source.path)?;
    for (number, case) in source.cases.iter().enumerate() {
        let entry = manifest["kernels"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|entry| entry["name"] == Source::artefact(number))
            .ok_or_else(|| format!("the manifest lacks {}", Source::artefact(number)))?;
        let cubin = format!("{stem}.{number}.cubin");
        let file = entry["cubin"].as_str().ok_or("the manifest names no cubin")?;
        write(&writer.folder.join(&cubin), &read(&built.join(file))?)?;
        let record = record(config, &program, case, entry, &cubin, writer)?;
        writer.cases.push(record);
    }
    Ok(())
}

/// Runs a case on the emulator and writes down what the script must know of it.
fn record(
    config: &Config,
    program: &Program,
    case: &Case,
    entry: &Value,
    cubin: &str,
    writer: &mut Writer,
) -> Result<Value, String> {
    let template = program.front.template(&case.kernel).ok_or("the kernel is gone")?;
    let built = program.build(template, &case.bind, crate::program::target(&config.target)?)?;
    let mut directives = case.directives.clone();
    directives.seed = config.seed;
    let further = case.is_further.then_some(&case.bind);
    let memory = runner::memory(&built, &directives, further)?;
    let mut after = memory.clone();
    run_kernel(&built.kernel, &mut after, &Options::STANDARD).map_err(|error| error.to_string())?;
    let given: Vec<&str> = if case.is_further {
        Vec::new()
    } else {
        directives.inputs.iter().map(|(name, _)| name.as_str()).collect()
    };
    let params: Vec<Value> = built
        .kernel
        .params
        .ids()
        .map(|id| param(&built, id, &memory, &after, &given, writer))
        .collect::<Result<_, String>>()?;
    let named =
        |list: &[Value]| -> Vec<String> { list.iter().map(|p| p["name"].to_string()).collect() };
    if named(&params) != named(entry["params"].as_array().map_or(&[], Vec::as_slice)) {
        return Err("the manifest has other parameters".to_owned());
    }
    Ok(json!({
        "name": case.name,
        "cubin": cubin,
        "export": entry["export"],
        "launch": entry["launch"],
        "ulp": case.directives.gpu.ulp,
        "abs": case.directives.gpu.abs,
        "params": params,
    }))
}

fn param(
    built: &Built,
    id: ParamId,
    before: &Memory,
    after: &Memory,
    given: &[&str],
    writer: &mut Writer,
) -> Result<Value, String> {
    let param = &built.kernel.params[id];
    let head = json!({ "name": param.name, "dtype": param.dtype.name() });
    let more = match before.argument(id) {
        Argument::Missing => return Err(format!("`{}` has no argument", param.name)),
        Argument::Scalar { dtype, code } => {
            json!({ "scalar": writer.place(&values::to_bytes(*dtype, &[*code])) })
        }
        Argument::Buffer(buffer) => {
            let fill = match param.access {
                Access::Output | Access::Scratch => json!("poison"),
                // The script knows no recipe for codes of 8 bits and less, nor for counters, which are zero.
                _ if given.contains(&param.name.as_str())
                    || param.words.is_some()
                    || param.dtype.is_float() && param.dtype.bits() <= 8 =>
                {
                    writer.place(buffer.bytes())
                }
                Access::Static | Access::Input | Access::Inout | Access::Peer | Access::Scalar => {
                    recipe(&built.kernel, before, id)
                }
            };
            let expected = match param.access {
                Access::Output | Access::Inout => expected(after.buffer(id), writer),
                Access::Static
                | Access::Input
                | Access::Scratch
                | Access::Peer
                | Access::Scalar => Value::Null,
            };
            json!({ "bytes": buffer.bytes().len(), "fill": fill, "expected": expected })
        }
    };
    Ok(merge(head, more))
}

fn merge(mut a: Value, b: Value) -> Value {
    if let (Some(a), Value::Object(b)) = (a.as_object_mut(), b) {
        a.extend(b);
    }
    a
}

/// What the script fills outputs with, as it fills them.
const POISON: u8 = 0x7b;

/// Memory after the run, with poison where nothing was written.
fn expected(buffer: Option<&Buffer>, writer: &mut Writer) -> Value {
    let Some(buffer) = buffer else { return Value::Null };
    let mut bytes = buffer.bytes().to_vec();
    let width = bytes.len() / buffer.len().max(1);
    for index in (0..buffer.len()).filter(|index| !buffer.is_written(*index)) {
        bytes[index * width..][..width].fill(POISON);
    }
    writer.place(&bytes)
}

/// The stream of a random buffer, and the range of its integers.
fn recipe(kernel: &Kernel, memory: &Memory, id: ParamId) -> Value {
    let param = &kernel.params[id];
    let range = param.contract.as_ref().filter(|_| param.dtype.is_int()).map(|contract| {
        let hi = match contract.hi {
            ContractBound::Const(hi) => hi,
            ContractBound::Scalar(id, offset) => scalar(memory, id).saturating_add(offset),
        };
        [contract.lo, hi]
    });
    let range = range.or(match param.dtype {
        DType::I8 | DType::I32 | DType::I64 => Some([-8, 8]),
        DType::U8 | DType::U32 | DType::U64 => Some([0, 16]),
        DType::Bool => Some([0, 2]),
        DType::F32
        | DType::F16
        | DType::Bf16
        | DType::E4m3
        | DType::E5m2
        | DType::E2m1
        | DType::Ue8m0 => None,
    });
    let distinct = param.contract.as_ref().and_then(|contract| contract.distinct);
    json!({
        "stream": kernel_ir::index::Id::index(id),
        "range": range,
        "distinct": distinct.is_some(),
        "except": distinct.and_then(|distinct| distinct.except),
    })
}

fn scalar(memory: &Memory, id: ParamId) -> i64 {
    match memory.argument(id) {
        Argument::Scalar { dtype, code } => to_f64(*dtype, *code) as i64,
        Argument::Missing | Argument::Buffer(_) => 0,
    }
}

fn create(folder: &Path) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use kernel_abi::DType;
    use kernel_abi::numeric::random::{Distinct, IntRange, codes, word};

    /// The numbers on the right were printed by smoke.py.
    #[test]
    fn the_script_makes_the_same_random_inputs() {
        let words =
            [13_309_476_754_707_697_221, 11_984_929_618_412_882_174, 10_134_167_572_453_724_827];
        assert_eq!([0, 1, 2].map(|i| word(7, 0, i)), words);
        let floats = |dtype| codes(dtype, 4, 7, 0, None).unwrap();
        let [f32s, bf16s, f16s] = [DType::F32, DType::Bf16, DType::F16].map(floats);
        assert_eq!(f32s, [0x3ee2_d308, 0x3e99_4c14, 0x3dca_3cb0, 0x3e55_7908]);
        assert_eq!(bf16s, [0x3ee3, 0x3e99, 0x3dca, 0x3e55]);
        assert_eq!(f16s, [0x3717, 0x34ca, 0x2e52, 0x32ac]);
        let distinct = Some(Distinct { except: Some(0) });
        let range = IntRange { range: 0..5, distinct };
        assert_eq!(codes(DType::I32, 6, 1, 0, Some(&range)).unwrap(), [3, 1, 4, 2, 0, 0]);
    }
}
