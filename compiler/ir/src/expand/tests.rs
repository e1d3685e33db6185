//! Expansion of kernels built by hand, run on a small device machine.

mod machine;
mod relayouts;

use kernel_abi::DType;
use kernel_dsl::diag::Code;
use proptest::prelude::*;

use super::expand;
use super::sample::{self, Sample};
use crate::device::{DeviceKernel, DeviceOp, DeviceStmt, Place, SlotId};
use crate::distribution::{Distribution, LANES};
use crate::index::Id;
use crate::kernel::{
    AxisIndex, CachePolicy, Contract, ContractBound, Extent, Kernel, Literal, Op, PrefetchRange,
    StmtKind, ViewAxis, ViewDigit,
};
use crate::ops::{BinaryOp, CompareOp, ReduceOp};
use machine::{Machine, Word};

fn floats(count: usize) -> Vec<Word> {
    let mut state = 12345u32;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            Word::Float((state >> 8) as f32 / 65536.0 - 100.0)
        })
        .collect()
}

fn ints(count: usize) -> Vec<Word> {
    (0..count as i64).map(Word::Int).collect()
}

fn nothing(count: usize) -> Vec<Word> {
    vec![Word::Float(f32::NAN); count]
}

/// Every operation, inner ones too.
fn all_ops(device: &DeviceKernel) -> Vec<&DeviceOp> {
    fn walk<'a>(stmts: &'a [DeviceStmt], ops: &mut Vec<&'a DeviceOp>) {
        for stmt in stmts {
            ops.push(&stmt.op);
            match &stmt.op {
                DeviceOp::For { body, .. } => walk(body, ops),
                DeviceOp::If { then_body, else_body, .. } => {
                    walk(then_body, ops);
                    walk(else_body, ops);
                }
                _ => {}
            }
        }
    }
    let mut ops = Vec::new();
    walk(&device.body, &mut ops);
    ops
}

/// Lengths of the vectors of all loads from global memory.
fn load_widths(device: &DeviceKernel) -> Vec<u32> {
    let ops = all_ops(device);
    let vectors = ops.iter().filter_map(|op| match op {
        DeviceOp::Load { place: Place::Global(_), vectors, .. } => Some(vectors),
        _ => None,
    });
    vectors.flatten().map(|v| v.len).collect()
}

/// What the order of the language gives for a sum over one axis: thread, lanes, warps.
fn folded(d: &Distribution, axis: usize, x: impl Fn(&[u32]) -> f32) -> Vec<f32> {
    let map = d.axes[axis];
    let kept = d.without(axis);
    let total: u32 = kept.shape().iter().product();
    let mut sums = vec![f32::NAN; total as usize];
    let flat = |coordinates: &[u32]| {
        coordinates.iter().zip(kept.shape()).fold(0, |n, (c, e)| n * e + c) as usize
    };
    for warp in 0..d.warps {
        for lane in 0..LANES {
            for register in 0..kept.registers() {
                let place = kept.coordinates(warp, lane, register);
                let thread = |warp: u32, lane: u32| {
                    (0..map.registers()).fold(0.0f32, |sum, local| {
                        let mut at = place.clone();
                        at.insert(axis, map.coordinate(warp, lane, local));
                        sum + x(&at)
                    })
                };
                let base_lane = lane - map.lanes.of(lane) * map.lanes.stride;
                let base_warp = warp - map.warps.of(warp) * map.warps.stride;
                let warps = (0..map.warps.extent).map(|w| {
                    let w = base_warp + w * map.warps.stride;
                    let lanes = (0..map.lanes.extent).map(|l| base_lane + l * map.lanes.stride);
                    let mut lanes: Vec<f32> = lanes.map(|l| thread(w, l)).collect();
                    while lanes.len() > 1 {
                        lanes = lanes.chunks(2).map(|pair| pair[0] + pair[1]).collect();
                    }
                    lanes[0]
                });
                sums[flat(&place)] = warps.reduce(|a, b| a + b).unwrap();
            }
        }
    }
    sums
}

