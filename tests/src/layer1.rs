//! Layer 1 of kimi-k3-mini on the emulator against its goldens: tests/data/kimi_k3_mini_layer1.
//!
//! Two chains start from goldens, so that an error does not hide behind the one before it:
//! embedding and `p_in` through attn_res_norm to `h_attn`, and `h_attn` through rms_norm to `x_attn` and on
//! through four projections to `q_raw`, `k_raw`, `v_raw`, `g_out`. Between the kernels of a chain stands what
//! the kernel before has stored, as on a GPU.

use kernel_abi::DType;
use kernel_abi::numeric::compare::{Comparison, Tolerance, compare};
use kernel_abi::numeric::float_from_f64;
use kernel_emulator::{Buffer, Memory};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::k3;
use crate::runner;
use crate::values;

/// The golden prompts.
pub const PROMPTS: [&str; 4] = ["text", "code", "recall", "json"];

/// A bound for the mean over all streams and prompts, and one that none may exceed: the bf16 column of the
/// model's description.
pub const MEAN_BOUND: f64 = 0.03;
/// See [`MEAN_BOUND`].
pub const ANY_BOUND: f64 = 0.3;

const HIDDEN: usize = 256;
const HEADS_TIMES_DIM: usize = 128;
const BLOCK_SLOTS: usize = 8;
const EPS: f64 = 1e-5;
const BF16_NAN: u64 = 0x7fff;

/// One stream of one prompt against its golden.
#[derive(Debug, Clone)]
pub struct Stream {
    /// Which prompt.
    pub prompt: &'static str,
    /// Name of the golden.
    pub name: &'static str,
    /// The kernels on the way.
    pub kernels: &'static str,
    /// The measured difference.
    pub comparison: Comparison,
}

/// All streams of all prompts; both levels of the emulator agree on each.
///
/// # Errors
/// The data cannot be read, or a kernel does not run.
pub fn streams() -> Result<Vec<Stream>, String> {
    let path = crate::program::package_folder().join("data/kimi_k3_mini_layer1/layer1.safetensors");
    let bytes = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| error.to_string())?;
    let layer = Layer { file };
    let mut streams = Vec::new();
    for prompt in PROMPTS {
        layer.mixed_input(prompt, &mut streams)?;
        layer.projections(prompt, &mut streams)?;
    }
    Ok(streams)
}

/// Mean and maximum of the relative L2 differences.
pub fn summary(streams: &[Stream]) -> (f64, f64) {
    let all = streams.iter().map(|s| s.comparison.relative_l2);
    (all.clone().sum::<f64>() / streams.len() as f64, all.fold(0.0, f64::max))
}

