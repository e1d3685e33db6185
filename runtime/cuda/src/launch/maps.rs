//! Tensor maps: made at each launch, or capture of one, of the addresses that its buffers have.

use kernel_abi::numeric::to_i64;
use kernel_abi::plan::{ExtentSpec, Signature, TensorMapSpec};

use super::{Given, pack};
use crate::error::RuntimeError;
use crate::ffi::{MapShape, TensorMap};

/// Positions of one axis that a map can have.
const MAX_EXTENT: i64 = 1 << 32;
/// A buffer that a map describes begins at a multiple of so many bytes.
const ALIGN: u64 = 16;

/// What a launch passes to a kernel.
#[derive(Debug)]
pub(crate) struct Arguments {
    /// The parameters, eight bytes each.
    pub(crate) cells: Vec<u64>,
    /// The tensor maps behind them.
    pub(crate) maps: Vec<TensorMap>,
}

/// Everything that a launch passes.
///
/// # Errors
/// Arguments that do not fit, or a buffer that no tensor map describes.
pub(crate) fn arguments(
    kernel: &str,
    signature: &Signature,
    given: &[Given<'_>],
) -> Result<Arguments, RuntimeError> {
    let cells = pack(kernel, signature, given)?;
    let mut maps = Vec::with_capacity(signature.maps.len());
    for map in &signature.maps {
        let shape = shape(signature, map, &cells)
            .map_err(|fault| RuntimeError::Arguments { kernel: kernel.to_owned(), fault })?;
        maps.push(TensorMap::encode(&shape)?);
    }
    Ok(Arguments { cells, maps })
}

/// What the driver is told of a map.
fn shape(signature: &Signature, map: &TensorMapSpec, cells: &[u64]) -> Result<MapShape, String> {
    let dtype = map.check(signature)?;
    let cell = |name: &str| {
        let place = signature.params.iter().position(|param| param.name == name)?;
        Some((signature.params[place].dtype, *cells.get(place)?))
    };
    let name = &map.param;
    let address = cell(name).map_or(0, |(_, address)| address);
    if address == 0 || !address.is_multiple_of(ALIGN) {
        return Err(format!("a tensor map of `{name}`, which lies at {address:#x}"));
    }
    let mut extents = Vec::with_capacity(map.axes.len());
    for axis in &map.axes {
        let extent = match &axis.extent {
            ExtentSpec::Const(extent) => i64::try_from(*extent).ok(),
            ExtentSpec::Scalar(scalar) => {
                cell(scalar).and_then(|(dtype, code)| to_i64(dtype, code))
            }
        };
        let extent = extent.filter(|extent| (1..=MAX_EXTENT).contains(extent));
        let extent = extent.ok_or_else(|| format!("a tensor map of `{name}` without elements"))?;
        extents.push(extent.unsigned_abs());
    }
    let size = u64::from(dtype.bytes().unwrap_or(1));
    let strides = map.axes.iter().skip(1).map(|axis| axis.stride * size).collect();
    let lengths = map.axes.iter().map(|axis| axis.length).collect();
    Ok(MapShape { dtype, address, extents, strides, lengths, line: map.line })
}

#[cfg(test)]
mod tests {
    use kernel_abi::plan::{MapAxisSpec, ParamSpec};
    use kernel_abi::{Access, DType};

    use super::*;

    fn signature() -> Signature {
        let rows = || ExtentSpec::Scalar("rows".to_owned());
        let param = ParamSpec::new;
        let axis = |extent, stride, length| MapAxisSpec { extent, stride, length };
        let axes = vec![axis(ExtentSpec::Const(96), 1, 64), axis(rows(), 96, 128)];
        let params = vec![
            param("W", Access::Static, DType::Bf16, vec![rows(), ExtentSpec::Const(96)]),
            param("rows", Access::Scalar, DType::I32, Vec::new()),
        ];
        let maps = vec![TensorMapSpec { param: "W".to_owned(), axes, line: 128 }];
        Signature { maps, ..Signature::new(params, false) }
    }

    #[test]
    fn a_map_has_the_extents_of_its_launch() {
        let signature = signature();
        let found = shape(&signature, &signature.maps[0], &[0x1000, 40]).unwrap();
        let MapShape { dtype, address, extents, strides, lengths, line } = found;
        assert_eq!((dtype, address, line), (DType::Bf16, 0x1000, 128));
        assert_eq!((extents, strides, lengths), (vec![96, 40], vec![192], vec![64, 128]));
    }

    #[test]
    fn maps_that_no_device_takes_are_refused() {
        let right = signature();
        let refused = |cells: &[u64]| shape(&right, &right.maps[0], cells).unwrap_err();
        assert_eq!(refused(&[0x1008, 40]), "a tensor map of `W`, which lies at 0x1008");
        assert_eq!(refused(&[0x1000, 0]), "a tensor map of `W` without elements");
        let with = |change: fn(&mut TensorMapSpec)| {
            let mut map = right.maps[0].clone();
            change(&mut map);
            shape(&right, &map, &[0x1000, 40]).unwrap_err()
        };
        assert_eq!(with(|map| map.axes[1].stride = 20), "a map of `W`: its strides");
        assert_eq!(with(|map| map.axes[1].length = 257), "a map of `W`: its box");
        assert_eq!(with(|map| map.line = 64), "a map of `W`: the rows of its box");
        assert_eq!(with(|map| map.line = 7), "a map of `W`: its lines");
        assert_eq!(with(|map| map.axes.clear()), "a map of `W`: the number of its axes");
        let axis = |map: &mut TensorMapSpec| {
            map.axes[0].extent = ExtentSpec::Scalar("W".to_owned());
        };
        assert_eq!(with(axis), "a map of `W`: its extents");
        assert_eq!(with(|map| "x".clone_into(&mut map.param)), "a map of `x`, which is no buffer");
    }
}
