//! Asynchronous copies: one `cp.async` a piece.

use kernel_ir::device::{Piece, Place};
use kernel_ir::kernel::Evict;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, CopyForm, Space};

impl Lowering<'_, '_, '_> {
    /// Starts the copies of all pieces.
    pub(super) fn copy_async(
        &self,
        source: &Place,
        dest: &Place,
        pieces: &[Piece],
        evict: Option<Evict>,
    ) -> Lowered<()> {
        let b = &self.build;
        let (from, to) = (self.region(source)?, self.region(dest)?);
        if from.space != Space::Global || to.space != Space::Shared || from.dtype != to.dtype {
            return refuse("a copy goes from a buffer to shared memory of the same type");
        }
        let size = to.dtype.bits() / 8;
        for piece in pieces {
            let bytes = piece.len.saturating_mul(size);
            if !matches!(bytes, 4 | 8 | 16) {
                return refuse(format!("a copy of {bytes} bytes is no instruction"));
            }
            let mut operands =
                vec![self.address_of(&to, piece.dest)?, self.address_of(&from, piece.source)?];
            if let Some((frag, i)) = piece.present {
                let count = self.element(frag, i)?;
                operands.push(b.muli(count, b.int(b.types.i32, size.into())));
            }
            if let Some(evict) = evict {
                match self.policies.get(evict) {
                    Some(policy) => operands.push(policy),
                    None => return refuse("the cache policy was not made at the entry"),
                }
            }
            if let Some((frag, i)) = piece.predicate {
                operands.push(self.element(frag, i)?);
            }
            let form = CopyForm {
                bytes,
                zeros: piece.present.is_some(),
                policy: evict.is_some(),
                predicated: piece.predicate.is_some(),
            };
            b.effect(&mnemonic::copy_async(form), &operands);
        }
        Ok(())
    }
}
