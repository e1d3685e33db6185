//! Random weights for a configuration, as a checkpoint under K3's names, packed experts included.
//!
//! Every element depends on the seed, the place of its tensor in [`manifest::entries`] and its own place alone, by the
//! recipe of [`kernel_abi::numeric::random`]. Sizes are chosen so that activations stay of the order of one: a weight
//! of a projection from k elements has the variance 1 / k, norms are near 1, block scales make experts alike.

use std::io::{self, Write};

use kernel_abi::numeric::random::word;
use kernel_abi::numeric::{bytes_of, float_from_f64};
use kernel_abi::{DType, numeric::ue8m0};
use serde_json::{Map, Value, json};

use crate::checkpoint::format_name;
use crate::config::{Config, GROUP};
use crate::manifest::{self, Entry, Rule};

/// `config.json` of the random model that 16 ranks can share.
pub const TINY_RANDOM: &str = include_str!("../tiny_random/config.json");

/// The header is filled up to a multiple of this, so that data are aligned.
const ALIGNMENT: usize = 8;

/// `A_log` is padded to a multiple of this, as K3 does (96 heads in 128 elements).
const PADDING: usize = 32;

/// Root mean square of the sixteen codes of e2m1.
const CODE_RMS: f64 = 2.926;

/// Writes a safetensors file with random weights for a configuration.
///
/// # Errors
/// `out` does not take the bytes.
pub fn write_checkpoint(config: &Config, seed: u64, out: &mut dyn Write) -> io::Result<()> {
    let entries: Vec<Entry> = manifest::entries(config).into_iter().map(padded).collect();
    let mut header = header(&entries);
    while !header.len().is_multiple_of(ALIGNMENT) {
        header.push(' ');
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    for (stream, entry) in (0..).zip(&entries) {
        out.write_all(&elements(entry, |i| word(seed, stream, i)))?;
    }
    out.flush()
}

fn padded(entry: Entry) -> Entry {
    match entry.rule {
        Rule::Padded => {
            let shape = entry.shape.iter().map(|axis| axis.next_multiple_of(PADDING)).collect();
            Entry { shape, ..entry }
        }
        Rule::Any | Rule::Finite | Rule::Scale => entry,
    }
}

fn header(entries: &[Entry]) -> String {
    let mut tensors = Map::new();
    let mut start = 0;
    for entry in entries {
        let end = start + bytes_of(entry.dtype, entry.shape.iter().product());
        let dtype = format_name(entry.dtype).expect("the manifest has types of the format");
        let place = json!({"dtype": dtype, "shape": entry.shape, "data_offsets": [start, end]});
        tensors.insert(entry.name.clone(), place);
        start = end;
    }
    Value::Object(tensors).to_string()
}

/// The bytes of a tensor.
fn elements(entry: &Entry, word: impl Fn(u64) -> u64) -> Vec<u8> {
    let count: usize = entry.shape.iter().product();
    let words = (0..count as u64).map(word);
    match entry.rule {
        Rule::Scale => {
            // As many columns as scales, times the group.
            let columns = entry.shape.last().map_or(GROUP, |groups| groups * GROUP);
            let middle = (1.0 / (CODE_RMS * (columns as f64).sqrt())) as f32;
            let code = ue8m0::from_f32(middle);
            // One of three neighbours.
            words.map(|w| code - 1 + (w % 3) as u8).collect()
        }
        Rule::Any | Rule::Finite | Rule::Padded if entry.dtype == DType::U8 => {
            words.map(|w| (w >> 56) as u8).collect()
        }
        Rule::Any | Rule::Finite | Rule::Padded => {
            let (middle, spread) = distribution(entry);
            let size = entry.dtype.bytes().map_or(1, |size| size as usize);
            let mut bytes = Vec::with_capacity(count * size);
            for w in words {
                let value = middle + spread * unit(w);
                let code = float_from_f64(entry.dtype, value).expect("weights are floating-point");
                bytes.extend_from_slice(&code.to_le_bytes()[..size]);
            }
            bytes
        }
    }
}

/// A number in [-1, 1).
fn unit(w: u64) -> f64 {
    (w >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Middle and half width of a tensor's even distribution.
fn distribution(entry: &Entry) -> (f64, f64) {
    let is = |end: &str| entry.name.ends_with(end);
    if is("embed_tokens.weight") {
        (0.0, 3f64.sqrt())
    } else if is("e_score_correction_bias") {
        (0.0, 0.1)
    } else if is("A_log") || is("dt_bias") {
        (0.0, 1.0)
    } else if is("conv1d.weight") {
        (0.25, 0.5)
    } else if entry.shape.len() == 1 {
        // A norm.
        (1.0, 0.25)
    } else {
        let columns = entry.shape.last().copied().unwrap_or(1);
        (0.0, (3.0 / columns as f64).sqrt())
    }
}
