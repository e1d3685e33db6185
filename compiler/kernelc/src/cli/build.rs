//! `kernelc build PATH`: PTX, cubins, a bundle of them, a manifest and audit reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use kernel_abi::bundle::{Artefact, Bundle, Policy, encode};
use kernel_abi::trace;
use kernel_dsl::diag::Diagnostic;
use kernel_ir::device::DeviceKernel;
use kernel_ir::pipeline::{self, Built, Front};
use kernel_ir::sema::{Bindings, ConstValue, KernelTemplate};
use kernel_ir::target::Target;

use super::{Answer, Cli, Format, exit};
use crate::back_end::{self, Machine, Product};
use crate::build_file::Entry;
use crate::bundle;
use crate::files;
use crate::output;
use crate::package::{
    KernelEntry, MANIFEST_FORMAT, Manifest, Staged, Stamps, manifest_entry, read_json, sha256,
};
use crate::session::{self, Refusal, Session, build_file, entry_bindings, tile_files};

/// Arguments of `build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// A file, or a folder of files with a build.toml.
    pub path: PathBuf,
    /// Targets; otherwise those that each file states.
    #[arg(long, value_name = "TARGET", value_parser = super::parse_target)]
    pub target: Vec<Target>,
    /// The set of build.toml to build.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kernel", "bind"])]
    pub set: Option<String>,
    /// Build this kernel only.
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Values of const parameters: `--bind M=1,K=7168`.
    #[arg(long, value_name = "NAME=VALUE", value_delimiter = ',')]
    pub bind: Vec<String>,
    /// Build every combination of `tune` values; a combination that fails a `where` clause or spills is listed
    /// and left out.
    #[arg(long)]
    pub all_tunings: bool,
    /// Kernels write their events down: `trace "text";`, at most 64 of each CTA and role or as many as are asked for.
    #[arg(
        long,
        value_name = "RECORDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(trace::MAX_RECORDS))
    )]
    pub trace: Option<u32>,
    /// Folder for the results.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Worker processes; otherwise one for each core.
    #[arg(long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Build again what is unchanged.
    #[arg(long)]
    pub force: bool,
}

/// One artefact to make.
struct Point<'f> {
    name: String,
    set: Option<String>,
    /// The file of the kernel.
    file: String,
    template: &'f KernelTemplate,
    bindings: Bindings,
    target: Target,
    /// Hash of all that it depends on.
    stamp: String,
    /// A tuning point may be impossible.
    optional: bool,
}

impl Point<'_> {
    fn stem(&self) -> String {
        format!("{}.{}", self.name, self.target)
    }
}

/// Builds.
pub fn run(cli: &Cli, args: &BuildArgs) -> Answer {
    build(cli, args).unwrap_or_else(|refusal| *refusal)
}

