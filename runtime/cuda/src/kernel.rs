//! Kernels: machine code that the device has loaded, with what its launches must hold.

use std::ffi::CString;
use std::sync::Arc;

use kernel_abi::bundle::{Bundle, KernelRef};
use kernel_abi::plan::{KernelKey, Signature};

use crate::device::{Device, DeviceInfo};
use crate::error::RuntimeError;
use crate::ffi::{FunctionHandle, FunctionProperty, ModuleHandle};
use crate::launch::{LaunchShape, check_layout};

/// Machine code for one target.
#[derive(Debug, Clone, Copy)]
pub struct Cubin<'a> {
    /// `sm_90a`.
    pub target: &'a str,
    /// An ELF file.
    pub bytes: &'a [u8],
}

/// PTX for one target.
#[derive(Debug, Clone, Copy)]
pub struct Ptx<'a> {
    /// `sm_90a`.
    pub target: &'a str,
    /// The text.
    pub text: &'a str,
}

/// A kernel as a compiler wrote it.
#[derive(Debug, Clone)]
pub struct KernelImage<'a> {
    /// With its bindings, for messages and counters.
    pub name: String,
    /// Symbol in the machine code.
    pub symbol: &'a str,
    /// Its parameters.
    pub signature: Signature,
    /// Its launches.
    pub shape: LaunchShape,
    /// Machine code, one entry a target.
    pub cubins: Vec<Cubin<'a>>,
    /// PTX, one entry a target: for a device that no machine code fits.
    pub ptx: Vec<Ptx<'a>>,
}

impl<'a> KernelImage<'a> {
    /// A kernel of a bundle.
    pub fn of(kernel: KernelRef<'a>) -> KernelImage<'a> {
        let (head, target) = (kernel.head(), kernel.head().target.as_str());
        let key = KernelKey {
            file: head.file.clone(),
            kernel: head.kernel.clone(),
            bindings: head.bindings.clone(),
        };
        KernelImage {
            name: key.to_string(),
            symbol: kernel.entry(),
            signature: kernel.signature().clone(),
            shape: LaunchShape::from(kernel.launch()),
            cubins: vec![Cubin { target, bytes: kernel.cubin() }],
            ptx: vec![Ptx { target, text: kernel.ptx() }],
        }
    }

    /// The kernel that a plan names, for the target that fits a device best: one with machine code, else one with PTX.
    ///
    /// # Errors
    /// The bundle has none, or none that fits.
    pub fn find(
        bundle: &'a Bundle,
        key: &KernelKey,
        device: &DeviceInfo,
    ) -> Result<KernelImage<'a>, RuntimeError> {
        let architecture = device.architecture();
        let of_target = |is_ptx: bool| {
            let fitting = |target: &&str| fits(target, device.capability, is_ptx);
            let targets: Vec<&str> = bundle.targets().into_iter().filter(fitting).collect();
            // The greatest target is the nearest to the device.
            targets.iter().rev().find_map(|target| bundle.find(key, target))
        };
        if let Some(kernel) = of_target(false).or_else(|| of_target(true)) {
            return Ok(KernelImage { name: key.to_string(), ..KernelImage::of(kernel) });
        }
        let others: Vec<&str> = bundle
            .targets()
            .into_iter()
            .filter(|target| bundle.find(key, target).is_some())
            .collect();
        if others.is_empty() {
            let count = bundle.kernels().filter(|other| other.head().kernel == key.kernel).count();
            let why = format!("the bundle has {count} of that name with other bindings");
            return Err(RuntimeError::NoKernel {
                kernel: key.to_string(),
                device: architecture,
                why,
            });
        }
        let (kernel, built_for) = (key.to_string(), others.join(", "));
        Err(RuntimeError::Architecture { kernel, built_for, device: architecture })
    }
}

/// A kernel on a device.
#[derive(Debug, Clone)]
pub struct Kernel {
    name: String,
    function: Arc<FunctionHandle>,
    signature: Signature,
    shape: LaunchShape,
    registers: u32,
    is_compiled_here: bool,
}

