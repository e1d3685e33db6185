//! The files of a program and what they see of each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel_dsl::ast;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::{FileId, Span};

use super::report::Reporter;

/// An `import` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// The file that holds the line.
    pub importer: FileId,
    /// The path as it is written; it is relative to the importing file.
    pub path: String,
    /// The string.
    pub span: Span,
}

/// A parsed file with the files that it imports, directly or not.
#[derive(Debug, Clone)]
pub struct Program {
    /// The root first.
    files: Vec<Arc<ast::File>>,
    links: BTreeMap<(FileId, String), Link>,
}

/// What an import line stands for.
#[derive(Debug, Clone)]
enum Link {
    File(usize),
    Failed(String),
}

impl Program {
    /// A program of one file.
    pub fn new(root: ast::File) -> Self {
        Program { files: vec![Arc::new(root)], links: BTreeMap::new() }
    }

    /// The import lines that nothing was given for yet; empty when the program is whole. Giving a file
    /// may add its own imports, so the driver asks again until nothing is missing.
    pub fn missing_imports(&self) -> Vec<Import> {
        let mut missing: Vec<Import> = Vec::new();
        for file in &self.files {
            for text in file.imports() {
                let key = (file.span.file, text.value.clone());
                let asked = missing.iter().any(|m| (m.importer, &m.path) == (key.0, &key.1));
                if !asked && !self.links.contains_key(&key) {
                    missing.push(Import { importer: key.0, path: key.1, span: text.span });
                }
            }
        }
        missing
    }

    /// The files, the root first.
    pub fn files(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().map(|file| file.span.file)
    }

    /// Whether the file is part of the program already; then [`Program::link`] is enough.
    pub fn contains(&self, file: FileId) -> bool {
        self.position(file).is_some()
    }

    /// Gives the file that an import line names. A file that several lines name has one `FileId`.
    pub fn add(&mut self, import: &Import, file: ast::File) {
        if self.position(file.span.file).is_none() {
            self.files.push(Arc::new(file.clone()));
        }
        self.link(import, file.span.file);
    }

    /// Says that an import line names a file which is part of the program; `false` when it is not.
    pub fn link(&mut self, import: &Import, file: FileId) -> bool {
        let Some(index) = self.position(file) else { return false };
        self.links.insert((import.importer, import.path.clone()), Link::File(index));
        true
    }

    /// Says why an import cannot be read; [`super::check`] reports it at the import line.
    pub fn fail(&mut self, import: &Import, reason: impl Into<String>) {
        let key = (import.importer, import.path.clone());
        self.links.insert(key, Link::Failed(reason.into()));
    }

    fn position(&self, file: FileId) -> Option<usize> {
        self.files.iter().position(|f| f.span.file == file)
    }

    /// Resolves all import lines; those that lead nowhere or in a circle are reported.
    pub(super) fn modules(&self, report: &mut Reporter) -> Modules {
        let mut units = Vec::new();
        for file in &self.files {
            let mut unit = Unit { file: file.clone(), imports: Vec::new(), complete: true };
            for text in file.imports() {
                match self.links.get(&(file.span.file, text.value.clone())) {
                    Some(Link::File(index)) => {
                        if !unit.imports.iter().any(|(known, _)| known == index) {
                            unit.imports.push((*index, text.span));
                        }
                    }
                    Some(Link::Failed(reason)) => {
                        unit.complete = false;
                        report.error(
                            Diagnostic::error(
                                Code::E0211,
                                format!("`{}` cannot be imported", text.value),
                            )
                            .label(text.span, reason.clone())
                            .help("the path is relative to the file that imports it"),
                        );
                    }
                    None => {
                        unit.complete = false;
                        report.error(
                            Diagnostic::error(
                                Code::E0211,
                                format!("`{}` cannot be imported", text.value),
                            )
                            .label(text.span, "nothing was given for this import")
                            .help("the path is relative to the file that imports it"),
                        );
                    }
                }
            }
            units.push(unit);
        }
        let modules = Modules { units };
        modules.report_cycles(report);
        modules
    }
}

/// All files with their imports resolved.
#[derive(Debug)]
pub(super) struct Modules {
    pub(super) units: Vec<Unit>,
}

/// One file with its imports resolved.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) file: Arc<ast::File>,
    /// Directly imported files, each with the line that names it.
    pub(super) imports: Vec<(usize, Span)>,
    /// False when an import failed: then unknown names are no news.
    pub(super) complete: bool,
}

