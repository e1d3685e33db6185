//! Broadcasting and axes.

use std::borrow::Cow;

use kernel_ir::kernel::SlicePart;
use kernel_ir::ops::Elements;

/// Elements of a shape.
pub(super) fn len(shape: &[u32]) -> usize {
    shape.iter().map(|&e| e as usize).product()
}

/// `x` of shape `from` repeated to shape `to`: shapes are aligned at the last axis, extents of 1 are
/// repeated.
pub(super) fn broadcast<'a>(x: &'a Elements, from: &[u32], to: &[u32]) -> Cow<'a, Elements> {
    // Leading axes of extent 1 change nothing.
    let total = len(to);
    if x.len() == total {
        return Cow::Borrowed(x);
    }
    let mut out = Elements::new(x.dtype());
    if x.len() == 1 {
        out.fill(x.get(0), total);
        return Cow::Owned(out);
    }
    let mut strides = vec![0usize; to.len()];
    let mut stride = 1;
    for (s, &extent) in strides.iter_mut().rev().zip(from.iter().rev()) {
        if extent != 1 {
            *s = stride;
        }
        stride *= extent as usize;
    }
    gather(x, to, &strides, &mut out);
    Cow::Owned(out)
}

/// Appends the elements of `x` at `sum(coordinate * stride)`, for all coordinates of `shape`, row-major.
pub(super) fn gather(x: &Elements, shape: &[u32], strides: &[usize], out: &mut Elements) {
    let Some((&row, outer)) = shape.split_last() else {
        out.extend_from(x, 0..1);
        return;
    };
    let (row, row_stride) = (row as usize, strides[outer.len()]);
    let mut coordinate = vec![0u32; outer.len()];
    for _ in 0..len(outer) {
        let start: usize =
            coordinate.iter().zip(strides).map(|(&c, &stride)| c as usize * stride).sum();
        match row_stride {
            1 => out.extend_from(x, start..start + row),
            _ => out.gather(x, (0..row).map(|i| start + i * row_stride)),
        }
        for (c, &extent) in coordinate.iter_mut().zip(outer).rev() {
            *c += 1;
            if *c < extent {
                break;
            }
            *c = 0;
        }
    }
}

/// Appends the piece of `x`, of shape `from`, that `parts` names.
pub(super) fn slice(x: &Elements, from: &[u32], parts: &[SlicePart], out: &mut Elements) {
    let mut starts = vec![0usize];
    let mut run = x.len();
    for (part, &extent) in parts.iter().zip(from) {
        run /= (extent as usize).max(1);
        let positions = part.start..part.start + part.len.unwrap_or(1);
        starts = starts
            .iter()
            .flat_map(|&start| positions.clone().map(move |p| start + p as usize * run))
            .collect();
    }
    out.gather(x, starts.into_iter());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_of_one_are_repeated() {
        let x = Elements::from_i32(&[1, 2, 3]);
        let codes = |e: Cow<'_, Elements>| e.codes().collect::<Vec<_>>();
        assert_eq!(codes(broadcast(&x, &[3], &[2, 3])), [1, 2, 3, 1, 2, 3]);
        assert_eq!(codes(broadcast(&x, &[3, 1], &[3, 2])), [1, 1, 2, 2, 3, 3]);
        assert_eq!(
            codes(broadcast(&x, &[1, 3, 1], &[2, 3, 2])),
            [1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3]
        );
        assert_eq!(codes(broadcast(&Elements::from_i32(&[7]), &[], &[2, 2])), [7; 4]);
        assert!(codes(broadcast(&x, &[3], &[0, 3])).is_empty());
    }
}
