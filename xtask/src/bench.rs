//! `cargo xtask bench`: the speed of kernelc, release build, against the stated limits, and every set of the K3 kernels
//! for every target: how much they spill and what the audit says.
//!
//! Every measurement is a whole process as a user starts it; what a process costs before its first
//! line of work is measured too and shown, and is taken off where the limit says "after start-up".

use crate::manifest::{Audit, Manifest};
use crate::process::{capture, cargo, run, shown, stdout};
use crate::setup;
use crate::table::Table;
use crate::tools::Tools;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

const KERNELS: &str = "models/kimi_k3/kernels";
/// The kernel that most of a decode step is: one token through the projections of a rank.
const ONE_KERNEL: [&str; 6] = [
    "build",
    "models/kimi_k3/kernels/gemv.tile",
    "--kernel",
    "gemv_bf16",
    "--bind",
    "M=1,N=3216,K=7168",
];
const ALL_KERNELS: [&str; 4] = ["build", KERNELS, "--set", "demo"];
/// Every kernel of a decode step of Kimi K3 on one of 16 ranks.
const WHOLE_STEP: [&str; 4] = ["build", KERNELS, "--set", WHOLE_STEP_SET];
const WHOLE_STEP_SET: &str = "tp16";
/// Measurements that take many seconds each run at most this often.
const LONG_RUNS: usize = 3;
const TARGET: &str = "sm_90a";
const ALL_TARGETS: [&str; 3] = ["sm_90a", "sm_100a", "sm_103a"];
const OUT: &str = "out/bench";
const DEFAULT_RUNS: usize = 11;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    out: Option<PathBuf>,
    runs: usize,
}

/// What `--out` gets.
#[derive(Serialize)]
struct Report {
    date: String,
    machine: String,
    cores: usize,
    commit: String,
    command: String,
    times: Vec<Time>,
    sets: Vec<Set>,
    spill_bytes_limit: u64,
}

