//! The order in which contractions add, derived from how the contracted axes are spread over threads.
//!
//! For each output element, with the contracted letters in the order of
//! [`ContractSpec::contracted`]:
//!
//! * every contracted axis local: `acc = fma(a, b, acc)` from the running value, or from +0, over the
//!   contracted positions in ascending order, the first letter slowest;
//! * otherwise: every thread runs that chain from +0 over the positions that it holds; lanes and then
//!   warps are folded as [`super::reduce`] says, letters in order; `total = acc + total` comes last, and only
//!   with a running value.

use thiserror::Error;

use super::elements::Elements;
use super::math;
use super::reduce::{FoldOrder, Slots};
use crate::distribution::AxisMap;
use crate::kernel::ContractSpec;
use kernel_abi::numeric::canonical;

/// Operand of a contraction: its elements and how its axes are spread.
#[derive(Debug, Clone, Copy)]
pub struct Operand<'a> {
    /// f32 elements, row-major.
    pub elements: &'a Elements,
    /// Extents.
    pub shape: &'a [u32],
    /// One map an axis.
    pub maps: &'a [AxisMap],
}

/// A contraction whose operands do not fit its letters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ContractError {
    /// An operand has more or fewer axes than letters.
    #[error("{letters} letters for an operand of rank {rank}")]
    Rank {
        /// Letters of the operand.
        letters: usize,
        /// Axes of the operand.
        rank: usize,
    },
    /// A letter stands for two extents.
    #[error("the letter `{letter}` stands for the extents {first} and {second}")]
    Extent {
        /// The letter.
        letter: String,
        /// One extent.
        first: u32,
        /// Another.
        second: u32,
    },
    /// A letter of the result stands in no operand.
    #[error("the letter `{letter}` of the result stands in no operand")]
    Unknown {
        /// The letter.
        letter: String,
    },
    /// A contracted letter is spread differently in the two operands.
    #[error("the letter `{letter}` is spread differently in the two operands")]
    Spread {
        /// The letter.
        letter: String,
    },
}

/// The maps of the contracted axes, in the order of the letters: what [`FoldOrder::of`] takes.
pub fn contracted_maps(
    spec: &ContractSpec,
    a: &[AxisMap],
    b: &[AxisMap],
) -> Result<Vec<AxisMap>, ContractError> {
    spec.contracted()
        .iter()
        .map(|letter| {
            let in_a = position(&spec.a, letter).map(|i| a[i]);
            let in_b = position(&spec.b, letter).map(|i| b[i]);
            match (in_a, in_b) {
                (Some(x), Some(y)) if x != y => {
                    Err(ContractError::Spread { letter: letter.to_string() })
                }
                (Some(x), _) | (None, Some(x)) => Ok(x),
                (None, None) => Err(ContractError::Unknown { letter: letter.to_string() }),
            }
        })
        .collect()
}

/// Replaces `out` by the contraction, in the order of this module; returns the number of products.
pub fn contract(
    spec: &ContractSpec,
    a: Operand<'_>,
    b: Operand<'_>,
    acc: Option<&Elements>,
    out: &mut Elements,
) -> Result<u64, ContractError> {
    Ok(Contraction::new(spec, a, b)?.run(a.elements, b.elements, acc, out))
}

/// What a contraction walks through: it depends on shapes and spreads, not on elements, so one serves every
/// run of an operation.
#[derive(Debug, Clone)]
pub struct Contraction {
    free: Positions,
    sum: Positions,
    slots: Slots,
    /// The chain that each summed position belongs to.
    slot_of: Vec<usize>,
    local: bool,
    /// The last axis of the result: extent and strides in both operands.
    inner: (usize, usize, usize),
}

