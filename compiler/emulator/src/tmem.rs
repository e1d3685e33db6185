//! Tensor memory of a CTA: columns of 128 rows, which products of one role change late and loads of others read; and
//! others store what products read. Tiles of
//! 64 rows have the first ones: where those lie among the lanes of the hardware changes nothing.
//!
//! A product is complete when the round is that some `commit` behind it counts in. Who has seen such a round may read
//! its columns, or start products there; the role that started it goes on without waiting, since its products follow
//! each other in order.

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::kernel::TensorAtom;
use kernel_ir::ops::{Elements, wgmma};

use crate::error::{EmuError, ErrorKind};
use crate::roles::{Clock, Names, Stamp};

/// Rows of tensor memory.
pub(crate) const ROWS: usize = TensorAtom::ROWS as usize;

/// The row below which the second half of the columns lies where they are folded.
const FOLD: usize = TensorAtom::HALF as usize;

/// Elements of folded columns, read row by row, by their own rows and columns.
pub(crate) fn unfolded(values: &[f32], count: usize) -> Vec<f32> {
    let places = (0..FOLD).flat_map(|row| (0..2 * count).map(move |i| place(row, i, count)));
    places.filter_map(|(row, i)| values.get(row * count + i).copied()).collect()
}

/// One column, and who touched it last.
#[derive(Clone)]
struct Column {
    /// The word of each row.
    rows: Vec<Option<u32>>,
    /// The role whose products write it, and the last of them.
    product: Option<(usize, Span)>,
    /// Rounds of barriers of which each says that those are complete.
    complete: Vec<Stamp>,
    /// Loads since then, the last one of each role.
    reads: Vec<Stamp>,
    /// Stores by threads, the last one of each role.
    stores: Vec<Stamp>,
    /// Products that read it as their left operand: the role and the last of them, and rounds that say that it is complete.
    uses: Vec<(usize, Span, Vec<Stamp>)>,
}

impl Column {
    /// A store or a product that reads it, of which the clock has not seen the end.
    fn touched(&self, by: &Clock) -> Option<Stamp> {
        let store = self.stores.iter().copied().find(|&store| !by.has_seen(store));
        let unseen = |done: &[Stamp]| !done.iter().any(|&stamp| by.has_seen(stamp));
        let used = self.uses.iter().find(|(_, _, done)| unseen(done));
        store.or(used.map(|&(role, span, _)| Stamp::of(by.cta(), role, u64::MAX, span)))
    }

    /// A product that the clock has not seen complete.
    fn running(&self, by: &Clock) -> Option<Stamp> {
        let (role, span) = self.product?;
        let is_seen = self.complete.iter().any(|&stamp| by.has_seen(stamp));
        (!is_seen).then(|| Stamp::of(by.cta(), role, u64::MAX, span))
    }
}

/// The columns that a CTA has allocated.
#[derive(Default)]
pub(crate) struct TensorMemory {
    columns: Vec<Column>,
    /// Scales, four to each of 32 lanes of a column.
    scales: Vec<Option<u8>>,
    /// Meetings of the cluster before it was allocated, and before it was used or given back last.
    since: Option<u32>,
    until: u32,
}

/// Scales in a column, of 32 rows.
const COLUMN_SCALES: usize = 128;

/// Elements of 16 bits of which each word has two, the first in its low half.
pub(crate) fn halves(dtype: DType, words: &[u32]) -> Elements {
    Elements::from_codes(dtype, words.iter().flat_map(|&w| [w & 0xffff, w >> 16].map(u64::from)))
}

/// The words of elements of 16 bits.
pub(crate) fn joined(codes: &[u64]) -> Vec<u32> {
    let word = |pair: &[u64]| pair.iter().rev().fold(0, |word, &code| word << 16 | code as u32);
    codes.chunks(2).map(word).collect()
}

