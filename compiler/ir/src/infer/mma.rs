//! The maps that `via mma_sync` wants, decided before all others.
//!
//! In the atom m16n8k16 lane `4 g + t` holds rows g and g + 8, columns 2t and 2t + 1 of the sums, column g of
//! the right operand, and pairs of k by t. So the fastest letter of m runs along the lanes of g, the fastest of
//! k along those of t; the fastest letter of n runs along t in the result and along g in the right operand.
//! Where a letter has fewer positions than the atom, lanes hold copies: the atom computes the same sums again,
//! which is the padding. Warps run along batch letters, then n, then m, or as `spread(warp: …)` says.

use std::sync::Arc;

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::access::{contiguous_axis, tile_axes};
use super::assign::{VECTOR_BYTES, largest_free};
use super::classes::{Classes, Tile};
use crate::distribution::{AxisMap, Digit};
use crate::kernel::{ContractSpec, Kernel, Op, Stmt, StmtKind, Storage, ValueId};
use crate::ops::mma::{DEPTH, DEPTH_LANES, Roles};

/// The part of the lane index that rows run along.
const ROW_LANES: u32 = 4;

/// Gives maps to the classes of all contractions on the tensor core.
pub(super) fn fixed(
    kernel: &Kernel,
    classes: &Classes,
    maps: &mut [Option<AxisMap>],
    findings: &mut Vec<Diagnostic>,
) {
    let mut found = Vec::new();
    collect(&kernel.body, &mut found);
    for (result, spec, a, b) in found {
        let Ok(roles) = Roles::of(spec) else { continue };
        let mut one = Fixer { kernel, classes, maps, findings, result, spec, a, b };
        one.fix(&roles);
    }
    if findings.is_empty() {
        overlaps(kernel, classes, maps, findings);
    }
}

/// Tiles in which two axes would run along the same threads.
fn overlaps(
    kernel: &Kernel,
    classes: &Classes,
    maps: &[Option<AxisMap>],
    findings: &mut Vec<Diagnostic>,
) {
    for &tile in &classes.tiles {
        let own: Vec<AxisMap> =
            classes.of_tile(kernel, tile).into_iter().flatten().filter_map(|c| maps[c]).collect();
        let meet = own.iter().enumerate().any(|(i, a)| {
            own[..i].iter().any(|b| !apart(a.lanes, b.lanes) || !apart(a.warps, b.warps))
        });
        if meet {
            findings.push(
                Diagnostic::error(
                    Code::E0310,
                    "two axes of this tile run along the same threads on the tensor core",
                )
                .label(tile.span(kernel), "both axes have the layout of an operand")
                .help("write `relayout(…)` for what goes to the product, or load the data a second time"),
            );
        }
    }
}

fn apart(a: Digit, b: Digit) -> bool {
    a.extent == 1
        || b.extent == 1
        || a.stride.is_multiple_of(b.stride * b.extent)
        || b.stride.is_multiple_of(a.stride * a.extent)
}

fn collect<'k>(stmts: &'k [Stmt], found: &mut Vec<(ValueId, &'k ContractSpec, ValueId, ValueId)>) {
    for stmt in stmts {
        if let StmtKind::Def { results, op: Op::Mma { spec, a, b, .. } } = &stmt.kind {
            found.extend(results.first().map(|&result| (result, spec, *a, *b)));
        }
        for body in stmt.kind.bodies() {
            collect(body, found);
        }
    }
}

struct Fixer<'a> {
    kernel: &'a Kernel,
    classes: &'a Classes,
    maps: &'a mut [Option<AxisMap>],
    findings: &'a mut Vec<Diagnostic>,
    result: ValueId,
    spec: &'a ContractSpec,
    a: ValueId,
    b: ValueId,
}

/// The greatest power of two up to `most` that divides an extent.
fn power(extent: u32, most: u32) -> u32 {
    (1 << extent.trailing_zeros().min(31)).min(most)
}

