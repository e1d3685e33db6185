//! What `kernelc explain KERNEL` tells: how tiles are spread, how wide memory operations are, how reductions
//! fold, and what it all costs.

mod registers;
mod text;

use std::collections::BTreeMap;

use kernel_dsl::diag::Diagnostic;
use kernel_dsl::source::{SourceMap, Span};
use serde::Serialize;

use crate::device::WaitOrder;
use crate::distribution::Distribution;
use crate::expand::{AccessNote, Banks, Notes, RelayoutWay, expand_noted};
use crate::kernel::{Kernel, Op, Param, Smem, SmemId, Stmt, StmtKind, ValueId};
use crate::smem_plan::SmemPlan;

/// Bytes of a full memory instruction of one thread.
const FULL_VECTOR_BYTES: u32 = 16;

/// A place for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// Everything about one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Name in the source.
    pub kernel: String,
    /// Symbol in the cubin.
    pub export: String,
    /// What it is compiled for.
    pub target: String,
    /// Values of the `const` parameters.
    pub bindings: BTreeMap<String, i64>,
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA.
    pub threads: u32,
    /// Bytes of shared memory of a CTA.
    pub shared_bytes: u32,
    /// 32-bit registers of a thread that hold values at once, at most, if every operation stays where it
    /// stands; ptxas may do better.
    pub registers: u32,
    /// Parameters that are not row-major.
    pub stored: Vec<StoredRow>,
    /// Named tiles and tiles in memory.
    pub tiles: Vec<TileRow>,
    /// Tiles in shared memory.
    pub smem: Vec<SmemRow>,
    /// Loads and stores, of shared memory too.
    pub accesses: Vec<AccessRow>,
    /// Reductions, `argmax` and contractions.
    pub folds: Vec<FoldRow>,
    /// Exchanges through shared memory.
    pub exchanges: Vec<ExchangeRow>,
    /// Every `relayout`.
    pub relayouts: Vec<RelayoutRow>,
}

/// A parameter with a stored layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoredRow {
    /// The author's name.
    pub name: String,
    /// Where it is declared.
    pub place: Place,
    /// Element type.
    pub dtype: String,
    /// Extents and strides of each axis, digits fastest first.
    pub layout: String,
}

/// A tile and how it is spread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TileRow {
    /// The author's name, or the text that makes it.
    pub name: String,
    /// Where it is made.
    pub place: Place,
    /// Element type.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<u32>,
    /// Ring slots; 1 without `ring`.
    pub slots: u32,
    /// `spread(...)`, if the author wrote it.
    pub spread: Option<String>,
    /// One group an axis: `v` vector elements, `l` lanes, `w` warps, `r` registers.
    pub distribution: String,
    /// Elements that one thread holds.
    pub elements: u32,
    /// Threads that hold each element.
    pub replicas: u32,
}

/// A tile in shared memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SmemRow {
    /// The author's name.
    pub name: String,
    /// Where it is declared.
    pub place: Place,
    /// Element type.
    pub dtype: String,
    /// Extents of one slot.
    pub shape: Vec<u32>,
    /// Ring slots; 1 without `ring`.
    pub slots: u32,
    /// `b32`, `b64`, `b128`, or `none`.
    pub swizzle: &'static str,
    /// First byte of the first slot.
    pub first_byte: u64,
    /// Bytes of all slots.
    pub bytes: u64,
}

/// A load or store, and how often the unrolled kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AccessRow {
    /// The text of it.
    pub text: String,
    /// Where it stands.
    pub place: Place,
    /// `load` or `store`.
    pub kind: &'static str,
    /// The buffer.
    pub param: String,
    /// `before`, `after` or `mixed` where the kernel waits, else `none`.
    pub wait: &'static str,
    /// Memory instructions of one thread.
    pub instructions: u32,
    /// Bytes of the narrowest of them.
    pub narrowest_bytes: u32,
    /// Bytes of the widest of them.
    pub widest_bytes: u32,
    /// Times that the statement stands in the unrolled kernel.
    pub times: u32,
    /// What an author may want to know.
    pub notes: Vec<String>,
}

