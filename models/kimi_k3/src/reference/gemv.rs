//! Matrix times a few vectors.

/// y[m, n] = sum over k of w[n, k] * x[m, k].
///
/// `w`: [n, k] row-major, `x`: [m, k] row-major; the result is [m, n].
pub fn gemv(w: &[f64], x: &[f64], m: usize, n: usize, k: usize) -> Vec<f64> {
    let mut y = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            for at in 0..k {
                y[row * n + column] += w[column * k + at] * x[row * k + at];
            }
        }
    }
    y
}