#[test]
fn the_gemv_sketch_loads_sixteen_bytes_and_sums_in_the_stated_order() {
    let (n, k) = (16, 2048);
    let kernel = sample::gemv(n, k, 8, 512, 4);
    let device = expand(&kernel).unwrap();
    assert!(load_widths(&device).iter().all(|&len| len == 8));
    assert!(device.slots.is_empty(), "unrolled rings are registers");
    let (w, x) = (floats((n * k) as usize), floats(k as usize));
    let acc = kernel.vars.iter().find(|v| v.name == "acc").unwrap();
    for cta in 0..n / 8 {
        let buffers = vec![w.clone(), x.clone(), nothing(n as usize)];
        let mut machine = Machine::new(&device, buffers);
        machine.cta = i64::from(cta);
        machine.run();
        assert_eq!(machine.barriers, 1);
        let want = folded(&acc.distribution, 1, |at| {
            let (row, j) = (cta * 8 + at[0], at[1]);
            let mut sum = 0.0f32;
            for step in 0..4 {
                for i in 0..8 {
                    let column = step * 512 + j * 8 + i;
                    let weight = w[(row * k + column) as usize].float();
                    sum = weight.mul_add(x[column as usize].float(), sum);
                }
            }
            sum
        });
        for row in 0..8 {
            let at = (cta * 8 + row) as usize;
            assert_eq!(machine.buffers[2][at].float().to_bits(), want[row as usize].to_bits());
            assert_eq!(machine.stores[2][at], 1);
        }
    }
}

#[test]
fn reductions_that_nothing_orders_share_one_barrier() {
    let kernel = sample::attn_res_norm(1024, 8, 2);
    let (device, notes) = super::expand_noted(&kernel).unwrap();
    assert_eq!(notes.exchanges.len(), 2);
    assert_eq!(notes.exchanges[0].spans.len(), 4);
    let count = |n: usize| floats(n);
    let buffers = vec![count(1024), count(1024), count(8192), count(1024), nothing(1024)];
    let mut machine = Machine::new(&device, buffers);
    machine.run();
    assert_eq!(machine.barriers, 2);
    assert!(machine.stores[4].iter().all(|&n| n == 1));
}

/// A kernel that reduces `shape` along `axis`, in a loop of `rounds`, and what it must give.
fn check_sum(shape: &[u32], axis: usize, warps: u32, rounds: i64) {
    let mut s = Sample::new(warps, 1);
    let x = s.input("x", DType::F32, shape);
    let mut kept = shape.to_vec();
    kept.remove(axis);
    let y = s.output("y", DType::F32, &kept);
    let (start, end) = (s.int(0), s.int(rounds));
    let var = s.value(DType::I32, &[]);
    s.open();
    let tile = s.load_all(x);
    let sum = s.reduce(ReduceOp::Add, tile, axis);
    let index = s.whole(y);
    s.store(sum, y, index);
    let body = s.close();
    s.stmt(StmtKind::For { var, start, end, step: 1, tickets: None, body });
    let kernel = s.finish();
    let device = expand(&kernel).unwrap();
    let count = shape.iter().product::<u32>() as usize;
    let values = floats(count);
    let out = kept.iter().product::<u32>() as usize;
    let mut machine = Machine::new(&device, vec![values.clone(), nothing(out)]);
    machine.run();
    let want = folded(&kernel.values[tile].distribution, axis, |at| {
        let flat = at.iter().zip(shape).fold(0, |n, (c, e)| n * e + c);
        values[flat as usize].float()
    });
    for (got, want) in machine.buffers[1].iter().zip(&want) {
        assert_eq!(got.float().to_bits(), want.to_bits(), "{shape:?} axis {axis} warps {warps}");
    }
    assert!(machine.stores[1].iter().all(|&n| n == rounds as u32));
}

#[test]
fn sums_over_any_axis_have_the_order_of_the_distribution() {
    for (shape, axis, warps) in [
        (&[4096][..], 0, 4),
        (&[7 * 256 * 2], 0, 7),
        (&[8, 512], 1, 4),
        (&[8, 512], 0, 4),
        (&[64, 3, 32], 0, 8),
        (&[64, 3, 32], 1, 8),
        (&[5, 24], 0, 3),
        (&[2, 40], 1, 2),
    ] {
        check_sum(shape, axis, warps, 2);
    }
}

