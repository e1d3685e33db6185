//! How a register tile is spread over the threads of its role.
//!
//! Each axis of a tile is cut into five digits, fastest first:
//!
//! ```text
//! coordinate = v + vec * (lane_digit + lanes.extent * (i + inner * (warp_digit + warps.extent * rest_digit)))
//! lane_digit = (lane / lanes.stride) % lanes.extent        warp_digit likewise
//! ```
//!
//! `v`, `i` and `rest_digit` run over registers. This is the thread-value layout of CuTe with one
//! mode a digit; every extent divides, so there is no padding. A digit of the thread index that no
//! axis uses replicates the tile: replicas are bit-equal, and stores are done by the lowest one.

use std::fmt;

/// Lanes of a warp.
pub const LANES: u32 = 32;

/// One digit of the lane or warp index: `(index / stride) % extent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digit {
    /// Number of values of the digit; 1 means that the axis does not use it.
    pub extent: u32,
    /// Place value of the digit within the lane or warp index.
    pub stride: u32,
}

impl Digit {
    /// A digit that is not used.
    pub const NONE: Digit = Digit { extent: 1, stride: 1 };

    /// The digit's value in `index`.
    pub fn of(self, index: u32) -> u32 {
        (index / self.stride) % self.extent
    }
}

/// How one axis is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AxisMap {
    /// Consecutive elements that sit in one thread.
    pub vec: u32,
    /// The part that lanes run along.
    pub lanes: Digit,
    /// Registers between what lanes and what warps run along; 1 but for sums of a warpgroup.
    pub inner: u32,
    /// The part that warps run along.
    pub warps: Digit,
    /// What is left, in registers, slowest.
    pub rest: u32,
}

impl AxisMap {
    /// An axis held whole by every thread, in `extent` registers.
    pub fn local(extent: u32) -> AxisMap {
        AxisMap { vec: 1, lanes: Digit::NONE, inner: 1, warps: Digit::NONE, rest: extent }
    }

    /// Extent of the axis: the product of the digits.
    pub fn extent(self) -> u32 {
        self.vec * self.lanes.extent * self.inner * self.warps.extent * self.rest
    }

    /// Elements of the axis that one thread holds.
    pub fn registers(self) -> u32 {
        self.vec * self.slow()
    }

    /// Registers of the axis but for the vector elements.
    pub fn slow(self) -> u32 {
        self.inner * self.rest
    }

    /// True where the axis is not spread over threads.
    pub fn is_local(self) -> bool {
        self.lanes.extent == 1 && self.warps.extent == 1
    }

    /// The coordinate that thread (`warp`, `lane`) holds in its register `local` of this axis,
    /// where `local` counts `rest` slow, `inner` faster and `vec` fastest.
    pub fn coordinate(self, warp: u32, lane: u32, local: u32) -> u32 {
        let (slow, v) = (local / self.vec, local % self.vec);
        let (rest, inner) = (slow / self.inner, slow % self.inner);
        let outer = self.warps.of(warp) + self.warps.extent * rest;
        v + self.vec * (self.lanes.of(lane) + self.lanes.extent * (inner + self.inner * outer))
    }
}

/// The distribution of a tile over a role of `warps` warps.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Distribution {
    /// Warps of the role.
    pub warps: u32,
    /// One map an axis; empty for a scalar, which every thread holds.
    pub axes: Vec<AxisMap>,
}

impl Distribution {
    /// The distribution of a scalar: the same value in every thread.
    pub fn scalar(warps: u32) -> Distribution {
        Distribution { warps, axes: Vec::new() }
    }

    /// Extents of the tile.
    pub fn shape(&self) -> Vec<u32> {
        self.axes.iter().map(|a| a.extent()).collect()
    }

    /// Registers (elements) of one thread.
    pub fn registers(&self) -> u32 {
        self.axes.iter().map(|a| a.registers()).product()
    }

    /// The register that holds the axis-local positions `locals` (one an axis, each
    /// `(rest * inner + i) * vec + v`). Registers are ordered by the slow digits of all axes, last axis fastest,
    /// and within those by the `vec` digits of all axes, last axis fastest.
    pub fn register(&self, locals: &[u32]) -> u32 {
        let mut rest = 0;
        let mut vec = 0;
        let mut vecs = 1;
        for (axis, &local) in self.axes.iter().zip(locals) {
            rest = rest * axis.slow() + local / axis.vec;
            vec = vec * axis.vec + local % axis.vec;
            vecs *= axis.vec;
        }
        rest * vecs + vec
    }

