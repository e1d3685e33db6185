//! The kernels whose mutants are judged: operation files, whole kernels, and the kernels of kimi-k3-mini.

use std::path::Path;

use kernel_dsl::source::SourceMap;
use kernel_emulator::Memory;
use kernel_ir::pipeline::Built;
use kernel_ir::sema::KernelTemplate;
use kernel_mutation::{Mutant, Subject, Unfit, Verdict, mutants};

use crate::directive::{Binding, Directives};
use crate::program::{self, Program};
use crate::schedules::Schedules;
use crate::{k3, ranks, runner, schedules, suite};

/// A kernel and where its text and its memory come from.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name in reports.
    pub name: String,
    /// Path of its file, below the folder of the file tests or of the kernels of Kimi K3.
    path: String,
    kernel: String,
    /// Of its runs; what sees a mutant in one of them sees it.
    bindings: Vec<Binding>,
    /// Absent for a kernel of Kimi K3.
    directives: Option<Directives>,
}

/// All kernels: every file once, with its first bindings.
///
/// # Errors
/// A file cannot be read, or a plan cannot be made.
pub fn sources(folder: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for test in schedules::files(folder)?.into_iter().filter(|test| test.case.is_none()) {
        let directives = suite::directives(folder, &test.path)?;
        let program = Program::read(folder, &test.path)?;
        let kernel = match program.chosen(&directives)?.as_slice() {
            [only] => only.name().to_owned(),
            several => return Err(format!("{}: {} kernels", test.path, several.len())),
        };
        let cases = directives.cases.iter().map(|case| directives.bindings(Some(case)));
        let bindings = std::iter::once(directives.bindings(None)).chain(cases).collect();
        let directives = Some(directives);
        sources.push(Source { name: test.name, path: test.path, kernel, bindings, directives });
    }
    for key in schedules::kernels_of_mini()? {
        let name = format!("kimi_k3/{}/{}", key.file, key.kernel);
        let binding = key.bindings.into_iter().collect();
        match sources.iter_mut().find(|source| source.name == name) {
            Some(known) => known.bindings.push(binding),
            None => {
                let (path, kernel, bindings) = (key.file, key.kernel, vec![binding]);
                sources.push(Source { name, path, kernel, bindings, directives: None });
            }
        }
    }
    Ok(sources)
}

impl Source {
    fn read(&self, folder: &Path, path: &str) -> Result<String, String> {
        match &self.directives {
            Some(_) => {
                std::fs::read_to_string(folder.join(path)).map_err(|e| format!("{path}: {e}"))
            }
            None => match kimi_k3::kernels::file(path) {
                Some(file) => Ok(file.text.to_owned()),
                None => Err(format!("there is no file `{path}`")),
            },
        }
    }

    /// Its mutants.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn mutants(&self, folder: &Path) -> Result<Vec<Mutant>, String> {
        let mut map = SourceMap::new();
        let root = map.add(&self.path, self.read(folder, &self.path)?);
        Ok(mutants(&map, &kernel_dsl::parse(&map, root).file))
    }

    /// What sees each of these mutants, in the first of the bindings in which something does.
    ///
    /// # Errors
    /// The kernel itself does not run well.
    pub fn judge(
        &self,
        folder: &Path,
        chosen: &[Mutant],
        schedules: Schedules,
    ) -> Result<Vec<Verdict>, Unfit> {
        let mut verdicts: Vec<Verdict> = Vec::new();
        for (case, binding) in self.bindings.iter().enumerate() {
            let now = self.judge_one(folder, chosen, binding, case > 0, schedules)?;
            if verdicts.is_empty() {
                verdicts = now;
                continue;
            }
            for (verdict, now) in verdicts.iter_mut().zip(now) {
                // The same program in one case says nothing of the others.
                let is_settled = verdict.is_killed() || *verdict == Verdict::Panicked;
                let says = !matches!(now, Verdict::Equivalent | Verdict::NotBuilt);
                if !is_settled && (says || *verdict == Verdict::Equivalent) {
                    *verdict = now;
                }
            }
        }
        Ok(verdicts)
    }

    fn judge_one(
        &self,
        folder: &Path,
        chosen: &[Mutant],
        binding: &Binding,
        is_further: bool,
        schedules: Schedules,
    ) -> Result<Vec<Verdict>, Unfit> {
        let text = self.read(folder, &self.path).map_err(Unfit::Memory)?;
        let directives = self.directives.clone().unwrap_or_default();
        let subject = Subject {
            name: &self.path,
            read: &|path| self.read(folder, path),
            kernel: &self.kernel,
            bindings: &|template: &KernelTemplate| program::bindings(template, binding),
            target: program::target_of(&directives).map_err(Unfit::Memory)?,
            memories: &|built| self.memories(built, is_further),
            launches: directives.launches.unwrap_or(1),
            schedules: (schedules.count, schedules.seed),
        };
        subject.judge(&text, chosen)
    }

    fn memories(&self, built: &Built, is_further: bool) -> Result<Vec<Memory>, String> {
        let case = is_further.then(Binding::new);
        match &self.directives {
            Some(directives) if built.kernel.launch.world.is_some() => {
                ranks::memories(built, directives, case.as_ref())
            }
            Some(directives) => Ok(vec![runner::memory(built, directives, case.as_ref())?]),
            None => {
                let params = &built.kernel.params;
                let mut memory = Memory::new(params);
                memory.fill_missing(params, k3::SEED).map_err(|error| error.to_string())?;
                Ok(vec![memory])
            }
        }
    }
}

/// A change that nothing needs to see, since the kernel is right with it too.
#[derive(Debug, Clone)]
pub struct Harmless {
    /// Name of the source.
    pub path: String,
    operator: String,
    /// How the text that is changed begins.
    pub before: String,
    /// Some mutant fits.
    pub is_met: bool,
}

impl Harmless {
    /// Whether this is the mutant.
    pub fn fits(&self, source: &Source, mutant: &Mutant) -> bool {
        let words: Vec<&str> = mutant.before.split_whitespace().collect();
        self.path == source.name
            && self.operator == mutant.operator.name()
            && words.join(" ").starts_with(&self.before)
    }
}

/// Reads the list: a line each, `PATH | CHANGE | HOW THE TEXT BEGINS | WHY IT DOES NO HARM`.
///
/// # Errors
/// The file cannot be read, or a line is of another form.
pub fn harmless(path: &Path) -> Result<Vec<Harmless>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| match line.split(" | ").collect::<Vec<_>>().as_slice() {
            [path, operator, before, why] if !why.is_empty() => Ok(Harmless {
                path: (*path).to_owned(),
                operator: (*operator).to_owned(),
                before: (*before).to_owned(),
                is_met: false,
            }),
            _ => Err(format!("four parts and a reason are wanted: {line}")),
        })
        .collect()
}
