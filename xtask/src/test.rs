//! `cargo xtask test`: every check that needs no GPU, and one line that counts them.

use crate::counts::Counts;
use crate::process::{cargo, stdout, succeeds, tee};
use crate::setup;
use crate::table::Table;
use crate::workspace::Workspace;
use anyhow::{Context, Result, bail};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Its tests start kernelc as a process.
const PACKAGE_WITH_PROCESS_TESTS: &str = "kernel_tests";
/// The first cargo-nextest with the options used here.
const OLDEST_NEXTEST: [u32; 3] = [0, 9, 85];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    fn name(self) -> &'static str {
        match self {
            Runner::Nextest => "cargo nextest",
            Runner::Cargo => "cargo test",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Empty means the whole workspace.
    packages: Vec<String>,
    tests_only: bool,
    runner: Option<Runner>,
    /// What stands after `--`: for the test programs.
    pass_on: Vec<String>,
}

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    let options = Options::parse(args)?;
    let workspace = Workspace::enter()?;
    let tools = setup::run(&workspace)?;
    let variables = tools
        .variables()
        .chain([("KERNELC_BIN", workspace.program("debug", "kernelc"))])
        .collect::<Vec<_>>();
    let runner = options.runner.unwrap_or_else(installed_runner);
    println!("test runner: {}", runner.name());
    let mut steps = Steps { done: Vec::new() };

    if !options.tests_only {
        steps.lint("fmt", cargo().args(["fmt", "--all", "--check"]))?;
        let mut clippy = options.cargo(&["clippy"]);
        steps.lint("clippy", clippy.args(["--all-targets", "--", "-D", "warnings"]))?;
    }
    // Binaries first: the process tests start them, and the test build reuses what is built here.
    let mut built = steps.check("build", options.cargo(&["build"]).arg("--all-targets"))?;
    if options.lacks_kernelc() {
        let mut kernelc = cargo();
        built &= steps.check("kernelc", kernelc.args(["build", "--package", "kernelc"]))?;
    }
    if built {
        steps.tests("tests", options.tests(runner).envs(variables.iter().cloned()))?;
        if let Some(mut doctests) = options.doctests(&workspace)? {
            steps.tests("doctests", doctests.envs(variables.iter().cloned()))?;
        }
        if !options.tests_only {
            let mut doc = options.cargo(&["doc"]);
            steps.check("doc", doc.arg("--no-deps").env("RUSTDOCFLAGS", "-D warnings"))?;
        }
    }
    Ok(steps.close())
}

impl Options {
    fn parse(args: &[String]) -> Result<Options> {
        let mut options =
            Options { packages: Vec::new(), tests_only: false, runner: None, pass_on: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "-p" | "--package" => {
                    let name = args.next().with_context(|| format!("{arg} wants a package"))?;
                    options.packages.push(name.clone());
                }
                "--tests-only" => options.tests_only = true,
                "--runner" => {
                    options.runner = Some(match args.next().map(String::as_str) {
                        Some("nextest") => Runner::Nextest,
                        Some("cargo") => Runner::Cargo,
                        other => {
                            bail!("--runner is nextest or cargo, got `{}`", other.unwrap_or(""))
                        }
                    });
                }
                "--" => {
                    options.pass_on = args.cloned().collect();
                    break;
                }
                other => bail!("test does not know `{other}`; filters come after `--`"),
            }
        }
        Ok(options)
    }

    /// `cargo WORDS`, for the packages that were asked for.
    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = cargo();
        command.args(words);
        if is_ci() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        if self.packages.is_empty() {
            command.arg("--workspace");
        }
        for name in &self.packages {
            command.args(["--package", name]);
        }
        command
    }

    /// Do the packages hold process tests, without holding what those start?
    fn lacks_kernelc(&self) -> bool {
        self.packages.iter().any(|name| name == PACKAGE_WITH_PROCESS_TESTS)
            && !self.packages.iter().any(|name| name == "kernelc")
    }

    /// Unit tests and test programs, without documentation tests, which nextest does not run.
    fn tests(&self, runner: Runner) -> Command {
        let mut command = match runner {
            Runner::Cargo => self.cargo(&["test"]),
            Runner::Nextest => {
                let mut command = self.cargo(&["nextest", "run"]);
                let profile = if is_ci() { "ci" } else { "default" };
                command.args(["--no-tests", "pass", "--profile", profile]);
                command
            }
        };
        command.args(["--tests", "--no-fail-fast", "--"]).args(&self.pass_on);
        command
    }

    /// `None` when no package that was asked for has a library.
    fn doctests(&self, workspace: &Workspace) -> Result<Option<Command>> {
        let mut with_library = Vec::new();
        for name in &self.packages {
            let package =
                workspace.package(name).with_context(|| format!("there is no package `{name}`"))?;
            if package.has_library() {
                with_library.push(name.clone());
            }
        }
        if with_library.is_empty() && !self.packages.is_empty() {
            return Ok(None);
        }
        let narrowed = Options { packages: with_library, pass_on: Vec::new(), ..*self };
        let mut command = narrowed.cargo(&["test"]);
        command.args(["--doc", "--no-fail-fast", "--"]).args(&self.pass_on);
        Ok(Some(command))
    }
}

