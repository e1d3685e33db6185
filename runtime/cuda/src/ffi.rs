//! The calls into the CUDA driver: with the folder of this name the one place of this crate with code that the
//! compiler cannot check.
//!
//! Every handle is an owner: it is destroyed once, and not while something that needs it is alive. A device that hung
//! or was lost is given up: nothing is destroyed on it any more, because the driver would wait for a kernel that never
//! ends; the end of the process frees all.
#![expect(unsafe_code, reason = "the one file of this crate that calls C")]

use std::ffi::{c_char, c_int, c_uint};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cudarc::driver::sys as cu;

unsafe extern "C" {
    /// Of the C library: ends the process without running what libraries registered for its end.
    fn _exit(code: c_int) -> !;
}

/// A code that the driver returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverError {
    /// The function that returned it.
    pub call: &'static str,
    /// The code.
    pub code: u32,
    /// Its name, `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} returned {} ({})", self.call, self.code, self.name)
    }
}

impl std::error::Error for DriverError {}

type Result<T> = std::result::Result<T, DriverError>;

fn check(call: &'static str, result: cu::CUresult) -> Result<()> {
    if result == cu::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let error = DriverError { call, code: result as u32, name: format!("{result:?}") };
    if error.code != NOT_READY {
        tracing::debug!(call, code = error.code, name = error.name, "the driver returned an error");
    }
    Err(error)
}

/// `CUDA_ERROR_NOT_READY`.
const NOT_READY: u32 = 600;
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
const PEER_ACCESS_ENABLED: u32 = 704;

/// Calls a function of the driver; why the call is right is said where the macro is used.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: said at the use of this macro. The library is there: `is_present` was asked before `initialise`,
        // without which every other call returns an error.
        let result = unsafe { cu::$name($($argument),*) };
        check(stringify!($name), result)
    }};
}

mod code;

mod maps;

pub(crate) use code::{FunctionHandle, FunctionProperty, ModuleHandle, Start};
pub(crate) use maps::{MapShape, TensorMap};

/// Whether the driver's library can be loaded. Nothing else may be called where it cannot.
pub(crate) fn is_present() -> bool {
    // SAFETY: loads the library of the driver and closes it again; its initialisers are the driver's own.
    unsafe { cu::is_culib_present() }
}

/// The version of the driver's interface, 13000 for 13.0.
pub(crate) fn driver_version() -> Result<u32> {
    let mut version = 0;
    // SAFETY: writes one integer.
    call!(cuDriverGetVersion(&mut version))?;
    Ok(version.unsigned_abs())
}

/// Initialises the driver; again is no fault.
pub(crate) fn initialise() -> Result<()> {
    // SAFETY: takes a number.
    call!(cuInit(0))
}

/// Number of devices.
pub(crate) fn device_count() -> Result<u32> {
    let mut count = 0;
    // SAFETY: writes one integer.
    call!(cuDeviceGetCount(&mut count))?;
    Ok(count.unsigned_abs())
}

/// A device by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceHandle(cu::CUdevice);

/// A property of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceProperty {
    Multiprocessors,
    L2Bytes,
    SharedBytesOfBlock,
    ThreadsOfBlock,
    CapabilityMajor,
    CapabilityMinor,
    ComputeMode,
}

impl DeviceHandle {
    /// The device of that number.
    pub(crate) fn get(ordinal: u32) -> Result<DeviceHandle> {
        let mut device = 0;
        let ordinal = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        // SAFETY: writes one integer.
        call!(cuDeviceGet(&mut device, ordinal))?;
        Ok(DeviceHandle(device))
    }

