//! How the weights of a rank are made from the tensors of a checkpoint.

use std::borrow::Cow;
use std::ops::Range;

use kernel_abi::DType;

use crate::checkpoint::{Checkpoint, CheckpointError};

/// A weight of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// The pieces, one below the other.
    Rows(Vec<Piece>),
    /// Each piece transposed, one below the other.
    Transposed(Vec<Piece>),
    /// The element-wise product of two bf16 vectors, in f32.
    Product {
        /// One tensor.
        a: String,
        /// The other.
        b: String,
        /// Elements of both.
        len: u64,
    },
}

impl Recipe {
    /// Whether it makes an empty weight.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Recipe::Rows(pieces) if pieces.is_empty())
    }
}

/// A rectangle of a tensor that is seen as a matrix, or zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Name in the checkpoint; zeros without.
    pub tensor: Option<String>,
    /// Element type in the checkpoint; packed experts and their scales are bytes.
    pub dtype: DType,
    /// Rows of the whole tensor.
    pub all_rows: u64,
    /// Columns of the whole tensor.
    pub all_columns: u64,
    /// Rows that are taken.
    pub rows: Range<u64>,
    /// Columns that are taken.
    pub columns: Range<u64>,
}

impl Piece {
    /// A whole tensor.
    pub fn whole(tensor: &str, dtype: DType, rows: u64, columns: u64) -> Piece {
        Piece::rows(tensor, dtype, 0..rows, rows, columns)
    }

    /// Rows of a tensor.
    pub fn rows(
        tensor: &str,
        dtype: DType,
        rows: Range<u64>,
        all_rows: u64,
        all_columns: u64,
    ) -> Piece {
        let tensor = Some(tensor.to_owned());
        Piece { tensor, dtype, all_rows, all_columns, rows, columns: 0..all_columns }
    }

    /// Columns of a tensor.
    pub fn columns(
        tensor: &str,
        dtype: DType,
        all_rows: u64,
        columns: Range<u64>,
        all_columns: u64,
    ) -> Piece {
        let tensor = Some(tensor.to_owned());
        Piece { tensor, dtype, all_rows, all_columns, rows: 0..all_rows, columns }
    }

    /// Rows of zeros.
    pub fn zeros(dtype: DType, rows: u64, columns: u64) -> Piece {
        Piece {
            tensor: None,
            dtype,
            all_rows: rows,
            all_columns: columns,
            rows: 0..rows,
            columns: 0..columns,
        }
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.rows.end - self.rows.start
    }
}

/// Where tensors come from.
pub trait TensorSource {
    /// Why a tensor cannot be had.
    type Error;

    /// The bytes of a tensor of that type with `rows * columns` elements, row-major.
    ///
    /// # Errors
    /// There is none of that name, type and size.
    fn matrix(
        &self,
        name: &str,
        dtype: DType,
        rows: u64,
        columns: u64,
    ) -> Result<Cow<'_, [u8]>, Self::Error>;

    /// Whether all tensors are still those that were there first.
    ///
    /// # Errors
    /// Somebody changed them.
    fn check_unchanged(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The bytes of some rows of a tensor of that type with `rows * columns` elements, row-major.
    ///
    /// # Errors
    /// As [`TensorSource::matrix`].
    fn rows(
        &self,
        name: &str,
        dtype: DType,
        [rows, columns]: [u64; 2],
        wanted: Range<u64>,
    ) -> Result<Cow<'_, [u8]>, Self::Error> {
        let row = (columns * element_bytes(dtype)) as usize;
        let part = wanted.start as usize * row..wanted.end as usize * row;
        Ok(match self.matrix(name, dtype, rows, columns)? {
            Cow::Borrowed(all) => Cow::Borrowed(&all[part]),
            Cow::Owned(all) => Cow::Owned(all[part].to_vec()),
        })
    }
}

/// Bytes of an element; packed ones come as bytes.
fn element_bytes(dtype: DType) -> u64 {
    u64::from(dtype.bytes().unwrap_or(1))
}

impl TensorSource for Checkpoint {
    type Error = CheckpointError;

    /// A vector may be longer in the file: `A_log` is padded.
    fn matrix(
        &self,
        name: &str,
        dtype: DType,
        rows: u64,
        columns: u64,
    ) -> Result<Cow<'_, [u8]>, CheckpointError> {
        Checkpoint::matrix(self, name, dtype, [rows, columns]).map(Cow::Owned)
    }

    fn check_unchanged(&self) -> Result<(), CheckpointError> {
        Checkpoint::check_unchanged(self)
    }

    /// No more than the rows is read.
    fn rows(
        &self,
        name: &str,
        dtype: DType,
        [rows, columns]: [u64; 2],
        wanted: Range<u64>,
    ) -> Result<Cow<'_, [u8]>, CheckpointError> {
        Checkpoint::rows(self, name, dtype, [rows, columns], wanted).map(Cow::Owned)
    }
}