    /// The inverse of [`Distribution::register`]: axis-local positions of a register.
    pub fn locals(&self, register: u32) -> Vec<u32> {
        let vecs: u32 = self.axes.iter().map(|a| a.vec).product();
        let (mut rest, mut vec) = (register / vecs, register % vecs);
        let mut locals = vec![0; self.axes.len()];
        for (axis, local) in self.axes.iter().zip(&mut locals).rev() {
            *local = (rest % axis.slow()) * axis.vec + vec % axis.vec;
            rest /= axis.slow();
            vec /= axis.vec;
        }
        locals
    }

    /// Coordinates of the element in `register` of thread (`warp`, `lane`).
    pub fn coordinates(&self, warp: u32, lane: u32, register: u32) -> Vec<u32> {
        self.axes
            .iter()
            .zip(self.locals(register))
            .map(|(axis, local)| axis.coordinate(warp, lane, local))
            .collect()
    }

    /// Digits of the lane index that no axis uses, each `(stride, extent)`: the tile is replicated
    /// along them.
    pub fn free_lanes(&self) -> Vec<Digit> {
        free_digits(LANES, self.axes.iter().map(|a| a.lanes))
    }

    /// Digits of the warp index that no axis uses.
    pub fn free_warps(&self) -> Vec<Digit> {
        free_digits(self.warps, self.axes.iter().map(|a| a.warps))
    }

    /// The distribution without axis `axis`: what a reduction along it leaves.
    pub fn without(&self, axis: usize) -> Distribution {
        let mut axes = self.axes.clone();
        axes.remove(axis);
        Distribution { warps: self.warps, axes }
    }
}

/// The gaps that `used` leaves in a mixed-radix index of `count` values.
fn free_digits(count: u32, used: impl Iterator<Item = Digit>) -> Vec<Digit> {
    let mut used: Vec<Digit> = used.filter(|d| d.extent > 1).collect();
    used.sort_by_key(|d| d.stride);
    let mut free = Vec::new();
    let mut at = 1;
    for digit in used {
        if digit.stride > at {
            free.push(Digit { extent: digit.stride / at, stride: at });
        }
        at = digit.stride * digit.extent;
    }
    if count > at {
        free.push(Digit { extent: count / at, stride: at });
    }
    free
}

impl fmt::Display for Distribution {
    /// Prints one group an axis: `v8 l32 w2 r4`, digits of extent 1 left out, `@s` a place value
    /// above 1.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, axis) in self.axes.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            let mut parts = Vec::new();
            if axis.vec > 1 {
                parts.push(format!("v{}", axis.vec));
            }
            for (letter, digit, registers) in
                [('l', axis.lanes, axis.inner), ('w', axis.warps, axis.rest)]
            {
                match (digit.extent, digit.stride) {
                    (1, _) => {}
                    (e, 1) => parts.push(format!("{letter}{e}")),
                    (e, s) => parts.push(format!("{letter}{e}@{s}")),
                }
                if registers > 1 {
                    parts.push(format!("r{registers}"));
                }
            }
            f.write_str(if parts.is_empty() { "1" } else { "" })?;
            f.write_str(&parts.join(" "))?;
        }
        f.write_str("]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemv_weights() -> Distribution {
        Distribution {
            warps: 4,
            axes: vec![
                AxisMap {
                    vec: 1,
                    lanes: Digit::NONE,
                    inner: 1,
                    warps: Digit { extent: 2, stride: 2 },
                    rest: 4,
                },
                AxisMap {
                    vec: 1,
                    lanes: Digit { extent: 32, stride: 1 },
                    inner: 1,
                    warps: Digit { extent: 2, stride: 1 },
                    rest: 1,
                },
                AxisMap { vec: 8, lanes: Digit::NONE, inner: 1, warps: Digit::NONE, rest: 1 },
            ],
        }
    }

    #[test]
    fn every_element_has_exactly_one_owner_when_nothing_is_replicated() {
        let d = gemv_weights();
        assert_eq!(d.shape(), [8, 64, 8]);
        let mut seen = std::collections::BTreeSet::new();
        for warp in 0..4 {
            for lane in 0..LANES {
                for r in 0..d.registers() {
                    assert_eq!(d.register(&d.locals(r)), r);
                    assert!(seen.insert(d.coordinates(warp, lane, r)));
                }
            }
        }
        assert_eq!(seen.len(), 8 * 64 * 8);
        assert!(d.free_lanes().is_empty() && d.free_warps().is_empty());
    }

    #[test]
    fn a_reduced_tile_is_replicated_over_the_digits_of_the_lost_axis() {
        let d = gemv_weights().without(1);
        assert_eq!(d.free_lanes(), [Digit { extent: 32, stride: 1 }]);
        assert_eq!(d.free_warps(), [Digit { extent: 2, stride: 1 }]);
        assert_eq!(d.to_string(), "[w2@2 r4, v8]");
    }
}