#[test]
fn argmax_takes_the_lower_index_at_every_level() {
    let mut s = Sample::new(4, 1);
    let x = s.input("x", DType::F32, &[3, 1024]);
    let (v, i) = (s.output("v", DType::F32, &[3]), s.output("i", DType::I32, &[3]));
    let tile = s.load_all(x);
    let (value, index) = s.argmax(tile, 1);
    let at = s.whole(v);
    s.store(value, v, at);
    let at = s.whole(i);
    s.store(index, i, at);
    let kernel = s.finish();
    let (device, notes) = super::expand_noted(&kernel).unwrap();
    assert_eq!(notes.exchanges.len(), 1, "value and index travel together");
    let is_shuffle = |stmt: &DeviceStmt| matches!(stmt.op, DeviceOp::Shuffle { .. });
    assert!(!device.body.iter().any(is_shuffle), "all lanes of a warp fold at once");
    let mut values = floats(3 * 1024);
    for at in [77, 78, 400, 1000] {
        values[at] = Word::Float(1e6);
    }
    values[1024..2048].fill(Word::Float(f32::NAN));
    let top = |row: usize, values: &[Word]| {
        let row = values[row * 1024..(row + 1) * 1024].iter().map(|v| v.float());
        row.enumerate().fold(
            (f32::NEG_INFINITY, 0),
            |(best, at), (i, v)| {
                if v > best { (v, i) } else { (best, at) }
            },
        )
    };
    let want = [(1e6, 77), (f32::NEG_INFINITY, 0), top(2, &values)];
    let mut machine = Machine::new(&device, vec![values, nothing(3), nothing(3)]);
    machine.run();
    for (row, (value, index)) in want.into_iter().enumerate() {
        assert_eq!(machine.buffers[1][row], Word::Float(value));
        assert_eq!(machine.buffers[2][row], Word::Int(index as i64));
    }
}

#[test]
fn a_spread_contraction_adds_the_running_value_last() {
    let mut s = Sample::new(2, 1);
    let (w, x) = (s.input("w", DType::F32, &[8, 512]), s.input("x", DType::F32, &[512]));
    let (a, y) = (s.input("a", DType::F32, &[8]), s.output("y", DType::F32, &[8]));
    let (wt, xt, acc) = (s.load_all(w), s.load_all(x), s.load_all(a));
    let sum = s.contract("r k, k -> r", wt, xt, Some(acc));
    let index = s.whole(y);
    s.store(sum, y, index);
    let kernel = s.finish();
    let device = expand(&kernel).unwrap();
    let (w, x, a) = (floats(8 * 512), floats(512), floats(8));
    let d = &kernel.values[wt].distribution;
    let map = d.axes[1];
    assert!(map.lanes.extent == 32 && map.warps.extent == 2);
    let mut machine = Machine::new(&device, vec![w.clone(), x.clone(), a.clone(), nothing(8)]);
    machine.run();
    for row in 0..8 {
        let thread = |warp: u32, lane: u32| {
            (0..map.registers()).fold(0.0f32, |sum, local| {
                let k = map.coordinate(warp, lane, local) as usize;
                w[row * 512 + k].float().mul_add(x[k].float(), sum)
            })
        };
        let warp = |warp: u32| {
            let mut lanes: Vec<f32> = (0..32).map(|lane| thread(warp, lane)).collect();
            while lanes.len() > 1 {
                lanes = lanes.chunks(2).map(|pair| pair[0] + pair[1]).collect();
            }
            lanes[0]
        };
        let want = a[row].float() + (warp(0) + warp(1));
        assert_eq!(machine.buffers[3][row].float().to_bits(), want.to_bits());
    }
}

#[test]
fn relayouts_move_every_element_and_wait_for_their_readers() {
    let mut s = Sample::new(4, 1);
    let x = s.input("x", DType::F32, &[64, 32]);
    let (y, z) = (s.output("y", DType::F32, &[64, 32]), s.output("z", DType::F32, &[32, 64]));
    let tile = s.load_all(x);
    let transposed = vec![
        ViewAxis { extent: Extent::Const(64), digits: vec![ViewDigit { extent: 64, stride: 1 }] },
        ViewAxis { extent: Extent::Const(32), digits: vec![ViewDigit { extent: 32, stride: 64 }] },
    ];
    for _ in 0..3 {
        let moved = s.def(DType::F32, &[64, 32], Op::Relayout { x: tile });
        let index = vec![s.full(64), s.full(32)];
        let access = s.access(z, transposed.clone(), index);
        s.stmt(StmtKind::Store {
            value: moved,
            access,
            update: None,
            cache: CachePolicy::default(),
        });
    }
    let index = s.whole(y);
    s.store(tile, y, index);
    let kernel = s.finish();
    let device = expand(&kernel).unwrap();
    let values = floats(64 * 32);
    let mut machine = Machine::new(&device, vec![values.clone(), nothing(2048), nothing(2048)]);
    machine.run();
    assert_eq!(machine.buffers[1], values);
    for row in 0..64 {
        for column in 0..32 {
            assert_eq!(machine.buffers[2][column * 64 + row], values[row * 32 + column]);
        }
    }
    // Two regions take turns, so three moves need three barriers.
    assert_eq!(machine.barriers, 3);
}

