//! Kernels: machine code that the device has loaded, with what its launches must hold.
//!
//! A kernel comes as machine code for one architecture and as the PTX that it was made of, for the same one. The machine
//! code is what was audited and is taken where the driver takes it. It refuses what a newer toolkit than its own has
//! made, and what is there as PTX alone has none: then its compiler makes machine code of the PTX, with a warning.

use std::ffi::CString;
use std::sync::Arc;

use kernel_abi::bundle::{Bundle, KernelRef};
use kernel_abi::plan::{KernelKey, Signature};

use crate::device::{Device, DeviceInfo};
use crate::error::RuntimeError;
use crate::ffi::{FunctionHandle, FunctionProperty, ModuleHandle};
use crate::launch::{LaunchShape, check_layout, check_memory};

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
    /// What machine code and PTX are for, `sm_90a`.
    pub target: &'a str,
    /// Machine code, an ELF file.
    pub cubin: Option<&'a [u8]>,
    /// PTX, for a driver that does not take the machine code.
    pub ptx: Option<&'a str>,
}

impl<'a> KernelImage<'a> {
    /// A kernel of a bundle.
    pub fn of(kernel: KernelRef<'a>) -> KernelImage<'a> {
        let head = kernel.head();
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
            target: &head.target,
            cubin: (!kernel.cubin().is_empty()).then(|| kernel.cubin()),
            ptx: (!kernel.ptx().is_empty()).then(|| kernel.ptx()),
        }
    }

    /// The kernel that a plan names, for the target that a device runs.
    ///
    /// # Errors
    /// The bundle has none, or none that fits.
    pub fn find(
        bundle: &'a Bundle,
        key: &KernelKey,
        device: &DeviceInfo,
    ) -> Result<KernelImage<'a>, RuntimeError> {
        let architecture = device.architecture();
        let targets = bundle.targets();
        let fitting = targets.iter().filter(|target| fits(target, device.capability));
        if let Some(kernel) = fitting.filter_map(|target| bundle.find(key, target)).next() {
            return Ok(KernelImage { name: key.to_string(), ..KernelImage::of(kernel) });
        }
        let others: Vec<&str> =
            targets.into_iter().filter(|target| bundle.find(key, target).is_some()).collect();
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

/// Whether a device of compute capability `(major, minor)` runs code for a target. The targets are those of one
/// architecture each, `sm_90a`: no other device runs their machine code, and none compiles their PTX.
pub fn fits(target: &str, (major, minor): (u32, u32)) -> bool {
    target == format!("sm_{major}{minor}a")
}

impl Kernel {
    /// Loads a kernel: its machine code, or where the driver refuses that or there is none its PTX through the
    /// compiler of the driver, with a warning.
    ///
    /// # Errors
    /// It is for another architecture, its machine code is no whole file, the driver refuses machine code and PTX, its
    /// parameters are not the described ones, or the device does not take its launches.
    pub fn load(device: &Device, image: &KernelImage<'_>) -> Result<Kernel, RuntimeError> {
        let loaded = Kernel::load_unnoticed(device, image);
        device.noticed(loaded)
    }

