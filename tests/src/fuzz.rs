//! Random changes of kernels, and what must hold of any text: nothing panics, the two levels of a kernel agree, and
//! what the verifier accepts runs without the errors that it proves to be absent, in every schedule alike.

use std::collections::BTreeSet;
use std::path::Path;

use kernel_abi::numeric::random;
use kernel_dsl::diag::Code;
use kernel_dsl::source::SourceMap;
use kernel_emulator::Memory;
use kernel_ir::pipeline::{self, Built};
use kernel_ir::sema::Bindings;
use kernel_mutation::{Failure, Subject};
use kernel_reduction::reduce;

use crate::suite;

/// Changes of one text.
const MOST_CHANGES: u64 = 3;

/// Numbers that are put in the place of others.
const NUMBERS: [&str; 14] =
    ["0", "1", "2", "3", "4", "8", "16", "31", "32", "64", "127", "128", "4096", "2147483648"];

/// Texts that a reduction tries.
const TRIES: u64 = 3000;

/// The launches and schedules in which a kernel runs.
const LAUNCHES: usize = 2;
const SCHEDULES: (u64, u64) = (4, 1);

/// Something that must not be.
#[derive(Debug, Clone)]
pub struct Finding {
    /// Number of the input.
    pub number: u64,
    /// What goes wrong.
    pub failure: Failure,
    /// Kernel in which it does.
    pub kernel: String,
    /// The least text with it.
    pub text: String,
}

/// Texts to change.
#[derive(Debug)]
pub struct Seeds {
    texts: Vec<String>,
    lines: Vec<String>,
    words: Vec<String>,
}

impl Seeds {
    /// The file tests of a folder that have no imports.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(suite: &Path) -> Result<Seeds, String> {
        let mut paths: Vec<String> =
            suite::file_tests(suite)?.into_iter().map(|t| t.path).collect();
        paths.dedup();
        let mut texts = Vec::new();
        for path in paths {
            let text = std::fs::read_to_string(suite.join(&path));
            let text = text.map_err(|error| format!("{path}: {error}"))?;
            if !text.contains("import ") {
                texts.push(without_comments(&text));
            }
        }
        let lines = texts.iter().flat_map(|text| text.lines()).map(str::to_owned);
        let lines: Vec<String> = lines.collect::<BTreeSet<_>>().into_iter().collect();
        let words =
            lines.iter().flat_map(|line| pieces(line)).filter(|piece| !piece.trim().is_empty());
        let words = words.map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect();
        Ok(Seeds { texts, lines, words })
    }

    /// A changed text.
    pub fn input(&self, seed: u64, number: u64) -> String {
        let mut dice = Dice { seed, stream: number, at: 0 };
        let Some(text) = dice.one_of(&self.texts) else { return String::new() };
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // One change more often leaves a kernel that runs.
        for _ in 0..(1 + dice.below(MOST_CHANGES)).min(1 + dice.below(MOST_CHANGES)) {
            self.change(&mut lines, &mut dice);
        }
        lines.join("\n") + "\n"
    }

    fn change(&self, lines: &mut Vec<String>, dice: &mut Dice) {
        let count = lines.len() as u64;
        if count == 0 {
            return;
        }
        let at = dice.below(count) as usize;
        match dice.below(16) {
            0..=2 => {
                lines.remove(at);
            }
            3 => lines.insert(at, lines[at].clone()),
            4 => {
                let other = dice.below(count) as usize;
                lines.swap(at, other);
            }
            5..=7 => {
                let line = lines.remove(at);
                lines.insert(dice.below(count) as usize, line);
            }
            8 => {
                let line = dice.one_of(&self.lines).cloned().unwrap_or_default();
                lines.insert(at, line);
            }
            _ => lines[at] = self.changed(&lines[at], lines, dice),
        }
    }

    /// A line with one piece less, or another one.
    fn changed(&self, line: &str, lines: &[String], dice: &mut Dice) -> String {
        let mut own: Vec<String> = pieces(line).map(str::to_owned).collect();
        if own.is_empty() {
            return String::new();
        }
        let at = dice.below(own.len() as u64) as usize;
        let is_number = own[at].bytes().all(|byte| byte.is_ascii_digit());
        own[at] = match dice.below(4) {
            0 => String::new(),
            1 => dice.one_of(&self.words).cloned().unwrap_or_default(),
            _ if is_number => dice.one_of(&NUMBERS).copied().unwrap_or_default().to_owned(),
            _ => {
                // A word of the same file is more often one that fits.
                let line = dice.one_of(lines).cloned().unwrap_or_default();
                let words: Vec<&str> = pieces(&line).collect();
                dice.one_of(&words).copied().unwrap_or_default().to_owned()
            }
        };
        own.concat()
    }
}

