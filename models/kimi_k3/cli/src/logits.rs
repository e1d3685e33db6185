//! `kimi-k3 logits`.

use kimi_k3::memory;
use kimi_k3::request::{check_tokens, read_tokens};
use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::args::Logits;
use crate::engine::Source;
use crate::error::CliError;
use crate::interrupt;
use crate::output::{self, Whole};

pub(crate) fn run(options: &Logits) -> Result<(), CliError> {
    interrupt::listen();
    let ids = read_tokens(&options.tokens)?;
    let source = Source::open(&options.model)?;
    let ids = check_tokens(&source.config, &ids, 0)?;
    // Before the work: what cannot be written is said at once.
    let out = Whole::create(&options.out)?;
    let mut engine = source.engine(source.plan(ids.len(), 1)?, true)?;
    let vocab = source.config.vocab;
    // The logits, and once more as a file.
    let size = ids.len().checked_mul(vocab).and_then(|n| n.checked_mul(4));
    memory::check_results(size.and_then(|size| (size as u64).checked_mul(2)))?;
    let mut bytes = Vec::with_capacity(size.unwrap_or(0));
    let bar = output::progress("tokens");
    bar.set_length(ids.len() as u64);
    for &id in &ids {
        interrupt::check()?;
        engine.step(id)?;
        bytes.extend(engine.logits()?.iter().flat_map(|value| value.to_le_bytes()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let failed = |error: safetensors::SafeTensorError| out.failed(error);
    let view = TensorView::new(Dtype::F32, vec![ids.len(), vocab], &bytes).map_err(failed)?;
    let file = serialize([("logits", view)], None).map_err(failed)?;
    out.finish(&file)
}
