//! `stored LAYOUT` of a `static` parameter: how its elements lie in memory. Indexing stays logical.

use kernel_abi::Access;
use kernel_abi::stored::{StoredDigit, StoredLayout};
use kernel_dsl::ast::{Expr, ExprKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::not_built;
use super::report::{Outcome, Refused};
use crate::kernel::{Extent, ViewAxis, ViewDigit};

impl<'a> Lower<'a> {
    /// The layout that an author states for a buffer of these extents.
    pub(super) fn stored(
        &mut self,
        layout: &'a Expr,
        shape: &[Extent],
        access: Access,
        declared: Span,
    ) -> Outcome<StoredLayout> {
        if access != Access::Static {
            return Err(self.error(
                Diagnostic::error(Code::E0215, format!("a stored layout of `{access}` data"))
                    .label(layout.span, "only `static` data is packed by a loader")
                    .secondary(declared, "declared here"),
            ));
        }
        let ExprKind::Layout(extents, strides) = &layout.kind else {
            return Err(self.not_built(layout.span, not_built::BY_NAME));
        };
        let mut axes = Vec::with_capacity(shape.len());
        for (axis, &extent) in shape.iter().enumerate() {
            let Extent::Const(extent) = extent else {
                return Err(self.error(
                    Diagnostic::error(Code::E0205, "a stored layout has constant extents")
                        .label(declared, "an extent that is known at run time only"),
                ));
            };
            let (extents, strides) = match (shape.len(), &extents.kind, &strides.kind) {
                (1, _, _) => (&**extents, &**strides),
                (rank, ExprKind::Tuple(e), ExprKind::Tuple(s))
                    if e.len() == rank && s.len() == rank =>
                {
                    (&e[axis], &s[axis])
                }
                (rank, _, _) => return Err(self.wrong_modes(layout.span, declared, rank)),
            };
            let mut digits = Vec::new();
            self.stored_digits(extents, strides, &mut digits)?;
            let product = digits.iter().try_fold(1u32, |n, digit| n.checked_mul(digit.extent));
            if product != Some(extent) {
                return Err(self.error(
                    Diagnostic::error(Code::E0204, "a stored layout of another shape")
                        .label(extents.span, format!("axis {axis} has {extent} positions"))
                        .secondary(declared, "declared here"),
                ));
            }
            axes.push(digits);
        }
        StoredLayout::new(axes).map_err(|wrong| {
            self.error(
                Diagnostic::error(Code::E0301, "a stored layout that is no order of the elements")
                    .label(strides.span, wrong.to_string())
                    .help("each place of memory has one element, and none stays empty"),
            )
        })
    }

    fn wrong_modes(&mut self, span: Span, declared: Span, rank: usize) -> Refused {
        self.error(
            Diagnostic::error(Code::E0204, "a stored layout of another shape")
                .label(span, format!("one entry for each of {rank} axes is needed"))
                .secondary(declared, "declared here")
                .help("an entry is an extent, or `(a, b)` for digits of it, fastest first"),
        )
    }

    /// The digits of one axis, fastest first.
    fn stored_digits(
        &mut self,
        extents: &'a Expr,
        strides: &'a Expr,
        digits: &mut Vec<StoredDigit>,
    ) -> Outcome<()> {
        if let (ExprKind::Tuple(e), ExprKind::Tuple(s)) = (&extents.kind, &strides.kind)
            && e.len() == s.len()
        {
            for (e, s) in e.iter().zip(s) {
                self.nested(e.span, |lower| lower.stored_digits(e, s, digits))?;
            }
            return Ok(());
        }
        let most = i64::from(i32::MAX);
        let extent = self.const_extent(extents, "an extent", 1, most)?;
        let stride = self.const_int(strides, "a stride")?;
        let Ok(stride) = u64::try_from(stride) else {
            return Err(self.error(
                Diagnostic::error(Code::E0214, format!("a stride of {stride}"))
                    .label(strides.span, "strides are not negative"),
            ));
        };
        digits.push(StoredDigit { extent, stride });
        Ok(())
    }
}

/// The axes of a buffer in memory, for views and accesses.
pub(super) fn axes(layout: &StoredLayout, shape: &[Extent]) -> Option<Vec<ViewAxis>> {
    let axis = |(digits, &extent): (&Vec<StoredDigit>, &Extent)| {
        let digit = |digit: &StoredDigit| {
            let stride = i64::try_from(digit.stride).ok()?;
            Some(ViewDigit { extent: digit.extent, stride })
        };
        let digits = digits.iter().rev().map(digit).collect::<Option<Vec<_>>>()?;
        Some(ViewAxis { extent, digits })
    };
    layout.axes().iter().zip(shape).map(axis).collect()
}
