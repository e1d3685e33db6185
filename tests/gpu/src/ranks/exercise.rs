//! The kernels of several ranks that are run: their sources, what they are given, and what they must give.

use kernel_abi::DType;
use kernel_abi::numeric::float_to_f32;

/// A kernel over several ranks.
pub(super) struct Exercise {
    /// Its name.
    pub(super) kernel: &'static str,
    /// Name and text of its source.
    pub(super) source: (&'static str, &'static str),
    /// Where its result lies.
    pub(super) result: &'static str,
    /// Inputs whose sums are exact in any order in every other case: the tensor core has an order of its own.
    pub(super) whole: &'static [&'static str],
    /// Buffers that are the same on every rank.
    pub(super) same: &'static [&'static str],
    /// The greatest error against the result in f64, by the greatest value of it.
    pub(super) bound: f64,
    /// The result in f64 of each rank.
    pub(super) exact: fn(&[Inputs<'_>]) -> Vec<Vec<f64>>,
}

/// What one rank starts with, by name.
pub(super) struct Inputs<'m> {
    /// Bytes and element type of a buffer.
    pub(super) of: &'m dyn Fn(&str) -> (DType, Vec<u8>),
    /// Values of the `const` parameters.
    pub(super) binding: &'m dyn Fn(&str) -> usize,
}

impl Inputs<'_> {
    fn floats(&self, name: &str) -> Vec<f64> {
        let (dtype, bytes) = (self.of)(name);
        floats(dtype, &bytes)
    }
}

/// The values of floating-point elements.
pub(super) fn floats(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let size = dtype.bytes().unwrap_or(1) as usize;
    let value = |element: &[u8]| {
        let code = element.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
        float_to_f32(dtype, code).map_or(f64::NAN, f64::from)
    };
    bytes.chunks_exact(size).map(value).collect()
}

/// Every kernel that is run.
pub(super) const ALL: &[Exercise] = &[
    Exercise {
        kernel: "all_reduce_push",
        source: ("all_reduce_push.tile", include_str!("../../../ranks/all_reduce_push.tile")),
        result: "y",
        whole: &[],
        same: &[],
        bound: 1e-5,
        exact: sum,
    },
    Exercise {
        kernel: "o_proj_push",
        source: ("o_proj_push.tile", include_str!("../../../ranks/o_proj_push.tile")),
        result: "resid",
        whole: &["W", "a", "resid"],
        same: &["resid"],
        // Half a step of bf16 at the greatest value.
        bound: 4e-3,
        exact: projection,
    },
];

fn sum(ranks: &[Inputs<'_>]) -> Vec<Vec<f64>> {
    let inputs: Vec<Vec<f64>> = ranks.iter().map(|rank| rank.floats("x")).collect();
    let len = inputs.first().map_or(0, Vec::len);
    let all: Vec<f64> = (0..len).map(|i| inputs.iter().map(|part| part[i]).sum()).collect();
    vec![all; ranks.len()]
}

fn projection(ranks: &[Inputs<'_>]) -> Vec<Vec<f64>> {
    let Some(first) = ranks.first() else { return Vec::new() };
    let [m, n, k] = ["M", "N", "K"].map(first.binding);
    let mut total = vec![0.0; m * n];
    for rank in ranks {
        let (w, a) = (rank.floats("W"), rank.floats("a"));
        for (i, sum) in total.iter_mut().enumerate() {
            let (row, column) = (&a[i / n * k..][..k], &w[i % n * k..][..k]);
            *sum += row.iter().zip(column).map(|(a, w)| a * w).sum::<f64>();
        }
    }
    let with = |rank: &Inputs<'_>| {
        let old = rank.floats("resid");
        old.iter().zip(&total).map(|(old, sum)| old + sum).collect()
    };
    ranks.iter().map(with).collect()
}