#[test]
fn absent_elements_are_not_touched() {
    for bound in [0, 1, 7, 8, 16, 30, 32] {
        let mut s = Sample::new(1, 1);
        let n = s.param("n", kernel_abi::Access::Scalar, DType::I32, &[]);
        let x = s.input("x", DType::F32, &[32]);
        let (y, m) = (s.output("y", DType::F32, &[32]), s.output("m", DType::F32, &[32]));
        let n_value = s.def(DType::I32, &[], Op::ScalarParam(n));
        let four = s.int(4);
        let quads = s.binary(BinaryOp::Div, n_value, four);
        let quads = s.binary(BinaryOp::Mul, quads, four);
        let zero = s.int(0);
        let minus = s.float(-1.0);
        let load = |s: &mut Sample, until| {
            let index = vec![AxisIndex::Range { start: zero, len: 32, until: Some(until) }];
            let axes = s.axes(x);
            s.load_as(x, axes, index, Some(minus))
        };
        let tile = load(&mut s, n_value);
        let index = vec![AxisIndex::Range { start: zero, len: 32, until: Some(n_value) }];
        s.store(tile, y, index);
        let tile = load(&mut s, quads);
        let index = s.whole(m);
        s.store(tile, m, index);
        let mut kernel = s.build();
        kernel.params[n].contract =
            Some(Contract { lo: 0, hi: ContractBound::Const(33), distinct: None });
        crate::infer::distribute(&mut kernel).unwrap();
        let device = expand(&kernel).unwrap();
        // A bound that is a multiple of four cuts no vector of four; any other does.
        assert_eq!(load_widths(&device), [1, 1, 1, 1, 4]);
        let values = floats(32);
        let x_buffer = values[..bound].to_vec();
        let mut machine = Machine::new(&device, vec![vec![], x_buffer, nothing(32), nothing(32)]);
        machine.scalars.insert(n, Word::Int(bound as i64));
        machine.run();
        for i in 0..32 {
            assert_eq!(machine.stores[2][i], u32::from(i < bound));
            let want = if i < bound / 4 * 4 { values[i] } else { Word::Float(-1.0) };
            assert_eq!(machine.buffers[3][i], want);
        }
    }
}

#[test]
fn gathered_rows_follow_their_index() {
    let mut s = Sample::new(2, 1);
    let table = s.input("table", DType::F32, &[10, 64]);
    let ids = s.input("ids", DType::I32, &[6]);
    let out = s.output("out", DType::F32, &[6, 64]);
    let rows = s.load_all(ids);
    let other = s.float(0.5);
    let index = vec![AxisIndex::Gather(rows), s.full(64)];
    let axes = s.axes(table);
    let tile = s.load_as(table, axes.clone(), index, Some(other));
    let index = s.whole(out);
    s.store(tile, out, index);
    let index = vec![AxisIndex::Gather(rows), s.full(64)];
    let what = PrefetchRange::Tile(s.access(table, axes, index));
    s.stmt(StmtKind::Prefetch { what, evict: None });
    let device = expand(&s.finish()).unwrap();
    let picks = [3, -1, 9, 0, 3, -7];
    let values = floats(640);
    let ids = picks.iter().map(|&i| Word::Int(i)).collect();
    let mut machine = Machine::new(&device, vec![values.clone(), ids, nothing(384)]);
    machine.run();
    for (row, &pick) in picks.iter().enumerate() {
        for column in 0..64 {
            let want = match usize::try_from(pick) {
                Ok(pick) => values[pick * 64 + column],
                Err(_) => Word::Float(0.5),
            };
            assert_eq!(machine.buffers[2][row * 64 + column], want);
        }
    }
    let mut lines: Vec<i64> = machine.prefetched.iter().map(|&(_, at)| at).collect();
    lines.sort_unstable();
    assert_eq!(lines, [0, 32, 192, 192, 224, 224, 576, 608]);
}

