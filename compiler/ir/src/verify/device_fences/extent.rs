//! Which bytes of shared memory an operation of an exchange can touch: intervals of the registers in its addresses.

use crate::device::{
    Address, Arg, DeviceKernel, DeviceOp, DeviceStmt, FragId, MatrixLoad, Place, Special, Vector,
};
use crate::distribution::LANES;
use crate::index::Id;
use crate::kernel::{Literal, RoleId};
use crate::ops::BinaryOp;
use crate::verify::expansion::blocks;

/// The longest chain of operations that is followed.
const MAX_DEPTH: u32 = 64;

/// The definitions of the registers of a kernel.
pub(super) struct Extents<'a> {
    kernel: &'a DeviceKernel,
    defined: Vec<Option<&'a DeviceOp>>,
}

impl<'a> Extents<'a> {
    pub(super) fn of(kernel: &'a DeviceKernel) -> Extents<'a> {
        let mut extents = Extents { kernel, defined: vec![None; kernel.frags.len()] };
        extents.collect(&kernel.body);
        extents
    }

    fn collect(&mut self, stmts: &'a [DeviceStmt]) {
        for stmt in stmts {
            if let Some(dst) = crate::expand::result(&stmt.op)
                && let Some(place) = self.defined.get_mut(dst.index())
            {
                *place = Some(&stmt.op);
            }
            blocks(&stmt.op).into_iter().for_each(|body| self.collect(body));
        }
    }

    /// First byte and the byte behind the last one; all of the shared memory behind the first where that is not known.
    pub(super) fn of_access(&self, op: &DeviceOp, role: Option<RoleId>) -> Option<(i64, i64)> {
        match op {
            DeviceOp::Load { place, vectors, .. } | DeviceOp::Store { place, vectors, .. } => {
                let parts = vectors.iter().map(|vector| {
                    let Vector { len, offset, constant, .. } = *vector;
                    (Address { offset, constant }, len)
                });
                self.region(place, parts, role)
            }
            DeviceOp::LoadMatrices { place, loads: list, .. }
            | DeviceOp::StoreMatrices { place, stores: list, .. } => {
                let parts = list.iter().map(|MatrixLoad { at, .. }| (*at, 8));
                self.region(place, parts, role)
            }
            _ => None,
        }
    }

    fn region(
        &self,
        place: &Place,
        parts: impl Iterator<Item = (Address, u32)>,
        role: Option<RoleId>,
    ) -> Option<(i64, i64)> {
        let Place::Shared { base, dtype } = place else { return None };
        let (base, end) = (i64::from(*base), i64::from(self.kernel.shared_bytes));
        let size = i64::from(dtype.bytes().unwrap_or(1));
        let mut all: Option<(i64, i64)> = None;
        for (at, len) in parts {
            let (lo, hi) = match at.offset {
                None => (0, 0),
                Some((frag, element)) => match self.interval(frag, element, role, MAX_DEPTH) {
                    Some(interval) => interval,
                    None => return Some((base, end)),
                },
            };
            let first = base + (lo + at.constant) * size;
            let last = base + (hi + at.constant + i64::from(len)) * size;
            all = Some(all.map_or((first, last), |(lo, hi)| (lo.min(first), hi.max(last))));
        }
        all
    }

    fn interval(
        &self,
        frag: FragId,
        element: u32,
        role: Option<RoleId>,
        depth: u32,
    ) -> Option<(i64, i64)> {
        let depth = depth.checked_sub(1)?;
        let of = |arg: &Arg| self.interval(arg.frag, arg.element(element), role, depth);
        let count = |n: u32| Some((0, i64::from(n) - 1));
        match (*self.defined.get(frag.index())?)? {
            DeviceOp::Const { values, .. } => {
                let value =
                    if values.len() == 1 { values.first() } else { values.get(element as usize) };
                match value? {
                    Literal::Int(n) => Some((*n, *n)),
                    Literal::Float(_) | Literal::Bool(_) => None,
                }
            }
            DeviceOp::Special { which, .. } => match which {
                Special::Lane => count(LANES),
                Special::Warp => count(self.kernel.launch.warps),
                // In the warps of the role, which alone compute with it.
                Special::WarpFrom(_) => count(self.kernel.roles[role?].warps),
                Special::WarpModulo(warps) => count(*warps),
                Special::CtaIndex(_) | Special::ClusterIndex(_) => None,
            },
            DeviceOp::Copy { x, .. } | DeviceOp::Convert { x, .. } => of(x),
            DeviceOp::Binary { op, a, b, .. } => {
                let (a, b) = (of(a)?, of(b)?);
                binary(*op, a, b)
            }
            _ => None,
        }
    }
}

fn binary(op: BinaryOp, a: (i64, i64), b: (i64, i64)) -> Option<(i64, i64)> {
    let constant = (b.0 == b.1).then_some(b.0);
    let small = |n: i64| (0..32).contains(&n).then_some(n as u32);
    match op {
        BinaryOp::Add => Some((a.0.checked_add(b.0)?, a.1.checked_add(b.1)?)),
        BinaryOp::Sub => Some((a.0.checked_sub(b.1)?, a.1.checked_sub(b.0)?)),
        BinaryOp::Mul => {
            let ends = [a.0.checked_mul(constant?)?, a.1.checked_mul(constant?)?];
            Some((ends[0].min(ends[1]), ends[0].max(ends[1])))
        }
        BinaryOp::Div => {
            let by = constant.filter(|by| *by > 0)?;
            (a.0 >= 0).then(|| (a.0 / by, a.1 / by))
        }
        BinaryOp::Rem => {
            let by = constant.filter(|by| *by > 0)?;
            (a.0 >= 0).then(|| (0, a.1.min(by - 1)))
        }
        BinaryOp::Shr => {
            let by = small(constant?)?;
            (a.0 >= 0).then(|| (a.0 >> by, a.1 >> by))
        }
        BinaryOp::Shl => {
            let by = small(constant?)?;
            Some((a.0.checked_mul(1 << by)?, a.1.checked_mul(1 << by)?))
        }
        BinaryOp::And => {
            let by = constant.filter(|by| *by >= 0)?;
            (a.0 >= 0).then(|| (0, a.1.min(by)))
        }
        BinaryOp::Min => Some((a.0.min(b.0), a.1.min(b.1))),
        BinaryOp::Max => Some((a.0.max(b.0), a.1.max(b.1))),
        BinaryOp::Or | BinaryOp::Xor => {
            // Below the next power of two.
            let most = a.1.max(b.1);
            (a.0 >= 0 && b.0 >= 0 && most < i64::MAX / 4)
                .then(|| (0, (most + 1).unsigned_abs().next_power_of_two() as i64 - 1))
        }
    }
}
