//! What a run computed as one hash, so that two of them are compared bit for bit.

use kernel_abi::hex;
use sha2::{Digest, Sha256};

/// The SHA-256 of the logits of a run: the f32 values of each step in turn, little-endian.
#[derive(Debug, Clone, Default)]
pub struct LogitsHash(Sha256);

impl LogitsHash {
    /// Takes the logits of the next step.
    pub fn take(&mut self, logits: &[f32]) {
        for value in logits {
            self.0.update(value.to_le_bytes());
        }
    }

    /// The hash in hexadecimal.
    pub fn finish(self) -> String {
        hex::text(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &[&[f32]]) -> String {
        let mut hash = LogitsHash::default();
        steps.iter().for_each(|logits| hash.take(logits));
        hash.finish()
    }

    #[test]
    fn every_bit_counts_and_nothing_else() {
        // That of no byte.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of(&[]), empty);
        assert_eq!(of(&[&[1.0], &[2.0, 3.0]]), of(&[&[1.0, 2.0, 3.0]]));
        assert_ne!(of(&[&[0.0]]), of(&[&[-0.0]]));
        assert_ne!(of(&[&[1.0, 2.0]]), of(&[&[2.0, 1.0]]));
    }
}
