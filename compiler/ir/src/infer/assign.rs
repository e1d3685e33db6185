//! Gives each class of axes its map.
//!
//! Tiles are taken from the largest on, those with `spread(...)` first, and each gives maps to those of its
//! classes that have none yet: vector elements along the axis that is contiguous in memory, then lanes
//! along it and on to the slower axes, then warps in the same order, and registers last. Digits of the
//! lane or warp index that belong to a class that meets this one anywhere are taken.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use kernel_dsl::diag::{Code, Diagnostic};

use super::access::{by_stride, contiguous_axis, contiguous_chain, tile_axes};
use super::classes::{Classes, Tile};
use crate::distribution::{AxisMap, Digit, LANES};
use crate::kernel::{Kernel, Spread, SpreadAxis};

/// Bytes of the widest load or store of one thread.
pub(super) const VECTOR_BYTES: u32 = 16;

/// The map of each class.
pub(super) fn maps(
    kernel: &Kernel,
    classes: &Classes,
) -> Result<Vec<Option<AxisMap>>, Vec<Diagnostic>> {
    let mut assigner = Assigner {
        kernel,
        classes,
        neighbours: classes.neighbours(kernel),
        vector_bits: narrowest_elements(kernel, classes),
        maps: vec![None; classes.count()],
        warps: kernel.launch.warps,
        findings: Vec::new(),
    };
    super::warpgroup::fixed(kernel, classes, &mut assigner.maps, &mut assigner.findings);
    super::tmem::fixed(kernel, classes, &mut assigner.maps, &mut assigner.findings);
    super::mma::fixed(kernel, classes, &mut assigner.maps, &mut assigner.findings);
    unused_atoms(kernel, classes, &mut assigner);
    for candidate in candidates(kernel, classes) {
        assigner.tile(&candidate);
    }
    if assigner.findings.is_empty() { Ok(assigner.maps) } else { Err(assigner.findings) }
}

/// Tiles that are declared for the tensor core and take part in no contraction on it.
fn unused_atoms(kernel: &Kernel, classes: &Classes, assigner: &mut Assigner<'_>) {
    for (id, var) in kernel.vars.iter_enumerated().filter(|(_, var)| var.via_mma) {
        let axes = classes.of_tile(kernel, Tile::Var(id));
        let fixed =
            |class: &Option<usize>| class.is_none_or(|class| assigner.maps[class].is_some());
        if !axes.iter().all(fixed) {
            assigner.findings.push(
                Diagnostic::error(
                    Code::E0310,
                    format!("`{}` holds no sums of the tensor core", var.name),
                )
                .label(var.span, "declared `via mma_sync`")
                .help("add to it: `acc += contract(…) via mma_sync;`, or remove `via`"),
            );
        }
    }
}

/// A tile with what decides about its axes.
struct Candidate<'k> {
    tile: Tile,
    /// Axes, fastest first.
    order: Vec<usize>,
    /// The axes that vectors run along, one after the other.
    contiguous: Vec<usize>,
    spread: Option<&'k Spread>,
}

/// All tiles in the order in which they decide.
fn candidates<'k>(kernel: &'k Kernel, classes: &Classes) -> Vec<Candidate<'k>> {
    let mut memory = BTreeMap::new();
    for used in &classes.memory {
        memory.entry(Tile::Value(used.value)).or_insert_with(|| tile_axes(&used.access));
    }
    let mut candidates: Vec<(_, Candidate<'k>)> = Vec::new();
    for (place, &tile) in classes.tiles.iter().enumerate() {
        let shape = tile.shape(kernel);
        let elements = shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)));
        let spread = match tile {
            Tile::Var(id) => kernel.vars[id].spread.as_ref(),
            Tile::Value(_) => None,
        };
        let axes = memory.get(&tile);
        let (order, contiguous) = match axes {
            Some(axes) => (by_stride(axes), contiguous_chain(axes)),
            None => {
                let last = shape.iter().rposition(|&e| e > 1);
                ((0..shape.len()).rev().collect(), last.into_iter().collect())
            }
        };
        let key = (spread.is_none(), Reverse(elements), axes.is_none(), place);
        candidates.push((key, Candidate { tile, order, contiguous, spread }));
    }
    candidates.sort_by_key(|(key, _)| *key);
    candidates.into_iter().map(|(_, candidate)| candidate).collect()
}

