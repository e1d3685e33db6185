//! Which devices there are, and one of them to work on.

use std::sync::Arc;

use crate::error::{DriverError, RuntimeError};
use crate::ffi::{self, ContextHandle, DeviceHandle, DeviceProperty};

/// The least version of the driver's interface: 12.8.
pub const NEEDED_DRIVER: u32 = 12080;

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: u32 = 100;
/// Codes of a device that another process holds.
const HELD: [u32; 2] = [46, 101];
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// `CUDA_ERROR_UNKNOWN`.
const UNKNOWN: u32 = 999;
/// Memory of a device for what the driver makes of kernels and graphs.
pub(crate) const HEADROOM: u64 = 128 << 20;
/// `CU_COMPUTEMODE_PROHIBITED`.
const PROHIBITED: u32 = 2;
/// `CU_COMPUTEMODE_EXCLUSIVE_PROCESS`.
const EXCLUSIVE: u32 = 3;

/// Why a device cannot be opened, where others are the reason.
fn held(error: &DriverError, mode: u32, memory_bytes: u64) -> Option<String> {
    if HELD.contains(&error.code) && mode == EXCLUSIVE {
        Some(format!("another process holds it, and its compute mode is exclusive ({error})"))
    } else if HELD.contains(&error.code) {
        Some(format!("another process holds it ({error})"))
    } else if error.code == UNKNOWN {
        // What the driver says on an H200 of whose memory a few MiB are left.
        Some(format!(
            "the driver makes no context, as where other processes hold its memory ({error})"
        ))
    } else if error.code == OUT_OF_MEMORY {
        let gigabytes = memory_bytes as f64 / 1e9;
        Some(format!("other processes hold all of its memory of {gigabytes:.2} GB ({error})"))
    } else {
        None
    }
}

/// A driver that works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Version of its interface, 13000 for 13.0.
    pub version: u32,
    /// Its devices.
    pub devices: Vec<DeviceInfo>,
}

/// What a device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Compute capability, `(9, 0)`.
    pub capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Bytes of its second-level cache.
    pub l2_bytes: u64,
    /// Shared memory that a CTA may ask for, in bytes.
    pub shared_bytes_of_block: u32,
    /// Threads of a CTA at most.
    pub threads_of_block: u32,
}

impl DeviceInfo {
    /// The architecture, `sm_90`.
    pub fn architecture(&self) -> String {
        format!("sm_{}{}", self.capability.0, self.capability.1)
    }

    fn read(ordinal: u32) -> Result<DeviceInfo, RuntimeError> {
        let handle = DeviceHandle::get(ordinal)?;
        let property = |property| handle.property(property);
        Ok(DeviceInfo {
            ordinal,
            name: handle.name()?,
            capability: (
                property(DeviceProperty::CapabilityMajor)?,
                property(DeviceProperty::CapabilityMinor)?,
            ),
            multiprocessors: property(DeviceProperty::Multiprocessors)?,
            memory_bytes: handle.total_bytes()?,
            l2_bytes: u64::from(property(DeviceProperty::L2Bytes)?),
            shared_bytes_of_block: property(DeviceProperty::SharedBytesOfBlock)?,
            threads_of_block: property(DeviceProperty::ThreadsOfBlock)?,
        })
    }
}

/// Looks for the driver and its devices; takes no memory on any of them.
///
/// # Errors
/// There is no driver, it is too old or does not start, or it has no device.
pub fn probe() -> Result<Driver, RuntimeError> {
    if !ffi::is_present() {
        return Err(RuntimeError::NoDriver);
    }
    // The version can be asked for before the driver is initialised.
    let version = ffi::driver_version().map_err(RuntimeError::Unusable)?;
    if version < NEEDED_DRIVER {
        return Err(RuntimeError::OldDriver { found: version, needed: NEEDED_DRIVER });
    }
    ffi::initialise().map_err(|error| match error.code {
        NO_DEVICE => RuntimeError::NoDevice,
        _ => RuntimeError::Unusable(error),
    })?;
    let count = ffi::device_count()?;
    if count == 0 {
        return Err(RuntimeError::NoDevice);
    }
    let devices = (0..count).map(DeviceInfo::read).collect::<Result<Vec<_>, _>>()?;
    tracing::debug!(version, ?devices, "probed");
    Ok(Driver { version, devices })
}

