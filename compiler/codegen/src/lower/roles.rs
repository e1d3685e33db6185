//! Roles: branches on the number of the thread, and their named barriers.

use kernel_ir::device::DeviceStmt;
use kernel_ir::index::Id;
use kernel_ir::kernel::{Role, RoleId};
use melior::dialect::arith::CmpiPredicate;

use super::{Lowered, Lowering, refuse};
use crate::mnemonic;

impl Lowering<'_, '_, '_> {
    fn declared(&self, role: RoleId) -> Lowered<&Role> {
        match self.kernel.roles.get(role) {
            Some(declared) => Ok(declared),
            None => refuse(format!("{role} is not declared")),
        }
    }

    /// Number 0 is the barrier of the whole CTA.
    pub(super) fn role_barrier(&self, role: RoleId) -> Lowered<()> {
        let threads = self.declared(role)?.threads();
        let number = u32::try_from(role.index()).unwrap_or(u32::MAX).saturating_add(1);
        self.build.effect(&mnemonic::named_barrier(number, threads), &[]);
        Ok(())
    }

    /// Threads of other roles go past the statements.
    pub(super) fn role(&mut self, role: RoleId, body: &[DeviceStmt]) -> Lowered<()> {
        let declared = self.declared(role)?;
        let (first, count) = (declared.first_thread(), declared.active());
        let outer = self.build;
        let i32 = outer.types.i32;
        let thread = outer.subi(self.thread_index(), outer.int(i32, first.into()));
        let limit = outer.int(i32, count.into());
        let takes_part = outer.compare_int(CmpiPredicate::Ult, thread, limit);
        let (then_block, else_block) = outer.choice(takes_part);
        self.build = outer.at(then_block);
        self.role = Some(role);
        self.statements(body)?;
        self.role = None;
        self.build.end();
        self.build = outer.at(else_block);
        self.build.end();
        self.build = outer;
        Ok(())
    }
}
