//! The order in which reductions fold, derived from how an axis is spread over threads.
//!
//! For each output element:
//!
//! 1. every thread folds the elements that it holds, in ascending order of the coordinate (`rest` digits
//!    slow, `vec` digits fast), starting from [`identity`];
//! 2. lanes that share the axis exchange by a butterfly: for each mask of [`FoldOrder::lane_xors`] in
//!    order, every lane folds its value with that of the lane whose number differs by the mask. The
//!    operations commute, so all lanes end with the same bits;
//! 3. warps that share the axis are folded one after the other: the value of the first of
//!    [`FoldOrder::warp_offsets`] starts, and the others follow in order. Every warp does the same sum.
//!
//! The device level does this with shuffles, or one reduction of all lanes where no order shows, and shared
//! memory, the kernel level with [`fold`]; the bits are the same.

use kernel_abi::DType;
use kernel_abi::numeric::canonical;

use super::elements::Elements;
use super::elementwise::ReduceOp;
use super::math;
use crate::distribution::{AxisMap, Digit};

/// The steps between threads of a fold over one axis or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldOrder {
    /// Masks of the butterfly over lanes, in order: for each axis the nearest distance first.
    pub lane_xors: Vec<u32>,
    /// Warps whose values are folded, ascending, as offsets from the warp that has 0 in all digits of the
    /// axes; the first is 0.
    pub warp_offsets: Vec<u32>,
}

impl FoldOrder {
    /// The order for axes that are folded together, in the order of the axes.
    pub fn of<'a>(axes: impl IntoIterator<Item = &'a AxisMap>) -> FoldOrder {
        let mut lane_xors = Vec::new();
        let mut warp_offsets = vec![0];
        for axis in axes {
            let mut distance = 1;
            while distance < axis.lanes.extent {
                lane_xors.push(distance * axis.lanes.stride);
                distance *= 2;
            }
            let Digit { extent, stride } = axis.warps;
            warp_offsets = warp_offsets
                .iter()
                .flat_map(|&offset| (0..extent).map(move |d| offset + d * stride))
                .collect();
        }
        warp_offsets.sort_unstable();
        FoldOrder { lane_xors, warp_offsets }
    }

    /// True where no thread needs the value of another.
    pub fn is_local(&self) -> bool {
        self.lane_xors.is_empty() && self.warp_offsets.len() == 1
    }
}

/// The code that a fold starts from; `None` for types that are not reduced.
pub fn identity(op: ReduceOp, dtype: DType) -> Option<u64> {
    let float = |x: f32| u64::from(x.to_bits());
    match (op, dtype) {
        (ReduceOp::Add, DType::F32 | DType::I32 | DType::U32) => Some(0),
        (ReduceOp::Max, DType::F32) => Some(float(f32::NEG_INFINITY)),
        (ReduceOp::Min, DType::F32) => Some(float(f32::INFINITY)),
        (ReduceOp::Max, DType::I32) => Some(u64::from(i32::MIN as u32)),
        (ReduceOp::Min, DType::I32) => Some(i32::MAX as u64),
        (ReduceOp::Max, DType::U32) => Some(0),
        (ReduceOp::Min, DType::U32) => Some(u64::from(u32::MAX)),
        (ReduceOp::Add | ReduceOp::Max | ReduceOp::Min, _) => None,
    }
}

/// A tile seen as three axes: those before the folded one, the folded one, those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes3 {
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub extent: usize,
    /// Product of the extents after it.
    pub inner: usize,
}

impl Axes3 {
    /// The three axes around `axis` of `shape`.
    pub fn around(shape: &[u32], axis: usize) -> Axes3 {
        let product = |extents: &[u32]| extents.iter().map(|&e| e as usize).product();
        Axes3 {
            outer: product(&shape[..axis]),
            extent: shape[axis] as usize,
            inner: product(&shape[axis + 1..]),
        }
    }
}

