//! The edge that a finding of memory order lacks, and what leads past it.
//!
//! Passes say what they found and where. Here it is put in one form for all of them: who acts first and who next, where,
//! what stands between on the path that shows it and what each of those statements orders, and by what the two could be
//! in order. Assumes of a finding that its first label with a statement is the later access, and the next one the
//! earlier; [`Missing::of`] says which codes turn that round.

mod place;
mod rules;
mod words;

use kernel_dsl::diag::{Code, Diagnostic, Fact};
use kernel_dsl::source::Span;

use crate::kernel::{Kernel, StmtKind, Tensor, Warpgroup};
use place::{Found, Step, Way, is_copy};
pub(crate) use words::{does, named_order};

/// Statements of a path that are named on each side.
const MAX_STEPS: usize = 3;

/// What speaks of two accesses or statements that nothing orders: findings of these codes name the edge.
pub const CODES_OF_ORDER: &[Code] = &[
    Code::E0107,
    Code::E0108,
    Code::E0109,
    Code::E0110,
    Code::E0113,
    Code::E0116,
    Code::E0118,
    Code::E0119,
    Code::E0120,
    Code::E0121,
    Code::E0122,
    Code::E0132,
    Code::E0133,
    Code::E0134,
    Code::E0135,
    Code::E0137,
    Code::E0140,
    Code::E0141,
    Code::E0142,
    Code::E0143,
    Code::E0145,
    Code::E0146,
    Code::E0147,
    Code::E0148,
    Code::E0153,
    Code::E0154,
    Code::E0156,
    Code::E0157,
    Code::E0160,
    Code::E0161,
    Code::E0162,
    Code::E0163,
    Code::E0172,
    Code::E0174,
];

/// Adds the missing edge and the path to a finding that has them.
pub(super) fn explain(kernel: &Kernel, finding: Diagnostic) -> Diagnostic {
    let Some(missing) = Missing::of(kernel, &finding) else { return finding };
    let help = finding.help.is_empty().then(|| format!("order the two by {}", missing.by));
    let finding = finding.fact(missing.edge()).fact(missing.path(kernel));
    match help {
        Some(help) => finding.help(help),
        None => finding,
    }
}

/// An edge that is not there.
struct Missing<'k> {
    from: Act<'k>,
    to: Act<'k>,
    /// What would make it.
    by: String,
    /// Both are done by one CTA, one of them on its path behind the other.
    in_one_cta: bool,
}

/// Who does something, what, and where.
#[derive(Clone)]
struct Act<'k> {
    who: String,
    does: String,
    span: Option<Span>,
    found: Option<Found<'k>>,
}

impl<'k> Act<'k> {
    /// Something that stands at no place of this kernel.
    fn elsewhere(does: &str, who: &str) -> Act<'k> {
        Act { who: who.to_owned(), does: does.to_owned(), span: None, found: None }
    }

    /// A statement of the kernel.
    fn of(kernel: &'k Kernel, span: Span, found: Found<'k>, who: &str) -> Act<'k> {
        Act {
            who: who.to_owned(),
            does: does(kernel, found.stmt, span),
            span: Some(span),
            found: Some(found),
        }
    }

    /// The same, done by a thread, or by what goes on behind its statement.
    fn in_cta(kernel: &'k Kernel, span: Span, found: Found<'k>, who: &str) -> Act<'k> {
        let is_product = matches!(
            found.stmt.kind,
            StmtKind::Warpgroup(Warpgroup::Mma(_)) | StmtKind::Tensor(Tensor::Mma(_))
        );
        let of = match found.role {
            Some(role) => format!(" of `{}`", kernel.roles[role].name),
            None => String::new(),
        };
        let doer = if is_copy(&found.stmt.kind) {
            "a copy"
        } else if is_product {
            "a product"
        } else {
            who
        };
        let doer = format!("{doer}{of}");
        Act::of(kernel, span, found, &doer)
    }

    fn told(&self, fact: Fact) -> Fact {
        let fact = fact.text(format!("{} (", self.does));
        let fact = match self.span {
            Some(span) => fact.line(span).text(", "),
            None => fact,
        };
        fact.text(format!("{})", self.who))
    }
}

impl Missing<'_> {
    fn edge(&self) -> Fact {
        let fact = self.from.told(Fact::new("missing edge")).text(" -> ");
        self.to.told(fact).text(format!(", by {}", self.by))
    }

    fn path(&self, kernel: &Kernel) -> Fact {
        let fact = Fact::new("path");
        match (&self.from.found, &self.to.found) {
            (Some(from), Some(to)) if self.in_one_cta => way(kernel, from.way_to(to), fact),
            (Some(from), Some(to)) => beside(kernel, &from.to_end(), &to.since_start(), fact),
            (None, Some(to)) => straight(
                kernel,
                &to.since_start(),
                fact.text("from the start of the kernel: "),
                Side::Before,
            ),
            (Some(from), None) => straight(
                kernel,
                &from.to_end(),
                fact.text("to the end of the kernel: "),
                Side::After,
            ),
            (None, None) => fact.text("on some path nothing orders the two"),
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    /// What stands behind a statement, the nearest first.
    After,
    /// What stands ahead of one, the nearest last.
    Before,
}

fn way(kernel: &Kernel, way: Way<'_>, fact: Fact) -> Fact {
    match way {
        Way::Straight(steps) => straight(kernel, &steps, fact, Side::After),
        Way::Round { of, after, before } => {
            let fact = straight(kernel, &after, fact, Side::After);
            let fact = fact.text("; the next round of the loop (").line(of).text("); ");
            straight(kernel, &before, fact, Side::Before)
        }
        Way::Beside { after, before } => beside(kernel, &after, &before, fact),
        Way::None => fact.text("they run at the same time, or the first is of an earlier launch"),
    }
}

fn beside(kernel: &Kernel, after: &[Step<'_>], before: &[Step<'_>], fact: Fact) -> Fact {
    let fact = straight(kernel, after, fact.text("behind the first: "), Side::After);
    straight(kernel, before, fact.text("; ahead of the second: "), Side::Before)
}

fn straight(kernel: &Kernel, steps: &[Step<'_>], mut fact: Fact, side: Side) -> Fact {
    if steps.is_empty() {
        return fact.text("nothing that orders anything");
    }
    let skipped = steps.len().saturating_sub(MAX_STEPS);
    let (shown, first) = match side {
        Side::After => (steps.get(..steps.len() - skipped), false),
        Side::Before => (steps.get(skipped..), skipped > 0),
    };
    if first {
        fact = fact.text(format!("{skipped} more, "));
    }
    for (number, step) in shown.unwrap_or_default().iter().enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        let what = words::orders(step.stmt).unwrap_or_default();
        let sometimes = if step.sometimes { ", on some paths" } else { "" };
        fact = fact
            .text(format!("{comma}{} (", named_order(kernel, step.stmt)))
            .line(step.stmt.span)
            .text(format!(") {what}{sometimes}"));
    }
    if skipped > 0 && !first { fact.text(format!(", {skipped} more")) } else { fact }
}
