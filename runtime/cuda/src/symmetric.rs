//! Memory of several ranks in one process: the same buffer on each, and on each a table of where all of them are.
//!
//! A kernel over several ranks takes the table. It is written once, when the memory is made, so that launches, those
//! in a graph too, have the same parameters each time. Nothing here uses multicast objects.

use kernel_abi::DType;

use crate::device::Device;
use crate::error::RuntimeError;
use crate::memory::Buffer;
use crate::stream::Stream;

/// Lets every device read and write the memory of every other one. A device may be named several times.
///
/// # Errors
/// Two devices cannot reach each other, or one was lost.
pub fn connect(devices: &[Device]) -> Result<(), RuntimeError> {
    for from in devices {
        for to in devices {
            let (own, other) = (from.info().ordinal, to.info().ordinal);
            if own == other {
                continue;
            }
            if !from.context()?.reaches(to.context()?)? {
                return Err(RuntimeError::Unsupported(format!(
                    "memory of device {other} for device {own}: the driver says that they cannot reach each other"
                )));
            }
            from.noticed(from.context()?.open_to(to.context()?).map_err(RuntimeError::from))?;
        }
    }
    Ok(())
}

/// A buffer on every rank.
#[derive(Debug)]
pub struct Symmetric {
    buffers: Vec<Buffer>,
    tables: Vec<Buffer>,
}

impl Symmetric {
    /// Takes memory on the device of each rank and fills it with zeros; `streams` has one entry a rank, and their devices
    /// are connected. All is there when this returns.
    ///
    /// # Errors
    /// There is too little memory, or a device was lost.
    pub fn new(
        streams: &[Stream],
        name: &str,
        dtype: DType,
        elements: u64,
    ) -> Result<Symmetric, RuntimeError> {
        let own = |stream: &Stream| -> Result<Buffer, RuntimeError> {
            let buffer = Buffer::new(stream.device(), name, dtype, elements)?;
            stream.fill(&buffer, 0)?;
            Ok(buffer)
        };
        let buffers = streams.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u8> =
            buffers.iter().flat_map(|buffer| buffer.address().to_le_bytes()).collect();
        let table = |stream: &Stream| -> Result<Buffer, RuntimeError> {
            let name = format!("{name} of all ranks");
            let table = Buffer::new(stream.device(), name, DType::U64, buffers.len() as u64)?;
            stream.write(&table, &addresses)?;
            Ok(table)
        };
        let tables = streams.iter().map(table).collect::<Result<Vec<_>, _>>()?;
        for stream in streams {
            stream.finish(|| vec![format!("zeros of `{name}`")])?;
        }
        Ok(Symmetric { buffers, tables })
    }

    /// The memory of a rank.
    pub fn buffer(&self, rank: usize) -> &Buffer {
        &self.buffers[rank]
    }

    /// What a kernel on a rank takes.
    pub fn table(&self, rank: usize) -> &Buffer {
        &self.tables[rank]
    }
}
