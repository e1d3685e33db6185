//! The MLIR passes, as data.

use melior::ir::Module;
use melior::pass::PassManager;
use melior::utility::parse_pass_pipeline;

use crate::context::MlirContext;
use crate::error::CodegenError;

/// The passes in order. Control flow first, so that the arithmetic it makes is converted as well. The
/// last one gives every function a subprogram, without which no line reaches LLVM: `DebugDirectivesOnly`
/// makes `.loc` lines and no debug sections, so the PTX target stays free of `debug`.
pub(crate) const PASSES: &[&str] = &[
    "convert-scf-to-cf",
    "convert-arith-to-llvm",
    "convert-cf-to-llvm",
    "convert-nvvm-to-llvm",
    "reconcile-unrealized-casts",
    "ensure-debug-info-scope-on-llvm-func{emission-kind=DebugDirectivesOnly}",
];

/// Brings a module to the LLVM and NVVM dialects alone.
pub(crate) fn run(context: &MlirContext, module: &mut Module<'_>) -> Result<(), CodegenError> {
    let manager = PassManager::new(context.melior());
    let text = format!("builtin.module({})", PASSES.join(","));
    parse_pass_pipeline(manager.as_operation_pass_manager(), &text)
        .map_err(|error| CodegenError::Mlir(vec![error.to_string()]))?;
    match manager.run(module) {
        Ok(()) => Ok(()),
        Err(error) => Err(CodegenError::Mlir(said(context, &error.to_string()))),
    }
}

/// What MLIR said, or `otherwise` when it said nothing.
pub(crate) fn said(context: &MlirContext, otherwise: &str) -> Vec<String> {
    let messages = context.take_diagnostics();
    if messages.is_empty() { vec![otherwise.to_owned()] } else { messages }
}