#[test]
fn prefetches_name_each_line_once() {
    for (start, end) in [(0i64, 1000i64), (5, 6), (64, 64), (100, 4100), (33, 9000)] {
        let mut s = Sample::new(2, 1);
        let w = s.input("w", DType::F32, &[10_000]);
        let limits: Vec<_> =
            ["a", "b"].map(|n| s.param(n, kernel_abi::Access::Scalar, DType::I32, &[])).into();
        let values: Vec<_> =
            limits.iter().map(|&p| s.def(DType::I32, &[], Op::ScalarParam(p))).collect();
        let what = PrefetchRange::Elements { param: w, start: values[0], end: values[1] };
        s.stmt(StmtKind::Prefetch { what, evict: None });
        let device = expand(&s.finish()).unwrap();
        let mut machine = Machine::new(&device, vec![ints(10_000), vec![], vec![]]);
        machine.scalars.insert(limits[0], Word::Int(start));
        machine.scalars.insert(limits[1], Word::Int(end));
        machine.run();
        let mut lines: Vec<i64> = machine.prefetched.iter().map(|&(_, at)| at / 32).collect();
        lines.sort_unstable();
        let want: Vec<i64> =
            if start < end { (start / 32..=(end - 1) / 32).collect() } else { vec![] };
        assert_eq!(lines, want);
    }
    // A tile of 5 rows of 100 elements that start off the line.
    let mut s = Sample::new(2, 1);
    let w = s.input("w", DType::F32, &[5, 160]);
    let start = s.int(30);
    let index = vec![s.full(5), s.range(start, 100)];
    let axes = s.axes(w);
    let what = PrefetchRange::Tile(s.access(w, axes, index));
    s.stmt(StmtKind::Prefetch { what, evict: None });
    let device = expand(&s.finish()).unwrap();
    let mut machine = Machine::new(&device, vec![ints(800)]);
    machine.run();
    let mut lines: Vec<i64> = machine.prefetched.iter().map(|&(_, at)| at / 32).collect();
    lines.sort_unstable();
    let row = |r: i64| (r * 5)..=(r * 5 + 4);
    assert_eq!(lines, (0..5).flat_map(row).collect::<Vec<_>>());
}

#[test]
fn loops_and_choices_keep_variables_and_rings() {
    let mut s = Sample::new(1, 1);
    let n = s.param("n", kernel_abi::Access::Scalar, DType::I32, &[]);
    let x = s.input("x", DType::F32, &[16, 32]);
    let y = s.output("y", DType::F32, &[32]);
    let acc = s.var("acc", DType::F32, &[32], 1);
    let count = s.def(DType::I32, &[], Op::ScalarParam(n));
    let zero = s.float(0.0);
    let tile = s.def(DType::F32, &[32], Op::Splat { x: zero });
    s.set(acc, 0, tile);
    let (start, three) = (s.int(0), s.int(3));
    let var = s.value(DType::I32, &[]);
    s.open();
    let index = vec![AxisIndex::At(var), s.full(32)];
    let row = s.load(x, index);
    let running = s.read(acc, 0);
    let late = s.compare(CompareOp::Ge, var, three);
    s.open();
    let sum = s.binary(BinaryOp::Add, running, row);
    s.set(acc, 0, sum);
    let then_body = s.close();
    s.open();
    let difference = s.binary(BinaryOp::Sub, running, row);
    s.set(acc, 0, difference);
    let else_body = s.close();
    s.stmt(StmtKind::If { cond: late, then_body, else_body });
    let body = s.close();
    s.stmt(StmtKind::For { var, start, end: count, step: 2, tickets: None, body });
    let total = s.read(acc, 0);
    let index = s.whole(y);
    s.store(total, y, index);
    let kernel = s.finish();
    let device = expand(&kernel).unwrap();
    assert_eq!(device.slots.len(), 1);
    assert_eq!(device.slots[SlotId::new(0)].name, "acc");
    let values = floats(16 * 32);
    for rounds in [0i64, 1, 5, 16] {
        let mut machine = Machine::new(&device, vec![vec![], values.clone(), nothing(32)]);
        machine.scalars.insert(n, Word::Int(rounds));
        machine.run();
        for column in 0..32 {
            let mut want = 0.0f32;
            for row in (0..rounds as usize).step_by(2) {
                let x = values[row * 32 + column].float();
                want = if row >= 3 { want + x } else { want - x };
            }
            assert_eq!(machine.buffers[2][column].float().to_bits(), want.to_bits());
        }
    }
}

