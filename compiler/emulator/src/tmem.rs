//! Tensor memory of a CTA: 128 rows of columns, which products of one role change late and loads of others read.
//!
//! A product is complete when the round is that some `commit` behind it counts in. Who has seen such a round may read
//! its columns, or start products there; the role that started it goes on without waiting, since its products follow
//! each other in order.

use kernel_dsl::source::Span;
use kernel_ir::kernel::TensorAtom;
use kernel_ir::ops::wgmma;

use crate::error::{EmuError, ErrorKind};
use crate::roles::{Clock, Names, Stamp};

/// Rows of tensor memory.
pub(crate) const ROWS: usize = TensorAtom::ROWS as usize;

/// One column, and who touched it last.
#[derive(Clone)]
struct Column {
    rows: Vec<Option<f32>>,
    /// The role whose products write it, and the last of them.
    product: Option<(usize, Span)>,
    /// Rounds of barriers of which each says that those are complete.
    complete: Vec<Stamp>,
    /// Loads since then, the last one of each role.
    reads: Vec<Stamp>,
}

impl Column {
    /// A product that the clock has not seen complete.
    fn running(&self, by: &Clock) -> Option<Stamp> {
        let (role, span) = self.product?;
        let is_seen = self.complete.iter().any(|&stamp| by.has_seen(stamp));
        (!is_seen).then(|| Stamp::of(role, u64::MAX, span))
    }
}

/// The columns that a CTA has allocated.
#[derive(Default)]
pub(crate) struct TensorMemory {
    columns: Vec<Column>,
}

/// What a product multiplies.
pub(crate) struct Factors {
    /// Left operand, [`ROWS`] rows.
    pub(crate) a: Vec<f32>,
    /// Right operand, one row a column of the sums.
    pub(crate) b: Vec<f32>,
    /// Elements of a row.
    pub(crate) depth: usize,
    /// Elements of a row that one instruction takes.
    pub(crate) step: usize,
    pub(crate) from_zero: bool,
}

impl TensorMemory {
    pub(crate) fn new(columns: usize) -> TensorMemory {
        let empty = Column {
            rows: vec![None; ROWS],
            product: None,
            complete: Vec::new(),
            reads: Vec::new(),
        };
        TensorMemory { columns: vec![empty; columns] }
    }

    /// So many columns from one on.
    fn range(&mut self, first: i64, count: usize, span: Span) -> Result<&mut [Column], EmuError> {
        let size = self.columns.len();
        let start = usize::try_from(first).ok();
        let range = start.and_then(|start| self.columns.get_mut(start..start.checked_add(count)?));
        range.ok_or_else(|| {
            let message = format!("column {first} of tensor memory, of which {size} are allocated");
            EmuError::new(ErrorKind::OutOfBounds, span, message)
        })
    }

    /// A role starts a product that writes columns.
    pub(crate) fn begin(
        &mut self,
        first: i64,
        count: usize,
        by: &Clock,
        names: Names<'_>,
        span: Span,
    ) -> Result<(), EmuError> {
        for (i, column) in self.range(first, count, span)?.iter_mut().enumerate() {
            let own = column.product.is_some_and(|(role, _)| role == by.agent());
            let product = if own { None } else { column.running(by) };
            let read = || column.reads.iter().copied().find(|&read| !by.has_seen(read));
            if let Some(other) = product.or_else(read) {
                return Err(race(first, i, by, names, span, other));
            }
            column.product = Some((by.agent(), span));
            column.complete.clear();
            column.reads.clear();
        }
        Ok(())
    }

    /// A role commits its products to the round that a stamp says.
    pub(crate) fn commit(&mut self, by: &Clock, round: Stamp) {
        let own = |column: &&mut Column| column.product.is_some_and(|(r, _)| r == by.agent());
        for column in self.columns.iter_mut().filter(own) {
            if !column.complete.iter().any(|known| known.is_of_agent(round)) {
                column.complete.push(round);
            }
        }
    }

    /// A role reads columns; their rows one after the other.
    pub(crate) fn read(
        &mut self,
        first: i64,
        count: usize,
        rows: std::ops::Range<usize>,
        by: &Clock,
        names: Names<'_>,
        span: Span,
    ) -> Result<Vec<f32>, EmuError> {
        let columns = self.range(first, count, span)?;
        for (i, column) in columns.iter_mut().enumerate() {
            if let Some(other) = column.running(by) {
                return Err(race(first, i, by, names, span, other));
            }
            let stamp = by.stamp(span);
            match column.reads.iter_mut().find(|read| read.is_of_agent(stamp)) {
                Some(read) => *read = stamp,
                None => column.reads.push(stamp),
            }
        }
        let mut values = Vec::with_capacity(rows.len() * count);
        for row in rows {
            for (i, column) in columns.iter().enumerate() {
                let value = column.rows.get(row).copied().flatten();
                values.push(value.ok_or_else(|| unwritten(first, i, row, span))?);
            }
        }
        Ok(values)
    }

    /// A product is complete.
    pub(crate) fn multiply(
        &mut self,
        first: i64,
        count: usize,
        factors: &Factors,
        span: Span,
    ) -> Result<(), EmuError> {
        let columns = self.range(first, count, span)?;
        let mut sums = vec![0.0; ROWS * count];
        if !factors.from_zero {
            for row in 0..ROWS {
                for (i, column) in columns.iter().enumerate() {
                    let before = column.rows[row].ok_or_else(|| unwritten(first, i, row, span))?;
                    sums[row * count + i] = before;
                }
            }
        }
        let Factors { a, b, depth, step, .. } = factors;
        wgmma::multiply_by(&mut sums, count, a, b, *depth, *step);
        for row in 0..ROWS {
            for (i, column) in columns.iter_mut().enumerate() {
                column.rows[row] = Some(sums[row * count + i]);
            }
        }
        Ok(())
    }
}

fn race(first: i64, i: usize, by: &Clock, names: Names<'_>, span: Span, other: Stamp) -> EmuError {
    let column = first.saturating_add(i as i64);
    names.race(&format!("column {column} of tensor memory"), by, span, other)
}

fn unwritten(first: i64, i: usize, row: usize, span: Span) -> EmuError {
    let column = first.saturating_add(i as i64);
    let message = format!(
        "use of row {row} of column {column} of tensor memory, which no product has written"
    );
    EmuError::new(ErrorKind::Poison, span, message)
}
