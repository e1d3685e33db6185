//! A model that is ready to decode.

use std::time::{Duration, Instant};

use kernel_abi::exec::Executor;
use kernel_abi::plan::{BufferId, CheckedPlan};
use kernel_emulator::{EmuExecutor, Options};
use kimi_k3::load::{LoadError, load_weights, open_packed, repack_weights};
use kimi_k3::packed::{self, Kept, Packed, Place, WORTH_KEEPING};
use kimi_k3::plan::{DecodeOptions, DecodePlan};
use kimi_k3::step::{Decoder, Snapshot};
use kimi_k3::weights::Recipe;
use kimi_k3::{Checkpoint, Config, memory};

use crate::args::{Device, Model};
use crate::cuda::{CudaSource, open_bundle};
use crate::error::CliError;
use crate::executor::AnyExecutor;
use crate::loading::LoadWatch;
use crate::{loading, output};

/// A configuration and its checkpoint, checked, and what can run it.
pub(crate) struct Source {
    pub(crate) config: Config,
    checkpoint: Checkpoint,
    ranks: u64,
    cuda: Option<CudaSource>,
    /// Without a device that fits the emulator will do.
    is_auto: bool,
    coverage: bool,
    /// Tells how loading goes on where standard error is no terminal, too.
    progress: bool,
    /// Where packed weights are kept.
    place: Option<Place>,
}

/// A plan and what runs it.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    plan: DecodePlan,
    cuda: Option<CudaSource>,
}

impl Source {
    /// Opens the bundle, the device and the folder of a model.
    ///
    /// # Errors
    /// The bundle is refused, the device cannot be had, or the configuration or a tensor is refused.
    pub(crate) fn open(model: &Model) -> Result<Source, CliError> {
        // First of all: what is named and broken is said, whatever runs the kernels.
        let bundle = model.bundle.as_deref().map(|path| open_bundle(path, model.cuda));
        let bundle = bundle.transpose()?;
        let cuda = match model.device {
            Device::Emulator => None,
            Device::Cuda(ordinal) => Some(CudaSource::open(ordinal, bundle, model.cuda)?),
            // Without kernels for a device nobody needs to look for one.
            Device::Auto if bundle.is_none() => None,
            Device::Auto if model.ranks > 1 => {
                output::note("device: emulator, for several ranks");
                None
            }
            Device::Auto => match CudaSource::open(0, bundle, model.cuda) {
                Ok(source) => Some(source),
                Err(error) if error.is_lack_of_device() => {
                    note_emulator(&error);
                    None
                }
                Err(error) => return Err(error),
            },
        };
        let config = Config::open(&model.model)?;
        let checkpoint = Checkpoint::open(&model.model)?;
        loading::check(&config, &checkpoint)?;
        let is_auto = model.device == Device::Auto;
        let (ranks, coverage, progress) = (model.ranks, model.cuda.coverage, model.progress);
        let place = match packed::folder(&model.model, model.packed.as_deref()) {
            Ok(folder) => Some(Place {
                folder,
                model: model.model.clone(),
                ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
                checkpoint: checkpoint.identity(),
                // A folder that was asked for gets every file.
                least: if model.packed.is_some() { 0 } else { WORTH_KEEPING },
            }),
            Err(fault) => {
                output::warning(&fault);
                None
            }
        };
        Ok(Source { config, checkpoint, ranks, cuda, is_auto, coverage, progress, place })
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
                Err(error) if self.is_auto && error.is_lack_of_device() => note_emulator(&error),
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
        let executor = match &ready.cuda {
            Some(cuda) => {
                let mut executor = AnyExecutor::Cuda(Box::new(cuda.executor(plan)?));
                self.load(&mut executor, &weights)?;
                executor
            }
            None => {
                let text = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
                let mut executor =
                    EmuExecutor::new(plan, &text).map_err(CliError::of_preparation)?;
                executor.set_options(Options { parallel, ..Options::STANDARD });
                let mut executor = AnyExecutor::Emulator(Box::new(executor));
                self.load(&mut executor, &weights)?;
                executor
            }
        };
        let decoder = Decoder::new(executor, host)?;
        Ok(Engine { decoder, loading: started.elapsed(), coverage: self.coverage })
    }

    /// Loads the weights of all ranks from files that nobody changes meanwhile.
    fn load(
        &self,
        executor: &mut AnyExecutor,
        weights: &[(BufferId, Vec<Recipe>)],
    ) -> Result<(), CliError> {
        self.checkpoint.check_unchanged()?;
        let packed = self
            .place
            .as_ref()
            .map_or_else(Vec::new, |place| open_packed(executor.plan(), weights, place));
        let watch = LoadWatch::new(self.progress);
        let loaded = load_weights(executor, weights, &self.checkpoint, &packed, &watch);
        watch.finish();
        // What was wrong with a file is said, whatever came of the weights.
        packed.iter().flat_map(Packed::take_faults).for_each(|fault| output::warning(&fault));
        loaded?;
        // Of a checkpoint that changed meanwhile nothing is kept.
        self.checkpoint.check_unchanged()?;
        let Some(place) = &self.place else { return Ok(()) };
        for packed in packed {
            let rank = packed.rank();
            match packed.finish() {
                Ok(Kept::Before | Kept::Now | Kept::Nowhere) => {}
                Ok(Kept::Damaged) => self.renew(executor.plan(), weights, place, rank)?,
                Err(fault) => output::warning(&fault),
            }
        }
        Ok(())
    }

    /// Makes the damaged file of a rank anew.
    fn renew(
        &self,
        plan: &CheckedPlan,
        weights: &[(BufferId, Vec<Recipe>)],
        place: &Place,
        rank: u32,
    ) -> Result<(), CliError> {
        let watch = LoadWatch::new(self.progress);
        let done = repack_weights(plan, weights, &self.checkpoint, (place, rank), &watch);
        watch.finish();
        match done {
            Ok(packed) => packed.faults.iter().for_each(output::warning),
            // The weights are where they are used: text can start.
            Err(LoadError::Executor(fault)) => output::warning(&fault),
            Err(error) => return Err(error.into()),
        }
        Ok(())
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
