//! How a tile changes its distribution without leaving its warps.
//!
//! Both distributions cut each axis into digits. On the common refinement every digit of an element's
//! coordinates has a seat in either: it is a digit of the register, of the lane or of the warp. A digit that
//! is a warp's in the source must be the same one in the target; all else can be done inside of a warp.
//!
//! Thread `l` gets its target registers in rounds, one a register. In round `j` it reads from lane `s`, and that
//! lane shows one register to all that read from it, so the register may depend on `s` and `j` alone. Bit by bit:
//!
//! - A bit that is a lane's on both sides: that bit of `s` is the bit of `l` that it becomes.
//! - A bit that moves from the register to the lane wants a bit of `l` that `s` must know: some bit of `s` that is
//!   free so far becomes that bit of `l`, plus a bit of `j` where it has to run over the elements of a target
//!   register. This is why thread `l` does not get register `j` in round `j`, but the one with those bits turned
//!   by its own (`turns`).
//! - A bit that no axis of the source uses is free: any copy will do.
//! - A bit of the lane that becomes a warp's is the same for the whole warp, and then two lanes read from one;
//!   which is right where the target has copies there, and not done where it has none.
//!
//! So half of the registers of a plain exchange of a bit stay where they are, and no register is shuffled twice.

use crate::distribution::{Distribution, LANES};

/// Bits of the lane number.
const LANE_BITS: u32 = LANES.trailing_zeros();

/// Where a digit of an element's coordinates is, with its place value there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seat {
    Register(u32),
    Lane(u32),
    Warp(u32),
}

impl Seat {
    /// The seat of what lies above `extent` values of the digit.
    fn above(self, extent: u32) -> Seat {
        match self {
            Seat::Register(place) => Seat::Register(place * extent),
            Seat::Lane(place) => Seat::Lane(place * extent),
            Seat::Warp(place) => Seat::Warp(place * extent),
        }
    }
}

/// A digit on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    extent: u32,
    from: Seat,
    to: Seat,
}

/// The digits of each axis, fastest first.
fn seats(distribution: &Distribution) -> Vec<Vec<(u32, Seat)>> {
    let mut vec = 1;
    let mut rest: u32 = distribution.axes.iter().map(|axis| axis.vec).product();
    let mut found: Vec<Vec<(u32, Seat)>> = Vec::new();
    for axis in distribution.axes.iter().rev() {
        let mut digits = vec![
            (axis.vec, Seat::Register(vec)),
            (axis.lanes.extent, Seat::Lane(axis.lanes.stride)),
            (axis.inner, Seat::Register(rest)),
            (axis.warps.extent, Seat::Warp(axis.warps.stride)),
            (axis.rest, Seat::Register(rest * axis.inner)),
        ];
        digits.retain(|(extent, _)| *extent > 1);
        found.push(digits);
        vec *= axis.vec;
        rest *= axis.slow();
    }
    found.reverse();
    found
}

/// The common refinement; nothing where digits overlap without one dividing the other.
fn steps(from: &Distribution, to: &Distribution) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    for (source, target) in seats(from).into_iter().zip(seats(to)) {
        let (mut source, mut target) = (source.into_iter(), target.into_iter());
        let (mut left, mut right) = (source.next(), target.next());
        while let (Some((m, from)), Some((n, to))) = (left, right) {
            let extent = m.min(n);
            if !m.max(n).is_multiple_of(extent) {
                return None;
            }
            steps.push(Step { extent, from, to });
            left = if m == extent { source.next() } else { Some((m / extent, from.above(extent))) };
            right = if n == extent { target.next() } else { Some((n / extent, to.above(extent))) };
        }
    }
    Some(steps)
}

/// What a bit of the source lane is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceBit {
    /// A bit of the reading lane, plus the bit of the round at a place value.
    Lane {
        /// The bit of the reading lane.
        own: u32,
        /// Place value in the number of the round.
        round: Option<u32>,
    },
    /// A bit of the warp number.
    Warp {
        /// Its place value.
        stride: u32,
    },
}

