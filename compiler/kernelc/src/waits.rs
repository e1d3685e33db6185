//! The waits for signals and the meetings of a cluster that every path to a load passes.
//!
//! Assumes the structured statements of a device kernel. A loop may run no round, of a choice either arm, and a role is
//! passed by the threads of the others: behind them stand only the waits from before.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::Access;
use kernel_ir::device::{DeviceKernel, DeviceOp, DeviceStmt, LocId, OpRole, Place};
use kernel_ir::index::Id;
use kernel_ir::kernel::ParamId;

/// What the loads of a kernel stand behind.
#[derive(Debug, Default)]
pub struct Waits {
    /// The meetings of the cluster.
    pub meetings: BTreeSet<LocId>,
    /// Loads of shared memory, and of buffers that the kernel or other ranks change, with the waits and meetings ahead;
    /// none where nothing is ahead.
    pub behind: BTreeMap<LocId, BTreeSet<LocId>>,
    /// The buffers that the kernel or other ranks change.
    changed: BTreeSet<ParamId>,
}

impl Waits {
    /// Those of a kernel.
    pub fn of(kernel: &DeviceKernel) -> Waits {
        let changed = kernel.locs.iter().filter_map(|loc| match loc.role {
            OpRole::Store { param, .. } | OpRole::Update { param, .. } => Some(param),
            OpRole::Load { param, .. } => {
                let access = kernel.params[param].access;
                matches!(access, Access::Peer | Access::Multicast).then_some(param)
            }
            OpRole::Compute
            | OpRole::Prefetch { .. }
            | OpRole::GridWait
            | OpRole::GridLaunch
            | OpRole::Arrive { .. }
            | OpRole::LastArriver { .. }
            | OpRole::Signal { .. }
            | OpRole::Await { .. } => None,
        });
        let mut waits = Waits { changed: changed.collect(), ..Waits::default() };
        waits.block(kernel, &kernel.body, BTreeSet::new());
        waits.behind.retain(|_, ahead| !ahead.is_empty());
        waits
    }

    /// The lines of what stands ahead of a load.
    pub fn of_load(&self, load: LocId) -> Vec<u32> {
        let ahead = self.behind.get(&load).into_iter().flatten();
        ahead.map(|wait| wait.index() as u32 + 1).collect()
    }

    /// Walks statements; gives what is passed at their end.
    fn block(
        &mut self,
        kernel: &DeviceKernel,
        stmts: &[DeviceStmt],
        mut passed: BTreeSet<LocId>,
    ) -> BTreeSet<LocId> {
        for stmt in stmts {
            if self.is_load(kernel, stmt) {
                let ahead = self.behind.entry(stmt.loc).or_insert_with(|| passed.clone());
                ahead.retain(|wait| passed.contains(wait));
            }
            if let DeviceOp::ClusterBarrier = stmt.op {
                self.meetings.insert(stmt.loc);
                passed.insert(stmt.loc);
            } else if let DeviceOp::Await { .. } = stmt.op {
                passed.insert(stmt.loc);
            } else if let DeviceOp::Role { body, .. } | DeviceOp::For { body, .. } = &stmt.op {
                self.block(kernel, body, passed.clone());
            } else if let DeviceOp::Repeat { body, .. } = &stmt.op {
                passed = self.block(kernel, body, passed);
            } else if let DeviceOp::If { then_body, else_body, .. } = &stmt.op {
                let one = self.block(kernel, then_body, passed.clone());
                let other = self.block(kernel, else_body, passed);
                // Where some lanes wait for all, the choice is of the wait itself.
                let is_passed = |wait: &&LocId| other.contains(wait) || **wait == stmt.loc;
                passed = one.iter().filter(is_passed).copied().collect();
            }
        }
        passed
    }

