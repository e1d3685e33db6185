//! What a measurement says, as a table and as JSON.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::contenders::Contender;
use crate::measure::Timed;

/// Times of several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// A tenth of the runs is faster.
    pub(crate) p10: f64,
    /// A tenth of the runs is slower.
    pub(crate) p90: f64,
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    /// Of values in any order; zeros of none.
    pub(crate) fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        // Between two neighbours in proportion.
        let at = |part: f64| {
            let place = part * sorted.len().saturating_sub(1) as f64;
            let value = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
            let (low, high) = (value(place.floor() as usize), value(place.ceil() as usize));
            low + (high - low) * place.fract()
        };
        Spread { median: at(0.5), p10: at(0.1), p90: at(0.9), least: at(0.0), greatest: at(1.0) }
    }
}

/// A contender with its times.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) spread: Spread,
    bytes: u64,
    terabytes_per_second: f64,
    percent_of_copy_rate: f64,
    json: Value,
}

impl Row {
    /// The times of a contender beside the rate of copies in bytes a second.
    pub(crate) fn new(contender: &Contender<'_>, timed: &Timed, copy_rate: f64) -> Row {
        let spread = Spread::of(&timed.microseconds);
        let bytes = contender.bytes;
        let rate = if spread.median > 0.0 { bytes as f64 / spread.median * 1e6 } else { 0.0 };
        let percent = if copy_rate > 0.0 { 100.0 * rate / copy_rate } else { 0.0 };
        let kernels: Vec<Value> = contender
            .links
            .iter()
            .zip(&timed.registers)
            .map(|(link, registers)| {
                let (head, launch) = (link.kernel.head(), link.kernel.launch());
                json!({
                    "artefact": head.name,
                    "file": head.file,
                    "kernel": head.kernel,
                    "bindings": head.bindings,
                    "grid": launch.grid,
                    "threads": launch.threads,
                    "shared_bytes": u64::from(launch.static_shared_bytes)
                        + u64::from(launch.dynamic_shared_bytes),
                    "registers": registers,
                    "starts_early": head.signature.starts_early,
                })
            })
            .collect();
        let json = json!({
            "name": contender.name,
            "kernels": kernels,
            "microseconds": {
                "median": spread.median,
                "p10": spread.p10,
                "p90": spread.p90,
                "least": spread.least,
                "greatest": spread.greatest,
                "runs": timed.microseconds.len(),
            },
            "launches_of_a_graph": timed.rounds.launches,
            "sets_of_buffers": timed.rounds.copies,
            "flushed_before_each_start": timed.rounds.is_flushed,
            "bytes": bytes,
            "terabytes_per_second": rate / 1e12,
            "percent_of_copy_rate": percent,
        });
        Row {
            name: contender.name.clone(),
            spread,
            bytes,
            terabytes_per_second: rate / 1e12,
            percent_of_copy_rate: percent,
            json,
        }
    }

    /// As JSON.
    pub(crate) fn json(&self) -> &Value {
        &self.json
    }
}

/// The contenders of a group, the fastest first.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut sorted: Vec<&Row> = rows.iter().collect();
    sorted.sort_by(|a, b| a.spread.median.total_cmp(&b.spread.median));
    let mut text =
        "\n us median       p10       p90        MB     TB/s  % of copy  kernel\n".to_owned();
    for row in sorted {
        // A text takes all that is written to it.
        let _ = writeln!(
            text,
            "{:10.3} {:9.3} {:9.3} {:9.3} {:8.3} {:10.1}  {}",
            row.spread.median,
            row.spread.p10,
            row.spread.p90,
            row.bytes as f64 / 1e6,
            row.terabytes_per_second,
            row.percent_of_copy_rate,
            row.name,
        );
    }
    text
}

/// Now, in UTC: `2026-11-30T01:50:00Z`.
pub(crate) fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    date(seconds)
}

/// The date of a number of seconds since 1970, in the Gregorian calendar.
fn date(seconds: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut days = seconds / 86_400;
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use crate::contenders::groups;
    use crate::measure::Rounds;

    #[test]
    fn spreads_are_quantiles_of_the_runs() {
        let spread = Spread::of(&[5.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!((spread.median, spread.least, spread.greatest), (3.0, 1.0, 5.0));
        assert!((spread.p10 - 1.4).abs() < 1e-12 && (spread.p90 - 4.6).abs() < 1e-12);
        assert_eq!(Spread::of(&[1.0, 2.0]).median, 1.5);
        assert_eq!(Spread::of(&[]).p90, 0.0);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_796_003_400, "2026-11-30T01:50:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), text);
        }
        assert!(now().as_str() > "2026");
    }

    #[test]
    fn rows_have_rates_and_what_was_launched() {
        let bundle = crate::testing::bundle();
        let words = "--bundle b --kernel gemv".split_whitespace().map(str::to_owned);
        let groups = groups(&bundle, "sm_90a", &Arguments::parse(words).unwrap()).unwrap();
        let timed = |us: f64| Timed {
            rounds: Rounds { copies: 2, launches: 4, is_flushed: true },
            microseconds: vec![us; 3],
            registers: vec![40],
        };
        let contenders = &groups[0].contenders;
        let rows = [
            Row::new(&contenders[0], &timed(2.0), 4e9),
            Row::new(&contenders[1], &timed(1.0), 4e9),
        ];
        // 4480 bytes in a microsecond.
        assert_eq!(rows[1].json()["percent_of_copy_rate"], 112.0);
        assert_eq!(rows[1].json()["kernels"][0]["grid"], json!([16, 1, 1]));
        assert_eq!(rows[1].json()["microseconds"]["runs"], 3);
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("    0.004      112.0  gemv-ROWS4"), "{text}");
        assert!(lines[3].ends_with("56.0  gemv"), "{text}");
    }
}
