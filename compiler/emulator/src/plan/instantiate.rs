//! From kernel keys to verified kernels.

use std::collections::BTreeMap;

use kernel_abi::plan::{
    ContractSpec, ExtentSpec, KernelKey, MapAxisSpec, ParamSpec, ScaledBy, Signature,
    TensorMapSpec, UpperBound, WordKind,
};
use kernel_dsl::diag::Diagnostic;
use kernel_dsl::diag::render::{self, Look};
use kernel_dsl::source::SourceMap;
use kernel_ir::kernel::{ContractBound, Extent, Kernel, MapAxis, SmemSwizzle, Words, tensor_maps};
use kernel_ir::pipeline::{self, Front};
use kernel_ir::sema::{Bindings, ConstType, ConstValue, KernelTemplate};
use kernel_ir::target::Target;
use kernel_ir::verify::Verified;
use rayon::prelude::*;
use thiserror::Error;

use super::touches::touches;

/// Why a kernel of a plan does not exist.
#[derive(Debug, Error)]
pub enum SourceError {
    /// No text of that name.
    #[error("there is no kernel file `{0}`")]
    File(String),
    /// The file has no such kernel.
    #[error("`{file}` has no kernel `{kernel}`")]
    Kernel {
        /// The file.
        file: String,
        /// The kernel.
        kernel: String,
    },
    /// The compiler refuses it.
    #[error("{kernel} is refused:\n{text}")]
    Refused {
        /// The kernel with its bindings, or the file.
        kernel: String,
        /// The findings as text.
        text: String,
    },
}

/// Verified kernels for the keys, in their order.
///
/// # Errors
/// The first key that gives none.
pub fn instantiate(
    keys: &[KernelKey],
    sources: &(dyn Fn(&str) -> Option<&'static str> + Sync),
) -> Result<Vec<Verified<Kernel>>, SourceError> {
    let mut names: Vec<&str> = keys.iter().map(|key| key.file.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let fronts = names
        .par_iter()
        .map(|name| Ok(((*name).to_owned(), File::read(name, sources)?)))
        .collect::<Result<Vec<_>, SourceError>>()?;
    let fronts: BTreeMap<String, File> = fronts.into_iter().collect();
    keys.par_iter().map(|key| fronts[&key.file].kernel(key)).collect()
}

/// A checked file with its texts.
struct File {
    sources: SourceMap,
    front: Front,
}

impl File {
    fn read(
        name: &str,
        sources: &(dyn Fn(&str) -> Option<&'static str> + Sync),
    ) -> Result<File, SourceError> {
        let text = sources(name).ok_or_else(|| SourceError::File(name.to_owned()))?;
        let mut map = SourceMap::new();
        let root = map.add(name, text);
        let mut import = |path: &str| {
            sources(path).map(str::to_owned).ok_or_else(|| format!("there is no file `{path}`"))
        };
        let front = pipeline::front(&mut map, root, &mut import);
        let file = File { sources: map, front };
        if file.front.has_errors() {
            return Err(file.refused(name, &file.front.diagnostics));
        }
        Ok(file)
    }

    fn refused(&self, kernel: &str, found: &[Diagnostic]) -> SourceError {
        let text = render::text_of_all(&self.sources, found, Look::PLAIN);
        SourceError::Refused { kernel: kernel.to_owned(), text }
    }

    fn kernel(&self, key: &KernelKey) -> Result<Verified<Kernel>, SourceError> {
        let template = self.front.template(&key.kernel).ok_or_else(|| SourceError::Kernel {
            file: key.file.clone(),
            kernel: key.kernel.clone(),
        })?;
        // Of the targets of a kernel the emulator needs no one in particular.
        let target = template.targets().first().copied().unwrap_or(Target::Sm90a);
        let refused = |found: &[Diagnostic]| self.refused(&key.to_string(), found);
        let outcome = pipeline::kernel(template, &bindings(template, key), target)
            .map_err(|found| refused(&found))?;
        outcome.verified.ok_or_else(|| refused(&outcome.diagnostics))
    }
}

fn bindings(template: &KernelTemplate, key: &KernelKey) -> Bindings {
    let params = template.const_params();
    let typed = |(name, &value): (&String, &i64)| {
        let is_bool = params.iter().any(|p| p.name == *name && p.ty == ConstType::Bool);
        let value = if is_bool { ConstValue::Bool(value != 0) } else { ConstValue::Int(value) };
        (name.clone(), value)
    };
    key.bindings.iter().map(typed).collect()
}

/// What the checks of a plan need to know of a kernel.
pub fn signature(kernel: &Kernel) -> Signature {
    let name = |id| kernel.params[id].name.clone();
    let (waits, mut touches) = touches(kernel);
    let params = kernel.params.iter_enumerated().map(|(id, param)| ParamSpec {
        name: param.name.clone(),
        access: param.access,
        settled: param.settled,
        dtype: param.dtype,
        shape: param
            .shape
            .iter()
            .map(|extent| match *extent {
                Extent::Const(extent) => ExtentSpec::Const(u64::from(extent)),
                Extent::Scalar(id) => ExtentSpec::Scalar(name(id)),
            })
            .collect(),
        stored: param.stored.clone(),
        scaled: param.scaled.map(|scaled| ScaledBy { param: name(scaled.by), group: scaled.group }),
        contract: param.contract.as_ref().map(|contract| ContractSpec {
            lo: contract.lo,
            hi: match contract.hi {
                ContractBound::Const(hi) => UpperBound::Const(hi),
                ContractBound::Scalar(id, offset) => UpperBound::Scalar(name(id), offset),
            },
            distinct: contract.distinct.is_some(),
            except: contract.distinct.and_then(|d| d.except),
        }),
        words: param.words.map(|words| match words {
            Words::Counter => WordKind::Counter,
            Words::Raised => WordKind::Raised,
            Words::Epoch => WordKind::Epoch,
            Words::Flag => WordKind::Flag,
        }),
        touches: std::mem::take(&mut touches[id]),
    });
    Signature {
        params: params.collect(),
        starts_early: kernel.launch.pdl.is_consumer(),
        waits,
        world: kernel.launch.world,
        maps: maps(kernel),
    }
}

/// What a launch has to know of the tensor maps of a kernel.
fn maps(kernel: &Kernel) -> Vec<TensorMapSpec> {
    let name = |id| kernel.params[id].name.clone();
    let axis = |axis: &MapAxis| MapAxisSpec {
        extent: match axis.extent {
            Extent::Const(extent) => ExtentSpec::Const(u64::from(extent)),
            Extent::Scalar(id) => ExtentSpec::Scalar(name(id)),
        },
        stride: axis.stride,
        length: axis.length,
    };
    let line = |swizzle| match swizzle {
        SmemSwizzle::None => 0,
        SmemSwizzle::B32 => 32,
        SmemSwizzle::B64 => 64,
        SmemSwizzle::B128 => 128,
    };
    tensor_maps(kernel)
        .iter()
        .map(|map| TensorMapSpec {
            param: name(map.param),
            axes: map.axes.iter().map(axis).collect(),
            line: line(map.swizzle),
        })
        .collect()
}
