//! What goes into a bundle, and the audit of what is in one.

use std::collections::BTreeSet;
use std::path::Path;

use kernel_abi::Access;
use kernel_abi::bundle::{
    Artefact, AuditVerdict, Bundle, BundleError, KernelHead, KernelRef, LaunchSpec, Maker,
};
use kernel_audit::{Processes, Report, Verdict, check_build, machine_facts};
use kernel_dsl::source::SourceMap;
use kernel_emulator::signature;
use kernel_ir::pipeline::Built;
use kernel_ir::print;
use kernel_ir::sema::{Bindings, KernelTemplate};
use kernel_ir::smem_plan::SmemPlan;

use crate::back_end::{Product, in_parallel};
use crate::cli::{Answer, Format, exit};
use crate::operations::{Operation, described, obligations};
use crate::output;
use crate::package::{Manifest, sha256, traced_roles};
use crate::session::{self, Refusal};

/// What the name of such a file ends with.
pub const ENDING: &str = ".kbundle";

/// What a file of this kind starts with.
pub const MAGIC: &[u8] = b"KBUNDLE";

/// The file of a build: named after its set, otherwise after the file or folder that was built.
pub fn file_name(set: Option<&str>, path: &Path) -> String {
    let stem = set.map(str::to_owned).or_else(|| {
        // The name of `.` is that of the folder it means.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
    });
    format!("{}.kbundle", stem.unwrap_or_else(|| "kernels".to_owned()))
}

/// What a manifest says of the tools.
pub fn maker(manifest: &Manifest) -> Maker {
    Maker {
        kernelc: manifest.kernelc.clone(),
        llvm: manifest.llvm.clone(),
        ptxas: manifest.ptxas.clone(),
        nvdisasm: manifest.nvdisasm.clone(),
    }
}

/// A compiled kernel of the file `file` as a bundle has it.
pub fn artefact(
    sources: &SourceMap,
    name: &str,
    file: &str,
    template: &KernelTemplate,
    bindings: &Bindings,
    built: &Built,
    product: &Product,
) -> Artefact {
    let kernel = &built.kernel;
    let file = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    let head = KernelHead {
        name: name.to_owned(),
        file: file.into_owned(),
        kernel: kernel.name.clone(),
        entry: kernel.export.clone(),
        target: kernel.target.name().to_owned(),
        bindings: kernel.bindings.iter().cloned().collect(),
        named: template.named(bindings).into_iter().collect(),
        signature: signature(kernel),
        launch: LaunchSpec {
            grid: kernel.launch.grid,
            cluster: kernel.launch.cluster,
            threads: kernel.launch.threads(),
            static_shared_bytes: product.usage.shared_bytes,
            dynamic_shared_bytes: built.device.shared_bytes,
            tensor_columns: u32::try_from(SmemPlan::of(kernel).allocated()).unwrap_or(u32::MAX),
            registers: product.usage.registers,
            spill_bytes: product.spill_bytes(),
            launches_next: kernel.launch.pdl.is_producer(),
            resident: kernel.launch.resident,
        },
        audit: match product.report.verdict {
            Verdict::Clean => AuditVerdict::Clean,
            Verdict::Findings => AuditVerdict::Findings,
            Verdict::NotJudged => AuditVerdict::NotJudged,
        },
        kernel_ir: sha256(print::kernel(kernel).as_bytes()),
        device_ir: sha256(print::device(&built.device).as_bytes()),
        waived: output::trusted(sources, built).lines().map(str::to_owned).collect(),
        events: kernel.events.clone(),
        roles: traced_roles(kernel),
    };
    Artefact {
        head,
        cubin: product.cubin.clone(),
        ptx: product.ptx.clone(),
        report: product.report.to_json(),
        operations: serde_json::to_string(&product.operations)
            .expect("an operation has string keys only"),
    }
}

/// A kernel of a bundle, to go into another one.
pub fn copy(kernel: KernelRef<'_>) -> Artefact {
    Artefact {
        head: kernel.head().clone(),
        cubin: kernel.cubin().to_vec(),
        ptx: kernel.ptx().to_owned(),
        report: kernel.report().to_owned(),
        operations: kernel.operations().to_owned(),
    }
}