fn build(cli: &Cli, args: &BuildArgs) -> Result<Answer, Refusal> {
    let mut session = Session::new();
    let mut fronts = Vec::new();
    for file in files(cli.format, args)? {
        fronts.push(session.open(cli.format, &file.to_string_lossy())?);
    }
    let machine = Machine::find(cli)?;
    let points = points(cli.format, args, &session, &fronts, &machine)?;

    let old: Manifest = read_json(&args.out.join("manifest.json")).unwrap_or_default();
    let old_stamps: Stamps = read_json(&args.out.join(STAMPS)).unwrap_or_default();
    let file = args.out.join(bundle::file_name(args.set.as_deref(), &args.path));
    let old_bundle = Bundle::open(&file, Policy { allow_unaudited: true }).ok();
    let kept: BTreeMap<String, (KernelEntry, Artefact)> = points
        .iter()
        .filter(|_| !args.force && old.format == MANIFEST_FORMAT)
        .filter(|point| old_stamps.get(&point.stem()) == Some(&point.stamp))
        .filter_map(|point| {
            let same = |e: &&KernelEntry| e.name == point.name && e.target == point.target.name();
            let entry = old.kernels.iter().find(same)?;
            let bundled = old_bundle.as_ref()?.artefact(&point.name, point.target.name())?;
            let is_same = sha256(bundled.cubin()) == entry.cubin_sha256;
            let kept = || (point.stem(), (entry.clone(), bundle::copy(bundled)));
            (is_same && intact(&args.out, entry)).then(kept)
        })
        .collect();

    let mut made: Vec<(&Point<'_>, Built)> = Vec::new();
    let mut found: Vec<Diagnostic> = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    for point in points.iter().filter(|p| !kept.contains_key(&p.stem())) {
        match pipeline::build(point.template, &point.bindings, point.target) {
            Ok(built) => {
                found.extend(built.diagnostics.iter().cloned());
                made.push((point, built));
            }
            Err(diagnostics) if point.optional => {
                let why = diagnostics.first().map_or("", |d| d.code.name());
                left_out.push(format!("{}: left out, {why}", point.stem()));
            }
            Err(diagnostics) => found.extend(diagnostics),
        }
    }
    let mut answer = output::diagnostics(cli.format, &session.sources, &found);
    if answer.code != exit::OK {
        return Ok(answer);
    }

    let devices: Vec<&DeviceKernel> = made.iter().map(|(_, built)| &*built.device).collect();
    let products = back_end::compile_all(cli, &machine, &session.sources, args.jobs, &devices)?;
    let mut staged = Staged::default();
    let mut manifest = machine.manifest();
    manifest.kernels = kept.values().map(|(entry, _)| entry.clone()).collect();
    let mut artefacts: Vec<Artefact> = kept.values().map(|(_, bundled)| bundled.clone()).collect();
    let mut stamps: Stamps = Stamps::new();
    for point in points.iter().filter(|p| kept.contains_key(&p.stem())) {
        stamps.insert(point.stem(), point.stamp.clone());
    }
    for ((point, built), product) in made.iter().zip(products) {
        if point.optional && product.spill_bytes() > 0 {
            left_out.push(format!("{}: left out, spills", point.stem()));
            continue;
        }
        let (entry, artefact) = stage(&mut staged, args, &session, point, built, &product);
        manifest.kernels.push(entry);
        artefacts.push(artefact);
        stamps.insert(point.stem(), point.stamp.clone());
    }
    manifest.kernels.sort_by(|a, b| (&a.name, &a.target).cmp(&(&b.name, &b.target)));
    let bytes = encode(&bundle::maker(&manifest), &artefacts)
        .map_err(|error| bundle::refusal(cli.format, &error))?;
    manifest.bundle = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    manifest.bundle_sha256 = sha256(&bytes);
    let size = bytes.len();
    staged.add(file.clone(), bytes);
    staged.add(args.out.join(STAMPS), json(&stamps));
    staged.add(args.out.join("manifest.json"), json(&manifest));
    staged.commit(cli.format)?;

    let findings = manifest.kernels.iter().any(|k| k.audit == "findings");
    let unjudged = manifest.kernels.iter().any(|k| k.audit == "not-judged");
    answer.code = match (findings, unjudged) {
        (true, _) => exit::FINDINGS,
        (false, true) => exit::NOT_JUDGED,
        (false, false) => exit::OK,
    };
    match cli.format {
        Format::Json => answer.stdout.push_str(&(serde_json::json!(manifest).to_string() + "\n")),
        Format::Text | Format::Sarif => {
            answer.stdout.push_str(&table(&manifest, &kept));
            for line in left_out {
                answer.stdout.push_str(&format!("{line}\n"));
            }
            answer.stdout.push_str(&format!("{}: {size} bytes\n", file.display()));
        }
    }
    Ok(answer)
}

/// The file of stamps. It holds what is true of this machine, so it is no part of the manifest.
const STAMPS: &str = ".stamps.json";

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value).expect("our own types have string keys only");
    text.push(b'\n');
    text
}

