//! What a distribution may not cost: large loads in small pieces, and too many registers.

use kernel_abi::DType;
use kernel_dsl::diag::{Code, Diagnostic};

use super::MAX_TILE_REGISTERS;
use super::access::{contiguous_axis, contiguous_bytes, tile_axes, widest_vector};
use super::assign::VECTOR_BYTES;
use super::classes::{Classes, MemoryUse, Tile};
use crate::distribution::{Digit, Distribution, LANES};
use crate::kernel::{Kernel, Op, Stmt, StmtKind, Storage};

/// Bytes that each thread must get together from a tile that is large enough.
const MIN_PIECE_BYTES: u64 = 8;

/// Checks every tile after its distribution is written.
pub(super) fn check(kernel: &Kernel, classes: &Classes) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for &tile in &classes.tiles {
        registers(kernel, tile, &mut findings);
    }
    scans(kernel, &kernel.body, &mut findings);
    // A store takes the tile as it is: a transposed store is the way to transpose. `explain` shows its width.
    for used in classes.memory.iter().filter(|used| !used.is_store) {
        pieces(kernel, used, &mut findings);
    }
    findings
}

/// A scan goes along an axis in runs that all threads share.
fn scans(kernel: &Kernel, stmts: &[Stmt], findings: &mut Vec<Diagnostic>) {
    for stmt in stmts {
        if let StmtKind::Def { op: Op::Scan { x, axis, .. }, .. } = &stmt.kind
            && kernel.values[*x].distribution.axes[usize::from(*axis)].inner > 1
        {
            findings.push(
                Diagnostic::error(Code::E0310, "a scan along an axis of sums of a warpgroup")
                    .label(stmt.span, "threads have pieces of this axis in turn")
                    .help("write `scan.add(relayout(x), …)`"),
            );
        }
        for body in stmt.kind.bodies() {
            scans(kernel, body, findings);
        }
    }
}

/// Elements without overflow.
fn element_count(shape: &[u32]) -> u64 {
    shape.iter().fold(1u64, |n, &e| n.saturating_mul(u64::from(e)))
}

/// Registers without overflow.
fn register_count(distribution: &Distribution) -> u64 {
    distribution
        .axes
        .iter()
        .fold(1u64, |n, axis| n.saturating_mul(u64::from(axis.vec) * u64::from(axis.slow())))
}

fn registers(kernel: &Kernel, tile: Tile, findings: &mut Vec<Diagnostic>) {
    let distribution = match tile {
        Tile::Value(id) => &kernel.values[id].distribution,
        Tile::Var(id) => &kernel.vars[id].distribution,
    };
    let count = register_count(distribution);
    if count <= MAX_TILE_REGISTERS {
        return;
    }
    let name = tile.name(kernel).map_or("this tile".to_owned(), |name| format!("`{name}`"));
    let shape: Vec<String> = tile.shape(kernel).iter().map(u32::to_string).collect();
    findings.push(
        Diagnostic::error(
            Code::E0503,
            format!("{name} takes {count} elements of registers in each thread"),
        )
        .label(
            tile.span(kernel),
            format!("[{}] over {} threads", shape.join(", "), distribution.warps * LANES),
        )
        .note(format!("spread as {distribution}; at most {MAX_TILE_REGISTERS} elements are kept"))
        .help(
            "take a smaller tile or more warps; extents that are multiples of 32 and of a power of two \
             spread over all threads",
        ),
    );
}

fn pieces(kernel: &Kernel, used: &MemoryUse, findings: &mut Vec<Diagnostic>) {
    let value = &kernel.values[used.value];
    let Storage::Buffer(param) = used.access.storage else { return };
    let dtype = kernel.params[param].dtype;
    // One scale goes with 16 bytes of elements, so it comes alone by nature.
    if dtype == DType::Ue8m0 {
        return;
    }
    let bytes = element_count(&value.shape).saturating_mul(u64::from(dtype.bits())) / 8;
    if bytes < MIN_PIECE_BYTES * u64::from(value.distribution.warps * LANES) {
        return;
    }
    let axes = tile_axes(&used.access);
    let thread = contiguous_bytes(&axes, &value.distribution, dtype);
    let bits = dtype.bits();
    let possible = u64::from(widest_vector(&axes, VECTOR_BYTES * 8 / bits) * bits / 8);
    if thread >= MIN_PIECE_BYTES.min(possible) {
        return;
    }
    let name = value.name.as_deref().unwrap_or("x");
    let mut diagnostic = Diagnostic::error(
        Code::E0310,
        format!("each thread would load {thread} contiguous bytes at a time"),
    )
    .label(
        used.access.span,
        format!("this load of {bytes} bytes is spread as {}", value.distribution),
    );
    if let Some((other, span)) = cause(kernel, used) {
        let other = other.map_or("this tile".to_owned(), |name| format!("`{name}`"));
        diagnostic = diagnostic.secondary(span, format!("{other} needs that layout"));
    }
    let help =
        format!("write `relayout({name})` where it is used: the load then takes 16 bytes a thread");
    findings.push(diagnostic.help(help));
}

/// The largest tile of the kernel that has the same digits along the contiguous axis.
fn cause(kernel: &Kernel, used: &MemoryUse) -> Option<(Option<String>, kernel_dsl::source::Span)> {
    let axes = tile_axes(&used.access);
    let axis = contiguous_axis(&axes)?;
    let map = kernel.values[used.value].distribution.axes[axis];
    if map.lanes == Digit::NONE && map.warps == Digit::NONE && map.vec == 1 && map.slow() == 1 {
        return None;
    }
    let own = element_count(&kernel.values[used.value].shape);
    let shared = kernel
        .values
        .iter()
        .filter(|v| v.distribution.axes.contains(&map) && element_count(&v.shape) > own);
    let value = shared.max_by_key(|v| (element_count(&v.shape), std::cmp::Reverse(v.span)))?;
    Some((value.name.clone(), value.span))
}