impl Contraction {
    /// The contraction of operands of these shapes and spreads.
    ///
    /// # Errors
    /// They do not fit the letters.
    pub fn new(
        spec: &ContractSpec,
        a: Operand<'_>,
        b: Operand<'_>,
    ) -> Result<Contraction, ContractError> {
        let a_axes = Axes::of(&spec.a, a)?;
        let b_axes = Axes::of(&spec.b, b)?;
        let sum = positions(&spec.contracted(), &a_axes, &b_axes)?;
        let free = positions(&spec.out, &a_axes, &b_axes)?;
        let maps = contracted_maps(spec, a.maps, b.maps)?;
        let slots = Slots::of(&maps);
        let local = FoldOrder::of(&maps).is_local();
        let slot_of = sum.coordinates().map(|c| slots.of_coordinates(&c)).collect();
        let inner = inner_strides(&spec.out, &a_axes, &b_axes);
        Ok(Contraction { free, sum, slots, slot_of, local, inner })
    }

    /// Replaces `out` by the contraction of f32 elements; returns the number of products.
    pub fn run(
        &self,
        a: &Elements,
        b: &Elements,
        acc: Option<&Elements>,
        out: &mut Elements,
    ) -> u64 {
        let chains = Chains {
            order: self,
            a: a.slice::<u32>(),
            b: b.slice::<u32>(),
            running: acc.map(|acc| acc.slice::<u32>()),
        };
        out.reset(kernel_abi::DType::F32);
        let out = out.vec_mut::<u32>();
        out.reserve(self.free.len());
        math::with_simd(Appending(&chains, out));
        self.free.len() as u64 * self.sum.len() as u64
    }
}

/// Extent and strides in both operands of the last letter of the result: 1 and 0 for a scalar.
fn inner_strides(out: &[std::sync::Arc<str>], a: &Axes<'_>, b: &Axes<'_>) -> (usize, usize, usize) {
    let Some(letter) = out.last() else { return (1, 0, 0) };
    let of = |axes: &Axes<'_>| axes.find(letter).ok().flatten();
    let extent = of(a).or(of(b)).map_or(1, |(extent, _)| extent as usize);
    let stride = |axes: &Axes<'_>| of(axes).map_or(0, |(_, stride)| stride);
    (extent, stride(a), stride(b))
}

/// The chains of products of all outputs.
struct Chains<'a> {
    order: &'a Contraction,
    /// Bits of f32.
    a: &'a [u32],
    b: &'a [u32],
    running: Option<&'a [u32]>,
}

