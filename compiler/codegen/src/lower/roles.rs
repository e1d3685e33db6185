//! Roles: branches on the number of the thread, and their named barriers.

use std::cmp::Ordering;

use kernel_ir::device::DeviceStmt;
use kernel_ir::index::Id;
use kernel_ir::kernel::{Role, RoleId, entry_registers};
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
        let (first, threads, active) =
            (declared.first_thread(), declared.threads(), declared.active());
        let launch = &self.kernel.launch;
        let entry = entry_registers(launch.threads(), launch.min_ctas);
        let budget = declared.registers;
        let all = if budget.is_some() { threads } else { active };
        self.first_threads(first, all, |s| {
            match budget.map(|n| (n, n.cmp(&entry))) {
                Some((n, Ordering::Less)) => s.build.effect(&mnemonic::fewer_registers(n), &[]),
                Some((n, Ordering::Greater)) => s.build.effect(&mnemonic::more_registers(n), &[]),
                Some((_, Ordering::Equal)) | None => {}
            }
            if active == threads || budget.is_none() {
                return s.role_body(role, body);
            }
            s.first_threads(first, active, |s| s.role_body(role, body))
        })
    }

    fn role_body(&mut self, role: RoleId, body: &[DeviceStmt]) -> Lowered<()> {
        self.role = Some(role);
        self.statements(body)?;
        self.role = None;
        Ok(())
    }

    /// Threads from `first` on, `count` of them, run something; others go past.
    fn first_threads(
        &mut self,
        first: u32,
        count: u32,
        run: impl FnOnce(&mut Self) -> Lowered<()>,
    ) -> Lowered<()> {
        let outer = self.build;
        let i32 = outer.types.i32;
        let thread = outer.subi(self.thread_index(), outer.int(i32, first.into()));
        let limit = outer.int(i32, count.into());
        let takes_part = outer.compare_int(CmpiPredicate::Ult, thread, limit);
        let (then_block, else_block) = outer.choice(takes_part);
        self.build = outer.at(then_block);
        run(self)?;
        self.build.end();
        self.build = outer.at(else_block);
        self.build.end();
        self.build = outer;
        Ok(())
    }
}
