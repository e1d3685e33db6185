//! Which edge each code lacks.

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::place::{Found, at, first, is_copy};
use super::{Act, Missing};
use crate::kernel::{
    BarrierId, Kernel, Outgoing, ParamId, PipeOp, StmtKind, Storage, Tensor, each_access,
};

/// The statements that a finding has labels at.
struct Labels<'k> {
    kernel: &'k Kernel,
    later: Option<(Span, Found<'k>)>,
    earlier: Option<(Span, Found<'k>)>,
}

impl<'k> Missing<'k> {
    pub(super) fn of(kernel: &'k Kernel, finding: &Diagnostic) -> Option<Missing<'k>> {
        let mut spans = finding.labels.iter().map(|label| label.span);
        let mut next = |other: Option<&(Span, Found<'k>)>| {
            let other = other.map(|(_, found)| found);
            spans.find_map(|span| at(kernel, span, other).map(|found| (span, found)))
        };
        let later = next(None);
        let earlier = next(later.as_ref());
        let labels = Labels { kernel, later, earlier };
        match finding.code {
            Code::E0107 => labels.behind("a store", "`grid_wait`"),
            Code::E0108 => labels.behind("an access", "`grid_wait`"),
            Code::E0110 => labels.behind("the end", "`grid_wait`"),
            Code::E0109 => labels.whole(),
            Code::E0113 | Code::E0118 | Code::E0120 | Code::E0140 | Code::E0141 => labels.threads(),
            Code::E0143 | Code::E0145 | Code::E0153 | Code::E0160 | Code::E0162 => labels.threads(),
            Code::E0142 | Code::E0146 | Code::E0147 | Code::E0161 => labels.to_an_end(finding.code),
            Code::E0119 => labels.filled(),
            Code::E0163 => labels.copied_out(),
            Code::E0116 | Code::E0175 => labels.agents(
                ["another CTA", "a CTA"],
                "an arrival, an `await` or a meeting behind the first and ahead of the second",
            ),
            Code::E0172 => labels.agents(
                ["a round", "another round"],
                "places of their own, since rounds have no order",
            ),
            Code::E0121 => labels.meeting(),
            Code::E0122 => labels
                .agents(["another CTA of the cluster", "a CTA of the cluster"], "`sync cluster`"),
            Code::E0132 => labels.published(),
            Code::E0133 => labels.read(),
            Code::E0134 => labels.epochs(),
            Code::E0135 => labels.resident(),
            Code::E0137 => labels.agents(
                ["this rank", "this rank, at another address"],
                "nothing that the language has: the two addresses are in no order",
            ),
            Code::E0174 => {
                labels.signals(["another CTA", "a CTA"], "signals that add up to what is awaited")
            }
            Code::E0148 | Code::E0154 | Code::E0156 | Code::E0157 => labels.rounds(finding),
            _ => None,
        }
    }
}

impl<'k> Labels<'k> {
    fn act(&self, (span, found): &(Span, Found<'k>), who: &str) -> Act<'k> {
        Act::of(self.kernel, *span, found.clone(), who)
    }

    fn edge(&self, from: Act<'k>, to: Act<'k>, by: &str) -> Option<Missing<'k>> {
        Some(Missing { from, to, by: by.to_owned(), in_one_cta: false })
    }

    fn name(&self, param: ParamId) -> &'k str {
        &self.kernel.params[param].name
    }

    /// What an earlier launch does.
    fn behind(&self, does: &str, by: &str) -> Option<Missing<'k>> {
        let to = self.act(self.later.as_ref()?, "this launch");
        self.edge(Act::elsewhere(does, "an earlier launch"), to, by)
    }

    /// The end of the launch behind the end of earlier ones.
    fn whole(&self) -> Option<Missing<'k>> {
        let mut to = Act::elsewhere("the end", "this launch");
        to.found = self.later.as_ref().map(|(_, found)| found.clone());
        self.edge(Act::elsewhere("the end", "an earlier launch"), to, "`grid_wait` on every path")
    }

    /// Two threads of a CTA, or what goes on behind their statements.
    fn threads(&self) -> Option<Missing<'k>> {
        let later = self.later.as_ref()?;
        let earlier = self.earlier.as_ref().unwrap_or(later);
        let by = self.between_threads(&earlier.1, &later.1);
        let from = Act::in_cta(self.kernel, earlier.0, earlier.1.clone(), "a thread");
        let to = Act::in_cta(self.kernel, later.0, later.1.clone(), "another thread");
        Some(Missing { from, to, by, in_one_cta: true })
    }

    fn between_threads(&self, earlier: &Found<'k>, later: &Found<'k>) -> String {
        let meeting = match later.role {
            Some(role) if later.role == earlier.role => {
                format!("`sync {}`", self.kernel.roles[role].name)
            }
            _ => "`sync`".to_owned(),
        };
        let beside = earlier.role.is_some() && later.role.is_some() && earlier.role != later.role;
        match &earlier.stmt.kind {
            StmtKind::Pipe(PipeOp::Copy { .. }) => {
                "a `wait` for the barrier of the copy".to_owned()
            }
            StmtKind::Outgoing(Outgoing::Copy { .. }) => format!("`settle` and {meeting}"),
            StmtKind::CopyAsync { .. } => format!("`settle` and {meeting}"),
            StmtKind::Warpgroup(_) => format!("`commit`, `settle` and {meeting}"),
            StmtKind::Tensor(Tensor::Mma(_)) => "`commit` and a `wait` for its barrier".to_owned(),
            StmtKind::Store { .. } if is_copy(&later.stmt.kind) => {
                format!("`publish` and {meeting}")
            }
            _ if beside => {
                "`release` and `wait` of a pipeline, or `sync` behind the roles".to_owned()
            }
            _ => meeting,
        }
    }

    /// What is under way, and what comes next or ends.
    fn to_an_end(&self, code: Code) -> Option<Missing<'k>> {
        let (by, is_reversed) = match code {
            Code::E0142 => ("`commit` and `settle`", false),
            Code::E0146 => ("`commit` and a `wait` for its barrier", false),
            Code::E0147 => ("`settle`", true),
            _ => ("`settle` of the buffer", false),
        };
        let later = self.later.as_ref()?;
        let is_settle = matches!(
            later.1.stmt.kind,
            StmtKind::Warpgroup(crate::kernel::Warpgroup::Settle { .. })
                | StmtKind::Tensor(Tensor::Settle { .. })
        );
        let thread = |(span, found): &(Span, Found<'k>)| {
            Act::in_cta(self.kernel, *span, found.clone(), "a thread")
        };
        let (from, to) = match &self.earlier {
            Some(earlier) if is_reversed => (thread(later), thread(earlier)),
            Some(earlier) => (thread(earlier), thread(later)),
            None if is_settle => (Act::elsewhere("what it waits for", "nobody"), thread(later)),
            None => (thread(later), Act::elsewhere("the end", "its threads")),
        };
        Some(Missing { from, to, by: by.to_owned(), in_one_cta: true })
    }

    /// A `settle` without a copy.
    fn filled(&self) -> Option<Missing<'k>> {
        let to = self.act(self.later.as_ref()?, "a thread");
        self.edge(Act::elsewhere("a copy", "this thread"), to, "a copy ahead of it on some path")
    }

    /// A use of what copies write.
    fn copied_out(&self) -> Option<Missing<'k>> {
        let later = self.later.as_ref()?;
        let param = param_of(&later.1, later.0)?;
        let copies = |kind: &StmtKind| {
            matches!(kind, StmtKind::Outgoing(Outgoing::Copy { dest, .. })
                if dest.storage.param() == Some(param))
        };
        let copy = first(self.kernel, copies)?;
        let from = Act::in_cta(self.kernel, copy.stmt.span, copy, "a copy");
        let to = Act::in_cta(self.kernel, later.0, later.1.clone(), "another thread");
        Some(Missing { from, to, by: "the end of the launch".to_owned(), in_one_cta: true })
    }

    /// Two agents that run one text.
    fn agents(&self, [from, to]: [&str; 2], by: &str) -> Option<Missing<'k>> {
        let later = self.later.as_ref()?;
        let earlier = self.earlier.as_ref().unwrap_or(later);
        self.edge(self.act(earlier, from), self.act(later, to), by)
    }

    fn meeting(&self) -> Option<Missing<'k>> {
        let from =
            Act::elsewhere("the same meeting", "a CTA of the cluster that does not come here");
        let to = self.act(self.later.as_ref()?, "a CTA of the cluster");
        self.edge(from, to, "the same way of all CTAs")
    }

    fn published(&self) -> Option<Missing<'k>> {
        let (span, store) = self.later.as_ref()?;
        let param = param_of(store, *span)?;
        let to = self.access(param, false, "another rank");
        self.edge(self.act(&(*span, store.clone()), "this rank"), to, "`sync` and `signal`")
    }

    fn read(&self) -> Option<Missing<'k>> {
        let (span, access) = self.later.as_ref()?;
        let param = param_of(access, *span)?;
        let to = self.act(&(*span, access.clone()), "this rank");
        let is_store = matches!(access.stmt.kind, StmtKind::Store { .. });
        if is_store {
            let from = self.act(&(*span, access.clone()), "another rank");
            return self.edge(from, to, "a place of its own for each rank");
        }
        let from = self.access(param, true, "another rank");
        self.edge(from, to, "`signal` behind it, and an `await` of every sender")
    }

    /// The first load of a buffer, or the first store to it.
    fn access(&self, param: ParamId, stores: bool, who: &str) -> Act<'k> {
        let mut at = None;
        let is_meant = |kind: &StmtKind| {
            let is_store = matches!(kind, StmtKind::Store { .. } | StmtKind::Outgoing(_));
            is_store == stores && span_of(kind, param).is_some()
        };
        let found = first(self.kernel, is_meant);
        if let Some(found) = &found {
            at = span_of(&found.stmt.kind, param);
        }
        match found.zip(at) {
            Some((found, span)) => Act::of(self.kernel, span, found, who),
            None => {
                let verb = if stores { "store" } else { "load" };
                Act::elsewhere(&format!("a {verb} of `{}`", self.name(param)), who)
            }
        }
    }

    /// Words and slots of launches.
    fn epochs(&self) -> Option<Missing<'k>> {
        let (span, found) = self.later.as_ref()?;
        let signals = self.signals(
            ["another rank", "this rank"],
            "one signal and one `await` in a launch, of one word and of the epoch plus 1",
        );
        if matches!(found.stmt.kind, StmtKind::Signal(_) | StmtKind::Await(_)) {
            return signals;
        }
        let Some(param) = param_of(found, *span) else { return signals };
        let slots = match self.kernel.params[param].shape.first() {
            Some(crate::kernel::Extent::Const(slots)) => slots.to_string(),
            Some(crate::kernel::Extent::Scalar(_)) | None => "the slots".to_owned(),
        };
        let from = self.access(param, false, "this rank, launch t");
        let to = self.access(param, true, &format!("another rank, launch t + {slots}"));
        self.edge(
            from,
            to,
            "an `await` of a launch between, at whose signal the slot had been read",
        )
    }

    /// A signal of words and the wait for them.
    fn signals(&self, [from, to]: [&str; 2], by: &str) -> Option<Missing<'k>> {
        let of = |kind: &StmtKind| match kind {
            StmtKind::Signal(signal) => Some(signal.param),
            StmtKind::Await(wait) => Some(wait.param),
            _ => None,
        };
        let labels = [self.later.as_ref(), self.earlier.as_ref()];
        let param = labels.into_iter().flatten().find_map(|(_, found)| of(&found.stmt.kind))?;
        let named = |found: Option<Found<'k>>, word: &str, who: &str| match found {
            Some(found) => Act::of(self.kernel, found.stmt.span, found, who),
            None => Act::elsewhere(&format!("`{word} {}`", self.name(param)), who),
        };
        let signal = first(
            self.kernel,
            |kind| matches!(kind, StmtKind::Signal(signal) if signal.param == param),
        );
        let wait =
            first(self.kernel, |kind| matches!(kind, StmtKind::Await(wait) if wait.param == param));
        self.edge(named(signal, "signal", from), named(wait, "await", to), by)
    }

    fn resident(&self) -> Option<Missing<'k>> {
        let signals =
            self.signals(["a CTA that may not be on the device", "a CTA that keeps its place"], "");
        signals.map(|missing| Missing { by: "`resident: all`".to_owned(), ..missing })
    }

    /// Who arrives at a barrier, and who waits there.
    fn rounds(&self, finding: &Diagnostic) -> Option<Missing<'k>> {
        let declared = |barrier: &BarrierId| {
            finding.labels.iter().any(|label| label.span == self.kernel.barriers[*barrier].span)
        };
        let named = self.kernel.barriers.ids().find(declared);
        let later = self.later.as_ref();
        let of_label = later.and_then(|(_, found)| match &found.stmt.kind {
            StmtKind::Pipe(PipeOp::Open { empty, .. }) => Some(*empty),
            StmtKind::Pipe(op) => Some(op.place().0),
            _ => None,
        });
        let barrier = of_label.or(named).or_else(|| self.kernel.barriers.ids().next())?;
        let waits = |kind: &StmtKind| match kind {
            StmtKind::Pipe(PipeOp::Wait { barrier: at, .. }) => *at == barrier,
            StmtKind::Pipe(PipeOp::Open { empty, .. }) => *empty == barrier,
            _ => false,
        };
        let gives = |kind: &StmtKind| match kind {
            StmtKind::Pipe(
                PipeOp::Release { barrier: at, .. }
                | PipeOp::Commit { barrier: at, .. }
                | PipeOp::Copy { barrier: at, .. }
                | PipeOp::Send { barrier: at, .. },
            ) => *at == barrier,
            _ => false,
        };
        let name = &self.kernel.barriers[barrier].name;
        let end = |is_meant: &dyn Fn(&StmtKind) -> bool, does: &str| {
            let labelled = later.filter(|(_, found)| is_meant(&found.stmt.kind)).cloned();
            let found = labelled
                .or_else(|| first(self.kernel, is_meant).map(|found| (found.stmt.span, found)));
            match found {
                Some((span, found)) => Act::in_cta(self.kernel, span, found, "a thread"),
                None => Act::elsewhere(&format!("{does} `{name}`"), "nobody"),
            }
        };
        let (from, to) = (end(&gives, "an arrival at"), end(&waits, "a wait for"));
        let by = match finding.code {
            Code::E0148 => "rounds in which both CTAs copy, and products that tell both",
            Code::E0156 => "one wait for all that is sent, and no more",
            Code::E0157 => "as many rounds in all CTAs, each element brought once",
            _ => "one arrival of each role in each round, and one wait for it",
        };
        self.edge(from, to, by)
    }
}

/// The buffer that a statement touches at a place.
fn param_of(found: &Found<'_>, span: Span) -> Option<ParamId> {
    let mut param = None;
    each_access(&found.stmt.kind, &mut |access| {
        if access.span == span || param.is_none() {
            param = access.storage.param();
        }
    });
    param
}

/// Where a statement touches a buffer.
fn span_of(kind: &StmtKind, param: ParamId) -> Option<Span> {
    let mut at = None;
    each_access(kind, &mut |access| {
        let is_meant = match access.storage {
            Storage::Buffer(of)
            | Storage::Peer(of, _)
            | Storage::Peers(of)
            | Storage::Multicast(of, _) => of == param,
            Storage::Smem(..) | Storage::Remote(..) => false,
        };
        if is_meant {
            at = Some(access.span);
        }
    });
    at
}
