//! `view V = W by "n (j k) -> n j k" (k = 8);` on buffers and on tiles in shared memory.

use std::rc::Rc;

use kernel_dsl::ast::View;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::report::Outcome;
use super::scope::{Buffer, Entity};
use crate::kernel::{Extent, ViewAxis, ViewDigit};
use crate::layout::{self, Axis, LayoutError};

impl<'a> Lower<'a> {
    pub(super) fn view(&mut self, view: &'a View) -> Outcome<()> {
        let axes = self.relabelled(view);
        let entity = axes.as_ref().map_or(Entity::Refused, |buffer| Entity::Buffer(buffer.clone()));
        self.frame.define(&view.name, entity);
        axes.map(|_| ())
    }

    fn relabelled(&mut self, view: &'a View) -> Outcome<Buffer> {
        let (buffer, reference, _) = self.buffer(&view.source)?;
        // In memory of ranks the axis of slots stays in front.
        let own = usize::from(self.inbox(&buffer).is_some());
        if let Some(at) = reference.at.first() {
            return Err(self.not_built(at.span, "a view of one slot"));
        }
        let mut sizes = Vec::with_capacity(view.sizes.len());
        for (name, size) in &view.sizes {
            let extent =
                self.const_extent(size, "the extent of a letter", 1, i64::from(i32::MAX))?;
            sizes.push((name.text.as_str(), i64::from(extent)));
        }
        let (slots, rest) = buffer.axes.split_at(own.min(buffer.axes.len()));
        let axes = relabel(rest, &view.spec.value, &sizes)
            .map_err(|refused| self.view_mistake(&refused, view.spec.span, view.source.span))?;
        let axes = slots.iter().chain(axes.iter()).cloned().collect();
        Ok(Buffer { axes, ..buffer })
    }

    fn view_mistake(
        &mut self,
        refused: &LayoutError,
        spec: Span,
        source: Span,
    ) -> super::report::Refused {
        self.error(
            Diagnostic::error(Code::E0216, "a view that is no layout of the same storage")
                .label(spec, refused.message.clone())
                .secondary(source, "what is relabelled")
                .help("each axis has one letter or one group on the left; every letter stands once on each side"),
        )
    }
}

/// What stands for the extent of an axis that the algebra does not take.
#[derive(Clone, Copy)]
enum Special {
    /// Known at run time.
    Scalar,
    /// No positions.
    Zero,
}

/// The axes of a view. An axis with a run-time extent may be moved, not split or merged; extents of 0
/// stay 0.
fn relabel(
    axes: &[ViewAxis],
    spec: &str,
    sizes: &[(&str, i64)],
) -> Result<Rc<[ViewAxis]>, LayoutError> {
    let special = |axis: &ViewAxis| match axis.extent {
        Extent::Scalar(_) => Some(Special::Scalar),
        Extent::Const(0) => Some(Special::Zero),
        Extent::Const(_) => None,
    };
    let groups = |side: &str| -> Vec<Vec<String>> { groups(side) };
    let (left, right) = spec.split_once("->").unwrap_or((spec, ""));
    let (left, right) = (groups(left), groups(right));
    // letters whose extent the algebra sees as 1
    let mut replaced: Vec<(String, Special, usize)> = Vec::new();
    let mut plain = Vec::with_capacity(axes.len());
    for (at, axis) in axes.iter().enumerate() {
        let Some(special) = special(axis) else {
            plain.push(to_layout(axis)?);
            continue;
        };
        let letters = left.get(at).map_or(&[][..], Vec::as_slice);
        let mut open = letters.iter().filter(|l| !sizes.iter().any(|(name, _)| name == l));
        match (open.next(), open.next()) {
            (Some(letter), None) => replaced.push((letter.clone(), special, at)),
            (Some(_), Some(_)) => {}
            (None, _) if letters.is_empty() => {}
            (None, _) => {
                let extent = match special {
                    Special::Scalar => "an extent that is known at run time only",
                    Special::Zero => "extent 0",
                };
                let letters = letters.join(" ");
                return Err(LayoutError::undefined(format!("axis `{letters}` has {extent}")));
            }
        }
        let mut bound = letters.iter().filter_map(|l| sizes.iter().find(|(name, _)| name == l));
        let product = bound.try_fold(1_i64, |n, (_, extent)| n.checked_mul(*extent));
        if let Special::Scalar = special
            && letters.len() > 1
        {
            return Err(LayoutError::undefined(format!(
                "axis `{}` has a run-time extent and cannot be split",
                letters.join(" ")
            )));
        }
        let product = product.ok_or_else(|| LayoutError::too_large("the extents of a view"))?;
        // an axis without positions has no strides either
        plain.push(Axis::new(product, 0)?);
    }
    let result = layout::relabel(&plain, spec, sizes)?;
    let mut views = Vec::with_capacity(result.len());
    for (axis, letters) in result.iter().zip(&right) {
        let found = replaced.iter().find(|(letter, _, _)| letters.contains(letter));
        let view = match found {
            None => from_layout(axis)?,
            Some((_, Special::Zero, _)) => ViewAxis {
                extent: Extent::Const(0),
                digits: vec![ViewDigit { extent: 1, stride: 0 }],
            },
            Some((_, Special::Scalar, at)) if letters.len() == 1 => axes[*at].clone(),
            Some((letter, Special::Scalar, _)) => {
                return Err(LayoutError::undefined(format!(
                    "axis `{letter}` has a run-time extent and cannot be merged"
                )));
            }
        };
        views.push(view);
    }
    Ok(views.into())
}

