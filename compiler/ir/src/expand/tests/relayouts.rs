//! `relayout` between drawn distributions: the right element in every thread, whichever way it goes.

use std::collections::BTreeMap;

use kernel_abi::DType;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::machine::Machine;
use super::{ints, load_widths};
use crate::distribution::Distribution;
use crate::expand::sample::{Sample, SpreadDraw, any_spread, spread};
use crate::expand::{Notes, RelayoutWay, expand_noted};
use crate::kernel::{Kernel, Op};

/// A tile, how it is spread first, and how then.
type Draw = ([u32; 2], SpreadDraw, SpreadDraw, DType);

fn draws() -> impl Strategy<Value = Draw> {
    let rows = prop_oneof![Just(4u32), Just(8), Just(24), Just(64)];
    let columns = prop_oneof![Just(2u32), Just(8), Just(96), Just(128)];
    let dtype = prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::U8), Just(DType::I64)];
    // Warps, and lanes too, often stay.
    (rows, columns, any_spread(), any_spread(), dtype, 0..4).prop_map(
        |(rows, columns, from, to, dtype, alike)| {
            let (order, first, second, warps, _) = from;
            let to = match alike {
                0 => to,
                1 => (order, first, second, warps, to.4),
                _ => (to.0, to.1, to.2, warps, to.4),
            };
            ([rows, columns], from, to, dtype)
        },
    )
}

/// Copies a tile that changes its distribution on the way.
fn kernel(extents: [u32; 2], from: Distribution, to: Distribution, dtype: DType) -> Kernel {
    let mut s = Sample::new(4, 1);
    let (x, y) = (s.input("x", dtype, &extents), s.output("y", dtype, &extents));
    let tile = s.load_all(x);
    let moved = s.def(dtype, &extents, Op::Relayout { x: tile });
    let index = s.whole(y);
    s.store(moved, y, index);
    let mut kernel = s.finish();
    kernel.values[tile].distribution = from;
    kernel.values[moved].distribution = to;
    kernel
}

/// The notes of a run that brought every element to its place; nothing for a draw that fits no tile.
fn moved((extents, from, to, dtype): Draw) -> Option<Notes> {
    let (from, to) = (spread(from, extents)?, spread(to, extents)?);
    let shown = format!("{dtype}: {from} to {to}");
    let (device, notes) = expand_noted(&kernel(extents, from, to, dtype)).unwrap();
    assert!(load_widths(&device).iter().all(|&width| width > 0));
    let count = (extents[0] * extents[1]) as usize;
    let mut machine = Machine::new(&device, vec![ints(count), vec![super::Word::Int(-1); count]]);
    machine.run();
    assert_eq!(machine.buffers[1], ints(count), "{shown}");
    assert!(machine.stores[1].iter().all(|&n| n == 1), "{shown}");
    let barriers = match notes.relayouts[0].way {
        RelayoutWay::Registers | RelayoutWay::Shuffles => 0,
        RelayoutWay::Shared => 1,
    };
    assert_eq!(machine.barriers, barriers, "{shown}");
    Some(notes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_element_arrives(draw in draws()) {
        moved(draw);
    }
}

#[test]
fn each_way_is_taken() {
    let mut runner = TestRunner::deterministic();
    let mut ways: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..600 {
        let draw = draws().new_tree(&mut runner).unwrap().current();
        if let Some(notes) = moved(draw) {
            let one = &notes.relayouts[0];
            let choices = if one.choices > 0 { " with choices" } else { "" };
            *ways.entry(format!("{:?}{choices}", one.way)).or_default() += 1;
        }
    }
    for way in ["Registers", "Registers with choices", "Shuffles with choices", "Shared"] {
        assert!(ways.get(way).is_some_and(|&count| count > 2), "{way}: {ways:?}");
    }
}

#[test]
fn many_choices_lose_against_shared_memory() {
    let way = |extents: [u32; 2], from, to, dtype| {
        let notes = moved((extents, from, to, dtype)).unwrap();
        let one = &notes.relayouts[0];
        (one.way, one.shuffles)
    };
    // Eight neighbours a lane, then one: three bits change between lane and register, two between lanes.
    let (wide, narrow) = ((2, 5, 5, [2, 2], 3), (2, 5, 5, [2, 2], 0));
    assert_eq!(way([1, 256], wide, narrow, DType::F32), (RelayoutWay::Shuffles, 8));
    assert_eq!(way([4, 256], wide, narrow, DType::F32), (RelayoutWay::Shared, 0));
    // Shared memory takes narrow elements in fewer pieces; shuffles take one a word here.
    assert_eq!(way([1, 256], wide, narrow, DType::Bf16), (RelayoutWay::Shared, 0));
    // Two rows in two halves of a warp, then in two registers. Words are filled where several go to one lane.
    let (halves, whole) = ((0, 1, 5, [2, 2], 0), (2, 5, 5, [2, 2], 0));
    for (dtype, shuffles) in [(DType::F32, 2), (DType::Bf16, 2), (DType::I64, 4)] {
        assert_eq!(
            way([2, 32], halves, whole, dtype),
            (RelayoutWay::Shuffles, shuffles),
            "{dtype}"
        );
    }
    assert_eq!(way([2, 64], halves, whole, DType::F32), (RelayoutWay::Shuffles, 4));
    assert_eq!(way([2, 64], halves, whole, DType::Bf16), (RelayoutWay::Shuffles, 2));
}
