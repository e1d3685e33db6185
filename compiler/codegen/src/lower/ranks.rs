//! Memory and words of other ranks.
//!
//! A `peer` parameter is the address of a table in global memory: the address of the buffer on each rank. It is filled
//! once, when the buffers are made, so that a launch, also one in a graph, has the same eight bytes each time.

use kernel_abi::DType;
use kernel_ir::device::{FragId, Place, Vector};
use kernel_ir::index::Id;
use kernel_ir::kernel::{Param, ParamId, RANK};
use melior::ir::Value;

use super::memory::Region;
use super::{Lowered, Lowering, refuse};
use crate::mnemonic::{self, Space, SyncScope};

/// Bytes of an address.
const ADDRESS_BYTES: i64 = 8;

impl<'c, 'm> Lowering<'c, 'm, '_> {
    /// The own buffer, by the table of a parameter.
    pub(super) fn own_memory(&self, table: Value<'c, 'm>) -> Lowered<Value<'c, 'm>> {
        let found = self.kernel.params.iter_enumerated().find(|(_, param)| param.name == RANK);
        let Some((rank, _)) = found else { return refuse("the kernel does not know its rank") };
        let rank = self.scalar_param(rank)?;
        Ok(self.entry_of(table, rank))
    }

    /// The buffer of a parameter on a rank.
    pub(super) fn memory_of(&self, param: ParamId, rank: Value<'c, 'm>) -> Lowered<Region<'c, 'm>> {
        let (Some(declared), Some(table)) = (self.kernel.params.get(param), self.params.get(param))
        else {
            return refuse(format!("there is no parameter {}", param.index()));
        };
        let base = self.entry_of(*table, rank);
        Ok(Region { space: Space::Global, base, dtype: declared.dtype })
    }

    fn entry_of(&self, table: Value<'c, 'm>, rank: Value<'c, 'm>) -> Value<'c, 'm> {
        let b = &self.build;
        let bytes = b.muli(b.extui(b.types.i64, rank), b.int(b.types.i64, ADDRESS_BYTES));
        let entry = b.offset(table, b.types.i8, bytes);
        b.asm_values(&mnemonic::address_of_rank(), &[entry], b.types.global, 1)[0]
    }

    pub(super) fn signal(
        &self,
        param: ParamId,
        rank: Option<(FragId, u32)>,
        at: &Vector,
        (add, alias): (u32, bool),
    ) -> Lowered<()> {
        let (region, scope) = match rank {
            Some((frag, element)) => {
                (self.memory_of(param, self.element(frag, element)?)?, SyncScope::System)
            }
            None => (self.region(&Place::Global(param))?, SyncScope::Device),
        };
        self.is_word(&region, at)?;
        let add = self.build.int(self.build.types.i32, i64::from(add as i32));
        let address = self.address(&region, at)?;
        self.build.effect(&mnemonic::signal(scope, alias), &[address, add]);
        Ok(())
    }

    pub(super) fn wait_for(
        &self,
        param: ParamId,
        at: &Vector,
        until: FragId,
        alias: bool,
    ) -> Lowered<()> {
        let region = self.region(&Place::Global(param))?;
        self.is_word(&region, at)?;
        let operands = [self.address(&region, at)?, self.element(until, 0)?];
        let is_flag = self.kernel.params.get(param).is_some_and(Param::is_flag);
        let scope = if is_flag { SyncScope::System } else { SyncScope::Device };
        self.build.effect(&mnemonic::wait_for(scope, alias), &operands);
        Ok(())
    }

    fn is_word(&self, region: &Region<'c, 'm>, at: &Vector) -> Lowered<()> {
        if region.dtype == DType::U32 && at.predicate.is_none() && at.len == 1 {
            return Ok(());
        }
        refuse("a flag is a list of u32 words")
    }
}