impl Unit {
    fn constants(&self) -> impl Iterator<Item = &ast::Const> {
        self.file.items.iter().filter_map(|item| match &item.kind {
            ast::ItemKind::Const(c) => Some(c),
            ast::ItemKind::Target(_)
            | ast::ItemKind::Import(_)
            | ast::ItemKind::Atom(_)
            | ast::ItemKind::Kernel(_)
            | ast::ItemKind::Fn(_) => None,
        })
    }

    fn atoms(&self) -> impl Iterator<Item = &ast::Atom> {
        self.file.items.iter().filter_map(|item| match &item.kind {
            ast::ItemKind::Atom(atom) => Some(atom),
            ast::ItemKind::Target(_)
            | ast::ItemKind::Import(_)
            | ast::ItemKind::Const(_)
            | ast::ItemKind::Kernel(_)
            | ast::ItemKind::Fn(_) => None,
        })
    }
}

impl Modules {
    /// The units whose functions, constants and atoms `unit` sees: itself, then its imports.
    fn visible(&self, unit: usize) -> impl Iterator<Item = usize> {
        std::iter::once(unit).chain(self.units[unit].imports.iter().map(|(index, _)| *index))
    }

    /// The function that `name` means in `unit`, with the unit that defines it.
    pub(super) fn function(&self, unit: usize, name: &str) -> Option<(usize, &ast::Function)> {
        self.visible(unit).find_map(|u| {
            let found = self.units[u].file.fns().find(|f| f.name.text == name)?;
            Some((u, found))
        })
    }

    /// The constant that `name` means in `unit`, with the unit that defines it.
    pub(super) fn constant(&self, unit: usize, name: &str) -> Option<(usize, &ast::Const)> {
        self.visible(unit).find_map(|u| {
            let found = self.units[u].constants().find(|c| c.name.text == name)?;
            Some((u, found))
        })
    }

    /// The atom that `name` means in `unit`, with the unit that defines it.
    pub(super) fn atom(&self, unit: usize, name: &str) -> Option<(usize, &ast::Atom)> {
        self.visible(unit).find_map(|u| {
            let found = self.units[u].atoms().find(|atom| atom.name.text == name)?;
            Some((u, found))
        })
    }

    /// Names of the functions that `unit` sees.
    pub(super) fn function_names(&self, unit: usize) -> Vec<&str> {
        let units = self.visible(unit).map(|u| &self.units[u]);
        units.flat_map(|u| u.file.fns().map(|f| f.name.text.as_str())).collect()
    }

    /// Names of the constants that `unit` sees.
    pub(super) fn constant_names(&self, unit: usize) -> Vec<&str> {
        let units = self.visible(unit).map(|u| &self.units[u]);
        units.flat_map(|u| u.constants().map(|c| c.name.text.as_str())).collect()
    }

    /// Names of the atoms that `unit` sees.
    pub(super) fn atom_names(&self, unit: usize) -> Vec<&str> {
        let units = self.visible(unit).map(|u| &self.units[u]);
        units.flat_map(|u| u.atoms().map(|atom| atom.name.text.as_str())).collect()
    }

    /// Reports each import line that closes a circle.
    fn report_cycles(&self, report: &mut Reporter) {
        // 0: not seen, 1: on the path, 2: done
        let mut state = vec![0_u8; self.units.len()];
        let mut path: Vec<(usize, usize)> = vec![(0, 0)];
        if let Some(first) = state.first_mut() {
            *first = 1;
        }
        while let Some((unit, next)) = path.last_mut() {
            let Some(&(target, span)) = self.units[*unit].imports.get(*next) else {
                state[*unit] = 2;
                path.pop();
                continue;
            };
            *next += 1;
            match state[target] {
                0 => {
                    state[target] = 1;
                    path.push((target, 0));
                }
                1 => {
                    let mut diagnostic =
                        Diagnostic::error(Code::E0212, "these files import each other")
                            .label(span, "this import closes the circle");
                    let from = path.iter().position(|(u, _)| *u == target).unwrap_or(0);
                    for (on_path, after) in &path[from..path.len() - 1] {
                        let line = self.units[*on_path].imports[*after - 1].1;
                        diagnostic = diagnostic.secondary(line, "through this import");
                    }
                    report.error(diagnostic.help("move what both need to a third file"));
                }
                _ => {}
            }
        }
    }
}
