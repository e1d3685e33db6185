//! The forms of the dialect: what each instruction means, seen in what it makes possible.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use kernel_memory_model::Verdict::{Allowed, Forbidden, Holds, Violated};
use kernel_memory_model::{Limits, Model, Verdict, decide, parse};

fn verdict(text: &str) -> Verdict {
    let test = parse(text).unwrap_or_else(|found| panic!("{found:?}\n{text}"));
    decide(&test, Model::Ptx75, &Limits::default()).unwrap().verdict
}

/// A test of one thread.
fn alone(block: &str, cells: &[&str], question: &str) -> Verdict {
    let rows: String = cells.iter().map(|cell| format!(" {cell} ;\n")).collect();
    verdict(&format!("PTX t\n{{ {block} }}\n P0@cta 0,gpu 0 ;\n{rows}{question}"))
}

/// A message by the given cells between two threads of one device in different CTAs.
fn message(before: &[&str], after: &[&str], question: &str) -> Verdict {
    between("P0@cta 0,gpu 0 | P1@cta 1,gpu 0", before, after, question)
}

fn between(threads: &str, before: &[&str], after: &[&str], question: &str) -> Verdict {
    let rows: String = (0..before.len().max(after.len()))
        .map(|row| {
            let cell = |cells: &[&str]| cells.get(row).copied().unwrap_or("").to_owned();
            format!(" {} | {} ;\n", cell(before), cell(after))
        })
        .collect();
    verdict(&format!("PTX t\n{{ x=0; y=0; }}\n{threads} ;\n{rows}{question}"))
}

const STALE: &str = "exists (P1:r0 != 0 /\\ P1:r1 == 0)";

#[test]
fn arithmetic_moves_and_branches() {
    let cells = [
        "ld r0, 5",
        "mov r1, r0",
        "add r2, r0, r1",
        "sub r3, r2, 1",
        "mul r4, r3, 2",
        "div r5, r4, 5",
        "and r6, r5, 2",
        "or r7, r5, 4",
        "xor r8, r7, r7",
        "min r9, -1, 1",
        "max r10, -1, 1",
    ];
    let values = [5, 5, 10, 9, 18, 3, 2, 7, 0, -1, 1];
    let ends: Vec<String> =
        values.iter().enumerate().map(|(r, value)| format!("P0:r{r} == {value}")).collect();
    assert_eq!(alone("", &cells, &format!("forall ({})", ends.join(" /\\ "))), Holds);
    for (branch, is_taken) in [
        ("beq r0, 1, LC00", true),
        ("bne r0, 1, LC00", false),
        ("blt r0, 2, LC00", true),
        ("ble r0, 1, LC00", true),
        ("bgt 0, r0, LC00", false),
        ("bge 1, r0, LC00", true),
        ("goto LC00", true),
        ("bra LC00", true),
    ] {
        let end = alone("P0:r0=1;", &[branch, "mov r1, 1", "LC00:"], "forall (P0:r1 == 0)");
        assert_eq!(end == Holds, is_taken, "{branch}");
    }
}

#[test]
fn updates_compute_and_return_the_old_value() {
    for (operation, old, operand, new) in [
        ("add", 6, 3, 9),
        ("sub", 6, 3, 3),
        ("mul", 6, 3, 18),
        ("div", 6, 3, 2),
        ("and", 6, 3, 2),
        ("or", 6, 3, 7),
        ("xor", 6, 3, 5),
        ("min", 6, 3, 3),
        ("max", 6, 3, 6),
        ("exch", 6, 3, 3),
        ("inc", 6, 3, 0),
        ("dec", 6, 3, 3),
    ] {
        let block = format!("x={old};");
        let question = format!("forall (P0:r0 == {old} /\\ x == {new})");
        for order in ["relaxed.gpu.", "acquire.cta.", "release.sys.", "acq_rel.cluster.", ""] {
            let cell = format!("atom.{order}{operation} r0, x, {operand}");
            assert_eq!(alone(&block, &[&cell], &question), Holds, "{cell}");
        }
        if operation != "exch" {
            let cell = format!("red.relaxed.gpu.{operation} x, {operand}");
            assert_eq!(alone(&block, &[&cell], &format!("forall (x == {new})")), Holds, "{cell}");
        }
    }
    assert_eq!(alone("x=1;", &["atom.cas r0, x, 1, 7"], "forall (P0:r0 == 1 /\\ x == 7)"), Holds);
    assert_eq!(alone("x=1;", &["atom.cas r0, x, 2, 7"], "forall (P0:r0 == 1 /\\ x == 1)"), Holds);
}

