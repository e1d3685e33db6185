//! Registers of all threads: element `i` of thread `t` lies at `i * threads + t`.

use std::ops::Deref;
use std::rc::Rc;

use kernel_abi::DType;
use kernel_ir::device::Map;
use kernel_ir::ops::Elements;

/// Which registers hold no value; absent when all do.
pub(super) type Undefined = Option<Rc<Vec<bool>>>;

/// The registers of a fragment or slot.
#[derive(Debug, Clone)]
pub(super) struct Registers {
    pub(super) elements: Elements,
    pub(super) undefined: Undefined,
}

impl Registers {
    /// Registers that all hold a value.
    pub(super) fn defined(elements: Elements) -> Registers {
        Registers { elements, undefined: None }
    }

    /// Threads outside the mask keep what they had, or nothing.
    pub(super) fn keep(&mut self, mask: &[bool], old: Option<&Registers>, dtype: DType) {
        let threads = mask.len();
        let old = old.filter(|o| o.elements.dtype() == dtype);
        let old_undefined = old.and_then(|o| o.undefined.as_ref());
        let mut undefined = vec![false; self.elements.len()];
        for (i, gap) in undefined.iter_mut().enumerate() {
            if mask[i % threads] {
                *gap = self.undefined.as_ref().is_some_and(|u| u[i]);
            } else if let Some(old) = old {
                self.elements.set(i, old.elements.get(i));
                *gap = old_undefined.is_some_and(|u| u[i]);
            } else {
                *gap = true;
            }
        }
        self.undefined = some_if_any(undefined);
    }
}

/// Elements of an operand: those of a fragment, or a rearranged copy.
pub(super) enum Source {
    Shared(Rc<Registers>),
    Owned(Elements),
}

impl Deref for Source {
    type Target = Elements;

    fn deref(&self) -> &Elements {
        match self {
            Source::Shared(registers) => &registers.elements,
            Source::Owned(elements) => elements,
        }
    }
}

/// What an operation takes.
pub(super) struct Operand {
    pub(super) elements: Source,
    pub(super) undefined: Undefined,
}

impl Operand {
    pub(super) fn into_registers(self) -> Registers {
        let elements = match self.elements {
            Source::Shared(registers) => {
                Rc::try_unwrap(registers).map_or_else(|r| r.elements.clone(), |r| r.elements)
            }
            Source::Owned(elements) => elements,
        };
        Registers { elements, undefined: self.undefined }
    }
}

/// The `len` elements that `map` takes from `source`.
pub(super) fn operand(source: Rc<Registers>, map: &Map, len: usize, threads: usize) -> Operand {
    if *map == Map::Identity && source.elements.len() == len * threads {
        let undefined = source.undefined.clone();
        return Operand { elements: Source::Shared(source), undefined };
    }
    let mut elements = Elements::new(source.elements.dtype());
    let from = |i: usize| match map {
        Map::Identity => i,
        Map::All(index) => *index as usize,
        Map::Table(table) => table[i] as usize,
    };
    for at in (0..len).map(from) {
        elements.extend_from(&source.elements, at * threads..(at + 1) * threads);
    }
    let undefined = source.undefined.as_ref().and_then(|u| {
        let rows = (0..len).map(from).flat_map(|at| u[at * threads..(at + 1) * threads].iter());
        some_if_any(rows.copied().collect())
    });
    Operand { elements: Source::Owned(elements), undefined }
}

/// One element of each source, in order.
pub(super) fn join(
    sources: impl Iterator<Item = (Rc<Registers>, u32)>,
    dtype: DType,
    threads: usize,
) -> Registers {
    let mut elements = Elements::new(dtype);
    let mut undefined = Vec::new();
    for (source, element) in sources {
        let rows = element as usize * threads..(element as usize + 1) * threads;
        match &source.undefined {
            Some(gaps) => undefined.extend_from_slice(&gaps[rows.clone()]),
            None => undefined.resize(undefined.len() + threads, false),
        }
        elements.extend_from(&source.elements, rows);
    }
    Registers { elements, undefined: some_if_any(undefined) }
}

/// Undefined where either is.
pub(super) fn either(a: Undefined, b: Undefined) -> Undefined {
    match (a, b) {
        (None, one) | (one, None) => one,
        (Some(a), Some(b)) => Some(Rc::new(a.iter().zip(b.iter()).map(|(a, b)| a | b).collect())),
    }
}

/// Undefined where the condition is, or the side that it chooses.
pub(super) fn chosen(cond: &Operand, a: Undefined, b: Undefined) -> Undefined {
    if cond.undefined.is_none() && a.is_none() && b.is_none() {
        return None;
    }
    let at = |u: &Undefined, i: usize| u.as_ref().is_some_and(|u| u[i]);
    let side = |i: usize| if cond.elements.get(i) != 0 { at(&a, i) } else { at(&b, i) };
    some_if_any((0..cond.elements.len()).map(|i| at(&cond.undefined, i) || side(i)).collect())
}

/// The list, unless nothing in it is true.
pub(super) fn some_if_any(list: Vec<bool>) -> Undefined {
    list.contains(&true).then(|| Rc::new(list))
}
