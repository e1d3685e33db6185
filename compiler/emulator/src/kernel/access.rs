//! Where the elements of a tile lie in a buffer.

use kernel_dsl::source::Span;
use kernel_ir::kernel::{AxisIndex, Extent, Kernel, TileAccess, ViewAxis};

use super::Machine;
use crate::error::{EmuError, ErrorKind};

/// The offsets of a tile's elements: the sum of one entry an axis.
pub(super) struct Tile {
    base: i64,
    axes: Vec<TileAxis>,
}

/// Offsets along one axis of a tile.
enum TileAxis {
    /// All present, `step` apart.
    Even { first: i64, step: i64, len: usize },
    /// One entry a position; `None` is absent.
    Table(Vec<Option<i64>>),
}

impl TileAxis {
    fn len(&self) -> usize {
        match self {
            TileAxis::Even { len, .. } => *len,
            TileAxis::Table(offsets) => offsets.len(),
        }
    }

    fn offset(&self, position: usize) -> Option<i64> {
        match self {
            TileAxis::Even { first, step, .. } => Some(first + position as i64 * step),
            TileAxis::Table(offsets) => offsets[position],
        }
    }

    /// First offset and step of an axis that has no gaps; an axis of one position has any step.
    fn even(&self) -> Option<(i64, Option<i64>)> {
        match self {
            TileAxis::Even { len: 0, .. } => None,
            TileAxis::Even { first, step, len } => Some((*first, (*len > 1).then_some(*step))),
            TileAxis::Table(offsets) => {
                let first = offsets.first().copied().flatten()?;
                let Some(second) = offsets.get(1) else { return Some((first, None)) };
                let step = (*second)? - first;
                let even =
                    (0i64..).zip(offsets).all(|(i, &offset)| offset == Some(first + i * step));
                even.then_some((first, Some(step)))
            }
        }
    }
}

impl Tile {
    /// Extents of the tile.
    pub(super) fn shape(&self) -> Vec<u32> {
        self.axes.iter().map(|a| a.len() as u32).collect()
    }

    /// Calls `f(start, count, at)` for runs of elements that follow each other in the buffer from `start` and
    /// in the tile from `at`; absent elements are in none.
    pub(super) fn runs(
        &self,
        mut f: impl FnMut(u64, usize, usize) -> Result<(), EmuError>,
    ) -> Result<(), EmuError> {
        // Inner axes that are one run together are walked as one.
        let (mut first, mut inner_len, mut outer) = (0, 1, self.axes.as_slice());
        while let Some((last, rest)) = outer.split_last() {
            let Some((start, step)) = last.even() else { break };
            if step.is_some_and(|step| step != inner_len as i64) {
                break;
            }
            first += start;
            inner_len *= last.len();
            outer = rest;
        }
        let runs = match outer.split_last() {
            // The innermost axis has gaps or steps.
            Some((TileAxis::Table(offsets), rest)) if outer.len() == self.axes.len() => {
                outer = rest;
                inner_len = offsets.len();
                runs_of(offsets)
            }
            Some((axis @ TileAxis::Even { .. }, rest)) if outer.len() == self.axes.len() => {
                outer = rest;
                inner_len = axis.len();
                (0..axis.len()).filter_map(|i| Some((i, axis.offset(i)?, 1))).collect()
            }
            _ => vec![(0, first, inner_len)],
        };
        let mut coordinate = vec![0usize; outer.len()];
        let rows: usize = outer.iter().map(TileAxis::len).product();
        for row in 0..rows {
            let offsets = coordinate.iter().zip(outer).map(|(&c, axis)| axis.offset(c));
            if let Some(start) = offsets.sum::<Option<i64>>() {
                for &(at, offset, count) in &runs {
                    let start = self.base + start + offset;
                    f(start as u64, count, row * inner_len + at)?;
                }
            }
            for (c, axis) in coordinate.iter_mut().zip(outer).rev() {
                *c += 1;
                if *c < axis.len() {
                    break;
                }
                *c = 0;
            }
        }
        Ok(())
    }
}