/// For each class the bits of the narrowest element that lies along it in memory.
fn narrowest_elements(kernel: &Kernel, classes: &Classes) -> BTreeMap<usize, u32> {
    let mut narrowest = BTreeMap::new();
    for used in &classes.memory {
        let bits = kernel.dtype_of(used.access.storage).bits();
        if let Some(axis) = contiguous_axis(&tile_axes(&used.access))
            && let Some(class) = classes.class(Tile::Value(used.value), axis)
        {
            let entry = narrowest.entry(class).or_insert(bits);
            *entry = bits.min(*entry);
        }
    }
    narrowest
}

/// The state of one axis while its map is made.
#[derive(Clone, Copy)]
struct Draft {
    /// Not yet spread.
    left: u32,
    vec: u32,
    lanes: Digit,
    warps: Digit,
}

/// Which digit of a draft is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Lanes,
    Warps,
}

struct Assigner<'a> {
    kernel: &'a Kernel,
    classes: &'a Classes,
    neighbours: Vec<Vec<usize>>,
    vector_bits: BTreeMap<usize, u32>,
    maps: Vec<Option<AxisMap>>,
    /// Warps that the tile at hand is spread over.
    warps: u32,
    findings: Vec<Diagnostic>,
}

impl Assigner<'_> {
    fn tile(&mut self, candidate: &Candidate<'_>) {
        let shape = candidate.tile.shape(self.kernel);
        self.warps = candidate.tile.warps(self.kernel);
        let classes = self.classes.of_tile(self.kernel, candidate.tile);
        let mut drafts: BTreeMap<usize, Draft> = BTreeMap::new();
        for (axis, class) in classes.iter().enumerate() {
            if class.is_some_and(|class| self.maps[class].is_none()) {
                let (lanes, warps) = (Digit::NONE, Digit::NONE);
                drafts.insert(axis, Draft { left: shape[axis], vec: 1, lanes, warps });
            }
        }
        self.vectors(candidate, &classes, &mut drafts);
        if let Some(spread) = candidate.spread {
            self.spread(candidate, spread, &classes, &mut drafts);
        }
        let named = |level: Level, axis: usize| {
            let spread = candidate.spread.map(|s| match level {
                Level::Lanes => &s.lane,
                Level::Warps => &s.warp,
            });
            spread.is_some_and(|axes| axes.iter().any(|a| usize::from(a.axis) == axis))
        };
        for level in [Level::Lanes, Level::Warps] {
            for &axis in &candidate.order {
                if drafts.contains_key(&axis) && !named(level, axis) {
                    let want = drafts[&axis].left;
                    let digit =
                        self.free_digit(level, &classes, &drafts, axis, |x| want.is_multiple_of(x));
                    give(&mut drafts, level, axis, digit.unwrap_or(Digit::NONE));
                }
            }
        }
        for (axis, draft) in drafts {
            if let Some(class) = classes[axis] {
                self.maps[class] = Some(AxisMap {
                    vec: draft.vec,
                    lanes: draft.lanes,
                    inner: 1,
                    warps: draft.warps,
                    rest: draft.left,
                });
            }
        }
    }

    /// Vector elements: as named, else 16 bytes along the contiguous axis.
    fn vectors(
        &mut self,
        candidate: &Candidate<'_>,
        classes: &[Option<usize>],
        drafts: &mut BTreeMap<usize, Draft>,
    ) {
        let named = candidate.spread.map_or(&[][..], |spread| &spread.vec);
        let most = (VECTOR_BYTES * 8 / self.element_bits(candidate, classes)).max(1);
        if named.is_empty() {
            let mut left = most;
            for axis in &candidate.contiguous {
                let Some(draft) = drafts.get_mut(axis) else { return };
                let width = left.min(1 << draft.left.trailing_zeros());
                draft.vec = width;
                draft.left /= width;
                left /= width;
                if draft.left > 1 {
                    return;
                }
            }
            return;
        }
        for entry in named {
            let Some(draft) = drafts.get_mut(&usize::from(entry.axis)) else { continue };
            let left = draft.left;
            let width = match entry.factor {
                Some(factor) if factor > 0 && left.is_multiple_of(factor) => factor,
                Some(factor) => {
                    self.misfit(candidate, "vector elements", factor, left);
                    continue;
                }
                None => most.min(1 << left.trailing_zeros()),
            };
            draft.vec = width;
            draft.left /= width;
        }
    }

    /// Bits of the elements that vectors count: of the narrowest in memory along the contiguous axis, else of a
    /// register.
    fn element_bits(&self, candidate: &Candidate<'_>, classes: &[Option<usize>]) -> u32 {
        let dtype = match candidate.tile {
            Tile::Value(id) => self.kernel.values[id].dtype,
            Tile::Var(id) => self.kernel.vars[id].dtype,
        };
        let class = candidate.contiguous.first().and_then(|&axis| classes[axis]);
        let in_memory = class.and_then(|class| self.vector_bits.get(&class).copied());
        in_memory.unwrap_or(dtype.bits().max(32))
    }

    /// Lanes and warps along the axes that the author named.
    fn spread(
        &mut self,
        candidate: &Candidate<'_>,
        spread: &Spread,
        classes: &[Option<usize>],
        drafts: &mut BTreeMap<usize, Draft>,
    ) {
        for (level, word, entries) in
            [(Level::Lanes, "lanes", &spread.lane), (Level::Warps, "warps", &spread.warp)]
        {
            for entry in entries {
                let axis = usize::from(entry.axis);
                let Some(class) = classes.get(axis).copied().flatten() else {
                    if let Some(factor) = entry.factor.filter(|&f| f > 1) {
                        self.misfit(candidate, word, factor, 1);
                    }
                    continue;
                };
                let Some(draft) = drafts.get(&axis) else {
                    self.check_agreement(candidate, level, word, *entry, class);
                    continue;
                };
                if self.classes.is_cut(class) && entry.factor != Some(1) {
                    self.refuse_cut(candidate, word, entry.axis);
                    continue;
                }
                let want = draft.left;
                let fits = |x: u32| match entry.factor {
                    Some(factor) => x == factor && want.is_multiple_of(x),
                    None => want.is_multiple_of(x),
                };
                match (self.free_digit(level, classes, drafts, axis, fits), entry.factor) {
                    (Some(digit), _) => give(drafts, level, axis, digit),
                    (None, Some(factor)) => self.misfit(candidate, word, factor, want),
                    (None, None) => {}
                }
            }
        }
    }

    /// A second `spread` on a class that an earlier one has decided.
    fn check_agreement(
        &mut self,
        candidate: &Candidate<'_>,
        level: Level,
        word: &str,
        entry: SpreadAxis,
        class: usize,
    ) {
        let Some(map) = self.maps[class] else { return };
        let digit = match level {
            Level::Lanes => map.lanes,
            Level::Warps => map.warps,
        };
        // The tensor core follows a `spread` of its sums as far as the extents allow.
        let wish = match candidate.tile {
            Tile::Var(id) => self.kernel.vars[id].via_mma,
            Tile::Value(_) => false,
        };
        let agrees = match entry.factor {
            Some(factor) => digit.extent == factor,
            None => digit.extent > 1 || map.extent() == map.vec || wish,
        };
        if agrees {
            return;
        }
        let span = |spread: &Spread, tile: Tile| spread.span.unwrap_or(tile.span(self.kernel));
        let Some(spread) = candidate.spread else { return };
        let other = self.kernel.vars.iter_enumerated().find_map(|(id, var)| {
            let tile = Tile::Var(id);
            let meets = tile != candidate.tile
                && self.classes.of_tile(self.kernel, tile).contains(&Some(class));
            var.spread.as_ref().filter(|_| meets).map(|s| (span(s, tile), &var.name))
        });
        let mut diagnostic =
            Diagnostic::error(Code::E0310, "two `spread` clauses disagree about one axis").label(
                span(spread, candidate.tile),
                format!(
                    "axis {} is to run along {word} here, but has {} already",
                    entry.axis, digit.extent
                ),
            );
        if let Some((span, name)) = other {
            diagnostic = diagnostic.secondary(span, format!("`{name}` decides the same axis"));
        }
        let name = candidate.tile.name(self.kernel).unwrap_or("x").to_owned();
        self.findings.push(diagnostic.help(format!(
            "leave one of the clauses away, or write `relayout({name})` where the two tiles meet"
        )));
    }

    /// A `spread` along an axis that is cut somewhere.
    fn refuse_cut(&mut self, candidate: &Candidate<'_>, word: &str, axis: u8) {
        let span = candidate.spread.and_then(|spread| spread.span);
        let name = candidate.tile.name(self.kernel).unwrap_or("x").to_owned();
        self.findings.push(
            Diagnostic::error(
                Code::E0310,
                format!("axis {axis} cannot run along {word}: a slice or `concat` cuts it"),
            )
            .label(
                span.unwrap_or(candidate.tile.span(self.kernel)),
                "an axis that is cut lies in the registers of each thread",
            )
            .help(format!("write `relayout({name})` where it is cut, or load the pieces apart")),
        );
    }

    fn misfit(&mut self, candidate: &Candidate<'_>, word: &str, factor: u32, left: u32) {
        let span = candidate
            .spread
            .and_then(|spread| spread.span)
            .unwrap_or(candidate.tile.span(self.kernel));
        self.findings.push(
            Diagnostic::error(Code::E0310, format!("{factor} {word} do not fit on this axis"))
                .label(span, format!("{left} of the axis are left, and some {word} may be taken"))
                .help("give factors whose product divides the axis, the 32 lanes and the warps"),
        );
    }

    /// The largest digit that fits, at the lowest place value that is free.
    fn free_digit(
        &self,
        level: Level,
        classes: &[Option<usize>],
        drafts: &BTreeMap<usize, Draft>,
        axis: usize,
        fits: impl Fn(u32) -> bool,
    ) -> Option<Digit> {
        let digit_of = |lanes: Digit, warps: Digit| match level {
            Level::Lanes => lanes,
            Level::Warps => warps,
        };
        if classes[axis].is_some_and(|class| self.classes.is_cut(class)) {
            return None;
        }
        let mut taken: Vec<Digit> =
            drafts.values().map(|draft| digit_of(draft.lanes, draft.warps)).collect();
        let met = classes[axis].map_or(&[][..], |class| &self.neighbours[class]);
        let maps = met.iter().filter_map(|&class| self.maps[class]);
        taken.extend(maps.map(|map| digit_of(map.lanes, map.warps)));
        taken.retain(|digit| digit.extent > 1);
        let total = match level {
            Level::Lanes => LANES,
            Level::Warps => self.warps,
        };
        largest_free(total, &taken, fits)
    }
}