/// The files that hold what is to be built: those that the entries of the set name, and where an entry names none
/// all of the folder.
fn files(format: Format, args: &BuildArgs) -> Result<Vec<PathBuf>, Refusal> {
    let Some(set) = &args.set else { return tile_files(format, &args.path) };
    let file = build_file(format, &args.path)?;
    let entries = file.set.get(set).map(Vec::as_slice).unwrap_or_default();
    let mut files: Vec<PathBuf> =
        entries.iter().filter_map(|entry| Some(args.path.join(entry.file.as_ref()?))).collect();
    if files.is_empty() || entries.iter().any(|entry| entry.file.is_none()) {
        files.extend(tile_files(format, &args.path)?);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// All that is to be built.
fn points<'f>(
    format: Format,
    args: &BuildArgs,
    session: &Session,
    fronts: &'f [Front],
    machine: &Machine,
) -> Result<Vec<Point<'f>>, Refusal> {
    let wrong = |message: String| session::usage(format, &message);
    let find = |name: &str| {
        fronts.iter().find_map(|front| front.template(name).map(|t| (front, t))).ok_or_else(|| {
            let known: Vec<&str> =
                fronts.iter().flat_map(|f| f.templates.iter().map(KernelTemplate::name)).collect();
            wrong(format!("no kernel `{name}`; there are {}", known.join(", ")))
        })
    };
    let find_in = |file: &Path, name: &str| {
        let is_it = |front: &&'f Front| Path::new(session.sources.name(front.root)) == file;
        let front = fronts.iter().find(is_it);
        front
            .and_then(|front| Some((front, front.template(name)?)))
            .ok_or_else(|| wrong(format!("`{}` has no kernel `{name}`", file.display())))
    };
    let mut points = Vec::new();
    let mut add =
        |front: &'f Front, template: &'f KernelTemplate, entry: &Entry, set: Option<&String>| {
            let name = entry.artefact().map_err(&wrong)?.to_owned();
            let mut targets = template.targets();
            if let Some(only) = &entry.targets {
                for target in only {
                    super::parse_target(target).map_err(&wrong)?;
                }
                targets.retain(|t| only.iter().any(|name| name == t.name()));
            }
            if !args.target.is_empty() {
                if let Some(lacking) = args.target.iter().find(|t| !template.targets().contains(t))
                {
                    return Err(wrong(format!(
                        "kernel `{}` does not state target {lacking}",
                        template.name()
                    )));
                }
                targets.retain(|t| args.target.contains(t));
            }
            let base = entry_bindings(entry);
            let mut variants = vec![(name.clone(), base.clone(), false)];
            if args.all_tunings {
                variants.extend(session::tune_points(template, &base).into_iter().map(|tuned| {
                    let suffix: String = template
                        .tunings()
                        .iter()
                        .filter_map(|t| tuned.get(&t.name).map(|v| format!("-{}{v}", t.name)))
                        .collect();
                    (format!("{name}{suffix}"), tuned, true)
                }));
            }
            for (name, bindings, optional) in variants {
                let bindings = match args.trace {
                    Some(records) => bindings.traced(records),
                    None => bindings,
                };
                for &target in &targets {
                    let stamp = stamp(session, front, template, &bindings, target, machine);
                    let set = set.cloned();
                    points.push(Point {
                        name: name.clone(),
                        set,
                        file: session.sources.name(front.root).to_owned(),
                        template,
                        bindings: bindings.clone(),
                        target,
                        stamp,
                        optional,
                    });
                }
            }
            Ok(())
        };
    match (&args.set, &args.kernel) {
        (Some(set), _) => {
            let file = build_file(format, &args.path)?;
            let entries = file.set.get(set).ok_or_else(|| {
                let known: Vec<&str> = file.set.keys().map(String::as_str).collect();
                wrong(format!("no set `{set}` in build.toml; there are {}", known.join(", ")))
            })?;
            for entry in entries {
                let (front, template) = match &entry.file {
                    None => find(&entry.kernel)?,
                    Some(file) => find_in(&args.path.join(file), &entry.kernel)?,
                };
                add(front, template, entry, Some(set))?;
            }
        }
        (None, Some(kernel)) => {
            let (front, template) = find(kernel)?;
            let bind = session::parse_bindings(&args.bind).map_err(wrong)?;
            add(front, template, &entry_of(kernel, &bind), None)?;
        }
        (None, None) if !args.bind.is_empty() => {
            let all: Vec<(&Front, &KernelTemplate)> =
                fronts.iter().flat_map(|f| f.templates.iter().map(move |t| (f, t))).collect();
            let [(front, template)] = all.as_slice() else {
                return Err(wrong(format!(
                    "--bind is for one kernel and there are {}: name it with --kernel",
                    all.len()
                )));
            };
            let bind = session::parse_bindings(&args.bind).map_err(wrong)?;
            add(front, template, &entry_of(template.name(), &bind), None)?;
        }
        (None, None) => {
            for front in fronts {
                for template in &front.templates {
                    if let Some(open) = template.const_params().iter().find(|p| !p.has_default) {
                        return Err(wrong(format!(
                            "kernel `{}` needs a value for `{}`: name a set with --set, or --kernel and --bind",
                            template.name(),
                            open.name
                        )));
                    }
                    add(front, template, &entry_of(template.name(), &Bindings::new()), None)?;
                }
            }
        }
    }
    let mut names: Vec<String> = points.iter().map(Point::stem).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(wrong(format!(
            "two artefacts are called `{}`; give one another `name`",
            twice[0]
        )));
    }
    Ok(points)
}

