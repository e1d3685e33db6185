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
    /// In which order what runs at once takes turns.
    pub schedule: Schedule,
    /// In a plan, a kernel with `pdl: consumer` or `both` starts while the kernel before it still runs.
    pub overlap: bool,
}

/// In which order CTAs of a cluster take turns. A kernel without faults gives the same bits in every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How the next one is chosen.
    pub policy: Policy,
    /// Of the choices.
    pub seed: u64,
}

/// How the next one is chosen, of those that can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Each in its turn.
    RoundRobin,
    /// Any.
    Random,
    /// One, chosen by the seed, stays behind all others for as long as it can.
    Adversarial,
}

impl Schedule {
    /// Each in its turn.
    pub const STANDARD: Schedule = Schedule { policy: Policy::RoundRobin, seed: 0 };

    /// One of many: each number gives another one, all policies in turn.
    pub fn numbered(seed: u64, number: u64) -> Schedule {
        let policy = match number % 3 {
            0 => Policy::Random,
            1 => Policy::Adversarial,
            _ => Policy::RoundRobin,
        };
        Schedule { policy, seed: seed.wrapping_add(number) }
    }
}

impl Options {
    /// All threads of the pool, producers running, a limit that no sensible kernel reaches, each in its turn, kernels of
    /// a plan one after the other.
    pub const STANDARD: Options = Options {
        parallel: true,
        producer_running: true,
        max_steps: 50_000_000,
        schedule: Schedule::STANDARD,
        overlap: false,
    };
}
