//! The memory of a stream by names: parameters of one name are one buffer, or one scalar.

use std::collections::BTreeMap;

use kernel_abi::DType;
use kernel_ir::index::IndexVec;
use kernel_ir::kernel::{Param, ParamId};

use super::Bound;
use crate::error::{EmuError, ErrorKind};
use crate::memory::{Argument, Buffer, Memory};

/// The memory of a stream: buffers and scalars by the names of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamMemory {
    /// The buffers, as they are now.
    pub buffers: Vec<Buffer>,
    numbers: BTreeMap<String, usize>,
    scalars: BTreeMap<String, (DType, u64)>,
}

impl StreamMemory {
    /// Binds the parameters of a further kernel: to what has their name, or else to what `memory` has, or else to random
    /// values as [`Memory::fill_missing`] makes them.
    ///
    /// # Errors
    /// There is no value that fits.
    pub fn bind(
        &mut self,
        params: &IndexVec<ParamId, Param>,
        mut memory: Memory,
        seed: u64,
    ) -> Result<IndexVec<ParamId, Bound>, EmuError> {
        for (id, param) in params.iter_enumerated() {
            if let Some(&number) = self.numbers.get(&param.name) {
                memory.set_buffer(id, self.buffers[number].clone());
            } else if let Some(&(dtype, code)) = self.scalars.get(&param.name) {
                memory.set_scalar(id, dtype, code);
            }
        }
        memory.fill_missing(params, seed)?;
        let mut bound = IndexVec::new();
        for (id, param) in params.iter_enumerated() {
            let name = param.name.clone();
            bound.push(match memory.argument(id).clone() {
                Argument::Buffer(buffer) => {
                    let buffers = &mut self.buffers;
                    let number = *self.numbers.entry(name).or_insert_with(|| {
                        buffers.push(buffer);
                        buffers.len() - 1
                    });
                    Bound::Buffer(number)
                }
                Argument::Scalar { dtype, code } => {
                    self.scalars.insert(name, (dtype, code));
                    Bound::Scalar(code)
                }
                Argument::Missing => {
                    let message = format!("`{name}` is missing");
                    return Err(EmuError::new(ErrorKind::Argument, param.span, message));
                }
            });
        }
        Ok(bound)
    }

    /// The memory of a kernel as it is now.
    pub fn of(&self, params: &IndexVec<ParamId, Param>) -> Memory {
        let mut memory = Memory::new(params);
        for (id, param) in params.iter_enumerated() {
            if let Some(&number) = self.numbers.get(&param.name) {
                memory.set_buffer(id, self.buffers[number].clone());
            } else if let Some(&(dtype, code)) = self.scalars.get(&param.name) {
                memory.set_scalar(id, dtype, code);
            }
        }
        memory
    }
}
