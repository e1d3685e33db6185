//! Matrix times a few vectors.

/// Partial sums of a dot product: additions of one need not wait for those of another.
const LANES: usize = 4;

/// y[m, n] = sum over k of w[n, k] * x[m, k].
///
/// `w`: [n, k] row-major, `x`: [m, k] row-major; the result is [m, n].
pub fn gemv(w: &[f64], x: &[f64], m: usize, n: usize, k: usize) -> Vec<f64> {
    assert_eq!((w.len(), x.len()), (n * k, m * k));
    let mut y = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            y[row * n + column] = dot(&w[column * k..][..k], &x[row * k..][..k]);
        }
    }
    y
}

/// The sum of the products of two vectors of one length.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}
