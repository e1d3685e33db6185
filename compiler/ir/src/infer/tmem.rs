//! The maps of tiles that are loaded from tensor memory or stored there. Of 128 rows each thread has one, since a warp reaches 32 rows
//! alone. Of 64 rows a warp reaches 16, and its threads share them as they share sums of a warpgroup. Warps beyond the
//! first four share the columns.

use kernel_dsl::diag::{Code, Diagnostic};

use super::classes::{Classes, Tile};
use crate::distribution::{AxisMap, Digit, LANES};
use crate::kernel::{Kernel, Stmt, StmtKind, TENSOR_WARPS, Tensor, TensorAtom};

/// Elements of a row that are kept together.
const VECTOR: u32 = 4;

/// Gives maps to the classes of all tiles that are loaded from tensor memory or stored there.
pub(super) fn fixed(
    kernel: &Kernel,
    classes: &Classes,
    maps: &mut [Option<AxisMap>],
    findings: &mut Vec<Diagnostic>,
) {
    let mut found = Vec::new();
    collect(&kernel.body, &mut found);
    for (stmt, tile) in found {
        let (span, warps) = match tile {
            Tile::Var(var) => (kernel.vars[var].span, kernel.vars[var].distribution.warps),
            Tile::Value(value) => (stmt.span, kernel.values[value].distribution.warps),
        };
        let shape = tile.shape(kernel);
        let axes = match tile {
            Tile::Var(_) if is_folded(kernel, stmt) => folded(shape, warps),
            Tile::Var(_) => rows(shape, warps),
            // Two elements of a thread are a column.
            Tile::Value(_) => rows(shape, warps).filter(|[_, map]| map.registers() % 2 == 0),
        };
        let Some(axes) = axes else {
            findings.push(
                Diagnostic::error(Code::E0310, "warps that do not share these columns")
                    .label(
                        stmt.span,
                        "four warps reach all rows, and more of them share the columns evenly",
                    )
                    .secondary(span, "the tile"),
            );
            continue;
        };
        for (axis, map) in classes.of_tile(kernel, tile).into_iter().zip(axes) {
            let Some(class) = axis else { continue };
            if classes.is_cut(class) && (map.lanes.extent > 1 || map.warps.extent > 1) {
                findings.push(
                    Diagnostic::error(Code::E0310, "a part of rows or columns that threads share")
                        .label(stmt.span, "which of them a thread has is fixed, and a slice or `concat` cuts them")
                        .secondary(span, "the tile")
                        .help("write `relayout(…)` where it is cut, or load the parts apart"),
                );
                break;
            }
            match maps[class] {
                None => maps[class] = Some(map),
                Some(known) if known == map => {}
                Some(_) => {
                    findings.push(
                        Diagnostic::error(
                            Code::E0310,
                            "a tile that two operations want in different layouts",
                        )
                        .label(stmt.span, "which rows a thread has of tensor memory is fixed")
                        .secondary(span, "the tile")
                        .help("write `relayout(…)` where it meets the other tile"),
                    );
                    break;
                }
            }
        }
    }
}

/// How warps share rows and columns; nothing where they cannot.
pub(crate) fn rows(shape: &[u32], warps: u32) -> Option<[AxisMap; 2]> {
    let &[rows, columns] = shape else { return None };
    let groups = warps / TENSOR_WARPS;
    if warps < TENSOR_WARPS && rows == warps * LANES && columns > 0 {
        return Some(part(warps, columns));
    }
    if groups == 0 || !warps.is_multiple_of(TENSOR_WARPS) {
        return None;
    }
    if columns == 0 || !columns.is_multiple_of(groups) {
        return None;
    }
    let own = columns / groups;
    match rows {
        TensorAtom::ROWS => {}
        TensorAtom::HALF => return half(own, groups),
        _ => return None,
    }
    let vec = if own.is_multiple_of(VECTOR) { VECTOR } else { 1 };
    let lanes = Digit { extent: LANES, stride: 1 };
    let row = AxisMap {
        vec: 1,
        lanes,
        inner: 1,
        warps: Digit { extent: TENSOR_WARPS, stride: 1 },
        rest: 1,
    };
    let (inner, shared, rest) = match groups {
        1 => (1, Digit::NONE, own / vec),
        extent => (own / vec, Digit { extent, stride: TENSOR_WARPS }, 1),
    };
    Some([row, AxisMap { vec, lanes: Digit::NONE, inner, warps: shared, rest }])
}

/// Rows that fewer than four warps have, 32 each.
fn part(warps: u32, columns: u32) -> [AxisMap; 2] {
    let vec = if columns.is_multiple_of(VECTOR) { VECTOR } else { 1 };
    let lanes = Digit { extent: LANES, stride: 1 };
    let warps = if warps == 1 { Digit::NONE } else { Digit { extent: warps, stride: 1 } };
    let row = AxisMap { vec: 1, lanes, inner: 1, warps, rest: 1 };
    let (none, rest) = (Digit::NONE, columns / vec);
    [row, AxisMap { vec, lanes: none, inner: 1, warps: none, rest }]
}

