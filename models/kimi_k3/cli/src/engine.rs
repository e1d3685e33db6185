//! A model that is ready to decode.

use std::time::{Duration, Instant};

use kernel_emulator::{EmuExecutor, Options};
use kimi_k3::plan::{DecodeOptions, DecodePlan};
use kimi_k3::step::{Decoder, Snapshot, load_weights};
use kimi_k3::{Checkpoint, Config, memory};

use crate::args::{Device, Model};
use crate::cuda::CudaSource;
use crate::error::CliError;
use crate::executor::AnyExecutor;
use crate::output;

/// A configuration and its checkpoint, checked, and what can run it.
pub(crate) struct Source {
    pub(crate) config: Config,
    checkpoint: Checkpoint,
    ranks: u64,
    cuda: Option<CudaSource>,
    /// Without a device that fits the emulator will do.
    is_auto: bool,
    coverage: bool,
}

/// A plan and what runs it.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    plan: DecodePlan,
    cuda: Option<CudaSource>,
}

impl Source {
    /// Opens the device and the folder of a model.
    ///
    /// # Errors
    /// The device cannot be had, or the configuration or a tensor is refused.
    pub(crate) fn open(model: &Model) -> Result<Source, CliError> {
        let open = |ordinal| CudaSource::open(ordinal, model.bundle.as_deref(), model.cuda);
        let cuda = match model.device {
            Device::Emulator => None,
            Device::Cuda(ordinal) => Some(open(ordinal)?),
            // Without kernels for a device nobody needs to look for one.
            Device::Auto if model.bundle.is_none() => None,
            Device::Auto if model.ranks > 1 => {
                output::note("device: emulator, for several ranks");
                None
            }
            Device::Auto => match open(0) {
                Ok(source) => Some(source),
                Err(error) => {
                    note_emulator(&error);
                    None
                }
            },
        };
        let config = Config::open(&model.model)?;
        let checkpoint = Checkpoint::open(&model.model)?;
        checkpoint.check(&config)?;
        let is_auto = model.device == Device::Auto;
        let (ranks, coverage) = (model.ranks, model.cuda.coverage);
        Ok(Source { config, checkpoint, ranks, cuda, is_auto, coverage })
    }

    /// The plan of decoders of one row for requests of up to `context` positions; `decoders` of them shall be there
    /// at a time.
    ///
    /// # Errors
    /// The ranks do not divide the model, the bundle lacks a kernel, or the machine has too little memory.
    pub(crate) fn plan(&self, context: usize, decoders: u64) -> Result<Ready, CliError> {
        let options = DecodeOptions { rows: 1, ranks: self.ranks, context: context.max(1) as u64 };
        if let Some(cuda) = &self.cuda {
            match cuda.plan(&self.config, options) {
                Ok(plan) => {
                    let info = cuda.device.info();
                    output::note(&format!("device: cuda:{}, {}", info.ordinal, info.name));
                    return Ok(Ready { plan, cuda: Some(cuda.clone()) });
                }
                Err(error) if self.is_auto => note_emulator(&error),
                Err(error) => return Err(error),
            }
        }
        let plan = DecodePlan::new(&self.config, options)?;
        memory::check(&plan.plan, decoders)?;
        Ok(Ready { plan, cuda: None })
    }

    /// Prepares a decoder.
    ///
    /// # Errors
    /// The kernels do not take the model's sizes, the device has too little memory, or the checkpoint changed.
    pub(crate) fn engine(&self, ready: Ready, parallel: bool) -> Result<Engine, CliError> {
        let started = Instant::now();
        let DecodePlan { plan, weights, host } = ready.plan;
        let bar = output::progress("loading");
        let progress = |done: usize, all: usize| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        };
        let executor = match &ready.cuda {
            Some(cuda) => {
                let mut executor = AnyExecutor::Cuda(Box::new(cuda.executor(plan)?));
                self.checkpoint.check_unchanged()?;
                load_weights(&mut executor, &weights, &self.checkpoint, progress)?;
                executor
            }
            None => {
                let text = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
                let mut executor =
                    EmuExecutor::new(plan, &text).map_err(CliError::of_preparation)?;
                executor.set_options(Options { parallel, ..Options::STANDARD });
                let mut executor = AnyExecutor::Emulator(Box::new(executor));
                load_weights(&mut executor, &weights, &self.checkpoint, progress)?;
                executor
            }
        };
        bar.finish_and_clear();
        self.checkpoint.check_unchanged()?;
        let decoder = Decoder::new(executor, host)?;
        Ok(Engine { decoder, loading: started.elapsed(), coverage: self.coverage })
    }
}

fn note_emulator(error: &CliError) {
    output::note(&format!("device: emulator, because of error[{}]: {error}", error.code()));
}

/// A decoder of one row.
pub(crate) struct Engine {
    decoder: Decoder<AnyExecutor>,
    /// Time that the preparation took.
    pub(crate) loading: Duration,
    coverage: bool,
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let (true, AnyExecutor::Cuda(executor)) = (self.coverage, self.decoder.executor()) {
            for (kernel, launches) in executor.coverage().iter() {
                output::note(&format!("{launches:>10}  {kernel}"));
            }
        }
    }
}

impl Engine {
    /// Decodes one token.
    ///
    /// # Errors
    /// The token is outside the vocabulary, the context is full, or a kernel was stopped.
    pub(crate) fn step(&mut self, id: u32) -> Result<(), CliError> {
        let id = i32::try_from(id).unwrap_or(i32::MAX);
        Ok(self.decoder.step(&[id])?)
    }

    /// The likeliest next token.
    ///
    /// # Errors
    /// There was no step yet, or the logits are not finite.
    pub(crate) fn greedy(&self) -> Result<u32, CliError> {
        let ids = self.decoder.greedy()?;
        Ok(ids.first().map_or(0, |&id| id as u32))
    }

    /// The logits of the next token.
    ///
    /// # Errors
    /// There was no step yet, or the logits are not finite.
    pub(crate) fn logits(&self) -> Result<Vec<f32>, CliError> {
        Ok(self.decoder.logits()?)
    }

    /// Starts a new request.
    ///
    /// # Errors
    /// The executor does not take it.
    pub(crate) fn reset(&mut self) -> Result<(), CliError> {
        Ok(self.decoder.reset()?)
    }

    /// The state now.
    ///
    /// # Errors
    /// The executor does not give it.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, CliError> {
        Ok(self.decoder.snapshot()?)
    }

    /// Goes back to a state.
    ///
    /// # Errors
    /// The executor does not take it.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) -> Result<(), CliError> {
        Ok(self.decoder.restore(snapshot)?)
    }
}
