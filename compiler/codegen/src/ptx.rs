//! LLVM IR to PTX, and what PTX must not hold.

use std::fmt;
use std::sync::Once;

use inkwell::OptimizationLevel;
use inkwell::memory_buffer::MemoryBuffer;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::support::get_llvm_version;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine,
    TargetTriple,
};
use kernel_ir::target::Target;
use serde::{Deserialize, Serialize};

use crate::error::CodegenError;
use crate::ffi;
use crate::mnemonic::SYSTEM_CALLS;

const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// The LLVM passes. Nothing is vectorised or unrolled: the device IR has decided how wide accesses are
/// and which loops are written out.
const PASSES: &str = "default<O2>";

/// The version of LLVM that the traps of lowering were tried with: an older one prints the names of
/// intrinsics that it does not know as functions, a newer one has not been tried.
const LLVM_VERSION: (u32, u32) = (22, 1);

/// Version of the LLVM that is linked in.
pub fn llvm_version() -> String {
    let (major, minor, patch) = get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

/// Optimises LLVM IR and emits PTX.
pub(crate) fn ptx_of_llvm(text: &str, target: Target) -> Result<String, CodegenError> {
    let machine = machine(target)?;
    ffi::with_llvm(|llvm, diagnostics| {
        let refuse = |text: String| {
            let mut messages = vec![text];
            messages.extend(diagnostics.take());
            messages.retain(|m| !m.is_empty());
            CodegenError::Backend(messages.join("\n"))
        };
        let buffer = MemoryBuffer::create_from_memory_range_copy(text.as_bytes(), "module");
        let module =
            llvm.create_module_from_ir(buffer).map_err(|error| refuse(error.to_string()))?;
        module.set_triple(&TargetTriple::create(TRIPLE));
        module.set_data_layout(&machine.get_target_data().get_data_layout());
        module.verify().map_err(|error| refuse(error.to_string()))?;
        let options = PassBuilderOptions::create();
        options.set_loop_unrolling(false);
        options.set_loop_vectorization(false);
        options.set_loop_interleaving(false);
        options.set_loop_slp_vectorization(false);
        module.run_passes(PASSES, &machine, options).map_err(|error| refuse(error.to_string()))?;
        let ptx = machine
            .write_to_memory_buffer(&module, FileType::Assembly)
            .map_err(|error| refuse(error.to_string()))?;
        let messages = diagnostics.take();
        if !messages.is_empty() {
            return Err(CodegenError::Backend(messages.join("\n")));
        }
        let text = String::from_utf8_lossy(ptx.as_slice());
        Ok(text.trim_end_matches('\0').to_owned())
    })
}

/// Names triple and data layout in a module, so that its text is complete.
pub(crate) fn set_target(module: &Module<'_>) -> Result<(), CodegenError> {
    let machine = machine(Target::Sm90a)?;
    module.set_triple(&TargetTriple::create(TRIPLE));
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    Ok(())
}

fn machine(target: Target) -> Result<TargetMachine, CodegenError> {
    static INITIALIZE: Once = Once::new();
    let (major, minor, patch) = get_llvm_version();
    if (major, minor) != LLVM_VERSION {
        return Err(CodegenError::Backend(format!(
            "LLVM {major}.{minor}.{patch} is linked in, {}.{} is needed",
            LLVM_VERSION.0, LLVM_VERSION.1
        )));
    }
    INITIALIZE.call_once(|| LlvmTarget::initialize_nvptx(&InitializationConfig::default()));
    let triple = TargetTriple::create(TRIPLE);
    let info = target.info();
    LlvmTarget::from_triple(&triple)
        .map_err(|error| CodegenError::Backend(error.to_string()))?
        .create_target_machine(
            &triple,
            info.name,
            &format!("+ptx{}", info.ptx_version),
            OptimizationLevel::Default,
            RelocMode::Default,
            CodeModel::Default,
        )
        .ok_or_else(|| CodegenError::Backend(format!("no target machine for {target}")))
}

/// Something that PTX of ours must not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// What it is.
    pub kind: LeftoverKind,
    /// Line of the PTX, from 1.
    pub line: u32,
    /// The line.
    pub text: String,
}