/// What a device of compute capability `(major, minor)` does with code for a target.
pub fn fits(target: &str, (major, minor): (u32, u32), is_ptx: bool) -> bool {
    let Some(number) = target.strip_prefix("sm_").or_else(|| target.strip_prefix("compute_"))
    else {
        return false;
    };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let Ok(value) = digits.parse::<u32>() else {
        return false;
    };
    let (of_major, of_minor) = (value / 10, value % 10);
    match &number[digits.len()..] {
        // Of one architecture alone.
        "a" => (of_major, of_minor) == (major, minor),
        // Of its family.
        "f" => of_major == major && of_minor <= minor,
        "" if is_ptx => (of_major, of_minor) <= (major, minor),
        "" => of_major == major && of_minor <= minor,
        _ => false,
    }
}

impl Kernel {
    /// Loads a kernel: machine code that fits the device, else PTX through the compiler of the driver, with a warning.
    ///
    /// # Errors
    /// Nothing fits the device, the driver refuses what fits, its parameters are not the described ones, or the device
    /// does not take its launches.
    pub fn load(device: &Device, image: &KernelImage<'_>) -> Result<Kernel, RuntimeError> {
        let loaded = Kernel::load_unnoticed(device, image);
        device.noticed(loaded)
    }

    fn load_unnoticed(device: &Device, image: &KernelImage<'_>) -> Result<Kernel, RuntimeError> {
        let name = &image.name;
        let (module, is_compiled_here) = module(device, image)?;
        let symbol = CString::new(image.symbol).map_err(|_| RuntimeError::Layout {
            kernel: name.clone(),
            fault: "the symbol has a zero byte".to_owned(),
        })?;
        let function =
            FunctionHandle::new(&Arc::new(module), &symbol).map_err(|error| match error.code {
                NOT_FOUND => RuntimeError::Layout {
                    kernel: name.clone(),
                    fault: format!("there is no symbol `{}`", image.symbol),
                },
                _ => RuntimeError::from(error),
            })?;
        check_layout(name, &image.signature, function.parameters())?;
        let property = |property| function.property(property);
        let static_shared = property(FunctionProperty::StaticSharedBytes)?;
        let threads = property(FunctionProperty::ThreadsOfBlock)?;
        let registers = property(FunctionProperty::Registers)?;
        let local_bytes = property(FunctionProperty::LocalBytes)?;
        image.shape.check(name, device.info(), static_shared, threads)?;
        if image.shape.dynamic_shared_bytes > 0 {
            function.allow_dynamic_shared(image.shape.dynamic_shared_bytes)?;
        }
        tracing::debug!(
            name,
            symbol = image.symbol,
            registers,
            local_bytes,
            static_shared,
            parameters = ?function.parameters(),
            shape = ?image.shape,
            starts_early = image.signature.starts_early,
            is_compiled_here,
            "loaded a kernel"
        );
        Ok(Kernel {
            name: name.clone(),
            function: Arc::new(function),
            signature: image.signature.clone(),
            shape: image.shape,
            registers,
            is_compiled_here,
        })
    }

    /// With its bindings.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Its launches.
    pub fn shape(&self) -> &LaunchShape {
        &self.shape
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.registers
    }

    /// Whether the driver compiled it from PTX.
    pub fn is_compiled_here(&self) -> bool {
        self.is_compiled_here
    }

