//! What `kernelc build` writes: artefacts, the bundle of them, a manifest, the audit reports, and the stamps that let
//! an unchanged kernel be skipped.
//!
//! Files are staged beside their place and renamed when all are there, the manifest last, so that a full disk
//! or a killed process leaves either the old state or the new one of each file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernel_abi::plan::TensorMapSpec;
use kernel_abi::stored::StoredLayout;
use kernel_abi::whole::{WholeFile, WholeFiles};
use kernel_dsl::source::SourceMap;
use kernel_ir::kernel::{ContractBound, Extent, Kernel, Param};
use kernel_ir::pipeline::Built;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::back_end::Product;
use crate::cli::Format;
use crate::files;
use crate::output;
use crate::session::{self, Refusal};

/// `manifest.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// Version of kernelc.
    pub kernelc: String,
    /// Version of LLVM.
    pub llvm: String,
    /// Version of ptxas.
    pub ptxas: String,
    /// Version of nvdisasm.
    pub nvdisasm: String,
    /// The bundle: all kernels in one file.
    #[serde(default)]
    pub bundle: String,
    /// SHA-256 of the bundle.
    #[serde(default)]
    pub bundle_sha256: String,
    /// One entry an artefact and target, sorted by name and target.
    pub kernels: Vec<KernelEntry>,
}

/// The format number that this version writes.
pub const MANIFEST_FORMAT: u32 = 1;

/// One compiled kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KernelEntry {
    /// Name of the artefact.
    pub name: String,
    /// Name of the kernel in its source.
    pub kernel: String,
    /// Symbol in the cubin.
    pub export: String,
    /// The set of build.toml, if one was named.
    pub set: Option<String>,
    /// Target.
    pub target: String,
    /// Values of the const parameters.
    pub bindings: BTreeMap<String, i64>,
    /// Launch shape.
    pub launch: LaunchEntry,
    /// Parameters in the order in which a launch passes them.
    pub params: Vec<ParamEntry>,
    /// Tensor maps, which a launch passes behind them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<TensorMapSpec>,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills: stores and loads.
    pub spill_bytes: u32,
    /// Shared memory of a CTA in bytes, static and dynamic.
    pub shared_bytes: u32,
    /// `clean`, `findings` or `not-judged`.
    pub audit: String,
    /// PTX file.
    pub ptx: String,
    /// SHA-256 of the PTX.
    pub ptx_sha256: String,
    /// Machine code file.
    pub cubin: String,
    /// SHA-256 of the machine code.
    pub cubin_sha256: String,
    /// What each `.loc` line of the PTX stands for.
    pub ops: String,
    /// Findings that the source waives, each with its reason.
    pub waived: Vec<String>,
    /// Texts of the events that it writes down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Names of the roles that do so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

/// Launch shape and attributes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchEntry {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// CTAs of a cluster along x, y, z.
    pub cluster: [u32; 3],
    /// Threads of a CTA.
    pub threads: u32,
    /// Dynamic shared memory to ask for, in bytes.
    pub dynamic_shared_bytes: u32,
    /// Launch with the attribute of programmatic dependent launch.
    pub waits_for_previous: bool,
    /// The kernel lets its successor start early.
    pub launches_next: bool,
    /// All CTAs have to be on the device at once, since they wait for others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resident: bool,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// A parameter of a compiled kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ParamEntry {
    /// Name.
    pub name: String,
    /// Qualifier.
    pub access: String,
    /// Element type.
    pub dtype: String,
    /// Extents; a name stands for the value of that scalar. Empty for a scalar, which is passed by value.
    pub shape: Vec<ExtentEntry>,
    /// The memory layout, where it is not row-major; a loader packs by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored: Option<StoredLayout>,
    /// The parameter that holds the scales, and how many elements share one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_by: Option<(String, u32)>,
    /// Least value and exclusive bound that the author promises, as text.
    pub contract: Option<String>,
}

/// An extent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ExtentEntry {
    /// Known.
    Const(u32),
    /// Value of a scalar parameter.
    Scalar(String),
}

