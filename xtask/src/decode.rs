//! `cargo xtask decode`: how fast and how well kimi-k3-mini decodes on the emulator, release build. Ends with exit
//! code 1 where a limit is missed.

use crate::bench::{commit, cpu_model};
use crate::process::{capture, cargo, run, shown, stdout};
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const MODEL: &str = "models/kimi_k3/mini";
const PROMPT: &str = "1 In the beginning";
const NEW_TOKENS: &str = "128";

/// Names the folder that tests of the goldens write a report into.
const REPORT: &str = "KERNEL_TEST_REPORT";

/// The evaluation sets, and the share of reference ids that the model's makers saw again in bf16 (README of
/// kimi-k3-mini: 193 of 200, 389 of 400, 1729 of 1730).
const SETS: [(&str, f64); 3] =
    [("recall", 193.0 / 200.0), ("ith", 389.0 / 400.0), ("arith", 1729.0 / 1730.0)];

/// The prompts with goldens.
const PROMPTS: [&str; 4] = ["text", "code", "recall", "json"];

const DEFAULT_RUNS: usize = 5;

/// Limits of the speed: tokens a second, seconds of loading, bytes of memory.
const LIMITS: [(&str, f64, bool); 3] = [
    ("tokens_per_second", 10.0, true),
    ("loading_seconds", 0.5, false),
    ("peak_memory_bytes", 1_073_741_824.0, false),
];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    out: Option<PathBuf>,
    runs: usize,
    /// Tasks of each set; all without.
    limit: Option<usize>,
    jobs: usize,
    /// The sets that are scored.
    sets: Vec<String>,
}

/// What `--out` gets.
#[derive(Serialize)]
struct Report {
    date: String,
    machine: String,
    cores: usize,
    commit: String,
    command: String,
    speed: Vec<Measured>,
    /// The greedy choices with the reference ids fed in.
    goldens: Vec<Golden>,
    sets: Vec<Set>,
}

/// What the test of a prompt's goldens reports.
#[derive(Serialize)]
struct Golden {
    prompt: &'static str,
    command: String,
    /// Choices that agree, their number, and place and margin of each that does not.
    greedy: Value,
}

#[derive(Serialize)]
struct Measured {
    name: &'static str,
    command: String,
    median: f64,
    min: f64,
    max: f64,
    limit: f64,
    met: bool,
}

#[derive(Serialize)]
struct Set {
    name: String,
    command: String,
    /// What `kimi-k3 eval --json` printed.
    score: Value,
    /// Share of the reference ids that agree.
    agreement: f64,
    limit: f64,
    met: bool,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    run(cargo().args(["build", "--release", "--package", "kimi-k3", "--bin", "kimi-k3"]))?;
    let program = workspace.program("release", "kimi-k3");
    let report = Report {
        date: stdout(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?.trim().into(),
        machine: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        commit: commit(),
        command: [&["cargo xtask decode".to_owned()], args].concat().join(" "),
        speed: speed(&program, options.runs)?,
        goldens: goldens()?,
        sets: options
            .sets
            .iter()
            .map(|set| score(&program, set, &options))
            .collect::<Result<_>>()?,
    };
    report.print();
    if let Some(path) = options.out {
        fs::write(&path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| format!("writing {}", path.display()))?;
        println!("written: {}", path.display());
    }
    let met = report.speed.iter().all(|m| m.met) && report.sets.iter().all(|set| set.met);
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options = Options {
            out: None,
            runs: DEFAULT_RUNS,
            limit: None,
            jobs: 2,
            sets: SETS.map(|(name, _)| name.to_owned()).into(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let value = args.next().with_context(|| format!("{arg} wants a value"))?;
            let number = || -> Result<usize> {
                let number = value.parse().with_context(|| format!("{arg} wants a number"))?;
                ensure!(number > 0, "{arg} wants at least 1");
                Ok(number)
            };
            match arg.as_str() {
                "--out" => options.out = Some(PathBuf::from(value)),
                "--runs" => options.runs = number()?,
                "--limit" => options.limit = Some(number()?),
                "--jobs" => options.jobs = number()?,
                "--sets" => {
                    options.sets = value.split(',').map(str::to_owned).collect();
                    for set in &options.sets {
                        limit(set)?;
                    }
                }
                other => bail!("decode does not know `{other}`"),
            }
        }
        Ok(options)
    }
}

/// The share of reference ids that a set must reach.
fn limit(set: &str) -> Result<f64> {
    let known = SETS.iter().find(|(name, _)| *name == set);
    known.map(|(_, limit)| *limit).with_context(|| format!("there is no set `{set}`"))
}

/// Runs the tests of the goldens, each of which must hold, and takes their reports.
fn goldens() -> Result<Vec<Golden>> {
    let folder = PathBuf::from("target/goldens");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let mut command = cargo();
    command.args(["test", "--package", "kernel_tests", "--test", "decode", "goldens"]);
    run(command.env(REPORT, &folder))?;
    let report = |prompt: &'static str| {
        let path = folder.join(format!("{prompt}.json"));
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let greedy = serde_json::from_str(&text).context("the report of a golden")?;
        Ok(Golden { prompt, command: shown(&command), greedy })
    };
    PROMPTS.into_iter().map(report).collect()
}

