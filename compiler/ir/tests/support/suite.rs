//! The kernels of the file tests, as the language front makes them.

use std::path::{Path, PathBuf};

use kernel_dsl::source::SourceMap;
use kernel_ir::kernel::Kernel;
use kernel_ir::pipeline::{self, Front};
use kernel_ir::sema::{self, Bindings, ConstType, ConstValue, KernelTemplate};
use kernel_ir::target::Target;

/// Where the file tests lie.
pub(crate) const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/suite");

/// Every `.tile` file below a folder.
pub(crate) fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|end| end == "tile") {
            found.push(path);
        }
    }
}

/// The files of these folders of the suite, in order.
pub(crate) fn paths(folders: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    folders.iter().for_each(|folder| files(&Path::new(SUITE).join(folder), &mut found));
    found.sort();
    found
}

/// A file of the suite.
pub(crate) struct File {
    pub(crate) sources: SourceMap,
    pub(crate) front: Front,
    pub(crate) text: String,
}

/// Reads a file.
pub(crate) fn file(path: &Path) -> File {
    let text = std::fs::read_to_string(path).unwrap();
    let mut sources = SourceMap::new();
    let root = sources.add(path.to_string_lossy().into_owned(), text.clone());
    let mut read = |path: &str| std::fs::read_to_string(path).map_err(|error| error.to_string());
    let front = pipeline::front(&mut sources, root, &mut read);
    File { sources, front, text }
}

impl File {
    fn directive(&self, name: &str) -> Option<&str> {
        let mut lines = self.text.lines();
        lines.find_map(|line| line.strip_prefix("//@ ")?.strip_prefix(name)?.strip_prefix(':'))
    }

    /// Each kernel that the language accepts with the first bindings and the target of the file, and its name.
    pub(crate) fn kernels(&self, path: &Path) -> Vec<(String, Kernel)> {
        if self.front.has_errors() {
            return Vec::new();
        }
        let pairs = self.directive("bind").unwrap_or_default();
        let target = self.directive("target").and_then(|name| Target::from_name(name.trim()));
        let file = path.strip_prefix(SUITE).unwrap_or(path).display();
        let named = |template: &KernelTemplate| {
            let kernel = instantiated(template, pairs, target)?;
            Some((format!("{file}: {}", template.name()), kernel))
        };
        self.front.templates.iter().filter_map(named).collect()
    }
}

/// A kernel with bindings like `M = 4, N = 64`, for a target or its first one.
pub(crate) fn instantiated(
    template: &KernelTemplate,
    pairs: &str,
    target: Option<Target>,
) -> Option<Kernel> {
    let mut bindings = Bindings::new();
    for pair in pairs.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once('=').unwrap();
        let (name, value) = (name.trim(), value.trim().parse::<i64>().unwrap());
        let param = template.const_params().into_iter().find(|param| param.name == name);
        let value = match param {
            Some(param) if param.ty == ConstType::Bool => ConstValue::Bool(value != 0),
            Some(_) => ConstValue::Int(value),
            None => continue,
        };
        bindings.set(name, value);
    }
    let target = target.or(template.targets().first().copied()).unwrap_or(Target::Sm90a);
    sema::instantiate(template, &bindings, target).ok()
}
