//! Roles: each is expanded for itself, and those of a region are put side by side.

use super::Expander;
use super::tmem::Part;
use crate::device::{DeviceOp, DeviceStmt, LocId};
use crate::kernel::{RoleId, Stmt, TENSOR_WARPS};

/// The roles of a region that are expanded so far.
pub(super) type Region = Vec<(LocId, RoleId, Vec<DeviceStmt>)>;

impl<'k> Expander<'k> {
    /// Expands the statements of a role, which has its own barrier and its own shared memory for exchanges.
    pub(super) fn role_body(&mut self, role: RoleId, body: &'k [Stmt]) {
        let loc = self.b.loc;
        let (order, contents) = (self.order, self.contents.clone());
        let outer = self.shared.enter_role();
        self.part = Part::of(body);
        let (first, warps) = (self.kernel.roles[role].first, self.kernel.roles[role].warps);
        let is_shifted = !first.is_multiple_of(TENSOR_WARPS) && warps.is_multiple_of(TENSOR_WARPS);
        self.b.reads_tensor = self.part.loads && is_shifted;
        self.b.role = Some(role);
        self.b.open();
        self.block(body);
        self.await_commits(role);
        let stmts = self.b.close();
        self.b.role = None;
        self.b.reads_tensor = false;
        self.part = Part::default();
        self.shared.leave_role(outer);
        self.order = order;
        self.contents = contents;
        self.region.push((loc, role, stmts));
    }

    /// Emits the roles of the region that ends here, one directly after the other.
    pub(super) fn end_region(&mut self) {
        if self.b.role.is_some() {
            return;
        }
        for (loc, role, body) in std::mem::take(&mut self.region) {
            self.b.loc = loc;
            self.b.emit(DeviceOp::Role { role, body });
        }
    }
}