/// Appends every output.
struct Appending<'a, 'c>(&'a Chains<'c>, &'a mut Vec<u32>);

impl math::Loop for Appending<'_, '_> {
    #[inline(always)]
    fn run(self) {
        self.0.append(self.1);
    }
}

impl Chains<'_> {
    #[inline(always)]
    fn append(&self, out: &mut Vec<u32>) {
        match self.order.inner {
            (width, 1, 1) if width > 1 => self.rows(width, out, |f, acc, a, b| {
                let (x, y) = (&self.a[a..a + width], &self.b[b..b + width]);
                for ((acc, &x), &y) in acc.iter_mut().zip(x).zip(y) {
                    *acc = f(x, y, *acc);
                }
            }),
            (width, 1, 0) if width > 1 => self.rows(width, out, |f, acc, a, b| {
                let y = self.b[b];
                for (acc, &x) in acc.iter_mut().zip(&self.a[a..a + width]) {
                    *acc = f(x, y, *acc);
                }
            }),
            (width, 0, 1) if width > 1 => self.rows(width, out, |f, acc, a, b| {
                let x = self.a[a];
                for (acc, &y) in acc.iter_mut().zip(&self.b[b..b + width]) {
                    *acc = f(x, y, *acc);
                }
            }),
            _ => self.outputs(out),
        }
    }

    /// Outputs whose last axis lies side by side in the operands: one product of every output of a row
    /// after the other.
    #[inline(always)]
    fn rows(
        &self,
        width: usize,
        out: &mut Vec<u32>,
        product: impl Fn(fn(u32, u32, f32) -> f32, &mut [f32], usize, usize),
    ) {
        let mut partial = vec![0.0f32; self.order.slots.count() * width];
        for start in (0..self.order.free.len()).step_by(width) {
            let (a, b) = (self.order.free.a[start], self.order.free.b[start]);
            partial.fill(0.0);
            let running = self.running.map(|running| &running[start..start + width]);
            if let (true, Some(running)) = (self.order.local, running) {
                for (p, &r) in partial.iter_mut().zip(running) {
                    *p = f32::from_bits(r);
                }
            }
            for ((&a_sum, &b_sum), &slot) in
                self.order.sum.a.iter().zip(&self.order.sum.b).zip(&self.order.slot_of)
            {
                let chain = &mut partial[slot * width..][..width];
                product(fused, chain, a + a_sum, b + b_sum);
            }
            self.order.slots.combine(&mut partial, width, |a, b| a + b);
            match running {
                Some(running) if !self.order.local => {
                    let sums = partial.iter().zip(running);
                    out.extend(sums.map(|(p, &r)| canonical(f32::from_bits(r) + p).to_bits()));
                }
                _ => out.extend(partial[..width].iter().map(|p| canonical(*p).to_bits())),
            }
        }
    }

    /// One output after the other.
    #[inline(always)]
    fn outputs(&self, out: &mut Vec<u32>) {
        let mut partial = vec![0.0f32; self.order.slots.count()];
        let len = self.order.sum.len();
        let contiguous = |at: &[usize]| at.iter().enumerate().all(|(i, &o)| i == o);
        let side_by_side =
            self.order.local && contiguous(&self.order.sum.a) && contiguous(&self.order.sum.b);
        for (at, (&a, &b)) in self.order.free.a.iter().zip(&self.order.free.b).enumerate() {
            let running = self.running.map(|running| f32::from_bits(running[at]));
            if self.order.local {
                let mut acc = running.unwrap_or(0.0);
                if side_by_side {
                    for (&x, &y) in self.a[a..a + len].iter().zip(&self.b[b..b + len]) {
                        acc = fused(x, y, acc);
                    }
                } else {
                    for (&a_sum, &b_sum) in self.order.sum.a.iter().zip(&self.order.sum.b) {
                        acc = fused(self.a[a + a_sum], self.b[b + b_sum], acc);
                    }
                }
                out.push(canonical(acc).to_bits());
                continue;
            }
            partial.fill(0.0);
            for ((&a_sum, &b_sum), &slot) in
                self.order.sum.a.iter().zip(&self.order.sum.b).zip(&self.order.slot_of)
            {
                let (x, y) = (self.a[a + a_sum], self.b[b + b_sum]);
                partial[slot] = fused(x, y, partial[slot]);
            }
            self.order.slots.combine(&mut partial, 1, |a, b| a + b);
            let total = running.map_or(partial[0], |running| running + partial[0]);
            out.push(canonical(total).to_bits());
        }
    }
}

/// `a * b + c` with one rounding, of bits; a NaN of any payload stays one.
#[inline(always)]
fn fused(a: u32, b: u32, c: f32) -> f32 {
    f32::from_bits(a).mul_add(f32::from_bits(b), c)
}

fn position(letters: &[std::sync::Arc<str>], letter: &str) -> Option<usize> {
    letters.iter().position(|l| **l == *letter)
}

/// Letters of an operand with extents and strides.
struct Axes<'a> {
    letters: &'a [std::sync::Arc<str>],
    extents: &'a [u32],
    strides: Vec<usize>,
}

