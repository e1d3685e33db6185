//! What the reader and the decider refuse: each code with its place.

use kernel_memory_model::{Limits, Model, decide, parse};

/// The findings of a text, as `line:column code`.
fn found(text: &str) -> Vec<String> {
    let found = parse(text).expect_err("the text is no test");
    found.iter().map(|one| format!("{} {}", one.spot, one.code)).collect()
}

/// A test of one thread with the given block, cell and question.
fn test(block: &str, cell: &str, question: &str) -> String {
    format!("PTX t\n{{\n{block}\n}}\n P0@cta 0,gpu 0 ;\n {cell} ;\n{question}")
}

fn cell(cell: &str) -> Vec<String> {
    found(&test("x=0;", cell, "exists (x == 0)"))
}

#[test]
fn what_is_no_test() {
    assert_eq!(found("AArch64 t\n{ }"), ["1:1 M0101"]);
    assert_eq!(found("PTX t"), ["1:1 M0101"]);
}

#[test]
fn what_does_not_stand_where_it_may() {
    assert_eq!(found("PTX t\n{ x=0"), ["2:5 M0102"]);
    assert_eq!(found("PTX t\n{ x=0; } P0 ;"), ["2:13 M0102"]);
    assert_eq!(found(&test("x 0;", "", "exists (x == 0)")), ["3:3 M0102", "7:9 M0106"]);
    assert_eq!(cell("st.weak x"), ["6:10 M0102"]);
    assert_eq!(cell("st.weak x, 1 2"), ["6:15 M0102"]);
    assert_eq!(cell("ld.weak r0, [r1]"), ["6:15 M0102"]);
    assert_eq!(cell("ld.weak x, x"), ["6:10 M0102"]);
    assert_eq!(found(&test("x=0;", "", "")), ["6:3 M0102"]);
    assert_eq!(found(&test("x=0;", "", "exists (x 0)")), ["7:11 M0102"]);
    assert_eq!(found(&test("x=0;", "", "exists (x == 0")), ["7:14 M0102"]);
    assert_eq!(found(&test("x=0;", "", "final (x == 0)")), ["7:1 M0102"]);
}

#[test]
fn instructions_and_qualifiers_that_there_are_not() {
    assert_eq!(cell("ldx.weak r0, x"), ["6:2 M0103"]);
    assert_eq!(cell("add.weak r0, r0, 1"), ["6:2 M0103"]);
    for wrong in [
        "ld.weak.gpu r0, x",
        "ld.relaxed r0, x",
        "ld.release.gpu r0, x",
        "ld.acquire.gpu.sys r0, x",
        "ld.strong r0, x",
        "st.acquire.gpu x, 1",
        "st.relaxed x, 1",
        "atom.weak.gpu.add r0, x, 1",
        "atom.sc.gpu.add r0, x, 1",
        "atom.relaxed.gpu r0, x, 1",
        "red.relaxed.gpu.exch x, 1",
        "red.relaxed.gpu.cas x, 1, 2",
        "fence.sc",
        "fence.weak.gpu",
        "fence.proxy.memory",
        "membar.all",
        "bar.gpu.sync 0",
        "barrier.cluster.wait.relaxed",
        "tld.weak r0, 1",
    ] {
        assert_eq!(cell(wrong), ["6:2 M0104"], "{wrong}");
    }
}

#[test]
fn columns_that_do_not_fit_the_threads() {
    let text =
        "PTX t\n{ }\n P0@cta 0,gpu 0 | P1@cta 0,gpu 0 ;\n st.weak x, 1 ;\n | | ;\nexists (x == 0)";
    assert_eq!(found(text), ["4:2 M0105", "5:2 M0105"]);
}

#[test]
fn names_that_stand_for_nothing() {
    assert_eq!(cell("beq r0, 0, LC00"), ["6:13 M0106"]);
    assert_eq!(found(&test("x=0;", "", "exists (z == 0)")), ["7:9 M0106"]);
    assert_eq!(found(&test("x=0;", "", "exists (P1:r0 == 0)")), ["7:9 M0106"]);
    assert_eq!(found(&test("P3:r0=0;", "", "exists (P0:r0 == 0)")), ["3:1 M0106"]);
    assert_eq!(found(&test("x=0; y @ l1 aliases x;", "", "exists (x == 0)")), ["3:10 M0106"]);
}

#[test]
fn what_is_declared_twice() {
    assert_eq!(found(&test("x=0; x=1;", "", "exists (x == 0)")), ["3:6 M0107"]);
    assert_eq!(found(&test("P0:r0=0; P0:r0=1;", "", "exists (P0:r0 == 0)")), ["3:10 M0107"]);
    assert_eq!(cell("LC00: ; LC00:"), ["6:10 M0107"]);
    assert_eq!(found(&test("x=0;", "", "exists (x == 0) exists (x == 1)")), ["7:17 M0107"]);
    assert_eq!(
        found("PTX t\n{ }\n P0@cta 0,gpu 0 | P0@cta 0,gpu 0 ;\nexists (0:r0 == 0)"),
        ["3:19 M0107"]
    );
    assert_eq!(found("PTX t\n{ }\n P0@cta 0,cta 0 ;\nexists (0:r0 == 0)"), ["3:15 M0107"]);
    // Saying the same of a register twice is harmless, as some published tests do.
    assert!(parse(&test("P0:r0=0; P0:r0=0;", "", "exists (P0:r0 == 0)")).is_ok());
}

