//! Typed memory of a device.

use std::sync::Arc;

use kernel_abi::DType;

use crate::device::{Device, OUT_OF_MEMORY};
use crate::error::RuntimeError;
use crate::ffi::DeviceMemory;

/// Where a buffer of an allocation starts: a multiple of this, in bytes. Vector loads need 16, copies like more.
pub const ALIGNMENT: u64 = 256;

/// What fills a poisoned buffer: NaN in every floating-point type, -1 in the signed integers.
pub const POISON: u8 = 0xff;

/// Elements in memory of a device: an allocation, or a part of one.
#[derive(Debug, Clone)]
pub struct Buffer {
    name: String,
    memory: Arc<DeviceMemory>,
    offset: usize,
    dtype: DType,
    elements: u64,
    bytes: usize,
}

/// Bytes of that many elements.
///
/// # Errors
/// More than the machine can address.
pub(crate) fn byte_count(what: &str, dtype: DType, elements: u64) -> Result<usize, RuntimeError> {
    elements
        .checked_mul(u64::from(dtype.bits()))
        .map(|bits| bits.div_ceil(8))
        .filter(|&bytes| bytes <= isize::MAX as u64)
        .map(|bytes| bytes as usize)
        .ok_or_else(|| RuntimeError::Unsupported(format!("{elements} elements of `{what}`")))
}

impl Buffer {
    /// Takes memory of its own; the content is what was there.
    ///
    /// # Errors
    /// There is too little memory, or the device was lost.
    pub fn new(
        device: &Device,
        name: impl Into<String>,
        dtype: DType,
        elements: u64,
    ) -> Result<Buffer, RuntimeError> {
        let name = name.into();
        let bytes = byte_count(&name, dtype, elements)?;
        let memory = Arc::new(allocate(device, &format!("the elements of `{name}`"), bytes)?);
        Ok(Buffer { name, memory, offset: 0, dtype, elements, bytes })
    }

    /// A part of this buffer, from a byte on.
    ///
    /// # Errors
    /// It is not inside of this buffer.
    pub fn part(
        &self,
        start: u64,
        name: impl Into<String>,
        dtype: DType,
        elements: u64,
    ) -> Result<Buffer, RuntimeError> {
        let name = name.into();
        let bytes = byte_count(&name, dtype, elements)?;
        let end = start.saturating_add(bytes as u64);
        if end > self.bytes as u64 {
            let wanted = self.bytes as u64;
            return Err(RuntimeError::Size { buffer: self.name.clone(), wanted, found: end });
        }
        let offset = self.offset + start as usize;
        Ok(Buffer { name, memory: self.memory.clone(), offset, dtype, elements, bytes })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its address on the device; null where it has no elements.
    pub fn address(&self) -> u64 {
        if self.bytes == 0 { 0 } else { self.memory.address() + self.offset as u64 }
    }

    pub(crate) fn memory(&self) -> &Arc<DeviceMemory> {
        &self.memory
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }
}

/// Takes memory of a device.
///
/// # Errors
/// There is too little, which says how much there is.
pub(crate) fn allocate(
    device: &Device,
    what: &str,
    bytes: usize,
) -> Result<DeviceMemory, RuntimeError> {
    let memory = DeviceMemory::new(device.context()?, bytes).map_err(|error| {
        if error.code == OUT_OF_MEMORY {
            device.too_small(what, bytes as u64)
        } else {
            RuntimeError::from(error)
        }
    });
    let memory = device.noticed(memory)?;
    tracing::debug!(what, bytes, address = memory.address(), "took memory");
    Ok(memory)
}