    /// Whether a statement reads what others may change.
    fn is_load(&self, kernel: &DeviceKernel, stmt: &DeviceStmt) -> bool {
        let reads_buffer = matches!(kernel.locs[stmt.loc].role, OpRole::Load { param, .. }
            if self.changed.contains(&param));
        match &stmt.op {
            DeviceOp::Load { place: Place::Shared { .. } | Place::Remote { .. }, .. } => {
                kernel.locs[stmt.loc].role == OpRole::Compute
            }
            DeviceOp::Load { .. } | DeviceOp::CopyAsync { .. } | DeviceOp::Pipe(_) => reads_buffer,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use kernel_dsl::source::SourceMap;
    use kernel_ir::pipeline;
    use kernel_ir::sema::Bindings;
    use kernel_ir::target::Target;

    use super::*;

    /// For each load, in order, what it stands behind: `a` for an `await`, `m` for a meeting of the cluster.
    fn behind(text: &str) -> Vec<String> {
        let mut sources = SourceMap::new();
        let root = sources.add("k.tile", format!("target sm_90a;\n{text}"));
        let mut read = |path: &str| Err(format!("there is no file `{path}`"));
        let front = pipeline::front(&mut sources, root, &mut read);
        let built =
            pipeline::build(&front.templates[0], &Bindings::default(), Target::Sm90a).unwrap();
        let waits = Waits::of(&built.device);
        let word = |wait| if waits.meetings.contains(wait) { 'm' } else { 'a' };
        waits.behind.values().map(|ahead| ahead.iter().map(word).collect()).collect()
    }

    /// `y` is loaded behind the first wait, `z` behind both.
    #[test]
    fn a_load_has_every_wait_ahead_of_it() {
        let meet = |word: &str| {
            format!(
                "sync; signal {word}[0] add 1 order release scope gpu;\n\
                 await {word}[0] until (t + 1) * 2 order acquire scope gpu;\n"
            )
        };
        let text = format!(
            "kernel k(input x : gmem f32[2, 4], scratch y : gmem f32[2, 4], scratch z : gmem f32[2, 4], \
             output o : gmem f32[2, 4], inout counter a : gmem u32[1], inout counter b : gmem u32[1], \
             inout epoch seq : gmem u32[2]) launch {{ grid: 2, warps: 1, resident: all }} {{\n\
             let t = load seq[cta.x];\nlet v = load x[cta.x, :];\nstore v -> y[cta.x, :];\n{}\
             let w = load y[1 - cta.x, :];\nstore v + w -> z[cta.x, :];\n{}\
             store load z[1 - cta.x, :] -> o[cta.x, :];\nadvance seq[cta.x];\n}}\n",
            meet("a"),
            meet("b")
        );
        assert_eq!(behind(&text), ["a", "aa"]);
    }

    /// Each meeting ahead counts.
    #[test]
    fn shared_memory_of_the_cluster_is_behind_its_meetings() {
        let text = "kernel k(input x : gmem f32[4], output y : gmem f32[2, 4])\n\
             launch { grid: 2, cluster: 2, warps: 1 } {\nsmem s : f32[4];\nstore load x -> s;\n\
             sync cluster;\nlet v = load s@cta(1 - cluster.rank);\nsync cluster;\n\
             store v + load s -> y[cta.x, :];\n}\n";
        assert_eq!(behind(text), ["m", "mm"]);
    }

    /// Who is in another role has not passed the wait of this one.
    #[test]
    fn a_wait_in_a_role_counts_in_that_role() {
        let text = "kernel k(input x : gmem f32[4], output y : gmem f32[4], peer inbox : sym f32[2, 4] ring 2, \
             peer ready : sym_flag u32[1, 2], inout epoch seq : gmem u32[1])\n\
             launch { grid: 1, warps: 2, world: 2, resident: all } {\n\
             let t = load seq[0];\nlet v = load x[0];\n\
             role receive: warps 0..1 {\n\
             await ready[0, each] until t + 1 order acquire scope sys;\n\
             store load inbox@t[0, 0 .. + 1] -> y[0 .. + 1];\n}\n\
             role send: warps 1..2 elect one {\n\
             for p in 0..2 unroll { store v -> inbox@peer(p)@t[rank, 0]; }\n\
             signal ready@peer(*)[0, rank] add 1 order release scope sys;\n}\n\
             sync;\nstore load inbox@t[1, 0 .. + 1] -> y[1 .. + 1];\nadvance seq[0];\n}\n";
        assert_eq!(behind(text), ["a"]);
    }
}