    fn load_unnoticed(device: &Device, image: &KernelImage<'_>) -> Result<Kernel, RuntimeError> {
        let name = &image.name;
        check_memory(name, &image.signature)?;
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
        let kernel = Kernel {
            name: name.clone(),
            function: Arc::new(function),
            signature: image.signature.clone(),
            shape: image.shape,
            registers,
            is_compiled_here,
        };
        if kernel.shape.resident {
            kernel.shape.check_room(name, kernel.ctas_at_once(device.info())?)?;
        }
        Ok(kernel)
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

    /// CTAs of it that a device has at once, where nothing else runs.
    ///
    /// # Errors
    /// The device was lost.
    pub fn ctas_at_once(&self, device: &DeviceInfo) -> Result<u64, RuntimeError> {
        let shape = &self.shape;
        let most = shape.ctas_in_tensor_memory(device.multiprocessors);
        if let Some(cluster) = shape.cluster {
            let clusters = self.function.clusters_at_once(shape, cluster)?;
            let of_one = cluster.iter().map(|&ctas| u64::from(ctas)).product::<u64>();
            return Ok((u64::from(clusters) * of_one).min(most));
        }
        let of_one = self.function.ctas_at_once(shape.threads, shape.dynamic_shared_bytes)?;
        Ok((u64::from(of_one) * u64::from(device.multiprocessors)).min(most))
    }

    pub(crate) fn function(&self) -> &Arc<FunctionHandle> {
        &self.function
    }
}

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 500;
/// `CUDA_ERROR_INVALID_IMAGE`, `CUDA_ERROR_NO_BINARY_FOR_GPU`, `CUDA_ERROR_INVALID_SOURCE`: of the image alone.
const OF_IMAGE: [u32; 3] = [200, 209, 300];
/// `CUDA_ERROR_INVALID_PTX`, `CUDA_ERROR_JIT_COMPILER_NOT_FOUND`, `CUDA_ERROR_UNSUPPORTED_PTX_VERSION`,
/// `CUDA_ERROR_JIT_COMPILATION_DISABLED`: of the PTX and who shall compile it.
const OF_PTX: [u32; 4] = [218, 221, 222, 223];

/// The module of an image, and whether the driver compiled it.
fn module(device: &Device, image: &KernelImage<'_>) -> Result<(ModuleHandle, bool), RuntimeError> {
    let name = &image.name;
    let refusal = |form: &'static str, fault: String| RuntimeError::Image {
        kernel: name.clone(),
        form,
        fault,
    };
    if !fits(image.target, device.info().capability) {
        return Err(RuntimeError::Architecture {
            kernel: name.clone(),
            built_for: image.target.to_owned(),
            device: device.info().architecture(),
        });
    }
    let context = device.context()?;
    let why = match image.cubin {
        None => "there is no machine code".to_owned(),
        Some(cubin) => {
            let of_code = |fault: String| refusal("machine code", fault);
            check_elf(cubin).map_err(|fault| of_code(fault.to_owned()))?;
            match ModuleHandle::of_cubin(context, cubin) {
                Ok(module) => return Ok((module, false)),
                Err(error) if !OF_IMAGE.contains(&error.code) => return Err(error.into()),
                Err(error) if image.ptx.is_none() => return Err(of_code(error.to_string())),
                Err(error) => format!("the driver refuses the machine code: {error}"),
            }
        }
    };
    let of_ptx = |fault: String| refusal("PTX", fault);
    let text = image.ptx.ok_or_else(|| of_ptx("there is none, and no machine code".to_owned()))?;
    tracing::warn!(
        kernel = name,
        target = image.target,
        why,
        "the driver compiles the PTX of a kernel, which no audit has seen compiled"
    );
    let text = CString::new(text).map_err(|_| of_ptx("it has a zero byte".to_owned()))?;
    match ModuleHandle::of_ptx(context, &text) {
        Ok(module) => Ok((module, true)),
        Err((error, _)) if !OF_IMAGE.contains(&error.code) && !OF_PTX.contains(&error.code) => {
            Err(error.into())
        }
        Err((error, log)) if log.is_empty() => Err(of_ptx(error.to_string())),
        Err((error, log)) => Err(of_ptx(format!("{error}: {log}"))),
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
    fn code_runs_on_the_architecture_of_its_target_alone() {
        for (target, capability, runs) in [
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_100a", (10, 0), true),
            ("sm_100a", (10, 3), false),
            ("sm_103a", (10, 3), true),
            // Of no target of the compiler.
            ("sm_90", (9, 0), false),
            ("sm_", (9, 0), false),
            ("gfx942", (9, 0), false),
        ] {
            assert_eq!(fits(target, capability), runs, "{target} on {capability:?}");
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
