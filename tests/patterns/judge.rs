//! What each layer says of a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kernel_audit::{Declarations, Processes, Verdict, audit_ptx};
use kernel_dsl::diag::Severity;
use kernel_emulator::Options;
use kernel_ir::verify;
use kernel_memory_model::{Limits, Model, Verdict as Answer, decide, parse};
use kernel_tests::directive::Directives;
use kernel_tests::program::{Program, package_folder, target_of};
use kernel_tests::suite::FileTest;
use kernel_tests::{overlap, pages, recorded, suite};

use crate::plan;
use crate::table::{Fault, Layer, Place};

/// Its layer reports the file with its code.
///
/// # Errors
/// It does not, or says something else.
pub(crate) fn faulty(fault: &Fault) -> Result<(), String> {
    let found = match fault.layer {
        Layer::Language | Layer::Verifier => {
            let (found, text) = checked(&Tile::read(&fault.place)?)?;
            let by_verifier = |code: &String| {
                verify::PASSES.iter().any(|pass| pass.codes.iter().any(|c| c.name() == code))
            };
            let is_verifier = fault.code.as_ref().is_some_and(by_verifier);
            if is_verifier != (fault.layer == Layer::Verifier) {
                return Err(format!("the code is not one of the {}\n{text}", fault.layer.name()));
            }
            found
        }
        Layer::Launches => {
            let tile = Tile::read(&fault.place)?;
            let error = suite::error_of_chain(&tile.program, &tile.directives)?;
            error.iter().map(|error| error.code.name().to_owned()).collect()
        }
        Layer::Plan => {
            let tile = Tile::read(&fault.place)?;
            let (found, text) = checked(&tile)?;
            if !found.is_empty() {
                return Err(text);
            }
            let chain = overlap::chain(&tile.program, &tile.directives)?;
            plan::codes(&tile.directives.chain, &chain)?
        }
        Layer::Audit => audited(&fault.place, None)?.0,
        Layer::MachineCode => audited(&fault.place, Some(&tools()))?.0,
        Layer::Axioms => return litmus(&fault.place, true),
        Layer::OwnBuild | Layer::BackEnd => return test(&fault.place),
    };
    match &fault.code {
        Some(code) if found.contains(code) => Ok(()),
        _ => Err(format!("it says {found:?}")),
    }
}

/// No layer says anything of the file.
///
/// # Errors
/// One does.
pub(crate) fn right(place: &Place) -> Result<(), String> {
    match place.path.extension().and_then(|extension| extension.to_str()) {
        Some("tile") => right_tile(place),
        Some("litmus") => litmus(place, false),
        Some("ptx") => {
            for tools in [None, Some(&tools())] {
                let (found, text) = audited(place, tools)?;
                if !found.is_empty() {
                    return Err(text);
                }
            }
            Ok(())
        }
        _ => test(place),
    }
}

fn right_tile(place: &Place) -> Result<(), String> {
    let tile = Tile::read(place)?;
    let (found, text) = checked(&tile)?;
    if !found.is_empty() {
        return Err(text);
    }
    if !tile.directives.chain.is_empty() {
        let chain = overlap::chain(&tile.program, &tile.directives)?;
        let codes = plan::codes(&tile.directives.chain, &chain)?;
        let error = suite::error_of_chain(&tile.program, &tile.directives)?;
        return match (codes.is_empty(), error) {
            (true, None) => Ok(()),
            (_, error) => Err(format!("{codes:?}, {error:?}")),
        };
    }
    let built = suite::build(&tile.program, &tile.directives, None)?;
    if let Some(error) = suite::error_of_run(&built, &tile.directives)? {
        return Err(tile.program.show(&[error]));
    }
    let test = FileTest { name: tile.path.clone(), path: tile.path, case: None };
    // A run of many threads may have more events than the axioms are asked about.
    recorded::judge_file(&suite_folder(), &test, Options::STANDARD).map(|_| ())
}

/// A file of the suite.
struct Tile {
    /// Its path below `tests/suite`.
    path: String,
    program: Program,
    directives: Directives,
}

