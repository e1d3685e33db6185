//! A built kernel on the emulator at both levels.

use kernel_abi::Access;
use kernel_emulator::{
    Argument, Buffer, EmuError, ErrorKind, Memory, Options, run_device, run_kernel,
};
use kernel_ir::kernel::ParamId;
use kernel_ir::pipeline::Built;

use crate::directive::{Binding, Directives};
use crate::values;

/// How a run is done and judged.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Of the emulator.
    pub options: Options,
    /// An error of the kernel level need not be one of the device level.
    pub kernel_level_only: bool,
}

impl Run {
    /// What other kernels may still write is poison until `grid_wait`; both levels must agree.
    pub const STANDARD: Run = Run { options: Options::STANDARD, kernel_level_only: false };
}

/// Both levels on the same memory: outputs that agree bit for bit, or errors of one code at one place.
///
/// # Errors
/// The error of the kernel level, or in what the levels differ.
pub fn run_both(built: &Built, memory: Memory, run: Run) -> Result<Memory, Failure> {
    let mut device_memory = memory.clone();
    let mut kernel_memory = memory;
    let kernel = run_kernel(&built.kernel, &mut kernel_memory, &run.options);
    if let (Err(error), true) = (&kernel, run.kernel_level_only) {
        return Err(Failure::Run(error.clone()));
    }
    let device = run_device(&built.device, &mut device_memory, &run.options);
    match (kernel, device) {
        (Ok(kernel), Ok(device)) => {
            let differences = differences(built, &kernel_memory, &device_memory);
            if !differences.is_empty() {
                return Err(Failure::Levels(differences.join("\n")));
            }
            if kernel.printed != device.printed {
                let (kernel, device) = (&kernel.printed, &device.printed);
                return Err(Failure::Levels(format!(
                    "the kernel level prints {kernel:?}, the device level {device:?}"
                )));
            }
            Ok(kernel_memory)
        }
        (Err(kernel), Err(device)) if is_same_error(&kernel, &device) => Err(Failure::Run(kernel)),
        (kernel, device) => {
            let show = |result: Result<_, EmuError>| match result {
                Ok(_) => "ends well".to_owned(),
                Err(error) => format!("says {error} at {:?}", error.span),
            };
            Err(Failure::Levels(format!(
                "the kernel level {}, the device level {}",
                show(kernel),
                show(device)
            )))
        }
    }
}

/// One error seen at two levels. Where a run reaches its limit depends on how long its statements are.
fn is_same_error(kernel: &EmuError, device: &EmuError) -> bool {
    kernel.kind == device.kind
        && (kernel.span == device.span || kernel.kind == ErrorKind::StepLimit)
}

/// Why a run gives no result.
#[derive(Debug, Clone)]
pub enum Failure {
    /// Both levels end with this error.
    Run(EmuError),
    /// The levels differ.
    Levels(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Run(error) => write!(f, "{error}"),
            Failure::Levels(text) => f.write_str(text),
        }
    }
}

/// Where the buffers that the kernel may write differ between two memories.
fn differences(built: &Built, a: &Memory, b: &Memory) -> Vec<String> {
    let mut found = Vec::new();
    for (id, param) in built.kernel.params.iter_enumerated() {
        let (Some(x), Some(y)) = (a.buffer(id), b.buffer(id)) else { continue };
        if x == y {
            continue;
        }
        let at = (0..x.len()).find(|&i| x.code(i) != y.code(i));
        let Some(at) = at else { continue };
        let show = |buffer: &Buffer| match buffer.code(at) {
            Some(code) => values::show(buffer.dtype(), code),
            None => "unwritten".to_owned(),
        };
        found.push(format!(
            "`{}` element {at}: kernel level {}, device level {}",
            param.name,
            show(x),
            show(y)
        ));
    }
    found
}

/// Memory for a launch as the directives say; what they leave out is random. In a further case the
/// extents may be others, so that only scalars keep their values.
///
/// # Errors
/// A value or a name does not fit.
pub fn memory(
    built: &Built,
    directives: &Directives,
    case: Option<&Binding>,
) -> Result<Memory, String> {
    let params = &built.kernel.params;
    let mut memory = Memory::new(params);
    for (name, words) in &directives.inputs {
        give(built, &mut memory, name, words, case.is_none())?;
    }
    memory.fill_missing(params, directives.seed).map_err(|error| error.to_string())?;
    Ok(memory)
}

/// Gives a parameter the values of an `in` line; of a buffer only where its extents are those of the file.
///
/// # Errors
/// A value or the name does not fit.
pub(crate) fn give(
    built: &Built,
    memory: &mut Memory,
    name: &str,
    words: &[String],
    is_sized: bool,
) -> Result<(), String> {
    let id = param(built, name)?;
    let param = &built.kernel.params[id];
    let codes = values::parse(param.dtype, words).map_err(|e| format!("`{name}`: {e}"))?;
    match (param.access, codes.as_slice()) {
        (Access::Scalar, [code]) => memory.set_scalar(id, param.dtype, *code),
        (Access::Scalar, _) => {
            return Err(format!("the scalar `{name}` has {} values", codes.len()));
        }
        (_, codes) if is_sized => memory.set_buffer(id, Buffer::from_codes(param.dtype, codes)),
        (_, _) => {}
    }
    Ok(())
}

/// The wanted values of the directives against what a run gave.
///
/// # Errors
/// The first element of each buffer that differs.
pub fn match_outputs(
    built: &Built,
    directives: &Directives,
    memory: &Memory,
) -> Result<(), String> {
    let mut faults = Vec::new();
    for (name, words) in &directives.outputs {
        let id = param(built, name)?;
        let dtype = built.kernel.params[id].dtype;
        let wanted = values::parse(dtype, words).map_err(|e| format!("`{name}`: {e}"))?;
        let Argument::Buffer(got) = memory.argument(id) else {
            return Err(format!("`{name}` is no buffer"));
        };
        if got.len() != wanted.len() {
            faults.push(format!("`{name}` has {} elements, {} are given", got.len(), wanted.len()));
            continue;
        }
        for (at, want) in wanted.iter().enumerate() {
            let found = got.code(at);
            if found != Some(*want) {
                let found = found.map_or("unwritten".to_owned(), |code| values::show(dtype, code));
                let want = values::show(dtype, *want);
                faults.push(format!("`{name}` element {at}: {found}, wanted {want}"));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The parameter of that name.
///
/// # Errors
/// There is none.
pub fn param(built: &Built, name: &str) -> Result<ParamId, String> {
    Memory::find(&built.kernel.params, name)
        .ok_or_else(|| format!("there is no parameter `{name}`"))
}
