//! What the names of a test stand for.

use super::super::instruction::{Instruction, Line};
use super::super::{Location, Thread, Word};
use super::{
    Declaration, Declared, Initial, MAX_INSTRUCTIONS, MAX_LOCATIONS, MAX_THREADS, is_name,
    is_register,
};
use crate::code::{Code, Diagnostic, Spot};
use crate::event::{Position, Proxy};

/// The value of the first address; addresses are far from the numbers that tests use.
const FIRST_ADDRESS: Word = 1 << 40;
/// The distance of two addresses.
const ADDRESS_STEP: Word = 1 << 12;

#[derive(Debug)]
struct Name {
    text: String,
    spot: Spot,
    init: Word,
    alias: Option<(Proxy, usize)>,
    is_initialized: bool,
}

#[derive(Debug)]
struct Column {
    thread: Thread,
    /// Labels with their line and place.
    labels: Vec<(String, usize)>,
    /// Branches whose target is not resolved yet.
    jumps: Vec<(usize, String, Spot)>,
    initialized: Vec<usize>,
}

/// The names of a test while it is read.
#[derive(Debug, Default)]
pub(super) struct Names {
    locations: Vec<Name>,
    columns: Vec<Column>,
    proxy: Option<Spot>,
}

impl Names {
    pub(super) fn thread_count(&self) -> usize {
        self.columns.len()
    }

    /// The first place that needs a model with proxies.
    pub(super) fn first_proxy(&self) -> Option<Spot> {
        self.proxy
    }

    /// Says that what stands at `spot` needs a model with proxies.
    pub(super) fn note_proxy(&mut self, spot: Spot) {
        if self.proxy.is_none_or(|first| spot < first) {
            self.proxy = Some(spot);
        }
    }

    /// Declares a location.
    pub(super) fn declare(&mut self, name: &str, spot: Spot) -> Result<(), Diagnostic> {
        if self.locations.iter().any(|known| known.text == name) {
            return Err(Diagnostic::new(Code::M0107, spot, format!("`{name}` is declared twice")));
        }
        self.location(name, spot).map(|_| ())
    }

    /// A location by its name; one that is not declared starts at zero.
    pub(super) fn location(&mut self, name: &str, spot: Spot) -> Result<usize, Diagnostic> {
        if let Some(index) = self.locations.iter().position(|known| known.text == name) {
            return Ok(index);
        }
        if !is_name(name) || is_register(name) {
            return Err(Diagnostic::new(Code::M0102, spot, format!("`{name}` names no location")));
        }
        if self.locations.len() == MAX_LOCATIONS {
            let message = format!("a test has at most {MAX_LOCATIONS} locations");
            return Err(Diagnostic::new(Code::M0109, spot, message));
        }
        self.locations.push(Name {
            text: name.to_owned(),
            spot,
            init: 0,
            alias: None,
            is_initialized: false,
        });
        Ok(self.locations.len() - 1)
    }

    /// A location that the test has mentioned before.
    pub(super) fn known_location(&self, name: &str, spot: Spot) -> Result<usize, Diagnostic> {
        self.locations.iter().position(|known| known.text == name).ok_or_else(|| {
            Diagnostic::new(Code::M0106, spot, format!("the test has no location `{name}`"))
        })
    }

    pub(super) fn add_thread(
        &mut self,
        number: u32,
        position: Position,
        spot: Spot,
    ) -> Result<(), Diagnostic> {
        if self.columns.iter().any(|column| column.thread.number == number) {
            return Err(Diagnostic::new(Code::M0107, spot, format!("P{number} is there twice")));
        }
        if self.columns.len() == MAX_THREADS {
            let message = format!("a test has at most {MAX_THREADS} threads");
            return Err(Diagnostic::new(Code::M0109, spot, message));
        }
        self.columns.push(Column {
            thread: Thread {
                number,
                position,
                registers: Vec::new(),
                init: Vec::new(),
                code: Vec::new(),
            },
            labels: Vec::new(),
            jumps: Vec::new(),
            initialized: Vec::new(),
        });
        Ok(())
    }

    /// A thread by the number in its name.
    pub(super) fn thread(&self, number: u32, spot: Spot) -> Result<usize, Diagnostic> {
        self.columns
            .iter()
            .position(|column| column.thread.number == number)
            .ok_or_else(|| Diagnostic::new(Code::M0106, spot, format!("there is no P{number}")))
    }

    /// A register of a thread by its name; registers start at zero.
    pub(super) fn register(
        &mut self,
        column: usize,
        name: &str,
        spot: Spot,
    ) -> Result<usize, Diagnostic> {
        if !is_register(name) {
            let message =
                format!("`{name}` is no register; registers are called `r0`, `r1` and so on");
            return Err(Diagnostic::new(Code::M0102, spot, message));
        }
        let thread = &mut self.columns[column].thread;
        if let Some(index) = thread.registers.iter().position(|known| known == name) {
            return Ok(index);
        }
        thread.registers.push(name.to_owned());
        thread.init.push(0);
        Ok(thread.registers.len() - 1)
    }

