//! Names of a function while it is read: registers, variables and labels by scope.

use rustc_hash::FxHashMap;

use super::super::{Instruction, RegId, Targets, Var};

#[derive(Clone, Copy, Debug)]
pub(super) enum Binding {
    Reg(RegId),
    Var(u32),
}

#[derive(Debug, Default)]
pub(super) struct Scope {
    pub(super) parent: Option<usize>,
    pub(super) names: FxHashMap<String, Binding>,
    /// `%r<10>`: prefix and count.
    pub(super) ranges: Vec<(String, u64)>,
}

/// The function that is being read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) scopes: Vec<Scope>,
    pub(super) open: Vec<usize>,
    pub(super) regs: u32,
    pub(super) vars: Vec<Var>,
    pub(super) instructions: Vec<Instruction>,
    pub(super) labels: FxHashMap<(usize, String), u32>,
    pub(super) tables: FxHashMap<(usize, String), Vec<String>>,
    pub(super) branches: Vec<(u32, usize, String, bool)>,
}

impl Draft {
    pub(super) fn open_scope(&mut self) {
        self.scopes.push(Scope { parent: self.open.last().copied(), ..Scope::default() });
        self.open.push(self.scopes.len() - 1);
    }

    pub(super) fn scope(&self) -> usize {
        self.open.last().copied().unwrap_or(0)
    }

    pub(super) fn declare_reg(&mut self, name: &str) -> RegId {
        let id = self.regs;
        self.regs += 1;
        let scope = self.scope();
        self.scopes[scope].names.insert(name.to_owned(), Binding::Reg(id));
        id
    }

    pub(super) fn declare_var(&mut self, var: Var) -> u32 {
        let id = self.vars.len() as u32;
        let scope = self.scope();
        self.scopes[scope].names.insert(var.name.clone(), Binding::Var(id));
        self.vars.push(var);
        id
    }

    /// What a name stands for here, innermost scope first.
    pub(super) fn find(&mut self, name: &str) -> Option<Binding> {
        let mut scope = Some(self.scope());
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        while let Some(index) = scope {
            let here = &self.scopes[index];
            if let Some(&binding) = here.names.get(name) {
                return Some(binding);
            }
            let in_range = here.ranges.iter().any(|(prefix, count)| {
                let Some(tail) = name.strip_prefix(prefix.as_str()) else { return false };
                let plain = !tail.is_empty() && tail.len() <= digits;
                // `%r01` is no name of the range.
                let first = tail == "0" || !tail.starts_with('0');
                plain && first && tail.parse::<u64>().is_ok_and(|number| number < *count)
            });
            if in_range {
                let id = self.regs;
                self.regs += 1;
                self.scopes[index].names.insert(name.to_owned(), Binding::Reg(id));
                return Some(Binding::Reg(id));
            }
            scope = here.parent;
        }
        None
    }

    fn look_up<'t, T>(
        &self,
        table: &'t FxHashMap<(usize, String), T>,
        from: usize,
        name: &str,
    ) -> Option<(usize, &'t T)> {
        let mut scope = Some(from);
        while let Some(index) = scope {
            if let Some(found) = table.get(&(index, name.to_owned())) {
                return Some((index, found));
            }
            scope = self.scopes.get(index)?.parent;
        }
        None
    }

    pub(super) fn resolve_branches(&mut self) {
        for (index, scope, name, by_table) in std::mem::take(&mut self.branches) {
            let labels = if by_table {
                self.look_up(&self.tables, scope, &name).and_then(|(at, names)| {
                    names
                        .iter()
                        .map(|name| self.look_up(&self.labels, at, name).map(|(_, &to)| to))
                        .collect::<Option<Vec<u32>>>()
                })
            } else {
                self.look_up(&self.labels, scope, &name).map(|(_, &to)| vec![to])
            };
            if let Some(labels) = labels {
                self.instructions[index as usize].targets = Targets::Labels(labels);
            }
        }
    }
}
