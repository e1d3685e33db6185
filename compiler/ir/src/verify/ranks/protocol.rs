//! R8: words and slots follow the epochs.

use std::collections::BTreeSet;

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::super::buffers::tell_apart;
use super::super::scalars::{Form, Symbol};
use super::{At, Epoch, Survey};
use crate::kernel::{
    Await, AxisIndex, Extent, Kernel, Op, ParamId, RANK, Signal, TileAccess, ValueId, ViewAxis,
};
use crate::ops::BinaryOp;

pub(super) fn check(kernel: &Kernel, survey: &Survey<'_>, sink: &mut Sink) {
    let mut judge = Judge { kernel, survey, sink };
    let flags: BTreeSet<ParamId> =
        kernel.params.ids().filter(|&id| kernel.params[id].is_flag()).collect();
    for flag in flags {
        judge.flag(flag);
    }
    for &(_, access) in &survey.stores {
        judge.slot(access);
        judge.sender(access);
    }
    for &(_, access) in &survey.loads {
        judge.slot(access);
    }
}

/// Positions along an axis that one rank has: those from `(rank + block) * step` to the next multiple.
#[derive(PartialEq, Eq)]
struct OwnPlace {
    axis: ViewAxis,
    step: i128,
    block: i128,
}

/// True for what is the same on every rank: a sum of constants and of the index of the CTA.
fn is_of_ctas(form: &Form) -> bool {
    form.terms.keys().all(|symbol| matches!(symbol, Symbol::Cta(_)))
}

struct Judge<'a, 'k> {
    kernel: &'a Kernel,
    survey: &'a Survey<'k>,
    sink: &'a mut Sink,
}

impl Judge<'_, '_> {
    /// Words that are raised and waited for once, by CTAs with the same index.
    fn flag(&mut self, flag: ParamId) {
        let signals: Vec<(At, &Signal)> =
            self.survey.signals.iter().filter(|(_, s)| s.param == flag).copied().collect();
        let awaits: Vec<(At, &Await)> =
            self.survey.awaits.iter().filter(|(_, w)| w.param == flag).copied().collect();
        let name = &self.kernel.params[flag].name;
        for (at, span) in signals
            .iter()
            .map(|(at, s)| (at, s.span))
            .chain(awaits.iter().map(|(at, w)| (at, w.span)))
        {
            if at.inside {
                return self.wrong(
                    span,
                    "inside of a loop or a choice",
                    "signal and wait once on every path, outside of loops and choices",
                );
            }
        }
        let ([(signalled, signal)], [(awaited, wait)]) = (signals.as_slice(), awaits.as_slice())
        else {
            let (n, m) = (signals.len(), awaits.len());
            if n + m == 0 {
                return;
            }
            let span = signals.get(1).map(|(_, s)| s.span);
            let span = span.or(awaits.get(1).map(|(_, w)| w.span));
            let span = span.or(signals.first().map(|(_, s)| s.span));
            let span = span.or(awaits.first().map(|(_, w)| w.span)).unwrap_or(self.kernel.span);
            let label = format!("{n} signals and {m} waits of `{name}`");
            return self.wrong(span, &label, "signal a flag once and wait for it once in a launch");
        };
        if signalled.number > awaited.number && !signalled.is_beside(*awaited) {
            return self.wrong(
                wait.span,
                "every rank waits here before any has signalled",
                "signal before the wait",
            );
        }
        if signalled.is_beside(*awaited) && self.survey.may_be_behind(*signalled, *awaited) {
            return self.wrong(
                signal.span,
                "this may stand behind what another role gives when it has waited for it",
                "signal ahead of all that waits for that role",
            );
        }
        if signal.add != 1 {
            let label = format!("the word grows by {} in a launch", signal.add);
            return self.wrong(signal.span, &label, "write `add 1`");
        }
        self.words(flag, signal, wait);
        if self.epoch_of(wait).is_none() {
            self.wrong(
                wait.span,
                "this is not the epoch of the launch plus 1",
                "write `let t = load e[…];` of an `inout epoch e`, one word a CTA, and `until t + 1`",
            );
        }
    }

