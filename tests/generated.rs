//! Generated kernels: what the verifier accepts has no race by the axioms of the memory model, and no error of a run.
//!
//! What it refuses runs with the findings waived. Refused kernels of which no run shows anything are listed with a
//! reason in tests/data/generated/conservative.txt, and those that are not listed yet are printed; `BLESS=1` writes the
//! list, new ones under `# ?`, and leaves out what is no longer one of them. `KERNEL_GENERATED=roles_copy` judges the kernels with that in their names alone.

#![expect(clippy::print_stdout, reason = "the table is the result")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use kernel_abi::numeric::random;
use kernel_tests::generated::chains::{self, Consumer, Producer};
use kernel_tests::generated::judge::{Judged, Said, Seen, judge};
use kernel_tests::generated::{Case, Template};
use kernel_tests::program;
use libtest_mimic::{Arguments, Failed, Trial};
use rayon::prelude::*;

/// Random chains of a plain test run, and their seed.
const CHAINS: u64 = 60;
const SEED: u64 = 1;

/// Of a hundred refused kernels that run, those that race by the axioms, at least.
const RACES_AT_LEAST: usize = 75;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    std::panic::set_hook(Box::new(|_| {}));
    let trials = vec![Trial::test("kernels", || kernels().map_err(Failed::from))];
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn folder() -> PathBuf {
    program::package_folder().join("data/generated")
}

/// What is counted of a kind of hand-over.
#[derive(Debug, Clone, Copy, Default)]
struct Row {
    kernels: usize,
    accepted: usize,
    race: usize,
    error: usize,
    differs: usize,
    nothing: usize,
    no_kernel: usize,
}

impl Row {
    fn add(&mut self, judged: &Judged) {
        self.kernels += 1;
        match (&judged.said, &judged.seen) {
            (Said::NoKernel(_), _) => self.no_kernel += 1,
            (Said::Accepted, _) => self.accepted += 1,
            (Said::Refused(_), Seen::Race(_)) => self.race += 1,
            (Said::Refused(_), Seen::Error(_)) => self.error += 1,
            (Said::Refused(_), Seen::Differs) => self.differs += 1,
            (Said::Refused(_), Seen::Nothing) => self.nothing += 1,
        }
    }

    fn refused(&self) -> usize {
        self.race + self.error + self.differs + self.nothing
    }

    fn show(&self, name: &str) -> String {
        let Row { kernels, accepted, race, error, differs, nothing, no_kernel } = self;
        let refused = self.refused();
        format!(
            "| {name} | {kernels} | {accepted} | {refused} | {race} | {error} | {differs} | {nothing} | {no_kernel} |"
        )
    }
}

fn random_chains() -> Vec<Case> {
    let case = |number: u64| {
        let mut at = 0;
        let mut below = |end: usize| {
            at += 1;
            (random::word(SEED, number, at) % end.max(1) as u64) as usize
        };
        // A product has many events, so there is one at most, the last.
        let consumers = [below(2), below(2), below(Consumer::ALL.len())];
        let links = consumers.map(|consumer| (Producer::ALL[below(2)], Consumer::ALL[consumer]));
        let cases = chains::chain(&links).cases();
        let number = below(cases.len());
        cases.into_iter().nth(number)
    };
    (0..CHAINS)
        .filter_map(case)
        .map(|case| Case { name: format!("random {}", case.name), ..case })
        .collect()
}

fn cases() -> Result<Vec<Case>, String> {
    let mut templates = chains::all();
    templates.extend(Template::read(&folder())?);
    let mut cases: Vec<Case> = templates.iter().flat_map(Template::cases).collect();
    cases.extend(random_chains());
    Ok(cases)
}

/// The family of a kernel: what stands ahead of the first `_` or `:`, or that it is a chain.
fn family(case: &Case) -> &str {
    let name = case.name.split(':').next().unwrap_or_default();
    match name.split_once('_') {
        Some((family, _)) if !name.contains('>') => family,
        _ if name.starts_with("random") => "chains of three, at random",
        _ => "chains in a CTA",
    }
}

