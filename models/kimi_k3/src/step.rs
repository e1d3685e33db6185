//! Decoding, one step at a time, on whatever executes the plan.

use kernel_abi::exec::Executor;
use kernel_abi::plan::BufferId;
use thiserror::Error;

use crate::code::Code;
use crate::plan::HostBuffers;

/// Why a step is refused or failed.
#[derive(Debug, Error)]
pub enum StepError<E: std::error::Error> {
    /// More or fewer tokens than rows.
    #[error("{found} tokens for a step of {rows} rows")]
    Rows {
        /// Tokens that were given.
        found: usize,
        /// Rows of the step.
        rows: usize,
    },
    /// An id that is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab}")]
    Token {
        /// The id.
        id: i32,
        /// Entries of the vocabulary.
        vocab: u64,
    },
    /// A request has no position left.
    #[error("the context of {context} positions is full")]
    ContextFull {
        /// Positions of a request.
        context: u64,
    },
    /// Logits are NaN or infinite.
    #[error("the logits are not finite in row {row}")]
    NotFinite {
        /// The first such row.
        row: usize,
    },
    /// The executor failed.
    #[error("{0}")]
    Executor(E),
}

impl<E: std::error::Error> StepError<E> {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            StepError::Rows { .. } => Code::K0501,
            StepError::Token { .. } => Code::K0302,
            StepError::ContextFull { .. } => Code::K0303,
            StepError::NotFinite { .. } => Code::K0503,
            StepError::Executor(_) => Code::K0502,
        }
    }
}

/// The state of all requests of a decoder.
#[derive(Debug, Clone)]
pub struct Snapshot {
    positions: Vec<u64>,
    /// Rank by rank.
    states: Vec<Vec<u8>>,
}

/// Requests that are decoded together, one a row; each row has its own slot and pages.
#[derive(Debug)]
pub struct Decoder<E: Executor> {
    executor: E,
    host: HostBuffers,
    positions: Vec<u64>,
}

impl<E: Executor> Decoder<E> {
    /// A decoder on an executor whose weights are loaded.
    ///
    /// # Errors
    /// The executor does not take the tables of slots and pages.
    pub fn new(executor: E, host: HostBuffers) -> Result<Decoder<E>, StepError<E::Error>> {
        let rows = host.options.rows as usize;
        let mut decoder = Decoder { executor, host, positions: vec![0; rows] };
        let (slots, pages) = (decoder.host.own_slots(), decoder.host.own_pages());
        decoder.set(decoder.host.slots, &slots)?;
        decoder.set(decoder.host.pages, &pages)?;
        Ok(decoder)
    }

    /// Decodes one token of every row.
    ///
    /// # Errors
    /// Ids outside the vocabulary, a full context, or what the executor failed with.
    pub fn step(&mut self, ids: &[i32]) -> Result<(), StepError<E::Error>> {
        let rows = self.positions.len();
        if ids.len() != rows {
            return Err(StepError::Rows { found: ids.len(), rows });
        }
        let vocab = self.host.vocab;
        if let Some(&id) =
            ids.iter().find(|&&id| u64::try_from(id).is_ok_and(|id| id >= vocab) || id < 0)
        {
            return Err(StepError::Token { id, vocab });
        }
        let context = self.host.options.context;
        if self.positions.iter().any(|&position| position >= context) {
            return Err(StepError::ContextFull { context });
        }
        let positions: Vec<i32> = self.positions.iter().map(|&p| p as i32).collect();
        self.set(self.host.ids, ids)?;
        self.set(self.host.positions, &positions)?;
        self.executor.step().map_err(StepError::Executor)?;
        for position in &mut self.positions {
            *position += 1;
        }
        Ok(())
    }

