//! Expansion: kernel level to device level.
//!
//! Assumes a kernel whose tiles are distributed by [`infer`](crate::infer). Guarantees a device kernel that
//! gives the same bits: element-wise operations work on the registers of a thread; loads and stores become
//! vectors as wide as their addresses provably allow; reductions, `argmax` and spread contractions fold within
//! a thread, then over lanes by shuffles, then over warps through shared memory; `relayout` chooses
//! registers, shuffles, or goes through shared memory, whichever is cheapest. Leaves the order of loads, stores and waits alone.
//!
//! Reductions that no statement orders share one exchange through shared memory: pure operations that need
//! the result of a pending one wait in a queue until something that must not wait needs them.

mod banks;
mod builder;
mod cleanup;
mod cluster;
mod copies;
mod elementwise;
mod fences;
mod fold;
mod integers;
mod linear;
mod matrices;
mod memory;
mod mma;
mod notes;
mod outgoing;
mod pipes;
mod prefetch;
mod queue;
mod ranks;
mod rearrange;
mod relayout;
mod roles;
mod scan;
mod shared;
mod statements;
mod tensor;
mod tmem;
mod uses;
mod vectors;
mod warpgroup;
mod words;

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use kernel_abi::DType;
use kernel_dsl::diag::Diagnostic;
use rustc_hash::{FxHashMap, FxHashSet};

use builder::Builder;
use linear::Linear;

pub(crate) use banks::Banks;
pub(crate) use cleanup::{each_read, result};
pub(crate) use notes::{AccessNote, Notes, RelayoutWay};
pub(crate) use uses::each_use;

use crate::device::{DeviceKernel, FragId, OpRole, PlacedBarrier, SlotId, WaitOrder};
use crate::index::IndexVec;
use crate::kernel::{Barrier, BarrierId, Kernel, ParamId, TileAccess, ValueId, VarId, tensor_maps};
use crate::smem_plan::{SmemPlan, over_budget, shared_limit};

/// Expands a kernel; errors name what exceeds the target.
pub fn expand(kernel: &Kernel) -> Result<DeviceKernel, Vec<Diagnostic>> {
    expand_noted(kernel).map(|(device, _)| device)
}

/// Expands a kernel and tells what was decided on the way.
pub(crate) fn expand_noted(kernel: &Kernel) -> Result<(DeviceKernel, Notes), Vec<Diagnostic>> {
    if let Some(found) = over_budget(kernel, 0) {
        return Err(vec![found]);
    }
    let mut expander = Expander::new(kernel);
    expander.make_barriers();
    expander.allocate_tensor();
    // A pair of CTAs that shares products meets for its tensor memory.
    let edges = cluster::Edges::of(kernel);
    let meets = expander.is_of_pair();
    if edges.entry && !meets {
        expander.meet_cluster();
    }
    expander.block(&kernel.body);
    expander.free_tensor();
    if edges.exit && !meets {
        expander.meet_cluster();
    }
    let Expander { mut b, shared, notes, errors, .. } = expander;
    if !errors.is_empty() {
        return Err(errors);
    }
    let body = b.close();
    let mut device = DeviceKernel {
        name: kernel.name.clone(),
        export: kernel.export.clone(),
        target: kernel.target,
        launch: kernel.launch.clone(),
        params: kernel.params.clone(),
        frags: b.frags,
        slots: b.slots,
        roles: kernel.roles.clone(),
        barriers: placed(kernel),
        events: kernel.events.clone(),
        maps: tensor_maps(kernel),
        body,
        shared_bytes: shared.peak(),
        locs: b.locs,
    };
    cleanup::remove_dead(&mut device);
    Ok((device, notes))
}

