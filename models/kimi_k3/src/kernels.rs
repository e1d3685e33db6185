//! The kernels as text: one family a file, of the specialised path one kernel.

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFile {
    /// File name, as imports and messages use it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($(#[$doc:meta])* $list:ident: $($name:literal),* $(,)?) => {
        $(#[$doc])*
        pub const $list: &[KernelFile] = &[$(KernelFile {
            name: $name,
            text: include_str!(concat!("../kernels/", $name)),
        }),*];
    };
}

files!(
    /// Every file of the kernels that plans name, sorted by name.
    FILES:
    "argmax.tile",
    "attn_res_norm.tile",
    "embed.tile",
    "experts.tile",
    "gemv.tile",
    "group_experts.tile",
    "kda_conv.tile",
    "kda_gate.tile",
    "kda_norm.tile",
    "kda_recurrence.tile",
    "latent_norm.tile",
    "mla_absorb.tile",
    "mla_cache.tile",
    "mla_decode.tile",
    "mla_gate.tile",
    "mla_value.tile",
    "residual.tile",
    "rms_norm.tile",
    "router.tile",
    "silu_gate.tile",
    "situ.tile",
    "softmax.tile",
);

files!(
    /// Every file of the kernels that no plan names so far, sorted by name.
    SPECIALIZED:
    "specialized/argmax_shard.tile",
    "specialized/attn_res_norm.tile",
    "specialized/experts.tile",
    "specialized/kda_core.tile",
    "specialized/router.tile",
);

/// The file of that name.
pub fn file(name: &str) -> Option<KernelFile> {
    FILES.iter().chain(SPECIALIZED).copied().find(|f| f.name == name)
}
