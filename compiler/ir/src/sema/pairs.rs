//! Products that two CTAs of a cluster share: `cta_group = 2` of an atom, `into ld.full@cta(0)@t`, `commit b@cta(*)`.

use kernel_dsl::ast::{Expr, ExprKind, InstanceKind};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::lower::Lower;
use super::pipes::Whose;
use super::report::Outcome;
use crate::kernel::{BarrierId, Between, CopyWay, ValueId};

/// CTAs of a pair.
const CTAS: u32 = 2;

/// The finding for what a pair of CTAs does in a wrong way.
fn wrong(what: &str, at: Span, why: &str) -> Diagnostic {
    Diagnostic::error(Code::E0148, what).label(at, why)
}

impl<'a> Lower<'a> {
    /// `cta_group = 2`; 1 is what an atom is without it.
    pub(super) fn is_of_pair(&mut self, group: &'a Expr) -> Outcome<bool> {
        let ctas = self.const_int(group, "`cta_group`")?;
        match ctas {
            1 => Ok(false),
            2 => self.in_pair(group.span).map(|()| true),
            _ => Err(self.error(
                Diagnostic::error(Code::E0206, "`cta_group` of an atom is 1 or 2")
                    .label(group.span, format!("this is {ctas}")),
            )),
        }
    }

    /// The cluster is one pair of CTAs.
    fn in_pair(&mut self, at: Span) -> Outcome<()> {
        let size = self.kernel.launch.cluster_size();
        if size == CTAS {
            return Ok(());
        }
        if size.is_multiple_of(CTAS) {
            return Err(self.not_built(at, "several pairs of CTAs in a cluster"));
        }
        let why = match size {
            1 => "the kernel has no clusters".to_owned(),
            size => format!("the clusters of the kernel have {size} CTAs"),
        };
        Err(self.error(
            wrong("products of a pair of CTAs where there is none", at, &why)
                .help("write `cluster: 2` into `launch`, with a grid of whole pairs"),
        ))
    }

    /// A product of a pair of CTAs stands in the role at hand.
    pub(super) fn of_pair(&mut self) {
        self.pipes.paired.extend(self.role);
    }

    /// A side of a pipeline of the first CTA and the index, where one is named: `ld.full@cta(0)@t`.
    fn at_first(&mut self, into: &'a Expr, full: bool) -> Outcome<Option<(BarrierId, ValueId)>> {
        let names_one = matches!(&into.kind, ExprKind::Ref(reference)
            if reference.at.iter().any(|at| matches!(at.kind, InstanceKind::Cta(_))));
        if !names_one {
            return Ok(None);
        }
        let (meeting, part, at, whose) = self.meeting_of(into)?;
        let Whose::One(cta) = whose else { return Ok(None) };
        let (barrier, partner) = self.side(meeting, part, into.span)?;
        self.in_pair(cta.span)?;
        if partner.is_none() || self.is_empty_side(barrier) == full {
            let what = "what counts at a barrier of another CTA";
            let why =
                "copies count at `full` of a pipeline, and those who read sums release `empty`";
            return Err(self.error(wrong(what, into.span, why)));
        }
        if self.const_int(cta, "the first CTA of the pair")? != 0 {
            return Err(self.error(
                wrong(
                    "what counts at another CTA than the first one",
                    cta.span,
                    "the products of a pair start in its first CTA",
                )
                .help("write `@cta(0)` in both CTAs"),
            ));
        }
        Ok(Some((barrier, at)))
    }

    /// `release sums.empty@cta(0)@t`: the barrier and the index.
    pub(super) fn arrives_at_first(
        &mut self,
        e: &'a Expr,
        span: Span,
    ) -> Outcome<Option<(BarrierId, ValueId)>> {
        let first = self.at_first(e, false)?;
        self.pipes.gathers.extend(first.map(|(barrier, _)| (barrier, span)));
        Ok(first)
    }

    /// `into ld.full@cta(0)@t` of a copy: the barrier and the index.
    pub(super) fn counts_at_first(
        &mut self,
        into: &'a Expr,
        way: CopyWay,
    ) -> Outcome<Option<(BarrierId, ValueId)>> {
        let Some((barrier, at)) = self.at_first(into, true)? else { return Ok(None) };
        if way != CopyWay::Tensor {
            return Err(self.error(
                wrong(
                    "a bulk copy that counts at another CTA",
                    into.span,
                    "copies by boxes alone count at the barrier of the other CTA of a pair",
                )
                .help("write `copy.tma`"),
            ));
        }
        Ok(Some((barrier, at)))
    }

    /// How the CTAs of a pair meet at each barrier, when all operations at it are known.
    pub(super) fn connect_pair(&mut self) {
        let counts = std::mem::take(&mut self.pipes.counts);
        for &(barrier, first, span) in &counts {
            if !first {
                continue;
            }
            let own = counts.iter().find(|(b, first, _)| *b == barrier && !first);
            let casts = &self.pipes.casts;
            let cast = casts.iter().find(|(b, _)| *b == barrier).map(|(_, span)| *span);
            if let Some(other) = own.map(|(_, _, span)| *span).or(cast) {
                self.error(
                    wrong(
                        "copies into a slot that count at different CTAs",
                        span,
                        "at the first CTA of the pair",
                    )
                    .secondary(other, "at the own one, or at all of them")
                    .help("write `into p.full@cta(0)@t` each time"),
                );
                return;
            }
            self.kernel.barriers[barrier].between = Between::Gathered;
        }
        let paired = std::mem::take(&mut self.pipes.paired);
        let by_pair = |barrier: BarrierId| {
            let commits = self.pipes.commits.iter();
            let mut by = commits.filter(|(b, _, _)| *b == barrier).map(|(_, role, _)| role);
            by.any(|role| paired.contains(role))
        };
        let (spread, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pipes.reaches)
            .into_iter()
            .partition(|&(barrier, everywhere, _)| everywhere && by_pair(barrier));
        for &(barrier, _, span) in &spread {
            if let Some((_, _, own)) = others.iter().find(|(b, _, _)| *b == barrier) {
                self.error(
                    wrong(
                        "a barrier that a pair of CTAs reaches in two ways",
                        *own,
                        "arrives in one CTA",
                    )
                    .secondary(span, "arrives in both")
                    .help("write `commit b@cta(*)` each time"),
                );
                return;
            }
            self.kernel.barriers[barrier].between = Between::Spread;
        }
        for (barrier, span) in std::mem::take(&mut self.pipes.gathers) {
            if let Some((_, _, own)) = others.iter().find(|(b, _, _)| *b == barrier) {
                self.error(
                    wrong("a barrier that a pair of CTAs reaches in two ways", *own, "in this CTA")
                        .secondary(span, "in the first one")
                        .help("write `release b@cta(0)@t` each time"),
                );
                return;
            }
            self.kernel.barriers[barrier].between = Between::Gathered;
        }
        self.pipes.reaches = others;
    }
}
