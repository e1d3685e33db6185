//! The plan of a chain of kernels: parameters of one name are one buffer, which is a weight where nobody writes it and
//! somebody calls it `static`, the host's where nobody writes it, and a value of the step otherwise.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::Access;
use kernel_abi::plan::{BufferRole, ExtentSpec, KernelKey, ParamSpec, PlanBuilder, Signature};
use kernel_ir::pipeline::Built;

/// The codes of what the check of the plan says.
///
/// # Errors
/// A parameter has no place in such a plan.
pub(crate) fn codes(names: &[String], chain: &[Built]) -> Result<BTreeSet<String>, String> {
    let kernels: Vec<(KernelKey, Signature)> = names
        .iter()
        .zip(chain)
        .map(|(name, built)| (key(name), kernel_emulator::signature(&built.kernel)))
        .collect();
    let params = || kernels.iter().flat_map(|(_, signature)| &signature.params);
    let mut plan = PlanBuilder::new(1);
    let mut buffers = BTreeMap::new();
    for param in params().filter(|param| param.access != Access::Scalar) {
        if buffers.contains_key(&param.name) {
            continue;
        }
        let all = || params().filter(|other| other.name == param.name);
        let role = if all().any(|other| other.access.is_writable()) {
            BufferRole::Step
        } else if all().any(|other| other.access == Access::Static) {
            BufferRole::Weight
        } else {
            BufferRole::Host { promise: None }
        };
        let id = plan.buffer(&param.name, param.dtype, &extents(param)?, role);
        buffers.insert(param.name.clone(), id);
    }
    for (number, (key, signature)) in kernels.iter().enumerate() {
        let node = plan.kernel(format!("launch {number}"), &key.file, &key.kernel, &[]);
        let buffer = |param: &ParamSpec| buffers.get(&param.name).copied();
        signature
            .params
            .iter()
            .try_fold(node, |node, param| Some(node.arg(&param.name, param.access, buffer(param)?)))
            .ok_or("a kernel of a chain takes buffers alone")?
            .add();
    }
    let errors = plan.finish().check(kernels.into_iter().collect()).err().unwrap_or_default();
    Ok(errors.iter().map(|error| error.code.name().to_owned()).collect())
}

fn key(kernel: &str) -> KernelKey {
    let (file, kernel) = ("chain.tile".to_owned(), kernel.to_owned());
    KernelKey { file, kernel, bindings: BTreeMap::new() }
}

fn extents(param: &ParamSpec) -> Result<Vec<u64>, String> {
    let constant = |extent: &ExtentSpec| match extent {
        ExtentSpec::Const(extent) => Ok(*extent),
        ExtentSpec::Scalar(_) => Err(format!("`{}` has an extent of the launch", param.name)),
    };
    param.shape.iter().map(constant).collect()
}