/// A device that this process works on.
#[derive(Debug, Clone)]
pub struct Device {
    context: Arc<ContextHandle>,
    info: DeviceInfo,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// There is no driver or no such device, or another process holds it.
    pub fn open(ordinal: u32) -> Result<Device, RuntimeError> {
        let driver = probe()?;
        let count = driver.devices.len() as u32;
        let info = driver
            .devices
            .into_iter()
            .find(|info| info.ordinal == ordinal)
            .ok_or(RuntimeError::NoSuchDevice { ordinal, count })?;
        let handle = DeviceHandle::get(ordinal)?;
        let mode = handle.property(DeviceProperty::ComputeMode)?;
        let busy = |why: String| RuntimeError::Busy { ordinal, device: info.name.clone(), why };
        if mode == PROHIBITED {
            return Err(busy("its compute mode lets no process in".to_owned()));
        }
        let context = ContextHandle::retain(handle).map_err(|error| {
            match held(&error, mode, info.memory_bytes) {
                Some(why) => busy(why),
                None => RuntimeError::from(error),
            }
        })?;
        let device = Device { context, info };
        let (free, total) = device.memory()?;
        tracing::info!(
            ordinal,
            name = device.info.name,
            architecture = device.info.architecture(),
            driver = driver.version,
            free,
            total,
            "opened the device"
        );
        Ok(device)
    }

    /// What it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Free and all bytes of its memory.
    ///
    /// # Errors
    /// The device was lost.
    pub fn memory(&self) -> Result<(u64, u64), RuntimeError> {
        self.called(self.context()?.memory())
    }

    /// Refuses what needs more memory than is free.
    ///
    /// # Errors
    /// There is less, or the device was lost.
    pub fn check_free(&self, what: &str, needed: u64) -> Result<(), RuntimeError> {
        let (free, _) = self.memory()?;
        if needed > free { Err(self.too_small(what, needed)) } else { Ok(()) }
    }

    /// The error for memory that is not there, with who has it.
    pub(crate) fn too_small(&self, what: &str, needed: u64) -> RuntimeError {
        let (free, total) = self.context.memory().unwrap_or((0, self.info.memory_bytes));
        let others = total.saturating_sub(free).saturating_sub(self.context.taken_bytes());
        RuntimeError::Memory { what: what.to_owned(), needed, free, total, others }
    }

    /// Whether a kernel did not end, or the device was lost: nothing is done on it any more.
    pub fn is_given_up(&self) -> bool {
        self.context.is_given_up()
    }

    /// Does nothing on this device any more.
    pub(crate) fn give_up(&self) {
        self.context.give_up();
    }

    /// The context, where the device is still used.
    pub(crate) fn context(&self) -> Result<&Arc<ContextHandle>, RuntimeError> {
        if self.context.is_given_up() { Err(RuntimeError::GivenUp) } else { Ok(&self.context) }
    }

    /// What a call of the driver gave, with the device given up where it was lost.
    pub(crate) fn called<T>(&self, result: Result<T, DriverError>) -> Result<T, RuntimeError> {
        self.noticed(result.map_err(RuntimeError::from))
    }

    /// Gives the device up where an error means that it was lost.
    pub(crate) fn noticed<T>(&self, result: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        match result {
            Err(error) if error.leaves_work_behind() => {
                self.give_up();
                Err(error)
            }
            // The driver needs memory of its own for kernels, queues and graphs.
            Err(RuntimeError::Driver(error)) if error.code == OUT_OF_MEMORY => {
                Err(self.too_small(&format!("what {} makes", error.call), HEADROOM))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_others_hold_is_told_from_one_that_fails() {
        let error = |code, name: &str| DriverError {
            call: "cuDevicePrimaryCtxRetain",
            code,
            name: name.to_owned(),
        };
        let held = |code, name: &str, mode| held(&error(code, name), mode, 150_754_820_096);
        let why = held(46, "CUDA_ERROR_DEVICE_UNAVAILABLE", EXCLUSIVE).unwrap();
        assert!(why.starts_with("another process holds it, and its compute mode is exclusive"));
        let why = held(101, "CUDA_ERROR_INVALID_DEVICE", 0).unwrap();
        assert!(why.starts_with("another process holds it (cuDevice"), "{why}");
        let why = held(OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", 0).unwrap();
        assert!(why.starts_with("other processes hold all of its memory of 150.75 GB"), "{why}");
        let why = held(UNKNOWN, "CUDA_ERROR_UNKNOWN", 0).unwrap();
        assert!(why.starts_with("the driver makes no context, as where other processes hold"));
        assert_eq!(held(802, "CUDA_ERROR_SYSTEM_NOT_READY", EXCLUSIVE), None);
    }
}