/// What became of an input.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is refused.
    Refused,
    /// It runs, or ends with an error that a run may end with.
    Runs,
    /// It shows what no text may show.
    Fault(Finding),
}

/// Judges each kernel of a text.
pub fn judge(number: u64, text: &str) -> Outcome {
    let mut runs = false;
    for kernel in kernels(text) {
        let failures = failures(&kernel, text);
        runs |= !failures.iter().any(|failure| matches!(failure, Failure::Refused(..)));
        if let Some(failure) = failures.into_iter().find(is_fault) {
            let fails = |text: &str| self::failures(&kernel, text).contains(&failure);
            let text = reduce(text, TRIES, fails).text;
            return Outcome::Fault(Finding { number, failure, kernel, text });
        }
    }
    if runs { Outcome::Runs } else { Outcome::Refused }
}

/// What must not be said of any text.
pub fn is_fault(failure: &Failure) -> bool {
    match failure {
        Failure::Refused(code, _) => *code == Code::E0810,
        // What the verifier proves to be absent.
        Failure::Found(code) => matches!(
            code,
            Code::E0702
                | Code::E0710
                | Code::E0711
                | Code::E0712
                | Code::E0714
                | Code::E0715
                | Code::E0716
                | Code::E0717
                | Code::E0718
                | Code::E0719
        ),
        Failure::Levels | Failure::Schedules | Failure::Panicked => true,
    }
}

/// What is wrong with a kernel of a text, with its default bindings and random memory.
pub fn failures(kernel: &str, text: &str) -> Vec<Failure> {
    let subject = Subject {
        name: "input.tile",
        read: &|path| Err(format!("there is no `{path}`")),
        kernel,
        bindings: &|_| Bindings::default(),
        target: None,
        memories: &memories,
        launches: LAUNCHES,
        schedules: SCHEDULES,
    };
    subject.failures(text)
}

/// The kernels that can be asked for; one without a name where the text does not come so far.
pub fn kernels(text: &str) -> Vec<String> {
    let front = std::panic::catch_unwind(|| {
        let mut sources = SourceMap::new();
        let root = sources.add("input.tile", text);
        let front = pipeline::front(&mut sources, root, &mut |path| Err(path.to_owned()));
        let names = front.templates.iter().map(|template| template.name().to_owned());
        if front.has_errors() { Vec::new() } else { names.collect() }
    });
    let names = front.unwrap_or_default();
    if names.is_empty() { vec![String::new()] } else { names }
}

fn memories(built: &Built) -> Result<Vec<Memory>, String> {
    let params = &built.kernel.params;
    let world = built.kernel.launch.world.unwrap_or(1);
    let mut memories: Vec<Memory> = (0..world).map(|_| Memory::new(params)).collect();
    kernel_emulator::fill_ranks(params, &mut memories, 1).map_err(|error| error.to_string())?;
    Ok(memories)
}

fn without_comments(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Names, numbers, white space, and single signs.
fn pieces(line: &str) -> impl Iterator<Item = &str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 1,
        c if c.is_whitespace() => 2,
        _ => 0,
    };
    let mut rest = line;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let end = match kind(first) {
            0 => first.len_utf8(),
            own => rest.find(|c| kind(c) != own).unwrap_or(rest.len()),
        };
        let (piece, behind) = rest.split_at(end);
        rest = behind;
        Some(piece)
    })
}

/// Random numbers of one input.
struct Dice {
    seed: u64,
    stream: u64,
    at: u64,
}

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.at += 1;
        random::word(self.seed, self.stream, self.at) % end.max(1)
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }
}
