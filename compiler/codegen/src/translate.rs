//! MLIR text to LLVM IR.
//!
//! The module carries no `#nvvm.target`: MLIR 22's verifier would refuse operations that the target has,
//! so the target is named to LLVM alone.

use melior::ir::Module;
use melior::ir::operation::OperationLike;

use crate::context::MlirContext;
use crate::error::CodegenError;
use crate::{ffi, pipeline, ptx};

/// Parses a module, runs the passes and translates it; returns the LLVM IR as text.
pub(crate) fn llvm_of_mlir(text: &str) -> Result<String, CodegenError> {
    let context = MlirContext::new();
    let Some(mut module) = Module::parse(context.melior(), text) else {
        return Err(CodegenError::Mlir(pipeline::said(&context, "the text is no MLIR module")));
    };
    llvm_of_module(&context, &mut module)
}

/// Runs the passes over a module and translates it.
pub(crate) fn llvm_of_module(
    context: &MlirContext,
    module: &mut Module<'_>,
) -> Result<String, CodegenError> {
    if !module.as_operation().verify() {
        return Err(CodegenError::Mlir(pipeline::said(context, "the module is not valid")));
    }
    pipeline::run(context, module)?;
    ffi::with_llvm(|llvm, diagnostics| {
        let Some(translated) = ffi::translate(module, llvm) else {
            let mut messages = pipeline::said(context, "the module does not translate");
            messages.extend(diagnostics.take());
            return Err(CodegenError::Translate(messages));
        };
        ptx::set_target(&translated)?;
        translated.verify().map_err(|error| CodegenError::Translate(vec![error.to_string()]))?;
        Ok(translated.print_to_string().to_string())
    })
}