impl<'a> Axes<'a> {
    fn of(
        letters: &'a [std::sync::Arc<str>],
        operand: Operand<'a>,
    ) -> Result<Axes<'a>, ContractError> {
        let rank = operand.shape.len();
        if letters.len() != rank || operand.maps.len() != rank {
            return Err(ContractError::Rank { letters: letters.len(), rank });
        }
        let mut strides = vec![0; rank];
        let mut stride = 1;
        for (s, &extent) in strides.iter_mut().zip(operand.shape).rev() {
            *s = stride;
            stride *= extent as usize;
        }
        Ok(Axes { letters, extents: operand.shape, strides })
    }

    /// Extent and stride of a letter, if the operand has it. One that occurs twice walks the diagonal.
    fn find(&self, letter: &str) -> Result<Option<(u32, usize)>, ContractError> {
        let mut found: Option<(u32, usize)> = None;
        for ((l, &extent), &stride) in self.letters.iter().zip(self.extents).zip(&self.strides) {
            if **l != *letter {
                continue;
            }
            found = match found {
                None => Some((extent, stride)),
                Some((first, _)) if first != extent => {
                    return Err(ContractError::Extent {
                        letter: letter.into(),
                        first,
                        second: extent,
                    });
                }
                Some((first, sum)) => Some((first, sum + stride)),
            };
        }
        Ok(found)
    }
}

/// Offsets into both operands for all positions of some letters, the first letter slowest.
#[derive(Debug, Clone)]
struct Positions {
    extents: Vec<u32>,
    a: Vec<usize>,
    b: Vec<usize>,
}

impl Positions {
    fn len(&self) -> usize {
        self.a.len()
    }

    fn coordinates(&self) -> impl Iterator<Item = Vec<u32>> + '_ {
        (0..self.len()).map(|mut at| {
            let mut c = vec![0; self.extents.len()];
            for (c, &extent) in c.iter_mut().zip(&self.extents).rev() {
                *c = (at % extent as usize) as u32;
                at /= extent as usize;
            }
            c
        })
    }
}

