//! The report as text.

use std::fmt::Write;

use super::{Place, Report};

/// Writing to a `String` cannot fail.
macro_rules! line {
    ($text:expr, $($format:tt)*) => {
        let _ = writeln!($text, $($format)*);
    };
}

pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    let bindings: Vec<String> =
        report.bindings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    line!(text, "kernel {} for {} ({})", report.kernel, report.target, bindings.join(", "));
    let [x, y, z] = report.grid;
    line!(
        text,
        "  grid ({x}, {y}, {z}), {} threads, {} bytes of shared memory, about {} registers a thread",
        report.threads,
        report.shared_bytes,
        report.registers
    );
    if !report.stored.is_empty() {
        line!(text, "stored layouts (extents:strides, one entry an axis, digits fastest first)");
    }
    for param in &report.stored {
        line!(text, "  {}{}: {} {}", at(&param.place), param.name, param.dtype, param.layout);
    }
    line!(text, "tiles (v vector elements, l lanes, w warps, r registers; fastest first)");
    for tile in &report.tiles {
        let shape: Vec<String> = tile.shape.iter().map(u32::to_string).collect();
        let ring = if tile.slots > 1 { format!(" ring {}", tile.slots) } else { String::new() };
        let spread = tile.spread.as_ref().map(|s| format!(" {s}")).unwrap_or_default();
        let replicas = match tile.replicas {
            1 => String::new(),
            n => format!(", in {n} threads each"),
        };
        line!(
            text,
            "  {}{}: {}[{}]{ring}{spread} {} {} elements a thread{replicas}",
            at(&tile.place),
            tile.name,
            tile.dtype,
            shape.join(", "),
            tile.distribution,
            tile.elements
        );
    }
    if !report.smem.is_empty() {
        line!(text, "tiles in shared memory");
    }
    for tile in &report.smem {
        let shape: Vec<String> = tile.shape.iter().map(u32::to_string).collect();
        let ring = if tile.slots > 1 { format!(" ring {}", tile.slots) } else { String::new() };
        line!(
            text,
            "  {}{}: {}[{}] swizzle {}{ring}, {} bytes from byte {}",
            at(&tile.place),
            tile.name,
            tile.dtype,
            shape.join(", "),
            tile.swizzle,
            tile.bytes,
            tile.first_byte
        );
    }
    line!(text, "loads and stores");
    for access in &report.accesses {
        let width = if access.narrowest_bytes == access.widest_bytes {
            access.widest_bytes.to_string()
        } else {
            format!("{} to {}", access.narrowest_bytes, access.widest_bytes)
        };
        let wait = match access.wait {
            "none" => String::new(),
            side => format!(", {side} the wait"),
        };
        line!(
            text,
            "  {}{} {}: {} of {width} bytes{wait}{}",
            at(&access.place),
            access.kind,
            access.param,
            access.instructions,
            times(access.times)
        );
        for note in &access.notes {
            line!(text, "    note: {note}");
        }
    }
    if !report.folds.is_empty() {
        line!(text, "reductions (within a thread, then lanes, then warps)");
    }
    for fold in &report.folds {
        let exchange = match fold.exchange {
            Some(index) => format!(", {} bytes in exchange {index}", fold.shared_bytes),
            None => String::new(),
        };
        line!(
            text,
            "  {}{}: {} x {} x {}{exchange}{}",
            at(&fold.place),
            fold.kind,
            fold.thread,
            fold.lanes,
            fold.warps,
            times(fold.times)
        );
    }
    if !report.relayouts.is_empty() {
        line!(text, "relayouts");
    }
    for one in &report.relayouts {
        let choices = match one.choices {
            0 => String::new(),
            n => format!(" and {n} choices"),
        };
        let way = match one.way {
            "shuffles" => format!("{} shuffles{choices} in each thread", one.shuffles),
            "shared" => format!("{} bytes of shared memory", one.shared_bytes),
            _ => format!("registers alone{choices}"),
        };
        line!(text, "  {}{}: {way}{}", at(&one.place), one.text, times(one.times));
    }
    if !report.exchanges.is_empty() {
        line!(text, "exchanges through shared memory");
    }
    for (index, exchange) in report.exchanges.iter().enumerate() {
        let merged = match exchange.places.len() {
            1 => String::new(),
            n => format!(", {n} reductions merged"),
        };
        let first = exchange.places.first().map(at).unwrap_or_default();
        line!(text, "  {first}exchange {index}: {} bytes{merged}", exchange.shared_bytes);
    }
    text
}

/// `gemv.tile:12:5 `, or nothing for a place without a text.
fn at(place: &Place) -> String {
    if place.line == 0 {
        return String::new();
    }
    format!("{}:{}:{} ", place.file, place.line, place.column)
}

fn times(times: u32) -> String {
    match times {
        1 => String::new(),
        n => format!(", {n} times"),
    }
}
