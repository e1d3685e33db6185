//! Compiled kernels in one file, `NAME.kbundle`: machine code, PTX, what a launch needs, and what the audit said.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `KBUNDLE` and a zero |
//! | 8..12 | version of the format, little-endian |
//! | 12..16 | zero |
//! | 16..24 | length of the file |
//! | 24..32 | length of the index |
//! | 32..64 | SHA-256 of bytes 0..32 and of everything from byte 64 on |
//! | 64.. | the index, JSON: one [`KernelHead`] a kernel and the places of its sections |
//! | then | sections, each at a multiple of 64 bytes; equal ones are there once |
//!
//! A file is refused when a byte of it was changed, when it ends early, when it has another version, and when the
//! audit of a kernel in it was not clean, unless the [`Policy`] lets that pass.
//! The hash says that a file is whole, not who made it: everything that the index says is checked besides, and no
//! content makes this module panic.
//!
//! A writer replaces a bundle by renaming a new file over it, so that a mapped one keeps its bytes. Where somebody cuts
//! a mapped one off nevertheless, a program that called [`end_on_bus_error`] ends with a message that names it.

mod error;
mod format;
mod map;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use error::{BundleCode, BundleError};
pub use format::{VERSION, encode};
pub use map::{end_on_bus_error, fail_at_size_limit};

use crate::plan::{KernelKey, Signature};
use map::MappedFile;

/// What a reader lets pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Kernels whose audit found something, judged nothing, or was not run.
    pub allow_unaudited: bool,
}

impl Policy {
    /// Audited kernels alone.
    pub const AUDITED: Policy = Policy { allow_unaudited: false };
}

/// What a bundle was made with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maker {
    /// Version of kernelc.
    pub kernelc: String,
    /// Version of LLVM.
    pub llvm: String,
    /// Version of ptxas.
    pub ptxas: String,
    /// Version of nvdisasm.
    pub nvdisasm: String,
}

/// What the audit of a kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditVerdict {
    /// Everything was understood and nothing is wrong.
    Clean,
    /// Something is wrong.
    Findings,
    /// Something was not understood.
    NotJudged,
    /// Nobody looked.
    NotRun,
}

impl AuditVerdict {
    /// Its text form.
    pub fn name(self) -> &'static str {
        match self {
            AuditVerdict::Clean => "clean",
            AuditVerdict::Findings => "findings",
            AuditVerdict::NotJudged => "not-judged",
            AuditVerdict::NotRun => "not-run",
        }
    }
}

/// How a kernel is launched. The grid is known when the kernel is compiled: a value that is known at run time alone
/// is a `scalar` parameter and changes what a CTA does, never how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// CTAs of a cluster along x, y, z; ones without clusters.
    pub cluster: [u32; 3],
    /// Threads of a CTA, all along x.
    pub threads: u32,
    /// Shared memory that the machine code reserves, in bytes.
    pub static_shared_bytes: u32,
    /// Shared memory that the launch asks for, in bytes.
    pub dynamic_shared_bytes: u32,
    /// Columns of tensor memory that a CTA allocates, of the 512 of a multiprocessor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tensor_columns: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread spills: stores and loads.
    pub spill_bytes: u32,
    /// The kernel lets its successor start early. Whether it may itself start before its predecessor has ended stands
    /// in [`Signature::starts_early`].
    pub launches_next: bool,
    /// Its CTAs wait for each other, or for those of other ranks: all of them have to be on the device at once.
    #[serde(default, skip_serializing_if = "is_false")]
    pub resident: bool,
}

/// Columns of tensor memory of a multiprocessor, where it has any.
pub const TENSOR_COLUMNS: u32 = 512;

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// What a bundle says of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelHead {
    /// Name of the artefact; with the target it is unique.
    pub name: String,
    /// File of the source, `gemv.tile`.
    pub file: String,
    /// Name of the kernel in it.
    pub kernel: String,
    /// Symbol of the kernel in the machine code.
    pub entry: String,
    /// What it was compiled for, `sm_90a`.
    pub target: String,
    /// Values of all `const` parameters; a truth value is 0 or 1.
    pub bindings: BTreeMap<String, i64>,
    /// Those `const` parameters whose value is not their default.
    pub named: BTreeSet<String>,
    /// The parameters, in the order in which a launch passes them: buffers as addresses, scalars by value.
    pub signature: Signature,
    /// How it is launched.
    pub launch: LaunchSpec,
    /// What the audit said.
    pub audit: AuditVerdict,
    /// SHA-256 of the kernel level of the IR, printed.
    pub kernel_ir: String,
    /// SHA-256 of the device level of the IR, printed.
    pub device_ir: String,
    /// Findings that the source waives, each with its reason.
    pub waived: Vec<String>,
    /// Texts of the events that it writes down, see [`crate::trace`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Names of the roles that do so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
}

impl KernelHead {
    /// Whether these bindings mean this kernel: each has the value that is given, and what is not given has its
    /// default here.
    pub fn is_bound_by(&self, bindings: &BTreeMap<String, i64>) -> bool {
        bindings.iter().all(|(name, value)| self.bindings.get(name) == Some(value))
            && self.named.iter().all(|name| bindings.contains_key(name))
    }
}