    /// The greatest logit's id of every row after a step; ties go to the lowest id.
    ///
    /// # Errors
    /// There was no step yet, or the greatest logit of a rank is not finite: NaN counts as -inf there.
    pub fn greedy(&self) -> Result<Vec<i32>, StepError<E::Error>> {
        let ranks = self.host.options.ranks as usize;
        let read = |buffer| self.executor.read(0, buffer).map_err(StepError::Executor);
        let (best, ids) = (read(self.host.best)?, read(self.host.best_ids)?);
        let best: Vec<f32> =
            best.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        all_finite(&best, ranks)?;
        let ids: Vec<i32> = ids.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
        let of_row = |(best, ids): (&[f32], &[i32])| {
            // Ranks ascend with their ids, so a strict comparison leaves ties to the lowest id.
            let mut at = 0;
            for rank in 1..ranks {
                if best[rank] > best[at] {
                    at = rank;
                }
            }
            ids[at]
        };
        Ok(best.chunks(ranks).zip(ids.chunks(ranks)).map(of_row).collect())
    }

    /// The logits of the last step: `rows * vocab`.
    ///
    /// # Errors
    /// There was no step yet, or a logit is not finite.
    pub fn logits(&self) -> Result<Vec<f32>, StepError<E::Error>> {
        let bytes = self.executor.read(0, self.host.logits).map_err(StepError::Executor)?;
        let logits: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        all_finite(&logits, self.host.vocab as usize)?;
        Ok(logits)
    }

    /// Forgets all requests: positions and states are as before the first step.
    ///
    /// # Errors
    /// The executor does not take the states.
    pub fn reset(&mut self) -> Result<(), StepError<E::Error>> {
        self.positions.fill(0);
        for rank in 0..self.executor.plan().ranks {
            for &state in &self.host.states {
                let described = &self.executor.plan().buffers[state.index()];
                let len = described.elements().unwrap_or(0) as usize;
                let zeros = vec![0; kernel_abi::numeric::bytes_of(described.dtype, len)];
                self.executor.write(rank, state, &zeros).map_err(StepError::Executor)?;
            }
        }
        Ok(())
    }

    /// The states and positions of all requests, to come back to.
    ///
    /// # Errors
    /// The executor does not give a state.
    pub fn snapshot(&self) -> Result<Snapshot, StepError<E::Error>> {
        let mut states = Vec::new();
        for rank in 0..self.executor.plan().ranks {
            for &state in &self.host.states {
                states.push(self.executor.read(rank, state).map_err(StepError::Executor)?);
            }
        }
        Ok(Snapshot { positions: self.positions.clone(), states })
    }

    /// Goes back to a snapshot of this decoder.
    ///
    /// # Errors
    /// The executor does not take a state.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), StepError<E::Error>> {
        let mut states = snapshot.states.iter();
        for rank in 0..self.executor.plan().ranks {
            for (&state, bytes) in self.host.states.iter().zip(states.by_ref()) {
                self.executor.write(rank, state, bytes).map_err(StepError::Executor)?;
            }
        }
        self.positions.clone_from(&snapshot.positions);
        Ok(())
    }

    /// Tokens that every row has had.
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// The executor, to read other buffers of its plan.
    pub fn executor(&self) -> &E {
        &self.executor
    }

    /// The executor, to change how it runs.
    pub fn executor_mut(&mut self) -> &mut E {
        &mut self.executor
    }

    /// The buffers of the step.
    pub fn host(&self) -> &HostBuffers {
        &self.host
    }

    fn set(&mut self, buffer: BufferId, values: &[i32]) -> Result<(), StepError<E::Error>> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        for rank in 0..self.executor.plan().ranks {
            self.executor.write(rank, buffer, &bytes).map_err(StepError::Executor)?;
        }
        Ok(())
    }
}

/// Refuses NaN and infinity in rows of `width` values.
fn all_finite<E: std::error::Error>(values: &[f32], width: usize) -> Result<(), StepError<E>> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => Err(StepError::NotFinite { row: at / width.max(1) }),
    }
}
