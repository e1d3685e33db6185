//! The file tests: `tests/suite/{verify,patterns,ops,overlap,run}/**/*.tile`, and the examples of docs/*.md.

use std::path::Path;

use kernel_dsl::diag::Diagnostic;
use kernel_ir::pipeline::Built;
use kernel_ir::verify::CODES_OF_ORDER;

use crate::directive::{Binding, Directives, show_binding};
use crate::overlap;
use crate::program::{self, Program};
use crate::ranks;
use crate::runner::{self, Failure};

/// One test: a file, and which of its runs.
#[derive(Debug, Clone)]
pub struct FileTest {
    /// Path below `tests/suite`, with the bindings of a further case.
    pub name: String,
    /// Path below `tests/suite`.
    pub path: String,
    /// Which of the further cases.
    pub case: Option<usize>,
}

/// The folders that these runners judge.
const FOLDERS: [&str; 5] = ["ops", "overlap", "patterns", "run", "verify"];

/// All file tests, sorted by name.
///
/// # Errors
/// A file or a directive cannot be read.
pub fn file_tests(suite: &Path) -> Result<Vec<FileTest>, String> {
    let mut paths = Vec::new();
    // What was copied for a device has some of the folders only.
    for folder in FOLDERS.into_iter().filter(|folder| suite.join(folder).is_dir()) {
        walk(suite, folder, &mut paths).map_err(|error| format!("{folder}: {error}"))?;
    }
    if paths.is_empty() {
        return Err(format!("{} holds no file tests", suite.display()));
    }
    paths.sort();
    let mut tests = Vec::new();
    for path in paths {
        let directives = directives(suite, &path)?;
        tests.push(FileTest { name: path.clone(), path: path.clone(), case: None });
        for (number, case) in directives.cases.iter().enumerate() {
            let name = format!("{path}[{}]", show_binding(case));
            tests.push(FileTest { name, path: path.clone(), case: Some(number) });
        }
    }
    Ok(tests)
}

fn walk(suite: &Path, folder: &str, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(suite.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(suite, &path, paths)?;
        } else if path.ends_with(".tile") {
            paths.push(path);
        }
    }
    Ok(())
}

/// The directives of a file.
///
/// # Errors
/// It cannot be read, or one is not understood.
pub fn directives(suite: &Path, path: &str) -> Result<Directives, String> {
    let text = std::fs::read_to_string(suite.join(path)).map_err(|e| format!("{path}: {e}"))?;
    Directives::parse(&text).map_err(|reason| format!("{path}: {reason}"))
}

/// Runs one file test.
///
/// # Errors
/// What does not hold.
pub fn run(suite: &Path, test: &FileTest) -> Result<(), String> {
    let directives = directives(suite, &test.path)?;
    let program = Program::read(suite, &test.path)?;
    match directives.test.as_str() {
        "verify" => verify(&program, &directives),
        "ops" | "run" => {
            let case = test.case.and_then(|number| directives.cases.get(number));
            execute(&program, &directives, case)
        }
        "overlap" => overlapped(&program, &directives),
        other => Err(format!("no runner is called `{other}`")),
    }
}

/// The findings of all stages up to the device level are those that the annotations expect.
fn verify(program: &Program, directives: &Directives) -> Result<(), String> {
    let mut found = program.front.diagnostics.clone();
    if !program.front.has_errors() {
        let target = program::target_of(directives)?;
        let binding = directives.bindings(None);
        for template in program.chosen(directives)? {
            match program.build_or_findings(template, &binding, target) {
                Ok(built) => found.extend(built.diagnostics),
                Err(findings) => found.extend(findings),
            }
        }
    }
    program.match_findings(&found, &directives.expected)?;
    names_edges(program, &found)
}