/// A digit of the source register that the thread's warp decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WarpPick {
    /// Place value in the source register.
    pub(super) weight: u32,
    pub(super) extent: u32,
    /// Place value in the warp number.
    pub(super) stride: u32,
}

/// A bit of the source register that the source lane decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LanePick {
    /// Place value in the source register.
    pub(super) weight: u32,
    /// The bit of the source lane.
    pub(super) lane_bit: u32,
    /// Place value of the bit of the round that is added.
    pub(super) round: Option<u32>,
}

/// A way inside of warps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) source_registers: u32,
    pub(super) target_registers: u32,
    /// Digits that stay in registers: place value in the source, in the target, extent.
    kept: Vec<(u32, u32, u32)>,
    pub(super) warp_picks: Vec<WarpPick>,
    pub(super) lane_picks: Vec<LanePick>,
    /// One entry a bit of the lane number.
    pub(super) source: Vec<SourceBit>,
    /// Place value in the target register, and the bit of the lane by which it is turned.
    pub(super) turns: Vec<(u32, u32)>,
    /// The source lane is the own one with bits flipped.
    pub(super) is_xor: bool,
}

/// What a distribution gives to a bit of the lane number, seen from the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    /// No axis uses it.
    Free,
    Lane(u32),
    Register(u32),
    Warp(u32),
}

impl Plan {
    /// The plan for a change of distribution, if there is one.
    pub(super) fn of(from: &Distribution, to: &Distribution) -> Option<Plan> {
        let mut plan = Plan {
            source_registers: from.registers(),
            target_registers: to.registers(),
            kept: Vec::new(),
            warp_picks: Vec::new(),
            lane_picks: Vec::new(),
            source: Vec::new(),
            turns: Vec::new(),
            is_xor: true,
        };
        let mut becomes = [Becomes::Free; LANE_BITS as usize];
        // Bits that move from the register to the lane: place value and bit.
        let mut down: Vec<(u32, u32)> = Vec::new();
        for Step { extent, from, to } in steps(from, to)? {
            match (from, to) {
                (Seat::Register(weight), Seat::Register(place)) => {
                    plan.kept.push((weight, place, extent));
                }
                (Seat::Register(weight), Seat::Warp(stride)) => {
                    plan.warp_picks.push(WarpPick { weight, extent, stride });
                }
                (Seat::Register(weight), Seat::Lane(stride)) => {
                    let bits = bits(extent, stride)?;
                    down.extend(bits.enumerate().map(|(i, bit)| (weight << i, bit)));
                }
                (Seat::Lane(stride), to) => {
                    for (i, bit) in bits(extent, stride)?.enumerate() {
                        let to = to.above(1 << i);
                        becomes[bit as usize] = match to {
                            Seat::Register(place) => Becomes::Register(place),
                            Seat::Lane(place) => Becomes::Lane(place.trailing_zeros()),
                            Seat::Warp(place) => Becomes::Warp(place),
                        };
                    }
                }
                (Seat::Warp(here), Seat::Warp(there)) if here == there => {}
                (Seat::Warp(_), Seat::Warp(_) | Seat::Register(_) | Seat::Lane(_)) => return None,
            }
        }
        let own = own_bits(&becomes, &down)?;
        for (bit, becomes) in (0..LANE_BITS).zip(becomes) {
            let own = own[bit as usize];
            plan.is_xor &= own == Some(bit);
            plan.source.push(match (becomes, own) {
                (Becomes::Warp(stride), _) => SourceBit::Warp { stride },
                (Becomes::Register(place), Some(own)) => {
                    plan.turns.push((place, own));
                    SourceBit::Lane { own, round: Some(place) }
                }
                (Becomes::Free | Becomes::Lane(_), Some(own)) => {
                    SourceBit::Lane { own, round: None }
                }
                (Becomes::Free | Becomes::Lane(_) | Becomes::Register(_), None) => return None,
            });
        }
        for (weight, wanted) in down {
            let holds = |source: &SourceBit| match source {
                SourceBit::Lane { own, .. } => *own == wanted,
                SourceBit::Warp { .. } => false,
            };
            let lane_bit = plan.source.iter().position(holds)? as u32;
            let round = match plan.source[lane_bit as usize] {
                SourceBit::Lane { round, .. } => round,
                SourceBit::Warp { .. } => None,
            };
            plan.lane_picks.push(LanePick { weight, lane_bit, round });
        }
        Some(plan)
    }

