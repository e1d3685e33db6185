//! The bytes of a bundle: writing them, and finding out whether they are whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Artefact, BundleCode, BundleError, KernelHead, Maker, TENSOR_COLUMNS};
use crate::Access;
use crate::plan::{ExtentSpec, Signature, UpperBound};
use crate::stored::StoredLayout;

/// The version of the format that this crate writes and reads.
pub const VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"KBUNDLE\0";
const HEADER: usize = 64;
/// Bytes of the header that the hash covers; the hash stands behind them.
const HASHED: usize = 32;
/// Sections lie at multiples of this.
const ALIGN: usize = 64;
/// More kernels than any model has.
const MAX_KERNELS: usize = 1 << 16;
/// Threads of a CTA on every device.
const MAX_THREADS: u32 = 1024;
/// Shared memory of an SM with room to grow.
const MAX_SHARED_BYTES: u32 = 1 << 20;

/// The index of a bundle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub(super) maker: Maker,
    pub(super) kernels: Vec<Kernel>,
}

/// A kernel with the places of its sections.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    pub(super) head: KernelHead,
    pub(super) cubin: Section,
    pub(super) ptx: Section,
    pub(super) report: Section,
    pub(super) operations: Section,
}

/// Where a section lies: bytes from the first multiple of 64 behind the index, and their number.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Section {
    start: u64,
    length: u64,
}

impl Section {
    /// The bytes of the section within those of its bundle, which [`decode`] has moved `start` to; empty where there
    /// are none.
    pub(super) fn bytes(self, all: &[u8]) -> &[u8] {
        let range = usize::try_from(self.start).ok().zip(usize::try_from(self.length).ok());
        range
            .and_then(|(start, length)| all.get(start..start.checked_add(length)?))
            .unwrap_or_default()
    }
}

/// The bytes of a bundle with these kernels, sorted by name and target.
///
/// # Errors
/// Two kernels have one name and target, or a kernel is not what a kernel must be.
pub fn encode(maker: &Maker, artefacts: &[Artefact]) -> Result<Vec<u8>, BundleError> {
    let mut sorted: Vec<&Artefact> = artefacts.iter().collect();
    sorted.sort_by_key(|artefact| (&artefact.head.name, &artefact.head.target));
    let mut sections = Sections::default();
    let kernels: Vec<Kernel> = sorted
        .iter()
        .map(|artefact| Kernel {
            head: artefact.head.clone(),
            cubin: sections.add(&artefact.cubin),
            ptx: sections.add(artefact.ptx.as_bytes()),
            report: sections.add(artefact.report.as_bytes()),
            operations: sections.add(artefact.operations.as_bytes()),
        })
        .collect();
    check_kernels(&kernels)?;
    let index = Index { maker: maker.clone(), kernels };
    let index = serde_json::to_vec(&index).map_err(|error| faulty(error.to_string()))?;
    Ok(seal(&index, &sections.bytes))
}

/// A whole file of an index and the sections behind it.
fn seal(index: &[u8], sections: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes.extend_from_slice(index);
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    bytes.extend_from_slice(sections);
    let length = bytes.len() as u64;
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    bytes[24..32].copy_from_slice(&(index.len() as u64).to_le_bytes());
    let hash = hash(&bytes);
    bytes[HASHED..HEADER].copy_from_slice(&hash);
    bytes
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(&bytes[..HASHED]);
    hash.update(&bytes[HEADER..]);
    hash.finalize().into()
}

/// Sections one behind the other; equal ones share their place.
#[derive(Default)]
struct Sections {
    bytes: Vec<u8>,
    places: BTreeMap<[u8; 32], Section>,
}

impl Sections {
    fn add(&mut self, bytes: &[u8]) -> Section {
        let all = &mut self.bytes;
        *self.places.entry(Sha256::digest(bytes).into()).or_insert_with(|| {
            all.resize(all.len().next_multiple_of(ALIGN), 0);
            let start = all.len() as u64;
            all.extend_from_slice(bytes);
            Section { start, length: bytes.len() as u64 }
        })
    }
}

