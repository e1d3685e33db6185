//! Memory of one thread in cells of one word: local memory and call parameters.

use super::{Key, State};
use crate::values::{ANY_SHARED, Origin, SHARED_WINDOW, Term, ValueId, Values};

/// A cell that stands for a store to an unknown place of its variable.
const ANYWHERE: i64 = i64::MIN;
/// Cells of one access at most; wider ones do not exist.
const MOST_CELLS: u32 = 32;
/// Bytes of one cell.
const CELL_BYTES: i64 = 4;

/// The cells that an access of a variable touches; all of them where the place is unknown.
pub(super) fn cells(slot: u32, offset: Option<i64>, bytes: u32, state: &State) -> Vec<(u32, i64)> {
    match offset {
        Some(offset) => {
            let first = offset.div_euclid(CELL_BYTES);
            let last = offset.saturating_add(i64::from(bytes.max(1)) - 1).div_euclid(CELL_BYTES);
            let mut keys: Vec<_> =
                (first..=last).take(MOST_CELLS as usize).map(|cell| (slot, cell)).collect();
            keys.push((slot, ANYWHERE));
            keys
        }
        None => {
            state.cells.range((slot, i64::MIN)..=(slot, i64::MAX)).map(|(&key, _)| key).collect()
        }
    }
}

/// What a cell holds that was not stored to at a known place.
fn anywhere(state: &State, slot: u32) -> ValueId {
    state.cells.get(&(slot, ANYWHERE)).copied().unwrap_or(ValueId::NONE)
}

/// What a cell holds.
pub(super) fn held(state: &State, key: (u32, i64)) -> ValueId {
    state.cells.get(&key).copied().unwrap_or_else(|| anywhere(state, key.0))
}

/// The value that a load of a variable gives.
pub(super) fn fetch(
    values: &mut Values,
    state: &State,
    slot: u32,
    offset: Option<i64>,
    bytes: u32,
) -> ValueId {
    let mut found = ValueId::NONE;
    for key in cells(slot, offset, bytes, state) {
        if offset.is_none() || key.1 != ANYWHERE {
            found = values.join(found, held(state, key));
        }
    }
    found
}

pub(super) fn store(
    values: &mut Values,
    state: &mut State,
    address: ValueId,
    bytes: u32,
    value: ValueId,
    weak: bool,
) {
    let terms = values.terms(address).to_vec();
    let single = terms.len() == 1 && !weak;
    let value = if bytes < 8 && value == ValueId::NUMBER { ValueId::WORD } else { value };
    for term in terms {
        for origin in term.origins {
            let Origin::Slot(slot) = origin else { continue };
            match term.offset {
                Some(_) => {
                    for key in cells(slot, term.offset, bytes, state) {
                        if key.1 == ANYWHERE {
                            continue;
                        }
                        let old = held(state, key);
                        let new = if single { value } else { values.join(old, value) };
                        state.cells.insert(key, new);
                    }
                }
                None => {
                    // It may be any cell that there is, and any that is first stored to later on.
                    state.cells.entry((slot, ANYWHERE)).or_insert(ValueId::NONE);
                    for (_, cell) in state.cells.range_mut((slot, i64::MIN)..=(slot, i64::MAX)) {
                        *cell = values.join(*cell, value);
                    }
                }
            }
        }
    }
}

pub(super) fn copy_slot(state: &mut State, from: u32, to: u32) {
    let copied: Vec<(i64, ValueId)> = state
        .cells
        .range((from, i64::MIN)..=(from, i64::MAX))
        .map(|(&(_, cell), &value)| (cell, value))
        .collect();
    let stale: Vec<(u32, i64)> =
        state.cells.range((to, i64::MIN)..=(to, i64::MAX)).map(|(&key, _)| key).collect();
    for key in stale {
        state.cells.remove(&key);
    }
    for (cell, value) in copied {
        state.cells.insert((to, cell), value);
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Load,
    Store,
}

/// The memory that an access may touch, as far as it is told apart.
pub(super) fn memory(
    values: &Values,
    state: &State,
    address: ValueId,
    bytes: u32,
    access: Access,
) -> Vec<Key> {
    let mut keys = Vec::new();
    for term in values.terms(address) {
        for origin in &term.origins {
            if let Origin::Slot(slot) = origin {
                for (slot, cell) in cells(*slot, term.offset, bytes, state) {
                    keys.push(Key::Cell(slot, cell));
                }
            }
        }
        shared(term, bytes, access, &mut keys);
    }
    keys
}

/// The parts of shared memory that an access through a term touches.
fn shared(term: &Term, bytes: u32, access: Access, keys: &mut Vec<Key>) {
    let variables = || {
        term.origins.iter().filter_map(|origin| match origin {
            Origin::Shared(variable) => Some(*variable),
            _ => None,
        })
    };
    let Some(_) = variables().next() else { return };
    if access == Access::Store {
        keys.push(Key::SharedMemory);
    }
    let mut is_known = false;
    for variable in variables().filter(|&variable| variable != ANY_SHARED) {
        is_known = true;
        if access == Access::Store {
            keys.push(Key::SharedVariable(variable));
        }
        match (term.offset, access) {
            (Some(offset), _) => {
                let first = offset.div_euclid(CELL_BYTES);
                let end = offset.saturating_add(i64::from(bytes.max(1)) - 1);
                let words = (first..=end.div_euclid(CELL_BYTES)).take(MOST_CELLS as usize);
                keys.extend(words.map(|word| Key::SharedCell(variable, word)));
                if access == Access::Load {
                    keys.push(Key::SharedSomewhere(variable));
                }
            }
            (None, Access::Load) => keys.push(Key::SharedVariable(variable)),
            // Of machine code, a place that is not known is taken for another variable.
            (None, Access::Store) if variable == SHARED_WINDOW => {}
            (None, Access::Store) => keys.push(Key::SharedSomewhere(variable)),
        }
    }
    match (is_known, access) {
        (true, Access::Load) | (false, Access::Store) => keys.push(Key::SharedUnknown),
        (false, Access::Load) => keys.push(Key::SharedMemory),
        (true, Access::Store) => {}
    }
}
