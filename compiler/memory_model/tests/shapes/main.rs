//! Every shape × payload × hand-over × distance against the table of tests/data/shapes, and what must hold between its
//! rows. `BLESS=1` writes the table; the sentences in it stay.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

mod build;
mod matrix;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use build::{Verdict, judge};
use kernel_memory_model::event::Scope;
use matrix::{DISTANCES, HandOver, PAYLOADS, Payload, Program, Shape, is_reachable, makes_sense};

/// A row: a hand-over, and the verdict for each distance.
type Row = (String, Vec<Option<Verdict>>);

/// Hand-overs that meet in one program of three threads, each as far as it reaches.
const MIXED: [(HandOver, Scope); 8] = [
    (HandOver::Bar, Scope::Cta),
    (HandOver::Cluster, Scope::Cluster),
    (HandOver::Mbarrier(Scope::Cluster), Scope::Cluster),
    (HandOver::Bytes, Scope::Cluster),
    (HandOver::Flag(Scope::Gpu), Scope::Gpu),
    (HandOver::Flag(Scope::Sys), Scope::Sys),
    (HandOver::FlagRelaxed, Scope::Sys),
    (HandOver::Pdl, Scope::Gpu),
];

fn cell(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        None => "-",
        Some(Verdict { is_allowed: false, races: false }) => "never",
        Some(Verdict { is_allowed: true, races: false }) => "may",
        Some(Verdict { is_allowed: true, races: true }) => "may race",
        Some(Verdict { is_allowed: false, races: true }) => "race",
    }
}

fn rows(shape: Shape, payload: Payload) -> Vec<Row> {
    let fitting = HandOver::ALL.into_iter().filter(|&how| makes_sense(shape, payload, how));
    let row = |how: HandOver| {
        let judged = DISTANCES.map(|distance| {
            let program =
                Program { shape, payload, hand_overs: [how; 2], distances: [distance; 2] };
            is_reachable(how, distance).then(|| judge(&program))
        });
        (how.name(), judged.to_vec())
    };
    fitting.map(row).collect()
}

fn mixed(payload: Payload) -> Vec<Row> {
    let row = |(first, near): (HandOver, Scope)| {
        let judged = MIXED.map(|(second, far)| {
            let (hand_overs, distances) = ([first, second], [near, far]);
            Some(judge(&Program { shape: Shape::Isa2, payload, hand_overs, distances }))
        });
        (format!("{} {}", first.name(), near.name()), judged.to_vec())
    };
    MIXED.map(row).to_vec()
}

/// A table and the groups whose verdicts it has.
struct Table {
    columns: Vec<String>,
    rows: Vec<Row>,
    groups: Vec<String>,
}

fn tables() -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut add = |columns: Vec<String>, rows: Vec<Row>, group: String| {
        let same = tables.iter_mut().find(|table| table.rows == rows && table.columns == columns);
        match same {
            Some(table) => table.groups.push(group),
            None if rows.is_empty() => {}
            None => tables.push(Table { columns, rows, groups: vec![group] }),
        }
    };
    for shape in Shape::ALL {
        for payload in PAYLOADS {
            let columns = DISTANCES.map(|distance| distance.name().to_owned()).to_vec();
            add(columns, rows(shape, payload), format!("{} | {}", shape.name(), payload.name));
        }
    }
    for payload in [PAYLOADS[0], PAYLOADS[6]] {
        let columns = MIXED.map(|(how, far)| format!("{} {}", how.name(), far.name())).to_vec();
        add(columns, mixed(payload), format!("ISA2 of two | {}", payload.name));
    }
    tables
}

/// How many programs there are, as the documentation says it.
fn counted(tables: &[Table]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for table in tables {
        let cells = table.rows.iter().flat_map(|(_, verdicts)| verdicts);
        for name in cells.map(|verdict| cell(*verdict)).filter(|name| *name != "-") {
            *counts.entry(name).or_default() += table.groups.len();
        }
    }
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    format!(
        "{} programs: {} never see the old value, {} may and race, {} may without a race, {} race without it",
        counts.values().sum::<usize>(),
        of("never"),
        of("may race"),
        of("may"),
        of("race"),
    )
}

fn render(tables: &[Table], reasons: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for table in tables {
        for group in &table.groups {
            let reason = reasons.get(group).map_or("", String::as_str);
            writeln!(text, "{group} | {reason}").unwrap();
        }
        let first = table.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let widths: Vec<usize> = table.columns.iter().map(|name| name.len().max(8)).collect();
        let mut line = |name: &str, cells: Vec<&str>| {
            let mut line = format!("    {name:first$}");
            for (cell, &width) in cells.iter().zip(&widths) {
                write!(line, "  {cell:width$}").unwrap();
            }
            writeln!(text, "{}", line.trim_end()).unwrap();
        };
        line("", table.columns.iter().map(String::as_str).collect());
        for (name, verdicts) in &table.rows {
            line(name, verdicts.iter().map(|verdict| cell(*verdict)).collect());
        }
        text.push('\n');
    }
    writeln!(text, "{}", counted(tables)).unwrap();
    text
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/shapes/verdicts.txt")
}