/// One JSON object of the program.
fn answer(command: &mut Command) -> Result<Value> {
    let output = capture(command)?;
    ensure!(
        output.status.success(),
        "`{}` failed: {}\n{}",
        shown(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    serde_json::from_slice(&output.stdout).context("kimi-k3 printed no JSON")
}

fn speed(program: &PathBuf, runs: usize) -> Result<Vec<Measured>> {
    let mut command = Command::new(program);
    command.args(["generate", "--model", MODEL, "--prompt", PROMPT]);
    command.args(["--max-new-tokens", NEW_TOKENS, "--json"]);
    let answers = (0..runs).map(|_| answer(&mut command)).collect::<Result<Vec<Value>>>()?;
    let measured = |(name, limit, at_least): (&'static str, f64, bool)| {
        let mut values = answers
            .iter()
            .map(|answer| answer[name].as_f64().with_context(|| format!("no `{name}`")))
            .collect::<Result<Vec<f64>>>()?;
        values.sort_by(f64::total_cmp);
        let median = values[values.len() / 2];
        let met = if at_least { median >= limit } else { median < limit };
        let (min, max) = (values[0], values[values.len() - 1]);
        Ok(Measured { name, command: shown(&command), median, min, max, limit, met })
    };
    LIMITS.into_iter().map(measured).collect()
}

fn score(program: &PathBuf, set: &str, options: &Options) -> Result<Set> {
    println!("scoring {set}");
    let mut command = Command::new(program);
    command.args(["eval", "--model", MODEL, "--json", "--tasks"]);
    command.arg(format!("{MODEL}/eval/{set}.jsonl"));
    command.args(["--jobs", &options.jobs.to_string()]);
    if let Some(limit) = options.limit {
        command.args(["--limit", &limit.to_string()]);
    }
    let score = answer(&mut command)?;
    let count = |name: &str| score[name].as_f64().with_context(|| format!("no `{name}`"));
    let agreement = count("agreeing_tokens")? / count("reference_tokens")?;
    let limit = limit(set)?;
    let command = shown(&command);
    let met = agreement >= limit;
    Ok(Set { name: set.to_owned(), command, score, agreement, limit, met })
}

impl Report {
    fn print(&self) {
        println!(
            "\n{}, {}, {} cores, commit {}\n",
            self.date, self.machine, self.cores, self.commit
        );
        let mut table =
            Table::new(&["measured", "median", "least", "greatest", "limit", "verdict"]);
        for m in &self.speed {
            let number = |value: f64| format!("{value:.3}");
            let verdict = if m.met { "met" } else { "missed" };
            let (median, min, max) = (number(m.median), number(m.min), number(m.max));
            table.row(vec![m.name.into(), median, min, max, number(m.limit), verdict.into()]);
        }
        table.print();
        println!();
        let mut table = Table::new(&["prompt", "agreeing", "of", "differing"]);
        for golden in &self.goldens {
            let field = |name: &str| golden.greedy[name].to_string();
            table.row(vec![
                golden.prompt.into(),
                field("agreeing"),
                field("of"),
                field("differing"),
            ]);
        }
        table.print();
        println!();
        let mut table = Table::new(&[
            "set",
            "tasks",
            "correct",
            "reference",
            "agreeing",
            "of",
            "at least",
            "verdict",
        ]);
        for set in &self.sets {
            let mut row = vec![set.name.clone()];
            for field in
                ["tasks", "correct", "reference_correct", "agreeing_tokens", "reference_tokens"]
            {
                row.push(set.score[field].to_string());
            }
            row.push(format!("{:.4}", set.limit));
            row.push(if set.met { "met" } else { "missed" }.into());
            table.row(row);
        }
        table.print();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let parse = |words: &[&str]| {
            Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let options = parse(&["--limit", "25", "--sets", "ith,arith", "--jobs", "1"]).unwrap();
        assert_eq!((options.limit, options.jobs, options.sets.len()), (Some(25), 1, 2));
        assert!(parse(&["--sets", "all"]).is_err());
        assert!(parse(&["--limit", "0"]).is_err());
        assert!(parse(&["--jobs"]).is_err());
    }
}