    /// The positions of the words: one for each sender and CTA.
    fn words(&mut self, flag: ParamId, signal: &Signal, wait: &Await) {
        let each = match (signal.to, wait.each()) {
            (None, Some(each)) => each,
            (Some(to), None) => return self.partner(signal, to, wait),
            (None, None) => {
                return self.wrong(
                    wait.span,
                    "every rank is told, and one sender is waited for",
                    "wait for `each`, or tell the rank that waits: `signal f@peer(p)[…]`",
                );
            }
            (Some(_), Some(_)) => {
                return self.wrong(
                    wait.span,
                    "one rank is told, and every sender is waited for",
                    "write `signal f@peer(*)[…]`, or wait for the one that tells this rank",
                );
            }
        };
        let extent = self.kernel.params[flag].shape.get(each).copied();
        if extent != self.kernel.launch.world.map(Extent::Const) {
            return self.wrong(
                wait.span,
                "`each` is not along an axis of as many words as there are ranks",
                "declare `peer f : sym_flag u32[…, WORLD]`",
            );
        }
        let form = |value: ValueId| self.survey.known.form(value);
        let own = signal.index.get(each).is_some_and(|&value| self.is_rank(&form(value)));
        if !own {
            return self.wrong(
                signal.span,
                "senders do not raise words of their own",
                "write `rank` where the wait has `each`",
            );
        }
        let mut pairs = signal.index.iter().zip(&wait.index);
        let same = pairs.all(|(s, w)| w.is_none_or(|w| form(w) == form(*s)));
        if !same {
            return self.wrong(
                wait.span,
                "this waits for other words than the signal raises",
                "use the same index in both",
            );
        }
        if !wait.index.iter().flatten().all(|&value| is_of_ctas(&form(value))) {
            return self.wrong(
                wait.span,
                "nothing says that all ranks mean the same words by this",
                "index words by constants and `cta`, beside `rank` where the wait has `each`",
            );
        }
        let forms: Vec<Form> = wait.index.iter().flatten().map(|&value| form(value)).collect();
        if !tell_apart(&self.survey.known, &forms, self.kernel.launch.grid) {
            self.wrong(
                signal.span,
                "several CTAs raise one word",
                "give each CTA a word: an axis with the index `cta.x`",
            );
        }
    }

    /// Each rank tells one, and waits for the one that tells it.
    fn partner(&mut self, signal: &Signal, to: ValueId, wait: &Await) {
        let Some(partners) = self.survey.partners(to) else {
            return self.wrong(
                signal.span,
                "nothing says that each rank is told by one",
                "tell a rank that depends on `rank` alone, another one for each: `(rank + 1) % world`",
            );
        };
        let known = &self.survey.known;
        let form = |value: ValueId| known.form(value);
        let mut own = Vec::new();
        for (&raised, awaited) in signal.index.iter().zip(&wait.index) {
            let Some(awaited) = *awaited else { return };
            let (here, there) = (self.survey.on_ranks(raised), self.survey.on_ranks(awaited));
            let is_same = match (here, there) {
                // What a rank raises is what the rank that it tells waits for.
                (Some(raised), Some(awaited)) => {
                    let mut pairs = raised.iter().zip(&partners.told);
                    pairs.all(|(raised, &told)| awaited.get(told) == Some(raised))
                }
                (_, _) => {
                    let raised = form(raised);
                    let is_same = raised == form(awaited) && is_of_ctas(&raised);
                    own.push(raised);
                    is_same
                }
            };
            if !is_same {
                return self.wrong(
                    wait.span,
                    "this waits for another word than the rank raises that tells this one",
                    "write `signal f@peer((rank + 1) % world)[i]` and `await f[i]`, with constants and `cta` in `i`",
                );
            }
        }
        if !tell_apart(&self.survey.known, &own, self.kernel.launch.grid) {
            self.wrong(
                signal.span,
                "several CTAs raise one word",
                "give each CTA a word: an axis with the index `cta.x`",
            );
        }
    }

    fn is_rank(&self, form: &Form) -> bool {
        let terms: Vec<_> = form.terms.iter().collect();
        match terms.as_slice() {
            [(Symbol::Param(param), 1)] => {
                form.constant == 0 && self.kernel.params[*param].name == RANK
            }
            _ => false,
        }
    }

    /// The epoch `t` where the wait is for `t + 1`.
    fn epoch_of(&self, wait: &Await) -> Option<Epoch> {
        self.survey.epoch(self.kernel, self.survey.one_less(wait.until)?)
    }

