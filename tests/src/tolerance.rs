//! Bounds of what the kernels of kimi-k3-mini compute: the column for bf16 of the table in
//! `models/kimi_k3/mini/README.md`. Intermediate values of one position have the bound of a single position there.

/// Root mean square of the differences of logits, over all entries.
pub const LOGIT_RMS: f64 = 0.3;
/// Mean over the positions of the divergence, nats.
pub const DIVERGENCE_MEAN: f64 = 3e-3;
/// Divergence of any position.
pub const DIVERGENCE: f64 = 5e-2;
/// Above this margin the greedy choice is the reference's.
pub const MARGIN: f64 = 0.3;
/// Relative L2 of the residual stream, mean over positions and layers.
pub const STREAM_MEAN: f64 = 0.03;
/// Relative L2 of the residual stream, or of an intermediate value, of one position.
pub const STREAM: f64 = 0.3;
/// Relative L2 of a recurrent state.
pub const STATE: f64 = 0.05;
/// Relative L2 of a cache, and of a convolution window, which holds projections too.
pub const CACHE: f64 = 0.08;
/// Gap between the last picked and the first not picked score above which the picks are the reference's.
pub const PICK_GAP: f64 = 0.01;
