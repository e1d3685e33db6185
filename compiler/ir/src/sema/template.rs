//! A checked kernel whose `const` parameters are still open, and the values given for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel_dsl::ast;
use kernel_dsl::source::Span;

use super::constants::ConstValue;
use super::lower;
use super::program::Modules;
use crate::target::Target;

/// A kernel of a checked file.
#[derive(Debug, Clone)]
pub struct KernelTemplate {
    modules: Arc<Modules>,
    unit: usize,
    /// Which of the kernels of the file.
    index: usize,
}

/// The type of a `const` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConstType {
    /// `int`
    Int,
    /// `bool`
    Bool,
}

/// A `const` parameter, for lists and messages.
#[derive(Debug, Clone, PartialEq)]
pub struct ConstParam {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ConstType,
    /// Whether it may be left out of the bindings.
    pub has_default: bool,
    /// Where it is declared.
    pub span: Span,
}

/// The alternatives that an autotuner may try for a `const` parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuning {
    /// Name of the parameter.
    pub name: String,
    /// Values in the order of the text.
    pub values: Vec<ConstValue>,
}

impl KernelTemplate {
    pub(super) fn new(modules: Arc<Modules>, unit: usize, index: usize) -> Self {
        KernelTemplate { modules, unit, index }
    }

    pub(super) fn modules(&self) -> &Modules {
        &self.modules
    }

    pub(super) fn unit(&self) -> usize {
        self.unit
    }

    pub(super) fn file(&self) -> &ast::File {
        &self.modules.units[self.unit].file
    }

    pub(super) fn kernel(&self) -> &ast::Kernel {
        let kernel = self.file().kernels().nth(self.index);
        kernel.expect("`check` makes one template for each kernel of the file")
    }

    /// The item that holds the kernel.
    pub(super) fn item_span(&self) -> Span {
        let kernel = self.kernel();
        kernel.header_span.to(kernel.body.span)
    }

    /// Name in the source.
    pub fn name(&self) -> &str {
        &self.kernel().name.text
    }

    /// Span of the name.
    pub fn span(&self) -> Span {
        self.kernel().name.span
    }

    /// Symbol in the cubin: what `export` says, else the name.
    pub fn export(&self) -> &str {
        self.kernel().export.as_ref().map_or(self.name(), |export| &export.value.value)
    }

    /// The targets that the file states, in the order of the text.
    pub fn targets(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for target in self.file().targets().filter_map(|name| Target::from_name(&name.text)) {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }

    /// The `const` parameters in the order of declaration.
    pub fn const_params(&self) -> Vec<ConstParam> {
        let describe = |param: &ast::ConstParam| ConstParam {
            name: param.name.text.clone(),
            ty: if param.ty.text == "bool" { ConstType::Bool } else { ConstType::Int },
            has_default: param.default.is_some(),
            span: param.name.span,
        };
        self.kernel().consts.iter().map(describe).collect()
    }

    /// The `tune` clause: what an autotuner may try, in the order of the text. An entry whose values
    /// need bindings has none here.
    pub fn tunings(&self) -> Vec<Tuning> {
        lower::tunings(self)
    }

    /// Those of the given `const` parameters whose value is not their default: without them the bindings would mean
    /// another kernel.
    pub fn named(&self, bindings: &Bindings) -> Vec<String> {
        lower::named(self, bindings)
    }
}

/// Values for `const` parameters by name, and whether the kernel writes its events down.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bindings {
    values: BTreeMap<String, ConstValue>,
    records: Option<u32>,
}

impl Bindings {
    /// No values: every parameter takes its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a value; one that was set before is replaced.
    pub fn set(&mut self, name: impl Into<String>, value: ConstValue) {
        self.values.insert(name.into(), value);
    }

    /// Adds an integer.
    #[must_use]
    pub fn int(mut self, name: &str, value: i64) -> Self {
        self.set(name, ConstValue::Int(value));
        self
    }

    /// Adds a truth value.
    #[must_use]
    pub fn bool(mut self, name: &str, value: bool) -> Self {
        self.set(name, ConstValue::Bool(value));
        self
    }

    /// The same, for a kernel that writes its events down: it has a last parameter with room for so many records.
    #[must_use]
    pub fn traced(mut self, records: u32) -> Self {
        self.records = Some(records.clamp(1, kernel_abi::trace::MAX_RECORDS));
        self
    }

    /// Room for records of events, where the kernel writes them down.
    pub fn records(&self) -> Option<u32> {
        self.records
    }

    /// The value given for a parameter.
    pub fn get(&self, name: &str) -> Option<ConstValue> {
        self.values.get(name).copied()
    }

    /// All values by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, ConstValue)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl FromIterator<(String, ConstValue)> for Bindings {
    fn from_iter<I: IntoIterator<Item = (String, ConstValue)>>(iter: I) -> Self {
        Bindings { values: iter.into_iter().collect(), records: None }
    }
}