/// What was done, with its count and its time.
struct Steps {
    done: Vec<(&'static str, Counts, Duration)>,
}

impl Steps {
    /// One command that is one check. Did it succeed?
    fn check(&mut self, name: &'static str, command: &mut Command) -> Result<bool> {
        self.measure(name, command, |_, success| Counts::of_exit(success))
    }

    /// A check by a part of the toolchain that may be absent, which counts as skipped.
    fn lint(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        if succeeds(cargo().args([name, "--version"])) {
            self.check(name, command)?;
        } else {
            println!("\n== {name}: skipped, this toolchain has no cargo {name}");
            self.done.push((name, Counts::SKIPPED, Duration::ZERO));
        }
        Ok(())
    }

    /// A test runner, whose output is counted.
    fn tests(&mut self, name: &'static str, command: &mut Command) -> Result<()> {
        self.measure(name, command, Counts::of_run)?;
        Ok(())
    }

    fn measure(
        &mut self,
        name: &'static str,
        command: &mut Command,
        count: fn(&[String], bool) -> Counts,
    ) -> Result<bool> {
        println!("\n== {name}");
        let start = Instant::now();
        let (status, lines) = tee(command)?;
        let counts = count(&lines, status.success());
        self.done.push((name, counts, start.elapsed()));
        Ok(counts.failed == 0)
    }

    /// Prints the table of steps, then the closing line.
    fn close(self) -> ExitCode {
        let mut sum = Counts::default();
        let mut table = Table::new(&["step", "passed", "failed", "skipped", "seconds"]);
        for (name, counts, time) in self.done {
            sum += counts;
            table.row(vec![
                name.to_owned(),
                counts.passed.to_string(),
                counts.failed.to_string(),
                counts.skipped.to_string(),
                format!("{:.1}", time.as_secs_f64()),
            ]);
        }
        println!();
        table.print();
        println!("\n{sum}");
        ExitCode::from(u8::from(sum.failed > 0))
    }
}

fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

fn installed_runner() -> Runner {
    let version = stdout(cargo().args(["nextest", "--version"])).unwrap_or_default();
    match nextest_version(&version) {
        Some(version) if version >= OLDEST_NEXTEST => Runner::Nextest,
        Some(_) | None => Runner::Cargo,
    }
}

/// From `cargo-nextest 0.9.143 (60fa45f63 2026-08-04)`.
fn nextest_version(text: &str) -> Option<[u32; 3]> {
    let mut parts = text.strip_prefix("cargo-nextest ")?.split_whitespace().next()?.split('.');
    let mut next = || parts.next()?.parse().ok();
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_and_what_is_passed_on_are_told_apart() {
        let options =
            parse(&["-p", "kernel_dsl", "--tests-only", "--runner", "cargo", "--", "-p", "x"])
                .unwrap();
        assert_eq!(options.packages, ["kernel_dsl"]);
        assert!(options.tests_only);
        assert_eq!(options.runner, Some(Runner::Cargo));
        assert_eq!(options.pass_on, ["-p", "x"]);
        assert!(parse(&["--runner", "make"]).is_err());
        assert!(parse(&["-p"]).is_err());
        assert!(parse(&["word"]).is_err());
    }

    #[test]
    fn both_runners_get_the_same_selection() {
        let options = parse(&["-p", "kernel_dsl", "--", "lexer"]).unwrap();
        for runner in [Runner::Nextest, Runner::Cargo] {
            let words: Vec<String> = options
                .tests(runner)
                .get_args()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let tail = ["--tests", "--no-fail-fast", "--", "lexer"];
            assert_eq!(words[words.len() - 4..], tail);
            assert!(words.windows(2).any(|pair| pair == ["--package", "kernel_dsl"]));
        }
    }

    #[test]
    fn kernelc_is_built_for_process_tests_alone() {
        assert!(!parse(&[]).unwrap().lacks_kernelc());
        assert!(parse(&["-p", "kernel_tests"]).unwrap().lacks_kernelc());
        assert!(!parse(&["-p", "kernel_tests", "-p", "kernelc"]).unwrap().lacks_kernelc());
        assert!(!parse(&["-p", "kernel_dsl"]).unwrap().lacks_kernelc());
    }

    #[test]
    fn an_old_nextest_is_told_from_a_new_one() {
        let version = nextest_version("cargo-nextest 0.9.143 (60fa45f63 2026-08-04)\nrelease: x");
        assert_eq!(version, Some([0, 9, 143]));
        assert!(nextest_version("cargo-nextest 0.9.52").unwrap() < OLDEST_NEXTEST);
        assert_eq!(nextest_version("error: no such command"), None);
    }
}
