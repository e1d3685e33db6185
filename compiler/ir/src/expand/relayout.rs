//! `relayout`: the same tile in another distribution, the cheapest way.
//!
//! What keeps its lane and warp, or what the thread holds already, is a choice of registers. What stays in its
//! warp can go by shuffles (see [`plan`]). Everything else, and what would take more shuffles and choices than
//! a detour is worth, goes through shared memory.

mod plan;

use std::collections::BTreeMap;

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;

use super::Expander;
use super::banks::wavefronts;
use super::linear::{Linear, Reg};
use super::notes::{RelayoutNote, RelayoutWay};
use super::shared::tile_bytes;
use super::vectors::VECTOR_BYTES;
use crate::device::{Arg, DeviceOp, FragId, Lanes};
use crate::distribution::{Digit, Distribution, LANES};
use crate::kernel::ValueId;
use crate::ops::{BinaryOp, CompareOp};
use plan::{Plan, SourceBit};

/// Issue slots of a warp that a step takes, where the ways differ: estimates, not measurements.
mod slots {
    /// A shuffle of 32 bits.
    pub(super) const SHUFFLE: u64 = 2;
    /// A choice between two registers.
    pub(super) const CHOICE: u64 = 1;
    /// Putting a narrow element into a word that is shuffled, and taking it out.
    pub(super) const NARROW: u64 = 1;
    /// 128 bytes of shared memory.
    pub(super) const WAVEFRONT: u64 = 2;
    /// A barrier, and the time from a store to the load behind it.
    pub(super) const MEETING: u64 = 40;
}

/// Shuffles of 32 bits that move `elements` registers of a thread.
fn shuffled_words(dtype: DType, elements: u32) -> u32 {
    let of_word = match dtype.bits() {
        // A truth value has a word of its own.
        _ if dtype == DType::Bool => 1,
        bits => 32 / bits.clamp(8, 32),
    };
    elements.div_ceil(of_word).saturating_mul(dtype.bits().div_ceil(32))
}

/// What a plan takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    /// Shuffles of 32 bits.
    shuffles: u32,
    /// Choices between two registers.
    choices: u32,
    slots: u64,
}

fn cost(plan: &Plan, dtype: DType) -> Cost {
    let mut shuffles = 0u32;
    let mut narrow = 0u64;
    for rounds in plan.groups().values().filter(|group| group.moves) {
        let elements = rounds.rounds.len() as u32;
        shuffles = shuffles.saturating_add(shuffled_words(dtype, elements));
        if dtype.bits() < 32 {
            narrow += u64::from(elements);
        }
    }
    let choices = plan.choices();
    let slots = u64::from(shuffles) * slots::SHUFFLE
        + u64::from(choices) * slots::CHOICE
        + narrow * slots::NARROW;
    Cost { shuffles, choices, slots }
}

/// Slots of the way through shared memory.
fn shared_slots(from: &Distribution, to: &Distribution, dtype: DType) -> u64 {
    let size = dtype.bytes().unwrap_or(1);
    let all = row_major(from, size, true) + row_major(to, size, false);
    u64::from(all) * slots::WAVEFRONT + slots::MEETING
}

/// Wavefronts in which the first warp stores or loads a tile that lies row-major.
fn row_major(distribution: &Distribution, size: u32, is_store: bool) -> u32 {
    let free = distribution.free_lanes();
    let takes_part = |lane: u32| !is_store || free.iter().all(|digit| digit.of(lane) == 0);
    let place = |lane: u32, register: u32| {
        let coordinates = distribution.coordinates(0, lane, register);
        let axes = distribution.axes.iter().zip(coordinates);
        axes.fold(0i64, |place, (map, at)| place * i64::from(map.extent()) + i64::from(at))
    };
    let mut registers: Vec<Vec<i64>> = (0..distribution.registers())
        .map(|register| (0..LANES).map(|lane| place(lane, register)).collect())
        .collect();
    registers.sort();
    let is_vector = |registers: &[Vec<i64>]| {
        let len = registers.len() as i64;
        (0..LANES as usize).all(|lane| {
            let first = registers[0][lane];
            first % len == 0 && (0..len).all(|i| registers[i as usize][lane] == first + i)
        })
    };
    let (mut at, mut total) = (0, 0);
    while at < registers.len() {
        let mut len = ((VECTOR_BYTES / size) as usize).max(1);
        while len > 1 && !registers.get(at..at + len).is_some_and(is_vector) {
            len /= 2;
        }
        let places = |lane: u32| takes_part(lane).then(|| registers[at][lane as usize]);
        total += wavefronts(size, len as u32, places).wavefronts;
        at += len;
    }
    total
}