    /// The register that a lane shows in a round, after the picks.
    pub(super) fn source_register(&self, round: u32) -> u32 {
        let kept = self.kept.iter().map(|&(weight, place, extent)| round / place % extent * weight);
        let picked = self.lane_picks.iter().filter_map(|pick| Some((pick.weight, pick.round?)));
        kept.sum::<u32>() + picked.map(|(weight, place)| round / place % 2 * weight).sum::<u32>()
    }

    /// The bits of the source lane that a round flips.
    pub(super) fn mask(&self, round: u32) -> u32 {
        let flips = |source: &SourceBit| match source {
            SourceBit::Lane { round: Some(place), .. } => round / place % 2,
            SourceBit::Lane { round: None, .. } | SourceBit::Warp { .. } => 0,
        };
        self.source.iter().enumerate().map(|(bit, source)| flips(source) << bit).sum()
    }

    /// Choices between two registers that a thread makes.
    pub(super) fn choices(&self) -> u32 {
        let (mut held, mut choices) = (self.source_registers, 0u32);
        for pick in &self.warp_picks {
            held /= pick.extent;
            choices = choices.saturating_add(held.saturating_mul(pick.extent - 1));
        }
        for _ in self.lane_picks.iter().filter(|pick| pick.round.is_none()) {
            held /= 2;
            choices = choices.saturating_add(held);
        }
        let turned = self.lane_picks.iter().filter(|pick| pick.round.is_some()).count() as u32;
        let turns = self.turns.len() as u32;
        let all = held.saturating_mul(turned);
        choices.saturating_add(all).saturating_add(self.target_registers.saturating_mul(turns))
    }
}

/// The bits of the lane number that a digit is.
fn bits(extent: u32, stride: u32) -> Option<std::ops::Range<u32>> {
    let first = stride.trailing_zeros();
    let is_bits = extent.is_power_of_two() && stride.is_power_of_two();
    let end = first + extent.trailing_zeros();
    (is_bits && end <= LANE_BITS).then_some(first..end)
}

