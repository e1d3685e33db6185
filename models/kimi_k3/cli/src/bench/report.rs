//! What a measurement says, as a table and as JSON.

use std::fmt::Write;

use kernel_runtime::timing::Times;
use serde::Serialize;

/// What `--json` writes.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) device: String,
    pub(super) driver: u32,
    pub(super) seed: u64,
    pub(super) rank: u32,
    pub(super) ranks: u64,
    pub(super) context: u64,
    /// Read and written.
    pub(super) copy_bytes_per_second: f64,
    pub(super) steps: Vec<StepRow>,
}

/// Microseconds of several runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Microseconds {
    median: f64,
    least: f64,
    greatest: f64,
    runs: usize,
}

impl From<Times> for Microseconds {
    fn from(times: Times) -> Microseconds {
        let Times { median, least, greatest, runs } = times;
        Microseconds { median, least, greatest, runs }
    }
}

/// A step of so many rows.
#[derive(Debug, Serialize)]
pub(super) struct StepRow {
    rows: u64,
    /// One start of the graph of all nodes.
    microseconds: Microseconds,
    bytes: u64,
    terabytes_per_second: f64,
    percent_of_copy_rate: f64,
    weight_bytes: u64,
    state_bytes: u64,
    step_bytes: u64,
    graph_nodes: usize,
    logits_are_finite: bool,
    /// Sum over the kernels, each alone.
    kernel_microseconds: f64,
    kernels: Vec<KernelRow>,
}

/// All launches of a kernel in a step, alone and one after the other.
#[derive(Debug, Serialize)]
pub(super) struct KernelRow {
    kernel: String,
    /// The first node that launches it.
    first_node: String,
    launches: usize,
    /// Of one launch.
    microseconds: Microseconds,
    /// Of all launches.
    pub(super) step_microseconds: f64,
    /// Of all launches.
    bytes: u64,
    terabytes_per_second: f64,
    percent_of_copy_rate: f64,
}

/// Terabytes a second, and percent of a rate in bytes a second.
fn rate(bytes: u64, microseconds: f64, copy_rate: f64) -> (f64, f64) {
    if microseconds <= 0.0 || copy_rate <= 0.0 {
        return (0.0, 0.0);
    }
    let rate = bytes as f64 / microseconds * 1e6;
    (rate / 1e12, 100.0 * rate / copy_rate)
}

impl StepRow {
    pub(super) fn new(
        rows: u64,
        step: Times,
        bytes: u64,
        copy_rate: f64,
        [weight_bytes, state_bytes, step_bytes]: [u64; 3],
        graph_nodes: usize,
        logits_are_finite: bool,
        kernels: Vec<KernelRow>,
    ) -> StepRow {
        let (terabytes_per_second, percent_of_copy_rate) = rate(bytes, step.median, copy_rate);
        StepRow {
            rows,
            microseconds: step.into(),
            bytes,
            terabytes_per_second,
            percent_of_copy_rate,
            weight_bytes,
            state_bytes,
            step_bytes,
            graph_nodes,
            logits_are_finite,
            kernel_microseconds: kernels.iter().map(|kernel| kernel.step_microseconds).sum(),
            kernels,
        }
    }
}

impl KernelRow {
    pub(super) fn new(
        kernel: String,
        first_node: String,
        launches: usize,
        times: Times,
        bytes: u64,
        copy_rate: f64,
    ) -> KernelRow {
        let (terabytes_per_second, percent_of_copy_rate) = rate(bytes, times.median, copy_rate);
        KernelRow {
            kernel,
            first_node,
            launches,
            microseconds: times.each_of(launches).into(),
            step_microseconds: times.median,
            bytes,
            terabytes_per_second,
            percent_of_copy_rate,
        }
    }
}

/// A step as text.
pub(super) fn table(step: &StepRow) -> String {
    let mut text = format!(
        "\nB = {}: {:.1} us a step ({:.1} to {:.1}, {} runs), {:.3} GB, {:.3} TB/s, {:.1} % of the copy rate; \
         kernels alone {:.1} us; {:.2} GB of weights\n",
        step.rows,
        step.microseconds.median,
        step.microseconds.least,
        step.microseconds.greatest,
        step.microseconds.runs,
        step.bytes as f64 / 1e9,
        step.terabytes_per_second,
        step.percent_of_copy_rate,
        step.kernel_microseconds,
        step.weight_bytes as f64 / 1e9,
    );
    text.push_str(
        "launches    us each    us a step        MB     TB/s  % of copy  kernel (first node)\n",
    );
    for kernel in &step.kernels {
        // A text takes all that is written to it.
        let _ = writeln!(
            text,
            "{:8} {:10.2} {:12.1} {:9.2} {:8.3} {:10.1}  {} ({})",
            kernel.launches,
            kernel.microseconds.median,
            kernel.step_microseconds,
            kernel.bytes as f64 / 1e6,
            kernel.terabytes_per_second,
            kernel.percent_of_copy_rate,
            kernel.kernel,
            kernel.first_node,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_bytes_and_times() {
        let times = Times { median: 100.0, least: 90.0, greatest: 200.0, runs: 5 };
        let kernel = KernelRow::new("gemv".into(), "layer0.x".into(), 4, times, 400_000_000, 8e12);
        assert_eq!(kernel.microseconds.median, 25.0);
        assert_eq!((kernel.terabytes_per_second, kernel.percent_of_copy_rate), (4.0, 50.0));
        let step = StepRow::new(2, times, 200_000_000, 8e12, [1, 2, 3], 7, true, vec![kernel]);
        assert_eq!((step.percent_of_copy_rate, step.kernel_microseconds), (25.0, 100.0));
        let text = table(&step);
        assert!(text.contains("B = 2: 100.0 us a step (90.0 to 200.0, 5 runs)"), "{text}");
        assert!(
            text.contains("       4      25.00        100.0    400.00    4.000       50.0  gemv"),
            "{text}"
        );
        assert_eq!(rate(1, 0.0, 1.0), (0.0, 0.0));
    }
}