/// The sentence of each group.
fn reasons(text: &str) -> BTreeMap<String, String> {
    let of_group = |line: &str| {
        let (group, reason) = line.rsplit_once(" |")?;
        let is_group = !line.starts_with(' ') && !reason.trim().is_empty();
        is_group.then(|| (group.to_owned(), reason.trim().to_owned()))
    };
    text.lines().filter_map(of_group).collect()
}

#[test]
fn every_program_has_the_verdict_of_the_table() {
    let known = std::fs::read_to_string(path()).unwrap_or_default();
    let reasons = reasons(&known);
    let tables = tables();
    println!("{}", counted(&tables));
    let text = render(&tables, &reasons);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path(), &text).unwrap();
    }
    let known = std::fs::read_to_string(path()).unwrap();
    let differs = known.lines().zip(text.lines()).find(|(known, now)| known != now);
    assert_eq!(differs, None, "the table and what the axioms say");
    assert_eq!(known.lines().count(), text.lines().count());
    let bare: Vec<&String> = tables
        .iter()
        .flat_map(|table| &table.groups)
        .filter(|group| !reasons.contains_key(*group))
        .collect();
    assert!(bare.is_empty(), "groups without a reason: {bare:#?}");
}

#[test]
fn the_documentation_has_the_numbers() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memory-model.md");
    let counted = counted(&tables());
    assert!(std::fs::read_to_string(docs).unwrap().contains(&counted), "{counted}");
}

/// Every program of one hand-over, by its parts.
fn all(payload: Payload, how: HandOver) -> Vec<(Shape, Scope, Verdict)> {
    let mut found = Vec::new();
    for shape in Shape::ALL.into_iter().filter(|&shape| makes_sense(shape, payload, how)) {
        for distance in DISTANCES.into_iter().filter(|&distance| is_reachable(how, distance)) {
            let program =
                Program { shape, payload, hand_overs: [how; 2], distances: [distance; 2] };
            found.push((shape, distance, judge(&program)));
        }
    }
    found
}

/// What the second one allows, the first one allows as well.
fn is_weaker(weak: Verdict, strong: Verdict) -> bool {
    weak.is_allowed >= strong.is_allowed && weak.races >= strong.races
}

#[test]
fn what_is_stronger_allows_no_more() {
    let pairs = [
        (HandOver::Flag(Scope::Cta), HandOver::Flag(Scope::Cluster)),
        (HandOver::Flag(Scope::Cluster), HandOver::Flag(Scope::Gpu)),
        (HandOver::Flag(Scope::Gpu), HandOver::Flag(Scope::Sys)),
        (HandOver::Fences(Scope::Gpu), HandOver::Fences(Scope::Sys)),
        (HandOver::FlagRelaxed, HandOver::Flag(Scope::Sys)),
        (HandOver::FlagRelaxed, HandOver::Fences(Scope::Cta)),
        (HandOver::Mbarrier(Scope::Cta), HandOver::Mbarrier(Scope::Cluster)),
        (HandOver::ClusterRelaxed, HandOver::Cluster),
        (HandOver::PdlNoWait, HandOver::Pdl),
        (HandOver::FenceSc(Scope::Gpu), HandOver::FenceSc(Scope::Sys)),
    ];
    for payload in PAYLOADS {
        for (weak, strong) in pairs {
            let both = all(payload, weak).into_iter().zip(all(payload, strong));
            for (weak, strong) in both {
                assert!(is_weaker(weak.2, strong.2), "{}: {weak:?} {strong:?}", payload.name);
            }
        }
    }
}

#[test]
fn a_fence_and_a_shorter_way_allow_no_more() {
    let is_same = |a: Payload, b: Payload| a.first == b.first && a.second == b.second;
    for how in HandOver::ALL {
        for weak in PAYLOADS {
            let judged = all(weak, how);
            for near in judged.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                assert!(is_weaker(near[1].2, near[0].2), "{} {near:?}", weak.name);
            }
            let is_bare = |p: &Payload| !p.is_fenced_first && !p.is_fenced_second;
            for strong in PAYLOADS.into_iter().filter(|&p| is_bare(&weak) && is_same(weak, p)) {
                for (weak, strong) in judged.iter().zip(all(strong, how)) {
                    assert!(is_weaker(weak.2, strong.2), "{weak:?} {strong:?}");
                }
            }
        }
    }
}

#[test]
fn what_never_races_is_seen_in_order_but_for_words() {
    for payload in PAYLOADS.into_iter().filter(|payload| !payload.name.contains("relaxed")) {
        for how in HandOver::ALL {
            for (shape, distance, verdict) in all(payload, how) {
                let Verdict { is_allowed, races } = verdict;
                let text = format!("{shape:?} {} {how:?} {distance:?}", payload.name);
                assert!(races || !is_allowed, "{text}");
            }
        }
    }
}