impl Fixer<'_> {
    /// The class and the extent of a letter's axis in a tile.
    fn axis(&self, value: ValueId, letters: &[Arc<str>], letter: &str) -> (Option<usize>, u32) {
        let Some(axis) = letters.iter().position(|own| **own == *letter) else { return (None, 1) };
        let classes = self.classes.of_tile(self.kernel, Tile::Value(value));
        (classes[axis], self.kernel.values[value].shape[axis])
    }

    fn left(&self, letter: &str) -> (Option<usize>, u32) {
        self.axis(self.a, &self.spec.a, letter)
    }

    fn right(&self, letter: &str) -> (Option<usize>, u32) {
        self.axis(self.b, &self.spec.b, letter)
    }

    fn out(&self, letter: &str) -> (Option<usize>, u32) {
        self.axis(self.result, &self.spec.out, letter)
    }

    /// The letter of a kind that lanes run along: the one with the most positions for them, the last of equals.
    fn fastest(&self, letters: &[Arc<str>], most: u32) -> Option<Arc<str>> {
        let extent = |l: &Arc<str>| self.left(l).1.max(self.right(l).1);
        letters.iter().max_by_key(|l| power(extent(l), most)).cloned()
    }

    fn fix(&mut self, roles: &Roles) {
        let row = self.fastest(&roles.m, 8);
        let column = self.fastest(&roles.n, 8);
        let warps = self.warps(roles, row.as_ref(), column.as_ref());
        for letter in &roles.batch {
            let (class, extent) = self.out(letter);
            self.set(class, whole(extent, digit(&warps, letter)), self.result);
        }
        for letter in &roles.m {
            let (class, extent) = self.out(letter);
            let lanes = if Some(letter) == row.as_ref() { power(extent, 8) } else { 1 };
            let lanes = some_digit(lanes, ROW_LANES);
            self.set(class, cut(1, lanes, digit(&warps, letter), extent), self.result);
        }
        for letter in &roles.n {
            let (out, extent) = self.out(letter);
            let (right, _) = self.right(letter);
            let warp = digit(&warps, letter);
            let along = if Some(letter) == column.as_ref() { power(extent, 8) } else { 1 };
            let vec = along.min(2);
            let own = cut(vec, some_digit(along / vec, 1), warp, extent);
            self.set(out, own, self.result);
            self.set(right, cut(1, some_digit(along, ROW_LANES), warp, extent), self.b);
        }
        self.depth(roles);
    }

    /// The maps of k.
    fn depth(&mut self, roles: &Roles) {
        let deep = |f: &Self, l: &Arc<str>| f.left(l).1.is_multiple_of(DEPTH as u32);
        let fast = roles.k.iter().rev().find(|l| deep(self, l)).cloned();
        for letter in &roles.k {
            let (class, extent) = self.left(letter);
            if Some(letter) != fast.as_ref() {
                self.set(class, AxisMap::local(extent), self.a);
                continue;
            }
            let known = class.and_then(|class| self.maps[class]);
            let map = known.filter(|map| map.lanes == DEPTH_LANES && map.vec.is_multiple_of(2));
            let map = map.unwrap_or_else(|| {
                let vec = self.vector(letter, extent);
                cut(vec, DEPTH_LANES, Digit::NONE, extent)
            });
            self.set(class, map, self.a);
        }
    }

    /// Neighbours along k in one thread: as many as lie together in a buffer of an operand, up to 16 bytes, else
    /// a pair.
    fn vector(&self, letter: &str, extent: u32) -> u32 {
        let class = self.left(letter).0;
        let widths = self.classes.memory.iter().filter(|used| !used.is_store).filter_map(|used| {
            let Storage::Buffer(param) = used.access.storage else { return None };
            let axes = tile_axes(&used.access);
            let axis = contiguous_axis(&axes)?;
            let own = self.classes.class(Tile::Value(used.value), axis);
            let bits = self.kernel.params[param].dtype.bits();
            let together = 1 << axes[axis].run.trailing_zeros();
            (own.is_some() && own == class).then(|| together.min(VECTOR_BYTES * 8 / bits.max(1)))
        });
        let mut vec = widths.min().unwrap_or(2).max(2);
        while vec > 2 && !extent.is_multiple_of(vec * DEPTH_LANES.extent) {
            vec /= 2;
        }
        vec
    }

    /// The part of the warp index that each letter gets.
    fn warps(
        &self,
        roles: &Roles,
        row: Option<&Arc<str>>,
        column: Option<&Arc<str>>,
    ) -> Vec<(Arc<str>, Digit)> {
        let mut given: Vec<(Arc<str>, Digit)> = Vec::new();
        let mut taken = Vec::new();
        for letter in &self.spec.out {
            if let Some(map) = self.out(letter).0.and_then(|class| self.maps[class]) {
                given.push((letter.clone(), map.warps));
                taken.push(map.warps);
            }
        }
        taken.retain(|digit: &Digit| digit.extent > 1);
        let mut order = self.named(roles);
        let rest = roles.batch.iter().chain(&roles.n).chain(&roles.m);
        order.extend(rest.map(|letter| (letter.clone(), None)));
        for (letter, factor) in order {
            if given.iter().any(|(known, _)| *known == letter) {
                continue;
            }
            let extent = self.out(&letter).1;
            let room = if Some(&letter) == row {
                let rows = extent / power(extent, 8);
                if rows.is_multiple_of(2) { rows / 2 } else { rows }
            } else if Some(&letter) == column {
                extent / power(extent, 8)
            } else if roles.batch.contains(&letter) {
                extent
            } else {
                1
            };
            let warps = self.kernel.values[self.result].distribution.warps;
            let fits = |x: u32| room.is_multiple_of(x) && factor.is_none_or(|f| f == x);
            let digit = largest_free(warps, &taken, fits);
            if let Some(digit) = digit {
                taken.push(digit);
                given.push((letter, digit));
            }
        }
        given
    }

    /// The letters that a `spread(warp: …)` of a tile with the same axes names.
    fn named(&self, roles: &Roles) -> Vec<(Arc<str>, Option<u32>)> {
        let mut order = Vec::new();
        for (id, var) in self.kernel.vars.iter_enumerated() {
            let Some(spread) = &var.spread else { continue };
            let own = self.classes.of_tile(self.kernel, Tile::Var(id));
            for entry in &spread.warp {
                let class = own.get(usize::from(entry.axis)).copied().flatten();
                let letters = roles.batch.iter().chain(&roles.n).chain(&roles.m);
                let letter =
                    letters.into_iter().find(|l| class.is_some() && self.out(l).0 == class);
                order.extend(letter.map(|letter| (letter.clone(), entry.factor)));
            }
        }
        order
    }

    fn set(&mut self, class: Option<usize>, map: AxisMap, tile: ValueId) {
        let Some(class) = class else { return };
        match self.maps[class] {
            None => self.maps[class] = Some(map),
            Some(known) if known == map => {}
            Some(_) => self.conflict(tile),
        }
    }

    fn conflict(&mut self, tile: ValueId) {
        let value = &self.kernel.values[tile];
        let span: Span = self.kernel.values[self.result].span;
        if self.findings.iter().any(|f| f.primary().is_some_and(|label| label.span == span)) {
            return;
        }
        let name = value.name.as_deref().unwrap_or("x");
        self.findings.push(
            Diagnostic::error(
                Code::E0310,
                "a tile that two tensor-core products want in different layouts",
            )
            .label(span, "this product wants another layout than the one that is fixed already")
            .secondary(value.span, "the tile")
            .help(format!(
                "write `relayout({name})` for one of them, or load the data a second time"
            )),
        );
    }
}

fn digit(given: &[(Arc<str>, Digit)], letter: &str) -> Digit {
    given.iter().find(|(own, _)| **own == *letter).map_or(Digit::NONE, |(_, digit)| *digit)
}

fn some_digit(extent: u32, stride: u32) -> Digit {
    if extent > 1 { Digit { extent, stride } } else { Digit::NONE }
}

fn whole(extent: u32, warps: Digit) -> AxisMap {
    cut(1, Digit::NONE, warps, extent)
}

fn cut(vec: u32, lanes: Digit, warps: Digit, extent: u32) -> AxisMap {
    AxisMap { vec, lanes, inner: 1, warps, rest: extent / (vec * lanes.extent * warps.extent) }
}
