//! Barriers of roles, and copies that run on their own.

use super::{Asm, Words};

/// Starts a copy of so many bytes that counts at a barrier: destination, source, barrier, policy. With a number of CTAs it
/// goes to all of the cluster, each of which counts the bytes.
pub(crate) fn copy_bulk(bytes: u64, policy: bool, ctas: Option<u32>) -> Asm {
    let (hint, tail, inputs) =
        if policy { (".L2::cache_hint", ", $3", "l,l,l,l") } else { ("", "", "l,l,l") };
    let (all, mask) = to_all(ctas);
    let name = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
    Asm::effect(
        &masked(ctas, &format!("{name}{all}{hint} [$0], [$1], {bytes}, [$2]{mask}{tail};")),
        inputs,
    )
}

/// The modifier of a copy to all CTAs of a cluster, and its operand.
pub(super) fn to_all(ctas: Option<u32>) -> (&'static str, &'static str) {
    match ctas {
        Some(_) => (".multicast::cluster", ", ctas"),
        None => ("", ""),
    }
}

/// The instruction with the mask of so many CTAs in a register.
pub(super) fn masked(ctas: Option<u32>, instruction: &str) -> String {
    match ctas {
        Some(ctas) => {
            let mask = (1u32 << ctas.min(16)) - 1;
            format!("{{\n\t.reg .b16 ctas;\n\tmov.b16 ctas, {mask};\n\t{instruction}\n\t}}")
        }
        None => instruction.to_owned(),
    }
}

/// Starts the copy of a box that counts at a barrier: destination, map, its place along each of so many axes, barrier,
/// policy; to one CTA, or to all of the cluster. Of a pair of CTAs the barrier may be the other one's.
pub(crate) fn copy_box(axes: usize, policy: bool, ctas: Option<u32>, pair: bool) -> Asm {
    let places: Vec<String> = (2..axes + 2).map(|i| format!("${i}")).collect();
    let (barrier, places) = (axes + 2, places.join(", "));
    let mut inputs = vec!["l", "l"];
    inputs.extend((0..axes).map(|_| "r"));
    inputs.push("l");
    let (mut hint, mut tail) = ("", String::new());
    if policy {
        (hint, tail) = (".L2::cache_hint", format!(", ${}", axes + 3));
        inputs.push("l");
    }
    let (all, mask) = to_all(ctas);
    let name = "shared::cluster.global.tile.mbarrier::complete_tx::bytes";
    let group = if pair { ".cta_group::2" } else { "" };
    let copy = format!(
        "cp.async.bulk.tensor.{axes}d.{name}{all}{group}{hint} [$0], [$1, {{{places}}}], [${barrier}]{mask}{tail};"
    );
    Asm::effect(&masked(ctas, &copy), &inputs.join(","))
}

/// Starts a copy of so many bytes from shared memory: destination, source, policy.
pub(crate) fn copy_out(bytes: u64, policy: bool) -> Asm {
    let (hint, tail, inputs) =
        if policy { (".L2::cache_hint", ", $2", "l,l,l") } else { ("", "", "l,l") };
    let name = "cp.async.bulk.global.shared::cta.bulk_group";
    Asm::effect(&format!("{name}{hint} [$0], [$1], {bytes}{tail};"), inputs)
}

/// Starts the copy of a box from shared memory: map, its place along each of so many axes, source, policy.
pub(crate) fn box_out(axes: usize, policy: bool) -> Asm {
    let places: Vec<String> = (1..=axes).map(|i| format!("${i}")).collect();
    let (source, places) = (axes + 1, places.join(", "));
    let mut inputs = vec!["l"];
    inputs.extend((0..axes).map(|_| "r"));
    inputs.push("l");
    let (mut hint, mut tail) = ("", String::new());
    if policy {
        (hint, tail) = (".L2::cache_hint", format!(", ${}", axes + 2));
        inputs.push("l");
    }
    let name = "global.shared::cta.tile.bulk_group";
    Asm::effect(
        &format!(
            "cp.async.bulk.tensor.{axes}d.{name}{hint} [$0, {{{places}}}], [${source}]{tail};"
        ),
        &inputs.join(","),
    )
}

/// Closes the group of the thread's copies out of shared memory.
pub(crate) fn commit_copies_out() -> Asm {
    Asm::effect("cp.async.bulk.commit_group;", "")
}

/// Waits until at most `pending` of those groups are not complete, or still read shared memory.
pub(crate) fn wait_copies_out(pending: u32, reads: bool) -> Asm {
    let read = if reads { ".read" } else { "" };
    Asm::effect(&format!("cp.async.bulk.wait_group{read} {pending};"), "")
}

/// Brings a box into L2: map, its place along each of so many axes, policy.
pub(crate) fn prefetch_box(axes: usize, policy: bool) -> Asm {
    let places: Vec<String> = (1..=axes).map(|i| format!("${i}")).collect();
    let mut inputs = vec!["l"];
    inputs.extend((0..axes).map(|_| "r"));
    let (mut hint, mut tail) = ("", String::new());
    if policy {
        (hint, tail) = (".L2::cache_hint", format!(", ${}", axes + 1));
        inputs.push("l");
    }
    let (name, places) = ("L2.global.tile", places.join(", "));
    Asm::effect(
        &format!("cp.async.bulk.prefetch.tensor.{axes}d.{name}{hint} [$0, {{{places}}}]{tail};"),
        &inputs.join(","),
    )
}

