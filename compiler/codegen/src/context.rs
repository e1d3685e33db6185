//! The MLIR context: dialects, and diagnostics that are kept instead of printed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Once;

use melior::Context;
use melior::dialect::{DialectHandle, DialectRegistry};
use melior::pass::{conversion, llvm};
use melior::utility::register_all_llvm_translations;

use crate::ffi;

/// A context that knows the dialects that lowering prints and collects what MLIR has to say.
pub(crate) struct MlirContext {
    context: Context,
    diagnostics: Rc<RefCell<Vec<String>>>,
}

impl MlirContext {
    /// A context without threads, so that output cannot depend on their number.
    pub(crate) fn new() -> MlirContext {
        static PASSES: Once = Once::new();
        PASSES.call_once(|| {
            conversion::register_scf_to_control_flow();
            conversion::register_arith_to_llvm();
            conversion::register_control_flow_to_llvm();
            conversion::register_nvvm_to_llvm();
            conversion::register_reconcile_unrealized_casts();
            llvm::register_di_scope_for_llvm_func_op_pass();
        });
        let registry = DialectRegistry::new();
        for handle in [
            DialectHandle::llvm(),
            DialectHandle::arith(),
            DialectHandle::scf(),
            DialectHandle::cf(),
            DialectHandle::func(),
            ffi::nvvm_dialect(),
        ] {
            handle.insert_dialect(&registry);
        }
        let context = Context::new_with_registry(&registry, false);
        context.load_all_available_dialects();
        register_all_llvm_translations(&context);
        let diagnostics = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&diagnostics);
        context.attach_diagnostic_handler(move |diagnostic| {
            let mut text = format!("{}: {diagnostic}", diagnostic.location());
            for index in 0..diagnostic.note_count() {
                if let Ok(note) = diagnostic.note(index) {
                    text.push_str(&format!("; {note}"));
                }
            }
            sink.borrow_mut().push(text);
            true
        });
        MlirContext { context, diagnostics }
    }

    /// The context as the builders take it.
    pub(crate) fn melior(&self) -> &Context {
        &self.context
    }

    /// What was said since the last call.
    pub(crate) fn take_diagnostics(&self) -> Vec<String> {
        self.diagnostics.take()
    }
}