#[test]
fn strengths_of_loads_and_stores() {
    for (store, load, expected) in [
        ("st.release.gpu y, 1", "ld.acquire.gpu r0, y", Forbidden),
        ("st.release.sys [y], 1", "ld.acquire.sys r0, [y]", Forbidden),
        ("st.release.cluster y, 1", "ld.acquire.cluster r0, y", Allowed),
        ("st.release.cta y, 1", "ld.acquire.gpu r0, y", Allowed),
        ("st.volatile y, 1", "ld.acquire.gpu r0, y", Allowed),
        ("st.mmio.release.sys y, 1", "ld.mmio.acquire.sys r0, y", Forbidden),
        ("st y, 1", "ld.acquire.gpu r0, y", Allowed),
        ("atom.exch.release r2, y, 1", "atom.or.acquire r0, y, 0", Forbidden),
        ("red.acq_rel.gpu.add y, 1", "ld.acquire.gpu r0, y", Forbidden),
        ("atom.acq_rel.gpu.cas r2, y, 0, 1", "atom.acq_rel.gpu.cas r0, y, 1, 2", Forbidden),
    ] {
        let found = message(&["st x, 1", store], &[load, "ld r1, x"], STALE);
        assert_eq!(found, expected, "{store} {load}");
    }
    let clustered = "P0@cta 0,cluster 0,gpu 0 | P1@cta 1,cluster 0,gpu 0";
    let (store, load) = ("st.release.cluster y, 1", "ld.acquire.cluster r0, y");
    assert_eq!(between(clustered, &["st x, 1", store], &[load, "ld r1, x"], STALE), Forbidden);
}

#[test]
fn fences_make_patterns_of_relaxed_accesses() {
    for (release, acquire, expected) in [
        ("fence.acq_rel.gpu", "fence.acq_rel.gpu", Forbidden),
        ("fence.release.gpu", "fence.acquire.gpu", Forbidden),
        ("fence.acquire.gpu", "fence.acquire.gpu", Allowed),
        ("fence.release.gpu", "fence.release.gpu", Allowed),
        ("fence.gpu", "membar.gl", Forbidden),
        ("membar.sys", "fence.sc.sys", Forbidden),
        ("membar.cta", "membar.cta", Allowed),
        ("fence.proxy.generic", "fence.proxy.async.global", Allowed),
    ] {
        let before = ["st.weak x, 1", release, "st.relaxed.gpu y, 1"];
        let found = message(&before, &["ld.volatile r0, y", acquire, "ld r1, x"], STALE);
        assert_eq!(found, expected, "{release} {acquire}");
    }
}

