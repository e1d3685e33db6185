//! Values that are computed alike, and numbers that are written in digits.
//!
//! What is computed twice from equal operands is one symbol: that of the value that comes first. A quotient and a
//! remainder of one number are its digits, and say together what the number is.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::{Access, DType};
use kernel_dsl::diag::Code;

use super::form::{Form, Symbol};
use super::{Interval, Knowledge};
use crate::kernel::{AxisIndex, ClusterAxis, Op, ParamId, SmemId, TileAccess, ValueId, ViewAxis};
use crate::ops::BinaryOp;

/// An operation with the forms of its operands, and the type of its result.
type Computed = (u8, DType, Vec<u32>, Form, Form);
/// A number of at least 0, and a divisor.
type Division = (Form, i128);

/// A word: its buffer, and the forms of its indices.
type Word = (ParamId, Vec<Form>);
/// The axes of the view that a word is seen through.
type View = Vec<ViewAxis>;

/// What has been computed so far.
#[derive(Debug, Default)]
pub(super) struct Alike {
    computed: BTreeMap<Computed, ValueId>,
    /// Words that nobody writes while the kernel runs.
    loaded: BTreeMap<Word, Vec<(View, ValueId)>>,
    /// Values that are one that came before.
    repeated: BTreeSet<ValueId>,
    quotients: BTreeMap<Division, Symbol>,
    /// What each quotient and each remainder is of.
    quotient_of: BTreeMap<Symbol, Division>,
    remainder_of: BTreeMap<Symbol, Division>,
}

impl Alike {
    /// True for a value that is computed as another one before.
    pub(super) fn is_repeated(&self, value: ValueId) -> bool {
        self.repeated.contains(&value)
    }

    /// A quotient of a quotient is one of the first number.
    fn division(&self, number: &Form, divisor: i128) -> Division {
        let inner = number.as_symbol().and_then(|symbol| self.quotient_of.get(&symbol));
        let whole = inner.and_then(|(of, by)| Some((of.clone(), by.checked_mul(divisor)?)));
        whole.unwrap_or_else(|| (number.clone(), divisor))
    }

    /// The symbol of a quotient.
    fn quotient(&self, (number, divisor): &Division) -> Option<Symbol> {
        self.quotients.get(&self.division(number, *divisor)).copied()
    }
}

/// Axes of an access whose positions say together where it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verify) struct Joint {
    /// The axes, each with the factor of its position.
    pub(in crate::verify) of: Vec<(usize, i128)>,
    /// The least sum of positions times factors.
    pub(in crate::verify) start: Form,
    /// How many sums there are from there on, at most.
    pub(in crate::verify) len: u32,
}

impl Joint {
    /// The sum of both, times factors.
    fn plus(&self, (m, other, n): (i128, &Joint, i128), start: Form) -> Option<Joint> {
        let mut factors: BTreeMap<usize, i128> = BTreeMap::new();
        for (joint, factor) in [(self, m), (other, n)] {
            for &(axis, of) in &joint.of {
                let sum = factors.entry(axis).or_default();
                *sum = sum.checked_add(of.checked_mul(factor)?)?;
            }
        }
        let width = |joint: &Joint, factor: i128| {
            i128::from(joint.len.max(1)).checked_sub(1)?.checked_mul(factor)
        };
        let len = width(self, m)?.checked_add(width(other, n)?)?.checked_add(1)?;
        Some(Joint { of: factors.into_iter().collect(), start, len: u32::try_from(len).ok()? })
    }
}

/// Sums of axes that are followed, at most.
const MAX_JOINTS: usize = 16;
/// CTAs of which a value is computed one by one, at most.
/// CTAs of which every two are compared.
const MAX_BOXES: u64 = 512;
const MAX_CTAS: u64 = 1 << 16;