/// The letters of one side, an axis each.
fn groups(side: &str) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    let spaced = side.replace('(', " ( ").replace(')', " ) ");
    let mut open = false;
    for word in spaced.split_whitespace() {
        match word {
            "(" => {
                open = true;
                groups.push(Vec::new());
            }
            ")" => open = false,
            letter => match groups.last_mut() {
                Some(group) if open => group.push(letter.to_owned()),
                Some(_) | None => groups.push(vec![letter.to_owned()]),
            },
        }
    }
    groups
}

fn to_layout(axis: &ViewAxis) -> Result<Axis, LayoutError> {
    let digits: Vec<layout::Digit> = axis
        .digits
        .iter()
        .map(|d| layout::Digit { extent: i64::from(d.extent), stride: d.stride })
        .collect();
    Axis::of_digits(&digits)
}

fn from_layout(axis: &Axis) -> Result<ViewAxis, LayoutError> {
    let narrow = |extent: i64| {
        u32::try_from(extent).map_err(|_| {
            LayoutError::too_large(format!("an axis of {extent} positions is too long"))
        })
    };
    let mut digits = Vec::with_capacity(axis.digits().len());
    for digit in axis.digits() {
        digits.push(ViewDigit { extent: narrow(digit.extent)?, stride: digit.stride });
    }
    if digits.is_empty() {
        digits.push(ViewDigit { extent: 1, stride: 0 });
    }
    Ok(ViewAxis { extent: Extent::Const(narrow(axis.extent())?), digits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Id;
    use crate::kernel::ParamId;

    fn axis(extent: Extent, stride: i64) -> ViewAxis {
        let digit = match extent {
            Extent::Const(extent) => extent.max(1),
            Extent::Scalar(_) => u32::MAX,
        };
        ViewAxis { extent, digits: vec![ViewDigit { extent: digit, stride }] }
    }

    #[test]
    fn an_axis_without_positions_keeps_none() {
        let axes = [axis(Extent::Const(4), 0), axis(Extent::Const(0), 1)];
        let view = relabel(&axes, "n (j k) -> n j k", &[("k", 8)]).unwrap();
        let extents: Vec<Extent> = view.iter().map(|a| a.extent).collect();
        assert_eq!(extents, [4, 0, 8].map(Extent::Const));
    }

    #[test]
    fn a_run_time_axis_moves_whole() {
        let pages = Extent::Scalar(ParamId::new(3));
        let axes = [axis(pages, 64), axis(Extent::Const(64), 1)];
        let view = relabel(&axes, "p (j k) -> j k p", &[("k", 8)]).unwrap();
        assert_eq!(view[2], axes[0]);
        assert_eq!(view[0].digits, [ViewDigit { extent: 8, stride: 8 }]);
        assert!(relabel(&axes, "(p q) k -> p q k", &[("q", 2)]).is_err());
        assert!(relabel(&axes, "p k -> (p k)", &[]).is_err());
    }
}
