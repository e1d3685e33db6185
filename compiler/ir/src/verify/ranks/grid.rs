//! R7 and R8 between CTAs of one grid: words of a counter are raised and waited for by as much in each launch.
//!
//! Assumes that words and epochs start at zero, that nothing but launches of this kernel, with this grid, touches them,
//! and that CTAs are on the device at once. Guarantees that in launch t each
//! CTA raises a word once, before it waits for it, outside of loops and choices, and waits until all that share the word
//! have raised it t + 1 times. So what a CTA did before a meeting and its signal comes before what those who share the word
//! do behind their wait. Any role may signal or wait; a signal never comes behind a wait for it, in its role or by what
//! another role gives it, so nobody waits for ever: of the waits that have not ended some one comes behind no other, and
//! all its signals have passed. Which accesses that orders, the passes over buffers and roles say.

use kernel_dsl::diag::{Code, Diagnostic, Sink};
use kernel_dsl::source::Span;

use super::super::buffers::tell_apart;
use super::super::scalars::{Form, Knowledge, Symbol};
use super::{At, Survey};
use crate::kernel::{Await, Kernel, Op, ParamId, Signal, ValueId};
use crate::ops::BinaryOp;

/// The axes of the grid along which CTAs have words of their own, as extents of which the others are 1; none where that
/// cannot be told, or may be others in another launch.
pub(in crate::verify) fn sharers(
    known: &Knowledge<'_>,
    form: &Form,
    grid: [u32; 3],
) -> Option<[u32; 3]> {
    let mut own = [1; 3];
    for symbol in form.terms.keys() {
        match symbol {
            Symbol::Cta(axis) => own[usize::from(*axis)] = grid[usize::from(*axis)],
            Symbol::Param(_)
            | Symbol::Value(_)
            | Symbol::Cluster(_)
            | Symbol::Other(_)
            | Symbol::Earlier(_)
            | Symbol::Rounds(_) => return None,
        }
    }
    tell_apart(known, std::slice::from_ref(form), own).then_some(own)
}

/// The same of a word that is zero again when the launch ends, and so may be another one in each.
pub(in crate::verify) fn arrivers(
    known: &Knowledge<'_>,
    form: &Form,
    grid: [u32; 3],
) -> Option<[u32; 3]> {
    let mut of_ctas = form.clone();
    of_ctas.terms.retain(|symbol, _| !matches!(symbol, Symbol::Param(_)));
    sharers(known, &of_ctas, grid)
}

pub(super) fn check(kernel: &Kernel, survey: &Survey<'_>, sink: &mut Sink) {
    let mut judge = Judge { kernel, survey, sink };
    for (number, &(at, signal)) in survey.of_grid.signals.iter().enumerate() {
        judge.signal(number, at, signal);
    }
    for &(at, wait) in &survey.of_grid.awaits {
        judge.wait(at, wait);
    }
}

/// True where no CTA has one position in the place of the other, its own or that of another CTA.
pub(in crate::verify) fn is_apart(
    known: &Knowledge<'_>,
    a: &Form,
    b: &Form,
    grid: [u32; 3],
) -> bool {
    let (one, other) = (known.interval(a), known.interval(b));
    let is_below = |a: Option<i128>, b: Option<i128>| a.zip(b).is_some_and(|(a, b)| a < b);
    if is_below(one.hi, other.lo) || is_below(other.hi, one.lo) {
        return true;
    }
    let Some(gap) = a.plus(-1, b).and_then(|gap| gap.as_constant()) else { return false };
    // The gap is one that CTAs leave where it is a sum of their factors, each at most as often as the grid is wide.
    let (mut step, mut span) = (0_u128, 0_u128);
    for (symbol, factor) in &a.terms {
        let Symbol::Cta(axis) = symbol else { return false };
        let (factor, ctas) = (factor.unsigned_abs(), u128::from(grid[usize::from(*axis)]));
        if ctas > 1 {
            step = divisor(step, factor);
            span = span.saturating_add(factor.saturating_mul(ctas - 1));
        }
    }
    let gap = gap.unsigned_abs();
    gap > span || (step > 0 && gap % step > 0)
}

/// The greatest number that divides both.
fn divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { divisor(b, a % b) }
}

struct Judge<'a, 'k> {
    kernel: &'a Kernel,
    survey: &'a Survey<'k>,
    sink: &'a mut Sink,
}

impl Judge<'_, '_> {
    fn form(&self, index: Option<&ValueId>) -> Form {
        index.map_or_else(Form::default, |&index| self.survey.known.form(index))
    }