/// A fold: lengths of its three parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoldRow {
    /// The text of it.
    pub text: String,
    /// Where it stands.
    pub place: Place,
    /// `add`, `max`, `min`, `argmax`, `contract`, `scan`.
    pub kind: &'static str,
    /// Elements that one thread folds.
    pub thread: u32,
    /// Lanes that fold by shuffles.
    pub lanes: u32,
    /// Warps that fold through shared memory.
    pub warps: u32,
    /// The exchange that it takes part in, as an index into `exchanges`.
    pub exchange: Option<usize>,
    /// Bytes of shared memory for its partial results.
    pub shared_bytes: u32,
    /// Times that the statement stands in the unrolled kernel.
    pub times: u32,
}

/// An exchange through shared memory: one barrier between writing and reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExchangeRow {
    /// What it is made for; several reductions that nothing orders share one.
    pub places: Vec<Place>,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
}

/// A `relayout`, and which way it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RelayoutRow {
    /// The text of it.
    pub text: String,
    /// Where it stands.
    pub place: Place,
    /// `registers`, `shuffles` or `shared`.
    pub way: &'static str,
    /// Shuffles of 32 bits of a thread.
    pub shuffles: u32,
    /// Choices between two registers of a thread.
    pub choices: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// The exchange, as an index into `exchanges`.
    pub exchange: Option<usize>,
    /// Times that the statement stands in the unrolled kernel.
    pub times: u32,
}

/// Explains a kernel; errors are those of its expansion.
pub fn report(kernel: &Kernel, sources: &SourceMap) -> Result<Report, Vec<Diagnostic>> {
    let (device, notes) = expand_noted(kernel)?;
    let reader = Reader { kernel, sources };
    Ok(Report {
        kernel: kernel.name.clone(),
        export: kernel.export.clone(),
        target: kernel.target.to_string(),
        bindings: kernel.bindings.iter().cloned().collect(),
        grid: kernel.launch.grid,
        threads: kernel.launch.threads(),
        shared_bytes: device.shared_bytes,
        registers: registers::peak(&device),
        stored: reader.stored(),
        tiles: reader.tiles(),
        smem: reader.smem(),
        accesses: reader.accesses(&notes),
        folds: reader.folds(&notes),
        exchanges: reader.exchanges(&notes),
        relayouts: reader.relayouts(&notes),
    })
}

impl Report {
    /// The report for people.
    pub fn text(&self) -> String {
        text::render(self)
    }
}

struct Reader<'a> {
    kernel: &'a Kernel,
    sources: &'a SourceMap,
}