impl Expander<'_> {
    /// The same tile in another distribution.
    pub(super) fn relayout(&mut self, result: ValueId, x: ValueId) -> Result<(), Diagnostic> {
        let kernel = self.kernel;
        let (from, to) = (&kernel.values[x].distribution, &kernel.values[result].distribution);
        let dtype = kernel.values[x].dtype;
        let src = self.frag(x);
        let mut note = RelayoutNote {
            span: self.b.locs[self.b.loc].span,
            way: RelayoutWay::Registers,
            shuffles: 0,
            choices: 0,
            exchange: None,
        };
        if from == to || to.registers() == 0 {
            self.notes.relayouts.push(note);
            self.bind(result, src);
            return Ok(());
        }
        let within = Plan::of(from, to).map(|plan| {
            let cost = cost(&plan, dtype);
            (plan, cost)
        });
        let fits = tile_bytes(dtype, from) <= self.shared.room();
        match within {
            Some((plan, cost)) if !fits || cost.slots <= shared_slots(from, to, dtype) => {
                if cost.shuffles > 0 {
                    note.way = RelayoutWay::Shuffles;
                }
                (note.shuffles, note.choices) = (cost.shuffles, cost.choices);
                self.notes.relayouts.push(note);
                let frag = self.within_warps(src, dtype, &plan);
                self.bind(result, frag);
            }
            Some(_) | None => {
                note.way = RelayoutWay::Shared;
                note.exchange = Some(self.notes.exchanges.len());
                self.notes.relayouts.push(note);
                let frag = self.through_shared(src, dtype, from, to)?;
                self.bind(result, frag);
            }
        }
        Ok(())
    }

    /// The registers of `src` where a plan wants them.
    fn within_warps(&mut self, src: FragId, dtype: DType, plan: &Plan) -> FragId {
        let mut held = Held { frag: src, registers: (0..plan.source_registers).collect() };
        for pick in &plan.warp_picks {
            let digit = self.b.warp(Digit { extent: pick.extent, stride: pick.stride });
            held = self.take_digit(held, dtype, pick.weight, pick.extent, &digit);
        }
        for pick in plan.lane_picks.iter().filter(|pick| pick.round.is_none()) {
            let bit = self.lane_bit(pick.lane_bit);
            held = self.take_digit(held, dtype, pick.weight, 2, &bit);
        }
        for pick in plan.lane_picks.iter().filter(|pick| pick.round.is_some()) {
            let bit = self.lane_bit(pick.lane_bit);
            let other = |register: u32| match register / pick.weight % 2 {
                0 => register + pick.weight,
                _ => register - pick.weight,
            };
            let table = held.registers.iter().map(|&r| held.place(other(r))).collect();
            held.frag = self.choose_if(&bit, held.frag, dtype, table);
        }
        let mut from = vec![(held.frag, 0); plan.target_registers as usize];
        let mut lanes = None;
        for (mask, group) in plan.groups() {
            let table = group.rounds.iter().map(|&j| held.place(plan.source_register(j))).collect();
            let x = self.b.gather(held.frag, table);
            if !group.moves {
                for (i, &round) in group.rounds.iter().enumerate() {
                    from[round as usize] = (held.frag, x.element(i as u32));
                }
                continue;
            }
            let len = group.rounds.len() as u32;
            let x = self.b.define(dtype, len, |dst| DeviceOp::Copy { dst, x });
            let lanes = match plan.is_xor {
                true => Lanes::Xor(mask),
                false => {
                    let base = *lanes.get_or_insert_with(|| self.source_lane(plan));
                    Lanes::Register(self.flipped(base, mask))
                }
            };
            let moved = self.b.define(dtype, len, |dst| DeviceOp::Shuffle { dst, x, lanes });
            for (i, &round) in group.rounds.iter().enumerate() {
                from[round as usize] = (moved, i as u32);
            }
        }
        let len = plan.target_registers;
        let mut frag = self.b.define(dtype, len, |dst| DeviceOp::Join { dst, from });
        for &(weight, own) in &plan.turns {
            let bit = self.lane_bit(own);
            let other = |register: u32| match register / weight % 2 {
                0 => register + weight,
                _ => register - weight,
            };
            frag = self.choose_if(&bit, frag, dtype, (0..len).map(other).collect());
        }
        frag
    }

    fn lane_bit(&mut self, bit: u32) -> Linear {
        self.b.lane(Digit { extent: 2, stride: 1 << bit })
    }

    /// Of the registers whose digit at `weight` is free, those whose digit is the thread's.
    fn take_digit(
        &mut self,
        held: Held,
        dtype: DType,
        weight: u32,
        extent: u32,
        digit: &Linear,
    ) -> Held {
        let first = |register: &u32| (register / weight).is_multiple_of(extent);
        let registers: Vec<u32> = held.registers.iter().copied().filter(first).collect();
        let with = |value: u32| registers.iter().map(|&r| held.place(r + value * weight)).collect();
        let len = registers.len() as u32;
        let mut chosen = self.b.gather(held.frag, with(0));
        for value in 1..extent {
            let (a, b) = (self.b.gather(held.frag, with(value)), chosen);
            let cond = self.is(digit, value);
            chosen =
                Arg::whole(self.b.define(dtype, len, |dst| DeviceOp::Select { dst, cond, a, b }));
        }
        Held { frag: chosen.frag, registers }
    }

    /// Element `table[i]` of a fragment where the bit is set, else element `i`.
    fn choose_if(&mut self, bit: &Linear, x: FragId, dtype: DType, table: Vec<u32>) -> FragId {
        let len = table.len() as u32;
        let (a, b) = (self.b.gather(x, table), Arg::whole(x));
        let cond = self.is(bit, 1);
        self.b.define(dtype, len, |dst| DeviceOp::Select { dst, cond, a, b })
    }

    fn is(&mut self, digit: &Linear, value: u32) -> Arg {
        let value = Linear::constant(i64::from(value));
        let pred = self.b.int_compare(CompareOp::Eq, digit, &value, DType::I32);
        let reg = self.b.pred(pred);
        Arg::all(reg.0, reg.1)
    }

    /// The lane that a thread reads from in the rounds that flip nothing.
    fn source_lane(&mut self, plan: &Plan) -> Reg {
        let mut lane = Linear::default();
        for (bit, source) in plan.source.iter().enumerate() {
            let own = match *source {
                SourceBit::Lane { own, .. } => self.lane_bit(own),
                SourceBit::Warp { stride } => self.b.warp(Digit { extent: 2, stride }),
            };
            lane = lane.plus(1 << bit, &own).expect("lane numbers are small");
        }
        self.b.materialize(&lane, DType::I32)
    }

    fn flipped(&mut self, lane: Reg, mask: u32) -> Reg {
        if mask == 0 {
            return lane;
        }
        let mask = self.b.int(DType::I32, i64::from(mask));
        self.b.binary(BinaryOp::Xor, lane, mask, DType::I32)
    }
}