impl Recipe {
    /// The bytes of the weight.
    ///
    /// # Errors
    /// A tensor is missing or has another type or size.
    pub fn make<S: TensorSource>(&self, source: &S) -> Result<Vec<u8>, S::Error> {
        let mut bytes = Vec::new();
        match self {
            Recipe::Rows(pieces) => {
                bytes.reserve_exact(pieces.iter().map(Piece::bytes).sum::<u64>() as usize);
                for piece in pieces {
                    piece.append(source, &mut bytes)?;
                }
            }
            Recipe::Transposed(pieces) => {
                for piece in pieces {
                    let mut rows = Vec::new();
                    piece.append(source, &mut rows)?;
                    let columns = (piece.columns.end - piece.columns.start) as usize;
                    transpose(&rows, columns, element_bytes(piece.dtype) as usize, &mut bytes);
                }
            }
            Recipe::Product { a, b, len } => {
                let a = source.matrix(a, DType::Bf16, 1, *len)?;
                let b = source.matrix(b, DType::Bf16, 1, *len)?;
                let value =
                    |pair: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
                let (a, b) = (a.as_chunks::<2>().0, b.as_chunks::<2>().0);
                for (a, b) in a.iter().zip(b) {
                    bytes.extend((value(a) * value(b)).to_le_bytes());
                }
            }
        }
        Ok(bytes)
    }
}

impl Piece {
    /// Bytes of the rectangle.
    fn bytes(&self) -> u64 {
        self.row_count() * (self.columns.end - self.columns.start) * element_bytes(self.dtype)
    }

    /// Appends the rectangle, row by row.
    fn append<S: TensorSource>(&self, source: &S, out: &mut Vec<u8>) -> Result<(), S::Error> {
        let size = element_bytes(self.dtype);
        let Some(tensor) = &self.tensor else {
            out.resize(out.len() + self.bytes() as usize, 0);
            return Ok(());
        };
        let shape = [self.all_rows, self.all_columns];
        let rows = source.rows(tensor, self.dtype, shape, self.rows.clone())?;
        if self.columns == (0..self.all_columns) {
            out.extend_from_slice(&rows);
            return Ok(());
        }
        let row = (self.all_columns * size) as usize;
        let columns = (self.columns.start * size) as usize..(self.columns.end * size) as usize;
        for line in rows.chunks_exact(row) {
            out.extend_from_slice(&line[columns.clone()]);
        }
        Ok(())
    }
}

/// Appends the transpose of a row-major matrix of `columns` columns.
fn transpose(matrix: &[u8], columns: usize, size: usize, out: &mut Vec<u8>) {
    let row = columns * size;
    if row == 0 {
        return;
    }
    for column in 0..columns {
        for line in matrix.chunks_exact(row) {
            out.extend(&line[column * size..][..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(Vec<u8>);

    impl TensorSource for Counting {
        type Error = String;

        fn matrix(
            &self,
            name: &str,
            dtype: DType,
            rows: u64,
            columns: u64,
        ) -> Result<Cow<'_, [u8]>, String> {
            let bytes = (rows * columns * u64::from(dtype.bytes().unwrap_or(1))) as usize;
            self.0.get(..bytes).map(Cow::Borrowed).ok_or_else(|| format!("{name} is short"))
        }
    }

    #[test]
    fn pieces_are_cut_padded_and_transposed() {
        let source = Counting((0..24).collect());
        let rows = Recipe::Rows(vec![
            Piece::rows("a", DType::U8, 1..3, 4, 6),
            Piece::columns("a", DType::U8, 2, 4..6, 6),
            Piece::zeros(DType::U8, 1, 3),
        ]);
        let want = [6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 4, 5, 10, 11, 0, 0, 0];
        assert_eq!(rows.make(&source).unwrap(), want);
        let turned = Recipe::Transposed(vec![Piece::rows("a", DType::Bf16, 0..2, 4, 3)]);
        assert_eq!(turned.make(&source).unwrap(), [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let long = Recipe::Rows(vec![Piece::whole("a", DType::F32, 4, 6)]);
        assert_eq!(long.make(&source).unwrap_err(), "a is short");
    }

    #[test]
    fn products_are_exact_in_f32() {
        // 1.5 and -2 as bf16, little-endian.
        let source = Counting(vec![0xc0, 0x3f, 0x00, 0xc0]);
        let product = Recipe::Product { a: "a".into(), b: "a".into(), len: 2 };
        let bytes = product.make(&source).unwrap();
        assert_eq!(bytes, [2.25f32.to_le_bytes(), 4.0f32.to_le_bytes()].concat());
    }
}
