//! The decode steps whose kernels are compiled ahead: the sets of `kernels/build.toml`.

use crate::plan::DecodeOptions;

/// A model that there are sets for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Kimi K3.
    K3,
    /// kimi-k3-mini.
    Mini,
}

/// A set: what `kernelc build models/kimi_k3/kernels --set NAME` compiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSet {
    /// Its name.
    pub name: &'static str,
    /// The model.
    pub model: Model,
    /// The step that it has every kernel of.
    pub options: DecodeOptions,
}

const fn set(name: &'static str, model: Model, ranks: u64, rows: u64) -> KernelSet {
    KernelSet { name, model, options: DecodeOptions { rows, ranks, context: CONTEXT } }
}

/// Positions of a request in every set: pages of the cache are counted in a kernel's type, so a plan for a set asks
/// for just as many.
pub const CONTEXT: u64 = 8192;

/// All sets.
pub const SETS: [KernelSet; 11] = [
    set("tp16", Model::K3, 16, 1),
    set("tp16_m2", Model::K3, 16, 2),
    set("tp16_m4", Model::K3, 16, 4),
    set("tp16_m8", Model::K3, 16, 8),
    set("tp8", Model::K3, 8, 1),
    set("tp8_m2", Model::K3, 8, 2),
    set("tp8_m4", Model::K3, 8, 4),
    set("tp8_m8", Model::K3, 8, 8),
    set("mini", Model::Mini, 1, 1),
    set("mini_m2", Model::Mini, 1, 2),
    set("mini_m8", Model::Mini, 1, 8),
];