/// What the thread knows to be written in memory of the device comes ahead of what its copies read after.
pub(crate) fn before_reads() -> Asm {
    Asm::effect("fence.proxy.async.global;", "")
}

/// Stores words of 32 or 64 bits into a CTA of the cluster, where they count at a barrier. Arguments: address; barrier; words;
/// predicate.
pub(crate) fn send(words: Words, predicated: bool) -> Asm {
    let Words { count, bits } = words;
    let values: Vec<String> = (0..count).map(|i| format!("${}", 2 + i)).collect();
    let vector = if count > 1 { format!(".v{count}") } else { String::new() };
    let values = if count > 1 { format!("{{{}}}", values.join(", ")) } else { values.concat() };
    let guard = if predicated { format!("@${} ", 2 + count) } else { String::new() };
    let mut constraints = vec!["l", "l"];
    constraints.extend((0..count).map(|_| if bits == 64 { "l" } else { "r" }));
    constraints.extend(predicated.then_some("b"));
    let name = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes";
    Asm::effect(
        &format!("{guard}{name}{vector}.b{bits} [$0], {values}, [$1];"),
        &constraints.join(","),
    )
}

/// A barrier of roles that takes so many arrivals a round.
pub(crate) fn make_barrier(arrivals: u32) -> Asm {
    Asm::effect(&format!("mbarrier.init.shared::cta.b64 [$0], {arrivals};"), "l")
}

/// Barriers that were made before are there for all threads and for copies.
pub(crate) fn barriers_made() -> Asm {
    Asm::effect("fence.mbarrier_init.release.cluster;\n\tfence.proxy.async.shared::cta;", "")
}

/// Waits until the last round of this parity is complete; what came before its arrivals is visible after, from CTAs of
/// the cluster too where they fill it.
pub(crate) fn wait_parity(of_cluster: bool) -> Asm {
    let scope = if of_cluster { "cluster" } else { "cta" };
    Asm::effect(
        &format!(
            "{{\n\t.reg .pred done;\nAGAIN:\n\t\
             mbarrier.try_wait.parity.acquire.{scope}.shared::cta.b64 done, [$0], $1;\n\t\
             @!done bra AGAIN;\n\t}}"
        ),
        "l,r",
    )
}

/// Arrives, and announces bytes that copies will bring.
pub(crate) fn announce(bytes: u32) -> Asm {
    let name = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64";
    Asm::effect(&format!("{name} _, [$0], {bytes};"), "l")
}

/// The first CTA of a cluster arrives, and announces bytes that copies of its CTAs will bring.
pub(crate) fn announce_first(bytes: u32) -> Asm {
    let name = "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64";
    Asm::effect(
        &format!(
            "{{\n\t.reg .pred first;\n\t.reg .b32 rank;\n\tmov.u32 rank, %cluster_ctarank;\n\t\
             setp.eq.u32 first, rank, 0;\n\t@first {name} _, [$0], {bytes};\n\t}}"
        ),
        "l",
    )
}

/// Arrives in all `size` CTAs of the cluster after what the thread did before.
pub(crate) fn arrive_everywhere(size: u32) -> Asm {
    let arrivals: Vec<String> = (0..size)
        .map(|rank| {
            format!(
                "mapa.shared::cluster.u64 there, $0, {rank};\n\t\
                 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];"
            )
        })
        .collect();
    Asm::effect(&format!("{{\n\t.reg .b64 there;\n\t{}\n\t}}", arrivals.join("\n\t")), "l")
}

/// One lane of the warp for each of `size` CTAs of the cluster arrives there after what all lanes did before.
pub(crate) fn arrive_everywhere_once_a_warp(size: u32) -> Asm {
    Asm::effect(
        &format!(
            "{{\n\t.reg .pred own;\n\t.reg .b64 there;\n\tsetp.lt.u32 own, $1, {size};\n\t\
             bar.warp.sync 0xffffffff;\n\t@own mapa.shared::cluster.u64 there, $0, $1;\n\t\
             @own mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n\t}}"
        ),
        "l,r",
    )
}

/// An arrival, in the own CTA or in another one of the cluster.
fn arrival(elsewhere: bool) -> &'static str {
    if elsewhere {
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [$0];"
    } else {
        "mbarrier.arrive.release.cta.shared::cta.b64 _, [$0];"
    }
}

/// Arrives after what the thread did before.
pub(crate) fn arrive(elsewhere: bool) -> Asm {
    Asm::effect(arrival(elsewhere), "l")
}

/// The first lane of the warp arrives after what all lanes did before.
pub(crate) fn arrive_once_a_warp(elsewhere: bool) -> Asm {
    let arrival = arrival(elsewhere);
    Asm::effect(
        &format!(
            "{{\n\t.reg .pred first;\n\tsetp.eq.s32 first, $1, 0;\n\tbar.warp.sync 0xffffffff;\n\t\
             @first {arrival}\n\t}}"
        ),
        "l,r",
    )
}

/// The place in shared memory of the CTA of a rank that lies where an address lies in the own one.
pub(crate) fn map_shared() -> Asm {
    Asm {
        template: "mapa.shared::cluster.u64 $0, $1, $2;".to_owned(),
        constraints: "=l,l,r".to_owned(),
        side_effects: false,
    }
}
