//! Products of a warpgroup and in tensor memory: the order of sums.
//!
//! One instruction adds the products of 32 bytes of each row to each sum. As for [`super::mma`], the emulator adds
//! them place by place to the running value in f64 and rounds once to f32; instructions follow in ascending order of k.

use kernel_abi::numeric::canonical;

use super::elements::Elements;
use super::mma::floats;

/// Elements of an operand as factors: products of two of them are exact.
pub fn factors(x: &Elements) -> Vec<f64> {
    floats(x).into_iter().map(f64::from).collect()
}

/// A matrix with rows of so many elements, columns after columns.
pub fn transposed(matrix: &[f64], columns: usize) -> Vec<f64> {
    let column = |i: usize| matrix.iter().skip(i).step_by(columns.max(1)).copied();
    (0..columns).flat_map(column).collect()
}

/// Multiplies each `group` elements of a row with their scale: exact, for scales that are powers of two.
pub fn scale(factors: &mut [f64], scales: &[f64], group: usize) {
    for (factors, scale) in factors.chunks_mut(group.max(1)).zip(scales) {
        factors.iter_mut().for_each(|factor| *factor *= scale);
    }
}

/// Adds `a * b^T` to the sums, rows by `columns`: both operands have `depth` elements a row, of which one instruction
/// takes `step`.
pub fn multiply(sums: &mut [f32], columns: usize, a: &[f64], b: &[f64], depth: usize, step: usize) {
    let step = step.max(1);
    for (row, line) in a.chunks(depth.max(1)).zip(sums.chunks_mut(columns.max(1))) {
        for (column, sum) in b.chunks(depth.max(1)).zip(line) {
            for (x, y) in row.chunks(step).zip(column.chunks(step)) {
                let products = x.iter().zip(y).map(|(&x, &y)| x * y);
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
    use crate::ops::mma::{DEPTH, step};

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
        let wide = |x: &[f32]| -> Vec<f64> { x.iter().map(|&x| x.into()).collect() };
        multiply(&mut sums, 3, &wide(&a), &wide(&b), 32, DEPTH);
        let groups = |x: &[f32], row: usize, k: usize| -> [f32; DEPTH] {
            x[row * 32 + k..row * 32 + k + DEPTH].try_into().unwrap()
        };
        for (i, sum) in sums.iter().enumerate() {
            let first = step(1.0, &groups(&a, i / 3, 0), &groups(&b, i % 3, 0));
            assert_eq!(*sum, step(first, &groups(&a, i / 3, 16), &groups(&b, i % 3, 16)));
        }
    }
}
