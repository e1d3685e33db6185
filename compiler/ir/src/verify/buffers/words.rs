//! What orders CTAs: words that signals raise or at which CTAs arrive, and meetings of the cluster.

use super::super::ranks::{arrivers, sharers};
use super::super::scalars::{Form, Symbol};
use super::Walk;
use crate::kernel::{ParamId, ValueId, Words};

/// What orders CTAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
    /// A word that signals raise.
    Signal(ParamId, Form),
    /// One arrival in the text.
    Arrival,
    /// A meeting of the cluster.
    Cluster,
}

/// Something that orders CTAs, and along which axes of the grid they have their own.
pub(super) struct Word {
    of: Of,
    pub(super) own: [u32; 3],
    /// Of a word whose index is a quotient or remainder of the CTA's number: this says which one it is.
    pub(super) digit: Option<CtaDigit>,
}

/// A quotient or remainder of the CTA's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CtaDigit {
    pub(super) symbol: Symbol,
    /// Of the quotient of an index of the CTA the axis of the grid and the divisor.
    pub(super) of: Option<(u8, i128)>,
}

impl Walk<'_> {
    /// The number of something that orders CTAs.
    pub(super) fn number(&mut self, of: Of, own: [u32; 3]) -> usize {
        if let Some(number) = self.words.iter().position(|word| word.of == of && of != Of::Arrival)
        {
            return number;
        }
        self.words.push(Word { of, own, digit: None });
        self.words.len() - 1
    }

    /// The number of a word of a counter that signals raise, where it is raised on every path.
    pub(super) fn raised(&mut self, param: ParamId, index: Option<ValueId>) -> Option<usize> {
        if self.depth > 0 || self.kernel.params[param].words != Some(Words::Raised) {
            return None;
        }
        let form = self.known.form(index?);
        let grid = self.kernel.launch.grid;
        let (own, digit) = match sharers(&self.known, &form, grid) {
            Some(own) => (own, None),
            None => (grid, Some(self.digit(&form)?)),
        };
        let number = self.number(Of::Signal(param, form), own);
        self.words[number].digit = digit;
        Some(number)
    }

    /// Every CTA arrives at a word.
    pub(super) fn arrive(&mut self, results: &[ValueId], index: ValueId) {
        let form = self.known.form(index);
        let grid = self.kernel.launch.grid;
        let (own, digit) = match arrivers(&self.known, &form, grid) {
            Some(own) => (own, None),
            // Of any other index nothing says who arrives there.
            None => match self.digit(&form) {
                Some(digit) => (grid, Some(digit)),
                None => return,
            },
        };
        let number = self.number(Of::Arrival, own);
        self.words[number].digit = digit;
        let role = self.role_number();
        self.seen.values_mut().for_each(|seen| seen.arrive(number, role));
        self.arrivals.extend(results.iter().map(|&result| (result, number)));
    }

    /// The digit of the CTA's number that an index is, but for a constant; its word is that of all CTAs with this digit,
    /// whose number the pass over words compares.
    fn digit(&self, form: &Form) -> Option<CtaDigit> {
        let mut terms = form.terms.keys();
        let (&symbol, None) = (terms.next()?, terms.next()) else { return None };
        let is_known = self.known.is_digit_of_cta(symbol) && self.known.shares(form).is_some();
        is_known.then(|| CtaDigit { symbol, of: self.known.quotient_of_cta(symbol) })
    }
}
