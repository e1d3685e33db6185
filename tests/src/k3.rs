//! The kernels of Kimi K3: built from the texts of the model crate, run at both levels, and compared with
//! their references in f64.

use kernel_abi::numeric::compare::{Tolerance, compare};
use kernel_abi::numeric::float_from_f64;
use kernel_emulator::{Argument, Buffer, Memory};
use kernel_ir::pipeline::Built;

use crate::program::Program;
use crate::runner::{self, Run};
use crate::values;

/// Builds a kernel of the model crate for its first target.
///
/// # Errors
/// There is no such file or kernel, or it is refused.
pub fn build(file: &str, kernel: &str, bind: &[(&str, i64)]) -> Result<Built, String> {
    let text =
        kimi_k3::kernels::file(file).ok_or_else(|| format!("there is no file `{file}`"))?.text;
    let mut read = |path: &str| {
        let file =
            kimi_k3::kernels::file(path).ok_or_else(|| format!("there is no file `{path}`"))?;
        Ok(file.text.to_owned())
    };
    let program = Program::of_text(file, text, &mut read);
    if program.front.has_errors() {
        return Err(program.show(&program.front.diagnostics));
    }
    let template =
        program.front.template(kernel).ok_or_else(|| format!("there is no kernel `{kernel}`"))?;
    let bind = bind.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    program.build(template, &bind, None)
}

/// Memory with these buffers, row-major, and scalars; what is left out is random, by the seed of the tests.
///
/// # Errors
/// A name does not fit.
pub fn memory(
    built: &Built,
    buffers: Vec<(&str, Buffer)>,
    scalars: &[(&str, f64)],
) -> Result<Memory, String> {
    let params = &built.kernel.params;
    let mut memory = Memory::new(params);
    for (name, value) in scalars {
        let id = runner::param(built, name)?;
        let dtype = params[id].dtype;
        let code = match float_from_f64(dtype, *value) {
            Some(code) => code,
            None => *value as i64 as u64 & (u64::MAX >> (64 - dtype.bits())),
        };
        memory.set_scalar(id, dtype, code);
    }
    for (name, buffer) in buffers {
        let id = runner::param(built, name)?;
        let packed = match &params[id].stored {
            None => buffer,
            Some(layout) => {
                let bytes = layout.pack(buffer.dtype(), buffer.bytes());
                Buffer::filled(buffer.dtype(), bytes.map_err(|error| error.to_string())?)
            }
        };
        memory.set_buffer(id, packed);
    }
    memory.fill_missing(params, SEED).map_err(|error| error.to_string())?;
    Ok(memory)
}

/// The seed of random inputs.
pub const SEED: u64 = 20_260_829;

/// Runs both levels, which must agree bit for bit.
///
/// # Errors
/// A run fails, or the levels differ.
pub fn run(built: &Built, memory: Memory) -> Result<Memory, String> {
    runner::run_both(built, memory, Run::STANDARD).map_err(|failure| failure.to_string())
}

/// The arguments of a run as numbers.
#[derive(Debug)]
pub struct Arguments<'a> {
    built: &'a Built,
    memory: &'a Memory,
}

impl<'a> Arguments<'a> {
    /// The arguments of a kernel in a memory.
    pub fn new(built: &'a Built, memory: &'a Memory) -> Arguments<'a> {
        Arguments { built, memory }
    }

    /// The elements of a buffer, row-major whatever their order in memory.
    pub fn buffer(&self, name: &str) -> Vec<f64> {
        let id = self.id(name);
        let values = self.memory.buffer(id).expect("the parameter is a buffer").to_f64();
        match &self.built.kernel.params[id].stored {
            None => values,
            Some(layout) => {
                (0..layout.len()).map(|index| values[layout.place(index) as usize]).collect()
            }
        }
    }

    /// The value of a scalar.
    pub fn scalar(&self, name: &str) -> f64 {
        match self.memory.argument(self.id(name)) {
            Argument::Scalar { dtype, code } => kernel_abi::numeric::to_f64(*dtype, *code),
            Argument::Buffer(_) | Argument::Missing => panic!("`{name}` is no scalar"),
        }
    }

    fn id(&self, name: &str) -> kernel_ir::kernel::ParamId {
        runner::param(self.built, name).expect("the test names parameters of its kernel")
    }
}

/// Compares the outputs of a run with wanted values, rounded once to the dtype of each, and gives one line
/// for each.
///
/// # Errors
/// An output is outside the tolerance of its dtype.
pub fn match_reference(
    built: &Built,
    memory: &Memory,
    wanted: &[(&str, Vec<f64>)],
) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    for (name, values) in wanted {
        let id = runner::param(built, name)?;
        let tolerance = Tolerance::formula(built.kernel.params[id].dtype);
        lines.push(match_within(built, memory, (name, values), tolerance)?);
    }
    Ok(lines)
}

/// Compares an output of a run with wanted values, rounded once to its dtype.
///
/// # Errors
/// It is outside the tolerance.
pub fn match_within(
    built: &Built,
    memory: &Memory,
    (name, values): (&str, &[f64]),
    tolerance: Tolerance,
) -> Result<String, String> {
    let id = runner::param(built, name)?;
    let buffer = memory.buffer(id).ok_or_else(|| format!("`{name}` is no buffer"))?;
    if let Some(at) = buffer.first_unwritten() {
        return Err(format!("`{name}` element {at} was not written"));
    }
    let dtype = buffer.dtype();
    let want = values::from_f64s(dtype, values);
    let comparison = compare(dtype, &[values.len()], buffer.bytes(), &want, tolerance)
        .map_err(|error| format!("`{name}`: {error}"))?;
    let line = format!("`{name}`: {comparison}");
    if comparison.holds() { Ok(line) } else { Err(line) }
}
