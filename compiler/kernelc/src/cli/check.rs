//! `kernelc check PATH…`: everything that can be said about a file without compiling it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use kernel_dsl::diag::{Code, Diagnostic, Severity};
use kernel_dsl::source::SourceMap;
use kernel_ir::pipeline::{self, Front};
use kernel_ir::sema::{self, Bindings, KernelTemplate};
use kernel_ir::target::Target;
use kernel_ir::verify::{Moment, PASSES, happens_before};

use super::{Answer, Cli, Format, exit};
use crate::build_file::BuildFile;
use crate::output;
use crate::session::{self, Session, build_file, entry_bindings, tile_files};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files or folders; `-` reads standard input.
    #[arg(required_unless_present = "list")]
    pub paths: Vec<String>,
    /// Print the passes of the verifier and of the audit, and stop.
    #[arg(long)]
    pub list: bool,
    /// Check this kernel only.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Values of const parameters: `--bind M=1,K=7168`; otherwise build.toml's, otherwise the defaults.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub bind: Vec<String>,
    /// Check for these targets only; otherwise all that the file states.
    #[arg(long, value_name = "TARGET", value_parser = super::parse_target)]
    pub target: Vec<Target>,
    /// Check every combination of `tune` values too.
    #[arg(long)]
    pub all_tunings: bool,
    /// Print how long the passes took for each kernel, and the slowest pass of each.
    #[arg(long, conflicts_with = "list")]
    pub timings: bool,
    /// Print for each two statements on the same memory how the happens-before graph orders them, or why they never meet;
    /// and what it does not have.
    #[arg(long, conflicts_with = "list")]
    pub proofs: bool,
    /// With --proofs: print the graph for Graphviz instead.
    #[arg(long, requires = "proofs")]
    pub dot: bool,
}

/// Checks files.
pub fn run(cli: &Cli, args: &CheckArgs) -> Answer {
    if args.list {
        return list(cli.format);
    }
    if args.timings && cli.format == Format::Sarif {
        return *session::usage(cli.format, "SARIF has no place for --timings");
    }
    if args.proofs && cli.format == Format::Sarif {
        return *session::usage(cli.format, "SARIF has no place for --proofs");
    }
    let mut all = Answer::default();
    let mut timings = Vec::new();
    for path in &args.paths {
        let files = if path == "-" {
            vec![path.into()]
        } else {
            match tile_files(cli.format, Path::new(path)) {
                Ok(files) => files,
                Err(refusal) => return *refusal,
            }
        };
        for file in files {
            let answer = one(cli, args, &file.to_string_lossy(), &mut timings);
            let answer = answer.unwrap_or_else(|refusal| *refusal);
            all.stdout.push_str(&answer.stdout);
            all.stderr.push_str(&answer.stderr);
            all.code = all.code.max(answer.code);
        }
    }
    if args.timings {
        all.stdout.push_str(&times(cli.format, &timings));
    }
    all
}

/// What the passes took for one kernel with bindings and a target.
struct Timing {
    kernel: String,
    target: Target,
    passes: Vec<PassTime>,
}

/// How long a pass took.
struct PassTime {
    pass: &'static str,
    time: Duration,
}

impl Timing {
    fn total(&self) -> Duration {
        self.passes.iter().map(|pass| pass.time).sum()
    }
}

/// Lines of kernels, the slowest last.
fn times(format: Format, timings: &[Timing]) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let mut sorted: Vec<&Timing> = timings.iter().collect();
    sorted.sort_by_key(|timing| timing.total());
    let line = |timing: &Timing| {
        let (kernel, target, total) = (&timing.kernel, timing.target, ms(timing.total()));
        if format == Format::Json {
            let pass = |pass: &PassTime| (pass.pass.to_owned(), ms(pass.time).into());
            let passes: serde_json::Map<String, _> = timing.passes.iter().map(pass).collect();
            let target = target.to_string();
            let line = serde_json::json!({ "kernel": kernel, "target": target, "ms": total, "passes": passes });
            return format!("{line}\n");
        }
        let slowest = timing.passes.iter().max_by_key(|pass| pass.time);
        let slowest = slowest
            .map_or_else(String::new, |pass| format!(", {} {:.2} ms", pass.pass, ms(pass.time)));
        format!("{total:9.2} ms  {kernel} {target}{slowest}\n")
    };
    sorted.into_iter().map(line).collect()
}

