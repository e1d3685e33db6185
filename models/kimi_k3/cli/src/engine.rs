//! A model that is ready to decode.

use std::time::{Duration, Instant};

use kernel_emulator::{EmuExecutor, Options};
use kimi_k3::plan::{DecodeOptions, DecodePlan};
use kimi_k3::step::{Decoder, Snapshot, load_weights};
use kimi_k3::{Checkpoint, Config, memory};

use crate::args::Model;
use crate::error::CliError;
use crate::output;

/// A configuration and its checkpoint, checked.
pub(crate) struct Source {
    pub(crate) config: Config,
    checkpoint: Checkpoint,
    ranks: u64,
}

impl Source {
    /// Opens the folder of a model.
    ///
    /// # Errors
    /// The configuration or a tensor is refused.
    pub(crate) fn open(model: &Model) -> Result<Source, CliError> {
        let config = Config::open(&model.model)?;
        let checkpoint = Checkpoint::open(&model.model)?;
        checkpoint.check(&config)?;
        Ok(Source { config, checkpoint, ranks: model.ranks })
    }

    /// The plan of decoders of one row for requests of up to `context` positions; `decoders` of them shall be there
    /// at a time.
    ///
    /// # Errors
    /// The ranks do not divide the model, or the machine has too little memory.
    pub(crate) fn plan(&self, context: usize, decoders: u64) -> Result<DecodePlan, CliError> {
        let options = DecodeOptions { rows: 1, ranks: self.ranks, context: context.max(1) as u64 };
        let plan = DecodePlan::new(&self.config, options)?;
        memory::check(&plan.plan, decoders)?;
        Ok(plan)
    }

    /// Prepares a decoder.
    ///
    /// # Errors
    /// The kernels do not take the model's sizes, or the checkpoint changed.
    pub(crate) fn engine(&self, plan: DecodePlan, parallel: bool) -> Result<Engine, CliError> {
        let started = Instant::now();
        let DecodePlan { plan, weights, host } = plan;
        let text = |name: &str| kimi_k3::kernels::file(name).map(|file| file.text);
        let mut executor = EmuExecutor::new(plan, &text).map_err(CliError::of_preparation)?;
        executor.set_options(Options { parallel, ..Options::STANDARD });
        let bar = output::progress("loading");
        load_weights(&mut executor, &weights, &self.checkpoint, |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        self.checkpoint.check_unchanged()?;
        let decoder = Decoder::new(executor, host)?;
        Ok(Engine { decoder, loading: started.elapsed() })
    }
}

/// A decoder of one row.
pub(crate) struct Engine {
    decoder: Decoder<EmuExecutor>,
    /// Time that the preparation took.
    pub(crate) loading: Duration,
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
