//! Which launches of a stream have surely ended for whom.
//!
//! `grid_wait` covers the launch right before, and what that one knew to have ended when it ended: a launch of which no
//! thread waits says nothing of those before it. That a launch has begun says that all CTAs of the one before have let
//! it begin, and so that whatever one of these had waited for until then has ended; it says nothing of that launch
//! itself.

use std::collections::BTreeSet;

/// Earlier launches that may still run.
pub(super) type Running = BTreeSet<usize>;

/// How far a launch is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// It begins when those before it have ended.
    comes_after: bool,
    /// CTAs.
    pub(super) ctas: usize,
    /// CTAs that have let the next launch begin, or have ended.
    let_go: usize,
    /// One of them had waited by then.
    let_go_after_wait: bool,
    /// Some thread has waited.
    has_waited: bool,
    ended_ctas: usize,
    /// What may still run for it before it waits, and afterwards.
    at_start: Running,
    after_wait: Running,
    pub(super) has_begun: bool,
}

impl Progress {
    /// A launch of so many CTAs; it may begin early, or comes after those before it.
    pub(super) fn new(ctas: usize, comes_after: bool) -> Progress {
        Progress { ctas, comes_after, ..Progress::default() }
    }

    /// All of its CTAs have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended_ctas == self.ctas
    }

    /// A CTA lets the next launch begin.
    pub(super) fn let_go(&mut self, has_waited: bool) {
        self.let_go += 1;
        self.let_go_after_wait |= has_waited;
    }

    /// A thread has waited.
    pub(super) fn wait(&mut self) {
        self.has_waited = true;
    }

    /// A CTA ends; true where it is the last.
    pub(super) fn end_cta(&mut self) -> bool {
        self.ended_ctas += 1;
        self.has_ended()
    }

    /// What may still run for a thread that has waited or not.
    pub(super) fn running(&self, has_waited: bool) -> &Running {
        if has_waited { &self.after_wait } else { &self.at_start }
    }

    /// What may still run when it has ended.
    fn running_at_end(&self) -> &Running {
        self.running(self.has_waited)
    }
}

/// True where a launch may begin now.
pub(super) fn may_begin(launches: &[Progress], launch: usize) -> bool {
    let Some(before) = launch.checked_sub(1).map(|before| &launches[before]) else { return true };
    before.has_ended() || !launches[launch].comes_after && before.let_go == before.ctas
}

/// A launch begins.
pub(super) fn begin(launches: &mut [Progress], launch: usize) {
    let comes_after = launches[launch].comes_after;
    let at_start = match launch.checked_sub(1).map(|before| (before, &launches[before])) {
        None => Running::new(),
        Some((_, last)) if comes_after => last.running_at_end().clone(),
        Some((before, last)) => {
            let mut running = last.running(last.let_go_after_wait).clone();
            running.insert(before);
            running
        }
    };
    launches[launch].at_start = at_start;
    launches[launch].has_begun = true;
    cover(launches, launch);
}

/// What a launch knows after its wait, where that one can have ended.
pub(super) fn cover(launches: &mut [Progress], launch: usize) {
    let Some(before) = launch.checked_sub(1).map(|before| &launches[before]) else { return };
    let (at_start, at_end) = (&launches[launch].at_start, before.running_at_end());
    let after_wait = at_start.intersection(at_end).copied().collect();
    launches[launch].after_wait = after_wait;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Launches of one CTA that begin early, and end; whether each waits, and lets go after its wait.
    fn chain(waits: &[bool], lets_go_first: bool) -> Vec<Progress> {
        let one = |_: &bool| Progress::new(1, false);
        let mut all: Vec<Progress> = waits.iter().map(one).collect();
        for (launch, &waits) in waits.iter().enumerate() {
            begin(&mut all, launch);
            if launch > 0 {
                all[launch - 1].end_cta();
                cover(&mut all, launch);
            }
            if waits {
                all[launch].wait();
            }
            all[launch].let_go(waits && !lets_go_first);
        }
        all
    }

    fn of(all: &[Progress], has_waited: bool) -> Vec<Vec<usize>> {
        all.iter().map(|one| one.running(has_waited).iter().copied().collect()).collect()
    }

    #[test]
    fn a_wait_covers_the_chain_where_each_waits() {
        let all = chain(&[true, true, true], false);
        assert_eq!(of(&all, false), [vec![], vec![0], vec![1]]);
        assert_eq!(of(&all, true), [vec![], vec![], vec![]] as [Vec<usize>; 3]);
    }

    #[test]
    fn a_launch_that_does_not_wait_breaks_the_chain() {
        let all = chain(&[true, false, true], false);
        assert_eq!(of(&all, false), [vec![], vec![0], vec![0, 1]]);
        assert_eq!(of(&all, true), [vec![], vec![], vec![0]]);
    }

    #[test]
    fn who_lets_go_before_the_wait_says_nothing_of_those_before() {
        let all = chain(&[true, true, true], true);
        assert_eq!(of(&all, false), [vec![], vec![0], vec![0, 1]]);
        assert_eq!(of(&all, true), [vec![], vec![], vec![]] as [Vec<usize>; 3]);
    }
}
