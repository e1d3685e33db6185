//! What goes into a bundle, and the audit of what is in one.

use std::collections::BTreeSet;
use std::path::Path;

use kernel_abi::bundle::{
    Artefact, AuditVerdict, Bundle, BundleError, KernelHead, KernelRef, LaunchSpec, Maker,
};
use kernel_audit::{Processes, Report, Verdict, check_build};
use kernel_dsl::source::SourceMap;
use kernel_emulator::signature;
use kernel_ir::pipeline::Built;
use kernel_ir::print;
use kernel_ir::sema::{Bindings, KernelTemplate};

use crate::back_end::{Product, in_parallel};
use crate::cli::Format;
use crate::operations::{Operation, obligations};
use crate::output;
use crate::package::{Manifest, sha256};
use crate::session::{self, Refusal};

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
            registers: product.usage.registers,
            spill_bytes: product.spill_bytes(),
            launches_next: kernel.launch.pdl.is_producer(),
        },
        audit: match product.report.verdict {
            Verdict::Clean => AuditVerdict::Clean,
            Verdict::Findings => AuditVerdict::Findings,
            Verdict::NotJudged => AuditVerdict::NotJudged,
        },
        kernel_ir: sha256(print::kernel(kernel).as_bytes()),
        device_ir: sha256(print::device(&built.device).as_bytes()),
        waived: output::waived(sources, &built.waived).lines().map(str::to_owned).collect(),
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
    Box::new(session::world(format, error.code.name(), &error.to_string()))
}

/// Audits every kernel of a bundle again, whatever it says of the audit that it was written with.
///
/// # Errors
/// The operation list of a kernel cannot be read.
pub fn audit(bundle: &Bundle, tools: &Processes) -> Result<Report, String> {
    let mut jobs = Vec::new();
    for kernel in bundle.kernels() {
        let name = format!("{}.{}", kernel.head().name, kernel.head().target);
        let operations: Vec<Operation> = serde_json::from_str(kernel.operations())
            .map_err(|error| format!("the operations of `{name}`: {error}"))?;
        jobs.push((name, kernel, operations));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let reports = in_parallel(cores, jobs, |(name, kernel, operations)| {
        let params = kernel.signature().params.iter().map(|p| (p.name.clone(), p.access)).collect();
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