/// What a product multiplies.
pub(crate) struct Factors {
    /// Left operand, one row a row of the sums.
    pub(crate) a: Vec<f64>,
    /// Right operand, one row a column of the sums.
    pub(crate) b: Vec<f64>,
    /// Elements of a row.
    pub(crate) depth: usize,
    /// Elements of a row that one instruction takes.
    pub(crate) step: usize,
    /// The second half of the columns of the sums lies below the first.
    pub(crate) folded: bool,
    pub(crate) from_zero: bool,
}

impl TensorMemory {
    /// So many columns, allocated after so many meetings of the cluster.
    pub(crate) fn new(columns: usize, meetings: u32) -> TensorMemory {
        let empty = Column {
            rows: vec![None; ROWS],
            product: None,
            complete: Vec::new(),
            reads: Vec::new(),
            stores: Vec::new(),
            uses: Vec::new(),
        };
        let scales = vec![None; columns * COLUMN_SCALES];
        let columns = vec![empty; columns];
        TensorMemory { columns, scales, since: Some(meetings), until: meetings }
    }

    /// Something uses it after so many meetings.
    pub(crate) fn touch(&mut self, meetings: u32) {
        self.until = self.until.max(meetings);
    }

    /// The CTA gives it back.
    pub(crate) fn free(&mut self, meetings: u32) {
        *self = TensorMemory { since: self.since, until: meetings, ..TensorMemory::default() };
    }

    /// Whether the own or another CTA may use it after so many meetings: the other one has met since it was allocated.
    pub(crate) fn is_met(&self, own: bool, meetings: u32) -> bool {
        own || self.since.is_some_and(|since| since < meetings)
    }

    /// Whether the CTA has had it, and all that it did with it came before the last of so many meetings.
    pub(crate) fn may_go(&self, meetings: u32) -> bool {
        self.since.is_some() && (self.columns.is_empty() || self.until < meetings)
    }

    /// A copy of scales is complete: a row's four follow each other.
    pub(crate) fn set_scales(
        &mut self,
        column: u32,
        bytes: &[u8],
        span: Span,
    ) -> Result<(), EmuError> {
        let first = column as usize * COLUMN_SCALES;
        let Some(places) = self.scales.get_mut(first..first + bytes.len()) else {
            return Err(no_scales(column, span));
        };
        for (place, &byte) in places.iter_mut().zip(bytes) {
            *place = Some(byte);
        }
        Ok(())
    }