/// Kinds of leftovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftoverKind {
    /// The name of an LLVM intrinsic that was not selected.
    Intrinsic,
    /// An external function that the driver does not provide.
    ExternalFunction,
    /// `atom` or `red` without order and scope: what `atomicrmw` becomes.
    BareAtomic,
    /// A load through the non-coherent path.
    NonCoherent,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            LeftoverKind::Intrinsic => "an intrinsic that was not selected",
            LeftoverKind::ExternalFunction => "an external function",
            LeftoverKind::BareAtomic => "an atomic without order and scope",
            LeftoverKind::NonCoherent => "a non-coherent load",
        };
        write!(f, "{kind} in line {}: {}", self.line, self.text)
    }
}

/// Finds what must not be in PTX that was lowered from a device kernel.
pub fn scan(ptx: &str) -> Vec<Leftover> {
    let mut found = Vec::new();
    let lines: Vec<&str> = ptx.lines().map(|l| l.split("//").next().unwrap_or(l).trim()).collect();
    for (index, line) in lines.iter().enumerate() {
        let kind = if line.contains("llvm_nvvm_") || line.contains("llvm.nvvm.") {
            LeftoverKind::Intrinsic
        } else if line.starts_with(".extern .func") {
            // The name follows the result, on this line or the next.
            let declaration = lines[index..lines.len().min(index + 3)].join(" ");
            let name_is_known = SYSTEM_CALLS.iter().any(|name| {
                declaration.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == *name)
            });
            if name_is_known {
                continue;
            }
            LeftoverKind::ExternalFunction
        } else if let Some(kind) = instruction_kind(line) {
            kind
        } else {
            continue;
        };
        found.push(Leftover { kind, line: index as u32 + 1, text: (*line).to_owned() });
    }
    found
}

fn instruction_kind(line: &str) -> Option<LeftoverKind> {
    let instruction = match line.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace)?.1.trim_start(),
        None => line,
    };
    let mut parts = instruction.split(|c: char| c.is_whitespace() || c == ';').next()?.split('.');
    let modifiers: Vec<&str> = parts.by_ref().collect();
    let (verb, modifiers) = modifiers.split_first()?;
    let has = |names: &[&str]| modifiers.iter().any(|m| names.contains(m));
    match *verb {
        "ldu" | "tex" | "tld4" => Some(LeftoverKind::NonCoherent),
        "ld" if has(&["nc"]) => Some(LeftoverKind::NonCoherent),
        "atom" | "red" => {
            let ordered = has(&["relaxed", "acquire", "release", "acq_rel"]);
            let scoped = has(&["cta", "cluster", "gpu", "sys"]);
            let complete = (ordered && scoped) || has(&["async"]);
            (!complete).then_some(LeftoverKind::BareAtomic)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scan_finds_what_must_not_be_there_and_nothing_else() {
        let text = "\
.extern .func (.param .b32 func_retval0) vprintf
(
.extern .func llvm_nvvm_unknown
.extern .func  (.param .b32 func_retval0) other
	ld.global.nc.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd1];
	@%p1 ld.global.L1::no_allocate.nc.b32 %r1, [%rd1];
	ld.global.b32 %r1, [%rd1]; // not ld.global.nc
	atom.global.add.u32 %r1, [%rd1], 1;
	red.release.sys.global.add.u32 [%rd1], 1;
	ldu.global.b32 %r1, [%rd1];
";
        let found: Vec<(u32, LeftoverKind)> =
            scan(text).into_iter().map(|l| (l.line, l.kind)).collect();
        assert_eq!(
            found,
            [
                (3, LeftoverKind::Intrinsic),
                (4, LeftoverKind::ExternalFunction),
                (5, LeftoverKind::NonCoherent),
                (6, LeftoverKind::NonCoherent),
                (8, LeftoverKind::BareAtomic),
                (10, LeftoverKind::NonCoherent),
            ]
        );
    }
}
