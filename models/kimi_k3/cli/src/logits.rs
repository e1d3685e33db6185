//! `kimi-k3 logits`.

use kimi_k3::request::check_tokens;
use safetensors::tensor::{Dtype, TensorView, serialize};

use crate::args::Logits;
use crate::engine::Source;
use crate::error::CliError;
use crate::{interrupt, output};

pub(crate) fn run(options: &Logits) -> Result<(), CliError> {
    interrupt::listen();
    let path = &options.tokens;
    let text = std::fs::read_to_string(path).map_err(|error| CliError::File {
        path: path.clone(),
        verb: "read",
        fault: error.to_string(),
    })?;
    let ids: Vec<i64> = serde_json::from_str(&text).map_err(|error| CliError::Tokens {
        path: path.clone(),
        fault: format!("not a list of token ids: {error}"),
    })?;
    let source = Source::open(&options.model)?;
    let ids = check_tokens(&source.config, &ids, 0)?;
    let mut engine = source.engine(ids.len(), true)?;
    let vocab = source.config.vocab;
    let mut bytes = Vec::with_capacity(ids.len() * vocab * 4);
    let bar = output::progress("tokens");
    bar.set_length(ids.len() as u64);
    for &id in &ids {
        interrupt::check()?;
        engine.step(id)?;
        bytes.extend(engine.logits()?.iter().flat_map(|value| value.to_le_bytes()));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let failed =
        |fault: String| CliError::File { path: options.out.clone(), verb: "written", fault };
    let view = TensorView::new(Dtype::F32, vec![ids.len(), vocab], &bytes)
        .map_err(|error| failed(error.to_string()))?;
    let file = serialize([("logits", view)], None).map_err(|error| failed(error.to_string()))?;
    output::file(&options.out, &file)
}
