//! A `.tile` file through the front half of the compiler, and its findings against the annotations.

use std::path::{Path, PathBuf};

use kernel_dsl::diag::render::{self, Look};
use kernel_dsl::diag::{Diagnostic, Severity};
use kernel_dsl::source::{FileId, SourceMap};
use kernel_ir::pipeline::{self, Built, Front};
use kernel_ir::sema::{Bindings, ConstType, ConstValue, KernelTemplate};
use kernel_ir::target::Target;

use crate::directive::{Binding, Directives, Expected};

/// The folder of the test package.
pub fn package_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A checked file with its texts.
#[derive(Debug)]
pub struct Program {
    /// The texts.
    pub sources: SourceMap,
    /// The root file.
    pub root: FileId,
    /// What parsing and checking made of it.
    pub front: Front,
}

impl Program {
    /// Reads a file and what it imports; `name` is its path below `folder`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(folder: &Path, name: &str) -> Result<Program, String> {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let mut read = |import: &str| {
            std::fs::read_to_string(folder.join(import)).map_err(|error| error.to_string())
        };
        Ok(Program::of_text(name, &text, &mut read))
    }

    /// Checks a text; `read` gives the texts of its imports.
    pub fn of_text(
        name: &str,
        text: &str,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Program {
        let mut sources = SourceMap::new();
        let root = sources.add(name, text);
        let front = pipeline::front(&mut sources, root, read);
        Program { sources, root, front }
    }

    /// The kernels that the directives choose: the named one, or all.
    ///
    /// # Errors
    /// There is no kernel of that name.
    pub fn chosen(&self, directives: &Directives) -> Result<Vec<&KernelTemplate>, String> {
        match &directives.kernel {
            Some(name) => match self.front.template(name) {
                Some(template) => Ok(vec![template]),
                None => Err(format!("there is no kernel `{name}`")),
            },
            None => Ok(self.front.templates.iter().collect()),
        }
    }

    /// Builds a kernel up to the verified device level.
    ///
    /// # Errors
    /// Findings, as text.
    pub fn build(
        &self,
        template: &KernelTemplate,
        binding: &Binding,
        target: Option<Target>,
    ) -> Result<Built, String> {
        self.build_or_findings(template, binding, target).map_err(|found| self.show(&found))
    }

    /// Builds a kernel up to the verified device level.
    ///
    /// # Errors
    /// Findings.
    pub fn build_or_findings(
        &self,
        template: &KernelTemplate,
        binding: &Binding,
        target: Option<Target>,
    ) -> Result<Built, Vec<Diagnostic>> {
        let target = target.or(template.targets().first().copied()).unwrap_or(Target::Sm90a);
        pipeline::build(template, &bindings(template, binding), target)
    }

    /// Findings as a terminal shows them.
    pub fn show(&self, found: &[Diagnostic]) -> String {
        render::text_of_all(&self.sources, found, Look::PLAIN)
    }

    /// Line and column of the primary label, and the file.
    fn place(&self, found: &Diagnostic) -> Option<(FileId, u32)> {
        found.primary().map(|label| (label.span.file, self.sources.start(label.span).line))
    }

    /// Every annotation is met by a finding and every finding by an annotation.
    ///
    /// # Errors
    /// What is missing and what was not expected, as text.
    pub fn match_findings(
        &self,
        found: &[Diagnostic],
        expected: &[Expected],
    ) -> Result<(), String> {
        let mut left: Vec<&Expected> = expected.iter().collect();
        let mut faults = Vec::new();
        for diagnostic in found {
            let met = left.iter().position(|e| self.meets(diagnostic, e));
            match met {
                Some(at) => {
                    left.remove(at);
                }
                // Background needs no annotation.
                None if diagnostic.severity == Severity::Note => {}
                None => faults.push(format!(
                    "not annotated:\n{}",
                    render::text(&self.sources, diagnostic, Look::PLAIN)
                )),
            }
        }
        faults.extend(
            left.iter().map(|e| {
                format!("line {}: expected {}[{}]: {}", e.line, e.severity, e.code, e.text)
            }),
        );
        if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
    }

    fn meets(&self, found: &Diagnostic, expected: &Expected) -> bool {
        let text_in = |text: &str| text.contains(&expected.text);
        self.place(found) == Some((self.root, expected.line))
            && found.severity.word() == expected.severity
            && found.code.name() == expected.code
            && (text_in(&found.message) || found.primary().is_some_and(|l| text_in(&l.message)))
    }
}

/// Values for the const parameters of a kernel; names that it lacks are left to sema to refuse.
pub fn bindings(template: &KernelTemplate, binding: &Binding) -> Bindings {
    let params = template.const_params();
    let typed = |(name, value): &(String, i64)| {
        let is_bool = params.iter().any(|p| p.name == *name && p.ty == ConstType::Bool);
        let value = if is_bool { ConstValue::Bool(*value != 0) } else { ConstValue::Int(*value) };
        (name.clone(), value)
    };
    binding.iter().map(typed).collect()
}

/// The target that the directives name.
///
/// # Errors
/// There is no such target.
pub fn target_of(directives: &Directives) -> Result<Option<Target>, String> {
    directives.target.as_deref().map_or(Ok(None), target)
}

/// The target of that name.
///
/// # Errors
/// There is none.
pub fn target(name: &str) -> Result<Option<Target>, String> {
    Target::from_name(name).map(Some).ok_or_else(|| format!("there is no target `{name}`"))
}

/// The only kernel of a text without imports, with its default bindings.
///
/// # Panics
/// The text is refused: with all that is said of it.
pub fn build_text(text: &str) -> Built {
    let mut read = |path: &str| Err(format!("there is no file `{path}`"));
    let program = Program::of_text("test.tile", text, &mut read);
    assert!(!program.front.has_errors(), "{}", program.show(&program.front.diagnostics));
    match program.build_or_findings(&program.front.templates[0], &Vec::new(), None) {
        Ok(built) => built,
        Err(found) => panic!("{}", program.show(&found)),
    }
}
