//! `tokenizer.json` of a byte-level BPE.

use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use serde_json::Value;

use crate::bytes::bytes_of;
use crate::{TextError, Utf8Stream};

mod kind;

/// The file's name in a folder.
pub const FILE_NAME: &str = "tokenizer.json";

/// Bytes that the file may have. The largest in use have about 35 MB.
const MAX_BYTES: u64 = 256 << 20;

/// Tokens that a vocabulary may have, and the greatest id: an array has one place for each.
const MAX_TOKENS: usize = 1 << 24;

/// Characters of a value or token that a message shows.
pub(crate) const SHOWN: usize = 60;

/// Characters of a fault that a message shows.
const FAULT: usize = 200;

/// Other formats by the file that tells.
const OTHER_FORMATS: [(&str, &str); 5] = [
    ("tiktoken.model", "a vocabulary of tiktoken"),
    ("tokenizer.model", "a model of SentencePiece or tiktoken"),
    ("spiece.model", "a model of SentencePiece"),
    ("vocab.json", "a vocabulary without its `tokenizer.json`"),
    ("vocab.txt", "a vocabulary of WordPiece"),
];

/// A tokenizer with the bytes of each token.
#[derive(Debug, Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// By id; `None` where the vocabulary has a gap.
    tokens: Vec<Option<Token>>,
}

#[derive(Debug, Clone)]
struct Token {
    bytes: Vec<u8>,
    is_special: bool,
}

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder.
    ///
    /// # Errors
    /// The folder holds another format or none, the file cannot be read, is broken, or is of another kind.
    pub fn open(folder: &Path) -> Result<Tokenizer, TextError> {
        let path = folder.join(FILE_NAME);
        // A link that leads nowhere or in a circle is there, and cannot be read.
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            let other = OTHER_FORMATS.iter().find(|(name, _)| folder.join(name).exists());
            let found = match other {
                Some((name, what)) => format!("`{name}`, {what}"),
                None => "no tokenizer".to_owned(),
            };
            return Err(TextError::Format { folder: folder.to_owned(), found });
        }
        let text = read(&path).map_err(|source| TextError::Read { path: path.clone(), source })?;
        Tokenizer::parse(&text, &path)
    }

    /// Reads the bytes of a `tokenizer.json`; `path` is for messages.
    ///
    /// # Errors
    /// The file is broken or of another kind.
    pub fn parse(text: &[u8], path: &Path) -> Result<Tokenizer, TextError> {
        let broken = |fault: String| TextError::Broken {
            path: path.to_owned(),
            fault: shown(&fault, FAULT),
        };
        let value: Value =
            serde_json::from_slice(text).map_err(|error| broken(error.to_string()))?;
        kind::check(&value, path)?;
        check_ids(&value).map_err(broken)?;
        check_merges(&value).map_err(broken)?;
        let mut inner =
            tokenizers::Tokenizer::from_bytes(text).map_err(|e| broken(e.to_string()))?;
        // Settings for batches of training texts; a prompt is neither cut nor filled up.
        inner.with_truncation(None).map_err(|e| broken(e.to_string()))?;
        inner.with_padding(None);
        check_added(&value, &inner).map_err(broken)?;
        let tokens = tokens(&inner).map_err(broken)?;
        Ok(Tokenizer { inner, tokens })
    }

    /// Ids up to the greatest, gaps included.
    pub fn vocabulary_size(&self) -> usize {
        self.tokens.len()
    }

    /// The ids of a text; nothing is added before or after it. Special tokens that stand in the text as such are
    /// one id.
    ///
    /// # Errors
    /// A part of the text has no token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let encoding =
            self.inner.encode(text, false).map_err(|error| TextError::Encode(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// `bos`, then the ids of a text.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, bos: u32, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = vec![bos];
        ids.extend(self.encode(text)?);
        Ok(ids)
    }

    /// The id of a token by its text, such as `<|end|>`.
    pub fn id_of(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The bytes of a token; none for a special one.
    ///
    /// # Errors
    /// There is no such token.
    pub fn bytes_of(&self, id: u32) -> Result<&[u8], TextError> {
        let token = self.tokens.get(id as usize).and_then(Option::as_ref);
        let token = token.ok_or(TextError::Token { id, size: self.tokens.len() })?;
        Ok(if token.is_special { &[] } else { &token.bytes })
    }

    /// The text of ids without special tokens; what is no UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// There is no such token.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TextError> {
        let mut stream = self.stream();
        let mut text = String::new();
        for &id in ids {
            text.push_str(&stream.push(id)?);
        }
        text.push_str(&stream.finish());
        Ok(text)
    }

    /// Decoding of one token after the other.
    pub fn stream(&self) -> DecodeStream<'_> {
        DecodeStream { tokenizer: self, text: Utf8Stream::new() }
    }
}