/// Folds the middle axis of `x`, which is spread as `map` says, in the order of this module. f32, i32
/// and u32 only.
pub fn fold(op: ReduceOp, x: &Elements, axes: Axes3, map: AxisMap, out: &mut Elements) {
    let dtype = x.dtype();
    let x = x.slice::<u32>();
    let start = identity(op, dtype).expect("typing takes f32, i32 and u32 only") as u32;
    out.reset(dtype);
    let out = out.vec_mut::<u32>();
    let float = |f: fn(f32, f32) -> f32| {
        move |a, b| canonical(f(f32::from_bits(a), f32::from_bits(b))).to_bits()
    };
    match (op, dtype) {
        (ReduceOp::Add, DType::F32) => {
            let add = |a, b| canonical(f32::from_bits(a) + f32::from_bits(b)).to_bits();
            fold_words(x, axes, map, start, add, out);
        }
        (ReduceOp::Max, DType::F32) => fold_words(x, axes, map, start, float(math::max), out),
        (ReduceOp::Min, DType::F32) => fold_words(x, axes, map, start, float(math::min), out),
        (ReduceOp::Add, _) => fold_words(x, axes, map, start, u32::wrapping_add, out),
        (ReduceOp::Max, DType::I32) => {
            fold_words(x, axes, map, start, |a, b| (a as i32).max(b as i32) as u32, out);
        }
        (ReduceOp::Min, DType::I32) => {
            fold_words(x, axes, map, start, |a, b| (a as i32).min(b as i32) as u32, out);
        }
        (ReduceOp::Max, _) => fold_words(x, axes, map, start, u32::max, out),
        (ReduceOp::Min, _) => fold_words(x, axes, map, start, u32::min, out),
    }
}

/// Sums of i32 or u32 along the middle axis of `x`, each with its own element or, where exclusive, without.
pub fn scan(x: &Elements, axes: Axes3, exclusive: bool, out: &mut Elements) {
    let Axes3 { outer, extent, inner } = axes;
    out.reset(x.dtype());
    let x = x.slice::<u32>();
    let out = out.vec_mut::<u32>();
    out.resize(x.len(), 0);
    for first in (0..outer).flat_map(|o| (0..inner).map(move |i| o * extent * inner + i)) {
        let mut sum = 0u32;
        for at in (0..extent).map(|e| first + e * inner) {
            let next = sum.wrapping_add(x[at]);
            out[at] = if exclusive { sum } else { next };
            sum = next;
        }
    }
}

fn fold_words(
    x: &[u32],
    axes: Axes3,
    map: AxisMap,
    start: u32,
    f: impl Fn(u32, u32) -> u32 + Copy,
    out: &mut Vec<u32>,
) {
    let Axes3 { outer, extent, inner } = axes;
    let slots = Slots::of(&[map]);
    let slot_of: Vec<usize> = (0..extent as u32).map(|c| slots.of_coordinate(0, c)).collect();
    let mut partial = vec![start; slots.count() * inner];
    for o in 0..outer {
        partial.fill(start);
        if inner == 1 && slots.count() == 1 {
            let along = &x[o * extent..][..extent];
            out.push(along.iter().fold(start, |total, &v| f(total, v)));
            continue;
        }
        if inner == 1 {
            for (&v, &slot) in x[o * extent..][..extent].iter().zip(&slot_of) {
                partial[slot] = f(partial[slot], v);
            }
            slots.combine(&mut partial, 1, f);
            out.push(partial[0]);
            continue;
        }
        for (c, &slot) in slot_of.iter().enumerate() {
            let row = &x[(o * extent + c) * inner..][..inner];
            for (p, &v) in partial[slot * inner..][..inner].iter_mut().zip(row) {
                *p = f(*p, v);
            }
        }
        slots.combine(&mut partial, inner, f);
        out.extend_from_slice(&partial[..inner]);
    }
}

/// One partial value for each thread that takes part in a fold: lane digits fast, the first axis
/// fastest; then warps in ascending order.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    axes: Vec<AxisMap>,
    lanes: usize,
    /// Offsets of the participating warps, ascending.
    warps: Vec<u32>,
}

impl Slots {
    pub(super) fn of(axes: &[AxisMap]) -> Slots {
        let lanes = axes.iter().map(|a| a.lanes.extent as usize).product();
        let warps = FoldOrder::of(axes).warp_offsets;
        Slots { axes: axes.to_vec(), lanes, warps }
    }

    /// Number of partial values of one output.
    pub(super) fn count(&self) -> usize {
        self.lanes * self.warps.len()
    }

    /// The slot of a single-axis fold that coordinate `c` belongs to.
    fn of_coordinate(&self, axis: usize, c: u32) -> usize {
        debug_assert!(axis == 0 && self.axes.len() == 1, "a fold has one axis");
        self.of_coordinates(&[c])
    }