/// A set of the K3 kernels, built for all targets.
#[derive(Serialize)]
struct Set {
    name: String,
    targets: [&'static str; 3],
    kernels: usize,
    spill_bytes: u64,
    audits_not_clean: usize,
}

#[derive(Serialize)]
struct Time {
    name: &'static str,
    command: String,
    runs: usize,
    median_ms: f64,
    min_ms: f64,
    max_ms: f64,
    /// Start-up is not part of the limit: this much was taken off the three times above.
    start_up_ms: Option<f64>,
    limit_ms: Option<f64>,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    run(cargo().args(["build", "--release", "--package", "kernelc", "--bin", "kernelc"]))?;
    let bench =
        Bench { kernelc: workspace.program("release", "kernelc"), tools, runs: options.runs };
    let report = bench.run(args)?;
    report.print();
    if let Some(path) = options.out {
        fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
        println!("written: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options { out: None, runs: DEFAULT_RUNS };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let value = args.next().with_context(|| format!("{arg} wants a value"))?;
            match arg.as_str() {
                "--out" => options.out = Some(PathBuf::from(value)),
                "--runs" => {
                    options.runs = value.parse().context("--runs wants a number")?;
                    ensure!(options.runs > 0, "--runs wants at least 1");
                }
                other => bail!("bench does not know `{other}`"),
            }
        }
        Ok(options)
    }
}

#[derive(Clone)]
struct Bench {
    kernelc: PathBuf,
    tools: Tools,
    runs: usize,
}

impl Bench {
    fn run(&self, args: &[String]) -> Result<Report> {
        let largest = largest_kernel_file()?;
        let all = Path::new(OUT).join("all");
        let one = Path::new(OUT).join("one");
        let build_all = into_folder(&ALL_KERNELS, &all);
        let build_one = into_folder(&ONE_KERNEL, &one);

        let start_up = self.time("start-up of kernelc", &["--version".into()], None, || Ok(()))?;
        let mut compile =
            self.time("one kernel for one target", &build_one, Some(1000.0), || remove(&one))?;
        compile.take_off(start_up.median_ms);
        let check = ["check".into(), largest.display().to_string()];
        let check =
            self.time("check of the largest kernel file", &check, Some(100.0), || Ok(()))?;
        let passes = self.passes()?;

        remove(&all)?;
        self.once(&build_all)?;
        let rebuild =
            self.time("unchanged rebuild of all kernels", &build_all, Some(1000.0), || Ok(()))?;
        let manifest = Manifest::read(&all)?;
        let cubin = &manifest.kernels.first().context("the build made no kernel")?.cubin;
        let cubin = all.join(cubin).display().to_string();
        let audit = ["audit".into(), cubin, "--target".into(), TARGET.into()];
        let audit = self.time("audit of one cubin", &audit, Some(500.0), || Ok(()))?;

        let long = Bench { runs: self.runs.min(LONG_RUNS), ..self.clone() };
        let step = Path::new(OUT).join("step");
        let build_step = into_folder(&WHOLE_STEP, &step);
        let all_targets = Path::new(OUT).join("all_targets");
        remove(&all_targets)?;
        self.once(&for_all_targets(WHOLE_STEP_SET, &all_targets))?;
        let build_step =
            long.time("all kernels of a TP16 step, cold", &build_step, Some(30_000.0), || {
                remove(&step)
            })?;
        let bundle = all_targets.join(format!("{WHOLE_STEP_SET}.kbundle")).display().to_string();
        let audit_step = long.time(
            "audit of them all, three targets",
            &["audit".into(), bundle],
            Some(30_000.0),
            || Ok(()),
        )?;

        Ok(Report {
            date: stdout(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().into(),
            machine: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            commit: commit(),
            command: [&["cargo xtask bench".to_owned()], args].concat().join(" "),
            times: vec![start_up, compile, check, passes, rebuild, audit, build_step, audit_step],
            sets: self.sets()?,
            spill_bytes_limit: 0,
        })
    }

    /// Builds every set for every target.
    fn sets(&self) -> Result<Vec<Set>> {
        let path = Path::new(KERNELS).join("build.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let names = set_names(&text);
        ensure!(!names.is_empty(), "{} has no set", path.display());
        let build = |name: &str| {
            let out = Path::new(OUT).join("sets").join(name);
            remove(&out)?;
            self.once(&for_all_targets(name, &out))?;
            let manifest = Manifest::read(&out)?;
            let is_unclean = |built: &&crate::manifest::Built| built.audit != Audit::Clean;
            Ok(Set {
                name: name.to_owned(),
                targets: ALL_TARGETS,
                kernels: manifest.kernels.len(),
                spill_bytes: manifest.spill_bytes(),
                audits_not_clean: manifest.kernels.iter().filter(is_unclean).count(),
            })
        };
        names.into_iter().map(build).collect()
    }

    /// The static passes of the kernel that they take longest for, of all sets and targets.
    fn passes(&self) -> Result<Time> {
        let args = ["check", KERNELS, "--timings", "--format", "json"].map(str::to_owned);
        let slowest = || -> Result<f64> {
            let lines = stdout(&mut self.command(&args))?;
            slowest_kernel(&lines).context("kernelc check --timings names no kernel")
        };
        let mut times = (0..self.runs).map(|_| slowest()).collect::<Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(Time {
            name: "static passes of the slowest kernel of all sets",
            command: shown(&self.command(&args)),
            runs: self.runs,
            median_ms: median(&times),
            min_ms: times[0],
            max_ms: times[times.len() - 1],
            start_up_ms: None,
            limit_ms: Some(200.0),
        })
    }

    fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.kernelc);
        command.args(args).envs(self.tools.variables());
        command
    }

    fn once(&self, args: &[String]) -> Result<Duration> {
        let mut command = self.command(args);
        let start = Instant::now();
        let output = capture(&mut command)?;
        let time = start.elapsed();
        // An audit that finds something did its work: that is exit code 1.
        let worked = match output.status.code() {
            Some(0) => true,
            Some(1) => args[0] == "audit",
            Some(_) | None => false,
        };
        if !worked {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("`{}` failed: {}\n{}", shown(&command), output.status, said.trim_end());
        }
        Ok(time)
    }

