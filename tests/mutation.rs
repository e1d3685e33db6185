//! Mutants of every kernel of the repository: each has one synchronisation less or a weaker one, and something must
//! see it, or the change is known to do no harm.
//!
//! A plain test run judges a seeded sample; `cargo xtask mutate` judges all and prints the table of
//! docs/verification.md.

#![expect(clippy::print_stdout, reason = "the table is the result")]
#![expect(clippy::unwrap_used, reason = "unwrap is how a test fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_abi::numeric::random;
use kernel_mutation::{Mutant, Operator, Verdict};
use kernel_tests::mutation::{Harmless, Source, harmless, sources};
use kernel_tests::program;
use kernel_tests::schedules::Schedules;
use libtest_mimic::{Arguments, Failed, Trial};

/// Mutants of a plain test run.
const SAMPLE: usize = 200;

/// Mutants of one kernel that are judged one after the other.
const TOGETHER: usize = 6;

const SCHEDULES: Schedules = Schedules { count: 12, seed: 1 };

/// What is counted of an operator.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    mutants: usize,
    refused: usize,
    found: usize,
    differs: usize,
    equivalent: usize,
    not_built: usize,
    harmless: usize,
    left: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let judge = || judge().map_err(Failed::from);
    libtest_mimic::run(&arguments, vec![Trial::test("mutants", judge)]).exit_code()
}

fn judge() -> Result<(), String> {
    let all = std::env::var("KERNEL_MUTANTS").is_ok_and(|value| value == "all");
    let folder = program::package_folder().join("suite");
    let sources = sources(&folder)?;
    let mut chosen: Vec<(usize, Mutant)> = Vec::new();
    for (number, source) in sources.iter().enumerate() {
        chosen.extend(source.mutants(&folder)?.into_iter().map(|mutant| (number, mutant)));
    }
    let total = chosen.len();
    if !all {
        let key = |n: usize| random::word(SCHEDULES.seed, 0, n as u64);
        let mut order: Vec<usize> = (0..total).collect();
        order.sort_by_key(|&n| key(n));
        let mut keep = vec![false; total];
        order.iter().take(SAMPLE).for_each(|&n| keep[n] = true);
        let mut keep = keep.into_iter();
        chosen.retain(|_| keep.next().unwrap());
    }
    let count = chosen.len();
    let mut report = Report { rows: BTreeMap::new(), left: Vec::new(), known: harmless(&list())? };
    let parts: Vec<(&Source, Vec<Mutant>)> = chosen
        .chunk_by(|(a, _), (b, _)| a == b)
        .flat_map(|own| own.chunks(TOGETHER))
        .map(|part| (&sources[part[0].0], part.iter().map(|(_, mutant)| mutant.clone()).collect()))
        .collect();
    for ((source, mutants), verdicts) in parts.iter().zip(verdicts(&parts, &folder)) {
        report.add(source, mutants, verdicts?);
    }
    report.show();
    println!("{count} of {total} mutants of {} kernels", sources.len());
    if all {
        report.left.extend(report.known.iter().filter(|known| !known.is_met).map(|known| {
            format!("{}: no such mutant survives any more: {}", known.path, known.before)
        }));
    }
    if report.left.is_empty() { Ok(()) } else { Err(report.left.join("\n")) }
}

/// What sees the mutants of each part. The kernels have threads of their own, which wait for each other, so the parts
/// run on threads of the system and not of a pool.
fn verdicts(parts: &[(&Source, Vec<Mutant>)], folder: &Path) -> Vec<Result<Vec<Verdict>, String>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((source, mutants)) = parts.get(number) else { return own };
            let judged = source.judge(folder, mutants, SCHEDULES);
            own.push((number, judged.map_err(|unfit| format!("{}: {unfit}", source.name))));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("judging does not panic"))
            .collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, verdicts)| verdicts).collect()
}

/// The list of changes that do no harm.
fn list() -> PathBuf {
    program::package_folder().join("data/mutation/harmless.txt")
}

struct Report {
    rows: BTreeMap<Operator, Row>,
    /// Mutants that nothing sees.
    left: Vec<String>,
    known: Vec<Harmless>,
}

impl Report {
    fn add(&mut self, source: &Source, mutants: &[Mutant], verdicts: Vec<Verdict>) {
        for (mutant, verdict) in mutants.iter().zip(verdicts) {
            let row = self.rows.entry(mutant.operator).or_default();
            row.mutants += 1;
            match verdict {
                Verdict::Refused(_) => row.refused += 1,
                Verdict::Found(_) => row.found += 1,
                Verdict::Differs => row.differs += 1,
                Verdict::Equivalent => row.equivalent += 1,
                Verdict::NotBuilt => row.not_built += 1,
                Verdict::Survives | Verdict::Panicked => {
                    let known = self.known.iter_mut().find(|known| known.fits(source, mutant));
                    match known.filter(|_| verdict == Verdict::Survives) {
                        Some(known) => {
                            known.is_met = true;
                            row.harmless += 1;
                        }
                        None => {
                            row.left += 1;
                            let before = mutant.before.split_whitespace().collect::<Vec<_>>();
                            let (operator, before) = (mutant.operator, before.join(" "));
                            self.left.push(format!(
                                "{} | {operator} | {before} | {verdict}",
                                source.name
                            ));
                        }
                    }
                }
            }
        }
    }

    fn show(&self) {
        println!(
            "| change | mutants | refused | found by the emulator | other results | the same program | not built | harmless | left |"
        );
        println!("|---|---|---|---|---|---|---|---|---|");
        let mut sum = Row::default();
        for (operator, row) in &self.rows {
            line(&operator.name(), row);
            sum.mutants += row.mutants;
            sum.refused += row.refused;
            sum.found += row.found;
            sum.differs += row.differs;
            sum.equivalent += row.equivalent;
            sum.not_built += row.not_built;
            sum.harmless += row.harmless;
            sum.left += row.left;
        }
        line("all", &sum);
    }
}

fn line(name: &str, row: &Row) {
    let Row { mutants, refused, found, differs, equivalent, not_built, harmless, left } = row;
    println!(
        "| {name} | {mutants} | {refused} | {found} | {differs} | {equivalent} | {not_built} | {harmless} | {left} |"
    );
}