/// What was found of one file's kernels.
#[derive(Default)]
struct Found {
    diagnostics: Vec<Diagnostic>,
    /// What is taken on trust, each line once.
    trusted: Vec<String>,
    instances: usize,
    timings: Vec<Timing>,
    /// Proofs or graphs as text.
    proofs: String,
}

fn one(
    cli: &Cli,
    args: &CheckArgs,
    path: &str,
    timings: &mut Vec<Timing>,
) -> Result<Answer, session::Refusal> {
    let mut session = Session::new();
    let front = session.open(cli.format, path)?;
    let explicit = session::parse_bindings(&args.bind)
        .map_err(|message| session::usage(cli.format, &message))?;
    let build =
        if path == "-" { BuildFile::default() } else { build_file(cli.format, Path::new(path))? };
    if let Some(name) = &args.kernel
        && front.template(name).is_none()
    {
        return Err(session::usage(cli.format, &format!("no kernel `{name}` in `{path}`")));
    }
    let mut found = Found { diagnostics: front.diagnostics.clone(), ..Found::default() };
    for template in selected(&front, args) {
        let points = bindings(template, &explicit, &build, Path::new(path));
        if points.is_empty() {
            found.diagnostics.push(
                Diagnostic::warning(
                    Code::E0208,
                    format!(
                        "kernel `{}` was checked without bindings: memory order and bounds are not judged",
                        template.name()
                    ),
                )
                .label(template.span(), "a const parameter has neither a default nor a binding")
                .help("give --bind NAME=VALUE, defaults, or entries in build.toml"),
            );
        }
        for point in points {
            if args.proofs {
                found.proofs.push_str(&proofs(
                    cli.format,
                    &session.sources,
                    args,
                    template,
                    &point,
                ));
            }
            kernel(&session.sources, args, template, &point, &mut found);
        }
    }
    timings.append(&mut found.timings);
    dedup(&mut found.diagnostics);
    let mut answer = output::diagnostics(cli.format, &session.sources, &found.diagnostics);
    answer.stdout.push_str(&found.proofs);
    if cli.format == Format::Text {
        found.trusted.iter().for_each(|lines| answer.stdout.push_str(lines));
        if answer.code == exit::OK {
            answer.stdout.push_str(&format!(
                "{path}: {} kernels, {} instances, no errors\n",
                front.templates.len(),
                found.instances
            ));
        }
    }
    Ok(answer)
}

fn selected<'f>(front: &'f Front, args: &CheckArgs) -> impl Iterator<Item = &'f KernelTemplate> {
    let name = args.kernel.clone();
    front.templates.iter().filter(move |t| name.as_deref().is_none_or(|n| n == t.name()))
}

/// The bindings to check a kernel with: the command line's, else every entry of build.toml, else the defaults.
fn bindings(
    template: &KernelTemplate,
    explicit: &Bindings,
    build: &BuildFile,
    path: &Path,
) -> Vec<Bindings> {
    if explicit.iter().next().is_some() {
        return vec![explicit.clone()];
    }
    let entries: Vec<Bindings> = build
        .set
        .values()
        .flatten()
        .filter(|entry| entry.kernel == template.name())
        .filter(|entry| entry.file.as_ref().is_none_or(|file| path.ends_with(file)))
        .map(entry_bindings)
        .collect();
    if !entries.is_empty() {
        return entries;
    }
    let open = template.const_params().iter().any(|p| !p.has_default);
    if open { Vec::new() } else { vec![Bindings::new()] }
}

