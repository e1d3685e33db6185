//! What the error of a sum on the tensor core is counted in.

use kernel_abi::DType;
use kernel_emulator::Buffer;
use kernel_ir::ops::hardware::{PRODUCT_GROUP, UNIT};
use kernel_ir::ops::mma;

/// Rows and columns of one matrix of `products.tile`.
const SIDE: usize = 64;
/// The least number above zero: no unit is below it.
const LEAST: f64 = 1.401_298_464_324_817e-45;
/// Magnitudes whose sum reaches this may overflow on the way.
const OVERFLOW: f64 = 1.701_411_834_604_692_3e38;

/// Units that a sum of so many products may be off.
pub(crate) fn bound(depth: u32) -> f64 {
    PRODUCT_GROUP * f64::from(depth.div_ceil(mma::DEPTH as u32))
}

/// What the unit is, for the report.
pub(crate) fn unit_name(depth: u32) -> &'static str {
    if depth as usize == mma::DEPTH {
        "2^-23 of the greatest of running value, products and result"
    } else {
        "2^-23 of the sum of the magnitudes of the products"
    }
}

/// The operands of many products of 64 by `depth` with `depth` by 64.
#[derive(Debug)]
pub(crate) struct Matrices {
    a: Vec<f32>,
    b: Vec<f32>,
    running: Option<Vec<f32>>,
    depth: usize,
}

impl Matrices {
    pub(crate) fn of(given: &[(&str, Buffer)], depth: usize) -> Option<Matrices> {
        let values = |buffer: &Buffer| -> Vec<f32> {
            let wide = |code| kernel_abi::numeric::float_to_f32(buffer.dtype(), code);
            (0..buffer.len()).filter_map(|index| wide(buffer.code(index)?)).collect()
        };
        let (a, b) = (values(&given.first()?.1), values(&given.get(1)?.1));
        let running = given.get(2).filter(|(_, c)| c.dtype() == DType::F32).map(|(_, c)| values(c));
        Some(Matrices { a, b, running, depth })
    }

    fn factors(&self, index: usize) -> (&[f32], &[f32]) {
        let (matrix, row, column) = (index / (SIDE * SIDE), index / SIDE % SIDE, index % SIDE);
        let line =
            |values: &'_ [f32], line: usize| (matrix * SIDE + line) * self.depth..values.len();
        let (a, b) = (line(&self.a, row).start, line(&self.b, column).start);
        (&self.a[a..a + self.depth], &self.b[b..b + self.depth])
    }

    /// The unit of an output that is `result`; nothing where finite products may overflow on the way.
    pub(crate) fn unit(&self, index: usize, result: f32) -> Option<f64> {
        let (a, b) = self.factors(index);
        let running = self.running.as_ref().map_or(0.0, |running| f64::from(running[index]).abs());
        let products = a.iter().zip(b).map(|(&a, &b)| (f64::from(a) * f64::from(b)).abs());
        let sum: f64 = products.clone().sum::<f64>() + running;
        if !sum.is_finite() {
            // The result is an infinity or a NaN, the same on both sides.
            return Some(LEAST);
        }
        if sum >= OVERFLOW {
            return None;
        }
        let greatest = running.max(f64::from(result).abs());
        let whole = if self.depth == mma::DEPTH { products.fold(greatest, f64::max) } else { sum };
        Some((whole * UNIT).max(LEAST))
    }

    /// What adders of each alignment give for one group; nothing for longer sums.
    pub(crate) fn aligned(&self, index: usize) -> Option<[f32; ALIGNMENTS.len()]> {
        let (a, b) = self.factors(index);
        let running = self.running.as_ref().map_or(0.0, |running| running[index]);
        (self.depth == mma::DEPTH).then(|| ALIGNMENTS.map(|way| way.sum(running, a, b)))
    }

    /// The operands as text.
    pub(crate) fn show(&self, index: usize) -> String {
        let (a, b) = self.factors(index);
        let shown = self.depth.min(mma::DEPTH);
        let more = if shown < self.depth { " and more" } else { "" };
        let running = self.running.as_ref().map_or(0.0, |running| running[index]);
        format!(
            "a = {:?}{more}, b = {:?}{more}, running value {running:?}",
            &a[..shown],
            &b[..shown]
        )
    }
}

/// A way in which an adder may align what it adds: to the last place of the largest term, so many bits further
/// down; the exponent of a product is its own, or the sum of those of its factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Alignment {
    bits: i32,
    is_own_exponent: bool,
}