    /// Each word is raised by one statement, on every path.
    fn signal(&mut self, number: usize, at: At, signal: &Signal) {
        if at.inside {
            let help = "signal once on every path";
            return self.wrong(signal.span, "inside of a loop or a choice", help, None);
        }
        let form = self.form(signal.index.first());
        if self.shared_by(&form).is_none() {
            return self.unknown(signal.span);
        }
        let before = self.survey.of_grid.signals.iter().take(number);
        let other = before.map(|(_, other)| *other).find(|other| {
            let other_form = self.form(other.index.first());
            other.param == signal.param
                && !is_apart(&self.survey.known, &other_form, &form, self.kernel.launch.grid)
        });
        if let Some(other) = other {
            let label = "this word may be raised twice in a launch";
            self.wrong(signal.span, label, "use words of their own", Some(other.span));
        }
    }

    fn wait(&mut self, at: At, wait: &Await) {
        if at.inside {
            let help = "wait once on every path";
            return self.wrong(wait.span, "inside of a loop or a choice", help, None);
        }
        let form = self.form(wait.index.first().and_then(Option::as_ref));
        let Some((signalled, signal)) = self.raised(wait.param, &form) else {
            let help =
                "write `signal c[i] add 1 order release scope gpu;` before it, with the same index";
            return self.wrong(wait.span, "no signal raises this word", help, None);
        };
        if signalled.number > at.number && !signalled.is_beside(at) {
            let label = "every CTA waits here before any has signalled";
            return self.wrong(wait.span, label, "signal before the wait", Some(signal.span));
        }
        // Outside of roles all that stands before a signal has passed.
        let in_roles = signalled.role.is_some() || at.role.is_some();
        if in_roles && self.survey.may_be_behind(signalled, at) {
            let label = "its signal may stand behind what another role gives when it has waited";
            let help = "signal ahead of all that waits for that role";
            return self.wrong(wait.span, label, help, Some(signal.span));
        }
        let Some(all) = self.shared_by(&form) else { return self.unknown(wait.span) };
        let total = all * i128::from(signal.add);
        if total > i128::from(i32::MAX) {
            let label =
                format!("the word grows by {total} in each launch, which no difference tells");
            return self.wrong(wait.span, &label, "add less", Some(signal.span));
        }
        if self.launches(wait.until) != Some(total) {
            let label = format!("the word grows by {total} in each launch");
            let help = format!(
                "write `until (t + 1) * {total}`, with `let t = load e[…];` of an `inout epoch e`, one word a CTA"
            );
            self.wrong(wait.span, &label, &help, Some(signal.span));
        }
    }

    /// How many CTAs share a word, where it is the same word in each launch and as many for all.
    fn shared_by(&self, form: &Form) -> Option<i128> {
        let (known, grid) = (&self.survey.known, self.kernel.launch.grid);
        if let Some(own) = sharers(known, form, grid) {
            let all = grid.iter().zip(own).map(|(&all, own)| i128::from(all / own.max(1)));
            return Some(all.product());
        }
        let is_of_launch = form.terms.keys().any(|symbol| matches!(symbol, Symbol::Param(_)));
        let all = known.shares(form).filter(|_| !is_of_launch)?;
        let first = *all.first()?;
        all.iter().all(|count| *count == first).then_some(i128::from(first))
    }

    fn unknown(&mut self, span: Span) {
        let label = "which CTAs raise this word, and that they do in each launch, does not show";
        self.wrong(span, label, "index it by constants and `cta`", None);
    }

    fn raised(&self, param: ParamId, form: &Form) -> Option<(At, &Signal)> {
        let mut signals = self.survey.of_grid.signals.iter();
        let found = signals
            .find(|(_, signal)| signal.param == param && self.form(signal.index.first()) == *form);
        found.map(|(at, signal)| (*at, *signal))
    }

    /// The n of `(t + 1) * n`, where t is the epoch.
    fn launches(&self, until: ValueId) -> Option<i128> {
        let known = |value: ValueId| self.survey.known.form(value).as_constant();
        let is_next = |value: ValueId| {
            let epoch = self.survey.one_less(value);
            epoch.and_then(|epoch| self.survey.epoch(self.kernel, epoch)).is_some()
        };
        if is_next(until) {
            return Some(1);
        }
        let Op::Binary { op: BinaryOp::Mul, a, b } = self.survey.ops.get(&until)? else {
            return None;
        };
        match (known(*a), known(*b)) {
            (None, Some(n)) if is_next(*a) => Some(n),
            (Some(n), None) if is_next(*b) => Some(n),
            (_, _) => None,
        }
    }

    fn wrong(&mut self, span: Span, label: &str, help: &str, other: Option<Span>) {
        let mut finding = Diagnostic::error(Code::E0174, "signals of a counter that do not add up")
            .label(span, label);
        if let Some(other) = other {
            finding = finding.secondary(other, "raised here");
        }
        self.sink.push(finding.help(help));
    }
}