impl Tile {
    fn read(place: &Place) -> Result<Tile, String> {
        let folder = suite_folder();
        let path = place.path.strip_prefix(&folder).ok().and_then(Path::to_str);
        let path = path.ok_or_else(|| format!("{place} is no file of the suite"))?.to_owned();
        let program = Program::read(&folder, &path)?;
        let directives = suite::directives(&folder, &path)?;
        Ok(Tile { path, program, directives })
    }
}

fn suite_folder() -> PathBuf {
    package_folder().join("suite")
}

/// The codes of what is found before anything runs, for every target of the file.
fn checked(tile: &Tile) -> Result<(BTreeSet<String>, String), String> {
    let mut found = tile.program.front.diagnostics.clone();
    if !tile.program.front.has_errors() {
        let binding = tile.directives.bindings(None);
        for template in tile.program.chosen(&tile.directives)? {
            let targets = match target_of(&tile.directives)? {
                Some(target) => vec![target],
                None => template.targets().to_vec(),
            };
            for target in targets {
                match tile.program.build_or_findings(template, &binding, Some(target)) {
                    Ok(built) => found.extend(built.diagnostics),
                    Err(findings) => found.extend(findings),
                }
            }
        }
    }
    found.retain(|diagnostic| diagnostic.severity != Severity::Note);
    let codes = found.iter().map(|diagnostic| diagnostic.code.name().to_owned()).collect();
    Ok((codes, tile.program.show(&found)))
}

/// The codes of the findings, with what `//@ static: NAME` declares, for the target that the file names.
fn audited(place: &Place, tools: Option<&Processes>) -> Result<(BTreeSet<String>, String), String> {
    let ptx = std::fs::read_to_string(&place.path).map_err(|error| error.to_string())?;
    let after = |prefix: &str| {
        let lines = ptx.lines().filter_map(|line| line.strip_prefix(prefix));
        lines.map(|rest| rest.trim().to_owned()).collect::<Vec<String>>()
    };
    let declarations =
        Declarations::parse(&after("//@ static:"), &[]).map_err(|e| e.to_string())?;
    let targets = after(".target");
    let target = targets.first().ok_or("the PTX names no target")?;
    let tools = tools.map(|tools| -> &dyn kernel_audit::Toolchain { tools });
    let report = audit_ptx(&ptx, &declarations, target, tools).map_err(|e| e.to_string())?;
    let text = report.to_text(&place.to_string());
    if report.verdict == Verdict::NotJudged {
        return Err(text);
    }
    Ok((report.findings.iter().map(|item| item.code.code().to_owned()).collect(), text))
}

/// The state of the test is possible, or it is not.
fn litmus(place: &Place, is_faulty: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(&place.path).map_err(|error| error.to_string())?;
    let test = parse(&text).map_err(|found| format!("{found:?}"))?;
    let decision = decide(&test, Model::Ptx75, &Limits::default()).map_err(|e| format!("{e:?}"))?;
    let goes_wrong = match decision.verdict {
        Answer::Allowed | Answer::Violated => true,
        Answer::Forbidden | Answer::Holds => false,
    };
    if goes_wrong == is_faulty { Ok(()) } else { Err(format!("{:?}", decision.verdict)) }
}

/// The test that the table names is there; it runs with those of its crate.
fn test(place: &Place) -> Result<(), String> {
    let text = std::fs::read_to_string(&place.path).map_err(|error| error.to_string())?;
    let name = place.test.as_deref().ok_or_else(|| format!("{place} names no test"))?;
    let head = format!("#[test]\nfn {name}() {{");
    if text.contains(&head) { Ok(()) } else { Err(format!("{place} has no test of that name")) }
}

/// The tools of the machine code: named by the environment, or in the project's folder.
fn tools() -> Processes {
    let find = |variable: &str, name: &str| {
        let own = pages::root().join(".tools/nvidia/cu13/bin").join(name);
        Some(std::env::var_os(variable).map_or(own, PathBuf::from))
    };
    Processes {
        ptxas: find("KERNELC_PTXAS", "ptxas"),
        nvdisasm: find("KERNELC_NVDISASM", "nvdisasm"),
        scratch: std::env::temp_dir(),
    }
}
