//! Products of a warpgroup: the order of sums.
//!
//! One instruction adds 16 products to each sum. As for [`super::mma`], the emulator adds them place by place to
//! the running value in f64 and rounds once to f32; instructions follow in ascending order of k.

use kernel_abi::numeric::canonical;

use super::mma::DEPTH;

/// Adds `a * b^T` to the sums, rows by `columns`: both operands have `depth` elements a row, whole groups of 16.
pub fn multiply(sums: &mut [f32], columns: usize, a: &[f32], b: &[f32], depth: usize) {
    multiply_by(sums, columns, a, b, depth, DEPTH);
}

/// The same with instructions that take `step` elements of a row each.
pub fn multiply_by(
    sums: &mut [f32],
    columns: usize,
    a: &[f32],
    b: &[f32],
    depth: usize,
    step: usize,
) {
    let step = step.max(1);
    for (row, line) in a.chunks(depth.max(1)).zip(sums.chunks_mut(columns.max(1))) {
        for (column, sum) in b.chunks(depth.max(1)).zip(line) {
            for (x, y) in row.chunks(step).zip(column.chunks(step)) {
                let products = x.iter().zip(y).map(|(&x, &y)| f64::from(x) * f64::from(y));
                *sum =
                    canonical(products.fold(f64::from(*sum), |sum, product| sum + product) as f32);
            }
        }
    }
}

/// The byte of a matrix with lines of 32, 64 or 128 bytes at which byte `at` lies: the number of a piece of 16 bytes
/// gets low bits of the number of its 128 bytes as an exclusive or.
pub fn swizzled(at: u64, line: u32) -> u64 {
    let bits = u64::from(line / 32).trailing_zeros() + 1;
    let mask = (1 << bits) - 1;
    at ^ (((at >> 7) & mask) << 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Swizzle;
    use crate::ops::mma::step;

    #[test]
    fn the_place_of_a_byte_is_that_of_the_tile() {
        for (line, bits) in [(32, 1), (64, 2), (128, 3)] {
            let swizzle = Swizzle::new(bits, 4, 3).unwrap();
            for at in 0..4096 {
                assert_eq!(swizzled(at, line), swizzle.apply(at as i64) as u64, "{at}");
            }
        }
    }

    #[test]
    fn a_product_is_the_chain_of_its_groups() {
        let number = |i: usize| (i * 37 % 101) as f32 / 64.0 - 0.7;
        let (a, b): (Vec<f32>, Vec<f32>) =
            ((0..2 * 32).map(number).collect(), (0..3 * 32).map(|i| number(i + 7)).collect());
        let mut sums = vec![1.0; 6];
        multiply(&mut sums, 3, &a, &b, 32);
        let groups = |x: &[f32], row: usize, k: usize| -> [f32; DEPTH] {
            x[row * 32 + k..row * 32 + k + DEPTH].try_into().unwrap()
        };
        for (i, sum) in sums.iter().enumerate() {
            let first = step(1.0, &groups(&a, i / 3, 0), &groups(&b, i % 3, 0));
            assert_eq!(*sum, step(first, &groups(&a, i / 3, 16), &groups(&b, i % 3, 16)));
        }
    }
}
