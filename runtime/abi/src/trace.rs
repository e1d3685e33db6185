//! Events that a kernel writes down while it runs: the buffer that they lie in, and how they are shown.
//!
//! A traced kernel has a parameter [`PARAM`] behind its own, ahead of tensor maps: a list of u64. It has a part for each CTA and role of it, the first
//! one for what stands outside of roles: a word that counts the events that came, then three words a record: the event
//! and the multiprocessor, the time in nanoseconds, and the clock of the multiprocessor. One thread writes each part, so
//! that nothing waits for anything. Whoever launches the kernel fills the list with zeros before. An event that finds
//! no place is counted and not kept.

use std::fmt::Write;

use serde_json::json;

/// Name of the parameter; it is a word of the language, so that no author has it.
pub const PARAM: &str = "trace";

/// Words of a part ahead of its records.
pub const HEADER_WORDS: u32 = 1;

/// Words of a record.
pub const RECORD_WORDS: u32 = 3;

/// Records that a part has room for, where nothing else is asked for.
pub const RECORDS: u32 = 64;

/// Records of a part at most.
pub const MAX_RECORDS: u32 = 1 << 20;

/// Words of a buffer at most: it has less than 2^31 bytes.
const MAX_WORDS: u64 = (1 << 28) - 1;

/// Words of the buffer of a kernel with so many CTAs and roles and records of each; none where those are too many.
pub fn words(ctas: u64, roles: usize, records: u32) -> Option<u32> {
    let parts = ctas.checked_mul(roles as u64 + 1)?;
    let part = u64::from(HEADER_WORDS) + u64::from(RECORD_WORDS) * u64::from(records);
    let words = parts.checked_mul(part).filter(|&words| words <= MAX_WORDS)?;
    u32::try_from(words).ok()
}

/// Words of a part of a buffer with so many words, of a kernel with so many CTAs and roles.
pub fn part_words(words: u64, ctas: u64, roles: usize) -> u64 {
    words / ctas.saturating_mul(roles as u64 + 1).max(1)
}

/// Records that such a part has room for.
pub fn records(part_words: u64) -> u32 {
    let records = part_words.saturating_sub(u64::from(HEADER_WORDS)) / u64::from(RECORD_WORDS);
    u32::try_from(records).unwrap_or(u32::MAX)
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Place in the list of events.
    pub event: u32,
    /// Place in the list of roles; none outside of them.
    pub role: Option<u32>,
    /// Number of the CTA, x fastest.
    pub cta: u32,
    /// The multiprocessor.
    pub sm: u32,
    /// Nanoseconds by the clock of the device; statements of the CTA on the emulator.
    pub time: u64,
    /// Clock of the multiprocessor.
    pub clock: u64,
}

/// What a launch has written down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// The events, by CTA and role, each with its own in order.
    pub list: Vec<Record>,
    /// Events that found no place.
    pub dropped: u64,
}

impl Records {
    /// The records of a list, each part with its own in order and with room for so many.
    pub fn new(mut list: Vec<Record>, room: u32) -> Records {
        list.sort_by_key(|record| (record.cta, record.role));
        let (mut part, mut kept, mut dropped) = (None, 0, 0);
        list.retain(|record| {
            let of = Some((record.cta, record.role));
            kept = if part == of { kept + 1 } else { 1 };
            part = of;
            dropped += u64::from(kept > room);
            kept <= room
        });
        Records { list, dropped }
    }

    /// Reads the buffer of a kernel with so many CTAs and roles.
    pub fn read(words: &[u64], ctas: u64, roles: usize) -> Records {
        let parts = usize::try_from(ctas).unwrap_or(usize::MAX).saturating_mul(roles + 1);
        let part = (words.len() / parts.max(1)).max(1);
        let (mut list, mut dropped) = (Vec::new(), 0u64);
        for (number, words) in words.chunks_exact(part).enumerate().take(parts) {
            let (cta, role) = (number / (roles + 1), number % (roles + 1));
            let (&came, places) = words.split_first().unwrap_or((&0, &[]));
            let (places, _) = places.as_chunks::<{ RECORD_WORDS as usize }>();
            let kept = places.len().min(usize::try_from(came).unwrap_or(usize::MAX));
            dropped = dropped.saturating_add(came - kept as u64);
            list.extend(places[..kept].iter().map(|&[what, time, clock]| Record {
                event: (what & 0xffff_ffff) as u32,
                role: role.checked_sub(1).map(|role| role as u32),
                cta: cta as u32,
                sm: (what >> 32) as u32,
                time,
                clock,
            }));
        }
        Records { list, dropped }
    }
}

/// What the numbers of records stand for.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// Texts of the events.
    pub events: &'a [String],
    /// Names of the roles.
    pub roles: &'a [String],
    /// What [`Record::time`] counts: `ns`, or `steps` on the emulator.
    pub unit: &'a str,
}

impl Names<'_> {
    fn event(&self, record: &Record) -> &str {
        self.events.get(record.event as usize).map_or("?", String::as_str)
    }

    fn who(&self, record: &Record) -> String {
        match record.role {
            None => format!("cta {}", record.cta),
            Some(role) => {
                let name = self.roles.get(role as usize).map_or("?", String::as_str);
                format!("cta {} {name}", record.cta)
            }
        }
    }
}