    /// The slot of an access is the epoch that the wait for it counts to.
    fn slot(&mut self, access: &TileAccess) {
        let Some(param) = access.storage.param() else { return };
        let declared = &self.kernel.params[param];
        if declared.shape.first() == Some(&Extent::Const(1)) {
            return self.wrong(
                access.span,
                "there is one slot, which a rank that is a launch ahead overwrites",
                "declare it with `ring 2`, and write `@t`",
            );
        }
        let mut index = access.index.iter().filter(|index| !matches!(index, AxisIndex::New));
        let Some(AxisIndex::At(slot)) = index.next() else { return };
        let flag = self.survey.flag_of(param);
        let told = self.survey.signals.iter().find(|(_, signal)| Some(signal.param) == flag);
        let cycle = told.and_then(|(_, signal)| self.survey.partners(signal.to?));
        if let (Some(cycle), Some(Extent::Const(slots))) = (cycle, declared.shape.first())
            && cycle.longest > *slots as usize
        {
            let longest = cycle.longest;
            return self.wrong(
                access.span,
                &format!("a rank is up to {} launches ahead of the one it tells, and overwrites one of {slots} slots", longest - 1),
                &format!("declare it with `ring {}`", longest.next_power_of_two()),
            );
        }
        let wait = self.survey.awaits.iter().find(|(_, wait)| Some(wait.param) == flag);
        let Some((_, wait)) = wait else { return };
        let Some(epoch) = self.epoch_of(wait) else { return };
        let Some(Extent::Const(slots)) = declared.shape.first() else { return };
        if self.slot_epoch(*slot, *slots) != Some(epoch) {
            self.wrong(
                access.span,
                "the slot is not the epoch that the wait counts to",
                "write `@t`, with the `t` of `until t + 1`",
            );
        }
    }

    /// The epoch that a slot is the remainder of, by the number of slots: nothing else is masked away.
    fn slot_epoch(&self, slot: ValueId, slots: u32) -> Option<Epoch> {
        let mask = i128::from(slots) - 1;
        let (mut value, mut is_masked) = (slot, false);
        loop {
            let op = self.survey.ops.get(&value)?;
            if let Op::Convert { x } = op {
                value = *x;
            } else if let Op::Binary { op: BinaryOp::And, a, b } = op
                && !is_masked
                && self.survey.known.form(*b).as_constant() == Some(mask)
            {
                (value, is_masked) = (*a, true);
            } else {
                return self.survey.epoch(self.kernel, value).filter(|_| is_masked);
            }
        }
    }

    /// Where an access has a place of the own rank alone.
    fn own_places(&self, access: &TileAccess) -> Vec<OwnPlace> {
        let known = &self.survey.known;
        let indices = access.index.iter().filter(|index| !matches!(index, AxisIndex::New));
        let place = |index: &AxisIndex, axis: &ViewAxis| {
            let (form, len) = match index {
                AxisIndex::At(at) => (known.form(*at), 1),
                AxisIndex::Range { start, len, until: None } => (known.form(*start), *len),
                AxisIndex::Range { .. }
                | AxisIndex::Gather(_)
                | AxisIndex::Along(_)
                | AxisIndex::New => return None,
            };
            let terms: Vec<_> = form.terms.iter().collect();
            let [(Symbol::Param(param), step)] = terms.as_slice() else { return None };
            let step = **step;
            let is_rank = self.kernel.params[*param].name == RANK && step > 0;
            let within = is_rank.then(|| form.constant.rem_euclid(step))?;
            let block = form.constant.div_euclid(step);
            let fits = within.checked_add(i128::from(len)).is_some_and(|end| end <= step);
            fits.then(|| OwnPlace { axis: axis.clone(), step, block })
        };
        indices.zip(&access.axes).filter_map(|(index, axis)| place(index, axis)).collect()
    }

    /// Two ranks never store to one element: all stores to it have the number of the rank in one place.
    fn sender(&mut self, access: &TileAccess) {
        let param = access.storage.param();
        let stores = self.survey.stores.iter().filter(|(_, store)| store.storage.param() == param);
        let mut common = self.own_places(access);
        for (_, store) in stores {
            let places = self.own_places(store);
            common.retain(|place| places.contains(place));
        }
        let own = !common.is_empty();
        // Where one rank is told, it is the only one that is stored to, and each has one that does so.
        let others = self.survey.stores.iter().filter(|(_, store)| store.storage.param() == param);
        let rank = access.storage.rank();
        let alone = rank.is_some_and(|rank| self.survey.partners(rank).is_some())
            && others.clone().all(|(_, store)| {
                let to = store.storage.rank();
                rank.zip(to).is_some_and(|(a, b)| self.survey.is_one_rank(a, b))
            });
        if own || alone {
            return;
        }
        let name = self.kernel.name_of(access.storage);
        self.sink.push(
            Diagnostic::error(
                Code::E0133,
                format!("two ranks may store to one element of `{name}`"),
            )
            .label(
                access.span,
                "nothing in this place, and in those of other stores to it, says which rank stores",
            )
            .secondary(self.kernel.declaration_of(access.storage), "declared `peer`")
            .help("give it an axis of senders: `x@peer(p)@t[rank, …]`"),
        );
    }

    fn wrong(&mut self, span: Span, label: &str, help: &str) {
        self.sink.push(
            Diagnostic::error(Code::E0134, "words of ranks that do not follow the epochs")
                .label(span, label)
                .help(help),
        );
    }
}