/// The index of a whole bundle, with sections counted from the start of the file.
pub(super) fn decode(bytes: &[u8]) -> Result<Index, BundleError> {
    let refuse = |code, message: &str| BundleError::new(code, message);
    if bytes.get(..MAGIC.len()) != Some(&MAGIC) {
        return Err(refuse(BundleCode::Kind, "the file is no bundle of kernels"));
    }
    let early = || refuse(BundleCode::Length, "the file ends early");
    let version = u32::from_le_bytes(field(bytes, 8).ok_or_else(early)?);
    if version != VERSION {
        let message = format!("version {version} of the format; this program reads {VERSION}");
        return Err(BundleError::new(BundleCode::Version, message));
    }
    if bytes.len() < HEADER {
        return Err(early());
    }
    let length = u64::from_le_bytes(field(bytes, 16).ok_or_else(early)?);
    if length != bytes.len() as u64 {
        let message = format!("the file has {} bytes and was written with {length}", bytes.len());
        return Err(BundleError::new(BundleCode::Length, message));
    }
    if bytes[HASHED..HEADER] != hash(bytes) {
        return Err(refuse(BundleCode::Hash, "the file was changed since it was written"));
    }
    let index = u64::from_le_bytes(field(bytes, 24).ok_or_else(early)?);
    let end = usize::try_from(index).ok().and_then(|index| HEADER.checked_add(index));
    let range = end.and_then(|end| Some((bytes.get(HEADER..end)?, end)));
    let (text, end) = range.ok_or_else(|| faulty("the index is longer than the file"))?;
    let mut index: Index =
        serde_json::from_slice(text).map_err(|error| faulty(error.to_string()))?;
    check_kernels(&index.kernels)?;
    let base = end.next_multiple_of(ALIGN) as u64;
    for kernel in &mut index.kernels {
        place(kernel, base, bytes)
            .map_err(|what| faulty(format!("`{}`: {what}", kernel.head.name)))?;
    }
    Ok(index)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn faulty(message: impl Into<String>) -> BundleError {
    BundleError::new(BundleCode::Index, message)
}

/// Moves the sections of a kernel to the start of the file and checks that they are there.
fn place(kernel: &mut Kernel, base: u64, all: &[u8]) -> Result<(), String> {
    let texts = [&mut kernel.ptx, &mut kernel.report, &mut kernel.operations];
    for (section, is_text) in
        texts.into_iter().map(|s| (s, true)).chain([(&mut kernel.cubin, false)])
    {
        let end = base.checked_add(section.start).and_then(|start| {
            section.start = start;
            start.checked_add(section.length)
        });
        if end.is_none_or(|end| end > all.len() as u64) {
            return Err("a section lies outside of the file".to_owned());
        }
        if is_text && std::str::from_utf8(section.bytes(all)).is_err() {
            return Err("a section of text is not UTF-8".to_owned());
        }
    }
    Ok(())
}

/// What holds of every kernel of a bundle, and of all of them together.
fn check_kernels(kernels: &[Kernel]) -> Result<(), BundleError> {
    if kernels.len() > MAX_KERNELS {
        return Err(faulty(format!("{} kernels, at most {MAX_KERNELS}", kernels.len())));
    }
    for pair in kernels.windows(2) {
        let [a, b] = [&pair[0].head, &pair[1].head];
        if (&a.name, &a.target) >= (&b.name, &b.target) {
            let message = format!("`{}` for {} is there twice or out of order", b.name, b.target);
            return Err(faulty(message));
        }
    }
    for Kernel { head, .. } in kernels {
        check_head(head).map_err(|what| faulty(format!("`{}`: {what}", head.name)))?;
    }
    Ok(())
}

fn check_head(head: &KernelHead) -> Result<(), String> {
    let plain = |text: &str| !text.is_empty() && !text.contains(['\0', '\n']);
    if ![&head.name, &head.kernel, &head.entry, &head.target].iter().all(|text| plain(text)) {
        return Err("a name is empty or has a zero or a line break in it".to_owned());
    }
    if !is_target(&head.target) {
        return Err(format!("`{}` is no target", head.target));
    }
    if let Some(name) = head.named.iter().find(|name| !head.bindings.contains_key(*name)) {
        return Err(format!("`{name}` has no value"));
    }
    for hash in [&head.kernel_ir, &head.device_ir] {
        if hash.len() != 64 || !hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err("a hash of the IR is none".to_owned());
        }
    }
    check_launch(head)?;
    check_signature(&head.signature)
}