    /// One run that does not count, to warm the file cache, then the measured ones.
    fn time(
        &self,
        name: &'static str,
        args: &[String],
        limit_ms: Option<f64>,
        before: impl Fn() -> Result<()>,
    ) -> Result<Time> {
        let mut times = Vec::new();
        for index in 0..=self.runs {
            before()?;
            let time = self.once(args)?;
            if index > 0 {
                times.push(time.as_secs_f64() * 1000.0);
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Time {
            name,
            command: shown(&self.command(args)),
            runs: self.runs,
            median_ms: median(&times),
            min_ms: times[0],
            max_ms: times[times.len() - 1],
            start_up_ms: None,
            limit_ms,
        })
    }
}

impl Time {
    fn take_off(&mut self, start_up_ms: f64) {
        for time in [&mut self.median_ms, &mut self.min_ms, &mut self.max_ms] {
            *time = (*time - start_up_ms).max(0.0);
        }
        self.start_up_ms = Some(start_up_ms);
    }
}

impl Report {
    fn print(&self) {
        println!("\n{}, {}, {} cores, commit {}", self.date, self.machine, self.cores, self.commit);
        println!("medians, with the fastest and the slowest run\n");
        let mut table =
            Table::new(&["measured", "runs", "median", "fastest", "slowest", "limit", "verdict"]);
        for time in &self.times {
            table.row(vec![
                time.name.to_owned(),
                time.runs.to_string(),
                format!("{:.1} ms", time.median_ms),
                format!("{:.1} ms", time.min_ms),
                format!("{:.1} ms", time.max_ms),
                time.limit_ms.map_or_else(String::new, |limit| format!("{limit:.0} ms")),
                time.limit_ms.map_or("", |limit| verdict(time.median_ms < limit)).to_owned(),
            ]);
        }
        table.print();
        println!();
        let mut table = Table::new(&[
            "set, three targets",
            "kernels",
            "spilled bytes",
            "audits not clean",
            "verdict",
        ]);
        for set in &self.sets {
            let is_met = set.spill_bytes <= self.spill_bytes_limit && set.audits_not_clean == 0;
            table.row(vec![
                set.name.clone(),
                set.kernels.to_string(),
                set.spill_bytes.to_string(),
                set.audits_not_clean.to_string(),
                verdict(is_met).to_owned(),
            ]);
        }
        table.print();
        println!();
    }
}

/// The arguments of a build for the one target into `out`.
fn into_folder(build: &[&str], out: &Path) -> Vec<String> {
    let mut args: Vec<String> = build.iter().map(|arg| (*arg).to_owned()).collect();
    args.extend(["--target", TARGET, "--out"].map(str::to_owned));
    args.push(out.display().to_string());
    args
}

/// The arguments of a build of a set for all targets into `out`.
fn for_all_targets(set: &str, out: &Path) -> Vec<String> {
    let mut args = ["build", KERNELS, "--set", set].map(str::to_owned).to_vec();
    args.extend(ALL_TARGETS.iter().flat_map(|target| ["--target".into(), (*target).into()]));
    args.extend(["--out".to_owned(), out.display().to_string()]);
    args
}

/// The most milliseconds that a line of `kernelc check --timings` says.
fn slowest_kernel(lines: &str) -> Option<f64> {
    let values = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    values.filter_map(|value| value.get("ms")?.as_f64()).max_by(f64::total_cmp)
}

/// The sets of a `build.toml`: its keys that hold lists.
fn set_names(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_suffix(" = [")).collect()
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// Of sorted numbers, at least one.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn largest_kernel_file() -> Result<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(KERNELS).with_context(|| format!("reading {KERNELS}"))? {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "tile") {
            files.push((entry.metadata()?.len(), path));
        }
    }
    let (_, path) = files.into_iter().max().with_context(|| format!("{KERNELS} has no .tile"))?;
    Ok(path)
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        result => result.with_context(|| format!("removing {}", folder.display())),
    }
}

pub(crate) fn cpu_model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "model name")
        .map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned())
}

/// The short hash, with a mark when the work tree differs from it.
pub(crate) fn commit() -> String {
    stdout(Command::new("git").args(["describe", "--always", "--dirty", "--exclude", "*"]))
        .map_or_else(|_| "unknown".to_owned(), |hash| hash.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert!((median(&[1.0, 2.0, 9.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(&[1.0, 2.0, 4.0, 9.0]) - 3.0).abs() < f64::EPSILON);
    }

    #[test]
    fn the_slowest_kernel_is_the_one_with_the_most_milliseconds() {
        let lines = "{\"code\":\"E0107\"}\n{\"ms\":12.5}\n{\"ms\":3.0}\n";
        assert_eq!(slowest_kernel(lines), Some(12.5));
        assert_eq!(slowest_kernel("a.tile: 1 kernels\n"), None);
    }

    #[test]
    fn the_sets_of_a_build_are_found() {
        let text = "[set]\na = [\n    { kernel = \"k\", bind = { N = 1 } },\n]\nb2 = [\n]\n";
        assert_eq!(set_names(text), ["a", "b2"]);
    }

    #[test]
    fn the_cpu_is_named_by_its_model() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: Fast CPU @ 2\n"), "Fast CPU @ 2");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn options_are_checked() {
        let parse = |words: &[&str]| {
            Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let options = parse(&["--runs", "3", "--out", "a.json"]).unwrap();
        assert_eq!(options, Options { out: Some("a.json".into()), runs: 3 });
        assert!(parse(&["--runs", "0"]).is_err());
        assert!(parse(&["--out"]).is_err());
        assert!(parse(&["--fast", "1"]).is_err());
    }
}
