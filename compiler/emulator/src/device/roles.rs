//! Roles at device level: each runs on a machine of its own with its own threads, beside the others.

use std::rc::Rc;
use std::sync::Arc;

use kernel_ir::device::{DeviceOp, DeviceStmt, FragId};
use kernel_ir::index::Id;
use kernel_ir::kernel::RoleId;
use kernel_ir::ops::Elements;

use super::Machine;
use super::pipes::Post;
use super::registers::Registers;
use crate::counters::{Event, Printed};
use crate::error::EmuError;
use crate::pipes::{HasRounds, Pipes};
use crate::roles::Clock;
use crate::turns::Seat;
use crate::view::RoleStores;

/// Barriers of one role, or of the whole CTA, that intervals have numbers for.
const INTERVALS: u32 = 1 << 27;

/// Registers that a role finds.
struct Found {
    frag: FragId,
    elements: Elements,
    undefined: Option<Vec<bool>>,
}

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
    pub(super) fn block(&mut self, stmts: &'k [DeviceStmt]) -> Result<(), EmuError> {
        let mut rest = stmts;
        while let Some((stmt, after)) = rest.split_first() {
            let roles: Vec<(RoleId, &'k [DeviceStmt])> = rest.iter().map_while(role_of).collect();
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

    fn region(
        &mut self,
        first: &DeviceStmt,
        roles: &[(RoleId, &'k [DeviceStmt])],
    ) -> Result<(), EmuError> {
        self.uniform_only("a role", first.loc)?;
        let Some(seat) = self.member.seat() else { unreachable!("a CTA with roles takes turns") };
        let span = self.span(first.loc);
        let found: Vec<Vec<Found>> = roles.iter().map(|(role, _)| self.found_by(*role)).collect();
        let (kernel, cta, member) = (self.kernel, self.cta, self.member);
        let (view, clock, meetings) = (&self.view, &self.clock, self.meetings);
        let (steps, max_steps) = (self.steps, self.max_steps);
        let barriers = &self.barriers;
        let rounds = Arc::clone(member.own().rounds());
        let pipes = &Pipes::new(barriers, &kernel.roles, roles.len(), rounds);
        let before = self.view.stores();
        let run = |seat: &Seat<'_>, i: usize| -> Result<_, EmuError> {
            let Some(&(role, body)) = roles.get(i) else {
                return pipes.fly(seat, member, span).map(|()| None);
            };
            let declared = &kernel.roles[role];
            let mut machine = Machine::new(kernel, view.launched, member.at(seat), cta, max_steps);
            machine.first_thread = declared.first_thread() as usize;
            machine.threads = declared.active() as usize;
            machine.interval = (role.index() as u32 + 1) * INTERVALS;
            machine.view = view.begin_role(seat, role, declared);
            machine.clock = clock.begin(role.index());
            machine.post = Some(Post { role, pipes });
            (machine.meetings, machine.steps) = (meetings, steps);
            for Found { frag, elements, undefined } in &found[i] {
                let undefined = undefined.clone().map(Rc::new);
                machine.set(*frag, Registers { elements: elements.clone(), undefined });
            }
            let ended = machine.block(body).and_then(|()| machine.end_tensor());
            let ended = ended.and_then(|()| machine.departures.end());
            ended.map_err(|e| e.threads_from(declared.first_thread()))?;
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

    /// The registers that the threads of a role hold when it begins.
    fn found_by(&self, role: RoleId) -> Vec<Found> {
        let role = &self.kernel.roles[role];
        let (first, count) = (role.first_thread() as usize, role.active() as usize);
        let mut all = Vec::new();
        for (frag, registers) in self.frags.iter_enumerated() {
            let Some(registers) = registers.as_deref() else { continue };
            let mut elements = Elements::new(registers.elements.dtype());
            let len = registers.elements.len() / self.threads;
            let mut undefined = registers.undefined.as_ref().map(|_| Vec::new());
            for row in (0..len).map(|i| i * self.threads + first) {
                elements.extend_from(&registers.elements, row..row + count);
                if let (Some(into), Some(from)) = (&mut undefined, &registers.undefined) {
                    into.extend_from_slice(&from[row..row + count]);
                }
            }
            all.push(Found { frag, elements, undefined });
        }
        all
    }
}

fn role_of(stmt: &DeviceStmt) -> Option<(RoleId, &[DeviceStmt])> {
    if let DeviceOp::Role { role, body } = &stmt.op { Some((*role, body)) } else { None }
}