/// `sm_90`, `sm_90a`, `sm_100f`: whatever the number, so that a bundle of a later compiler can be read.
fn is_target(text: &str) -> bool {
    let number = text.strip_prefix("sm_").unwrap_or_default();
    let digits = number.trim_end_matches(['a', 'f']);
    number.len() - digits.len() <= 1
        && (2..=4).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn check_launch(head: &KernelHead) -> Result<(), String> {
    let launch = &head.launch;
    let [x, y, z] = launch.grid;
    // The limits of every device that the compiler has a target for.
    if [x, y, z].contains(&0) || x > i32::MAX as u32 || y > 65_535 || z > 65_535 {
        return Err(format!("a grid of {x} by {y} by {z} cannot be launched"));
    }
    let fits = launch.cluster.iter().zip(launch.grid).all(|(&c, g)| c > 0 && g % c == 0);
    if !fits || launch.cluster.iter().map(|&c| u64::from(c.min(64))).product::<u64>() > 16 {
        return Err("the clusters do not fit the grid".to_owned());
    }
    if launch.threads == 0 || launch.threads > MAX_THREADS {
        return Err(format!("{} threads, 1 to {MAX_THREADS} are possible", launch.threads));
    }
    let shared = launch.static_shared_bytes.checked_add(launch.dynamic_shared_bytes);
    if shared.is_none_or(|shared| shared > MAX_SHARED_BYTES) {
        return Err("more shared memory than any device has".to_owned());
    }
    if launch.tensor_columns > TENSOR_COLUMNS {
        return Err("more tensor memory than any device has".to_owned());
    }
    Ok(())
}

fn check_signature(signature: &Signature) -> Result<(), String> {
    let scalar = |name: &str| {
        let found = signature.param(name).filter(|param| param.access == Access::Scalar);
        found.map(|_| ()).ok_or_else(|| format!("there is no scalar parameter `{name}`"))
    };
    if signature.world == Some(0) {
        return Err("a kernel over no ranks".to_owned());
    }
    for map in &signature.maps {
        map.check(signature)?;
    }
    for (index, param) in signature.params.iter().enumerate() {
        if signature.params[..index].iter().any(|earlier| earlier.name == param.name) {
            return Err(format!("parameter `{}` is there twice", param.name));
        }
        if (param.access == Access::Scalar) != param.shape.is_empty() {
            return Err(format!("`{}` is a scalar with extents or a buffer without", param.name));
        }
        let mut elements = 1u64;
        for extent in &param.shape {
            match extent {
                ExtentSpec::Const(extent) => {
                    elements = elements
                        .checked_mul(*extent)
                        .filter(|&elements| elements <= i64::MAX as u64 / 64)
                        .ok_or_else(|| format!("`{}` is larger than memory", param.name))?;
                }
                ExtentSpec::Scalar(name) => scalar(name)?,
            }
        }
        if let Some(stored) = &param.stored {
            let whole = StoredLayout::new(stored.axes().to_vec()).is_ok();
            if !whole || stored.len() != elements || stored.axes().len() != param.shape.len() {
                return Err(format!("the memory layout of `{}` is none", param.name));
            }
        }
        if let Some(scaled) = &param.scaled
            && signature.param(&scaled.param).is_none()
        {
            return Err(format!("there is no parameter `{}`", scaled.param));
        }
        if let Some(rows) = &param.touches.rows {
            scalar(rows)?;
        }
        if let Some(contract) = &param.contract {
            match &contract.hi {
                UpperBound::Const(_) => {}
                UpperBound::Scalar(name, _) => scalar(name)?,
            }
        }
    }
    Ok(())
}
