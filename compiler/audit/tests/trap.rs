//! The trap: thread 0 spins on a flag, a barrier lets all threads pass, and all read what the flag
//! guards by non-coherent loads. The assembler moves such a read above the spin.
//!
//! Without the audit these tests fail: they ask for its findings and for both places in the machine code.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use kernel_audit::{AssembleOptions, Code, Toolchain, Verdict};
use support::{audit, text, tools};

const FILE: &str = "flag_then_barrier_trap.ptx";
const TARGET: &str = "sm_100a";

/// Address and text of the machine instructions of a kernel, as the disassembler prints them.
fn machine_code(kernel: &str) -> Vec<(String, String)> {
    let tools = tools();
    let options = AssembleOptions { target: TARGET.to_owned(), line_info: false };
    let cubin = tools.assemble(&text("basic", FILE), &options).unwrap();
    let listing = tools.disassemble(&cubin).unwrap();
    let start = listing.find(&format!(".text.{kernel}:")).unwrap();
    let body = &listing[start..];
    let body = &body[..body.find("//-----").unwrap_or(body.len())];
    body.lines()
        .filter_map(|line| {
            let (address, text) = line.trim().strip_prefix("/*")?.split_once("*/")?;
            Some((format!("0x{address}"), text.trim().to_owned()))
        })
        .collect()
}

#[test]
fn the_read_stands_above_the_spin_and_the_audit_names_both() {
    let code = machine_code("k3");
    let place = |part: &str| code.iter().position(|(_, text)| text.contains(part)).unwrap();
    let read = place("+0x200]");
    let spin = place("LDG.E.STRONG.SYS");
    let barrier = place("BAR.SYNC");
    assert!(code[read].1.starts_with("LDG.E.CONSTANT"), "{}", code[read].1);
    assert!(read < spin && spin < barrier, "ptxas left the read in its place: {code:#?}");

    let report = audit(&text("basic", FILE), TARGET, &[], &[], Some(&tools()));
    assert_eq!(report.verdict, Verdict::Findings);
    let moved: Vec<_> = report
        .findings
        .iter()
        .filter(|item| item.kernel == "k3" && item.code == Code::Moved)
        .collect();
    assert_eq!(moved.len(), 1, "{}", report.to_text(FILE));
    let sass = moved[0].sass.as_ref().unwrap();
    assert_eq!(sass.load, code[read].0);
    assert_eq!(sass.wait.as_ref(), Some(&code[spin].0));
    assert_eq!(moved[0].param.as_deref(), Some("x"));
    let ptx = moved[0].ptx.as_ref().unwrap();
    assert_eq!((ptx.line, ptx.text.as_str()), (57, "ld.global.nc.f32 %f2, [%rd6+512];"));
    let wait = moved[0].wait.as_ref().unwrap();
    assert_eq!((wait.line, wait.text.as_str()), (52, "ld.acquire.sys.global.b32 %r2, [%rd2];"));
}

#[test]
fn the_other_kernels_read_after_their_waits() {
    let report = audit(&text("basic", FILE), TARGET, &[], &[], Some(&tools()));
    for kernel in ["k", "k2"] {
        let of_kernel: Vec<_> =
            report.findings.iter().filter(|item| item.kernel == kernel).collect();
        assert_eq!(of_kernel.len(), 2, "{}", report.to_text(FILE));
        assert!(of_kernel.iter().all(|item| item.code == Code::NonCoherent));
    }
}

#[test]
fn static_data_may_be_read_so_and_the_move_is_a_note() {
    let names = vec!["x".to_owned()];
    let report = audit(&text("basic", FILE), TARGET, &names, &[], Some(&tools()));
    assert_eq!(report.verdict, Verdict::Clean, "{}", report.to_text(FILE));
    let moved = |item: &&kernel_audit::Item| item.code == Code::Moved && item.kernel == "k3";
    assert!(report.notes.iter().any(|item| moved(&item) && item.sass.is_some()));
}
