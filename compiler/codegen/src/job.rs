//! One job: from any stage to any later one.

use kernel_ir::device::DeviceKernel;
use kernel_ir::target::Target;
use serde::{Deserialize, Serialize};

use crate::context::MlirContext;
use crate::error::{CodegenError, Stage};
use crate::ptx::LeftoverKind;
use crate::ptxas::{Cubin, Tools, Usage};
use crate::{author, lower, ptx, ptxas, translate};

/// A place in a source file, for messages of the running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceLine {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
}

/// What a job starts from.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A kernel of the device level.
    Kernel {
        /// The kernel.
        kernel: &'a DeviceKernel,
        /// Source of each [`LocId`](kernel_ir::device::LocId), for the message of a failed assertion; may
        /// be empty, then the line of the operation list is named.
        places: &'a [SourceLine],
    },
    /// The text of an MLIR module.
    Mlir(&'a str),
    /// The text of an LLVM module.
    Llvm(&'a str),
    /// PTX.
    Ptx(&'a str),
}

/// What a job made, as far as it went; what it started from is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Artifacts {
    /// The module before any pass, with its locations.
    pub mlir: Option<String>,
    /// The module before LLVM's passes.
    pub llvm: Option<String>,
    /// PTX.
    pub ptx: Option<String>,
    /// Machine code.
    pub cubin: Option<Cubin>,
}

/// A kernel at every stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The module before any pass, with its locations.
    pub mlir: String,
    /// The module before LLVM's passes.
    pub llvm: String,
    /// PTX.
    pub ptx: String,
    /// Machine code.
    pub cubin: Vec<u8>,
    /// What it needs.
    pub usage: Usage,
}

/// Compiles a kernel through all stages, in this process.
pub fn compile(
    kernel: &DeviceKernel,
    places: &[SourceLine],
    tools: &Tools,
) -> Result<Compiled, CodegenError> {
    let input = Input::Kernel { kernel, places };
    let made = run(input, &kernel.export, kernel.target, Stage::Cubin, tools, &mut |_| {})?;
    let cubin = made.cubin.expect("a job that ends at the cubin has made one");
    Ok(Compiled {
        mlir: made.mlir.expect("a job that starts at a kernel has made MLIR"),
        llvm: made.llvm.expect("a job that passes LLVM has made a module"),
        ptx: made.ptx.expect("a job that passes PTX has made some"),
        cubin: cubin.bytes,
        usage: cubin.usage,
    })
}

/// Runs the stages from behind `input` up to `last`. `name` stands for the kernel in messages; `enter` is
/// told each stage before it starts, so that whoever watches the process knows which one ended it.
pub fn run(
    input: Input<'_>,
    name: &str,
    target: Target,
    last: Stage,
    tools: &Tools,
    enter: &mut dyn FnMut(Stage),
) -> Result<Artifacts, CodegenError> {
    let mut made = Artifacts::default();
    let ours = matches!(input, Input::Kernel { .. });
    let mut text = match input {
        Input::Kernel { kernel, places } => {
            enter(Stage::Mlir);
            let context = MlirContext::new();
            let mut module = lower::lower(&context, kernel, places)?;
            let mlir = lower::print(&module)?;
            made.mlir = Some(mlir);
            if last <= Stage::Mlir {
                return Ok(made);
            }
            enter(Stage::Llvm);
            let llvm = translate::llvm_of_module(&context, &mut module)?;
            made.llvm = Some(llvm.clone());
            llvm
        }
        Input::Mlir(text) => {
            if last <= Stage::Mlir {
                return Ok(made);
            }
            enter(Stage::Llvm);
            let llvm = translate::llvm_of_mlir(text)?;
            made.llvm = Some(llvm.clone());
            llvm
        }
        Input::Llvm(text) | Input::Ptx(text) => text.to_owned(),
    };
    if last <= Stage::Llvm {
        return Ok(made);
    }
    if !matches!(input, Input::Ptx(_)) {
        enter(Stage::Ptx);
        text = ptx::ptx_of_llvm(&text, target)?;
        let mut leftovers = ptx::scan(&text);
        if !ours {
            // What a text given by hand loads and calls is its author's choice.
            leftovers.retain(|l| l.kind == LeftoverKind::Intrinsic);
        }
        if !leftovers.is_empty() {
            return Err(CodegenError::Leftovers(leftovers));
        }
        made.ptx = Some(text.clone());
    }
    if last <= Stage::Ptx {
        return Ok(made);
    }
    enter(Stage::Cubin);
    made.cubin =
        Some(ptxas::assemble(&text, name, target, tools).map_err(|error| match input {
            Input::Kernel { kernel, places } => author::blame(error, &text, kernel, places),
            Input::Mlir(_) | Input::Llvm(_) | Input::Ptx(_) => error,
        })?);
    Ok(made)
}
