//! `gpu-tests run` under compute-sanitizer: one process a tool and a part of the cases, several at a time.
//!
//! The cases run without guards around their buffers, so that the tool sees what is read beyond one.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::report::Report;

/// The tools of compute-sanitizer.
pub(crate) const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];
/// Parts of the cases, by what stands in their names.
const PARTS: [&str; 3] = ["ops/", "run/", "kimi_k3/"];
/// Not a part of the cases: a kernel in which the tool must find something.
const CONTROL: &str = "control";
/// How long a process may take.
const LIMIT: Duration = Duration::from_secs(480);
/// How long a launch may take under a tool.
const LAUNCH_SECONDS: &str = "240";
/// Lines of findings that are kept.
const KEPT: usize = 60;

/// Runs every tool on every part and on a kernel with a flaw, says how each ended, and writes the report; 1 where
/// anything was found in a part or nothing in the flaw.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, String> {
    let bundle = all.bundle.as_ref().ok_or("--bundle is missing")?;
    let out = all.out.as_ref().ok_or("--out is missing")?;
    let report = Report::create(all.report.as_deref())?;
    std::fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let version = version(&all.sanitizer)?;
    let seed = all.seed.unwrap_or_else(crate::fresh_seed);
    say(&format!("{version}, seed {seed}\n"));
    let tools =
        TOOLS.iter().filter(|tool| all.rest.is_empty() || all.rest.iter().any(|t| t == *tool));
    let mut jobs: Vec<Job> = tools
        .flat_map(|tool| PARTS.iter().chain([&CONTROL]).map(|part| Job { tool, part }))
        .collect();
    jobs.reverse();
    let started = jobs.len();
    let (left, rows) = (Mutex::new(&mut jobs), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let job = left.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(job) = job else { return };
            let row = job.run(all, bundle, out, seed);
            say(&format!("{} {}: {}\n", job.tool, job.part, row["verdict"].as_str().unwrap_or("")));
            rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..all.jobs.clamp(1, started.max(1)) {
            scope.spawn(work);
        }
    });
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    rows.sort_by_key(|row| (row["tool"].to_string(), row["part"].to_string()));
    let is_good =
        |row: &Value| row["verdict"] == if row["part"] == CONTROL { FOUND } else { CLEAN };
    let is_clean = rows.iter().all(is_good);
    report
        .finish(&json!({ "sanitizer": version, "seed": seed, "clean": is_clean, "runs": rows }))?;
    Ok(u8::from(!is_clean))
}