#[test]
fn barriers_meet_by_name_and_by_count() {
    let same = "P0@cta 0,gpu 0 | P1@cta 0,gpu 0";
    let meets = |first: &str, second: &str| {
        between(same, &["st x, 1", first], &[second, "ld r1, x"], "exists (P1:r1 == 0)")
    };
    for (first, second, expected) in [
        ("bar.sync 0", "bar.sync 0", Forbidden),
        ("barrier.cta.sync.aligned 0", "bar.cta.red 0", Forbidden),
        ("bar.arrive 0", "bar.sync 0", Forbidden),
        ("bar.sync 0", "bar.arrive 0", Allowed),
        ("bar.sync 0", "bar.sync 1", Allowed),
        ("bar.sync 0, 1", "bar.sync 0, 2", Allowed),
        ("bar.sync 0, 1, 2", "bar.sync 0, 1, 2", Forbidden),
        // One arrival suffices, so nobody waits for the other.
        ("bar.sync 0, 1, 1", "bar.sync 0, 1, 1", Allowed),
        // Three never come: no execution ends.
        ("bar.sync 0, 1, 3", "bar.sync 0, 1, 3", Forbidden),
    ] {
        assert_eq!(meets(first, second), expected, "{first} {second}");
    }
    // Two uses of one barrier are two meetings.
    let before = ["bar.sync 0", "st x, 1", "bar.sync 0"];
    let after = ["bar.sync 0", "ld r0, x", "bar.sync 0", "ld r1, x"];
    assert_eq!(between(same, &before, &after, "exists (P1:r1 == 0)"), Forbidden);
    assert_eq!(between(same, &before, &after, "exists (P1:r0 == 1)"), Allowed);
    // A thread that takes another way leaves the other one waiting; crossed barriers open for nobody.
    let skips = ["beq r9, 0, LC00", "bar.sync 0", "LC00:"];
    assert_eq!(between(same, &["bar.sync 0"], &skips, "exists (x == 0)"), Forbidden);
    let (one, other) = (["bar.sync 0", "bar.sync 1"], ["bar.sync 1", "bar.sync 0"]);
    assert_eq!(between(same, &one, &other, "exists (x == 0)"), Forbidden);
}

#[test]
fn the_barrier_of_a_cluster_has_two_halves() {
    let clustered = "P0@cta 0,cluster 0,gpu 0 | P1@cta 1,cluster 0,gpu 0";
    let wait = "barrier.cluster.wait.acquire";
    for (before, expected) in [
        (&["st x, 1", "barrier.cluster.arrive", wait][..], Forbidden),
        (&["barrier.cluster.arrive.release", "st x, 1", wait], Allowed),
        (&["st x, 1", "barrier.cluster.arrive.relaxed", wait], Allowed),
        (&["st x, 1", "fence.acq_rel.cluster", "barrier.cluster.arrive.relaxed", wait], Forbidden),
        (&["st x, 1", "fence.acq_rel.cta", "barrier.cluster.arrive.relaxed", wait], Allowed),
    ] {
        let after = ["barrier.cluster.arrive", "barrier.cluster.wait", "ld r1, x"];
        let found = between(clustered, before, &after, "exists (P1:r1 == 0)");
        assert_eq!(found, expected, "{before:?}");
    }
    let apart = "P0@cta 0,gpu 0 | P1@cta 1,gpu 0";
    let before = ["st x, 1", "barrier.cluster.arrive", wait];
    let after = ["barrier.cluster.arrive", wait, "ld r1, x"];
    assert_eq!(between(apart, &before, &after, "exists (P1:r1 == 0)"), Allowed);
}

#[test]
fn proxies_and_aliases() {
    let block = "x=0; a @ generic aliases x; s @ surface aliases x; t @ texture aliases s; c @ constant aliases x;";
    for (cells, expected) in [
        (&["st x, 1", "ld r0, x"][..], Holds),
        (&["st x, 1", "ld r0, a"], Violated),
        (&["st x, 1", "fence.proxy.alias", "ld r0, a"], Holds),
        (&["st x, 1", "tld r0, t"], Violated),
        (&["st x, 1", "fence.proxy.texture", "tld.weak r0, t"], Holds),
        (&["sust.weak s, 1", "fence.proxy.surface", "fence.proxy.texture", "tld r0, t"], Holds),
        (&["sust.weak s, 1", "fence.proxy.texture", "fence.proxy.surface", "tld r0, t"], Violated),
        (&["st a, 1", "fence.proxy.alias", "membar.proxy.constant", "cold.weak r0, c"], Holds),
        (&["suatom.relaxed.gpu.add r1, s, 1", "suld.weak r0, s"], Holds),
        (&["sured.relaxed.gpu.add s, 1", "ld r0, x"], Violated),
        (&["sured.relaxed.gpu.add s, 1", "fence.proxy.surface", "ld r0, x"], Holds),
    ] {
        assert_eq!(alone(block, cells, "forall (P0:r0 == 1)"), expected, "{cells:?}");
    }
    // Aliases are one memory: the last value is that of the location itself.
    assert_eq!(alone(block, &["sust.weak s, 1"], "forall (x == 1 /\\ t == 1 /\\ [a] == 1)"), Holds);
}