/// Registers of the source, and where they are now.
struct Held {
    frag: FragId,
    /// In ascending order; the place in the list is the place in the fragment.
    registers: Vec<u32>,
}

impl Held {
    fn place(&self, register: u32) -> u32 {
        self.registers.partition_point(|&own| own < register) as u32
    }
}

/// Rounds that read from the same lane.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// False where that is the thread's own lane.
    moves: bool,
    /// Rounds, ascending.
    rounds: Vec<u32>,
}

impl Plan {
    /// The rounds by the bits of the lane that they flip.
    fn groups(&self) -> BTreeMap<u32, Group> {
        let mut groups = BTreeMap::new();
        for round in 0..self.target_registers {
            let mask = self.mask(round);
            let moves = mask != 0 || !self.is_xor;
            let group = groups.entry(mask).or_insert_with(|| Group { moves, rounds: Vec::new() });
            group.rounds.push(round);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::AxisMap;

    #[test]
    fn conflicts_make_shared_memory_dearer() {
        let digit = |extent, stride| Digit { extent, stride };
        let axis = |vec, lanes, rest| AxisMap { vec, lanes, inner: 1, warps: Digit::NONE, rest };
        let rows = Distribution {
            warps: 1,
            axes: vec![axis(1, Digit::NONE, 32), axis(1, digit(32, 1), 1)],
        };
        let columns = Distribution {
            warps: 1,
            axes: vec![axis(1, digit(32, 1), 1), axis(1, Digit::NONE, 32)],
        };
        // A row a wavefront; a column of 32 rows of 128 bytes is in one bank, but four of them are a vector.
        assert_eq!(row_major(&rows, 4, true), 32);
        assert_eq!(row_major(&columns, 4, true), 8 * 32);
        assert_eq!(shuffled_words(DType::I64, 3), 6);
        assert_eq!(shuffled_words(DType::Bf16, 3), 2);
        assert_eq!(shuffled_words(DType::U8, 9), 3);
        assert_eq!(shuffled_words(DType::Bool, 9), 9);
    }
}