    /// Its name.
    pub(crate) fn name(self) -> Result<String> {
        let mut name = [0 as c_char; 256];
        // SAFETY: writes at most 256 bytes.
        call!(cuDeviceGetName(name.as_mut_ptr(), 256, self.0))?;
        let bytes: Vec<u8> =
            name.iter().map(|c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Bytes of its memory.
    pub(crate) fn total_bytes(self) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: writes one integer.
        call!(cuDeviceTotalMem_v2(&mut bytes, self.0))?;
        Ok(bytes as u64)
    }

    /// A property.
    pub(crate) fn property(self, property: DeviceProperty) -> Result<u32> {
        use cu::CUdevice_attribute as A;
        let attribute = match property {
            DeviceProperty::Multiprocessors => A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            DeviceProperty::L2Bytes => A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE,
            DeviceProperty::SharedBytesOfBlock => {
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
            }
            DeviceProperty::ThreadsOfBlock => A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
            DeviceProperty::CapabilityMajor => A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            DeviceProperty::CapabilityMinor => A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            DeviceProperty::ComputeMode => A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE,
        };
        let mut value = 0;
        // SAFETY: writes one integer.
        call!(cuDeviceGetAttribute(&mut value, attribute, self.0))?;
        Ok(value.unsigned_abs())
    }
}

/// The primary context of a device.
#[derive(Debug)]
pub(crate) struct ContextHandle {
    device: cu::CUdevice,
    raw: cu::CUcontext,
    given_up: AtomicBool,
    /// Bytes of memory of the device that this process took.
    taken: AtomicU64,
}

// SAFETY: the driver's functions may be called from any thread; the context is made current by each.
unsafe impl Send for ContextHandle {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for ContextHandle {}

impl ContextHandle {
    /// Takes the primary context of a device and makes it current.
    pub(crate) fn retain(device: DeviceHandle) -> Result<Arc<ContextHandle>> {
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle, which is released once by `drop`.
        call!(cuDevicePrimaryCtxRetain(&mut raw, device.0))?;
        let (given_up, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        let context = Arc::new(ContextHandle { device: device.0, raw, given_up, taken });
        context.bind()?;
        Ok(context)
    }

    /// Makes it the context of this thread.
    pub(crate) fn bind(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self` is there.
        call!(cuCtxSetCurrent(self.raw))
    }

    /// Whether this device can read and write memory of another one.
    pub(crate) fn reaches(&self, other: &ContextHandle) -> Result<bool> {
        let mut can = 0;
        // SAFETY: writes one integer; both devices are there as long as their contexts are.
        call!(cuDeviceCanAccessPeer(&mut can, self.device, other.device))?;
        Ok(can != 0)
    }

    /// Lets this device read and write memory of another one; again is no fault.
    pub(crate) fn open_to(&self, other: &ContextHandle) -> Result<()> {
        self.bind()?;
        // SAFETY: this context is current, the other one is retained as long as `other` is there; the flags are zero.
        match call!(cuCtxEnablePeerAccess(other.raw, 0)) {
            Err(error) if error.code == PEER_ACCESS_ENABLED => Ok(()),
            done => done,
        }
    }

    /// Free and all bytes of its device.
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers.
        call!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok((free as u64, total as u64))
    }

    /// Bytes of memory of the device that this process took.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Destroys nothing on this device any more.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }

    /// Whether the device hung or was lost.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Whether something may be destroyed now, with the context current.
    fn takes_leave(&self) -> bool {
        !self.is_given_up() && self.bind().is_ok()
    }
}

/// What `drop` does with an error: nobody is there to take it.
fn dropped(what: &'static str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "{what} could not be destroyed");
    }
}

impl Drop for ContextHandle {
    fn drop(&mut self) {
        if !self.is_given_up() {
            // SAFETY: retained once by `retain`, and all that lived in it held an `Arc` of it.
            dropped("a context", call!(cuDevicePrimaryCtxRelease_v2(self.device)));
        }
    }
}

/// Memory of a device.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    context: Arc<ContextHandle>,
    /// Null where there are no bytes.
    address: cu::CUdeviceptr,
    bytes: usize,
}

impl DeviceMemory {
    /// Takes memory; its content is what was there.
    pub(crate) fn new(context: &Arc<ContextHandle>, bytes: usize) -> Result<DeviceMemory> {
        let mut address = 0;
        if bytes > 0 {
            context.bind()?;
            // SAFETY: writes one address, which is freed once by `drop`.
            call!(cuMemAlloc_v2(&mut address, bytes))?;
            context.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Ok(DeviceMemory { context: context.clone(), address, bytes })
    }

    /// Its address; 0 where there are no bytes.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The address of `len` bytes from `offset`.
    fn part(&self, offset: usize, len: usize) -> cu::CUdeviceptr {
        let end = offset.checked_add(len).expect("offsets were checked");
        assert!(end <= self.bytes, "bytes {offset} to {end} of {}", self.bytes);
        self.address + offset as u64
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.address != 0 && self.context.takes_leave() {
            // SAFETY: it came from `cuMemAlloc` and is freed here alone; the driver waits for work that uses it.
            dropped("memory of the device", call!(cuMemFree_v2(self.address)));
            self.context.taken.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        }
    }
}

/// Memory of the host that the device can read and write.
#[derive(Debug)]
pub(crate) struct PinnedMemory {
    context: Arc<ContextHandle>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is owned memory; those who let the device write it wait before they read.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above; through `&self` it is only read, word by word or after a wait.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// Takes memory and clears it.
    pub(crate) fn new(context: &Arc<ContextHandle>, bytes: usize) -> Result<PinnedMemory> {
        let bytes = bytes.max(4);
        context.bind()?;
        let mut start = ptr::null_mut();
        // SAFETY: writes one address, which is freed once by `drop`.
        call!(cuMemHostAlloc(&mut start, bytes, 0))?;
        let start = start.cast::<u8>();
        // SAFETY: the driver gave that many bytes, to nobody else.
        unsafe { start.write_bytes(0, bytes) };
        Ok(PinnedMemory { context: context.clone(), start, bytes })
    }

    /// Writes bytes at an offset; the device must not read them now.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.checked_add(bytes.len()).expect("offsets were checked");
        assert!(end <= self.bytes, "bytes {offset} to {end} of {}", self.bytes);
        // SAFETY: both ranges are inside their memory and belong to different owners.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }

    /// Appends `len` bytes from an offset to `out`; the device must have written them.
    pub(crate) fn read(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        let end = offset.checked_add(len).expect("offsets were checked");
        assert!(end <= self.bytes, "bytes {offset} to {end} of {}", self.bytes);
        // SAFETY: the range is inside the memory, which was initialised and is not written meanwhile.
        out.extend_from_slice(unsafe { std::slice::from_raw_parts(self.start.add(offset), len) });
    }

    /// The first word, which the device may be writing.
    pub(crate) fn first_word(&self) -> u32 {
        // SAFETY: there are four bytes at least, and the driver aligns to more than four.
        unsafe { self.start.cast::<u32>().read_volatile() }
    }

    /// Clears the first word; the device must not be writing it.
    pub(crate) fn clear_first_word(&self) {
        // SAFETY: as in `first_word`; those who share the memory look at this word through these two functions alone.
        unsafe { self.start.cast::<u32>().write_volatile(0) };
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.context.takes_leave() {
            // SAFETY: it came from `cuMemHostAlloc` and is freed here alone.
            dropped("memory of the host", call!(cuMemFreeHost(self.start.cast())));
        }
    }
}

/// A mark in the work of a stream.
#[derive(Debug)]
pub(crate) struct EventHandle {
    context: Arc<ContextHandle>,
    raw: cu::CUevent,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for EventHandle {}
// SAFETY: as above.
unsafe impl Sync for EventHandle {}

impl EventHandle {
    /// A mark that keeps its time.
    pub(crate) fn new(context: &Arc<ContextHandle>) -> Result<EventHandle> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle, which is destroyed once by `drop`.
        call!(cuEventCreate(&mut raw, 0))?;
        Ok(EventHandle { context: context.clone(), raw })
    }

    /// Whether the work before the mark has ended.
    pub(crate) fn is_done(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the event lives as long as `self`.
        match call!(cuEventQuery(self.raw)) {
            Ok(()) => Ok(true),
            Err(error) if error.code == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Milliseconds from an earlier mark; both must be done.
    pub(crate) fn milliseconds_since(&self, earlier: &EventHandle) -> Result<f32> {
        self.context.bind()?;
        let mut time = 0.0;
        // SAFETY: writes one number; both events are alive.
        call!(cuEventElapsedTime_v2(&mut time, earlier.raw, self.raw))?;
        Ok(time)
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        if self.context.takes_leave() {
            // SAFETY: created once, destroyed here alone.
            dropped("an event", call!(cuEventDestroy_v2(self.raw)));
        }
    }
}

/// A queue of work.
#[derive(Debug)]
pub(crate) struct StreamHandle {
    context: Arc<ContextHandle>,
    raw: cu::CUstream,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

/// Rows of bytes in memory of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'m> {
    pub(crate) memory: &'m DeviceMemory,
    pub(crate) offset: usize,
    /// Bytes from one row to the next.
    pub(crate) pitch: usize,
}

impl StreamHandle {
    /// A stream that does not wait for the default one.
    pub(crate) fn new(context: &Arc<ContextHandle>) -> Result<StreamHandle> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = cu::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
        // SAFETY: writes one handle, which is destroyed once by `drop`.
        call!(cuStreamCreate(&mut raw, flags))?;
        Ok(StreamHandle { context: context.clone(), raw })
    }

    /// Sets bytes.
    pub(crate) fn fill(&self, to: &DeviceMemory, at: usize, len: usize, byte: u8) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: `part` checks that the range is inside the memory; the stream is alive.
        call!(cuMemsetD8Async(to.part(at, len), byte, len, self.raw))
    }

    /// Sets 32-bit words; `at` is a multiple of 4.
    pub(crate) fn fill_words(
        &self,
        to: &DeviceMemory,
        at: usize,
        words: usize,
        word: u32,
    ) -> Result<()> {
        if words == 0 {
            return Ok(());
        }
        self.context.bind()?;
        let address = to.part(at, words.checked_mul(4).expect("sizes were checked"));
        // SAFETY: `part` checks that the range is inside the memory; the stream is alive.
        call!(cuMemsetD32Async(address, word, words, self.raw))
    }

    /// Copies from the host.
    pub(crate) fn copy_in(
        &self,
        from: &PinnedMemory,
        start: usize,
        to: &DeviceMemory,
        at: usize,
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = start.checked_add(len).expect("offsets were checked");
        assert!(end <= from.bytes, "bytes {start} to {end} of {}", from.bytes);
        self.context.bind()?;
        // SAFETY: the range is inside the pinned memory.
        let source = unsafe { from.start.add(start) };
        // SAFETY: both ranges are inside their memory, which is kept until the stream was waited for.
        call!(cuMemcpyHtoDAsync_v2(to.part(at, len), source.cast_const().cast(), len, self.raw))
    }

    /// Copies to the host.
    pub(crate) fn copy_out(
        &self,
        from: &DeviceMemory,
        at: usize,
        to: &PinnedMemory,
        start: usize,
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let end = start.checked_add(len).expect("offsets were checked");
        assert!(end <= to.bytes, "bytes {start} to {end} of {}", to.bytes);
        self.context.bind()?;
        // SAFETY: the range is inside the pinned memory.
        let target = unsafe { to.start.add(start) };
        // SAFETY: both ranges are inside their memory, which is kept until the stream was waited for.
        call!(cuMemcpyDtoHAsync_v2(target.cast(), from.part(at, len), len, self.raw))
    }

    /// Copies within the device; the ranges do not overlap.
    pub(crate) fn copy(
        &self,
        from: &DeviceMemory,
        start: usize,
        to: &DeviceMemory,
        at: usize,
        len: usize,
    ) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: `part` checks both ranges.
        call!(cuMemcpyDtoDAsync_v2(to.part(at, len), from.part(start, len), len, self.raw))
    }

    /// Copies `rows` rows of `width` bytes within the device.
    pub(crate) fn copy_rows(
        &self,
        from: Rows<'_>,
        to: Rows<'_>,
        width: usize,
        rows: usize,
    ) -> Result<()> {
        if width == 0 || rows == 0 {
            return Ok(());
        }
        let whole = |side: Rows<'_>| {
            assert!(side.pitch >= width, "rows of {width} bytes every {} bytes", side.pitch);
            let all = (rows - 1).checked_mul(side.pitch).and_then(|all| all.checked_add(width));
            side.memory.part(side.offset, all.expect("sizes were checked"))
        };
        let copy = cu::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: cu::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: ptr::null(),
            srcDevice: whole(from),
            srcArray: ptr::null_mut(),
            srcPitch: from.pitch,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: cu::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: ptr::null_mut(),
            dstDevice: whole(to),
            dstArray: ptr::null_mut(),
            dstPitch: to.pitch,
            WidthInBytes: width,
            Height: rows,
        };
        self.context.bind()?;
        // SAFETY: `part` checks that all rows of both sides are inside their memory.
        call!(cuMemcpy2DAsync_v2(&copy, self.raw))
    }

    /// Sets a mark behind the work so far.
    pub(crate) fn record(&self, event: &EventHandle) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both handles are alive.
        call!(cuEventRecord(event.raw, self.raw))
    }

    /// Whether all work has ended.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        match call!(cuStreamQuery(self.raw)) {
            Ok(()) => Ok(true),
            Err(error) if error.code == NOT_READY => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// From here on work is written down, not done, until the capture is finished or dropped.
    pub(crate) fn begin_capture(&self) -> Result<CaptureHandle<'_>> {
        self.context.bind()?;
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        call!(cuStreamBeginCapture_v2(self.raw, mode))?;
        Ok(CaptureHandle { stream: self, is_open: true })
    }

    /// Starts a graph.
    pub(crate) fn start(&self, graph: &GraphHandle) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both handles are alive, and the graph keeps what its nodes use.
        call!(cuGraphLaunch(graph.raw, self.raw))
    }
}

/// A stream that writes work down.
#[derive(Debug)]
pub(crate) struct CaptureHandle<'s> {
    stream: &'s StreamHandle,
    is_open: bool,
}

impl CaptureHandle<'_> {
    /// What was written down. `keeps` is what the nodes use.
    pub(crate) fn finish(mut self, keeps: Vec<Kept>) -> Result<GraphHandle> {
        self.stream.context.bind()?;
        let graph = self.end()?;
        let mut nodes = 0;
        // SAFETY: without a list it writes the number of nodes alone.
        let counted = call!(cuGraphGetNodes(graph, ptr::null_mut(), &mut nodes));
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle, which is destroyed once by `drop` of `GraphHandle`.
        let made = call!(cuGraphInstantiateWithFlags(&mut raw, graph, 0));
        // SAFETY: the graph came from the capture and is not used after this.
        dropped("a captured graph", call!(cuGraphDestroy(graph)));
        made?;
        // From here on it is destroyed by `drop`, also where nobody could count its nodes.
        let handle =
            GraphHandle { context: self.stream.context.clone(), raw, nodes, _keeps: keeps };
        counted.map(|()| handle)
    }

    /// Lets the stream do its work again; what was written down is the caller's.
    fn end(&mut self) -> Result<cu::CUgraph> {
        self.is_open = false;
        let mut graph = ptr::null_mut();
        // SAFETY: writes one handle; the stream is alive and captures.
        call!(cuStreamEndCapture(self.stream.raw, &mut graph))?;
        Ok(graph)
    }
}

impl Drop for CaptureHandle<'_> {
    fn drop(&mut self) {
        if self.is_open && self.stream.context.takes_leave() {
            let ended = self.end();
            let destroyed = ended.and_then(|graph| {
                // SAFETY: the graph came from the capture and is not used after this.
                call!(cuGraphDestroy(graph))
            });
            dropped("a capture that was not finished", destroyed);
        }
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if self.context.takes_leave() {
            // SAFETY: created once, destroyed here alone.
            dropped("a stream", call!(cuStreamDestroy_v2(self.raw)));
        }
    }
}

/// What the nodes of a graph use.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    Memory(#[expect(dead_code, reason = "it is kept, not read")] Arc<DeviceMemory>),
    Pinned(#[expect(dead_code, reason = "it is kept, not read")] Arc<PinnedMemory>),
    Function(#[expect(dead_code, reason = "it is kept, not read")] Arc<FunctionHandle>),
}

/// Work that was written down and can be started again and again.
#[derive(Debug)]
pub(crate) struct GraphHandle {
    context: Arc<ContextHandle>,
    raw: cu::CUgraphExec,
    nodes: usize,
    _keeps: Vec<Kept>,
}

// SAFETY: the driver's functions may be called from any thread.
unsafe impl Send for GraphHandle {}
// SAFETY: as above.
unsafe impl Sync for GraphHandle {}

impl GraphHandle {
    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for GraphHandle {
    fn drop(&mut self) {
        if self.context.takes_leave() {
            // SAFETY: instantiated once, destroyed here alone.
            dropped("a graph", call!(cuGraphExecDestroy(self.raw)));
        }
    }
}

/// Ends the process at once. What libraries do at its end could wait for a kernel that never ends.
pub(crate) fn end_process(code: u8) -> ! {
    // SAFETY: takes a number and does not return; nothing of this process runs after it.
    unsafe { _exit(c_int::from(code)) }
}
