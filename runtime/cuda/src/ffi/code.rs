//! Machine code on a device, and its launches.

use std::ffi::{CStr, CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys as cu;

use super::{ContextHandle, DriverError, Result, StreamHandle, TensorMap, check, dropped};
use crate::launch::{Arguments, LaunchShape};

/// Loaded machine code.
#[derive(Debug)]
pub(crate) struct ModuleHandle {
    context: Arc<ContextHandle>,
    raw: cu::CUmodule,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for ModuleHandle {}
// SAFETY: as above.
unsafe impl Sync for ModuleHandle {}

impl ModuleHandle {
    /// Loads machine code. The caller has checked that it is a whole ELF file, whose size the driver takes from its
    /// header.
    pub(crate) fn of_cubin(context: &Arc<ContextHandle>, cubin: &[u8]) -> Result<ModuleHandle> {
        context.bind()?;
        // The driver reads words of the image.
        let mut words = vec![0u64; cubin.len().div_ceil(8) + 1];
        for (word, bytes) in words.iter_mut().zip(cubin.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(all);
        }
        let mut raw = ptr::null_mut();
        // SAFETY: the image is alive for the call and as long as its header says, which the caller has checked; the
        // handle is unloaded once by `drop`.
        call!(cuModuleLoadData(&mut raw, words.as_ptr().cast::<c_void>()))?;
        Ok(ModuleHandle { context: context.clone(), raw })
    }

    /// Compiles PTX in the driver. Beside the error comes what the compiler said.
    pub(crate) fn of_ptx(
        context: &Arc<ContextHandle>,
        ptx: &CStr,
    ) -> std::result::Result<ModuleHandle, (DriverError, String)> {
        const LOG: usize = 16 << 10;
        context.bind().map_err(|error| (error, String::new()))?;
        let mut log = vec![0u8; LOG];
        let mut options = [
            cu::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            cu::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG)];
        let mut raw = ptr::null_mut();
        let image = ptx.as_ptr().cast::<c_void>();
        // SAFETY: the text ends with a zero; options and values are two each, the log is as long as they say, and all
        // are alive for the call; the handle is unloaded once by `drop`.
        let loaded = call!(cuModuleLoadDataEx(
            &mut raw,
            image,
            2,
            options.as_mut_ptr(),
            values.as_mut_ptr()
        ));
        match loaded {
            Ok(()) => Ok(ModuleHandle { context: context.clone(), raw }),
            Err(error) => {
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG);
                Err((error, String::from_utf8_lossy(&log[..end]).trim().to_owned()))
            }
        }
    }
}

impl Drop for ModuleHandle {
    fn drop(&mut self) {
        if self.context.takes_leave() {
            // SAFETY: loaded once, unloaded here alone; functions of it hold an `Arc` of it.
            dropped("a module", call!(cuModuleUnload(self.raw)));
        }
    }
}

/// A kernel of a module, loaded onto the device.
#[derive(Debug)]
pub(crate) struct FunctionHandle {
    module: Arc<ModuleHandle>,
    raw: cu::CUfunction,
    /// Bytes of each parameter.
    parameters: Vec<usize>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for FunctionHandle {}
// SAFETY: as above.
unsafe impl Sync for FunctionHandle {}

/// A property of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionProperty {
    Registers,
    LocalBytes,
    StaticSharedBytes,
    ThreadsOfBlock,
}

/// How a kernel is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) dynamic_shared_bytes: u32,
    pub(crate) cluster: Option<[u32; 3]>,
    /// Before the kernel in front of it has ended.
    pub(crate) early: bool,
}

/// `CUDA_ERROR_INVALID_VALUE`.
const INVALID_VALUE: u32 = 1;