impl Knowledge<'_> {
    /// The place of the CTA in its cluster: of a cluster along one axis it is the rank.
    pub(super) fn cluster_index(&self, axis: ClusterAxis) -> Form {
        let cluster = self.kernel.launch.cluster;
        let extent = axis.extent(cluster);
        if extent <= 1 {
            return Form::constant(0);
        }
        let is_all = extent == self.kernel.launch.cluster_size();
        Form::symbol(Symbol::Cluster(if is_all { ClusterAxis::Rank } else { axis }))
    }

    /// `cta.x % n`, where clusters have `n` CTAs along x: they start at multiples of that.
    pub(super) fn place_in_cluster(&self, number: &Form, divisor: i128) -> Option<Form> {
        let Some(Symbol::Cta(axis)) = number.as_symbol() else { return None };
        let along = ClusterAxis::Along(axis);
        let extent = i128::from(along.extent(self.kernel.launch.cluster));
        (extent > 1 && extent == divisor).then(|| self.cluster_index(along))
    }

    /// Quotient and remainder of a number of at least 0, where they are forms.
    pub(super) fn digits(&self, number: &Form, divisor: i128) -> Option<(Form, Form)> {
        let is_positive = |form: &Form| self.interval(form).lo.is_some_and(|lo| lo >= 0);
        let (whole, rest) = number.split(divisor);
        let below = self.interval(&rest).lies_in(Interval::new(0, divisor - 1));
        (below && is_positive(number)).then_some((whole, rest))
    }

    /// The value before that is the same, if there is one.
    pub(super) fn repeated(&mut self, result: ValueId, op: &Op) -> Option<ValueId> {
        let first = match op {
            Op::Binary { .. } => self.alike.computed.get(&self.computed(result, op)?).copied(),
            Op::Load { access, other: None, .. } => {
                let (key, axes) = self.word(result, access)?;
                let known = self.alike.loaded.get(&key).into_iter().flatten();
                known.into_iter().find(|(other, _)| *other == axes).map(|(_, value)| *value)
            }
            _ => None,
        };
        let first = first.filter(|first| *first != result)?;
        self.alike.repeated.insert(result);
        Some(first)
    }

    /// Notes a value that is a symbol of its own.
    pub(super) fn remember(&mut self, result: ValueId, op: &Op) {
        match op {
            Op::Binary { op: which, a, b } => {
                if let Some(key) = self.computed(result, op) {
                    self.alike.computed.entry(key).or_insert(result);
                }
                let (a, b) = (self.form(*a), self.form(*b).as_constant());
                let is_scalar = self.kernel.values[result].is_scalar();
                if let Some(divisor) = b.filter(|b| *b > 0 && is_scalar) {
                    self.divide(result, *which, (a, divisor));
                }
            }
            Op::Load { access, other: None, .. } => {
                if let Some((key, axes)) = self.word(result, access) {
                    let known = self.alike.loaded.entry(key).or_default();
                    if !known.iter().any(|(_, value)| *value == result) {
                        known.push((axes, result));
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes a quotient or a remainder of a number of at least 0.
    fn divide(&mut self, result: ValueId, op: BinaryOp, (number, divisor): Division) {
        if self.interval(&number).lo.is_none_or(|lo| lo < 0) {
            return;
        }
        let symbol = Symbol::Value(result);
        match op {
            BinaryOp::Div => {
                let division = self.alike.division(&number, divisor);
                self.alike.quotients.entry(division.clone()).or_insert(symbol);
                self.alike.quotient_of.insert(symbol, division);
            }
            BinaryOp::Rem => {
                self.alike.remainder_of.insert(symbol, (number, divisor));
            }
            _ => {}
        }
    }

    fn computed(&self, result: ValueId, op: &Op) -> Option<Computed> {
        let Op::Binary { op, a, b } = op else { return None };
        let (mut a, mut b) = (self.form(*a), self.form(*b));
        let may_swap = match op {
            BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor => true,
            BinaryOp::Sub | BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr => false,
        };
        if may_swap && b < a {
            std::mem::swap(&mut a, &mut b);
        }
        if *op == BinaryOp::Div && b.as_constant().is_some_and(|b| b > 0) {
            let positive = self.interval(&a).lo.is_some_and(|lo| lo >= 0);
            if positive && let Some(divisor) = b.as_constant() {
                let division = self.alike.division(&a, divisor);
                (a, b) = (division.0, Form::constant(division.1));
            }
        }
        let value = &self.kernel.values[result];
        Some((*op as u8, value.dtype, value.shape.to_vec(), a, b))
    }

    /// A scalar that is the same whenever it is loaded.
    fn word(&self, result: ValueId, access: &TileAccess) -> Option<(Word, View)> {
        let param = access.storage.param()?;
        let is_fixed = match self.kernel.params[param].access {
            Access::Static => true,
            // Ahead of the wait it may be what it was before.
            Access::Input => {
                let early = |code: &str| code == Code::E0107.name();
                !self.kernel.waivers.iter().any(|waiver| early(&waiver.code))
            }
            Access::Output
            | Access::Inout
            | Access::Scratch
            | Access::Peer
            | Access::Multicast
            | Access::Scalar => false,
        };
        if !is_fixed || !self.kernel.values[result].is_scalar() {
            return None;
        }
        let index = access.index.iter().map(|index| match index {
            AxisIndex::At(at) => Some(self.form(*at)),
            AxisIndex::Range { .. }
            | AxisIndex::Gather(_)
            | AxisIndex::Along(_)
            | AxisIndex::New => None,
        });
        Some(((param, index.collect::<Option<_>>()?), access.axes.clone()))
    }

    /// What a symbol is a digit of, the divisor, and whether it is the quotient.
    pub(in crate::verify) fn digit(&self, symbol: Symbol) -> Option<(&Form, i128, bool)> {
        let quotient = self.alike.quotient_of.get(&symbol).map(|of| (of, true));
        let digit = quotient.or_else(|| Some((self.alike.remainder_of.get(&symbol)?, false)));
        digit.map(|((number, divisor), is_quotient)| (number, *divisor, is_quotient))
    }

    /// True for the quotient or the remainder of a number that `cta` alone makes.
    pub(in crate::verify) fn is_digit_of_cta(&self, symbol: Symbol) -> bool {
        let of = self.alike.quotient_of.get(&symbol).or(self.alike.remainder_of.get(&symbol));
        of.is_some_and(|(number, _)| {
            number.terms.keys().all(|&symbol| match symbol {
                Symbol::Cta(_) => true,
                symbol => self.is_digit_of_cta(symbol),
            })
        })
    }

    /// The axis of the grid and the divisor, where a symbol is the quotient of an index of the CTA.
    pub(in crate::verify) fn quotient_of_cta(&self, symbol: Symbol) -> Option<(u8, i128)> {
        let (number, divisor) = self.alike.quotient_of.get(&symbol)?;
        match number.as_symbol() {
            Some(Symbol::Cta(axis)) => Some((axis, *divisor)),
            Some(_) | None => None,
        }
    }

    /// The value of a form in one CTA, but for what scalars add, where it follows from `cta`.
    fn on_cta(&self, form: &Form, cta: [u32; 3]) -> Option<i128> {
        let mut sum = form.constant;
        for (&symbol, &factor) in &form.terms {
            let divided = |of: &BTreeMap<Symbol, Division>| {
                let (number, divisor) = of.get(&symbol)?;
                let is_shared = number.terms.keys().any(|s| matches!(s, Symbol::Param(_)));
                let number = self.on_cta(number, cta).filter(|_| !is_shared)?;
                Some((number, *divisor))
            };
            let value = match symbol {
                Symbol::Cta(axis) => i128::from(cta[usize::from(axis)]),
                Symbol::Param(_) => 0,
                Symbol::Value(_) => match divided(&self.alike.quotient_of) {
                    Some((number, divisor)) => number / divisor,
                    None => {
                        let (number, divisor) = divided(&self.alike.remainder_of)?;
                        number % divisor
                    }
                },
                Symbol::Cluster(axis) => self.in_cluster(axis, cta),
                Symbol::Other(_) | Symbol::Earlier(_) | Symbol::Rounds(_) => return None,
            };
            sum = sum.checked_add(factor.checked_mul(value)?)?;
        }
        Some(sum)
    }

    /// The place of a CTA in its cluster.
    fn in_cluster(&self, axis: ClusterAxis, cta: [u32; 3]) -> i128 {
        let cluster = self.kernel.launch.cluster.map(|extent| extent.max(1));
        let [x, y, z] = [0, 1, 2].map(|axis| i128::from(cta[axis] % cluster[axis]));
        match axis {
            ClusterAxis::Along(0) => x,
            ClusterAxis::Along(1) => y,
            ClusterAxis::Along(_) => z,
            ClusterAxis::Rank => x + i128::from(cluster[0]) * (y + i128::from(cluster[1]) * z),
        }
    }

    /// True where no two CTAs have a position in common: of each axis of a buffer the first position and how many there
    /// are. What `cta` says of them is computed for each CTA; the rest is any number of its interval.
    pub(in crate::verify) fn are_apart(&self, axes: &[(Form, u32)]) -> bool {
        let [x, y, z] = self.kernel.launch.grid;
        if u64::from(x) * u64::from(y) * u64::from(z) > MAX_BOXES {
            return false;
        }
        let no_cta = [0; 3];
        let mut parts = Vec::new();
        for (start, len) in axes {
            let (mut of_cta, mut rest) = (Form::constant(start.constant), Form::default());
            for (&symbol, &factor) in &start.terms {
                let of =
                    self.on_cta(&Form::symbol(symbol), no_cta).map_or(&mut rest, |_| &mut of_cta);
                of.terms.insert(symbol, factor);
            }
            let Interval { lo: Some(lo), hi: Some(hi) } = self.interval(&rest) else { continue };
            parts.push((of_cta, lo, hi.saturating_add(i128::from(*len) - 1)));
        }
        let place = |cta: [u32; 3]| -> Option<Vec<(i128, i128)>> {
            let along = |(form, lo, hi): &(Form, i128, i128)| {
                let at = self.on_cta(form, cta)?;
                Some((at.checked_add(*lo)?, at.checked_add(*hi)?))
            };
            parts.iter().map(along).collect()
        };
        let ctas = (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z])));
        let Some(places) = ctas.map(place).collect::<Option<Vec<_>>>() else { return false };
        let meet = |a: &[(i128, i128)], b: &[(i128, i128)]| {
            a.iter().zip(b).all(|((lo, hi), (low, high))| lo <= high && low <= hi)
        };
        places.iter().enumerate().all(|(n, a)| places[..n].iter().all(|b| !meet(a, b)))
    }

    /// True where the place in a cluster is a part of a form, or of a number that it has a digit of.
    fn is_of_cluster(&self, form: &Form) -> bool {
        form.terms.keys().any(|symbol| {
            let of = self.alike.quotient_of.get(symbol).or(self.alike.remainder_of.get(symbol));
            matches!(symbol, Symbol::Cluster(_))
                || of.is_some_and(|(number, _)| self.is_of_cluster(number))
        })
    }

    /// For each value of a form that follows from `cta`, how many CTAs have it.
    pub(in crate::verify) fn shares(&self, form: &Form) -> Option<Vec<u64>> {
        if self.is_of_cluster(form) {
            return None;
        }
        let [x, y, z] = self.kernel.launch.grid;
        if u64::from(x) * u64::from(y) * u64::from(z) > MAX_CTAS {
            return None;
        }
        let mut found: BTreeMap<i128, u64> = BTreeMap::new();
        for cta in (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z]))) {
            *found.entry(self.on_cta(form, cta)?).or_default() += 1;
        }
        Some(found.into_values().collect())
    }

    /// A slot of a ring: `t % n` is slot `t` where the ring has `n` slots, or `n` is a multiple of them.
    pub(in crate::verify) fn on_ring(&self, slot: Form, tile: SmemId) -> Form {
        let slots = i128::from(self.kernel.smem[tile].slots.max(1));
        let of = slot.terms.iter().find_map(|(symbol, &factor)| {
            let (number, divisor) = self.alike.remainder_of.get(symbol)?;
            let fits = divisor % slots == 0;
            fits.then_some((*symbol, factor, number.clone()))
        });
        let Some((symbol, factor, number)) = of else { return slot };
        let replaced =
            slot.plus(-factor, &Form::symbol(symbol)).and_then(|rest| rest.plus(factor, &number));
        replaced.unwrap_or(slot)
    }

    /// Sums of positions, each a quotient and its remainder, in which they are the number again. One an axis are the
    /// starts, where they are known, with the number of positions.
    pub(in crate::verify) fn joined(&self, starts: &[Option<(Form, u32)>]) -> Vec<Joint> {
        if self.alike.remainder_of.is_empty() {
            return Vec::new();
        }
        let single = |(axis, start): (usize, &Option<(Form, u32)>)| {
            let (start, len) = start.clone()?;
            Some(Joint { of: vec![(axis, 1)], start, len })
        };
        let mut all: Vec<Joint> = starts.iter().enumerate().filter_map(single).collect();
        let alone = all.len();
        let mut at = 0;
        while at < all.len() && all.len() < alone + MAX_JOINTS {
            let found: Vec<Joint> = all
                .iter()
                .flat_map(|other| [self.join(&all[at], other), self.join(other, &all[at])])
                .flatten()
                .collect();
            for joint in found {
                if !all.iter().any(|known| known.of == joint.of) {
                    all.push(joint);
                }
            }
            at += 1;
        }
        all.split_off(alone)
    }

    /// One that starts at a remainder and one that starts at its quotient.
    fn join(&self, low: &Joint, high: &Joint) -> Option<Joint> {
        let is_apart =
            low.of.iter().all(|(axis, _)| high.of.iter().all(|(other, _)| axis != other));
        if !is_apart {
            return None;
        }
        low.start.terms.iter().find_map(|(&remainder, &g)| {
            let division = self.alike.remainder_of.get(&remainder)?;
            let quotient = self.alike.quotient(division)?;
            let &f = high.start.terms.get(&quotient)?;
            let (number, divisor) = division;
            let step = divisor.checked_mul(g)?;
            if f <= 0 || g <= 0 {
                return None;
            }
            let common = gcd(f, step);
            let (m, n) = (f / common, step / common);
            let of_number = m.checked_mul(g)?;
            let start = Form::default()
                .plus(m, &low.start)?
                .plus(n, &high.start)?
                .plus(-of_number, &Form::symbol(remainder))?
                .plus(-n.checked_mul(f)?, &Form::symbol(quotient))?
                .plus(of_number, number)?;
            low.plus((m, high, n), start)
        })
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}
