//! Memory of one thread in cells of one word: local memory and call parameters.

use super::{Key, State};
use crate::values::{Origin, ValueId, Values};

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
    for term in terms {
        for origin in term.origins {
            let Origin::Slot(slot) = origin else { continue };
            match term.offset {
                Some(_) => {
                    for key in cells(slot, term.offset, bytes, state) {
                        if key.1 == ANYWHERE {
                            continue;
                        }
                        let cell = state.cells.entry(key).or_insert(ValueId::NONE);
                        *cell = if single { value } else { values.join(*cell, value) };
                    }
                }
                None => {
                    let cell = state.cells.entry((slot, ANYWHERE)).or_insert(ValueId::NONE);
                    *cell = values.join(*cell, value);
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

/// The memory that an access may touch, as far as it is told apart.
pub(super) fn memory(values: &Values, state: &State, address: ValueId, bytes: u32) -> Vec<Key> {
    let mut keys = Vec::new();
    for term in values.terms(address) {
        for origin in &term.origins {
            match origin {
                Origin::Slot(slot) => {
                    for (slot, cell) in cells(*slot, term.offset, bytes, state) {
                        keys.push(Key::Cell(slot, cell));
                    }
                }
                Origin::Shared => keys.push(Key::SharedMemory),
                Origin::Param(_)
                | Origin::ParamSpace(_)
                | Origin::Global(_)
                | Origin::Const
                | Origin::Opaque
                | Origin::Loose => {}
            }
        }
    }
    keys
}
