//! Random weights, made on the device: a block of random elements of each kind, copied over every weight of that kind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use kernel_abi::DType;
use kernel_abi::exec::Executor;
use kernel_abi::numeric::random;
use kernel_abi::plan::{BufferId, BufferRole, PlanBuffer};
use kernel_runtime::{Buffer, CudaExecutor, RuntimeError};

/// Bytes of a block.
const BLOCK: usize = 16 << 20;

/// Steps between the starts of copies, in bytes.
const STEP: usize = 4096;

/// What a weight holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Elements of matrices in bf16: small, around zero.
    Matrix,
    /// Factors in bf16, of norms: around one.
    Norm,
    /// Elements in f32: small, around zero.
    Float,
    /// Packed codes and other bytes: all values.
    Bytes,
    /// Scales of blocks: three powers of two around 2^-7.
    Scale,
}

impl Kind {
    fn of(buffer: &PlanBuffer) -> Result<Kind, RuntimeError> {
        match buffer.dtype {
            DType::Bf16 if buffer.shape.len() > 1 => Ok(Kind::Matrix),
            DType::Bf16 => Ok(Kind::Norm),
            DType::F32 => Ok(Kind::Float),
            DType::E2m1 | DType::U8 | DType::I8 => Ok(Kind::Bytes),
            DType::Ue8m0 => Ok(Kind::Scale),
            DType::F16
            | DType::E4m3
            | DType::E5m2
            | DType::I32
            | DType::U32
            | DType::I64
            | DType::U64
            | DType::Bool => Err(RuntimeError::Unsupported(format!(
                "random weights of {}, as `{}` has",
                buffer.dtype, buffer.name
            ))),
        }
    }

    /// The stream of its random words.
    fn stream(self) -> u64 {
        match self {
            Kind::Matrix => 0,
            Kind::Norm => 1,
            Kind::Float => 2,
            Kind::Bytes => 3,
            Kind::Scale => 4,
        }
    }

    /// So many bytes of random elements, a multiple of 8.
    fn block(self, seed: u64, bytes: usize) -> Vec<u8> {
        let word = |at: usize| random::word(seed, self.stream(), at as u64);
        // In [-1, 1).
        let unit = |word: u64| (word >> 40) as f32 / (1_u32 << 23) as f32 - 1.0;
        let bf16 = |value: f32| ((value.to_bits() >> 16) as u16).to_le_bytes();
        match self {
            Kind::Matrix => (0..bytes / 2).flat_map(|at| bf16(unit(word(at)) / 50.0)).collect(),
            Kind::Norm => (0..bytes / 2).flat_map(|at| bf16(1.0 + unit(word(at)) / 4.0)).collect(),
            Kind::Float => {
                (0..bytes / 4).flat_map(|at| (unit(word(at)) / 10.0).to_le_bytes()).collect()
            }
            Kind::Bytes => (0..bytes / 8).flat_map(|at| word(at).to_le_bytes()).collect(),
            Kind::Scale => (0..bytes).map(|at| 119 + (word(at) % 3) as u8).collect(),
        }
    }
}

/// Fills every weight.
///
/// # Errors
/// A weight has a type that no weight has, or the device was lost.
pub(super) fn fill(executor: &mut CudaExecutor, seed: u64) -> Result<(), RuntimeError> {
    let weights: Vec<(BufferId, Kind)> = executor
        .plan()
        .buffers
        .iter()
        .enumerate()
        .filter(|(_, buffer)| buffer.role == BufferRole::Weight && buffer.elements() != Some(0))
        .map(|(at, buffer)| Ok((BufferId(at as u32), Kind::of(buffer)?)))
        .collect::<Result<_, RuntimeError>>()?;
    let mut blocks: BTreeMap<Kind, Buffer> = BTreeMap::new();
    for (at, &(weight, kind)) in weights.iter().enumerate() {
        let stream = executor.stream();
        let block = match blocks.entry(kind) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(place) => {
                let block = Buffer::new(stream.device(), "block", DType::U8, BLOCK as u64)?;
                stream.write(&block, &kind.block(seed, BLOCK))?;
                place.insert(block)
            }
        };
        let target = executor.buffer(weight)?;
        // Weights of one kind start at different places of the block.
        let mut from = at % (BLOCK / STEP) * STEP;
        let mut to = 0;
        while to < target.bytes() {
            let len = (BLOCK - from).min(target.bytes() - to);
            stream.copy_bytes((&*block, from), (target, to), len)?;
            (from, to) = (0, to + len);
        }
        executor.filled(weight);
    }
    // The blocks are freed when all copies are done.
    executor.stream().finish(|| vec!["copies of weights".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_finite_and_of_their_kind() {
        for kind in [Kind::Matrix, Kind::Norm, Kind::Float, Kind::Bytes, Kind::Scale] {
            let block = kind.block(7, 8000);
            assert_eq!(block.len(), 8000);
            assert_eq!(block[..64], kind.block(7, 64));
            let bf16 = |at: usize| {
                let bits = u16::from_le_bytes([block[2 * at], block[2 * at + 1]]);
                f32::from_bits(u32::from(bits) << 16)
            };
            let holds = match kind {
                Kind::Matrix => (0..1000).all(|at| bf16(at).abs() <= 0.02),
                Kind::Norm => (0..1000).all(|at| (0.7..1.3).contains(&bf16(at))),
                Kind::Float => block.as_chunks::<4>().0[..1000]
                    .iter()
                    .all(|bytes| f32::from_le_bytes(*bytes).abs() <= 0.1),
                Kind::Bytes => block[..1000].iter().any(|&byte| byte > 200),
                Kind::Scale => block[..1000].iter().all(|byte| (119..=121).contains(byte)),
            };
            assert!(holds, "{kind:?}");
        }
    }
}
