//! Tensor maps: what the hardware is told of a buffer before copies of its boxes.

use serde::{Deserialize, Serialize};

use super::{ExtentSpec, Signature};
use crate::{Access, DType};

/// Axes of a map, at most.
pub const MAX_MAP_AXES: usize = 5;
/// Positions of a box along one axis, at most.
pub const MAX_BOX: u32 = 256;
/// Strides are multiples of so many bytes.
const PIECE: u64 = 16;

/// A tensor map: a parameter of the machine code behind the described ones, made at each launch of the address that
/// the buffer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorMapSpec {
    /// The parameter whose buffer it describes.
    pub param: String,
    /// The contiguous axis first.
    pub axes: Vec<MapAxisSpec>,
    /// Bytes of the lines of shared memory within which pieces of 16 bytes change places: 32, 64, 128, or 0.
    pub line: u32,
}

/// An axis of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MapAxisSpec {
    /// Positions of the buffer.
    pub extent: ExtentSpec,
    /// Elements from one to the next.
    pub stride: u64,
    /// Positions of a box.
    pub length: u32,
}

impl TensorMapSpec {
    /// The type of the elements of its buffer, where the map is one that a device takes.
    ///
    /// # Errors
    /// What of it is none.
    pub fn check(&self, signature: &Signature) -> Result<DType, String> {
        let name = &self.param;
        let found = signature.param(name).filter(|param| param.access != Access::Scalar);
        let Some(param) = found else {
            return Err(format!("a map of `{name}`, which is no buffer"));
        };
        let size = u64::from(param.dtype.bytes().unwrap_or(0));
        let wrong = |what: &str| Err(format!("a map of `{name}`: {what}"));
        if size == 0 || param.dtype == DType::Bool {
            return wrong("its elements are none of a map");
        }
        if self.axes.is_empty() || self.axes.len() > MAX_MAP_AXES {
            return wrong("the number of its axes");
        }
        if !matches!(self.line, 0 | 32 | 64 | 128) {
            return wrong("its lines");
        }
        for (number, axis) in self.axes.iter().enumerate() {
            if axis.length == 0 || axis.length > MAX_BOX {
                return wrong("its box");
            }
            let bytes = axis.stride.checked_mul(size).filter(|&bytes| bytes < 1 << 40);
            let is_stride = match (number, bytes) {
                (0, _) => axis.stride == 1,
                (_, Some(bytes)) => bytes > 0 && bytes.is_multiple_of(PIECE),
                (_, None) => false,
            };
            if !is_stride {
                return wrong("its strides");
            }
            if let ExtentSpec::Scalar(scalar) = &axis.extent
                && signature.param(scalar).is_none_or(|param| param.access != Access::Scalar)
            {
                return wrong("its extents");
            }
        }
        let row = u64::from(self.axes[0].length) * size;
        if !row.is_multiple_of(PIECE) || (self.line > 0 && row != u64::from(self.line)) {
            return wrong("the rows of its box");
        }
        Ok(param.dtype)
    }
}