#[test]
fn every_operation_has_its_own_place_and_its_side_of_the_wait() {
    use crate::device::{OpRole, WaitOrder};
    let kernel = sample::gemv(64, 2048, 8, 512, 2);
    let device = expand(&kernel).unwrap();
    let mut spans: Vec<_> = device.locs.iter().skip(1).map(|loc| loc.span).collect();
    assert_eq!(spans.len(), kernel.body.len());
    spans.sort();
    spans.dedup();
    assert_eq!(spans.len(), kernel.body.len());
    let orders = |index: usize| -> Vec<WaitOrder> {
        let roles = device.locs.iter().filter_map(move |loc| match loc.role {
            OpRole::Load { param, order } | OpRole::Store { param, order } => {
                (param.index() == index).then_some(order)
            }
            _ => None,
        });
        roles.collect()
    };
    use WaitOrder::{After, Before};
    assert_eq!(orders(0), [Before, Before, After, After]);
    assert_eq!(orders(1), [After; 4]);
    assert_eq!(orders(2), [After]);
}

#[test]
fn shared_memory_beyond_the_target_is_refused() {
    let mut s = Sample::new(16, 1);
    let x = s.input("x", DType::F32, &[64, 1024]);
    let y = s.output("y", DType::F32, &[64, 1024]);
    let tile = s.load_all(x);
    let var = s.var("rows", DType::F32, &[64, 1024], 1);
    let axis = |axis| vec![crate::kernel::SpreadAxis { axis, factor: None }];
    s.kernel.vars[var].spread =
        Some(crate::kernel::Spread { warp: axis(0), lane: axis(1), ..Default::default() });
    let moved = s.def(DType::F32, &[64, 1024], Op::Relayout { x: tile });
    s.set(var, 0, moved);
    let back = s.read(var, 0);
    let index = s.whole(y);
    s.store(back, y, index);
    let kernel = s.finish();
    let codes: Vec<_> =
        expand(&kernel).unwrap_err().iter().map(|d| d.code.name().to_owned()).collect();
    assert_eq!(codes, ["E0503"]);
}

#[test]
fn a_contraction_that_would_be_written_out_too_long_is_refused() {
    let mut s = Sample::new(1, 1);
    let (x, w) = (s.input("x", DType::F32, &[1, 513]), s.input("w", DType::F32, &[1, 1023]));
    let y = s.output("y", DType::F32, &[1]);
    let (a, b) = (s.load_all(x), s.load_all(w));
    let sum = s.contract("i a, i b -> i", a, b, None);
    let index = s.whole(y);
    s.store(sum, y, index);
    let found = expand(&s.finish()).unwrap_err();
    assert_eq!(found.iter().map(|d| d.code.name()).collect::<Vec<_>>(), ["E0219"]);
}

#[test]
fn empty_tiles_reduce_to_the_identity() {
    let mut s = Sample::new(1, 1);
    let x = s.input("x", DType::F32, &[0, 4]);
    let y = s.output("y", DType::F32, &[4]);
    let tile = s.load_all(x);
    let most = s.reduce(ReduceOp::Max, tile, 0);
    let index = s.whole(y);
    s.store(most, y, index);
    let device = expand(&s.finish()).unwrap();
    let mut machine = Machine::new(&device, vec![vec![], nothing(4)]);
    machine.run();
    assert_eq!(machine.buffers[1], [Word::Float(f32::NEG_INFINITY); 4]);
}

#[test]
fn iota_counts_along_its_axis_wherever_the_elements_are() {
    let mut s = Sample::new(2, 4);
    let y = s.output("y", DType::I32, &[4, 96]);
    let (count, cta) = (s.iota(96), s.cta());
    let sum = s.binary(BinaryOp::Add, count, cta);
    let index = vec![AxisIndex::At(cta), s.full(96)];
    s.store(sum, y, index);
    let device = expand(&s.finish()).unwrap();
    let mut machine = Machine::new(&device, vec![ints(4 * 96)]);
    machine.cta = 3;
    machine.run();
    let want: Vec<Word> = (3..99).map(Word::Int).collect();
    assert_eq!(machine.buffers[0][3 * 96..], want);
}