/// Findings of memory order say which edge is missing, what stands between, and how to put it right.
fn names_edges(program: &Program, found: &[Diagnostic]) -> Result<(), String> {
    // Some are found in the text, before there is a kernel.
    let is_of_kernel = |finding: &Diagnostic| !finding.message.contains("to their own one alone");
    let lacks = |finding: &&Diagnostic| {
        let named = |name| finding.facts.iter().any(|fact| fact.name() == name);
        let is_whole = named("missing edge") && named("path") && !finding.help.is_empty();
        CODES_OF_ORDER.contains(&finding.code) && is_of_kernel(finding) && !is_whole
    };
    match found.iter().find(lacks) {
        Some(finding) => {
            let shown = program.show(std::slice::from_ref(finding));
            Err(format!("no missing edge, path or help:\n{shown}"))
        }
        None => Ok(()),
    }
}

/// The kernel gives the wanted values at both levels, or the error that the annotations expect.
fn execute(
    program: &Program,
    directives: &Directives,
    case: Option<&Binding>,
) -> Result<(), String> {
    let built = build(program, directives, case)?;
    let mut found = built.diagnostics.clone();
    match run_built(&built, directives, case)? {
        Ok(matched) => {
            program.match_findings(&found, &directives.expected)?;
            if case.is_some() { Ok(()) } else { matched }
        }
        Err(Failure::Run(error)) => {
            found.push(error.to_diagnostic());
            program.match_findings(&found, &directives.expected)
        }
        Err(Failure::Levels(text)) => Err(text),
    }
}

/// The kernels of a chain, overlapping, give the wanted values at both levels in every schedule, or the error that the
/// annotations expect.
fn overlapped(program: &Program, directives: &Directives) -> Result<(), String> {
    match run_chain(program, directives)? {
        Ok(matched) => {
            program.match_findings(&[], &directives.expected)?;
            matched
        }
        Err(Failure::Run(error)) => {
            program.match_findings(&[error.to_diagnostic()], &directives.expected)
        }
        Err(Failure::Levels(text)) => Err(text),
    }
}

/// The error of a run of a chain, if there is one.
///
/// # Errors
/// The two levels of the emulator differ, or a kernel or a value does not fit.
pub fn error_of_chain(
    program: &Program,
    directives: &Directives,
) -> Result<Option<Diagnostic>, String> {
    ended(run_chain(program, directives)?)
}

/// The error of a run, if there is one.
///
/// # Errors
/// The two levels of the emulator differ, or a value does not fit.
pub fn error_of_run(built: &Built, directives: &Directives) -> Result<Option<Diagnostic>, String> {
    ended(run_built(built, directives, None)?)
}

/// How a run ended: whether the wanted values came out, or why none did.
type Ended = Result<Result<(), String>, Failure>;

/// The error of a run, if there is one.
fn ended(ended: Ended) -> Result<Option<Diagnostic>, String> {
    match ended {
        Ok(matched) => matched.map(|()| None),
        Err(Failure::Run(error)) => Ok(Some(error.to_diagnostic())),
        Err(Failure::Levels(text)) => Err(text),
    }
}

/// Runs the kernels of a chain, overlapping, in a few schedules.
fn run_chain(program: &Program, directives: &Directives) -> Result<Ended, String> {
    let chain = overlap::chain(program, directives)?;
    let memory = overlap::memory(&chain, directives)?;
    let kernels: Vec<_> = chain.iter().collect();
    Ok(overlap::run_all(&kernels, &memory, overlap::FEW)
        .map(|memory| overlap::match_outputs(&kernels, directives, &memory)))
}

/// Runs a kernel on the memory of the directives.
fn run_built(
    built: &Built,
    directives: &Directives,
    case: Option<&Binding>,
) -> Result<Ended, String> {
    let mut run = runner::Run::STANDARD;
    run.kernel_level_only = directives.kernel_level_only;
    run.options.max_steps = directives.steps.unwrap_or(run.options.max_steps);
    Ok(if built.kernel.launch.world.is_some() {
        let memories = ranks::memories(built, directives, case)?;
        let launches = directives.launches.unwrap_or(1);
        ranks::run_all(built, &memories, launches, ranks::FEW, run)
            .map(|memories| ranks::match_outputs(built, directives, &memories))
    } else {
        let memory = runner::memory(built, directives, case)?;
        runner::run_both(built, memory, run)
            .map(|memory| runner::match_outputs(built, directives, &memory))
    })
}

