//! What the bytes of packed weights follow from, as a hash.

use sha2::{Digest, Sha256};

use super::{Place, format};
use crate::load::Weight;
use crate::weights::{Piece, Recipe};

/// The hash of all that the packed weights of a rank follow from.
pub(super) fn of<'w, 'r: 'w>(
    place: &Place,
    rank: u32,
    weights: impl Iterator<Item = &'w Weight<'r>>,
) -> [u8; 32] {
    let mut hash = Fields(Sha256::new());
    hash.number(format::VERSION.into());
    hash.bytes(&place.checkpoint);
    hash.number(rank.into());
    hash.number(place.ranks.into());
    for weight in weights {
        hash.text(&weight.name);
        hash.text(weight.dtype.name());
        hash.text(&weight.layout.as_ref().map(ToString::to_string).unwrap_or_default());
        hash.recipe(weight.recipe);
    }
    hash.0.finalize().into()
}

/// Fields one behind the other, each with its length, so that none runs into the next.
struct Fields(Sha256);

impl Fields {
    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn recipe(&mut self, recipe: &Recipe) {
        match recipe {
            Recipe::Rows(pieces) => self.pieces(0, pieces),
            Recipe::Transposed(pieces) => self.pieces(1, pieces),
            Recipe::Product { a, b, len } => {
                self.number(2);
                self.text(a);
                self.text(b);
                self.number(*len);
            }
        }
    }

    fn pieces(&mut self, kind: u64, pieces: &[Piece]) {
        self.number(kind);
        self.number(pieces.len() as u64);
        for Piece { tensor, dtype, all_rows, all_columns, rows, columns } in pieces {
            self.text(tensor.as_deref().unwrap_or_default());
            self.text(dtype.name());
            for number in
                [*all_rows, *all_columns, rows.start, rows.end, columns.start, columns.end]
            {
                self.number(number);
            }
        }
    }
}