impl Reader<'_> {
    fn place(&self, span: Span) -> Place {
        if !self.sources.ids().any(|id| id == span.file) {
            return Place { file: String::new(), line: 0, column: 0 };
        }
        let at = self.sources.start(span);
        let file = self.sources.name(span.file).to_owned();
        Place { file, line: at.line, column: at.column }
    }

    /// The text at a span on one line, shortened.
    fn snippet(&self, span: Span) -> String {
        const SHOWN: usize = 60;
        if !self.sources.ids().any(|id| id == span.file) {
            return String::new();
        }
        let text = self.sources.snippet(span).trim_end_matches(';');
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.chars().count() <= SHOWN {
            return text;
        }
        text.chars().take(SHOWN).chain(std::iter::once('…')).collect()
    }

    fn stored(&self) -> Vec<StoredRow> {
        let row = |param: &Param| {
            Some(StoredRow {
                name: param.name.clone(),
                place: self.place(param.span),
                dtype: param.dtype.name().to_owned(),
                layout: param.stored.as_ref()?.to_string(),
            })
        };
        self.kernel.params.iter().filter_map(row).collect()
    }

    fn tiles(&self) -> Vec<TileRow> {
        let mut rows: Vec<(Span, TileRow)> = Vec::new();
        for (_, var) in self.kernel.vars.iter_enumerated() {
            let mut row =
                self.tile(&var.name, var.span, var.dtype.name(), &var.distribution, var.slots);
            row.spread = var.spread.as_ref().map(crate::print::spread);
            rows.push((var.span, row));
        }
        let mut memory = Vec::new();
        memory_values(&self.kernel.body, &mut memory);
        for (id, value) in self.kernel.values.iter_enumerated() {
            if value.is_scalar() || (value.name.is_none() && !memory.contains(&id)) {
                continue;
            }
            let text = self.snippet(value.span);
            let name = value.name.as_deref().unwrap_or(&text);
            let row = self.tile(name, value.span, value.dtype.name(), &value.distribution, 1);
            rows.push((value.span, row));
        }
        rows.sort_by_key(|(span, _)| *span);
        rows.dedup_by(|a, b| a.1 == b.1);
        rows.into_iter().map(|(_, row)| row).collect()
    }

    fn tile(
        &self,
        name: &str,
        span: Span,
        dtype: &str,
        distribution: &Distribution,
        slots: u32,
    ) -> TileRow {
        let free = distribution.free_lanes().into_iter().chain(distribution.free_warps());
        TileRow {
            name: name.to_owned(),
            place: self.place(span),
            dtype: dtype.to_owned(),
            shape: distribution.shape(),
            slots,
            spread: None,
            distribution: distribution.to_string(),
            elements: distribution.registers(),
            replicas: free.map(|digit| digit.extent).product(),
        }
    }

    fn smem(&self) -> Vec<SmemRow> {
        let plan = SmemPlan::of(self.kernel);
        let row = |(id, tile): (SmemId, &Smem)| SmemRow {
            name: tile.name.clone(),
            place: self.place(tile.span),
            dtype: tile.dtype.name().to_owned(),
            shape: tile.shape.clone(),
            slots: tile.slots,
            swizzle: tile.swizzle.name().unwrap_or("none"),
            first_byte: plan.base(id),
            bytes: tile.slot_bytes().saturating_mul(u64::from(tile.slots)),
        };
        self.kernel.smem.iter_enumerated().filter(|(_, tile)| !tile.is_tensor()).map(row).collect()
    }

    fn accesses(&self, notes: &Notes) -> Vec<AccessRow> {
        let mut rows: BTreeMap<Span, Vec<AccessRow>> = BTreeMap::new();
        for note in &notes.accesses {
            let row = self.access(note);
            let same = rows.entry(note.span).or_default();
            match same.iter_mut().find(|r| AccessRow { times: 1, ..(*r).clone() } == row) {
                Some(found) => found.times += 1,
                None => same.push(row),
            }
        }
        rows.into_values().flatten().collect()
    }

    fn access(&self, note: &AccessNote) -> AccessRow {
        let mut notes = Vec::new();
        let moved = note.instructions.saturating_mul(note.bytes.1);
        if note.bytes.1 < FULL_VECTOR_BYTES && moved >= FULL_VECTOR_BYTES {
            notes.push(format!(
                "{} instructions of {} bytes where {FULL_VECTOR_BYTES} would be possible with other \
                 extents, warps or alignment",
                note.instructions, note.bytes.1
            ));
        } else if note.bytes.0 < note.bytes.1 {
            notes.push("alignment or an `until` bound cuts some vectors".to_owned());
        }
        if note.matrices {
            let name = if note.is_store { "stmatrix" } else { "ldmatrix" };
            notes.push(format!("as matrices of 8 by 8 (`{name}`)"));
        }
        if let Some(Banks { wavefronts, minimum }) = note.banks {
            notes.push(match wavefronts - minimum {
                0 => format!("{wavefronts} wavefronts a warp, no bank conflicts"),
                lost => format!("{wavefronts} wavefronts a warp, {lost} of them bank conflicts"),
            });
        }
        if note.replicas > 1 {
            notes.push(match note.is_store {
                true => format!("replicated {} times; the lowest replica stores", note.replicas),
                false => format!("{} threads load each element", note.replicas),
            });
        }
        AccessRow {
            text: self.snippet(note.span),
            place: self.place(note.span),
            kind: if note.is_store { "store" } else { "load" },
            param: self.kernel.name_of(note.storage).to_owned(),
            wait: match note.order {
                WaitOrder::NoWait => "none",
                WaitOrder::Before => "before",
                WaitOrder::After => "after",
                WaitOrder::Mixed => "mixed",
            },
            instructions: note.instructions,
            narrowest_bytes: note.bytes.0,
            widest_bytes: note.bytes.1,
            times: 1,
            notes,
        }
    }

    fn folds(&self, notes: &Notes) -> Vec<FoldRow> {
        let mut rows: BTreeMap<Span, Vec<FoldRow>> = BTreeMap::new();
        for note in &notes.folds {
            let row = FoldRow {
                text: self.snippet(note.span),
                place: self.place(note.span),
                kind: note.name,
                thread: note.thread,
                lanes: note.lanes,
                warps: note.warps,
                exchange: note.exchange,
                shared_bytes: note.shared_bytes,
                times: 1,
            };
            let same = rows.entry(note.span).or_default();
            match same.iter_mut().find(|r| FoldRow { times: 1, ..(*r).clone() } == row) {
                Some(found) => found.times += 1,
                None => same.push(row),
            }
        }
        rows.into_values().flatten().collect()
    }

    fn relayouts(&self, notes: &Notes) -> Vec<RelayoutRow> {
        let mut rows: BTreeMap<Span, Vec<RelayoutRow>> = BTreeMap::new();
        for note in &notes.relayouts {
            let exchange = note.exchange.and_then(|index| notes.exchanges.get(index));
            let row = RelayoutRow {
                text: self.snippet(note.span),
                place: self.place(note.span),
                way: match note.way {
                    RelayoutWay::Registers => "registers",
                    RelayoutWay::Shuffles => "shuffles",
                    RelayoutWay::Shared => "shared",
                },
                shuffles: note.shuffles,
                choices: note.choices,
                shared_bytes: exchange.map_or(0, |exchange| exchange.shared_bytes),
                exchange: note.exchange,
                times: 1,
            };
            let same = rows.entry(note.span).or_default();
            let alike = |r: &RelayoutRow| {
                RelayoutRow { times: 1, exchange: row.exchange, ..r.clone() } == row
            };
            match same.iter_mut().find(|r| alike(r)) {
                Some(found) => found.times += 1,
                None => same.push(row),
            }
        }
        rows.into_values().flatten().collect()
    }

    fn exchanges(&self, notes: &Notes) -> Vec<ExchangeRow> {
        let rows = notes.exchanges.iter().map(|note| ExchangeRow {
            places: note.spans.iter().map(|&span| self.place(span)).collect(),
            shared_bytes: note.shared_bytes,
        });
        rows.collect()
    }
}

