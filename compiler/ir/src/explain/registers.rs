//! How many registers hold values at once.

use crate::device::{DeviceKernel, DeviceOp, DeviceStmt, FragId};
use crate::expand::{each_read, result};
use crate::index::Id;

/// The greatest number of 32-bit registers whose values are still needed at one place. Constants take none.
pub(super) fn peak(device: &DeviceKernel) -> u32 {
    let mut walk = Walk {
        words: vec![0; device.frags.len()],
        live: vec![false; device.frags.len()],
        now: 0,
        peak: 0,
    };
    for (id, frag) in device.frags.iter_enumerated() {
        walk.words[id.index()] = frag.len.saturating_mul(frag.dtype.bits()).div_ceil(32);
    }
    constants(&device.body, &mut walk.words);
    let slots: u32 =
        device.slots.iter().map(|s| s.len.saturating_mul(s.dtype.bits()).div_ceil(32)).sum();
    walk.block(&device.body);
    walk.peak.saturating_add(slots)
}

fn constants(stmts: &[DeviceStmt], words: &mut [u32]) {
    for stmt in stmts {
        if let DeviceOp::Const { dst, .. } = &stmt.op {
            words[dst.index()] = 0;
        }
        each_block(&stmt.op, |body| constants(body, words));
    }
}

fn each_block<'a>(op: &'a DeviceOp, mut see: impl FnMut(&'a [DeviceStmt])) {
    if let DeviceOp::For { body, .. } | DeviceOp::Repeat { body, .. } = op {
        see(body);
    } else if let DeviceOp::If { then_body, else_body, .. } = op {
        see(then_body);
        see(else_body);
    }
}

struct Walk {
    words: Vec<u32>,
    live: Vec<bool>,
    now: u32,
    peak: u32,
}

impl Walk {
    fn begin(&mut self, frag: FragId) {
        if !std::mem::replace(&mut self.live[frag.index()], true) {
            self.now += self.words[frag.index()];
            self.peak = self.peak.max(self.now);
        }
    }

    fn end(&mut self, frag: FragId) {
        if std::mem::replace(&mut self.live[frag.index()], false) {
            self.now -= self.words[frag.index()];
        }
    }

    /// Walks from the end: a value is live from its last use back to its definition.
    fn block(&mut self, stmts: &[DeviceStmt]) {
        for stmt in stmts.iter().rev() {
            if let DeviceOp::For { body, .. } | DeviceOp::Repeat { body, .. } = &stmt.op {
                // What a round reads from outside lives through all rounds.
                let mut defined = vec![false; self.live.len()];
                mark_defined(body, &mut defined);
                self.outside_reads(body, &defined);
            }
            each_block(&stmt.op, |body| self.block(body));
            if let Some(dst) = result(&stmt.op) {
                self.begin(dst);
                self.end(dst);
            }
            each_read(&stmt.op, |frag| self.begin(frag));
        }
    }

    fn outside_reads(&mut self, stmts: &[DeviceStmt], defined: &[bool]) {
        for stmt in stmts {
            each_read(&stmt.op, |frag| {
                if !defined[frag.index()] {
                    self.begin(frag);
                }
            });
            each_block(&stmt.op, |body| self.outside_reads(body, defined));
        }
    }
}

fn mark_defined(stmts: &[DeviceStmt], defined: &mut [bool]) {
    for stmt in stmts {
        if let Some(dst) = result(&stmt.op) {
            defined[dst.index()] = true;
        }
        each_block(&stmt.op, |body| mark_defined(body, defined));
    }
}