#[test]
fn questions_filters_and_addresses() {
    let stores = |question: &str| message(&["st.weak x, 1"], &["st.weak x, 2"], question);
    assert_eq!(stores("exists (x == 1)"), Allowed);
    assert_eq!(stores("~exists (x == 2)"), Allowed);
    assert_eq!(stores("not exists (x == 3)"), Forbidden);
    assert_eq!(stores("forall (x = 1 \\/ x = 2);"), Holds);
    assert_eq!(stores("filter (x > 1) forall (x >= 2 /\\ not (x < 2) /\\ x <= 2)"), Holds);
    assert_eq!(stores("locations [x; 0:r0;] exists (x == 1 /\\ 0:r0 == 0x0)"), Allowed);
    assert_eq!(stores("forall (x <> 0)"), Holds);
    assert_eq!(stores("forall (x == 1 => x <> 2)"), Holds);
    assert_eq!(stores("forall (x <> 2 => x == 1 => false)"), Violated);
    assert_eq!(stores("forall (x == 3 \\/ x == 4 => false)"), Holds);
    assert_eq!(stores("exists (true)"), Allowed);
    assert_eq!(stores("~exists (x == 1 /\\ false)"), Forbidden);
    let pointers = alone(
        "x=0; y=x; P0:r0=&y; P0:r1=y;",
        &["ld r2, y"],
        "forall (P0:r0 == P0:r1 /\\ P0:r0 != y)",
    );
    assert_eq!(pointers, Holds);
}

#[test]
fn loops_run_as_often_as_is_asked() {
    let text = "PTX t\n{ x=0; }\n P0@cta 0,gpu 0 ;\n LC00: ;\n add r0, r0, 1 ;\n bne r0, 3, LC00 ;\nexists (P0:r0 == 3)";
    let test = parse(text).unwrap();
    for (unroll, expected) in [(1, Forbidden), (2, Forbidden), (3, Allowed)] {
        let limits = Limits { unroll, ..Limits::default() };
        assert_eq!(decide(&test, Model::Ptx60, &limits).unwrap().verdict, expected, "{unroll}");
    }
}

#[test]
fn locks_of_three_threads_are_decided_quickly() {
    let lock = |release: &str| {
        let rows = [
            "LC00:",
            "atom.acquire.gpu.cas r0, l, 0, 1",
            "bne r0, 0, LC00",
            "ld.weak r1, x",
            "add r1, r1, 1",
            "st.weak x, r1",
            release,
        ];
        let rows: String = rows.iter().map(|row| format!("{row} | {row} | {row} ;\n")).collect();
        let threads = "P0@cta 0,gpu 0 | P1@cta 1,gpu 0 | P2@cta 2,gpu 0 ;\n";
        verdict(&format!("PTX t\n{{ l=0; x=0; }}\n{threads}{rows}forall (x == 3)"))
    };
    assert_eq!(lock("st.release.gpu l, 0"), Holds);
    assert_eq!(lock("st.relaxed.gpu l, 0"), Violated);
    assert_eq!(lock("st.release.cta l, 0"), Violated);
}