/// The manifest's entry of a compiled kernel whose files are called `stem`.
pub fn manifest_entry(
    sources: &SourceMap,
    name: &str,
    set: Option<String>,
    stem: &str,
    built: &Built,
    product: &Product,
) -> KernelEntry {
    let kernel = &built.kernel;
    KernelEntry {
        name: name.to_owned(),
        kernel: kernel.name.clone(),
        export: kernel.export.clone(),
        set,
        target: kernel.target.name().to_owned(),
        bindings: kernel.bindings.iter().cloned().collect(),
        launch: LaunchEntry {
            grid: kernel.launch.grid,
            cluster: kernel.launch.cluster,
            threads: kernel.launch.threads(),
            dynamic_shared_bytes: built.device.shared_bytes,
            waits_for_previous: kernel.launch.pdl.is_consumer(),
            launches_next: kernel.launch.pdl.is_producer(),
            resident: kernel.launch.resident,
        },
        params: kernel.params.iter().map(|p| param_entry(kernel, p)).collect(),
        maps: kernel_emulator::signature(kernel).maps,
        registers: product.usage.registers,
        spill_bytes: product.spill_bytes(),
        shared_bytes: product.usage.shared_bytes + built.device.shared_bytes,
        audit: match product.report.verdict {
            kernel_audit::Verdict::Clean => "clean",
            kernel_audit::Verdict::Findings => "findings",
            kernel_audit::Verdict::NotJudged => "not-judged",
        }
        .to_owned(),
        ptx: format!("{stem}.ptx"),
        ptx_sha256: sha256(product.ptx.as_bytes()),
        cubin: format!("{stem}.cubin"),
        cubin_sha256: sha256(&product.cubin),
        ops: format!("{stem}.ops.json"),
        waived: output::trusted(sources, built).lines().map(str::to_owned).collect(),
        events: kernel.events.clone(),
        roles: traced_roles(kernel),
    }
}

/// Names of all roles, where events are written down.
pub fn traced_roles(kernel: &Kernel) -> Vec<String> {
    let roles = kernel.roles.iter().filter(|_| !kernel.events.is_empty());
    roles.map(|role| role.name.clone()).collect()
}

fn param_entry(kernel: &Kernel, param: &Param) -> ParamEntry {
    let settled = if param.settled { "settled " } else { "" };
    let words = param.words.map(|words| format!(" {}", words.name())).unwrap_or_default();
    ParamEntry {
        name: param.name.clone(),
        access: format!("{settled}{}{words}", param.access),
        dtype: param.dtype.name().to_owned(),
        shape: param
            .shape
            .iter()
            .map(|extent| match extent {
                Extent::Const(n) => ExtentEntry::Const(*n),
                Extent::Scalar(id) => ExtentEntry::Scalar(kernel.params[*id].name.clone()),
            })
            .collect(),
        stored: param.stored.clone(),
        scaled_by: param.scaled.map(|s| (kernel.params[s.by].name.clone(), s.group)),
        contract: param.contract.map(|c| {
            let hi = match c.hi {
                ContractBound::Const(hi) => hi.to_string(),
                ContractBound::Scalar(id, 0) => kernel.params[id].name.clone(),
                ContractBound::Scalar(id, offset) => {
                    format!("{} + {offset}", kernel.params[id].name)
                }
            };
            let distinct = match c.distinct {
                None => String::new(),
                Some(d) => match d.except {
                    None => " distinct".to_owned(),
                    Some(v) => format!(" distinct except {v}"),
                },
            };
            format!("{}..{hi}{distinct}", c.lo)
        }),
    }
}

/// Keys of what a folder holds: artefact and target to a hash of everything that it depends on.
pub type Stamps = BTreeMap<String, String>;

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    kernel_abi::hex::text(&Sha256::digest(bytes))
}

/// Reads a JSON file of the output folder; anything unreadable counts as absent.
pub fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&files::read(path, files::MAX_AUDITED).ok()?).ok()
}

/// Files that are to appear together.
#[derive(Debug, Default)]
pub struct Staged {
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Staged {
    /// Adds a file; those added last appear last.
    pub fn add(&mut self, path: PathBuf, bytes: impl Into<Vec<u8>>) {
        self.files.push((path, bytes.into()));
    }

    /// Writes all files beside their places, then puts them there in order.
    ///
    /// # Errors
    /// The folder or a file cannot be written, and nothing was replaced; or a file that is written cannot be put in its
    /// place, and the message says how many are.
    pub fn commit(self, format: Format) -> Result<(), Refusal> {
        let mut files = WholeFiles::default();
        for (path, bytes) in &self.files {
            files.add(path, bytes).map_err(|error| cannot_write(format, path, &error))?;
        }
        let all = self.files.len();
        files.finish().map_err(|(path, done, error)| {
            let message = format!(
                "cannot write `{}`: {error}; {done} of {all} files are new, none is half written",
                path.display()
            );
            Box::new(session::world(format, "E0805", &message))
        })
    }
}

/// Writes one file whole or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(format: Format, path: &Path, bytes: &[u8]) -> Result<(), Refusal> {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| WholeFile::create(path)?.finish_with(bytes));
    written.map_err(|error| cannot_write(format, path, &error))
}

fn cannot_write(format: Format, path: &Path, error: &std::io::Error) -> Refusal {
    let message = format!("cannot write `{}`: {error}; nothing was replaced", path.display());
    Box::new(session::world(format, "E0805", &message))
}