    /// The slot that the position with these coordinates, one an axis, belongs to.
    pub(super) fn of_coordinates(&self, coordinates: &[u32]) -> usize {
        let (mut lane, mut scale, mut warp) = (0, 1, 0);
        for (axis, &c) in self.axes.iter().zip(coordinates) {
            let c = c / axis.vec;
            lane += (c % axis.lanes.extent) as usize * scale;
            scale *= axis.lanes.extent as usize;
            let above = c / (axis.lanes.extent * axis.inner);
            warp += (above % axis.warps.extent) * axis.warps.stride;
        }
        let warp = self.warps.binary_search(&warp).expect("every digit combination is listed");
        warp * self.lanes + lane
    }

    /// Folds lanes by the butterfly, then warps in order, for `width` outputs side by side; the result is
    /// in the first `width` values.
    #[inline(always)]
    pub(super) fn combine<T: Copy>(&self, partial: &mut [T], width: usize, f: impl Fn(T, T) -> T) {
        for w in 0..self.warps.len() {
            // After the step with distance d, slots that differ below 2d hold the same value, so one of them
            // is enough: the first.
            let mut distance = 1;
            while distance < self.lanes {
                for lane in (0..self.lanes).step_by(2 * distance) {
                    let at = (w * self.lanes + lane) * width;
                    for i in at..at + width {
                        partial[i] = f(partial[i], partial[i + distance * width]);
                    }
                }
                distance *= 2;
            }
        }
        for w in 1..self.warps.len() {
            for i in 0..width {
                partial[i] = f(partial[i], partial[w * self.lanes * width + i]);
            }
        }
    }
}

/// The greatest element along the middle axis and its index. Ties go to the lower index and a NaN counts
/// as -inf, so the result does not depend on an order. f32 and i32 only.
pub fn argmax(x: &Elements, axes: Axes3, value: &mut Elements, index: &mut Elements) {
    let dtype = x.dtype();
    let x = x.slice::<u32>();
    value.reset(dtype);
    index.reset(DType::I32);
    let Axes3 { outer, extent, inner } = axes;
    for o in 0..outer {
        for i in 0..inner {
            let along = (0..extent).map(|c| x[(o * extent + c) * inner + i]);
            let (v, at) = if dtype == DType::F32 {
                let clean = |w| {
                    let v = f32::from_bits(w);
                    if v.is_nan() { f32::NEG_INFINITY } else { v }
                };
                let (v, at) = greatest(along.map(clean), f32::NEG_INFINITY);
                (v.to_bits(), at)
            } else {
                let (v, at) = greatest(along.map(|w| w as i32), i32::MIN);
                (v as u32, at)
            };
            value.vec_mut::<u32>().push(v);
            index.vec_mut::<u32>().push(at);
        }
    }
}