/// The line with which the sanitizer names its version.
fn version(sanitizer: &Path) -> Result<String, String> {
    let output = Command::new(sanitizer)
        .arg("--version")
        .output()
        .map_err(|error| format!("{}: {error}", sanitizer.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("ersion"));
    Ok(line.or(text.lines().next()).unwrap_or("a sanitizer without a version").trim().to_owned())
}

const CLEAN: &str = "clean";
const FOUND: &str = "the flaw was found";

/// The runtime asks for the parameters of a kernel one by one until the driver says that there are no more; drivers
/// before 13.2 have no other way. memcheck reports the answer, and nothing else that it may report is expected.
const EXPECTED: &str = "CUDA_ERROR_INVALID_VALUE (error 1) due to \"invalid argument\" on CUDA API call to cuFuncGetParamInfo.";

/// One process.
struct Job {
    tool: &'static str,
    part: &'static str,
}

impl Job {
    fn run(&self, all: &Arguments, bundle: &Path, out: &Path, seed: u64) -> Value {
        let log = out.join(format!("{}_{}.log", self.tool, self.part.trim_end_matches('/')));
        let start = Instant::now();
        let ended = self.process(all, bundle, seed, &log);
        let text = std::fs::read(&log).unwrap_or_default();
        let found = Found::of(&String::from_utf8_lossy(&text));
        let seconds = start.elapsed().as_secs();
        found.row(self, ended, seconds)
    }

    /// Runs to the end, or to the limit.
    fn process(
        &self,
        all: &Arguments,
        bundle: &Path,
        seed: u64,
        log: &PathBuf,
    ) -> Result<i32, String> {
        let show = |error: std::io::Error| error.to_string();
        let file = File::create(log).map_err(show)?;
        let mut command = Command::new(&all.sanitizer);
        command
            .args(["--tool", self.tool, "--show-backtrace", "device", "--error-exitcode", "86"])
            .args(["--print-limit", "100000"])
            .arg(std::env::current_exe().map_err(show)?);
        if self.part == CONTROL {
            command.args(["flaw", self.tool]);
        } else {
            command
                .args(["run", "--bare", "--limit", LAUNCH_SECONDS, "--seed", &seed.to_string()])
                .arg("--bundle")
                .arg(bundle);
            if let Some(suite) = &all.suite {
                command.arg("--suite").arg(suite);
            }
            if all.allow_unaudited {
                command.arg("--allow-unaudited");
            }
            command.arg(self.part);
        }
        command
            .args(["--device", &all.device.to_string()])
            .env("KERNEL_GPU", "1")
            .stdout(file.try_clone().map_err(show)?)
            .stderr(file)
            .stdin(Stdio::null())
            .process_group(0);
        let mut child = command.spawn().map_err(show)?;
        let end = Instant::now() + all.limit.unwrap_or(LIMIT);
        loop {
            if let Some(status) = child.try_wait().map_err(show)? {
                return Ok(status.code().unwrap_or(-1));
            }
            if Instant::now() > end {
                // The group: the sanitizer has a child of its own.
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                child.wait().map_err(show)?;
                return Err("it ran past its limit".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What a log says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// The line with the sum, and the number in front of "error" or "hazard".
    summary: Option<(String, u64)>,
    /// Findings of memcheck that are no mistakes: see [`EXPECTED`].
    expected: u64,
    /// Lines of the tool besides.
    lines: Vec<String>,
    passed: u64,
    /// `test result:` of the harness.
    result: Option<String>,
}

impl Found {
    fn of(log: &str) -> Found {
        let mut found = Found::default();
        for line in log.lines() {
            // The harness writes without an end of line while the tool writes too.
            if line.contains("... ok") || line.starts_with("ok") {
                found.passed += 1;
            }
            if line.starts_with("test result:") {
                found.result = Some(line.to_owned());
            }
            let Some((_, text)) = line.split_once("=========") else { continue };
            let text = text.trim();
            let is_host_frame =
                text.starts_with("Host Frame:") || text.starts_with("Saved host backtrace");
            if let Some((_, sum)) = text.split_once("SUMMARY: ") {
                let number = sum.split_whitespace().next().and_then(|word| word.parse().ok());
                found.summary = Some((text.to_owned(), number.unwrap_or(u64::MAX)));
            } else if text.ends_with(EXPECTED) {
                found.expected += 1;
            } else if is_host_frame {
                // Places in the program that the sanitizer runs.
            } else if !text.is_empty() && text != "COMPUTE-SANITIZER" && found.lines.len() < KEPT {
                found.lines.push(text.to_owned());
            }
        }
        found
    }

    /// Of a kernel with a flaw.
    fn verdict_of_control(&self, ended: &Result<i32, String>) -> String {
        match (ended, &self.summary) {
            (Err(reason), _) => reason.clone(),
            (Ok(_), Some((_, sum))) if *sum > self.expected => FOUND.to_owned(),
            (Ok(code), _) => format!("the flaw was not found, exit code {code}"),
        }
    }

    fn verdict(&self, ended: &Result<i32, String>) -> String {
        let sum = self.summary.as_ref();
        let is_ok = self.result.as_ref().is_some_and(|text| text.starts_with("test result: ok"));
        match (ended, sum, &self.result) {
            (Err(reason), ..) => format!("{reason}, after {} cases", self.passed),
            // The exit code is that of the expected findings.
            (Ok(_), Some((_, sum)), _) if *sum == self.expected && is_ok => CLEAN.to_owned(),
            (Ok(_), Some((text, 1..)), _) => text.clone(),
            (Ok(_), _, Some(result)) => result.clone(),
            (Ok(code), _, None) => format!("no result, exit code {code}"),
        }
    }

    fn row(self, job: &Job, ended: Result<i32, String>, seconds: u64) -> Value {
        let verdict = if job.part == CONTROL {
            self.verdict_of_control(&ended)
        } else {
            self.verdict(&ended)
        };
        json!({
            "tool": job.tool,
            "part": job.part,
            "verdict": verdict,
            "summary": self.summary.map(|(text, _)| text),
            "expected_api_errors": self.expected,
            "cases": self.result,
            "exit_code": ended.ok(),
            "seconds": seconds,
            "said": self.lines,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "========= COMPUTE-SANITIZER\nNVIDIA H200, seed 3\nrunning 2 tests\ntest a ... ok\n\
        test b ... ok\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n========= ERROR SUMMARY: 0 errors\n";

    #[test]
    fn a_run_without_errors_is_clean() {
        let found = Found::of(GOOD);
        assert_eq!((found.passed, found.lines.len()), (2, 0));
        assert_eq!(found.verdict(&Ok(0)), CLEAN);
        assert_eq!(found.verdict(&Err("late".to_owned())), "late, after 2 cases");
        let hazards = GOOD.replace(
            "ERROR SUMMARY: 0 errors",
            "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
        );
        assert_eq!(Found::of(&hazards).verdict(&Ok(0)), CLEAN);
    }

    #[test]
    fn findings_failures_and_refusals_are_named() {
        let bad = GOOD.replace(
            "========= ERROR SUMMARY: 0",
            "========= Invalid __global__ read\n========= ERROR SUMMARY: 2",
        );
        let found = Found::of(&bad);
        assert_eq!(found.verdict(&Ok(86)), "ERROR SUMMARY: 2 errors");
        assert_eq!(found.lines, ["Invalid __global__ read"]);
        let api =
            format!("========= Program hit {EXPECTED}\n=========         Host Frame: f in x\n");
        let asked = GOOD.replace(
            "========= ERROR SUMMARY: 0",
            &format!("{api}{api}========= ERROR SUMMARY: 2"),
        );
        let found = Found::of(&asked);
        assert_eq!(
            (found.expected, found.lines.len(), found.verdict(&Ok(86))),
            (2, 0, CLEAN.to_owned())
        );
        let more = Found::of(&asked.replace("SUMMARY: 2", "SUMMARY: 3"));
        assert_eq!(more.verdict(&Ok(86)), "ERROR SUMMARY: 3 errors");
        assert_eq!(more.verdict_of_control(&Ok(86)), FOUND);
        assert_eq!(found.verdict_of_control(&Ok(86)), "the flaw was not found, exit code 86");
        let failed = GOOD.replace("result: ok", "result: FAILED");
        assert!(Found::of(&failed).verdict(&Ok(1)).starts_with("test result: FAILED"));
        let refused = Found::of("========= Error: Device not supported.\n");
        assert_eq!(refused.verdict(&Ok(1)), "no result, exit code 1");
        assert_eq!(refused.lines, ["Error: Device not supported."]);
        assert!(
            Found::of(&GOOD.replace("========= ERROR SUMMARY: 0 errors\n", "")).verdict(&Ok(0))
                != CLEAN
        );
    }
}