/// A refusal of a bundle as an answer.
pub fn refusal(format: Format, error: &BundleError) -> Refusal {
    let answer = session::world(format, error.code.name(), &error.to_string());
    let code = if error.code.is_of_the_world() { exit::WORLD } else { exit::FINDINGS };
    Box::new(Answer { code, ..answer })
}

/// Bytes of a tensor map.
const MAP_BYTES: u32 = 128;

/// What the head of a kernel says that its code does not: the code would not run as it is launched.
fn contradiction(kernel: KernelRef<'_>) -> Option<String> {
    let head = kernel.head();
    let Some(facts) = machine_facts(kernel.cubin(), kernel.entry()) else {
        return Some(format!("its machine code has no kernel `{}`", kernel.entry()));
    };
    let number: String = head.target.chars().filter(char::is_ascii_digit).collect();
    if number != facts.architecture.to_string() {
        return Some(format!("its machine code is for sm_{}", facts.architecture));
    }
    let ptx_target = kernel.ptx().lines().find_map(|line| line.trim().strip_prefix(".target "));
    let ptx_target =
        ptx_target.map_or("none", |rest| rest.split(',').next().unwrap_or(rest).trim());
    if ptx_target != head.target {
        return Some(format!("its PTX is for {ptx_target}"));
    }
    let params: Vec<u32> = kernel
        .signature()
        .params
        .iter()
        .map(|param| match param.access {
            Access::Scalar => param.dtype.bits().div_ceil(8),
            Access::Static
            | Access::Input
            | Access::Output
            | Access::Inout
            | Access::Scratch
            | Access::Peer
            | Access::Multicast => 8,
        })
        .chain(kernel.signature().maps.iter().map(|_| MAP_BYTES))
        .collect();
    if params != facts.param_bytes {
        let list = |bytes: &[u32]| bytes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        return Some(format!(
            "its parameters have {} bytes, those of its machine code {}",
            list(&params),
            list(&facts.param_bytes)
        ));
    }
    let launch = &head.launch;
    if let Some(threads) = facts.threads.filter(|&threads| threads != [launch.threads, 1, 1]) {
        return Some(format!("it has {} threads, its machine code {threads:?}", launch.threads));
    }
    facts.registers.filter(|&registers| registers != launch.registers).map(|registers| {
        format!("it has {} registers, its machine code {registers}", launch.registers)
    })
}

/// Audits every kernel of a bundle again, whatever it says of the audit that it was written with.
///
/// # Errors
/// It holds no kernel, what it says of one is not what its code says, or an operation list cannot be read.
pub fn audit(bundle: &Bundle, tools: &Processes) -> Result<Report, String> {
    let mut jobs = Vec::new();
    if bundle.kernels().next().is_none() {
        return Err("there is no kernel in it".to_owned());
    }
    for kernel in bundle.kernels() {
        let name = format!("{}.{}", kernel.head().name, kernel.head().target);
        let operations: Vec<Operation> = serde_json::from_str(kernel.operations())
            .map_err(|error| format!("the operations of `{name}`: {error}"))?;
        if let Some(fault) = contradiction(kernel) {
            return Err(format!("`{name}`: {fault}"));
        }
        jobs.push((name, kernel, operations));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let reports = in_parallel(cores, jobs, |(name, kernel, operations)| {
        let params = described(kernel.signature());
        let duties = obligations(kernel.entry(), params, &operations);
        (name, check_build(kernel.ptx(), kernel.cubin(), &duties, tools))
    });
    let mut whole = Report {
        verdict: Verdict::Clean,
        findings: Vec::new(),
        notes: Vec::new(),
        assumed: Vec::new(),
    };
    let mut assumed = BTreeSet::new();
    for (name, mut report) in reports {
        whole.verdict = match (whole.verdict, report.verdict) {
            (Verdict::Findings, _) | (_, Verdict::Findings) => Verdict::Findings,
            (Verdict::NotJudged, _) | (_, Verdict::NotJudged) => Verdict::NotJudged,
            (Verdict::Clean, Verdict::Clean) => Verdict::Clean,
        };
        for item in report.findings.iter_mut().chain(&mut report.notes) {
            item.kernel.clone_from(&name);
        }
        whole.findings.append(&mut report.findings);
        whole.notes.append(&mut report.notes);
        assumed.extend(report.assumed);
    }
    whole.assumed = assumed.into_iter().collect();
    Ok(whole)
}
