//! CTAs of one launch that count arrivals: they run one after the other, in the order of the schedule, and each sees of the others what an
//! arrival has ordered.
//!
//! A read of what another CTA writes is a race unless the reader is the last arriver at a word and the writer
//! stored before it arrived there. Reads of what nobody has written so far are remembered, since a later CTA
//! may write it.

use std::collections::BTreeMap;

use kernel_dsl::source::Span;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId, Words};

use crate::error::{EmuError, ErrorKind};
use crate::grid::Ended;
use crate::launch;
use crate::memory::{Argument, Memory};

/// A word of a counter.
pub(crate) type Word = (ParamId, usize);

/// A CTA has counted its arrival.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) word: Word,
    /// Stores from before the role that arrives, or none outside of roles.
    pub(crate) outside: u32,
    /// The stores of the arriving threads begin after this one.
    pub(crate) after: u32,
    /// Stores that they had done.
    pub(crate) stores: u32,
}

impl Arrival {
    /// True where the arrival orders a store ahead of what the last arriver does.
    fn orders(&self, site: u32) -> bool {
        site <= self.outside || (self.after < site && site <= self.stores)
    }
}

/// Elements that a CTA read and that nobody had written, with the place of the read.
pub(crate) type Reads = BTreeMap<(ParamId, usize), Span>;

/// What the CTAs share.
pub(crate) struct Together {
    counters: BTreeMap<Word, u32>,
    /// CTAs that have run, by number.
    pub(crate) ended: BTreeMap<usize, Ended>,
    /// The CTA that stored each element, plus one; empty where no CTA has.
    owners: IndexVec<ParamId, Vec<u32>>,
}

/// Whom an element belongs to, as far as CTAs have run.
pub(crate) enum Owner {
    Nobody,
    /// Visible; what it holds, if the store was not lost.
    Visible(Option<u64>),
    /// Another CTA that nothing orders before the reader.
    Racing(usize),
}

impl Together {
    /// For a kernel with counters, else nothing.
    pub(crate) fn new(params: &IndexVec<ParamId, Param>) -> Option<Together> {
        let counts = params.iter().any(|param| param.words == Some(Words::Counter));
        counts.then(|| Together {
            counters: BTreeMap::new(),
            ended: BTreeMap::new(),
            owners: params.iter().map(|_| Vec::new()).collect(),
        })
    }

    /// Counts an arrival; the old value.
    pub(crate) fn count(&mut self, word: Word, limit: u32) -> u32 {
        let value = self.counters.entry(word).or_insert(0);
        let old = *value;
        *value = if old >= limit { 0 } else { old + 1 };
        old
    }

    /// What a CTA that is the last at `words` sees of an element that it has not stored itself.
    pub(crate) fn owner(
        &self,
        params: &IndexVec<ParamId, Param>,
        param: ParamId,
        index: usize,
        words: &[Word],
    ) -> Owner {
        let owner = self.owners[param].get(index).copied().unwrap_or(0);
        let Some(cta) = (owner as usize).checked_sub(1) else { return Owner::Nobody };
        let Some(Ended { stores, .. }) = self.ended.get(&cta) else { return Owner::Nobody };
        let Some((site, code)) = stores.overlays[param].element(params[param].dtype, index) else {
            return Owner::Nobody;
        };
        let ordered = stores
            .arrivals
            .iter()
            .any(|arrival| words.contains(&arrival.word) && arrival.orders(site));
        if ordered { Owner::Visible(code) } else { Owner::Racing(cta) }
    }

    /// The CTA of this number has run.
    pub(crate) fn end(
        &mut self,
        params: &IndexVec<ParamId, Param>,
        memory: &Memory,
        cta: usize,
        ended: Ended,
    ) {
        let number = cta as u32 + 1;
        for id in params.ids() {
            let Argument::Buffer(buffer) = &memory.arguments[id] else { continue };
            for index in ended.stores.overlays[id].elements() {
                let owners = &mut self.owners[id];
                owners.resize(buffer.len(), 0);
                owners[index] = number;
            }
        }
        self.ended.insert(cta, ended);
    }

    /// Refuses reads of what a later CTA has written, and counters that do not start again at zero.
    pub(crate) fn check(
        &self,
        params: &IndexVec<ParamId, Param>,
        cta: &impl Fn(usize) -> [u32; 3],
    ) -> Result<(), EmuError> {
        for (&reader, ended) in &self.ended {
            for (&(param, index), &span) in &ended.stores.reads {
                let owner = self.owners[param].get(index).copied().unwrap_or(0) as usize;
                if owner != 0 && owner != reader + 1 {
                    let error = race(&params[param], span, cta(owner - 1));
                    return Err(error.in_cta(cta(reader)));
                }
            }
        }
        for (&(param, index), &value) in &self.counters {
            if value != 0 {
                let name = &params[param].name;
                let message = format!(
                    "word {index} of the counter `{name}` is {value} after the run: the arrivals are no multiple \
                     of the stated number"
                );
                let error = EmuError::new(ErrorKind::Contract, params[param].span, message);
                return Err(error.at(vec![index as i64]));
            }
        }
        Ok(())
    }
}

/// The error of a read that nothing orders after the write of another CTA.
pub(crate) fn race(param: &Param, span: Span, [x, y, z]: [u32; 3]) -> EmuError {
    let message = format!(
        "`{}` is read where CTA ({x}, {y}, {z}) writes it, and nothing orders the two",
        param.name
    );
    EmuError::new(ErrorKind::GridRace, span, message)
        .other(param.span, "declared here")
        .help("read it inside of `if arrive.last`, by the last of those who wrote it")
}

/// Refuses counters that do not start at zero.
pub(crate) fn check_zero(
    params: &IndexVec<ParamId, Param>,
    memory: &Memory,
) -> Result<(), EmuError> {
    for (id, param) in params.iter_enumerated() {
        if param.words != Some(Words::Counter) {
            continue;
        }
        let Argument::Buffer(buffer) = &memory.arguments[id] else { continue };
        if let Some(index) = (0..buffer.len()).find(|&i| buffer.code(i) != Some(0)) {
            let message =
                format!("word {index} of the counter `{}` is not 0 at launch", param.name);
            let error = EmuError::new(ErrorKind::Contract, param.span, message);
            return Err(error.at(launch::coordinate(&[buffer.len() as u64], index as u64)));
        }
    }
    Ok(())
}