    /// Gives what a declaration names its initial value.
    pub(super) fn initialize(&mut self, declared: &Declared<'_>) -> Result<(), Diagnostic> {
        let spot = declared.spot;
        match &declared.what {
            Declaration::Location { name, initial } => {
                let value = self.value(initial, spot)?;
                let location = self.location(name, spot)?;
                self.locations[location].init = value;
                self.locations[location].is_initialized = true;
            }
            Declaration::Register { thread, name, initial } => {
                let value = self.value(initial, spot)?;
                let column = self.thread(*thread, spot)?;
                let register = self.register(column, name, spot)?;
                let column = &mut self.columns[column];
                // Saying the same twice is harmless.
                if column.initialized.contains(&register) && column.thread.init[register] != value {
                    let message = format!("P{thread}:{name} is declared twice");
                    return Err(Diagnostic::new(Code::M0107, spot, message));
                }
                column.initialized.push(register);
                column.thread.init[register] = value;
            }
            Declaration::Alias { name, proxy, of } => {
                let target = self.location(of, spot)?;
                let location = self.location(name, spot)?;
                self.locations[location].alias = Some((*proxy, target));
                self.note_proxy(spot);
            }
        }
        Ok(())
    }

    fn value(&mut self, initial: &Initial<'_>, spot: Spot) -> Result<Word, Diagnostic> {
        match initial {
            Initial::Number(value) => Ok(*value),
            Initial::AddressOf(name) => {
                let location = self.location(name, spot)?;
                // At most `MAX_LOCATIONS`, so this neither wraps nor overflows.
                let steps = Word::try_from(location).unwrap_or(Word::MAX);
                Ok(FIRST_ADDRESS.wrapping_add(ADDRESS_STEP.wrapping_mul(steps)))
            }
        }
    }

    pub(super) fn add_label(
        &mut self,
        column: usize,
        name: &str,
        spot: Spot,
    ) -> Result<(), Diagnostic> {
        let column = &mut self.columns[column];
        if column.labels.iter().any(|(known, _)| known == name) {
            return Err(Diagnostic::new(
                Code::M0107,
                spot,
                format!("label `{name}` is there twice"),
            ));
        }
        column.labels.push((name.to_owned(), column.thread.code.len()));
        Ok(())
    }

    pub(super) fn add_line(&mut self, column: usize, line: Line) -> Result<(), Diagnostic> {
        let code = &mut self.columns[column].thread.code;
        if code.len() == MAX_INSTRUCTIONS {
            let message = format!("a thread has at most {MAX_INSTRUCTIONS} instructions");
            return Err(Diagnostic::new(Code::M0109, line.spot, message));
        }
        code.push(line);
        Ok(())
    }

    /// Says that the line added next goes to a label.
    pub(super) fn add_jump(&mut self, column: usize, label: &str, spot: Spot) {
        let column = &mut self.columns[column];
        column.jumps.push((column.thread.code.len(), label.to_owned(), spot));
    }

    /// The locations and threads, with aliases and labels resolved.
    pub(super) fn finish(mut self) -> Result<(Vec<Location>, Vec<Thread>), Vec<Diagnostic>> {
        let mut found = Vec::new();
        for column in &mut self.columns {
            for (line, label, spot) in &column.jumps {
                let target = column.labels.iter().find(|(known, _)| known == label);
                match (target, column.thread.code.get_mut(*line).map(|l| &mut l.instruction)) {
                    (Some((_, target)), Some(Instruction::Branch(branch))) => {
                        branch.target = *target
                    }
                    (None, _) => {
                        let message = format!("the thread has no label `{label}`");
                        found.push(Diagnostic::new(Code::M0106, *spot, message));
                    }
                    // The line of the branch was refused itself.
                    (Some(_), _) => {}
                }
            }
        }
        let resolved: Vec<Result<(usize, usize), Diagnostic>> =
            (0..self.locations.len()).map(|location| self.resolve(location)).collect();
        let mut locations = Vec::with_capacity(self.locations.len());
        for (name, place) in self.locations.iter().zip(resolved) {
            match place {
                Ok((object, mapping)) => locations.push(Location {
                    name: name.text.clone(),
                    object: index(object),
                    mapping: index(mapping),
                    is_alias: name.alias.is_some(),
                    init: self.locations[object].init,
                }),
                Err(one) => found.push(one),
            }
        }
        if found.is_empty() {
            return Ok((locations, self.columns.into_iter().map(|column| column.thread).collect()));
        }
        Err(found)
    }

    /// The memory of a location and the virtual address by which it is reached: an alias by a proxy has the
    /// address of what it aliases, a generic alias has an address of its own.
    fn resolve(&self, location: usize) -> Result<(usize, usize), Diagnostic> {
        let mut mapping = None;
        let mut at = location;
        for _ in 0..=self.locations.len() {
            match self.locations[at].alias {
                None => return Ok((at, mapping.unwrap_or(at))),
                Some((proxy, of)) => {
                    if proxy == Proxy::Generic && mapping.is_none() {
                        mapping = Some(at);
                    }
                    at = of;
                }
            }
        }
        let name = &self.locations[location];
        let message = format!("`{}` is an alias of itself", name.text);
        Err(Diagnostic::new(Code::M0110, name.spot, message))
    }
}

/// Places are few: see `MAX_LOCATIONS`.
fn index(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