    pub(crate) fn function(&self) -> &Arc<FunctionHandle> {
        &self.function
    }
}

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_NO_BINARY_FOR_GPU`, `CUDA_ERROR_INVALID_SOURCE`: of the image alone.
const OF_IMAGE: [u32; 3] = [200, 209, 300];

fn module(device: &Device, image: &KernelImage<'_>) -> Result<(ModuleHandle, bool), RuntimeError> {
    let (name, capability) = (&image.name, device.info().capability);
    let context = device.context()?;
    let mut refused = None;
    if let Some(cubin) = image.cubins.iter().find(|cubin| fits(cubin.target, capability, false)) {
        let refusal = |fault: String| RuntimeError::Image {
            kernel: name.clone(),
            form: "machine code",
            fault,
        };
        match check_elf(cubin.bytes) {
            Err(fault) => return Err(refusal(fault.to_owned())),
            Ok(()) => match ModuleHandle::of_cubin(context, cubin.bytes) {
                Ok(module) => return Ok((module, false)),
                Err(error) if OF_IMAGE.contains(&error.code) => {
                    refused = Some(refusal(error.to_string()));
                }
                Err(error) => return Err(RuntimeError::from(error)),
            },
        }
    }
    let Some(ptx) = image.ptx.iter().find(|ptx| fits(ptx.target, capability, true)) else {
        return Err(refused.unwrap_or_else(|| no_code(device, image)));
    };
    tracing::warn!(
        kernel = name,
        target = ptx.target,
        "no machine code fits this device; its driver compiles the PTX, which no audit has seen compiled"
    );
    let refusal = |fault: String| RuntimeError::Image { kernel: name.clone(), form: "PTX", fault };
    let text = CString::new(ptx.text).map_err(|_| refusal("it has a zero byte".to_owned()))?;
    match ModuleHandle::of_ptx(context, &text) {
        Ok(module) => Ok((module, true)),
        Err((error, log)) if log.is_empty() => Err(refusal(error.to_string())),
        Err((error, log)) => Err(refusal(format!("{error}: {log}"))),
    }
}

fn no_code(device: &Device, image: &KernelImage<'_>) -> RuntimeError {
    let mut targets: Vec<&str> =
        image.cubins.iter().map(|c| c.target).chain(image.ptx.iter().map(|p| p.target)).collect();
    targets.sort_unstable();
    targets.dedup();
    let built_for = if targets.is_empty() { "nothing".to_owned() } else { targets.join(", ") };
    RuntimeError::Architecture {
        kernel: image.name.clone(),
        built_for,
        device: device.info().architecture(),
    }
}

/// Whether the bytes are a whole ELF file for a GPU: the driver takes the size from its header.
fn check_elf(bytes: &[u8]) -> Result<(), &'static str> {
    const CUDA: u16 = 190;
    let half = |at: usize| bytes.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
    let word = |at: usize| -> Option<u64> {
        let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") || half(18) != Some(CUDA) {
        return Err("it is no ELF file of a GPU");
    }
    let table = |start: usize, size: usize, count: usize| -> Option<u64> {
        u64::from(half(size)?).checked_mul(u64::from(half(count)?))?.checked_add(word(start)?)
    };
    // The tables of segments and of sections.
    let ends = [table(32, 54, 56), table(40, 58, 60)];
    if ends.iter().all(|end| end.is_some_and(|end| end <= bytes.len() as u64)) {
        Ok(())
    } else {
        Err("it is cut off")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_runs_where_its_target_says() {
        for (target, capability, cubin, ptx) in [
            ("sm_90a", (9, 0), true, true),
            ("sm_90a", (10, 0), false, false),
            ("sm_100a", (10, 3), false, false),
            ("sm_103a", (10, 3), true, true),
            ("sm_100f", (10, 3), true, true),
            ("sm_100f", (12, 0), false, false),
            ("sm_80", (8, 9), true, true),
            ("sm_80", (9, 0), false, true),
            ("sm_90", (8, 9), false, false),
            ("compute_75", (9, 0), false, true),
            ("sm_", (9, 0), false, false),
            ("sm_90x", (9, 0), false, false),
            ("gfx942", (9, 0), false, false),
        ] {
            assert_eq!(fits(target, capability, false), cubin, "{target} on {capability:?}");
            assert_eq!(fits(target, capability, true), ptx, "PTX {target} on {capability:?}");
        }
    }

    #[test]
    fn cut_machine_code_does_not_reach_the_driver() {
        let mut elf = vec![0u8; 64];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[18..20].copy_from_slice(&190u16.to_le_bytes());
        assert_eq!(check_elf(&elf), Ok(()));
        // One section of 64 bytes at 64.
        elf[40..48].copy_from_slice(&64u64.to_le_bytes());
        elf[58..60].copy_from_slice(&64u16.to_le_bytes());
        elf[60..62].copy_from_slice(&1u16.to_le_bytes());
        assert_eq!(check_elf(&elf), Err("it is cut off"));
        elf.resize(128, 0);
        assert_eq!(check_elf(&elf), Ok(()));
        elf[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(check_elf(&elf), Err("it is cut off"));
        elf[18] = 62;
        assert_eq!(check_elf(&elf), Err("it is no ELF file of a GPU"));
        assert_eq!(check_elf(b"\x7fELF"), Err("it is no ELF file of a GPU"));
    }
}
