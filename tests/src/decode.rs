//! Models decoded on the emulator, for tests: every operation a kernel, in the formats of the real model.

use std::path::{Path, PathBuf};

use kernel_abi::exec::Executor;
use kernel_abi::numeric;
use kernel_abi::plan::BufferId;
use kernel_emulator::{EmuExecutor, Options};
use kimi_k3::load::{Unwatched, load_weights};
use kimi_k3::plan::{DecodeOptions, DecodePlan, PAGE};
use kimi_k3::step::{Decoder, Snapshot};
use kimi_k3::{Checkpoint, Config};

/// The folder of kimi-k3-mini.
pub fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/kimi_k3/mini")
}

/// A model of which every buffer can be looked at.
#[derive(Debug)]
pub struct Decoding {
    decoder: Decoder<EmuExecutor>,
    /// The configuration of the model.
    pub config: Config,
}

impl Decoding {
    /// Opens a folder with a configuration and a checkpoint.
    ///
    /// # Errors
    /// What is wrong with one of them, as text.
    pub fn open(folder: &Path, options: DecodeOptions) -> Result<Decoding, String> {
        let config = Config::open(folder).map_err(text)?;
        let checkpoint = Checkpoint::open(folder).map_err(text)?;
        Decoding::new(config, &checkpoint, options)
    }

    /// Prepares a model.
    ///
    /// # Errors
    /// What is wrong with the checkpoint or the options, as text.
    pub fn new(
        config: Config,
        checkpoint: &Checkpoint,
        options: DecodeOptions,
    ) -> Result<Decoding, String> {
        checkpoint.check(&config).map_err(text)?;
        let DecodePlan { plan, weights, host } = DecodePlan::new(&config, options).map_err(text)?;
        let sources = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
        let mut executor = EmuExecutor::new(plan, &sources).map_err(text)?;
        load_weights(&mut executor, &weights, checkpoint, &[], &Unwatched).map_err(text)?;
        let decoder = Decoder::new(executor, host).map_err(text)?;
        Ok(Decoding { decoder, config })
    }

    /// Decodes one token of every row.
    ///
    /// # Errors
    /// What stopped the step, as text.
    pub fn step(&mut self, ids: &[i32]) -> Result<(), String> {
        self.decoder.step(ids).map_err(text)
    }

    /// The logits of the last step.
    pub fn logits(&self) -> Vec<f32> {
        self.decoder.logits().expect("a step was done")
    }

    /// The greedy choice of the last step.
    pub fn greedy(&self) -> Vec<i32> {
        self.decoder.greedy().expect("a step was done")
    }

    /// Sets how kernels run.
    pub fn set_options(&mut self, options: Options) {
        self.decoder.executor_mut().set_options(options);
    }

    /// The requests, to come back to.
    ///
    /// # Errors
    /// A state cannot be read, as text.
    pub fn snapshot(&self) -> Result<Snapshot, String> {
        self.decoder.snapshot().map_err(text)
    }

    /// Goes back to a snapshot.
    ///
    /// # Errors
    /// The executor does not take a state, as text.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.decoder.restore(snapshot).map_err(text)
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        self.decoder.reset().expect("the states take zeros");
    }

    /// The elements of a buffer of a rank by name.
    pub fn buffer(&self, rank: u32, name: &str) -> Vec<f64> {
        let executor = self.decoder.executor();
        let buffers = &executor.plan().buffers;
        let at = buffers.iter().position(|b| b.name == name);
        let at = at.unwrap_or_else(|| panic!("there is no buffer `{name}`"));
        let bytes = executor.read(rank, BufferId(at as u32)).expect("the buffer was written");
        let dtype = buffers[at].dtype;
        (0..numeric::elements_in(dtype, bytes.len()))
            .map(|i| {
                let code = numeric::read_element(dtype, &bytes, i).expect("the index is inside");
                numeric::to_f64(dtype, code)
            })
            .collect()
    }

    /// The convolution window of a row (slot `row + 1`): `[3, channels]`.
    pub fn window(&self, layer: usize, row: usize) -> Vec<f64> {
        self.slot(&format!("layer{layer}.conv_state"), row, 3 * self.config.kda.channels())
    }

    /// The recurrent state of a row: `[heads, value, key]`.
    pub fn state(&self, layer: usize, row: usize) -> Vec<f64> {
        self.slot(&format!("layer{layer}.kda_state"), row, self.config.kda.state_elements())
    }

    fn slot(&self, name: &str, row: usize, elements: usize) -> Vec<f64> {
        self.buffer(0, name)[(row + 1) * elements..][..elements].to_vec()
    }

    /// The first `rows` rows of the cache of request 0, whose pages follow each other from page 1.
    pub fn cache(&self, layer: usize, rows: usize) -> Vec<f64> {
        let width = self.config.mla.cache_width();
        let page = PAGE as usize * width;
        self.buffer(0, &format!("layer{layer}.mla_cache"))[page..][..rows * width].to_vec()
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The relative L2 distance of two lists of one length.
pub fn relative_l2(got: &[f64], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len(), "lists of two lengths");
    let error: f64 = got.iter().zip(want).map(|(g, w)| (g - w) * (g - w)).sum();
    let norm: f64 = want.iter().map(|w| w * w).sum();
    if error == 0.0 { 0.0 } else { (error / norm).sqrt() }
}

/// How far logits are from those that are wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// Root mean square of the differences over all entries.
    pub rms: f64,
    /// Mean divergence of a row, nats.
    pub mean: f64,
    /// Greatest divergence of a row, nats.
    pub most: f64,
}

impl Distance {
    /// Compares rows of `vocab` logits.
    ///
    /// # Panics
    /// There are more or fewer logits than wanted.
    pub fn of(got: &[f64], want: &[f64], vocab: usize) -> Distance {
        assert_eq!(got.len(), want.len(), "logits");
        let squares: f64 = got.iter().zip(want).map(|(g, w)| (g - w) * (g - w)).sum();
        let rows = got.chunks(vocab).zip(want.chunks(vocab));
        let divergences: Vec<f64> = rows.map(|(got, want)| divergence(got, want)).collect();
        Distance {
            rms: (squares / want.len() as f64).sqrt(),
            mean: divergences.iter().sum::<f64>() / divergences.len() as f64,
            most: divergences.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// The Kullback-Leibler divergence of the softmax of `got` from that of `want`, in nats.
fn divergence(got: &[f64], want: &[f64]) -> f64 {
    let log_softmax = |logits: &[f64]| -> Vec<f64> {
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|l| (l - top).exp()).sum();
        logits.iter().map(|l| l - top - sum.ln()).collect()
    };
    let (got, want) = (log_softmax(got), log_softmax(want));
    want.iter().zip(&got).map(|(w, g)| w.exp() * (w - g)).sum()
}