/// The greatest value and the first index that has it.
fn greatest<T: PartialOrd + Copy>(values: impl Iterator<Item = T>, least: T) -> (T, u32) {
    let mut best = (least, 0);
    for (v, at) in values.zip(0..) {
        if at == 0 || v > best.0 {
            best = (v, at);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Distribution, LANES};

    fn map(vec: u32, lanes: (u32, u32), warps: (u32, u32), rest: u32) -> AxisMap {
        AxisMap {
            vec,
            lanes: Digit { extent: lanes.0, stride: lanes.1 },
            inner: 1,
            warps: Digit { extent: warps.0, stride: warps.1 },
            rest,
        }
    }

    /// What the threads do, one by one, as this module's description says.
    fn fold_by_threads(x: &[f32], axis: AxisMap, warps: u32) -> Vec<f32> {
        let order = FoldOrder::of([&axis]);
        let d = Distribution { warps, axes: vec![axis] };
        let mut values = vec![vec![0.0f32; LANES as usize]; warps as usize];
        for warp in 0..warps {
            for lane in 0..LANES {
                let mut sum = 0.0f32;
                for r in 0..d.registers() {
                    sum += x[d.coordinates(warp, lane, r)[0] as usize];
                }
                values[warp as usize][lane as usize] = sum;
            }
            for &mask in &order.lane_xors {
                let before = values[warp as usize].clone();
                for lane in 0..LANES {
                    values[warp as usize][lane as usize] += before[(lane ^ mask) as usize];
                }
            }
        }
        let mut results = Vec::new();
        for warp in 0..warps {
            let base = warp - axis.warps.of(warp) * axis.warps.stride;
            for lane in 0..LANES as usize {
                let mut offsets = order.warp_offsets.iter();
                let first = (base + offsets.next().unwrap()) as usize;
                let mut total = values[first][lane];
                for offset in offsets {
                    total += values[(base + offset) as usize][lane];
                }
                results.push(total);
            }
        }
        results
    }

    #[test]
    fn folding_a_tile_gives_the_bits_that_every_thread_gets() {
        for axis in [
            map(4, (32, 1), (4, 1), 3),
            map(1, (8, 4), (2, 2), 5),
            map(8, (1, 1), (3, 1), 2),
            map(2, (16, 2), (1, 1), 1),
            AxisMap::local(37),
        ] {
            let warps = if axis.warps.extent == 3 { 3 } else { 4 };
            let x: Vec<f32> = (0..axis.extent())
                .map(|i| {
                    (kernel_abi::numeric::random::word(5, 0, u64::from(i)) >> 40) as f32 * 1e-3
                })
                .collect();
            let axes = Axes3::around(&[axis.extent()], 0);
            let mut out = Elements::new(DType::F32);
            fold(ReduceOp::Add, &Elements::from_f32(&x), axes, axis, &mut out);
            for thread in fold_by_threads(&x, axis, warps) {
                assert_eq!(u64::from(thread.to_bits()), out.get(0), "{axis:?}");
            }
        }
    }

    #[test]
    fn the_order_lists_masks_and_warps() {
        let order = FoldOrder::of([&map(1, (4, 8), (2, 1), 1), &map(1, (2, 1), (2, 2), 1)]);
        assert_eq!(order.lane_xors, [8, 16, 1]);
        assert_eq!(order.warp_offsets, [0, 1, 2, 3]);
        assert!(!order.is_local());
        assert!(FoldOrder::of([&AxisMap::local(9)]).is_local());
    }

    #[test]
    fn maximum_and_minimum_ignore_nan() {
        let x = Elements::from_f32(&[f32::NAN, -3.0, f32::NAN, f32::NAN]);
        let axes = Axes3 { outer: 2, extent: 2, inner: 1 };
        let mut out = Elements::new(DType::F32);
        fold(ReduceOp::Max, &x, axes, AxisMap::local(2), &mut out);
        assert_eq!(out, Elements::from_f32(&[-3.0, f32::NEG_INFINITY]));
        fold(ReduceOp::Min, &x, axes, AxisMap::local(2), &mut out);
        assert_eq!(out, Elements::from_f32(&[-3.0, f32::INFINITY]));
        let x = Elements::from_i32(&[-1, 5, 2, -9]);
        fold(ReduceOp::Max, &x, axes, AxisMap::local(2), &mut out);
        assert_eq!(out, Elements::from_i32(&[5, 2]));
        let axes = Axes3 { outer: 1, extent: 2, inner: 2 };
        fold(ReduceOp::Min, &x, axes, map(1, (2, 1), (1, 1), 1), &mut out);
        assert_eq!(out, Elements::from_i32(&[-1, -9]));
        let x = Elements::from_codes(DType::U32, [1, 2, 3, u64::from(u32::MAX)]);
        fold(ReduceOp::Max, &x, axes, AxisMap::local(2), &mut out);
        assert_eq!(out.codes().collect::<Vec<_>>(), [3, u64::from(u32::MAX)]);
        fold(ReduceOp::Add, &x, axes, AxisMap::local(2), &mut out);
        assert_eq!(out.codes().collect::<Vec<_>>(), [4, 1]);
    }

    #[test]
    fn argmax_takes_the_lower_index() {
        let (nan, inf) = (f32::NAN, f32::NEG_INFINITY);
        let x = Elements::from_f32(&[1.0, 7.0, 7.0, nan, inf, nan]);
        let (mut value, mut index) = (Elements::new(DType::F32), Elements::new(DType::F32));
        argmax(&x, Axes3 { outer: 2, extent: 3, inner: 1 }, &mut value, &mut index);
        assert_eq!(value, Elements::from_f32(&[7.0, inf]));
        assert_eq!(index, Elements::from_i32(&[1, 0]));
        let x = Elements::from_i32(&[-5, -5, -7, -1]);
        argmax(&x, Axes3 { outer: 1, extent: 2, inner: 2 }, &mut value, &mut index);
        assert_eq!(value, Elements::from_i32(&[-5, -1]));
        assert_eq!(index, Elements::from_i32(&[0, 1]));
    }
}
