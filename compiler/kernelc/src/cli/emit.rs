//! `kernelc emit --stage STAGE FILE`: what a stage makes of one kernel.

use clap::{Args, ValueEnum};
use kernel_codegen::Stage as CodegenStage;
use kernel_ir::{pipeline, print};

use super::{Answer, Cli, KernelArgs};
use crate::back_end;
use crate::output;
use crate::session::{self, Refusal, Session};
use crate::tools::Tool;
use crate::worker::{Job, JobInput};

/// Arguments of `emit`.
#[derive(Debug, Args)]
pub struct EmitArgs {
    /// The file; `-` reads standard input.
    pub file: String,
    /// What to print.
    #[arg(long, value_enum)]
    pub stage: Stage,
    /// The file holds the text of this stage, not a `.tile` program; needs --target.
    #[arg(long, value_enum, value_name = "STAGE", requires = "target")]
    pub from: Option<FromStage>,
    /// Which kernel.
    #[command(flatten)]
    pub kernel: KernelArgs,
}

/// A stage whose result can be printed, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Stage {
    /// The tree of the file.
    Ast,
    /// The kernel level of the IR.
    Kernel,
    /// The device level of the IR.
    Device,
    /// MLIR as it is made.
    Mlir,
    /// LLVM IR as the machine back end gets it.
    Llvm,
    /// PTX.
    Ptx,
    /// Machine code; `//## File` lines name the operation that an instruction belongs to.
    Sass,
}

/// A stage whose text can be the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FromStage {
    /// MLIR.
    Mlir,
    /// LLVM IR.
    Llvm,
    /// PTX.
    Ptx,
}

/// Prints the stage.
pub fn run(cli: &Cli, args: &EmitArgs) -> Answer {
    let answer = match args.from {
        Some(from) => emit_text(cli, args, from),
        None => emit_source(cli, args),
    };
    answer.unwrap_or_else(|refusal| *refusal)
}

fn emit_source(cli: &Cli, args: &EmitArgs) -> Result<Answer, Refusal> {
    let mut session = Session::new();
    if args.stage == Stage::Ast {
        let file = session.load(cli.format, &args.file)?;
        let parsed = kernel_dsl::parse(&session.sources, file);
        let mut answer = output::diagnostics(cli.format, &session.sources, &parsed.diagnostics);
        answer.stdout.push_str(&format!("{:#?}\n", parsed.file));
        return Ok(answer);
    }
    let front = session.open(cli.format, &args.file)?;
    let (template, bindings, target) = session.pick(cli.format, &front, &args.kernel)?;
    let refuse = |found: &[kernel_dsl::diag::Diagnostic]| {
        Box::new(output::diagnostics(cli.format, &session.sources, found))
    };
    if args.stage == Stage::Kernel {
        let outcome =
            pipeline::kernel(template, &bindings, target).map_err(|found| refuse(&found))?;
        let mut answer = *refuse(&outcome.diagnostics);
        if let Some(kernel) = outcome.verified {
            answer.stdout.push_str(&print::kernel(&kernel));
        }
        return Ok(answer);
    }
    let built = pipeline::build(template, &bindings, target).map_err(|found| refuse(&found))?;
    if args.stage == Stage::Device {
        return Ok(Answer::ok(print::device(&built.device)));
    }
    let job = back_end::job(&session.sources, &built.device, last(args.stage));
    compile(cli, args.stage, job)
}

fn emit_text(cli: &Cli, args: &EmitArgs, from: FromStage) -> Result<Answer, Refusal> {
    let Some(target) = args.kernel.target else {
        return Err(session::usage(cli.format, "--from needs --target"));
    };
    let first = match from {
        FromStage::Mlir => Stage::Mlir,
        FromStage::Llvm => Stage::Llvm,
        FromStage::Ptx => Stage::Ptx,
    };
    if args.stage < first {
        return Err(session::usage(cli.format, "--stage must not come before --from"));
    }
    let mut session = Session::new();
    let file = session.load(cli.format, &args.file)?;
    let text = session.sources.text(file).to_owned();
    let input = match from {
        FromStage::Mlir => JobInput::Mlir(text),
        FromStage::Llvm => JobInput::Llvm(text),
        FromStage::Ptx => JobInput::Ptx(text),
    };
    let (last, from) = (last(args.stage), format!("{from:?}").to_lowercase());
    let reproduce =
        format!("kernelc emit --from {from} --stage {last} --target {target} {}", args.file);
    let target = target.name().to_owned();
    compile(cli, args.stage, Job { name: args.file.clone(), target, input, last, reproduce })
}

fn last(stage: Stage) -> CodegenStage {
    match stage {
        Stage::Ast | Stage::Kernel | Stage::Device | Stage::Mlir => CodegenStage::Mlir,
        Stage::Llvm => CodegenStage::Llvm,
        Stage::Ptx => CodegenStage::Ptx,
        Stage::Sass => CodegenStage::Cubin,
    }
}

fn compile(cli: &Cli, stage: Stage, job: Job) -> Result<Answer, Refusal> {
    let compiled = back_end::compile_one(cli, job)?;
    let text = match stage {
        Stage::Ast | Stage::Kernel | Stage::Device => None,
        Stage::Mlir => compiled.mlir,
        Stage::Llvm => compiled.llvm,
        Stage::Ptx => compiled.ptx,
        Stage::Sass => {
            let nvdisasm = session::tool(cli, Tool::Nvdisasm)?;
            let (cubin, _) = compiled.cubin.unwrap_or_default();
            Some(back_end::disassemble(cli, &nvdisasm, &cubin)?)
        }
    };
    Ok(Answer::ok(text.unwrap_or_default()))
}