/// The same of 64 rows of which the second half of the columns lies below the first: two of four warps have each half.
fn folded(shape: &[u32], warps: u32) -> Option<[AxisMap; 2]> {
    let &[TensorAtom::HALF, columns] = shape else { return None };
    if warps != TENSOR_WARPS || columns == 0 || !columns.is_multiple_of(2) {
        return None;
    }
    let own = columns / 2;
    let vec = if own.is_multiple_of(VECTOR) { VECTOR } else { 1 };
    let warps = [1, 2].map(|stride| Digit { extent: 2, stride });
    let lanes = Digit { extent: LANES, stride: 1 };
    let row = AxisMap { vec: 1, lanes, inner: 1, warps: warps[0], rest: 1 };
    Some([row, AxisMap { vec, lanes: Digit::NONE, inner: own / vec, warps: warps[1], rest: 1 }])
}

/// The same of 64 rows, by the columns of each warp.
fn half(own: u32, groups: u32) -> Option<[AxisMap; 2]> {
    if !own.is_multiple_of(8) {
        return None;
    }
    let row = AxisMap {
        vec: 1,
        lanes: Digit { extent: 8, stride: 4 },
        inner: 2,
        warps: Digit { extent: TENSOR_WARPS, stride: 1 },
        rest: 1,
    };
    let (inner, shared, rest) = match groups {
        1 => (1, Digit::NONE, own / 8),
        extent => (own / 8, Digit { extent, stride: TENSOR_WARPS }, 1),
    };
    let lanes = Digit { extent: 4, stride: 1 };
    Some([row, AxisMap { vec: 2, lanes, inner, warps: shared, rest }])
}

fn is_folded(kernel: &Kernel, stmt: &Stmt) -> bool {
    let StmtKind::Tensor(Tensor::Load { access, .. }) = &stmt.kind else { return false };
    access.storage.tile().is_some_and(|(tile, _)| kernel.smem[tile].folded)
}

fn collect<'k>(stmts: &'k [Stmt], found: &mut Vec<(&'k Stmt, Tile)>) {
    for stmt in stmts {
        if let StmtKind::Tensor(Tensor::Load { var, .. }) = &stmt.kind {
            found.push((stmt, Tile::Var(*var)));
        }
        if let StmtKind::Tensor(Tensor::Store { value, .. }) = &stmt.kind {
            found.push((stmt, Tile::Value(*value)));
        }
        for body in stmt.kind.bodies() {
            collect(body, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Distribution;

    #[test]
    fn each_thread_has_consecutive_columns_of_one_row() {
        for (columns, warps) in [(16, 4), (2, 4), (64, 8), (24, 12)] {
            let axes = rows(&[128, columns], warps).unwrap();
            let spread = Distribution { warps, axes: axes.to_vec() };
            assert_eq!(spread.shape(), [128, columns]);
            let own = columns / (warps / 4);
            for (warp, lane) in [(0, 0), (3, 7), (warps - 1, 31)] {
                for register in 0..spread.registers() {
                    let at = spread.coordinates(warp, lane, register);
                    assert_eq!(at, [32 * (warp % 4) + lane, warp / 4 * own + register]);
                }
            }
        }
        assert!(rows(&[128, 16], 6).is_none() && rows(&[128, 3], 8).is_none());
    }

    #[test]
    fn of_some_rows_each_warp_has_32() {
        for (columns, warps) in [(16, 1), (6, 2)] {
            let axes = rows(&[32 * warps, columns], warps).unwrap();
            let spread = Distribution { warps, axes: axes.to_vec() };
            assert_eq!(spread.shape(), [32 * warps, columns]);
            for register in 0..spread.registers() {
                let at = spread.coordinates(warps - 1, 5, register);
                assert_eq!(at, [32 * (warps - 1) + 5, register]);
            }
        }
        assert!(rows(&[64, 16], 1).is_none() && rows(&[128, 16], 2).is_none());
    }

    #[test]
    fn of_folded_rows_two_warps_have_each_half_of_the_columns() {
        for columns in [32, 96, 256] {
            let axes = folded(&[64, columns], 4).unwrap();
            let spread = Distribution { warps: 4, axes: axes.to_vec() };
            assert_eq!(spread.shape(), [64, columns]);
            for (warp, lane) in [(0, 0), (1, 31), (2, 7), (3, 31)] {
                for register in 0..spread.registers() {
                    let at = spread.coordinates(warp, lane, register);
                    assert_eq!(at, [32 * (warp % 2) + lane, warp / 2 * (columns / 2) + register]);
                }
            }
        }
        assert!(folded(&[64, 32], 8).is_none() && folded(&[128, 32], 4).is_none());
    }

    #[test]
    fn of_64_rows_each_warp_has_16() {
        for (columns, warps) in [(8, 4), (16, 4), (48, 8)] {
            let axes = rows(&[64, columns], warps).unwrap();
            let spread = Distribution { warps, axes: axes.to_vec() };
            assert_eq!(spread.shape(), [64, columns]);
            let own = columns / (warps / 4);
            for (warp, lane) in [(0, 0), (3, 7), (warps - 1, 31)] {
                for register in 0..spread.registers() {
                    let at = spread.coordinates(warp, lane, register);
                    let (half, pair, v) =
                        (register / (own / 4), register / 2 % (own / 8), register % 2);
                    let row = 16 * (warp % 4) + 8 * half + lane / 4;
                    assert_eq!(at, [row, warp / 4 * own + 8 * pair + 2 * (lane % 4) + v]);
                }
            }
        }
        assert!(rows(&[64, 12], 4).is_none() && rows(&[64, 8], 8).is_none());
    }
}
