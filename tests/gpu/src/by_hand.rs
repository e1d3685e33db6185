//! Kernels that are written as PTX by hand: what a launch of them must hold.

use kernel_abi::plan::{ExtentSpec, ParamSpec, Signature};
use kernel_abi::{Access, DType};
use kernel_runtime::{KernelImage, LaunchShape};

/// A parameter: a buffer of so many elements.
pub(crate) fn buffer(name: &str, access: Access, dtype: DType, elements: u64) -> ParamSpec {
    ParamSpec { shape: vec![ExtentSpec::Const(elements)], ..scalar(name, access, dtype) }
}

/// A parameter without extents.
pub(crate) fn scalar(name: &str, access: Access, dtype: DType) -> ParamSpec {
    ParamSpec::new(name, access, dtype, Vec::new())
}

/// A kernel of one CTA. `target` is what the text says.
pub(crate) fn image<'a>(
    symbol: &'a str,
    params: Vec<ParamSpec>,
    threads: u32,
    target: &'a str,
    text: &'a str,
) -> KernelImage<'a> {
    KernelImage {
        name: symbol.to_owned(),
        symbol,
        signature: Signature::new(params, false),
        shape: LaunchShape {
            grid: [1, 1, 1],
            threads,
            dynamic_shared_bytes: 0,
            tensor_columns: 0,
            cluster: None,
            resident: false,
        },
        target,
        cubin: None,
        ptx: Some(text),
    }
}