fn kernel(
    sources: &SourceMap,
    args: &CheckArgs,
    template: &KernelTemplate,
    point: &Bindings,
    found: &mut Found,
) {
    let mut targets = template.targets();
    targets.retain(|t| args.target.is_empty() || args.target.contains(t));
    for target in targets {
        found.instances += 1;
        let (mut passes, mut start) = (Vec::new(), Instant::now());
        let mut watch = |moment: Moment| match moment {
            Moment::Begins(_) => start = Instant::now(),
            Moment::Ends(pass) => passes.push(PassTime { pass, time: start.elapsed() }),
        };
        match pipeline::watched(template, point, target, &mut watch) {
            Ok(built) => {
                for line in output::trusted(sources, &built).split_inclusive('\n') {
                    if !found.trusted.iter().any(|known| known == line) {
                        found.trusted.push(line.to_owned());
                    }
                }
                found.diagnostics.extend(built.diagnostics);
                let kernel = named(template, point);
                found.timings.push(Timing { kernel, target, passes });
            }
            Err(diagnostics) => found.diagnostics.extend(diagnostics),
        }
        if args.all_tunings {
            // A point whose `where` fails is no point: it is left out, not reported.
            for tuned in session::tune_points(template, point) {
                match pipeline::build(template, &tuned, target) {
                    Ok(built) => {
                        found.instances += 1;
                        found.diagnostics.extend(built.diagnostics);
                    }
                    Err(diagnostics) => {
                        let impossible =
                            |d: &Diagnostic| matches!(d.code.name(), "E0209" | "E0503");
                        if !diagnostics.iter().any(impossible) {
                            found.instances += 1;
                            found.diagnostics.extend(diagnostics);
                        }
                    }
                }
            }
        }
    }
}

/// What the happens-before graph says of a kernel, accepted or not; nothing where there is no kernel.
fn proofs(
    format: Format,
    sources: &SourceMap,
    args: &CheckArgs,
    template: &KernelTemplate,
    point: &Bindings,
) -> String {
    let mut targets = template.targets();
    targets.retain(|t| args.target.is_empty() || args.target.contains(t));
    let mut out = String::new();
    for target in targets {
        let Ok(kernel) = sema::instantiate(template, point, target) else { continue };
        let proofs = happens_before::prove(&kernel);
        let name = format!("{} {target}", named(template, point));
        if args.dot {
            out.push_str(&proofs.dot(sources, &name));
            continue;
        }
        if format == Format::Json {
            for proof in &proofs.proofs {
                let line = serde_json::json!({
                    "kernel": named(template, point),
                    "target": target.to_string(),
                    "memory": proof.memory,
                    "between": proof.between,
                    "verdict": proof.verdict.name(),
                    "lines": proof.places.map(|place| sources.start(place).line),
                    "why": proof.why.resolved(sources, None),
                });
                out.push_str(&format!("{line}\n"));
            }
            let line = serde_json::json!({
                "kernel": named(template, point),
                "target": target.to_string(),
                "left_out": proofs.left_out,
            });
            out.push_str(&format!("{line}\n"));
            continue;
        }
        out.push_str(&format!("{name}\n"));
        for line in proofs.lines(sources) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    out
}

/// The kernel with its bindings: `gemv_bf16 K=7168,M=1,N=3216`.
fn named(template: &KernelTemplate, point: &Bindings) -> String {
    let bindings: Vec<String> =
        point.iter().map(|(name, value)| format!("{name}={value}")).collect();
    [template.name(), &bindings.join(",")].join(" ").trim_end().to_owned()
}

/// The same finding for several targets or bindings is shown once, in order of place.
fn dedup(diagnostics: &mut Vec<Diagnostic>) {
    let mut seen = BTreeSet::new();
    diagnostics.retain(|d| {
        let place = d.primary().map(|l| (l.span, l.message.clone()));
        seen.insert((d.code, place, d.message.clone()))
    });
    diagnostics.sort_by_key(|d| (d.severity != Severity::Error, d.primary().map(|l| l.span)));
}

/// Prints both tables of passes.
fn list(format: Format) -> Answer {
    let ir = PASSES.iter().map(|pass| {
        let codes: Vec<&str> = pass.codes.iter().map(|c| c.name()).collect();
        (pass.name, pass.stage(), codes, pass.proves)
    });
    let audit = kernel_audit::PASSES
        .iter()
        .map(|pass| (pass.name, pass.stage, pass.codes.to_vec(), pass.proves));
    let mut answer = Answer::default();
    for (name, stage, codes, proves) in ir.chain(audit) {
        if format == Format::Json {
            let row = serde_json::json!({ "name": name, "stage": stage, "codes": codes, "proves": proves });
            answer.stdout.push_str(&format!("{row}\n"));
        } else {
            answer.stdout.push_str(&format!("{name:<20} {stage:<7} {}\n", codes.join(" ")));
            answer.stdout.push_str(&format!("    {proves}\n"));
        }
    }
    answer
}
