//! The front half of the compiler in one place: text to verified IR at both levels.
//!
//! The stages stand in the order of the architecture page: parse, check, instantiate, verify the kernel
//! level, expand, verify the device level. Nothing here reads files: texts come through a closure.

use kernel_dsl::diag::{Diagnostic, Severity, Sink};
use kernel_dsl::source::{FileId, SourceMap};

use crate::device::DeviceKernel;
use crate::kernel::Kernel;
use crate::sema::{self, Bindings, KernelTemplate, Program};
use crate::target::Target;
use crate::verify::{self, Moment, Verified, Waived};

/// A program with what parsing and checking found.
#[derive(Debug)]
pub struct Front {
    /// The root file, as it was written.
    pub root: FileId,
    /// The files of the program.
    pub program: Program,
    /// Its kernels; empty when parsing failed.
    pub templates: Vec<KernelTemplate>,
    /// Findings of both stages.
    pub diagnostics: Vec<Diagnostic>,
}

impl Front {
    /// Whether any finding refuses the program.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }

    /// The kernel of that name.
    pub fn template(&self, name: &str) -> Option<&KernelTemplate> {
        self.templates.iter().find(|t| t.name() == name)
    }
}

/// Parses a file and all that it imports, and checks it without bindings.
///
/// `read` gets the path of an import, made relative to the root as the root's own name is, and gives its
/// text or the reason why there is none.
pub fn front(
    sources: &mut SourceMap,
    root: FileId,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Front {
    let mut sink = Sink::new();
    let parsed = kernel_dsl::parse(sources, root);
    sink.extend(parsed.diagnostics);
    let mut program = Program::new(parsed.file);
    let mut files: Vec<(String, FileId)> = vec![(sources.name(root).to_owned(), root)];
    loop {
        let missing = program.missing_imports();
        if missing.is_empty() {
            break;
        }
        for import in missing {
            let path = resolve(sources.name(import.importer), &import.path);
            if let Some((_, file)) = files.iter().find(|(name, _)| *name == path) {
                program.link(&import, *file);
                continue;
            }
            let found = if import.path.starts_with('/') {
                Err("the path of an import is relative to the file that names it".to_owned())
            } else {
                read(&path)
            };
            match found {
                Ok(text) => {
                    let file = sources.add(path.clone(), text);
                    let parsed = kernel_dsl::parse(sources, file);
                    sink.extend(parsed.diagnostics);
                    program.add(&import, parsed.file);
                    files.push((path, file));
                }
                Err(reason) => program.fail(&import, reason),
            }
        }
    }
    let templates = if sink.has_errors() {
        Vec::new()
    } else {
        let checked = sema::check(&program);
        sink.extend(checked.diagnostics);
        checked.templates
    };
    Front { root, program, templates, diagnostics: sink.into_sorted() }
}

/// The path of an import, relative to the folder of the file that names it.
fn resolve(importer: &str, path: &str) -> String {
    let mut parts: Vec<&str> = match importer.rsplit_once('/') {
        Some((folder, _)) if !path.starts_with('/') => folder.split('/').collect(),
        _ => Vec::new(),
    };
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != ".." && !last.is_empty()) => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A kernel with its proofs at both levels.
#[derive(Debug, Clone)]
pub struct Built {
    /// The kernel level.
    pub kernel: Verified<Kernel>,
    /// The device level.
    pub device: Verified<DeviceKernel>,
    /// Warnings and notes.
    pub diagnostics: Vec<Diagnostic>,
    /// Findings that the author has waived.
    pub waived: Vec<Waived>,
}

/// Instantiates a kernel and verifies the kernel level.
///
/// # Errors
/// All findings, warnings included, when one of them is an error.
pub fn kernel(
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
) -> Result<verify::Outcome<Kernel>, Vec<Diagnostic>> {
    let kernel = sema::instantiate(template, bindings, target)?;
    Ok(verify::kernel(kernel))
}

/// Instantiates, verifies, expands and verifies again.
///
/// # Errors
/// All findings, warnings included, when one of them is an error.
pub fn build(
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
) -> Result<Built, Vec<Diagnostic>> {
    watched(template, bindings, target, &mut |_| {})
}

/// The same, and says when each pass of the verifier begins and ends.
///
/// # Errors
/// All findings, warnings included, when one of them is an error.
pub fn watched(
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
    watch: &mut dyn FnMut(Moment),
) -> Result<Built, Vec<Diagnostic>> {
    let kernel = sema::instantiate(template, bindings, target)?;
    let outcome = verify::watched_kernel(kernel, watch);
    let mut diagnostics = outcome.diagnostics;
    let Some(verified) = outcome.verified else { return Err(diagnostics) };
    let device = match crate::expand::expand(&verified) {
        Ok(device) => device,
        Err(found) => {
            diagnostics.extend(found);
            return Err(diagnostics);
        }
    };
    let device = verify::watched_device(device, &verified, watch);
    diagnostics.extend(device.diagnostics);
    match device.verified {
        Some(device) => Ok(Built { kernel: verified, device, diagnostics, waived: outcome.waived }),
        None => Err(diagnostics),
    }
}

#[cfg(test)]
mod tests {
    use super::resolve;

    #[test]
    fn imports_are_relative_to_the_file_that_names_them() {
        assert_eq!(resolve("kernels/gemv.tile", "act.tile"), "kernels/act.tile");
        assert_eq!(resolve("a/b/c.tile", "../d.tile"), "a/d.tile");
        assert_eq!(resolve("c.tile", "./d.tile"), "d.tile");
        assert_eq!(resolve("c.tile", "../d.tile"), "../d.tile");
        assert_eq!(resolve("/x/c.tile", "../d.tile"), "/d.tile");
    }
}
