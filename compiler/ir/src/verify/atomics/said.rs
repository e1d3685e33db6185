//! What the index of a word says: values that are the same for all who arrive at it, because another one of them would
//! give another index.

use std::collections::{BTreeMap, BTreeSet};

use super::super::scalars::{Facts, Form, Knowledge, Symbol};
use crate::kernel::{Kernel, Op, Stmt, StmtKind, ValueId};

/// Arrivals that have a bit of their own; all further ones share the next, of which nothing is known.
const MOST: u32 = 63;

/// A form whose symbols are the first values of their kind.
type Key = (i128, Vec<(Symbol, i128)>);

/// Arrivals, numbered in the order of the text, and what their indices say.
pub(super) struct Said<'k> {
    known: Knowledge<'k>,
    /// Values that stand for themselves, each with the first one that is computed in the same way.
    same: BTreeMap<ValueId, ValueId>,
    computed: BTreeMap<(u8, Key, Key), ValueId>,
    /// Of each arrival its first result, the form of its index, and the symbols that this determines.
    arrivals: Vec<(ValueId, Form, BTreeSet<Symbol>)>,
    /// The indices, as they are found.
    indices: Vec<(ValueId, ValueId)>,
}

impl<'k> Said<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Said<'k> {
        let mut said = Said {
            known: Knowledge::new(kernel),
            same: BTreeMap::new(),
            computed: BTreeMap::new(),
            arrivals: Vec::new(),
            indices: Vec::new(),
        };
        said.block(&kernel.body);
        for (result, index) in std::mem::take(&mut said.indices) {
            let form = said.form(index);
            let symbols = said.determined(&form, kernel.launch.grid);
            said.arrivals.push((result, form, symbols));
        }
        said
    }

    fn block(&mut self, stmts: &'k [Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def { results, op } => {
                    self.known.define(results, op, &Facts::new());
                    let Some(&result) = results.first() else { continue };
                    match op {
                        Op::ArriveLast { word, .. } => self.indices.push((result, word.index)),
                        Op::Binary { op, a, b } if !self.known.is_linear(result) => {
                            let key = (*op as u8, self.key(*a), self.key(*b));
                            let first = *self.computed.entry(key).or_insert(result);
                            self.same.insert(result, first);
                        }
                        _ => {}
                    }
                }
                StmtKind::For { var, start, end, step, .. } => {
                    self.known.bind_loop(*var, *start, *end, *step);
                }
                _ => {}
            }
            for body in stmt.kind.bodies() {
                self.block(body);
            }
        }
    }

    /// The form of a value, in which values that are computed alike are one.
    fn form(&self, value: ValueId) -> Form {
        let form = self.known.form(value);
        let mut found = Form::constant(form.constant);
        for (&symbol, &factor) in &form.terms {
            let symbol = match symbol {
                Symbol::Value(value) => {
                    Symbol::Value(self.same.get(&value).copied().unwrap_or(value))
                }
                symbol => symbol,
            };
            match found.plus(factor, &Form::symbol(symbol)) {
                Some(sum) => found = sum,
                None => return form,
            }
        }
        found
    }

    fn key(&self, value: ValueId) -> Key {
        let form = self.form(value);
        (form.constant, form.terms.into_iter().collect())
    }

    /// The symbols of an index that is a number in mixed radix: each digit is at least as wide as all below it.
    fn determined(&self, form: &Form, grid: [u32; 3]) -> BTreeSet<Symbol> {
        let is_own = |symbol: &Symbol| match symbol {
            Symbol::Param(_) => false,
            Symbol::Cta(axis) => grid[usize::from(*axis)] > 1,
            _ => true,
        };
        let mut digits: Vec<(u128, Symbol)> = form
            .terms
            .iter()
            .filter(|(symbol, _)| is_own(symbol))
            .map(|(&symbol, factor)| (factor.unsigned_abs(), symbol))
            .collect();
        digits.sort();
        let mut width = Some(1_u128);
        for &(step, symbol) in &digits {
            if width.is_none_or(|width| step < width) {
                return BTreeSet::new();
            }
            let of = self.known.interval(&Form::symbol(symbol));
            let most = of.hi.zip(of.lo).and_then(|(hi, lo)| hi.checked_sub(lo));
            let most = most.and_then(|most| u128::try_from(most).ok());
            width = width
                .zip(most)
                .and_then(|(width, most)| step.checked_mul(most)?.checked_add(width));
        }
        digits.into_iter().map(|(_, symbol)| symbol).collect()
    }

    /// The bit of the arrival with this result.
    pub(super) fn bit(&self, result: ValueId) -> u64 {
        let number = self.arrivals.iter().position(|(of, ..)| *of == result);
        let number = number.and_then(|number| u32::try_from(number).ok()).unwrap_or(MOST);
        1 << number.min(MOST)
    }

    /// The bits of arrivals whose index says this value.
    pub(super) fn of(&self, value: ValueId) -> u64 {
        let form = self.form(value);
        let shared = |symbol: &Symbol| matches!(symbol, Symbol::Param(_));
        let mut bits = 0;
        for (number, (_, index, symbols)) in self.arrivals.iter().take(MOST as usize).enumerate() {
            let by_symbols =
                form.terms.keys().all(|symbol| shared(symbol) || symbols.contains(symbol));
            let gap = form.plus(-1, index);
            let as_a_whole = gap.is_some_and(|gap| gap.terms.keys().all(shared));
            if by_symbols || as_a_whole {
                bits |= 1 << number;
            }
        }
        bits
    }

    /// True where the index of an arrival says which round of the loop with this variable it is.
    pub(super) fn is_of_round(&self, result: ValueId, var: ValueId) -> bool {
        let symbol = Symbol::Value(var);
        self.arrivals.iter().any(|(of, _, symbols)| *of == result && symbols.contains(&symbol))
    }
}