#[test]
fn numbers_that_do_not_fit() {
    assert_eq!(cell("st.weak x, 9223372036854775808"), ["6:13 M0108"]);
    assert_eq!(cell("st.weak x, 0x10000000000000000"), ["6:13 M0108"]);
    assert_eq!(found("PTX t\n{ }\n P0@cta -1,gpu 0 ;\nexists (0:r0 == 0)"), ["3:9 M0108"]);
    assert_eq!(found("PTX t\n{ P4294967296:r0 = 0; }"), ["2:3 M0108", "2:23 M0102"]);
    assert!(parse(&test("x=0xffffffffffffffff;", "", "exists (x == -1)")).is_ok());
}

#[test]
fn tests_that_are_too_large() {
    let deep = format!("exists {}x == 0{}", "(".repeat(100), ")".repeat(100));
    assert_eq!(found(&test("x=0;", "", &deep)), ["7:72 M0109"]);
    let many: String = (0..65).map(|n| format!("x{n}=0;")).collect();
    assert_eq!(found(&test(&many, "", "exists (x0 == 0)")), ["3:375 M0109"]);
    let heads = (0..17).map(|n| format!("P{n}@cta 0,gpu 0")).collect::<Vec<_>>().join("|");
    assert_eq!(found(&format!("PTX t\n{{ x=0; }}\n{heads} ;\nexists (x == 0)")).len(), 1);
    let rows = " st.weak x, 1 ;\n".repeat(65);
    let text = format!("PTX t\n{{ x=0; }}\n P0@cta 0,gpu 0 ;\n{rows}exists (x == 0)");
    assert_eq!(found(&text), ["68:2 M0109"]);
    assert_eq!(found(&format!("PTX t\n{}", " ".repeat(1 << 20))), ["1:1 M0109"]);
}

#[test]
fn aliases_in_a_circle() {
    let block = "x @ generic aliases y; y @ generic aliases x;";
    assert_eq!(found(&test(block, "", "exists (x == 0)")), ["3:1 M0110", "3:24 M0110"]);
}

#[test]
fn a_model_without_proxies_refuses_them() {
    for (block, cell) in [
        ("x=0; y @ generic aliases x;", ""),
        ("x=0;", "fence.proxy.async"),
        ("x=0;", "suld.weak r0, x"),
    ] {
        let test = parse(&test(block, cell, "exists (x == 0)")).unwrap();
        let refused = decide(&test, Model::Ptx60, &Limits::default()).unwrap_err();
        assert_eq!(refused.code.name(), "M0201", "{block} {cell}");
        decide(&test, Model::Ptx75, &Limits::default()).unwrap();
    }
}

#[test]
fn more_executions_than_anybody_looks_at() {
    let code = |text: &str, limits: &Limits| {
        let test = parse(text).unwrap();
        decide(&test, Model::Ptx75, limits).unwrap_err().code.name()
    };
    let head = (0..8).map(|n| format!("P{n}@cta {n},gpu 0")).collect::<Vec<_>>().join("|");
    let row = ["ld.weak r0, x"; 8].join("|") + ";\n" + &["st.weak x, 1"; 8].join("|") + ";\n";
    let text = format!("PTX t\n{{ x=0; }}\n{head};\n{row}{row}exists (P0:r0 == 2)");
    let few = Limits { candidates: 100, ..Limits::default() };
    // No read returns two, which is known before anything is combined.
    assert!(decide(&parse(&text).unwrap(), Model::Ptx75, &few).is_ok());
    assert_eq!(code(&text.replace("P0:r0 == 2", "P0:r0 == 1 /\\ x == 3"), &few), "M0202");
    let loads: String = (0..20).map(|n| format!(" ld.weak r{n}, x ;\n")).collect();
    let text =
        format!("PTX t\n{{ x=0; }}\n P0@cta 0,gpu 0 ;\n st.weak x, 1;\n{loads}exists (x == 0)");
    assert_eq!(code(&text, &Limits::default()), "M0202");
    let updates = " atom.add r0, x, r0 ;\n".repeat(60);
    let text = format!("PTX t\n{{ x=1; }}\n P0@cta 0,gpu 0 ;\n{updates}exists (x == 0)");
    assert_eq!(code(&text, &Limits::default()), "M0202");
    let forever = "PTX t\n{ x=0; }\n P0@cta 0,gpu 0 ;\n LC00: ;\n st.weak x, 1 ;\n goto LC00 ;\nexists (x == 1)";
    let deep = Limits { unroll: 1000, ..Limits::default() };
    assert_eq!(code(forever, &deep), "M0202");
}
