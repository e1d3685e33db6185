//! The device that cases run on, and memory of it with guards around.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use kernel_abi::plan::Scalar;
use kernel_abi::{Access, DType};
use kernel_emulator::{Argument, Memory};
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId};
use kernel_runtime::{
    Buffer, Device, Kernel, KernelImage, Pool, PooledBuffer, RuntimeError, Stream, Value,
};

use crate::judge::POISON;

/// Bytes before and behind every buffer that no kernel may touch.
const GUARD: usize = 256;
/// What they hold.
const GUARD_BYTE: u8 = 0x5a;
/// How the device is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Care {
    /// How long one launch may take.
    pub(crate) limit: Duration,
    /// Buffers have no guards around them and scratch is left as it is, so that a tool sees reads beyond the one
    /// and before writes of the other.
    pub(crate) is_bare: bool,
}

impl Care {
    /// Guards, poison, and 20 seconds.
    pub(crate) const STANDARD: Care = Care { limit: Duration::from_secs(20), is_bare: false };
}

/// A device with a stream.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) device: Device,
    stream: Stream,
    /// The memory of the cases, one after the other.
    pool: RefCell<Pool<Device>>,
    is_bare: bool,
}

/// Why a launch gave no results.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The runtime or the device refused.
    Runtime(RuntimeError),
    /// Something around a buffer was written.
    Guard(String),
    /// A parameter has no argument.
    Missing(String),
}

impl From<RuntimeError> for Stop {
    fn from(error: RuntimeError) -> Stop {
        Stop::Runtime(error)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Runtime(error) => write!(f, "{}: {error}", error.code().name()),
            Stop::Guard(name) => write!(f, "memory around `{name}` was written"),
            Stop::Missing(name) => write!(f, "`{name}` has no argument"),
        }
    }
}

/// A buffer in the middle of its guards.
struct Guarded {
    whole: Whole,
    inner: Buffer,
}

/// Where the buffers of a launch lie.
enum Whole {
    /// In a block that others have used and will use.
    Pooled(PooledBuffer),
    /// In memory of its own and no larger, so that a tool sees what is beyond.
    Own(Buffer),
}

impl Whole {
    fn buffer(&self) -> &Buffer {
        match self {
            Whole::Pooled(pooled) => pooled.buffer(),
            Whole::Own(buffer) => buffer,
        }
    }
}

impl Machine {
    /// Opens a device.
    pub(crate) fn open(ordinal: u32, care: Care) -> Result<Machine, RuntimeError> {
        let device = Device::open(ordinal)?;
        let mut stream = Stream::new(&device)?;
        stream.set_limit(care.limit);
        let pool = RefCell::new(Pool::new(device.clone()));
        Ok(Machine { device, stream, pool, is_bare: care.is_bare })
    }

    /// The most bytes that the memory of the cases had.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.pool.borrow().peak_bytes()
    }

    /// Launches a kernel on this memory and gives what its outputs hold then, by parameter.
    pub(crate) fn run(
        &self,
        image: &KernelImage<'_>,
        params: &IndexVec<ParamId, Param>,
        memory: &Memory,
    ) -> Result<Vec<(ParamId, Vec<u8>)>, Stop> {
        self.launch(&self.load(image)?, params, memory)
    }

    /// Brings a kernel to the device.
    pub(crate) fn load(&self, image: &KernelImage<'_>) -> Result<Kernel, Stop> {
        Ok(Kernel::load(&self.device, image)?)
    }

    /// Launches a kernel that was loaded.
    pub(crate) fn launch(
        &self,
        kernel: &Kernel,
        params: &IndexVec<ParamId, Param>,
        memory: &Memory,
    ) -> Result<Vec<(ParamId, Vec<u8>)>, Stop> {
        let mut buffers: Vec<(ParamId, Guarded)> = Vec::new();
        let outputs = self.launch_on(&mut buffers, kernel, params, memory);
        let mut pool = self.pool.borrow_mut();
        for (_, buffer) in buffers {
            match buffer.whole {
                Whole::Pooled(pooled) => pool.give_back_buffer(pooled),
                Whole::Own(buffer) => drop(buffer),
            }
        }
        outputs
    }

    /// Launches a kernel; `buffers` are those that its launch has taken.
    fn launch_on(
        &self,
        buffers: &mut Vec<(ParamId, Guarded)>,
        kernel: &Kernel,
        params: &IndexVec<ParamId, Param>,
        memory: &Memory,
    ) -> Result<Vec<(ParamId, Vec<u8>)>, Stop> {
        let mut scalars: Vec<(ParamId, Scalar)> = Vec::new();
        for (id, param) in params.iter_enumerated() {
            match memory.argument(id) {
                Argument::Missing => return Err(Stop::Missing(param.name.clone())),
                Argument::Scalar { dtype, code } => {
                    scalars.push((id, Scalar::Code(*dtype, *code)));
                }
                Argument::Buffer(buffer) => {
                    let guarded = self.guarded(param, buffer.len() as u64, buffer.bytes())?;
                    buffers.push((id, guarded));
                }
            }
        }
        let given: Vec<(&str, Value<'_>)> = buffers
            .iter()
            .map(|(id, buffer)| (params[*id].name.as_str(), Value::Buffer(&buffer.inner)))
            .chain(scalars.iter().map(|(id, s)| (params[*id].name.as_str(), Value::Scalar(*s))))
            .collect();
        self.stream.launch(kernel, &given)?;
        self.stream.finish(|| vec![kernel.name().to_owned()])?;
        let mut outputs = Vec::new();
        for (id, buffer) in buffers.iter() {
            let bytes = self.stream.read(buffer.whole.buffer())?;
            let inner = self.guard()..self.guard() + buffer.inner.bytes();
            let outside = bytes[..inner.start].iter().chain(&bytes[inner.end..]);
            if outside.into_iter().any(|&byte| byte != GUARD_BYTE) {
                return Err(Stop::Guard(params[*id].name.clone()));
            }
            match params[*id].access {
                Access::Output | Access::Inout => outputs.push((*id, bytes[inner].to_vec())),
                Access::Static
                | Access::Input
                | Access::Scratch
                | Access::Peer
                | Access::Multicast
                | Access::Scalar => {}
            }
        }
        Ok(outputs)
    }

    /// Bytes before and behind every buffer.
    fn guard(&self) -> usize {
        if self.is_bare { 0 } else { GUARD }
    }

    /// Memory for a parameter: what it is given, or poison where the kernel is to write.
    fn guarded(&self, param: &Param, elements: u64, bytes: &[u8]) -> Result<Guarded, RuntimeError> {
        let size = (bytes.len() + 2 * self.guard()) as u64;
        let whole = if self.is_bare {
            Whole::Own(Buffer::new(&self.device, &param.name, DType::U8, size)?)
        } else {
            Whole::Pooled(self.pool.borrow_mut().buffer(&param.name, DType::U8, size)?)
        };
        let inner = whole.buffer().part(self.guard() as u64, &param.name, param.dtype, elements)?;
        if !self.is_bare {
            self.stream.fill(whole.buffer(), GUARD_BYTE)?;
        }
        match param.access {
            Access::Scratch if self.is_bare => {}
            Access::Output | Access::Scratch => self.stream.fill(&inner, POISON)?,
            Access::Static
            | Access::Input
            | Access::Inout
            | Access::Peer
            | Access::Multicast
            | Access::Scalar => {
                self.stream.write(&inner, bytes)?;
            }
        }
        Ok(Guarded { whole, inner })
    }
}