fn positions(
    letters: &[std::sync::Arc<str>],
    a: &Axes<'_>,
    b: &Axes<'_>,
) -> Result<Positions, ContractError> {
    let mut all = Positions { extents: Vec::new(), a: vec![0], b: vec![0] };
    for letter in letters {
        let (in_a, in_b) = (a.find(letter)?, b.find(letter)?);
        let (extent, a_stride, b_stride) = match (in_a, in_b) {
            (Some((first, _)), Some((second, _))) if first != second => {
                return Err(ContractError::Extent { letter: letter.to_string(), first, second });
            }
            (Some((extent, s)), Some((_, t))) => (extent, s, t),
            (Some((extent, s)), None) => (extent, s, 0),
            (None, Some((extent, t))) => (extent, 0, t),
            (None, None) => return Err(ContractError::Unknown { letter: letter.to_string() }),
        };
        let widen = |offsets: &[usize], stride: usize| -> Vec<usize> {
            let steps = move |&o: &usize| (0..extent as usize).map(move |i| o + i * stride);
            offsets.iter().flat_map(steps).collect()
        };
        all.a = widen(&all.a, a_stride);
        all.b = widen(&all.b, b_stride);
        all.extents.push(extent);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Digit;
    use kernel_abi::DType;
    use kernel_abi::numeric::random;

    fn spec(text: &str) -> ContractSpec {
        let (operands, out) = text.split_once("->").unwrap();
        let (a, b) = operands.split_once(',').unwrap();
        let letters = |s: &str| s.split_whitespace().map(Into::into).collect();
        ContractSpec { a: letters(a), b: letters(b), out: letters(out) }
    }

    fn numbers(stream: u64, len: usize) -> Vec<f32> {
        let codes = random::codes(DType::F32, len, 11, stream, None).unwrap();
        codes.into_iter().map(|c| f32::from_bits(c as u32)).collect()
    }

    fn local(shape: &[u32]) -> Vec<AxisMap> {
        shape.iter().map(|&e| AxisMap::local(e)).collect()
    }

    #[test]
    fn a_local_contraction_is_one_chain_from_the_running_value() {
        let (r, j, k) = (3, 100, 8);
        let (x, y) = (numbers(0, r * j * k), numbers(1, j * k));
        let running = numbers(2, r * j);
        let (xs, ys) = ([r as u32, j as u32, k as u32], [j as u32, k as u32]);
        let (x_elements, y_elements) = (Elements::from_f32(&x), Elements::from_f32(&y));
        let mut out = Elements::new(DType::F32);
        let products = contract(
            &spec("r j k, j k -> r j"),
            Operand { elements: &x_elements, shape: &xs, maps: &local(&xs) },
            Operand { elements: &y_elements, shape: &ys, maps: &local(&ys) },
            Some(&Elements::from_f32(&running)),
            &mut out,
        )
        .unwrap();
        assert_eq!(products, (r * j * k) as u64);
        for o in 0..r * j {
            let mut acc = running[o];
            for k0 in 0..k {
                acc = math::fma(x[o * k + k0], y[o % j * k + k0], acc);
            }
            assert_eq!(out.get(o), u64::from(acc.to_bits()));
        }
    }

    #[test]
    fn a_spread_contraction_folds_lanes_then_warps_and_adds_the_running_value_last() {
        // k = 2 (rest) * 2 (warps) * 4 (lanes) * 2 (vec).
        let k_map = AxisMap {
            vec: 2,
            lanes: Digit { extent: 4, stride: 8 },
            inner: 1,
            warps: Digit { extent: 2, stride: 1 },
            rest: 2,
        };
        let (m, k) = (5usize, 32usize);
        let (x, y, running) = (numbers(0, m * k), numbers(1, k), numbers(2, m));
        let (xs, ys) = ([m as u32, k as u32], [k as u32]);
        let (x_elements, y_elements) = (Elements::from_f32(&x), Elements::from_f32(&y));
        let mut out = Elements::new(DType::F32);
        contract(
            &spec("m k, k -> m"),
            Operand { elements: &x_elements, shape: &xs, maps: &[AxisMap::local(m as u32), k_map] },
            Operand { elements: &y_elements, shape: &ys, maps: &[k_map] },
            Some(&Elements::from_f32(&running)),
            &mut out,
        )
        .unwrap();
        for row in 0..m {
            let mut warps = Vec::new();
            for warp in 0..2 {
                let lane = |lane: usize| {
                    let mut acc = 0.0;
                    for rest in 0..2 {
                        for v in 0..2 {
                            let c = v + 2 * (lane + 4 * (warp + 2 * rest));
                            acc = math::fma(x[row * k + c], y[c], acc);
                        }
                    }
                    acc
                };
                warps.push((lane(0) + lane(1)) + (lane(2) + lane(3)));
            }
            let want = running[row] + (warps[0] + warps[1]);
            assert_eq!(out.get(row), u64::from(want.to_bits()));
        }
    }

    #[test]
    fn letters_that_do_not_fit_are_refused() {
        let x = Elements::from_f32(&[0.0; 6]);
        let shape = [2, 3];
        let maps = local(&shape);
        let operand = Operand { elements: &x, shape: &shape, maps: &maps };
        let mut out = Elements::new(DType::F32);
        let mut run = |text| contract(&spec(text), operand, operand, None, &mut out).unwrap_err();
        assert_eq!(run("i, i j -> j"), ContractError::Rank { letters: 1, rank: 2 });
        assert_eq!(
            run("i j, j i -> i"),
            ContractError::Extent { letter: "j".into(), first: 3, second: 2 }
        );
        assert_eq!(run("i j, i j -> n"), ContractError::Unknown { letter: "n".into() });
        let other = [AxisMap::local(2), AxisMap { vec: 3, rest: 1, ..AxisMap::local(1) }];
        let (a, b) = (operand, Operand { maps: &other, ..operand });
        assert_eq!(
            contract(&spec("i j, i j -> i"), a, b, None, &mut out),
            Err(ContractError::Spread { letter: "j".into() })
        );
    }
}
