//! Every call into C that the safe wrappers lack, and thereby every `unsafe` block of the crate.
#![expect(unsafe_code, reason = "the one file of this crate that calls C")]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use inkwell::context::Context as LlvmContext;
use inkwell::llvm_sys::LLVMDiagnosticSeverity;
use inkwell::llvm_sys::core::{
    LLVMContextSetDiagnosticHandler, LLVMDisposeMessage, LLVMGetDiagInfoDescription,
    LLVMGetDiagInfoSeverity,
};
use inkwell::llvm_sys::prelude::{LLVMContextRef, LLVMDiagnosticInfoRef, LLVMModuleRef};
use inkwell::module::Module as LlvmModule;
use melior::dialect::DialectHandle;
use melior::ir::Module;
use mlir_sys::MlirOperation;

unsafe extern "C" {
    /// `mlir-c/Target/LLVMIR.h`, which mlir-sys leaves out.
    fn mlirTranslateModuleToLLVMIR(module: MlirOperation, context: LLVMContextRef)
    -> LLVMModuleRef;
}

/// The handle of the NVVM dialect, which melior does not wrap.
pub(crate) fn nvvm_dialect() -> DialectHandle {
    // SAFETY: the function takes nothing and returns a handle to a static dialect.
    let raw = unsafe { mlir_sys::mlirGetDialectHandle__nvvm__() };
    // SAFETY: `raw` is a valid dialect handle.
    unsafe { DialectHandle::from_raw(raw) }
}

/// Translates a module of the LLVM and NVVM dialects; `None` when MLIR refuses, which it explains to its
/// own diagnostic handler.
pub(crate) fn translate<'l>(
    module: &Module<'_>,
    context: &'l LlvmContext,
) -> Option<LlvmModule<'l>> {
    // SAFETY: both objects are alive for the call, and the translation does not keep them.
    let raw = unsafe { mlirTranslateModuleToLLVMIR(module.as_operation().to_raw(), context.raw()) };
    if raw.is_null() {
        return None;
    }
    // SAFETY: `raw` is a module of `context` that nobody else owns.
    Some(unsafe { LlvmModule::new(raw) })
}

/// The errors that LLVM reported to its context: without a handler it would print them and exit.
#[derive(Default)]
pub(crate) struct LlvmDiagnostics {
    messages: Mutex<Vec<String>>,
}

impl LlvmDiagnostics {
    /// What was reported.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock().expect("no holder of the lock panics"))
    }
}

/// Runs `work` with a fresh LLVM context whose diagnostics are collected.
pub(crate) fn with_llvm<T>(work: impl FnOnce(&LlvmContext, &LlvmDiagnostics) -> T) -> T {
    let diagnostics = LlvmDiagnostics::default();
    let context = LlvmContext::create();
    let target: *const LlvmDiagnostics = &raw const diagnostics;
    // SAFETY: `context` is alive, and `collect` takes a pointer of this type. `diagnostics` stays in its
    // place and is dropped after `context`, so LLVM cannot use the pointer too late.
    unsafe {
        LLVMContextSetDiagnosticHandler(
            context.raw(),
            Some(collect),
            target.cast_mut().cast::<c_void>(),
        );
    }
    work(&context, &diagnostics)
}

extern "C" fn collect(info: LLVMDiagnosticInfoRef, target: *mut c_void) {
    // SAFETY: LLVM calls this with a live diagnostic.
    let severity = unsafe { LLVMGetDiagInfoSeverity(info) };
    match severity {
        LLVMDiagnosticSeverity::LLVMDSError => {}
        LLVMDiagnosticSeverity::LLVMDSWarning
        | LLVMDiagnosticSeverity::LLVMDSRemark
        | LLVMDiagnosticSeverity::LLVMDSNote => return,
    }
    // SAFETY: LLVM calls this with a live diagnostic; the text is ours to free.
    let text: *mut c_char = unsafe { LLVMGetDiagInfoDescription(info) };
    if text.is_null() {
        return;
    }
    // SAFETY: LLVM returns a string that ends in NUL.
    let message = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: `text` came from LLVM and is not used again.
    unsafe { LLVMDisposeMessage(text) };
    // SAFETY: `with_llvm` passed a pointer to an `LlvmDiagnostics` that outlives the context.
    let target = unsafe { &*target.cast::<LlvmDiagnostics>() };
    target.messages.lock().expect("no holder of the lock panics").push(message);
}