    /// The scales of so many rows, `count` each from a byte of their words on.
    pub(crate) fn scales(
        &self,
        column: u32,
        byte: u32,
        rows: usize,
        count: usize,
        span: Span,
    ) -> Result<Vec<u8>, EmuError> {
        let first = column as usize * COLUMN_SCALES + byte as usize;
        let places = (0..rows).flat_map(|row| (0..count).map(move |i| first + row * 4 + i));
        let of = |place: usize| self.scales.get(place).copied().flatten();
        places.map(|place| of(place).ok_or_else(|| no_scales(column, span))).collect()
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
            if let Some(other) = product.or_else(read).or_else(|| column.touched(by)) {
                return Err(race(first, i, by, names, span, other));
            }
            column.product = Some((by.agent(), span));
            column.complete.clear();
            column.reads.clear();
        }
        Ok(())
    }

    /// A role starts a product that reads columns.
    pub(crate) fn use_left(
        &mut self,
        first: i64,
        count: usize,
        by: &Clock,
        names: Names<'_>,
        span: Span,
    ) -> Result<(), EmuError> {
        for (i, column) in self.range(first, count, span)?.iter_mut().enumerate() {
            let store = || column.stores.iter().copied().find(|&store| !by.has_seen(store));
            if let Some(other) = column.running(by).or_else(store) {
                return Err(race(first, i, by, names, span, other));
            }
            column.uses.retain(|(role, _, _)| *role != by.agent());
            column.uses.push((by.agent(), span, Vec::new()));
        }
        Ok(())
    }

    /// Words of rows of columns, row by row.
    pub(crate) fn words(
        &mut self,
        first: i64,
        count: usize,
        rows: usize,
        span: Span,
    ) -> Result<Vec<u32>, EmuError> {
        let columns = self.range(first, count, span)?;
        let places = (0..rows).flat_map(|row| (0..count).map(move |i| (row, i)));
        let word = |(row, i): (usize, usize)| {
            let word = columns[i].rows.get(row).copied().flatten();
            word.ok_or_else(|| unwritten(first, i, row, span))
        };
        places.map(word).collect()
    }

    /// A role stores words to rows of columns, row by row.
    pub(crate) fn store(
        &mut self,
        first: i64,
        rows: std::ops::Range<usize>,
        words: &[u32],
        by: &Clock,
        names: Names<'_>,
        span: Span,
    ) -> Result<(), EmuError> {
        let count = words.len() / rows.len().max(1);
        let stamp = by.stamp(span);
        for (i, column) in self.range(first, count, span)?.iter_mut().enumerate() {
            let read = || column.reads.iter().copied().find(|&read| !by.has_seen(read));
            if let Some(other) = column.running(by).or_else(read).or_else(|| column.touched(by)) {
                return Err(race(first, i, by, names, span, other));
            }
            match column.stores.iter_mut().find(|store| store.is_of_agent(stamp)) {
                Some(store) => *store = stamp,
                None => column.stores.push(stamp),
            }
            for (at, row) in rows.clone().enumerate() {
                if let Some(place) = column.rows.get_mut(row) {
                    *place = words.get(at * count + i).copied();
                }
            }
        }
        Ok(())
    }

    /// A role commits its products to the round that a stamp says.
    pub(crate) fn commit(&mut self, by: &Clock, round: Stamp) {
        for column in &mut self.columns {
            let own = column.uses.iter_mut().filter(|(role, _, _)| *role == by.agent());
            for (_, _, complete) in own {
                if !complete.iter().any(|known| known.is_of_agent(round)) {
                    complete.push(round);
                }
            }
        }
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
            let store = || column.stores.iter().copied().find(|&store| !by.has_seen(store));
            if let Some(other) = column.running(by).or_else(store) {
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
                let word = value.ok_or_else(|| unwritten(first, i, row, span))?;
                values.push(f32::from_bits(word));
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
        let rows = (factors.a.len() / factors.depth.max(1)).min(ROWS);
        let wide = if factors.folded { 2 * count } else { count };
        // Where the sum of a row and a column lies.
        let places = || (0..rows).flat_map(move |row| (0..wide).map(move |i| place(row, i, count)));
        let mut sums = vec![0.0; rows * wide];
        if !factors.from_zero {
            for (sum, (row, i)) in sums.iter_mut().zip(places()) {
                let before = columns[i].rows.get(row).copied().flatten();
                *sum = f32::from_bits(before.ok_or_else(|| unwritten(first, i, row, span))?);
            }
        }
        let Factors { a, b, depth, step, .. } = factors;
        wgmma::multiply(&mut sums, wide, a, b, *depth, *step);
        for (sum, (row, i)) in sums.iter().zip(places()) {
            if let Some(place) = columns[i].rows.get_mut(row) {
                *place = Some(sum.to_bits());
            }
        }
        Ok(())
    }
}

/// The row and the column, of `count`, where an element lies whose columns go on below the first half of the rows.
fn place(row: usize, column: usize, count: usize) -> (usize, usize) {
    (row + column / count.max(1) * FOLD, column % count.max(1))
}

fn race(first: i64, i: usize, by: &Clock, names: Names<'_>, span: Span, other: Stamp) -> EmuError {
    let column = first.saturating_add(i as i64);
    names.race(&format!("column {column} of tensor memory"), by, span, other)
}

fn no_scales(column: u32, span: Span) -> EmuError {
    let message =
        format!("use of scales in column {column} of tensor memory, which nothing brought");
    EmuError::new(ErrorKind::Poison, span, message)
}

fn unwritten(first: i64, i: usize, row: usize, span: Span) -> EmuError {
    let column = first.saturating_add(i as i64);
    let message =
        format!("use of row {row} of column {column} of tensor memory, which nothing has written");
    EmuError::new(ErrorKind::Poison, span, message)
}
