//! Foreign code: a kernel whose `__restrict__` pointer is read behind a flag, and the same kernel put right, each from
//! its CUDA source and from the PTX that nvcc 13.5.37 made of it.
//!
//! The sources are compiled where there is an nvcc that works: the one that `KERNELC_NVCC` names, which then has to, or
//! the one in PATH. The kept files are judged in any case.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use kernel_audit::{AssembleOptions, Code, Declarations, Toolchain, Verdict, audit_cubin};
use support::{audit, folder, text, tools};

const TARGET: &str = "sm_90a";
/// The pointer that the flag guards.
const GUARDED: &str = "gather_param_0";

/// A source beside its PTX, and whether its guarded read is non-coherent.
struct Case {
    name: &'static str,
    is_faulty: bool,
}

const CASES: [Case; 2] = [
    Case { name: "nvcc_restrict_flag", is_faulty: true },
    Case { name: "nvcc_acquire_flag", is_faulty: false },
];

#[test]
fn the_kept_files_are_judged() {
    for case in &CASES {
        judge(case, &text("own", &format!("{}.ptx", case.name)));
    }
}

#[test]
fn what_nvcc_makes_now_is_judged() {
    let Some(nvcc) = Nvcc::find() else { return };
    for case in &CASES {
        let kept = text("own", &format!("{}.ptx", case.name));
        let Some(made) = nvcc.compile(case.name) else { return };
        judge(case, &made);
        if release(&made) == release(&kept) {
            assert_eq!(made, kept, "{}: the kept PTX is not that of its source", case.name);
        }
    }
}

/// Judges PTX, and the machine code where there is an assembler.
fn judge(case: &Case, ptx: &str) {
    let guarded = [GUARDED.to_owned()];
    let due = |is_faulty| if is_faulty { Verdict::Findings } else { Verdict::Clean };
    for (mutables, statics, is_due) in [
        (&[][..], &[][..], case.is_faulty),
        (&guarded, &[], case.is_faulty),
        (&[], &guarded, false),
    ] {
        let report = audit(ptx, TARGET, statics, mutables, None);
        assert_eq!(report.verdict, due(is_due), "{}", report.to_text(case.name));
        let coherent = report.findings.iter().all(|item| item.code == Code::NonCoherent);
        assert!(coherent, "{}", report.to_text(case.name));
    }
    let tools = tools();
    if tools.ptxas.is_none() || tools.nvdisasm.is_none() {
        return;
    }
    let report = audit(ptx, TARGET, &[], &[], Some(&tools));
    assert_eq!(report.verdict, due(case.is_faulty), "{}", report.to_text(case.name));
    for item in &report.findings {
        let sass = item.sass.as_ref().unwrap();
        assert_eq!((item.code, item.param.as_deref()), (Code::Moved, Some(GUARDED)));
        assert!(sass.wait.as_ref().is_some_and(|wait| sass.load < *wait), "{sass:?}");
    }
    let options = AssembleOptions { target: TARGET.to_owned(), line_info: false };
    let cubin = tools.assemble(ptx, &options).unwrap();
    let mutable = Declarations::parse(&[], &["#0".to_owned()]).unwrap();
    let report = audit_cubin(&cubin, &mutable, &tools).unwrap();
    assert_eq!(report.verdict, due(case.is_faulty), "{}", report.to_text(case.name));
    assert!(report.findings.iter().all(|item| item.code == Code::NonCoherent));
}

/// What nvcc says of itself in its PTX.
fn release(ptx: &str) -> Option<&str> {
    ptx.lines().find(|line| line.contains("Cuda compilation tools"))
}

/// A compiler of CUDA sources.
struct Nvcc {
    program: PathBuf,
    is_named: bool,
}

impl Nvcc {
    fn find() -> Option<Nvcc> {
        if let Some(program) = std::env::var_os("KERNELC_NVCC") {
            return Some(Nvcc { program: program.into(), is_named: true });
        }
        std::env::split_paths(&std::env::var_os("PATH")?)
            .map(|folder| folder.join("nvcc"))
            .find(|path| path.is_file())
            .map(|program| Nvcc { program, is_named: false })
    }

    /// PTX of a source. One that happens to be in PATH may lack parts, and makes none then.
    fn compile(&self, name: &str) -> Option<String> {
        let output = std::env::temp_dir().join(format!("{name}-{}.ptx", std::process::id()));
        let arch = format!("-arch={TARGET}");
        let made = Command::new(&self.program)
            .args([&arch, "-ptx", "-o"])
            .args([&output, &folder("own").join(format!("{name}.cu"))].map(AsRef::<Path>::as_ref))
            .output();
        let ptx = std::fs::read_to_string(&output).ok();
        if output.is_file() {
            std::fs::remove_file(&output).unwrap();
        }
        let works = made.as_ref().is_ok_and(|made| made.status.success());
        assert!(works || !self.is_named, "{}: {made:?}", self.program.display());
        if works { ptx } else { None }
    }
}