fn give(drafts: &mut BTreeMap<usize, Draft>, level: Level, axis: usize, digit: Digit) {
    let Some(draft) = drafts.get_mut(&axis) else { return };
    draft.left /= digit.extent;
    match level {
        Level::Lanes => draft.lanes = digit,
        Level::Warps => draft.warps = digit,
    }
}

/// The largest digit of an index of `total` values that overlaps none of `taken`; among equals the
/// one with the lowest place value.
pub(crate) fn largest_free(
    total: u32,
    taken: &[Digit],
    fits: impl Fn(u32) -> bool,
) -> Option<Digit> {
    let mut best: Option<Digit> = None;
    for stride in (1..=total).filter(|&s| total.is_multiple_of(s)) {
        for extent in (2..=total / stride).filter(|&e| (total / stride).is_multiple_of(e)) {
            let apart = taken.iter().all(|digit| {
                digit.stride.is_multiple_of(stride * extent)
                    || stride.is_multiple_of(digit.stride * digit.extent)
            });
            if apart && fits(extent) && best.is_none_or(|b| extent > b.extent) {
                best = Some(Digit { extent, stride });
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_fill_gaps_from_the_lowest_place() {
        let any = |_: u32| true;
        assert_eq!(largest_free(32, &[], any), Some(Digit { extent: 32, stride: 1 }));
        let low = Digit { extent: 4, stride: 1 };
        let high = Digit { extent: 2, stride: 16 };
        assert_eq!(largest_free(32, &[low, high], any), Some(Digit { extent: 4, stride: 4 }));
        let seven = |x: u32| 28 % x == 0;
        assert_eq!(largest_free(14, &[], seven), Some(Digit { extent: 14, stride: 1 }));
        let odd = Digit { extent: 7, stride: 1 };
        assert_eq!(largest_free(14, &[odd], seven), Some(Digit { extent: 2, stride: 7 }));
        assert_eq!(largest_free(14, &[odd, Digit { extent: 2, stride: 7 }], any), None);
        // Two that meet here but not each other may overlap; what is left is above both.
        let two = Digit { extent: 2, stride: 1 };
        let four = Digit { extent: 4, stride: 1 };
        assert_eq!(largest_free(8, &[two, four], any), Some(Digit { extent: 2, stride: 4 }));
    }
}
