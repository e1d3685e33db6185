//! What each `.loc` line of a kernel's PTX stands for, and what follows from it for the audit.

use kernel_abi::Access;
use kernel_abi::plan::Signature;
use kernel_audit::{Behind, KernelObligations, LoadLine, Obligations};
use kernel_dsl::source::SourceMap;
use kernel_ir::device::{DeviceKernel, OpRole, WaitOrder};
use kernel_ir::index::Id;
use serde::{Deserialize, Serialize};

use crate::waits::Waits;

/// One line of the operation list: what `.loc` line `line` of the PTX stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Line in the list, from 1.
    pub line: u32,
    /// Source file.
    pub file: String,
    /// Line in the source file, from 1.
    pub source_line: u32,
    /// Column there, from 1.
    pub column: u32,
    /// What the operation is to the memory-order checks.
    pub role: Role,
    /// The parameter that it reads or writes.
    pub param: Option<String>,
    /// The side of `grid_wait` that the source has it on.
    pub order: Option<Side>,
    /// Of a load of what other threads may change: the lines of the waits for signals, and of the meetings of the
    /// cluster, that every path to it passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub behind: Vec<u32>,
}

/// What an operation is to the memory-order checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Touches no global memory.
    #[serde(rename = "compute")]
    Compute,
    /// Loads of a parameter.
    #[serde(rename = "load")]
    Load,
    /// Stores to a parameter.
    #[serde(rename = "store")]
    Store,
    /// Atomic operations on a parameter.
    #[serde(rename = "atomic")]
    Update,
    /// A prefetch of a parameter.
    #[serde(rename = "prefetch")]
    Prefetch,
    /// `grid_wait`.
    #[serde(rename = "grid_wait")]
    GridWait,
    /// `grid_launch`.
    #[serde(rename = "grid_launch")]
    GridLaunch,
    /// An arrival at a word of a counter.
    #[serde(rename = "arrive.last")]
    Arrive,
    /// The choice on an arrival.
    #[serde(rename = "last arriver")]
    LastArriver,
    /// A signal to other ranks or CTAs.
    #[serde(rename = "signal")]
    Signal,
    /// A wait for signals of other ranks or CTAs.
    #[serde(rename = "await")]
    Await,
    /// A meeting of the CTAs of a cluster.
    #[serde(rename = "sync cluster")]
    Meeting,
    /// Loads of shared memory behind such a meeting.
    #[serde(rename = "load of shared memory")]
    SharedLoad,
}

/// A side of `grid_wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The kernel does not wait.
    NoWait,
    /// No path has waited.
    Before,
    /// Every path has waited.
    After,
    /// Some paths have waited.
    Mixed,
}

/// The operation list of a kernel.
pub fn operations(sources: &SourceMap, kernel: &DeviceKernel) -> Vec<Operation> {
    let waits = Waits::of(kernel);
    kernel
        .locs
        .iter_enumerated()
        .map(|(id, loc)| {
            let place = sources.line_col(loc.span.file, loc.span.lo);
            let (role, access) = match loc.role {
                OpRole::Compute if waits.meetings.contains(&id) => (Role::Meeting, None),
                OpRole::Compute if waits.behind.contains_key(&id) => (Role::SharedLoad, None),
                OpRole::Compute => (Role::Compute, None),
                OpRole::Load { param, order } => (Role::Load, Some((param, order))),
                OpRole::Store { param, order } => (Role::Store, Some((param, order))),
                OpRole::Update { param, order } => (Role::Update, Some((param, order))),
                OpRole::Prefetch { param, order } => (Role::Prefetch, Some((param, order))),
                OpRole::GridWait => (Role::GridWait, None),
                OpRole::GridLaunch => (Role::GridLaunch, None),
                OpRole::Arrive { .. } => (Role::Arrive, None),
                OpRole::LastArriver { .. } => (Role::LastArriver, None),
                OpRole::Signal { .. } => (Role::Signal, None),
                OpRole::Await { .. } => (Role::Await, None),
            };
            Operation {
                line: id.index() as u32 + 1,
                file: sources.name(loc.span.file).to_owned(),
                source_line: place.line,
                column: place.column,
                role,
                param: access.map(|(param, _)| kernel.params[param].name.clone()),
                order: access.map(|(_, order)| match order {
                    WaitOrder::NoWait => Side::NoWait,
                    WaitOrder::Before => Side::Before,
                    WaitOrder::After => Side::After,
                    WaitOrder::Mixed => Side::Mixed,
                }),
                behind: waits.of_load(id),
            }
        })
        .collect()
}

/// What the audit calls the tensor map of a buffer.
pub fn map_name(buffer: &str) -> String {
    format!("tensor map of {buffer}")
}

/// Name and class of each parameter of the machine code: the described ones, and the tensor maps behind them.
pub fn described(signature: &Signature) -> Vec<(String, Access)> {
    let access = |name: &str| signature.param(name).map_or(Access::Input, |param| param.access);
    let maps = signature.maps.iter().map(|map| (map_name(&map.param), access(&map.param)));
    signature.params.iter().map(|p| (p.name.clone(), p.access)).chain(maps).collect()
}

/// What the audit holds a build to: every load with its side of the wait, every wait and launch.
pub fn obligations(
    entry: &str,
    params: Vec<(String, Access)>,
    operations: &[Operation],
) -> Obligations {
    let mut duties =
        KernelObligations { kernel: entry.to_owned(), params, ..KernelObligations::default() };
    for operation in operations {
        let line = operation.line;
        match operation.role {
            Role::Load => {
                let found = operation
                    .param
                    .as_ref()
                    .and_then(|name| duties.params.iter().position(|(param, _)| param == name));
                let Some(param) = found else { continue };
                if duties.params[param].1 == Access::Multicast {
                    duties.multicast.push(line);
                }
                let fixed = duties.params[param].1 == Access::Static;
                let load = LoadLine { line, param: param as u32 };
                let waits = operation.behind.clone();
                if !waits.is_empty() {
                    duties.behind.push(Behind { line, param: Some(load.param), waits });
                }
                match operation.order {
                    Some(Side::After) if !fixed => duties.after.push(load),
                    Some(Side::Before) if fixed => duties.before.push(load),
                    Some(Side::After | Side::Before | Side::Mixed | Side::NoWait) | None => {}
                }
            }
            Role::GridWait => duties.waits.push(line),
            Role::GridLaunch => duties.launches.push(line),
            Role::Arrive => duties.arrivals.push(line),
            Role::Update => duties.updates.push(line),
            Role::Signal => duties.signals.push(line),
            Role::Await => duties.awaits.push(line),
            Role::Meeting => duties.meetings.push(line),
            Role::SharedLoad => {
                let waits = operation.behind.clone();
                duties.behind.push(Behind { line, param: None, waits });
            }
            Role::Store => {
                let is_multicast = |(name, access): &(String, Access)| {
                    *access == Access::Multicast && operation.param.as_ref() == Some(name)
                };
                duties.multicast.extend(duties.params.iter().any(is_multicast).then_some(line));
            }
            Role::Compute | Role::Prefetch | Role::LastArriver => {}
        }
    }
    Obligations { kernels: vec![duties] }
}