impl FunctionHandle {
    /// The kernel of that symbol. It is loaded at once: a later load could wait for a kernel that runs.
    pub(crate) fn new(module: &Arc<ModuleHandle>, symbol: &CString) -> Result<FunctionHandle> {
        module.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle, which lives as long as the module; the name ends with a zero.
        call!(cuModuleGetFunction(&mut raw, module.raw, symbol.as_ptr()))?;
        // SAFETY: the function is one of the module.
        call!(cuFuncLoad(raw))?;
        let mut parameters = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: writes two integers.
            match call!(cuFuncGetParamInfo(raw, parameters.len(), &mut offset, &mut size)) {
                Ok(()) => parameters.push(size),
                Err(error) if error.code == INVALID_VALUE => break,
                Err(error) => return Err(error),
            }
        }
        Ok(FunctionHandle { module: module.clone(), raw, parameters })
    }

    /// Bytes of each parameter, as the machine code has them.
    pub(crate) fn parameters(&self) -> &[usize] {
        &self.parameters
    }

    /// CTAs that a multiprocessor takes at once.
    pub(crate) fn ctas_at_once(&self, threads: u32, dynamic_shared_bytes: u32) -> Result<u32> {
        self.module.context.bind()?;
        let mut ctas = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: writes one integer; the function is loaded as long as `self` is there.
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &mut ctas,
            self.raw,
            threads,
            dynamic_shared_bytes as usize
        ))?;
        Ok(ctas.unsigned_abs())
    }

    /// Clusters that the device takes at once.
    pub(crate) fn clusters_at_once(&self, shape: &LaunchShape, cluster: [u32; 3]) -> Result<u32> {
        self.module.context.bind()?;
        let mut attributes = vec![of_cluster(cluster)];
        let [x, y, z] = shape.grid;
        let config = cu::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: shape.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shape.dynamic_shared_bytes,
            hStream: ptr::null_mut(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as c_uint,
        };
        let mut clusters = 0;
        // SAFETY: writes one integer; attributes and function are alive for the call.
        call!(cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config))?;
        Ok(clusters.unsigned_abs())
    }

    /// A property.
    pub(crate) fn property(&self, property: FunctionProperty) -> Result<u32> {
        use cu::CUfunction_attribute as A;
        let attribute = match property {
            FunctionProperty::Registers => A::CU_FUNC_ATTRIBUTE_NUM_REGS,
            FunctionProperty::LocalBytes => A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
            FunctionProperty::StaticSharedBytes => A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            FunctionProperty::ThreadsOfBlock => A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        };
        self.module.context.bind()?;
        let mut value = 0;
        // SAFETY: writes one integer.
        call!(cuFuncGetAttribute(&mut value, attribute, self.raw))?;
        Ok(value.unsigned_abs())
    }

    /// Allows that much dynamic shared memory.
    pub(crate) fn allow_dynamic_shared(&self, bytes: u32) -> Result<()> {
        let attribute = cu::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.module.context.bind()?;
        // SAFETY: the function is alive.
        call!(cuFuncSetAttribute(self.raw, attribute, bytes))
    }

    /// Starts the kernel, or writes its start down where the stream captures. What the cells point to on the device
    /// is checked by `launch.rs` against the layout that the compiler wrote.
    pub(crate) fn start(
        &self,
        stream: &StreamHandle,
        start: &Start,
        arguments: &Arguments,
    ) -> Result<()> {
        let Arguments { cells, maps } = arguments;
        let of_cells = self.parameters.iter().take(cells.len()).all(|&s| s <= 8);
        let of_maps = self.parameters.iter().skip(cells.len()).all(|&s| s <= TensorMap::BYTES);
        let fits = cells.len() + maps.len() == self.parameters.len() && of_cells && of_maps;
        let (scalars, maps_given) = (cells.len(), maps.len());
        assert!(fits, "{scalars} cells and {maps_given} maps for {:?}", self.parameters);
        self.module.context.bind()?;
        let mut pointers: Vec<*mut c_void> =
            cells.iter().map(|cell| ptr::from_ref(cell).cast_mut().cast()).collect();
        pointers.extend(maps.iter().map(TensorMap::pointer));
        let mut attributes = Vec::with_capacity(2);
        if start.early {
            attributes.push(attribute(
                cu::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                cu::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            ));
        }
        attributes.extend(start.cluster.map(of_cluster));
        let [x, y, z] = start.grid;
        let config = cu::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: start.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: start.dynamic_shared_bytes,
            hStream: stream.raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as c_uint,
        };
        let arguments = pointers.as_mut_ptr();
        // SAFETY: there is a pointer to eight readable bytes for each parameter, none of which has more, and to 128 for
        // each map; the driver copies them before it returns. Attributes, function and stream are alive for the call.
        call!(cuLaunchKernelEx(&config, self.raw, arguments, ptr::null_mut()))
    }
}

fn attribute(
    id: cu::CUlaunchAttributeID,
    value: cu::CUlaunchAttributeValue,
) -> cu::CUlaunchAttribute {
    cu::CUlaunchAttribute { id, pad: [0; 4], value }
}

fn of_cluster([x, y, z]: [u32; 3]) -> cu::CUlaunchAttribute {
    let dims = cu::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
    attribute(
        cu::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        cu::CUlaunchAttributeValue { clusterDim: dims },
    )
}
