//! Which tokenizers are taken: a BPE whose tokens are bytes and that gives the same ids for a text every time.
//!
//! The parts around the model are named one by one: what is not known here could lose bytes of a text, and the
//! library that runs them does not survive every setting of every part.

use std::path::Path;

use serde_json::Value;

use super::{SHOWN, shown};
use crate::TextError;

/// Refuses the first part that is of another kind; a BPE without a type is one.
pub(super) fn check(value: &Value, path: &Path) -> Result<(), TextError> {
    let kinds = Kinds { path };
    kinds.model(value.get("model"))?;
    if let Some(part) = present(value.get("normalizer")) {
        kinds.normalizer(part)?;
    }
    if let Some(part) = present(value.get("pre_tokenizer")) {
        kinds.pre_tokenizer(part)?;
    }
    // What it would add to a prompt is the caller's business.
    if let Some(part) = present(value.get("post_processor")) {
        kinds.part_is("post_processor.type", Some(part), "ByteLevel")?;
    }
    kinds.part_is("decoder.type", value.get("decoder"), "ByteLevel")
}

fn present(part: Option<&Value>) -> Option<&Value> {
    part.filter(|part| !part.is_null())
}

struct Kinds<'a> {
    path: &'a Path,
}

impl Kinds<'_> {
    fn other(
        &self,
        field: &'static str,
        found: Option<&Value>,
        expected: &'static str,
    ) -> TextError {
        let found = found.map_or("absent".to_owned(), |found| shown(&found.to_string(), SHOWN));
        TextError::Kind { path: self.path.to_owned(), field, found, expected }
    }

    fn is(
        &self,
        field: &'static str,
        found: Option<&Value>,
        expected: &'static str,
    ) -> Result<(), TextError> {
        match found {
            Some(Value::String(kind)) if kind == expected => Ok(()),
            found => Err(self.other(field, found, expected)),
        }
    }

    /// A part of that type.
    fn part_is(
        &self,
        field: &'static str,
        part: Option<&Value>,
        expected: &'static str,
    ) -> Result<(), TextError> {
        match part.filter(|part| !part.is_null()) {
            Some(part) if part.is_object() => self.is(field, part.get("type"), expected),
            found => Err(self.other(field, found, expected)),
        }
    }

    fn model(&self, model: Option<&Value>) -> Result<(), TextError> {
        let Some(model) = model.filter(|model| model.is_object()) else {
            let found = model.filter(|model| !model.is_null());
            return Err(self.other("model", found, "an object"));
        };
        if model.get("type").is_some() || model.get("merges").is_none() {
            self.is("model.type", model.get("type"), "BPE")?;
        }
        let dropout = present(model.get("dropout"));
        if dropout.is_some() {
            return Err(self.other("model.dropout", dropout, "null"));
        }
        // Marks of words belong to tokens of characters; bytes have none.
        for (field, name) in [
            ("model.continuing_subword_prefix", "continuing_subword_prefix"),
            ("model.end_of_word_suffix", "end_of_word_suffix"),
        ] {
            let mark = present(model.get(name)).filter(|mark| *mark != "");
            if mark.is_some() {
                return Err(self.other(field, mark, "null"));
            }
        }
        Ok(())
    }

    /// Unicode's normal forms, or several of them.
    fn normalizer(&self, part: &Value) -> Result<(), TextError> {
        const EXPECTED: &str = "NFC, NFD, NFKC, NFKD or a Sequence of them";
        match part.get("type").and_then(Value::as_str) {
            Some("NFC" | "NFD" | "NFKC" | "NFKD") => Ok(()),
            Some("Sequence") => self
                .parts("normalizer.normalizers", part.get("normalizers"))?
                .iter()
                .try_for_each(|part| self.normalizer(part)),
            Some(_) | None => Err(self.other("normalizer.type", kind_of(part), EXPECTED)),
        }
    }

    /// Cuts a text and writes its pieces in bytes.
    fn pre_tokenizer(&self, part: &Value) -> Result<(), TextError> {
        const EXPECTED: &str = "ByteLevel, Digits, Split or a Sequence of them";
        const PATTERN: &str = "pre_tokenizer.pattern";
        match part.get("type").and_then(Value::as_str) {
            Some("ByteLevel" | "Digits") => Ok(()),
            Some("Split") => {
                let pattern = part.get("pattern");
                let text = ["Regex", "String"]
                    .iter()
                    .find_map(|kind| pattern.and_then(|pattern| pattern.get(kind)));
                match text.and_then(Value::as_str) {
                    Some(text) if !text.is_empty() => Ok(()),
                    Some(_) | None => Err(self.other(PATTERN, pattern, "a Regex or a String")),
                }
            }
            Some("Sequence") => self
                .parts("pre_tokenizer.pretokenizers", part.get("pretokenizers"))?
                .iter()
                .try_for_each(|part| self.pre_tokenizer(part)),
            Some(_) | None => Err(self.other("pre_tokenizer.type", kind_of(part), EXPECTED)),
        }
    }

    fn parts<'v>(
        &self,
        field: &'static str,
        parts: Option<&'v Value>,
    ) -> Result<&'v [Value], TextError> {
        let list = parts.and_then(Value::as_array);
        list.map(Vec::as_slice).ok_or_else(|| self.other(field, parts, "a list"))
    }
}

/// The type of a part; the part itself where it is no object.
fn kind_of(part: &Value) -> Option<&Value> {
    if part.is_object() { part.get("type") } else { Some(part) }
}
