//! Kernels that hand data over in every way that the language has, each with all of its synchronisation, and with one
//! part of it left out, weakened or moved.
//!
//! A [`Template`] is the text of a kernel in which some lines are marked as parts of a hand-over; [`Template::cases`]
//! makes the kernels. Templates come from files (tests/data/generated) and from [`chains`]. [`judge`] says what the
//! verifier says of a kernel, and what a run of it shows, judged by the axioms of the memory model.

pub mod chains;
pub mod judge;

use std::collections::BTreeSet;
use std::path::Path;

/// Choices of parts that are tried all; of more those in which two parts at most are not as they should be.
const ALL_CHOICES: usize = 48;

/// By how many lines a part is moved at most.
const FURTHEST: usize = 2;

/// A line of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// It stays.
    Line(String),
    /// A part of a hand-over: as it should be, and otherwise, mostly weaker.
    Part(Vec<String>),
}

/// A kernel with marked parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// What hands what to whom.
    pub name: String,
    /// How often the kernel is launched in a row.
    pub launches: usize,
    /// Its lines.
    pub items: Vec<Item>,
}

/// A kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The template, and what is other than there.
    pub name: String,
    /// The text.
    pub text: String,
    /// How often it is launched in a row.
    pub launches: usize,
}

impl Template {
    /// A template from text: lines that begin with `?` are parts, other forms of which stand behind ` or `; `//@ launches: n`
    /// says how often it is launched.
    pub fn parse(name: &str, text: &str) -> Template {
        let mut template =
            Template { name: name.to_owned(), launches: 1, items: Vec::with_capacity(40) };
        for line in text.lines() {
            if let Some(number) = line.strip_prefix("//@ launches: ") {
                template.launches = number.trim().parse().unwrap_or(1);
            } else if let Some(part) = line.strip_prefix('?') {
                let forms = part.split(" or ").map(|form| form.trim().to_owned());
                template.items.push(Item::Part(forms.collect()));
            } else if !line.starts_with("//") {
                template.items.push(Item::Line(line.to_owned()));
            }
        }
        template
    }

    /// The templates of a folder, in the order of their names.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(folder: &Path) -> Result<Vec<Template>, String> {
        let fault = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let entries = std::fs::read_dir(folder).map_err(|error| fault(folder, error))?;
        let mut paths: Vec<_> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
        paths.sort();
        let mut templates = Vec::new();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "template")) {
            let text = std::fs::read_to_string(path).map_err(|error| fault(path, error))?;
            let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            templates.push(Template::parse(name, &text));
        }
        Ok(templates)
    }

    /// The parts, by where they stand.
    fn parts(&self) -> Vec<(usize, &[String])> {
        let mut parts = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            if let Item::Part(forms) = item {
                parts.push((at, forms.as_slice()));
            }
        }
        parts
    }

    /// The kernel as it should be, then every other one, each text once.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        let mut seen = BTreeSet::new();
        let mut add = |change: String, text: String| {
            if seen.insert(text.clone()) {
                let name = format!("{}: {change}", self.name);
                cases.push(Case { name, text, launches: self.launches });
            }
        };
        for choice in self.choices() {
            add(self.describe(&choice), self.text(&choice, None));
        }
        let complete = vec![0; self.parts().len()];
        for (number, (at, forms)) in self.parts().into_iter().enumerate() {
            for to in at.saturating_sub(FURTHEST)..=at + FURTHEST {
                if to == at || !self.is_inside(to) {
                    continue;
                }
                let by =
                    if to < at { format!("up {}", at - to) } else { format!("down {}", to - at) };
                let change = format!("{} {} {by}", number + 1, forms[0]);
                add(change, self.text(&complete, Some((at, to))));
            }
        }
        cases
    }

    /// Which form each part has: 0 is as it should be, the last number means that it is left out.
    fn choices(&self) -> Vec<Vec<usize>> {
        let parts = self.parts();
        let all: usize = parts.iter().map(|(_, forms)| forms.len() + 1).product();
        let most = if all <= ALL_CHOICES { parts.len() } else { 2 };
        let mut choices = vec![Vec::new()];
        for (_, forms) in &parts {
            let longer = |choice: &Vec<usize>| {
                (0..=forms.len()).map(|form| [choice.as_slice(), &[form]].concat()).collect()
            };
            choices =
                choices.iter().flat_map(|choice| -> Vec<Vec<usize>> { longer(choice) }).collect();
            choices.retain(|choice| choice.iter().filter(|&&form| form > 0).count() <= most);
        }
        choices
    }

    fn describe(&self, choice: &[usize]) -> String {
        let mut changes = Vec::new();
        for (number, ((_, forms), &form)) in self.parts().iter().zip(choice).enumerate() {
            let number = number + 1;
            match forms.get(form) {
                Some(_) if form == 0 => {}
                Some(weaker) => changes.push(format!("{number} {weaker}")),
                None => changes.push(format!("{number} no {}", forms[0])),
            }
        }
        if changes.is_empty() { "complete".to_owned() } else { changes.join(", ") }
    }

    /// The kernel with these forms of its parts, and perhaps one of them moved.
    fn text(&self, choice: &[usize], moved: Option<(usize, usize)>) -> String {
        let mut forms = choice.iter();
        let mut lines: Vec<Option<&str>> = Vec::with_capacity(self.items.len());
        for item in &self.items {
            lines.push(match item {
                Item::Line(line) => Some(line),
                Item::Part(all) => forms.next().and_then(|&form| all.get(form)).map(String::as_str),
            });
        }
        if let Some((from, to)) = moved {
            let line = lines.remove(from);
            lines.insert(to, line);
        }
        let lines: Vec<&str> = lines.into_iter().flatten().collect();
        lines.join("\n") + "\n"
    }

    /// Whether a statement may stand there: behind the head of the kernel, ahead of its end.
    fn is_inside(&self, at: usize) -> bool {
        let opens = self.items.iter().position(|item| *item == Item::Line("{".to_owned()));
        opens.is_some_and(|open| at > open) && at + 1 < self.items.len()
    }
}
