//! Tensor maps, as the driver writes them.

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys as cu;
use kernel_abi::DType;

use super::{Result, check};

/// What a tensor map describes. The caller has checked it by `TensorMapSpec::check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapShape {
    /// Type of the elements.
    pub(crate) dtype: DType,
    /// First byte of the buffer.
    pub(crate) address: u64,
    /// Positions of each axis, the contiguous one first.
    pub(crate) extents: Vec<u64>,
    /// Bytes from one position to the next, of all axes but the first.
    pub(crate) strides: Vec<u64>,
    /// Positions of a box.
    pub(crate) lengths: Vec<u32>,
    /// Bytes of the lines that are permuted; 0 for none.
    pub(crate) line: u32,
}

/// A tensor map: what a kernel takes by value.
#[derive(Debug)]
pub(crate) struct TensorMap(cu::CUtensorMap);

impl TensorMap {
    /// Its size.
    pub(crate) const BYTES: usize = size_of::<cu::CUtensorMap>();

    /// Where it lies, for a launch to copy it.
    pub(crate) fn pointer(&self) -> *mut c_void {
        ptr::from_ref(&self.0).cast_mut().cast()
    }

    /// Writes a map down.
    pub(crate) fn encode(shape: &MapShape) -> Result<TensorMap> {
        use cu::CUtensorMapSwizzle as S;
        let swizzle = match shape.line {
            32 => S::CU_TENSOR_MAP_SWIZZLE_32B,
            64 => S::CU_TENSOR_MAP_SWIZZLE_64B,
            128 => S::CU_TENSOR_MAP_SWIZZLE_128B,
            _ => S::CU_TENSOR_MAP_SWIZZLE_NONE,
        };
        let axes = shape.extents.len();
        let fits = (1..=5).contains(&axes)
            && shape.lengths.len() == axes
            && shape.strides.len() + 1 == axes;
        assert!(fits, "a map of {axes} axes, with as many lengths and one stride less");
        // One axis has no stride; the driver reads none, and wants a place all the same.
        let mut strides = shape.strides.clone();
        strides.resize(axes, 0);
        let steps = vec![1u32; axes];
        let mut map = cu::CUtensorMap { opaque: [0; 16] };
        // SAFETY: writes one map, aligned as its type says; extents, strides, lengths and steps are as many as there are
        // axes and alive for the call. The address is only written down.
        call!(cuTensorMapEncodeTiled(
            &mut map,
            element(shape.dtype),
            u32::try_from(axes).unwrap_or(0),
            ptr::with_exposed_provenance_mut(usize::try_from(shape.address).unwrap_or(0)),
            shape.extents.as_ptr(),
            strides.as_ptr(),
            shape.lengths.as_ptr(),
            steps.as_ptr(),
            cu::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            cu::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            cu::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ))?;
        Ok(TensorMap(map))
    }
}

/// The driver's name of a type of elements. Bytes are moved, so that types of one width are alike.
fn element(dtype: DType) -> cu::CUtensorMapDataType {
    use cu::CUtensorMapDataType as T;
    match dtype {
        DType::F32 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        DType::F16 => T::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::Bf16 => T::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        DType::I32 => T::CU_TENSOR_MAP_DATA_TYPE_INT32,
        DType::U32 => T::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        DType::I64 => T::CU_TENSOR_MAP_DATA_TYPE_INT64,
        DType::U64 => T::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        DType::I8
        | DType::U8
        | DType::Bool
        | DType::E4m3
        | DType::E5m2
        | DType::Ue8m0
        | DType::E2m1 => T::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}
