//! Products of a warpgroup: they read their operands as late as they may, when a `settle` says that they are
//! complete, and their sums hold nothing before.

use std::collections::VecDeque;
use std::rc::Rc;

use kernel_abi::DType;
use kernel_dsl::source::Span;
use kernel_ir::kernel::{Start, TileAccess, VarId, Warpgroup, WarpgroupMma};
use kernel_ir::ops::{Elements, wgmma};

use super::Machine;
use super::access::Tile;
use super::smem::Target;
use crate::error::{EmuError, ErrorKind};

/// A matrix in shared memory.
struct Operand<'k> {
    access: &'k TileAccess,
    slot: Target,
    tile: Tile,
    /// What would have been read when the product started.
    seen: Elements,
}

/// A product under way.
struct Product<'k> {
    mma: &'k WarpgroupMma,
    /// The sums start from zero.
    from_zero: bool,
    /// Those in shared memory.
    operands: Vec<Operand<'k>>,
    /// The left one, where it is in registers.
    left: Option<Rc<Elements>>,
    span: Span,
}

/// The products of a CTA.
#[derive(Default)]
pub(super) struct Products<'k> {
    open: Vec<Product<'k>>,
    /// Closed groups, oldest first.
    groups: VecDeque<Vec<Product<'k>>>,
}

impl Products<'_> {
    /// The product that may still add to a tile.
    fn under_way(&self, var: VarId, slot: u32) -> Option<Span> {
        let mut all = self.groups.iter().flatten().chain(&self.open);
        all.find(|p| (p.mma.var, p.mma.slot) == (var, slot)).map(|p| p.span)
    }
}

impl<'k> Machine<'k> {
    /// An error where a product may still add to the tile.
    pub(super) fn check_sums(&self, var: VarId, slot: u32, span: Span) -> Result<(), EmuError> {
        let Some(product) = self.products.under_way(var, slot) else { return Ok(()) };
        let name = &self.kernel.vars[var].name;
        let message = format!("use of `{name}` while a product may still add to it");
        Err(EmuError::new(ErrorKind::Poison, span, message).other(product, "the product"))
    }

    pub(super) fn warpgroup(&mut self, op: &'k Warpgroup, span: Span) -> Result<(), EmuError> {
        match op {
            Warpgroup::Mma(mma) => {
                let operands =
                    mma.reads().map(|access| self.operand(access)).collect::<Result<_, _>>()?;
                let left = mma.left_value().map(|value| self.value(value));
                let from_zero = match mma.start {
                    Start::Sums => false,
                    Start::Zero => true,
                    Start::When(cond) => self.code(cond) == 0,
                };
                self.products.open.push(Product { mma, from_zero, operands, left, span });
            }
            Warpgroup::Commit => {
                let group = std::mem::take(&mut self.products.open);
                self.products.groups.push_back(group);
            }
            Warpgroup::Settle { pending, .. } => {
                while self.products.groups.len() > *pending as usize {
                    for product in self.products.groups.pop_front().into_iter().flatten() {
                        self.complete(&product)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn operand(&mut self, access: &'k TileAccess) -> Result<Operand<'k>, EmuError> {
        let tile = self.resolve(access, "read by a product")?;
        let Some(slot) = self.slot_of(access.storage, access.span)? else {
            unreachable!("operands of a product lie in shared memory")
        };
        let seen = Elements::new(self.kernel.dtype_of(access.storage));
        let mut operand = Operand { access, slot, tile, seen };
        operand.seen = self.read_operand(&operand)?;
        Ok(operand)
    }

    fn read_operand(&self, operand: &Operand<'k>) -> Result<Elements, EmuError> {
        let Operand { access, slot, tile, seen } = operand;
        let len = tile.shape().iter().map(|&e| e as usize).product();
        let mut elements = Elements::splat(seen.dtype(), 0, len);
        self.load_slot(*slot, access, tile, &mut elements)?;
        Ok(elements)
    }

    fn complete(&mut self, product: &Product<'k>) -> Result<(), EmuError> {
        let Product { mma, from_zero, operands, left, span } = product;
        for operand in operands {
            if self.read_operand(operand)? != operand.seen {
                let name = self.kernel.name_of(operand.access.storage);
                let message = format!("`{name}` is written while a product may still read it");
                return Err(EmuError::new(ErrorKind::SharedRace, operand.access.span, message)
                    .other(*span, "the product"));
            }
        }
        let shape = &self.kernel.vars[mma.var].shape;
        let (rows, columns) = (shape[0] as usize, shape[1] as usize);
        let mut sums = if *from_zero {
            vec![0.0; rows * columns]
        } else {
            let content = self.vars[mma.var][mma.slot as usize].as_ref();
            content.ok_or_else(|| self.unassigned(mma.var, mma.slot, *span))?.to_f32()
        };
        let left = left.as_deref().or(operands.first().map(|operand| &operand.seen));
        let right = operands.last().map(|operand| wgmma::factors(&operand.seen));
        let (Some(a), Some(mut b)) = (left.map(wgmma::factors), right) else {
            unreachable!("the right operand lies in shared memory")
        };
        let depth = a.len() / rows;
        if mma.across {
            b = wgmma::transposed(&b, columns);
        }
        wgmma::multiply(&mut sums, columns, &a, &b, depth, mma.atom.depth() as usize);
        self.count_flops(DType::F32, 2 * sums.len() * depth);
        self.vars[mma.var][mma.slot as usize] = Some(Rc::new(Elements::from_f32(&sums)));
        Ok(())
    }
}