/// What is tried.
pub(crate) const ALIGNMENTS: [Alignment; 6] = [
    Alignment { bits: 1, is_own_exponent: false },
    Alignment { bits: 2, is_own_exponent: false },
    Alignment { bits: 3, is_own_exponent: false },
    Alignment { bits: 1, is_own_exponent: true },
    Alignment { bits: 2, is_own_exponent: true },
    Alignment { bits: 3, is_own_exponent: true },
];

impl Alignment {
    /// For the report.
    pub(crate) fn name(self) -> String {
        let of = if self.is_own_exponent { "product" } else { "factors" };
        format!("{} bits below the last place of the largest term, exponents of {of}", self.bits)
    }

    /// The running value and products, each truncated at that place, added, and truncated to f32.
    pub(crate) fn sum(self, running: f32, a: &[f32], b: &[f32]) -> f32 {
        let exponent = |x: f64| (x.abs().to_bits() >> 52) as i32 - 1023;
        let terms = || {
            let product = |(&a, &b): (&f32, &f32)| {
                let (a, b) = (f64::from(a), f64::from(b));
                let of_factors = exponent(a) + exponent(b);
                (a * b, if self.is_own_exponent { exponent(a * b) } else { of_factors })
            };
            let running = f64::from(running);
            a.iter().zip(b).map(product).chain([(running, exponent(running))])
        };
        let largest = terms().filter(|(x, _)| *x != 0.0).map(|(_, exponent)| exponent).max();
        let Some(largest) = largest else { return running };
        let last = 2f64.powi(largest - 23 - self.bits);
        let sum = terms().map(|(x, _)| (x / last).trunc()).sum::<f64>() * last;
        let near = sum as f32;
        if f64::from(near).abs() > sum.abs() { f32::from_bits(near.to_bits() - 1) } else { near }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrices(first: f32, running: f32) -> Matrices {
        let mut a = vec![1.0; SIDE * 16];
        a[3] = first;
        Matrices {
            a,
            b: vec![0.5; SIDE * 16],
            running: Some(vec![running; SIDE * SIDE]),
            depth: 16,
        }
    }

    #[test]
    fn the_unit_is_that_of_the_greatest() {
        assert_eq!(matrices(8.0, 1.0).unit(0, 1.0), Some(4.0 * UNIT));
        assert_eq!(matrices(8.0, 1.0).unit(0, -12.5), Some(12.5 * UNIT));
        assert_eq!(matrices(8.0, -64.0).unit(5, 0.0), Some(64.0 * UNIT));
        assert_eq!(matrices(8.0, 0.25).unit(SIDE, 0.0), Some(0.5 * UNIT), "the second row");
        assert_eq!(matrices(f32::INFINITY, 0.0).unit(0, f32::INFINITY), Some(LEAST));
        assert_eq!(matrices(f32::MAX, f32::MAX).unit(0, 0.0), None);
        assert!(matrices(3.0, 2.0).show(0).ends_with("running value 2.0"));
    }

    #[test]
    fn a_longer_sum_counts_all_magnitudes_and_has_room_for_each_group() {
        let all = Matrices {
            a: vec![-1.0; SIDE * 64],
            b: vec![2.0; SIDE * 64],
            running: None,
            depth: 64,
        };
        assert_eq!(all.unit(SIDE * SIDE - 1, 0.0), Some(128.0 * UNIT));
        assert_eq!((bound(16), bound(64)), (PRODUCT_GROUP, 4.0 * PRODUCT_GROUP));
    }

    #[test]
    fn an_adder_drops_what_is_below_its_last_place() {
        let [one, two, ..] = ALIGNMENTS;
        // One and three quarters of the last place of the running value.
        let (a, b) = ([f32::EPSILON, 0.75 * f32::EPSILON], [1.0, 1.0]);
        assert_eq!(one.sum(1.0, &a, &b), 1.0 + f32::EPSILON);
        assert_eq!(two.sum(1.0, &[0.5 * f32::EPSILON, 0.5 * f32::EPSILON], &b), 1.0 + f32::EPSILON);
        assert_eq!(two.sum(-1.0, &a, &b), -1.0 + 2.0 * f32::EPSILON);
        assert_eq!(two.sum(0.0, &[0.0; 2], &b), 0.0);
        // 1.5 * 1.5 has the exponent 1, its factors have 0.
        let small = [1.5, 2f32.powi(-25)];
        assert_eq!(two.sum(-2.25, &small, &[1.5, 1.0]), 0.0);
        let own = Alignment { bits: 2, is_own_exponent: true };
        let below_two = -2.0 + f32::EPSILON;
        let sums = [two, own].map(|way| way.sum(below_two, &small, &[1.5, 1.0]));
        assert_eq!(sums, [0.25 + 1.25 * f32::EPSILON, 0.25 + f32::EPSILON]);
    }
}
