//! Tensor memory: allocation, products that run on their own, and loads.

use super::pipes::{masked, to_all};
use super::{Asm, MEMORY};

/// The CTAs that do something with tensor memory together, as instructions name them.
fn group(pair: bool) -> &'static str {
    if pair { "cta_group::2" } else { "cta_group::1" }
}

/// The first warp allocates columns of tensor memory; their address comes to shared memory.
pub(crate) fn allocate_tensor(columns: u32, pair: bool) -> Asm {
    let group = group(pair);
    let name = format!("tcgen05.alloc.{group}.sync.aligned.shared::cta.b32");
    Asm::effect(&format!("{name} [$0], {columns};"), "l")
}

/// The CTA allocates no more of it, so that others may.
pub(crate) fn allocate_no_more(pair: bool) -> Asm {
    let group = group(pair);
    Asm::effect(&format!("tcgen05.relinquish_alloc_permit.{group}.sync.aligned;"), "")
}

/// The address that the allocation has put into shared memory.
pub(crate) fn tensor_address() -> Asm {
    Asm::effect("ld.shared.b32 $0, [$1];", "=r,l")
}

/// The first warp gives columns of tensor memory back.
pub(crate) fn free_tensor(columns: u32, pair: bool) -> Asm {
    let group = group(pair);
    Asm::effect(&format!("tcgen05.dealloc.{group}.sync.aligned.b32 $0, {columns};"), "r")
}

/// What the thread did in tensor memory comes ahead of what those do whom it meets after.
pub(crate) fn tensor_fence_before() -> Asm {
    Asm::effect("tcgen05.fence::before_thread_sync;", "")
}

/// What those did in tensor memory whom the thread has met comes ahead of what it does after.
pub(crate) fn tensor_fence_after() -> Asm {
    Asm::effect("tcgen05.fence::after_thread_sync;", "")
}

/// A barrier is arrived at when the products are complete that the thread has started: the own one, or that of all CTAs of
/// the cluster.
pub(crate) fn tensor_commit(ctas: Option<u32>, pair: bool) -> Asm {
    let ((all, mask), group) = (to_all(ctas), group(pair));
    let name = format!("tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster");
    Asm::effect(&masked(ctas, &format!("{name}{all}.b64 [$0]{mask};")), "l")
}

/// Starts a product: address of the sums, both descriptors, that of the instruction, and whether it adds. The left operand
/// may be an address in tensor memory.
pub(crate) fn tensor_product(kind: &str, pair: bool, in_tensor: bool) -> Asm {
    let name = format!("tcgen05.mma.{}.kind::{kind}", group(pair));
    let (left, register) = if in_tensor { ("[$1]", "r") } else { ("$1", "l") };
    Asm::effect(&format!("{name} [$0], {left}, $2, $3, $4;"), &format!("r,{register},l,r,b"))
}

/// Writes words to so many columns of the own row at each address, and waits until they are there. Arguments: the
/// addresses, then the words.
pub(crate) fn tensor_store(sizes: &[u32]) -> Asm {
    let mut template = String::new();
    let mut first = sizes.len();
    for (address, size) in sizes.iter().enumerate() {
        let end = first + *size as usize;
        let registers: Vec<String> = (first..end).map(|r| format!("${r}")).collect();
        template += &format!(
            "tcgen05.st.sync.aligned.32x32b.x{size}.b32 [${address}], {{{}}};\n\t",
            registers.join(", ")
        );
        first = end;
    }
    template += "tcgen05.wait::st.sync.aligned;";
    Asm::effect(&template, &vec!["r"; first].join(","))
}

/// Starts a copy of scales to the rows of each warp. Arguments: address and descriptor. It stays ahead of products of the
/// same group alone.
pub(crate) fn tensor_scales(pair: bool) -> Asm {
    let group = group(pair);
    Asm::effect(&format!("tcgen05.cp.{group}.32x128b.warpx4 [$0], $1;"), "r,l")
}

/// Starts a product with so many block scales a row: as [`tensor_product`], and the addresses of both operands' scales.
pub(crate) fn scaled_product(kind: &str, scales: u32, pair: bool) -> Asm {
    let vector = format!("block_scale.scale_vec::{scales}X");
    let name = format!("tcgen05.mma.{}.kind::{kind}.{vector}", group(pair));
    Asm::effect(&format!("{name} [$0], $1, $2, $3, [$5], [$6], $4;"), "r,l,l,r,b,r,r")
}

/// Reads pieces of a shape, so many at each address, and waits. Results: `each` registers a piece. Arguments: the
/// addresses.
pub(crate) fn tensor_load(shape: &str, each: u32, sizes: &[u32]) -> Asm {
    let count: u32 = sizes.iter().sum::<u32>() * each;
    let mut template = String::new();
    let mut first = 0;
    for (i, size) in sizes.iter().enumerate() {
        let end = first + size * each;
        let registers: Vec<String> = (first..end).map(|r| format!("${r}")).collect();
        let address = count as usize + i;
        template += &format!(
            "tcgen05.ld.sync.aligned.{shape}.x{size}.b32 {{{}}}, [${address}];\n\t",
            registers.join(", ")
        );
        first = end;
    }
    template += "tcgen05.wait::ld.sync.aligned;";
    // Results are written while addresses are still to be read.
    let mut constraints: Vec<&str> = (0..count).map(|_| "=&f").collect();
    constraints.extend(sizes.iter().map(|_| "r"));
    constraints.push(MEMORY);
    Asm { template, constraints: constraints.join(","), side_effects: true }
}
