//! The maps of sums of a warpgroup, decided before all others.
//!
//! In an atom of 64 rows, warp w of the four holds rows 16 w to 16 w + 15, lane `4 g + t` rows g and g + 8 of
//! them, and of each 8 columns the pair 2 t and 2 t + 1. Warpgroups share the atoms: first along m, then along n.

use kernel_dsl::diag::{Code, Diagnostic};

use super::classes::{Classes, Tile};
use crate::distribution::{AxisMap, Digit};
use crate::kernel::{Kernel, Stmt, StmtKind, ValueId, Warpgroup, WarpgroupMma, WgmmaAtom};

/// Gives maps to the classes of all sums of products of warpgroups.
pub(super) fn fixed(
    kernel: &Kernel,
    classes: &Classes,
    maps: &mut [Option<AxisMap>],
    findings: &mut Vec<Diagnostic>,
) {
    let mut found = Vec::new();
    collect(&kernel.body, &mut found);
    for (stmt, mma) in found {
        let warps = kernel.vars[mma.var].distribution.warps;
        let Some(axes) = sums(&kernel.vars[mma.var].shape, mma.atom.n, warps) else {
            let shape = &kernel.vars[mma.var].shape;
            findings.push(
                Diagnostic::error(Code::E0310, format!("{warps} warps do not share these sums"))
                    .label(
                        stmt.span,
                        format!("{shape:?} in atoms of {} by {}", WgmmaAtom::ROWS, mma.atom.n),
                    )
                    .secondary(kernel.vars[mma.var].span, "the sums")
                    .help("each warpgroup of four warps has whole atoms, all of them equally many"),
            );
            continue;
        };
        let left = mma.left_value().map(|value| (Tile::Value(value), left(kernel, value, axes[0])));
        for (tile, axes) in left.into_iter().chain([(Tile::Var(mma.var), axes)]) {
            for (axis, map) in classes.of_tile(kernel, tile).into_iter().zip(axes) {
                let Some(class) = axis else { continue };
                match maps[class] {
                    None => maps[class] = Some(map),
                    Some(known) if known == map => {}
                    Some(_) => {
                        findings.push(conflict(kernel, stmt, tile));
                        break;
                    }
                }
            }
        }
    }
}

/// How warps hold a left operand: its rows as those of the sums, all of k in each warp.
fn left(kernel: &Kernel, value: ValueId, rows: AxisMap) -> [AxisMap; 2] {
    let depth = kernel.values[value].shape.last().copied().unwrap_or(0);
    let lanes = Digit { extent: 4, stride: 1 };
    [rows, AxisMap { vec: 2, lanes, inner: 1, warps: Digit::NONE, rest: depth / 8 }]
}

/// How warps share sums; nothing where they cannot have whole atoms.
fn sums(shape: &[u32], n: u32, warps: u32) -> Option<[AxisMap; 2]> {
    let &[rows, columns] = shape else { return None };
    let whole = warps.is_multiple_of(WgmmaAtom::WARPS)
        && rows.is_multiple_of(WgmmaAtom::ROWS)
        && columns.is_multiple_of(n);
    if !whole || n == 0 || warps == 0 || rows == 0 || columns == 0 {
        return None;
    }
    let groups = warps / WgmmaAtom::WARPS;
    let (row_atoms, column_atoms) = (rows / WgmmaAtom::ROWS, columns / n);
    let along_rows =
        (1..=groups).rev().find(|&g| groups.is_multiple_of(g) && row_atoms.is_multiple_of(g))?;
    let along_columns = groups / along_rows;
    if !column_atoms.is_multiple_of(along_columns) {
        return None;
    }
    let row_warps = WgmmaAtom::WARPS * along_rows;
    let row_map = AxisMap {
        vec: 1,
        lanes: Digit { extent: 8, stride: 4 },
        inner: 2,
        warps: Digit { extent: row_warps, stride: 1 },
        rest: row_atoms / along_rows,
    };
    let (inner, column_warps) = match along_columns {
        1 => (1, Digit::NONE),
        extent => (n / 8, Digit { extent, stride: row_warps }),
    };
    let column_map = AxisMap {
        vec: 2,
        lanes: Digit { extent: 4, stride: 1 },
        inner,
        warps: column_warps,
        rest: columns / (8 * inner * column_warps.extent),
    };
    Some([row_map, column_map])
}

fn conflict(kernel: &Kernel, stmt: &Stmt, tile: Tile) -> Diagnostic {
    let (what, name) = match tile {
        Tile::Var(_) => ("sums that two products want", "the sums"),
        Tile::Value(_) => ("a left operand that two operations want", "the operand"),
    };
    Diagnostic::error(Code::E0310, format!("{what} in different layouts"))
        .label(stmt.span, "this product wants another layout than the one that is fixed already")
        .secondary(tile.span(kernel), name)
        .help("use atoms of one shape, and `relayout(…)` where the sums meet other tiles")
}

fn collect<'k>(stmts: &'k [Stmt], found: &mut Vec<(&'k Stmt, &'k WarpgroupMma)>) {
    for stmt in stmts {
        if let StmtKind::Warpgroup(Warpgroup::Mma(mma)) = &stmt.kind {
            found.push((stmt, mma));
        }
        for body in stmt.kind.bodies() {
            collect(body, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Distribution, LANES};

    #[test]
    fn each_warpgroup_has_whole_atoms_in_the_order_of_the_instruction() {
        for (shape, n, warps) in
            [([64, 16], 16, 4), ([128, 32], 16, 4), ([128, 8], 8, 8), ([64, 64], 16, 8)]
        {
            let axes = sums(&shape, n, warps).unwrap();
            let spread = Distribution { warps, axes: axes.to_vec() };
            assert_eq!(spread.shape(), shape);
            let mut seen = std::collections::BTreeSet::new();
            for warp in 0..warps {
                for lane in 0..LANES {
                    for register in 0..spread.registers() {
                        let at = spread.coordinates(warp, lane, register);
                        let locals = spread.locals(register);
                        assert_eq!(at[0] % 64, 16 * (warp % 4) + 8 * (locals[0] % 2) + lane / 4);
                        let pair = 2 * (lane % 4) + locals[1] % 2;
                        assert_eq!(at[1] % n, locals[1] / 2 % (n / 8) * 8 + pair);
                        assert!(seen.insert(at));
                    }
                }
            }
        }
        assert!(sums(&[64, 16], 16, 8).is_none() && sums(&[64, 16], 16, 6).is_none());
        assert!(sums(&[96, 16], 16, 4).is_none() && sums(&[64, 24], 16, 4).is_none());
    }
}
