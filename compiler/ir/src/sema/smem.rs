//! Tiles in shared memory: `smem s : bf16[64, 576] swizzle b128 align 1024 ring 2;`

use kernel_dsl::ast::{Expr, ExprKind, TileDecl};
use kernel_dsl::diag::{Code, Diagnostic};

use super::limits::{MAX_SMEM_ALIGN, MAX_SMEM_RING};
use super::lower::Lower;
use super::not_built;
use super::report::Outcome;
use super::scope::{Buffer, Entity, Memory};
use crate::kernel::{Extent, Smem, SmemSwizzle, Space, ViewAxis, ViewDigit};

impl<'a> Lower<'a> {
    /// The declaration of a tile in shared memory.
    pub(super) fn smem(&mut self, tile: &'a TileDecl) -> Outcome<()> {
        if let Some((at, what)) = not_built::smem(tile).into_iter().next() {
            return Err(self.not_built(at, what));
        }
        if let Some(init) = &tile.init {
            return Err(self.error(initial_value(init)));
        }
        let (dtype, shape) = self.tile_type(&tile.ty)?;
        if dtype.bytes().is_none() {
            return Err(self.not_built(tile.ty.dtype.span, &format!("{dtype} in shared memory")));
        }
        let elements = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(u64::from(e)));
        let limit = self.target.info().max_shared_bytes;
        if elements.is_none_or(|n| n > u64::from(limit)) {
            return Err(self.error(
                Diagnostic::error(Code::E0503, "a tile that no shared memory holds")
                    .label(tile.ty.span, "too many elements")
                    .note(format!("a CTA has {limit} bytes on {}", self.target)),
            ));
        }
        let slots = match &tile.ring {
            Some(ring) => self.const_extent(ring, "the number of slots", 1, MAX_SMEM_RING)?,
            None => 1,
        };
        let swizzle = match &tile.swizzle {
            Some(mode) => swizzle(mode).map_err(|wrong| self.error(wrong))?,
            None => SmemSwizzle::None,
        };
        let align = match &tile.align {
            Some(bytes) => {
                let align = self.const_extent(bytes, "the alignment", 1, MAX_SMEM_ALIGN)?;
                if !align.is_power_of_two() {
                    return Err(self.error(
                        Diagnostic::error(Code::E0214, format!("an alignment of {align} bytes"))
                            .label(bytes.span, "an alignment is a power of two"),
                    ));
                }
                align.max(swizzle.period())
            }
            None => swizzle.period(),
        };
        let mut stride = 1i64;
        let mut axes = Vec::with_capacity(shape.len());
        for &extent in shape.iter().rev() {
            let digit = ViewDigit { extent: extent.max(1), stride };
            axes.push(ViewAxis { extent: Extent::Const(extent), digits: vec![digit] });
            stride *= i64::from(extent.max(1));
        }
        axes.reverse();
        let id = self.kernel.smem.push(Smem {
            name: tile.name.text.clone(),
            space: Space::Shared,
            dtype,
            shape,
            slots,
            swizzle,
            align,
            folded: false,
            span: tile.name.span,
        });
        let memory = Memory::Smem { tile: id, ringed: tile.ring.is_some() };
        self.frame.define(&tile.name, Entity::Buffer(Buffer::new(memory, axes.into())));
        Ok(())
    }
}

/// The finding for a value that a declaration gives to shared memory.
pub(super) fn initial_value(init: &Expr) -> Diagnostic {
    Diagnostic::error(Code::E0206, "a tile in shared memory starts without a value")
        .label(init.span, "nothing writes it at its declaration")
        .help("write `store value -> s;` and `sync;`")
}

/// The mode after `swizzle`.
pub(super) fn swizzle(mode: &Expr) -> Result<SmemSwizzle, Diagnostic> {
    let name = match &mode.kind {
        ExprKind::Ref(reference) => reference.path.text(),
        _ => String::new(),
    };
    match name.as_str() {
        "none" => Ok(SmemSwizzle::None),
        "b32" => Ok(SmemSwizzle::B32),
        "b64" => Ok(SmemSwizzle::B64),
        "b128" => Ok(SmemSwizzle::B128),
        _ => Err(Diagnostic::error(Code::E0206, "an unknown swizzle")
            .label(mode.span, "a swizzle is `b32`, `b64` or `b128`")),
    }
}