/// Builds the only kernel of a file, or the one that the directives name.
///
/// # Errors
/// The file or the kernel is refused, or it is not clear which kernel is meant.
pub fn build(
    program: &Program,
    directives: &Directives,
    case: Option<&Binding>,
) -> Result<Built, String> {
    if program.front.has_errors() {
        return Err(program.show(&program.front.diagnostics));
    }
    let template = match program.chosen(directives)?.as_slice() {
        [only] => *only,
        several => return Err(format!("{} kernels: name one by `//@ kernel:`", several.len())),
    };
    program.build(template, &directives.bindings(case), program::target_of(directives)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a runner says about a text.
    fn judge(text: &str) -> Result<(), String> {
        let directives = Directives::parse(text).unwrap();
        let mut read = |path: &str| Err(format!("there is no file `{path}`"));
        let program = Program::of_text("test.tile", text, &mut read);
        match directives.test.as_str() {
            "verify" => verify(&program, &directives),
            _ => execute(&program, &directives, None),
        }
    }

    const DOUBLE: &str = "target sm_90a;\n\
        kernel double(input x : gmem f32[2], output y : gmem f32[2]) launch { grid: 1, warps: 1 } {\n\
        store load x * 2.0 -> y;\n}\n";

    #[test]
    fn a_wrong_value_is_found() {
        let run = |out: &str| {
            judge(&format!("//@ test: ops\n//@ in x: 1 nan\n//@ out y: {out}\n{DOUBLE}"))
        };
        assert_eq!(run("2 nan"), Ok(()));
        assert_eq!(
            run("3 nan").unwrap_err(),
            "`y` element 0: 2.0 (0x40000000), wanted 3.0 (0x40400000)"
        );
        assert!(run("2 0x7fc00000").is_err(), "codes of NaN differ");
        assert_eq!(run("2").unwrap_err(), "`y` has 2 elements, 1 are given");
    }

    #[test]
    fn a_finding_needs_its_annotation_and_the_reverse() {
        let program = |annotation: &str| {
            let text = "kernel early(input x : gmem f32[2], output y : gmem f32[2]) launch { grid: 1, warps: 1, pdl: both } {\n";
            judge(&format!(
                "//@ test: verify\ntarget sm_90a;\n{text}let v = load x; {annotation}\ngrid_wait;\nstore v -> y;\n}}\n"
            ))
        };
        assert_eq!(program("//~ error[E0107]: activation `x`"), Ok(()));
        assert!(program("").unwrap_err().starts_with("not annotated:\nerror[E0107]"));
        for wrong in
            ["error[E0108]: activation", "error[E0107]: other words", "warning[E0107]: activation"]
        {
            let faults = program(&format!("//~ {wrong}")).unwrap_err();
            assert!(faults.contains("not annotated"), "{faults}");
            assert!(faults.ends_with(&format!("line 4: expected {wrong}")), "{faults}");
        }
        assert!(program("//~ error[E0107]: activation\n//~ error[E0107]: activation").is_err());
    }

    #[test]
    fn an_error_of_the_run_needs_its_annotation() {
        let text = |annotation: &str| {
            format!(
                "//@ test: run\ntarget sm_90a;\nkernel k(output y : gmem f32[1]) launch {{ grid: 1, warps: 1 }} {{\n\
                 frag a : f32;\nstore a -> y[0]; {annotation}\n}}\n"
            )
        };
        assert_eq!(judge(&text("//~ error[E0701]: nothing has assigned")), Ok(()));
        assert!(judge(&text("")).unwrap_err().contains("error[E0701]"));
    }
}