/// The maximal runs `(position, offset, count)`.
fn runs_of(offsets: &[Option<i64>]) -> Vec<(usize, i64, usize)> {
    let mut runs: Vec<(usize, i64, usize)> = Vec::new();
    for (at, &offset) in offsets.iter().enumerate() {
        let Some(offset) = offset else { continue };
        match runs.last_mut() {
            Some((first, start, count))
                if *first + *count == at && *start + *count as i64 == offset =>
            {
                *count += 1;
            }
            _ => runs.push((at, offset, 1)),
        }
    }
    runs
}

impl Machine<'_> {
    /// The offsets of an access, with every present position checked against its axis.
    pub(super) fn resolve(&self, access: &TileAccess, verb: &str) -> Result<Tile, EmuError> {
        let mut tile = Tile { base: 0, axes: Vec::new() };
        let mut gathered = 0;
        let mut view_axes = access.axes.iter().enumerate();
        for index in &access.index {
            if let AxisIndex::New = index {
                tile.axes.push(TileAxis::Even { first: 0, step: 0, len: 1 });
                continue;
            }
            let (number, axis) = view_axes.next().expect("each index but `New` has an axis");
            let extent = self.extent(axis);
            let place = |position: i64| {
                if position < 0 || position >= extent {
                    let at = Outside { number, position, extent, verb };
                    return Err(at.error(self.kernel, access));
                }
                Ok(offset(axis, position))
            };
            match index {
                AxisIndex::At(position) => tile.base += place(self.int(*position))?,
                AxisIndex::Range { start, len, until } => {
                    let start = self.int(*start);
                    let until = until.map_or(i64::MAX, |u| self.int(u));
                    let end = start.saturating_add(i64::from(*len));
                    if let ([digit], true) = (&axis.digits[..], *len > 0 && end <= until) {
                        let (first, _) = (place(start)?, place(end - 1)?);
                        let len = *len as usize;
                        tile.axes.push(TileAxis::Even { first, step: digit.stride, len });
                        continue;
                    }
                    let position = |i: u32| {
                        let p = start.saturating_add(i64::from(i));
                        if p >= until { Ok(None) } else { place(p).map(Some) }
                    };
                    let offsets = (0..*len).map(position).collect::<Result<_, _>>()?;
                    tile.axes.push(TileAxis::Table(offsets));
                }
                AxisIndex::Gather(positions) => {
                    let positions = self.value(*positions);
                    let position = |code: u64| {
                        let p = i64::from(code as u32 as i32);
                        if p < 0 { Ok(None) } else { place(p).map(Some) }
                    };
                    let offsets = positions.codes().map(position).collect::<Result<_, _>>()?;
                    gathered = tile.axes.len();
                    tile.axes.push(TileAxis::Table(offsets));
                }
                AxisIndex::Along(positions) => {
                    let positions = self.value(*positions);
                    let Some(TileAxis::Table(offsets)) = tile.axes.get_mut(gathered) else {
                        unreachable!("a `Gather` stands before it")
                    };
                    for (offset, code) in offsets.iter_mut().zip(positions.codes()) {
                        let position = i64::from(code as u32 as i32);
                        *offset = match *offset {
                            Some(first) if position >= 0 => Some(first + place(position)?),
                            Some(_) | None => None,
                        };
                    }
                }
                AxisIndex::New => unreachable!("handled above"),
            }
        }
        Ok(tile)
    }

    /// The offsets of a box: positions outside of their axes are absent.
    pub(super) fn resolve_box(&self, access: &TileAccess) -> Tile {
        let mut tile = Tile { base: 0, axes: Vec::new() };
        let mut is_outside = false;
        let mut view_axes = access.axes.iter();
        for index in &access.index {
            let axis = match index {
                AxisIndex::New => None,
                AxisIndex::At(_)
                | AxisIndex::Range { .. }
                | AxisIndex::Gather(_)
                | AxisIndex::Along(_) => view_axes.next(),
            };
            let Some(axis) = axis else {
                tile.axes.push(TileAxis::Even { first: 0, step: 0, len: 1 });
                continue;
            };
            let extent = self.extent(axis);
            let place =
                |position: i64| (0..extent).contains(&position).then(|| offset(axis, position));
            match index {
                AxisIndex::At(position) => match place(self.int(*position)) {
                    Some(offset) => tile.base += offset,
                    None => is_outside = true,
                },
                AxisIndex::Range { start, len, until: _ } => {
                    let start = self.int(*start);
                    let offsets = (0..i64::from(*len)).map(|i| place(start.saturating_add(i)));
                    tile.axes.push(TileAxis::Table(offsets.collect()));
                }
                AxisIndex::Gather(_) | AxisIndex::Along(_) | AxisIndex::New => {
                    unreachable!("boxes have no index tiles")
                }
            }
        }
        if is_outside {
            for axis in &mut tile.axes {
                *axis = TileAxis::Table(vec![None; axis.len()]);
            }
        }
        tile
    }

    fn extent(&self, axis: &ViewAxis) -> i64 {
        match axis.extent {
            Extent::Const(c) => i64::from(c),
            Extent::Scalar(id) => {
                let dtype = self.kernel.params[id].dtype;
                let code = self.view.launched.scalar(id);
                kernel_abi::numeric::to_i64(dtype, code).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The offset of a position that is inside its axis.
fn offset(axis: &ViewAxis, position: i64) -> i64 {
    let Some((slowest, faster)) = axis.digits.split_first() else { return 0 };
    let (mut rest, mut sum) = (position, 0);
    for digit in faster.iter().rev() {
        let extent = i64::from(digit.extent.max(1));
        sum += rest % extent * digit.stride;
        rest /= extent;
    }
    sum + rest * slowest.stride
}

/// A position outside its axis.
struct Outside<'a> {
    number: usize,
    position: i64,
    extent: i64,
    verb: &'a str,
}

impl Outside<'_> {
    fn error(&self, kernel: &Kernel, access: &TileAccess) -> EmuError {
        let name = kernel.name_of(access.storage);
        let Outside { number, position, extent, verb } = self;
        let message = format!(
            "`{name}` is {verb} at position {position} of axis {number}, which has {extent}"
        );
        let span: Span = access.span;
        let help = if *position >= *extent { "bound the slice: `a .. + L until n`" } else { "" };
        let error = EmuError::new(ErrorKind::OutOfBounds, span, message)
            .at(vec![*position])
            .other(kernel.declaration_of(access.storage), "declared here");
        if help.is_empty() { error } else { error.help(help) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel_ir::kernel::ViewDigit;

    fn tile(axes: &[&[Option<i64>]]) -> Vec<(u64, usize, usize)> {
        let axes = axes.iter().map(|a| TileAxis::Table(a.to_vec())).collect();
        let mut runs = Vec::new();
        let tile = Tile { base: 100, axes };
        tile.runs(|start, count, at| {
            runs.push((start, count, at));
            Ok(())
        })
        .unwrap();
        runs
    }

    #[test]
    fn runs_are_as_long_as_the_layout_allows() {
        let step = |n: i64, by: i64| (0..n).map(|i| Some(i * by)).collect::<Vec<_>>();
        assert_eq!(tile(&[]), [(100, 1, 0)]);
        assert_eq!(
            tile(&[&step(3, 64), &step(4, 8), &step(8, 1)]),
            [(100, 32, 0), (164, 32, 32), (228, 32, 64)][..]
        );
        assert_eq!(tile(&[&step(2, 4), &step(2, 8)]).len(), 4);
        assert_eq!(tile(&[&[Some(7), None], &[Some(0), Some(1), None]]), [(107, 2, 0)]);
        assert_eq!(tile(&[&[], &step(8, 1)]), []);
        assert_eq!(tile(&[&step(8, 1), &[]]), []);
    }

    #[test]
    fn a_position_is_split_into_digits() {
        let axis = ViewAxis {
            extent: Extent::Const(24),
            digits: vec![
                ViewDigit { extent: 3, stride: 1 },
                ViewDigit { extent: 2, stride: 100 },
                ViewDigit { extent: 4, stride: 10 },
            ],
        };
        assert_eq!(offset(&axis, 0), 0);
        assert_eq!(offset(&axis, 3), 30);
        assert_eq!(offset(&axis, 4), 100);
        assert_eq!(offset(&axis, 8 + 4 + 1), 1 + 100 + 10);
    }
}