/// A kernel as it goes into a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artefact {
    /// What the bundle says of it.
    pub head: KernelHead,
    /// Machine code.
    pub cubin: Vec<u8>,
    /// PTX.
    pub ptx: String,
    /// Report of the audit, JSON.
    pub report: String,
    /// What each `.loc` line of the PTX stands for, JSON.
    pub operations: String,
}

/// A bundle that was found whole.
#[derive(Debug)]
pub struct Bundle {
    bytes: Bytes,
    maker: Maker,
    kernels: Vec<format::Kernel>,
}

#[derive(Debug)]
enum Bytes {
    Mapped(MappedFile),
    Owned(Vec<u8>),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Bytes::Mapped(file) => file.bytes(),
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl Bundle {
    /// Maps a file and checks all of it.
    ///
    /// # Errors
    /// The file cannot be mapped, is not what it was written as, or holds kernels that the policy does not let pass.
    pub fn open(path: &Path, policy: Policy) -> Result<Bundle, BundleError> {
        let name = path.display().to_string();
        let file = MappedFile::open(path)
            .map_err(|error| BundleError::new(BundleCode::File, error.to_string()).of(&name))?;
        Bundle::read(Bytes::Mapped(file), policy).map_err(|error| error.of(&name))
    }

    /// Checks a bundle in memory.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn from_bytes(bytes: Vec<u8>, policy: Policy) -> Result<Bundle, BundleError> {
        Bundle::read(Bytes::Owned(bytes), policy)
    }

    fn read(bytes: Bytes, policy: Policy) -> Result<Bundle, BundleError> {
        let index = format::decode(bytes.all())?;
        let bundle = Bundle { bytes, maker: index.maker, kernels: index.kernels };
        let unaudited = bundle.kernels().find(|kernel| kernel.head().audit != AuditVerdict::Clean);
        match unaudited {
            Some(kernel) if !policy.allow_unaudited => Err(BundleError::new(
                BundleCode::Audit,
                format!(
                    "the audit of `{}` for {} is {}; --allow-unaudited loads it all the same",
                    kernel.head().name,
                    kernel.head().target,
                    kernel.head().audit.name()
                ),
            )),
            Some(_) | None => Ok(bundle),
        }
    }

    /// What it was made with.
    pub fn maker(&self) -> &Maker {
        &self.maker
    }

    /// All kernels, sorted by name and target.
    pub fn kernels(&self) -> impl Iterator<Item = KernelRef<'_>> {
        let bytes = self.bytes.all();
        self.kernels.iter().map(move |kernel| KernelRef { kernel, bytes })
    }

    /// The targets that it has kernels for, sorted.
    pub fn targets(&self) -> BTreeSet<&str> {
        self.kernels.iter().map(|kernel| kernel.head.target.as_str()).collect()
    }

    /// The kernel of that name with these bindings; what is not bound has its default.
    pub fn kernel(
        &self,
        kernel: &str,
        bindings: &BTreeMap<String, i64>,
        target: &str,
    ) -> Option<KernelRef<'_>> {
        self.kernels().find(|k| {
            let head = k.head();
            head.kernel == kernel && head.target == target && head.is_bound_by(bindings)
        })
    }

    /// The kernel that a plan names.
    pub fn find(&self, key: &KernelKey, target: &str) -> Option<KernelRef<'_>> {
        self.kernels().find(|k| {
            let head = k.head();
            head.file == key.file
                && head.kernel == key.kernel
                && head.target == target
                && head.is_bound_by(&key.bindings)
        })
    }

    /// The artefact of that name.
    pub fn artefact(&self, name: &str, target: &str) -> Option<KernelRef<'_>> {
        self.kernels().find(|k| k.head().name == name && k.head().target == target)
    }
}

/// A kernel of a bundle.
#[derive(Debug, Clone, Copy)]
pub struct KernelRef<'a> {
    kernel: &'a format::Kernel,
    bytes: &'a [u8],
}

impl<'a> KernelRef<'a> {
    /// Everything but the sections.
    pub fn head(self) -> &'a KernelHead {
        &self.kernel.head
    }

    /// The symbol to ask the machine code for.
    pub fn entry(self) -> &'a str {
        &self.kernel.head.entry
    }

    /// Its parameters.
    pub fn signature(self) -> &'a Signature {
        &self.kernel.head.signature
    }

    /// How it is launched.
    pub fn launch(self) -> LaunchSpec {
        self.kernel.head.launch
    }

    /// Machine code.
    pub fn cubin(self) -> &'a [u8] {
        self.kernel.cubin.bytes(self.bytes)
    }

    /// PTX.
    pub fn ptx(self) -> &'a str {
        self.text(self.kernel.ptx)
    }

    /// Report of the audit, JSON.
    pub fn report(self) -> &'a str {
        self.text(self.kernel.report)
    }

    /// What each `.loc` line of the PTX stands for, JSON.
    pub fn operations(self) -> &'a str {
        self.text(self.kernel.operations)
    }

    /// A section whose text was checked when the bundle was read.
    fn text(self, section: format::Section) -> &'a str {
        std::str::from_utf8(section.bytes(self.bytes)).unwrap_or_default()
    }
}