/// For each bit of the source lane the bit of the reading lane that it is: one for one, but for bits that the
/// warp decides. Nothing where a bit of the reading lane that decides about a register has no place.
fn own_bits(becomes: &[Becomes], down: &[(u32, u32)]) -> Option<Vec<Option<u32>>> {
    let mut own: Vec<Option<u32>> = becomes
        .iter()
        .map(|becomes| match becomes {
            Becomes::Lane(bit) => Some(*bit),
            Becomes::Free | Becomes::Register(_) | Becomes::Warp(_) => None,
        })
        .collect();
    let open = |own: &[Option<u32>], bit: u32| {
        let here = becomes[bit as usize];
        own[bit as usize].is_none()
            && (here == Becomes::Free || matches!(here, Becomes::Register(_)))
    };
    let (needed, others): (Vec<u32>, Vec<u32>) =
        (0..LANE_BITS).partition(|bit| down.iter().any(|(_, wanted)| wanted == bit));
    for wanted in [needed.clone(), others] {
        let missing = |own: &[Option<u32>]| -> Vec<u32> {
            wanted.iter().copied().filter(|bit| !own.contains(&Some(*bit))).collect()
        };
        for bit in missing(&own) {
            if open(&own, bit) {
                own[bit as usize] = Some(bit);
            }
        }
        for bit in missing(&own) {
            // First the places whose own bit has gone elsewhere.
            let places = (0..LANE_BITS).filter(|&place| open(&own, place));
            let place = places.min_by_key(|&place| !own.contains(&Some(place)));
            if let Some(place) = place {
                own[place as usize] = Some(bit);
            }
        }
    }
    needed.iter().all(|bit| own.contains(&Some(*bit))).then_some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{AxisMap, Digit};
    use crate::expand::sample::{any_spread, spread};
    use proptest::prelude::*;

    fn one(axes: Vec<AxisMap>) -> Distribution {
        Distribution { warps: 1, axes }
    }

    fn axis(vec: u32, lanes: (u32, u32), rest: u32) -> AxisMap {
        let lanes = Digit { extent: lanes.0, stride: lanes.1 };
        AxisMap { vec, lanes, inner: 1, warps: Digit::NONE, rest }
    }

    #[test]
    fn an_exchanged_bit_leaves_half_of_the_registers_where_they_are() {
        let pairs = one(vec![axis(2, (32, 1), 1)]);
        let halves = one(vec![axis(1, (32, 1), 2)]);
        // Bit 0 of the position: register, then lane bit 0. Lane bit i becomes lane bit i + 1, the last a register.
        let plan = Plan::of(&pairs, &halves).unwrap();
        assert!(!plan.is_xor);
        assert_eq!((plan.turns.len(), plan.lane_picks.len(), plan.choices()), (1, 1, 4));
        let rows = one(vec![axis(1, (2, 1), 1), axis(1, (16, 2), 2)]);
        let columns = one(vec![axis(1, (1, 1), 2), axis(1, (32, 1), 1)]);
        assert!(Plan::of(&rows, &columns).is_some());
        let swapped = one(vec![axis(1, (1, 1), 2), axis(1, (16, 2), 1), axis(1, (2, 1), 1)]);
        let back = one(vec![axis(1, (2, 1), 1), axis(1, (16, 2), 1), axis(1, (1, 1), 2)]);
        let plan = Plan::of(&swapped, &back).unwrap();
        assert!(plan.is_xor);
        assert_eq!([0, 1].map(|round| plan.mask(round)), [0, 1]);
    }

    /// What each thread has after the plan's steps, by register.
    fn carried_out(plan: &Plan, from: &Distribution, warp: u32, lane: u32) -> Vec<Vec<u32>> {
        let bit = |number: u32, bit: u32| number >> bit & 1;
        let round_of = |round: u32| -> Vec<u32> {
            let source = plan.source.iter().enumerate().map(|(place, source)| {
                let value = match *source {
                    SourceBit::Lane { own, .. } => bit(lane, own),
                    SourceBit::Warp { stride } => warp / stride % 2,
                };
                value << place
            });
            let source = source.sum::<u32>() ^ plan.mask(round);
            let mut register = plan.source_register(round);
            for pick in &plan.warp_picks {
                register += warp / pick.stride % pick.extent * pick.weight;
            }
            for pick in &plan.lane_picks {
                let turned = bit(source, pick.lane_bit);
                register = match (turned, register / pick.weight % 2) {
                    (0, _) => register,
                    (_, 0) => register + pick.weight,
                    _ => register - pick.weight,
                };
            }
            from.coordinates(warp, source, register)
        };
        let turned = |register: u32| {
            plan.turns.iter().fold(register, |at, &(weight, own)| match bit(lane, own) {
                0 => at,
                _ if at / weight % 2 == 0 => at + weight,
                _ => at - weight,
            })
        };
        (0..plan.target_registers).map(|register| round_of(turned(register))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_plan_brings_every_element_to_its_thread(
            a in any_spread(),
            b in any_spread(),
            rows in prop_oneof![Just(4u32), Just(8), Just(24), Just(64)],
            columns in prop_oneof![Just(2u32), Just(8), Just(96), Just(128)],
        ) {
            let extents = [rows, columns];
            let (Some(from), Some(to)) = (spread(a, extents), spread(b, extents)) else { return Ok(()) };
            let Some(plan) = Plan::of(&from, &to) else { return Ok(()) };
            for warp in 0..4 {
                for lane in 0..LANES {
                    let got = carried_out(&plan, &from, warp, lane);
                    for (register, got) in (0..to.registers()).zip(got) {
                        prop_assert_eq!(got, to.coordinates(warp, lane, register), "{} to {}: {:?}", from, to, plan);
                    }
                }
            }
        }
    }
}
