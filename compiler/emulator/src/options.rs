//! How a run is done.

/// How a run is done. Results do not depend on `parallel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Runs CTAs on the threads of the caller's rayon pool.
    pub parallel: bool,
    /// In a kernel that may start early (`pdl: consumer` or `both`), what other kernels may still write is
    /// poison until `grid_wait`, and what is stored before it is lost.
    pub producer_running: bool,
    /// Statements that one CTA may execute.
    pub max_steps: u64,
}

impl Options {
    /// All threads of the pool, producers running, a limit that no sensible kernel reaches.
    pub const STANDARD: Options =
        Options { parallel: true, producer_running: true, max_steps: 50_000_000 };
}