/// Decodes tokens as they come and gives whole characters only.
#[derive(Debug, Clone)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    text: Utf8Stream,
}

impl DecodeStream<'_> {
    /// Takes a token; returns the text that is whole now, which may be nothing.
    ///
    /// # Errors
    /// There is no such token.
    pub fn push(&mut self, id: u32) -> Result<String, TextError> {
        Ok(self.text.push(self.tokenizer.bytes_of(id)?))
    }

    /// What is left at the end: nothing, or U+FFFD for an unfinished character.
    pub fn finish(self) -> String {
        self.text.finish()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    // Asked before opening: to open a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(Error::new(ErrorKind::InvalidData, "not a regular file"));
    }
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Error::new(ErrorKind::InvalidData, format!("more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// The start of a text of a file.
fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Refuses ids that would need an absurd table.
fn check_ids(value: &Value) -> Result<(), String> {
    let vocabulary = value.pointer("/model/vocab").and_then(Value::as_object);
    let of_vocabulary = vocabulary.into_iter().flatten().map(|(token, id)| (token.as_str(), id));
    let added = value.get("added_tokens").and_then(Value::as_array);
    let of_added = added.into_iter().flatten().filter_map(|token| {
        Some((token.get("content").and_then(Value::as_str)?, token.get("id")?))
    });
    for (token, id) in of_vocabulary.chain(of_added) {
        if id.as_u64().is_none_or(|id| id >= MAX_TOKENS as u64) {
            return Err(format!(
                "token `{}` has the id {}, expected one below {MAX_TOKENS}",
                shown(token, SHOWN),
                shown(&id.to_string(), SHOWN)
            ));
        }
    }
    Ok(())
}

/// Refuses added tokens whose id is another than the file says: behind a gap the library numbers them anew.
fn check_added(value: &Value, inner: &tokenizers::Tokenizer) -> Result<(), String> {
    let added = value.get("added_tokens").and_then(Value::as_array);
    for token in added.into_iter().flatten() {
        let Some(content) = token.get("content").and_then(Value::as_str) else { continue };
        let said = token.get("id").and_then(Value::as_u64);
        let is = inner.token_to_id(content).map(u64::from);
        if said != is {
            let token = shown(content, SHOWN);
            return Err(format!("the added token `{token}` does not follow the vocabulary"));
        }
    }
    Ok(())
}

/// Refuses merges that give no token: the library that reads them next counts on it.
fn check_merges(value: &Value) -> Result<(), String> {
    let Some(vocabulary) = value.pointer("/model/vocab").and_then(Value::as_object) else {
        return Ok(());
    };
    let merges = value.pointer("/model/merges").and_then(Value::as_array);
    for merge in merges.into_iter().flatten() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) => match pair.as_slice() {
                [a, b] => a.as_str().zip(b.as_str()),
                _ => None,
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
        };
        let Some((a, b)) = pair else {
            return Err(format!("{} is no merge", shown(&merge.to_string(), SHOWN)));
        };
        if !vocabulary.contains_key(&format!("{a}{b}")) {
            let (a, b) = (shown(a, SHOWN), shown(b, SHOWN));
            return Err(format!("the merge of `{a}` and `{b}` gives no token"));
        }
    }
    Ok(())
}

/// The bytes of every token by id.
fn tokens(inner: &tokenizers::Tokenizer) -> Result<Vec<Option<Token>>, String> {
    let added = inner.get_added_tokens_decoder();
    let vocabulary = inner.get_vocab(true);
    let size = vocabulary.values().map(|&id| id as usize + 1).max().unwrap_or(0);
    let mut tokens: Vec<Option<Token>> = vec![None; size];
    let mut sorted: Vec<(&String, &u32)> = vocabulary.iter().collect();
    sorted.sort_unstable();
    for (text, &id) in sorted {
        let token = match added.get(&id) {
            Some(added) => {
                Token { bytes: added.content.clone().into_bytes(), is_special: added.special }
            }
            None => Token {
                bytes: bytes_of(text).ok_or_else(|| {
                    format!("token {id}, `{}`, is not written in bytes", shown(text, SHOWN))
                })?,
                is_special: false,
            },
        };
        let slot = &mut tokens[id as usize];
        if slot.is_some() && !added.contains_key(&id) {
            return Err(format!(
                "the id {id} has two tokens, one of them `{}`",
                shown(text, SHOWN)
            ));
        }
        *slot = Some(token);
    }
    Ok(tokens)
}
