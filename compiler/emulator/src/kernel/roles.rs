//! Roles at kernel level: each runs on a machine of its own, beside the others.

use std::sync::Arc;

use kernel_ir::index::Id;
use kernel_ir::kernel::{RoleId, Stmt, StmtKind, ValueId};
use kernel_ir::ops::Elements;

use super::Machine;
use super::pipes::Post;
use crate::counters::{Event, Printed};
use crate::error::EmuError;
use crate::pipes::{HasRounds, Pipes};
use crate::roles::Clock;
use crate::turns::Seat;
use crate::view::RoleStores;

/// What a role leaves.
struct Done {
    stores: RoleStores,
    clock: Clock,
    printed: Vec<Printed>,
    events: Vec<Event>,
    flops: u64,
    steps: u64,
}

impl<'k> Machine<'k> {
    /// Statements, roles that follow each other directly side by side.
    pub(super) fn block(&mut self, stmts: &'k [Stmt]) -> Result<(), EmuError> {
        let mut rest = stmts;
        while let Some((stmt, after)) = rest.split_first() {
            let roles: Vec<(RoleId, &'k [Stmt])> = rest.iter().map_while(role_of).collect();
            if roles.is_empty() {
                self.stmt(stmt)?;
                rest = after;
            } else {
                rest = &rest[roles.len()..];
                self.region(stmt, &roles)?;
            }
        }
        Ok(())
    }

    fn region(&mut self, first: &Stmt, roles: &[(RoleId, &'k [Stmt])]) -> Result<(), EmuError> {
        let Some(seat) = self.member.seat() else { unreachable!("a CTA with roles takes turns") };
        // Tiles lie in the registers of those that made them; scalars are everybody's.
        let scalars: Vec<(ValueId, Elements)> = self
            .kernel
            .values
            .iter_enumerated()
            .filter(|(_, value)| value.is_scalar())
            .filter_map(|(id, _)| Some((id, self.values[id].as_deref()?.clone())))
            .collect();
        let (kernel, prepared, cta, member) = (self.kernel, self.prepared, self.cta, self.member);
        let (view, clock, meetings) = (&self.view, &self.clock, self.meetings);
        let (steps, max_steps) = (self.steps, self.max_steps);
        let span = first.span;
        let rounds = Arc::clone(member.own().rounds());
        let pipes = &Pipes::new(&kernel.barriers, &kernel.roles, roles.len(), rounds);
        let before = self.view.stores();
        let run = |seat: &Seat<'_>, i: usize| -> Result<_, EmuError> {
            let Some(&(role, body)) = roles.get(i) else {
                return pipes.fly(seat, member, span).map(|()| None);
            };
            let mut machine =
                Machine::new(kernel, prepared, view.launched, member.at(seat), cta, max_steps);
            machine.view = view.begin_role(seat, role, &kernel.roles[role]);
            machine.clock = clock.begin(role.index());
            machine.post = Some(Post { role, pipes });
            (machine.meetings, machine.steps) = (meetings, steps);
            for (id, value) in &scalars {
                machine.set(*id, value.clone());
            }
            machine.block(body)?;
            machine.end_tensor()?;
            machine.departures.end()?;
            let Machine { view, clock, printed, events, flops, steps: after, .. } = machine;
            pipes.leave();
            let (stores, steps) = (view.into_role(), after - steps);
            Ok(Some(Done { stores, clock, printed, events, flops, steps }))
        };
        // Copies land on a part of their own.
        let count = roles.len() + usize::from(!kernel.barriers.is_empty());
        for done in seat.fork(count, span, run)?.into_iter().flatten() {
            self.view.end_role(done.stores, before)?;
            self.clock.end(&done.clock);
            self.printed.extend(done.printed);
            self.events.extend(done.events);
            self.flops += done.flops;
            self.steps += done.steps;
        }
        Ok(())
    }
}

fn role_of(stmt: &Stmt) -> Option<(RoleId, &[Stmt])> {
    if let StmtKind::Role { role, body } = &stmt.kind { Some((*role, body)) } else { None }
}
