//! How loading goes on, as the user sees it: a bar on a terminal, lines where they were asked for, else nothing.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kimi_k3::load::{Progress, Watch};
use kimi_k3::{Checkpoint, Config, manifest};

use crate::error::CliError;
use crate::{interrupt, output};

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(1);

/// A gigabyte of messages.
const GB: f64 = 1e9;

/// Checks every tensor that the model needs, its elements too.
///
/// # Errors
/// One is missing, is another, or holds an element that is no number; or it was asked to stop.
pub(crate) fn check(config: &Config, checkpoint: &Checkpoint) -> Result<(), CliError> {
    manifest::visit(config, &mut |entry| {
        interrupt::check()?;
        Ok(checkpoint.entry(&entry).map(drop)?)
    })
}

/// Shows how many bytes are loaded, and stops on Ctrl-C.
pub(crate) struct LoadWatch {
    shows: Shows,
    started: Instant,
    last: Mutex<Instant>,
}

enum Shows {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl LoadWatch {
    /// A watch; `lines` asks for lines where there is no terminal.
    pub(crate) fn new(lines: bool) -> LoadWatch {
        let now = Instant::now();
        let shows = if std::io::stderr().is_terminal() {
            Shows::Bar(bar())
        } else if lines {
            Shows::Lines
        } else {
            Shows::Nothing
        };
        LoadWatch { shows, started: now, last: Mutex::new(now) }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        match &self.shows {
            Shows::Bar(bar) => bar.finish_and_clear(),
            Shows::Lines | Shows::Nothing => {}
        }
    }

    /// Whether a line is due; the last weight always has one.
    fn is_due(&self, progress: Progress) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.elapsed() >= EVERY || progress.done == progress.all;
        if is_due {
            *last = Instant::now();
        }
        is_due
    }
}

impl Watch for LoadWatch {
    fn loaded(&self, progress: Progress) {
        match &self.shows {
            Shows::Bar(bar) => {
                bar.set_length(progress.all);
                bar.set_position(progress.done);
            }
            Shows::Lines if self.is_due(progress) => {
                output::note(&line(progress, self.started.elapsed()));
            }
            Shows::Lines | Shows::Nothing => {}
        }
    }

    fn goes_on(&self) -> bool {
        !interrupt::asked()
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let form = "loading [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}";
    match ProgressStyle::with_template(form) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn line(progress: Progress, elapsed: Duration) -> String {
    let (done, all) = (progress.done as f64 / GB, progress.all as f64 / GB);
    let rate = done / elapsed.as_secs_f64().max(1e-9);
    format!("loading: {done:.3} of {all:.3} GB, {rate:.2} GB/s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_bytes_and_rate() {
        let progress = Progress { done: 49_000_000_000, all: 98_000_000_000 };
        let line = line(progress, Duration::from_secs(10));
        assert_eq!(line, "loading: 49.000 of 98.000 GB, 4.90 GB/s");
    }

    #[test]
    fn lines_come_once_a_second_and_at_the_end() {
        let watch = LoadWatch::new(true);
        assert!(!watch.is_due(Progress { done: 1, all: 2 }));
        assert!(watch.is_due(Progress { done: 2, all: 2 }));
    }
}
