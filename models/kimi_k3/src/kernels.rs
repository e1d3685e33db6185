//! The kernels as text: one family a file.

/// A file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFile {
    /// File name, as imports and messages use it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// Every file, sorted by name.
        pub const FILES: &[KernelFile] = &[$(KernelFile {
            name: $name,
            text: include_str!(concat!("../kernels/", $name)),
        }),*];
    };
}

files!(
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

/// The file of that name.
pub fn file(name: &str) -> Option<KernelFile> {
    FILES.iter().copied().find(|f| f.name == name)
}