/// One line an event, by rank, and one that says how many were dropped.
pub fn text(names: Names<'_>, ranks: &[Records]) -> String {
    let mut text = String::new();
    let first = ranks.iter().flat_map(|rank| &rank.list).map(|record| record.time).min();
    let mut line = |words: std::fmt::Arguments<'_>| {
        text.write_fmt(words).expect("writing to a string works");
        text.push('\n');
    };
    for (number, rank) in ranks.iter().enumerate() {
        let of = if ranks.len() > 1 { format!("rank {number} ") } else { String::new() };
        for record in &rank.list {
            let at = record.time.saturating_sub(first.unwrap_or(0));
            let (who, event) = (names.who(record), names.event(record));
            line(format_args!("trace: {of}{who} sm {} {at} {}: {event}", record.sm, names.unit));
        }
        if rank.dropped > 0 {
            line(format_args!("trace: {of}{} events dropped, there was no room", rank.dropped));
        }
    }
    text
}

/// The events as JSON for the viewers that take Chrome's trace format: a span from each event of a thread to its next
/// one, a point for the last.
pub fn chrome(names: Names<'_>, ranks: &[Records]) -> String {
    let first = ranks.iter().flat_map(|rank| &rank.list).map(|record| record.time).min();
    let micros = |time: u64| time.saturating_sub(first.unwrap_or(0)) as f64 / 1000.0;
    let mut events = Vec::new();
    for (pid, rank) in ranks.iter().enumerate() {
        events.push(json!({
            "ph": "M", "name": "process_name", "pid": pid, "args": { "name": format!("rank {pid}") },
        }));
        let mut threads: Vec<(u32, Option<u32>)> = Vec::new();
        for (at, record) in rank.list.iter().enumerate() {
            let who = (record.cta, record.role);
            if threads.last() != Some(&who) {
                threads.push(who);
                let tid = threads.len();
                let args = json!({ "name": names.who(record) });
                events.push(json!({
                    "ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args,
                }));
            }
            let tid = threads.len();
            let next = rank.list.get(at + 1).filter(|next| (next.cta, next.role) == who);
            let args = json!({ "sm": record.sm, "clock": record.clock });
            let name = names.event(record);
            let ts = micros(record.time);
            events.push(match next {
                Some(next) => json!({
                    "ph": "X", "name": name, "pid": pid, "tid": tid, "ts": ts,
                    "dur": micros(next.time) - ts, "args": args,
                }),
                None => json!({
                    "ph": "i", "s": "t", "name": name, "pid": pid, "tid": tid, "ts": ts, "args": args,
                }),
            });
        }
    }
    let dropped: u64 = ranks.iter().map(|rank| rank.dropped).sum();
    let other = json!({ "dropped": dropped, "unit": names.unit });
    format!("{}\n", json!({ "traceEvents": events, "otherData": other }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two CTAs with one role: the first one has events outside of it, the other one inside.
    fn buffer(came: u64, places: u32) -> Vec<u64> {
        let mut words = vec![0; words(2, 1, places).unwrap() as usize];
        let part = words.len() / 4;
        for number in [0, 3] {
            let part = &mut words[number * part..][..part];
            part[0] = came;
            for (at, place) in part[1..].chunks_mut(3).take(came as usize).enumerate() {
                let time = 1000 * (at + 1) as u64;
                place.copy_from_slice(&[7 << 32, time, 2 * time]);
            }
        }
        words
    }

    #[test]
    fn events_that_find_no_place_are_counted() {
        let record = |cta, role, time| Record { event: 0, role, cta, sm: 7, time, clock: 2 * time };
        let of = |cta, role| [record(cta, role, 1000), record(cta, role, 2000)];
        let list = [of(0, None), of(1, Some(0))].concat();
        assert_eq!(Records::read(&buffer(2, 4), 2, 1), Records { list, dropped: 0 });
        let full = Records::read(&buffer(5, 4), 2, 1);
        assert_eq!((full.list.len(), full.dropped), (8, 2));
        assert_eq!(Records::read(&[], 2, 1), Records::default());
        assert_eq!(Records::read(&[u64::MAX], 1, 0).dropped, u64::MAX);
        assert_eq!(words(1 << 31, 3, 64), None);
    }

    #[test]
    fn texts_name_events_roles_and_what_was_dropped() {
        let events = ["begin".to_owned()];
        let roles = ["work".to_owned()];
        let names = Names { events: &events, roles: &roles, unit: "ns" };
        let records = Records::read(&buffer(5, 2), 2, 1);
        let text = text(names, std::slice::from_ref(&records));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "trace: cta 0 sm 7 0 ns: begin");
        assert_eq!(lines[3], "trace: cta 1 work sm 7 1000 ns: begin");
        assert_eq!(lines[4], "trace: 6 events dropped, there was no room");
        let json: serde_json::Value = serde_json::from_str(&chrome(names, &[records])).unwrap();
        assert_eq!(json["otherData"]["dropped"], 6);
        assert_eq!(json["traceEvents"][2]["name"], "begin");
        assert_eq!(json["traceEvents"][2]["ph"], "X");
    }
}
