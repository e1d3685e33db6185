//! How many checks passed, failed and were skipped, read from what the test runners print.

use std::fmt;
use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) const PASSED: Counts = Counts { passed: 1, failed: 0, skipped: 0 };
    pub(crate) const FAILED: Counts = Counts { passed: 0, failed: 1, skipped: 0 };
    pub(crate) const SKIPPED: Counts = Counts { passed: 0, failed: 0, skipped: 1 };

    /// A check that is one command: its exit code is the verdict.
    pub(crate) fn of_exit(success: bool) -> Counts {
        if success { Counts::PASSED } else { Counts::FAILED }
    }

    /// The sum over all lines of a test run; a run that failed without a failed test (a program
    /// that died, a target that did not build) counts as one failure.
    pub(crate) fn of_run(lines: &[String], success: bool) -> Counts {
        let mut sum = Counts::default();
        for line in lines {
            let line = without_colour(line);
            if let Some(counts) = of_libtest(&line).or_else(|| of_nextest(&line)) {
                sum += counts;
            }
        }
        if !success && sum.failed == 0 {
            sum += Counts::FAILED;
        }
        sum
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.1s`
fn of_libtest(line: &str) -> Option<Counts> {
    // The output of a failed test, indented by nextest, may hold such a line too; it is no result of the run.
    let rest = line.strip_prefix("test result: ")?;
    let (_, numbers) = rest.split_once(". ")?;
    let mut counts = Counts::default();
    for part in numbers.split(';') {
        let Some((number, what)) = leading_number(part) else { continue };
        match what {
            "passed" => counts.passed += number,
            "failed" => counts.failed += number,
            "ignored" | "filtered out" => counts.skipped += number,
            _ => {}
        }
    }
    Some(counts)
}

/// `Summary [ 0.02s] 9/10 tests run: 5 passed (1 slow), 2 failed, 1 timed out, 1 exec failed, 4 skipped`
fn of_nextest(line: &str) -> Option<Counts> {
    let rest = line.trim_start().strip_prefix("Summary [")?;
    let (_, numbers) = rest.split_once(" run: ")?;
    let mut counts = Counts::default();
    for part in without_brackets(numbers).split(',') {
        let Some((number, what)) = leading_number(part) else { continue };
        match what {
            "passed" => counts.passed += number,
            "failed" | "timed out" | "exec failed" => counts.failed += number,
            "skipped" => counts.skipped += number,
            _ => {}
        }
    }
    Some(counts)
}

fn leading_number(part: &str) -> Option<(u64, &str)> {
    let (number, what) = part.trim().split_once(' ')?;
    Some((number.parse().ok()?, what.trim()))
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept
}

/// The line without terminal colour sequences (`ESC [ … letter`).
fn without_colour(line: &str) -> String {
    let mut kept = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            for c in chars.by_ref() {
                if c.is_ascii_alphabetic() {
                    break;
                }
            }
        } else {
            kept.push(c);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts { passed, failed, skipped }
    }

    #[test]
    fn libtest_lines_are_read() {
        let ok = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";
        assert_eq!(of_libtest(ok), Some(counts(3, 0, 3)));
        let bad = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(of_libtest(bad), Some(counts(3, 2, 0)));
        assert_eq!(of_libtest("test codes::result ... ok"), None);
    }

    #[test]
    fn nextest_lines_are_read() {
        let all = "     Summary [   0.020s] 9/10 tests run: 5 passed (1 slow, 2 leaky), 2 failed, 1 timed out, 1 exec failed, 4 skipped";
        assert_eq!(of_nextest(all), Some(counts(5, 4, 4)));
        let one = "     Summary [   0.020s] 1 test run: 1 passed, 0 skipped";
        assert_eq!(of_nextest(one), Some(counts(1, 0, 0)));
        assert_eq!(of_nextest("     Running tests"), None);
    }

    #[test]
    fn colours_do_not_hide_a_summary() {
        let line = "\u{1b}[32;1m     Summary\u{1b}[0m [   0.020s] \u{1b}[1m2\u{1b}[0m tests run: \u{1b}[1m2\u{1b}[0m \u{1b}[32mpassed\u{1b}[0m, \u{1b}[1m0\u{1b}[0m skipped";
        assert_eq!(Counts::of_run(&[line.to_owned()], true), counts(2, 0, 0));
    }

    #[test]
    fn a_run_that_fails_without_a_failed_test_counts_as_a_failure() {
        assert_eq!(Counts::of_run(&[], false), counts(0, 1, 0));
        let line = "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(Counts::of_run(&[line.to_owned()], false), counts(3, 2, 0));
    }

    #[test]
    fn the_closing_line_names_skipped_only_when_there_are_some() {
        assert_eq!(counts(3, 0, 0).to_string(), "3 passed, 0 failed");
        assert_eq!(counts(3, 1, 2).to_string(), "3 passed, 1 failed, 2 skipped");
    }
}