fn entry_of(kernel: &str, bindings: &Bindings) -> Entry {
    use crate::build_file::BindValue;
    let bind = bindings
        .iter()
        .filter_map(|(name, value)| match value {
            ConstValue::Int(i) => Some((name.to_owned(), BindValue::Int(i))),
            ConstValue::Bool(b) => Some((name.to_owned(), BindValue::Bool(b))),
            ConstValue::Float(_) => None,
        })
        .collect();
    Entry { kernel: kernel.to_owned(), name: None, bind, targets: None, file: None }
}

/// Hash of the texts, the bindings, the target and the tools.
fn stamp(
    session: &Session,
    front: &Front,
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
    machine: &Machine,
) -> String {
    let mut text = format!("{}\n{target}\n{}\n", machine.identity(), template.name());
    for (name, value) in bindings.iter() {
        text.push_str(&format!("{name}={value}\n"));
    }
    if let Some(records) = bindings.records() {
        text.push_str(&format!("trace {records}\n"));
    }
    for file in front.program.files() {
        text.push_str(session.sources.name(file));
        text.push('\0');
        text.push_str(session.sources.text(file));
        text.push('\0');
    }
    sha256(text.as_bytes())
}

/// True where both files of an entry are there with their hashes.
fn intact(out: &Path, entry: &KernelEntry) -> bool {
    let same = |file: &str, hash: &str| {
        files::read(&out.join(file), files::MAX_AUDITED).is_ok_and(|bytes| sha256(&bytes) == hash)
    };
    same(&entry.ptx, &entry.ptx_sha256) && same(&entry.cubin, &entry.cubin_sha256)
}

fn stage(
    staged: &mut Staged,
    args: &BuildArgs,
    session: &Session,
    point: &Point<'_>,
    built: &Built,
    product: &Product,
) -> (KernelEntry, Artefact) {
    let stem = point.stem();
    let entry =
        manifest_entry(&session.sources, &point.name, point.set.clone(), &stem, built, product);
    staged.add(args.out.join(&entry.ptx), product.ptx.clone());
    staged.add(args.out.join(&entry.cubin), product.cubin.clone());
    staged.add(args.out.join(&entry.ops), json(&product.operations));
    staged.add(args.out.join(format!("{stem}.audit.json")), product.report.to_json() + "\n");
    let artefact = bundle::artefact(
        &session.sources,
        &point.name,
        &point.file,
        point.template,
        &point.bindings,
        built,
        product,
    );
    (entry, artefact)
}

/// Kernels and targets with what they need and what the audit says.
fn table(manifest: &Manifest, kept: &BTreeMap<String, (KernelEntry, Artefact)>) -> String {
    let width = manifest.kernels.iter().map(|k| k.name.len()).max().unwrap_or(0).max(6);
    let mut text = format!("{:width$}  target   registers  spilled  shared  audit\n", "kernel");
    for k in &manifest.kernels {
        let unchanged = if kept.contains_key(&format!("{}.{}", k.name, k.target)) {
            " (unchanged)"
        } else {
            ""
        };
        text.push_str(&format!(
            "{:width$}  {:<7}  {:>9}  {:>7}  {:>6}  {}{unchanged}\n",
            k.name, k.target, k.registers, k.spill_bytes, k.shared_bytes, k.audit
        ));
        for waived in &k.waived {
            text.push_str(&format!("{:width$}  {waived}\n", ""));
        }
    }
    text
}
