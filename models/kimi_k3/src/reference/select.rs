//! Rows and maxima.

/// The row of the table for `id` when this rank holds it (`first .. first + rows`), else zeros of `width`.
pub fn embed(table: &[f64], rows: usize, width: usize, id: i64, first: i64) -> Vec<f64> {
    match usize::try_from(id - first) {
        Ok(row) if row < rows => table[row * width..(row + 1) * width].to_vec(),
        Ok(_) | Err(_) => vec![0.0; width],
    }
}

/// The greatest value and its position; ties go to the lower position, NaN counts as -inf.
pub fn argmax(row: &[f64]) -> (f64, usize) {
    let mut best = (f64::NEG_INFINITY, 0);
    for (at, &v) in row.iter().enumerate() {
        if v > best.0 {
            best = (v, at);
        }
    }
    best
}