fn kernels() -> Result<(), String> {
    let only = std::env::var("KERNEL_GENERATED").ok();
    let mut cases = cases()?;
    cases.retain(|case| only.as_ref().is_none_or(|only| case.name.contains(only.as_str())));
    let judged: Vec<Result<Judged, String>> = cases.par_iter().map(judge).collect();
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let (mut faults, mut silent, mut all) = (Vec::new(), BTreeMap::new(), Row::default());
    for (case, judged) in cases.iter().zip(judged) {
        let judged = match judged {
            Ok(judged) => judged,
            Err(fault) => {
                faults.push(format!("{}: {fault}\n{}", case.name, case.text));
                continue;
            }
        };
        if only.is_some() {
            println!("{}: {:?}, {:?}", case.name, judged.said, judged.seen);
        }
        rows.entry(family(case)).or_default().add(&judged);
        all.add(&judged);
        match (&judged.said, &judged.seen) {
            (Said::Accepted, Seen::Nothing) => {}
            (Said::Accepted, seen) => {
                faults.push(format!("{}: accepted, {seen:?}\n{}", case.name, case.text));
            }
            (Said::Refused(codes), Seen::Nothing) => {
                let codes: Vec<&str> = codes.iter().copied().collect();
                silent.insert(case.name.clone(), codes.join(" "));
            }
            (Said::Refused(_) | Said::NoKernel(_), _) => {}
        }
    }
    println!(
        "| hand-over | kernels | accepted | refused | race | other error | other results | nothing | no kernel |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    rows.iter().for_each(|(name, row)| println!("{}", row.show(name)));
    println!("{}", all.show("all"));
    if only.is_none() {
        // A finer rule changes what is listed; the list is brought up to date by hand.
        conservative(&silent)?.iter().for_each(|line| println!("{line}"));
        if all.race * 100 < all.refused() * RACES_AT_LEAST {
            faults.push(format!("of {} refused kernels {} race", all.refused(), all.race));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// Compares what is refused and shows nothing with the list of such kernels.
fn conservative(silent: &BTreeMap<String, String>) -> Result<Vec<String>, String> {
    let path = folder().join("conservative.txt");
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let mut reasons: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in known.lines() {
        match (line.strip_prefix("# "), reasons.last_mut()) {
            (Some(reason), _) => reasons.push((reason.to_owned(), BTreeSet::new())),
            (None, Some((_, names))) if !line.is_empty() => {
                names.insert(line.to_owned());
            }
            (None, _) => {}
        }
    }
    let lines: BTreeSet<String> =
        silent.iter().map(|(name, codes)| format!("{name} | {codes}")).collect();
    let has = |line: &String| reasons.iter().any(|(_, names)| names.contains(line));
    let new: BTreeSet<String> = lines.iter().filter(|line| !has(line)).cloned().collect();
    if std::env::var_os("BLESS").is_some() {
        let mut text = String::new();
        let unknown = ("?".to_owned(), new.clone());
        for (reason, names) in reasons.iter().chain([&unknown]) {
            let names: Vec<&str> = names.intersection(&lines).map(String::as_str).collect();
            if !names.is_empty() {
                text.push_str(&format!("# {reason}\n{}\n\n", names.join("\n")));
            }
        }
        let text = text.trim_end().to_owned() + "\n";
        std::fs::write(&path, text).map_err(|error| error.to_string())?;
    }
    let named = reasons.iter().flat_map(|(_, names)| names);
    let old = named.filter(|line| !lines.contains(*line));
    let old = old.map(|line| format!("no longer refused, or seen in a run: {line}"));
    let bare = reasons.iter().filter(|(reason, _)| reason == "?").flat_map(|(_, names)| names);
    let bare = new.into_iter().chain(bare.cloned()).map(|line| format!("no reason: {line}"));
    Ok(bare.chain(old).collect())
}