/// Loads a tile of the given shape and stores it under its own coordinates.
fn copy_kernel(shape: &[u32], dtype: DType, warps: u32) -> Kernel {
    let mut s = Sample::new(warps, 1);
    let (x, y) = (s.input("x", dtype, shape), s.output("y", dtype, shape));
    let tile = s.load_all(x);
    let index = s.whole(y);
    s.store(tile, y, index);
    s.build()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn loads_cover_each_element_once_a_replica_and_stores_once(
        shape in proptest::collection::vec(
            prop_oneof![Just(1u32), Just(2), Just(3), Just(4), Just(7), Just(8), Just(16), Just(24)],
            1..4,
        ),
        dtype in prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::U8)],
        warps in prop_oneof![Just(1u32), Just(2), Just(3), Just(4)],
    ) {
        let mut kernel = copy_kernel(&shape, dtype, warps);
        if let Err(found) = crate::infer::distribute(&mut kernel) {
            // Extents that threads cannot share leave more to each than its registers hold.
            prop_assert!(found.iter().all(|one| one.code == Code::E0503), "{found:?}");
            return Ok(());
        }
        let device = expand(&kernel).unwrap();
        let count = shape.iter().product::<u32>() as usize;
        let mut machine = Machine::new(&device, vec![ints(count), ints(count)]);
        machine.buffers[1].fill(Word::Int(-1));
        machine.run();
        // The right values in the right places, each stored by one thread: so the registers of the replicas
        // that store cover the tile exactly once.
        prop_assert_eq!(&machine.buffers[1], &ints(count));
        prop_assert!(machine.stores[1].iter().all(|&n| n == 1));
    }

    #[test]
    fn addresses_of_views_with_digits_are_split_right(
        inner in prop_oneof![Just(2u32), Just(4), Just(8)],
        outer in 2u32..6,
        start in 0i64..8,
        len in 1u32..8,
    ) {
        // A view whose only axis runs over (t r) with the digits far apart: position p is at
        // (p / inner) * 100 + p % inner.
        let extent = inner * outer;
        prop_assume!(start as u32 + len <= extent);
        let mut s = Sample::new(1, 1);
        let first = s.param("first", kernel_abi::Access::Scalar, DType::I32, &[]);
        let (x, y) = (s.input("x", DType::F32, &[outer * 100]), s.output("y", DType::F32, &[len]));
        let digits = vec![
            ViewDigit { extent: outer, stride: 100 },
            ViewDigit { extent: inner, stride: 1 },
        ];
        let axes = vec![ViewAxis { extent: Extent::Const(extent), digits }];
        let constant = s.int(start);
        let run_time = s.def(DType::I32, &[], Op::ScalarParam(first));
        let mut tiles = Vec::new();
        for at in [constant, run_time] {
            let index = vec![s.range(at, len)];
            tiles.push(s.load_as(x, axes.clone(), index, None));
        }
        let difference = s.binary(BinaryOp::Sub, tiles[0], tiles[1]);
        let zero = s.def(DType::F32, &[], Op::Const(Literal::Float(0.0)));
        let same = s.compare(CompareOp::Eq, difference, zero);
        let one = s.float(1e9);
        let checked = s.def(DType::F32, &[len], Op::Select { cond: same, a: tiles[0], b: one });
        let index = s.whole(y);
        s.store(checked, y, index);
        let mut kernel = s.build();
        kernel.params[first].contract =
            Some(Contract { lo: 0, hi: ContractBound::Const(8), distinct: None });
        crate::infer::distribute(&mut kernel).unwrap();
        let device = expand(&kernel).unwrap();
        let values = floats((outer * 100) as usize);
        let mut machine = Machine::new(&device, vec![vec![], values.clone(), nothing(len as usize)]);
        machine.scalars.insert(first, Word::Int(start));
        machine.run();
        for i in 0..len as usize {
            let p = start as usize + i;
            let at = p / inner as usize * 100 + p % inner as usize;
            prop_assert_eq!(machine.buffers[2][i], values[at]);
        }
    }
}