/// Why the streams are outside the bounds.
///
/// # Errors
/// The mean or a stream exceeds its bound.
pub fn judge(streams: &[Stream]) -> Result<(), String> {
    let (mean, _) = summary(streams);
    let mut faults: Vec<String> = streams
        .iter()
        .filter(|s| s.comparison.relative_l2.is_nan() || s.comparison.relative_l2 > ANY_BOUND)
        .map(|s| format!("{} of `{}`: {}", s.name, s.prompt, s.comparison))
        .collect();
    if mean.is_nan() || mean > MEAN_BOUND {
        faults.push(format!("the mean relative L2 is {mean:.4}, above {MEAN_BOUND}"));
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The comparison as a table, one row a stream.
pub fn table(streams: &[Stream]) -> String {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for stream in streams {
        if !names.iter().any(|(name, _)| *name == stream.name) {
            names.push((stream.name, stream.kernels));
        }
    }
    let mut text = format!("{:<8}  {:<34}", "golden", "kernels");
    for prompt in PROMPTS {
        text.push_str(&format!("  {prompt:>9}"));
    }
    text.push('\n');
    for (name, kernels) in names {
        text.push_str(&format!("{name:<8}  {kernels:<34}"));
        for prompt in PROMPTS {
            let stream = streams.iter().find(|s| s.name == name && s.prompt == prompt);
            let cell =
                stream.map_or("-".to_owned(), |s| format!("{:.2e}", s.comparison.relative_l2));
            text.push_str(&format!("  {cell:>9}"));
        }
        text.push('\n');
    }
    let (mean, most) = summary(streams);
    text.push_str(&format!(
        "relative L2: mean {mean:.2e} (at most {MEAN_BOUND}), greatest {most:.2e} (at most {ANY_BOUND})\n"
    ));
    text
}

struct Layer<'a> {
    file: SafeTensors<'a>,
}

impl Layer<'_> {
    /// embedding (the only block snapshot) and p_in → h_attn.
    fn mixed_input(&self, prompt: &'static str, streams: &mut Vec<Stream>) -> Result<(), String> {
        let norm = self.numbers("self_attention_res_norm.weight")?;
        let projection = self.numbers("self_attention_res_proj.weight")?;
        // In f32, as loading multiplies them.
        let wnp: Vec<f32> =
            norm.iter().zip(&projection).map(|(a, b)| *a as f32 * *b as f32).collect();
        // The other slots hold NaN: a read of one would show.
        let mut blocks = self.codes(&format!("{prompt}.embedding"))?;
        blocks.resize(BLOCK_SLOTS * HIDDEN, BF16_NAN);
        let kernel = k3::build("attn_res_norm.tile", "attn_res_norm", &[("H", 256), ("NB", 1)])?;
        let memory = k3::memory(
            &kernel,
            vec![
                ("wnp", Buffer::from_f32(DType::F32, &wnp)),
                ("gamma", self.bf16("input_layernorm.weight")?),
                ("blocks", Buffer::from_codes(DType::Bf16, &blocks)),
                ("p", self.bf16(&format!("{prompt}.p_in"))?),
            ],
            &[("eps", EPS)],
        )?;
        let memory = k3::run(&kernel, memory)?;
        self.stream(prompt, "h_attn", "attn_res_norm", &output(&kernel, &memory, "h")?, streams)
    }

    /// h_attn → x_attn → q_raw, k_raw, v_raw, g_out.
    fn projections(&self, prompt: &'static str, streams: &mut Vec<Stream>) -> Result<(), String> {
        let norm = k3::build("rms_norm.tile", "rms_norm", &[("W", 256)])?;
        let memory = k3::memory(
            &norm,
            vec![
                ("gamma", self.bf16("input_layernorm.weight")?),
                ("x", self.bf16(&format!("{prompt}.h_attn"))?),
            ],
            &[("eps", EPS)],
        )?;
        let memory = k3::run(&norm, memory)?;
        let x = output(&norm, &memory, "out")?;
        self.stream(prompt, "x_attn", "rms_norm", &x, streams)?;
        let gemv = k3::build(
            "gemv.tile",
            "gemv_bf16",
            &[("N", HEADS_TIMES_DIM as i64), ("K", HIDDEN as i64), ("STEP", 256)],
        )?;
        for (golden, weight) in [("q_raw", "q"), ("k_raw", "k"), ("v_raw", "v"), ("g_out", "g")] {
            let memory = k3::memory(
                &gemv,
                vec![
                    ("W", self.bf16(&format!("self_attn.{weight}_proj.weight"))?),
                    ("x", x.clone()),
                ],
                &[],
            )?;
            let memory = k3::run(&gemv, memory)?;
            let y = output(&gemv, &memory, "y")?;
            self.stream(prompt, golden, "rms_norm, gemv_bf16", &y, streams)?;
        }
        Ok(())
    }

    fn stream(
        &self,
        prompt: &'static str,
        name: &'static str,
        kernels: &'static str,
        got: &Buffer,
        streams: &mut Vec<Stream>,
    ) -> Result<(), String> {
        let golden = self.numbers(&format!("{prompt}.{name}"))?;
        // In f32, so that the golden is not rounded; `got` widens exactly.
        let widen = |values: &[f64]| values::from_f64s(DType::F32, values);
        let comparison = compare(
            DType::F32,
            &[golden.len()],
            &widen(&got.to_f64()),
            &widen(&golden),
            Tolerance::RelativeL2(ANY_BOUND),
        )
        .map_err(|error| format!("{prompt}.{name}: {error}"))?;
        streams.push(Stream { prompt, name, kernels, comparison });
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<TensorView<'_>, String> {
        self.file.tensor(name).map_err(|error| format!("`{name}`: {error}"))
    }

    /// The values of a tensor of bf16 or f32.
    fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let tensor = self.tensor(name)?;
        let dtype = match tensor.dtype() {
            safetensors::Dtype::BF16 => DType::Bf16,
            safetensors::Dtype::F32 => DType::F32,
            other => return Err(format!("`{name}` holds elements of type {other:?}")),
        };
        Ok(values::to_f64s(dtype, tensor.data()))
    }

    /// A tensor as bf16, rounded where it is stored as f32.
    fn bf16(&self, name: &str) -> Result<Buffer, String> {
        Ok(Buffer::from_codes(DType::Bf16, &self.codes(name)?))
    }

    fn codes(&self, name: &str) -> Result<Vec<u64>, String> {
        let code = |value: &f64| float_from_f64(DType::Bf16, *value).ok_or("bf16 is a float");
        Ok(self.numbers(name)?.iter().map(code).collect::<Result<_, _>>()?)
    }
}

fn output(
    built: &kernel_ir::pipeline::Built,
    memory: &Memory,
    name: &str,
) -> Result<Buffer, String> {
    let id = runner::param(built, name)?;
    memory.buffer(id).cloned().ok_or_else(|| format!("`{name}` has no buffer"))
}