/// The barriers with their places.
fn placed(kernel: &Kernel) -> IndexVec<BarrierId, PlacedBarrier> {
    let plan = SmemPlan::of(kernel);
    let place = |(id, barrier): (BarrierId, &Barrier)| PlacedBarrier {
        barrier: barrier.clone(),
        base: u32::try_from(plan.barrier(id)).unwrap_or(u32::MAX),
    };
    kernel.barriers.iter_enumerated().map(place).collect()
}

/// What stands for a value of the kernel level.
#[derive(Debug, Clone)]
enum Repr {
    /// An integer scalar, computed when a register with it is needed.
    Int(Linear),
    /// The registers of a thread.
    Frag(FragId),
}

/// The state of one expansion.
struct Expander<'k> {
    kernel: &'k Kernel,
    b: Builder<'k>,
    values: FxHashMap<ValueId, Repr>,
    slots: FxHashMap<(VarId, u32), SlotId>,
    /// What each slot holds, where one assignment decides it.
    contents: FxHashMap<(VarId, u32), FragId>,
    order: WaitOrder,
    shared: shared::Shared,
    smem: SmemPlan,
    /// Loads from shared memory that the tensor core's contractions do themselves.
    read_in_place: FxHashSet<ValueId>,
    in_place: FxHashMap<ValueId, &'k TileAccess>,
    fences: fences::Fences,
    queue: queue::Queue<'k>,
    /// What the role at hand does with tensor memory.
    part: tmem::Part,
    /// Loads from tensor memory that have not settled.
    tensor_loads: Vec<(VarId, u32, TileAccess)>,
    /// Roles of the region that is being expanded.
    region: roles::Region,
    notes: Notes,
    /// Conditions that are arrivals, with their counters.
    arrivals: FxHashMap<ValueId, ParamId>,
    errors: Vec<Diagnostic>,
}

impl<'k> Expander<'k> {
    fn new(kernel: &'k Kernel) -> Expander<'k> {
        let order =
            if kernel.launch.pdl.is_consumer() { WaitOrder::Before } else { WaitOrder::NoWait };
        let smem = SmemPlan::of(kernel);
        let floor = u32::try_from(smem.bytes()).unwrap_or(u32::MAX);
        Expander {
            kernel,
            b: Builder::new(kernel),
            values: FxHashMap::default(),
            slots: FxHashMap::default(),
            contents: FxHashMap::default(),
            order,
            shared: shared::Shared::new(shared_limit(kernel), floor),
            smem,
            read_in_place: mma::read_in_place(kernel),
            in_place: FxHashMap::default(),
            fences: fences::Fences::of(kernel),
            queue: queue::Queue::default(),
            part: tmem::Part::default(),
            tensor_loads: Vec::new(),
            region: roles::Region::new(),
            notes: Notes::default(),
            arrivals: FxHashMap::default(),
            errors: Vec::new(),
        }
    }

    /// The CTAs of a cluster meet where the source does not say so.
    fn meet_cluster(&mut self) {
        self.b.loc = self.b.place(self.kernel.span, OpRole::Compute);
        self.cluster_barrier();
    }

    /// The integer scalar `value` as a form.
    fn integer(&mut self, value: ValueId) -> Linear {
        match self.values.get(&value) {
            Some(Repr::Int(form)) => form.clone(),
            Some(&Repr::Frag(frag)) => Linear::register((frag, 0)),
            None => unreachable!("a value is defined before its uses"),
        }
    }

    /// The registers of `value`.
    fn frag(&mut self, value: ValueId) -> FragId {
        match self.values.get(&value) {
            Some(&Repr::Frag(frag)) => frag,
            Some(Repr::Int(form)) => {
                let form = form.clone();
                let reg = self.b.materialize(&form, self.kernel.values[value].dtype);
                self.b.single(reg)
            }
            None => unreachable!("a value is defined before its uses"),
        }
    }

    /// True for scalars that are handled as forms.
    fn is_form(&self, value: ValueId) -> bool {
        let value = &self.kernel.values[value];
        value.is_scalar() && matches!(value.dtype, DType::I32 | DType::I64)
    }
}