/// Values that are loaded or stored.
fn memory_values(stmts: &[Stmt], found: &mut Vec<ValueId>) {
    for stmt in stmts {
        if let StmtKind::Def { results, op: Op::Load { .. } } = &stmt.kind {
            found.extend(results);
        } else if let StmtKind::Store { value, .. } = &stmt.kind {
            found.push(*value);
        }
        for body in stmt.kind.bodies() {
            memory_values(body, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expand::sample;

    #[test]
    fn the_report_shows_vectors_merged_exchanges_and_lengths() {
        let sources = SourceMap::new();
        let report = report(&sample::attn_res_norm(7168, 8, 14), &sources).unwrap();
        assert_eq!((report.threads, report.exchanges.len()), (448, 2));
        assert_eq!(report.exchanges[0].places.len(), 4);
        let sum = &report.folds[0];
        assert_eq!((sum.thread, sum.lanes, sum.warps, sum.exchange), (16, 32, 14, Some(0)));
        assert!(report.accesses.iter().all(|a| a.widest_bytes == 16 && a.notes.is_empty()));
        assert_eq!(report.accesses.iter().filter(|a| a.wait == "before").count(), 2);
        assert!(report.registers > 128 && report.registers < 600, "{}", report.registers);
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains("\"shared_bytes\""));
        assert!(report.text().contains("merged"), "{}", report.text());
    }

    #[test]
    fn the_gemv_rings_are_named_once() {
        let sources = SourceMap::new();
        let report = report(&sample::gemv(64, 2048, 8, 512, 4), &sources).unwrap();
        let named: Vec<_> = report.tiles.iter().map(|t| (t.name.as_str(), t.slots)).collect();
        assert!(named.contains(&("w", 4)) && named.contains(&("xs", 2)));
        let xs = report.tiles.iter().find(|t| t.name == "xs").unwrap();
        assert_eq!((xs.elements, xs.replicas), (8, 2));
    }
}
