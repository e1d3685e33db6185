//! Nodes of a plan, written down on a stream.

use std::collections::BTreeMap;

use kernel_abi::plan::{
    Argument, ArgumentValue, BufferId, CheckedPlan, KernelKey, NodeId, NodeOp, Region,
};

use super::stock::Stock;
use super::{CudaOptions, Ranks};
use crate::error::RuntimeError;
use crate::graph::{Begin, Recorder};
use crate::kernel::Kernel;
use crate::launch::{Given, Value};
use crate::memory::{Buffer, POISON};

/// Writes nodes down, in the given order.
pub(super) fn nodes(
    recorder: &mut Recorder<'_>,
    plan: &CheckedPlan,
    kernels: &BTreeMap<KernelKey, Kernel>,
    stock: &Stock,
    options: &CudaOptions,
    nodes: &[NodeId],
    begin: Begin,
) -> Result<(), RuntimeError> {
    for (count, node) in nodes.iter().enumerate() {
        if options.nodes_of_mark > 0 && count > 0 && count.is_multiple_of(options.nodes_of_mark) {
            recorder.mark()?;
        }
        if options.poison {
            for buffer in stock.born_at(node.index()) {
                recorder.fill(&format!("poison of `{}`", buffer.name()), buffer, POISON)?;
            }
        }
        let described = &plan.nodes[node.index()];
        let name = &described.name;
        let there = |buffer: BufferId| {
            stock.buffer(buffer).ok_or(RuntimeError::Absent { buffer: buffer.0, rank: 0 })
        };
        match &described.op {
            NodeOp::Kernel { kernel: key, args } => {
                let kernel = kernels.get(key).ok_or_else(|| no_kernel(key))?;
                let given = values(args, stock, options.rank())?;
                recorder.launch(name, kernel, &given, begin)?;
            }
            NodeOp::AllReduce { src, dst } => {
                // The sum of one addend is that addend; without the others theirs are zero.
                if src != dst {
                    whole(recorder, name, there(*src)?, there(*dst)?)?;
                }
            }
            NodeOp::AllGather { src, dst, rows } => {
                let (src, dst) = (there(*src)?, there(*dst)?);
                match options.ranks {
                    Ranks::One => whole(recorder, name, src, dst)?,
                    Ranks::Alone(rank) => {
                        recorder.fill(name, dst, 0)?;
                        let part = row_bytes(src, *rows)?;
                        let pitch = row_bytes(dst, *rows)?;
                        let at = part * rank as usize;
                        let rows = *rows as usize;
                        recorder.copy_rows(name, (src, 0, part), (dst, at, pitch), part, rows)?;
                    }
                }
            }
            NodeOp::ReduceScatter { src, dst, rows } => {
                let (src, dst) = (there(*src)?, there(*dst)?);
                match options.ranks {
                    Ranks::One => whole(recorder, name, src, dst)?,
                    Ranks::Alone(rank) => {
                        let part = row_bytes(dst, *rows)?;
                        let pitch = row_bytes(src, *rows)?;
                        let at = part * rank as usize;
                        let rows = *rows as usize;
                        recorder.copy_rows(name, (src, at, pitch), (dst, 0, part), part, rows)?;
                    }
                }
            }
            NodeOp::Copy { src, dst } => {
                let (from, to) = (there(src.buffer)?, there(dst.buffer)?);
                let (start, len) = bytes_of(from, src)?;
                let (at, _) = bytes_of(to, dst)?;
                recorder.copy(name, (from, start), (to, at), len)?;
            }
        }
    }
    Ok(())
}

fn no_kernel(key: &KernelKey) -> RuntimeError {
    RuntimeError::Layout { kernel: key.to_string(), fault: "it was not loaded".to_owned() }
}

/// The arguments of a kernel on a rank.
fn values<'a>(
    args: &'a [Argument],
    stock: &'a Stock,
    rank: u32,
) -> Result<Vec<Given<'a>>, RuntimeError> {
    let value = |arg: &'a Argument| {
        let value = match &arg.value {
            ArgumentValue::Buffer { buffer, .. } => {
                let absent = RuntimeError::Absent { buffer: buffer.0, rank };
                Value::Buffer(stock.buffer(*buffer).ok_or(absent)?)
            }
            ArgumentValue::Scalar(value) => Value::Scalar(*value),
            ArgumentValue::Scalars(values) => {
                let absent = RuntimeError::Absent { buffer: 0, rank };
                Value::Scalar(*values.get(rank as usize).ok_or(absent)?)
            }
        };
        Ok((arg.param.as_str(), value))
    };
    args.iter().map(value).collect()
}

fn whole(
    recorder: &mut Recorder<'_>,
    name: &str,
    src: &Buffer,
    dst: &Buffer,
) -> Result<(), RuntimeError> {
    if src.bytes() != dst.bytes() {
        let (wanted, found) = (dst.bytes() as u64, src.bytes() as u64);
        return Err(RuntimeError::Size { buffer: dst.name().to_owned(), wanted, found });
    }
    recorder.copy(name, (src, 0), (dst, 0), src.bytes())
}

/// Bytes of each of `rows` rows.
fn row_bytes(buffer: &Buffer, rows: u64) -> Result<usize, RuntimeError> {
    let rows = usize::try_from(rows).ok().filter(|&rows| rows > 0);
    rows.filter(|&rows| buffer.bytes().is_multiple_of(rows))
        .map(|rows| buffer.bytes() / rows)
        .ok_or_else(|| not_whole(buffer))
}

/// First byte and number of bytes of a region.
fn bytes_of(buffer: &Buffer, region: &Region) -> Result<(usize, usize), RuntimeError> {
    let bits = u64::from(buffer.dtype().bits());
    let bytes = |elements: u64| {
        let bits = elements.checked_mul(bits).filter(|bits| bits.is_multiple_of(8));
        bits.and_then(|bits| usize::try_from(bits / 8).ok()).ok_or_else(|| not_whole(buffer))
    };
    Ok((bytes(region.start)?, bytes(region.len)?))
}

fn not_whole(buffer: &Buffer) -> RuntimeError {
    RuntimeError::Unsupported(format!("pieces of `{}` that are no whole bytes", buffer.name()))
}
