//! How the weights of a rank are made from the tensors of a checkpoint.

use std::ops::Range;

use kernel_abi::DType;

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
