//! Writes a kernel out: the state of one instantiation, and how statements and values are emitted.
//!
//! Assumes a template of [`super::check`]; what that would refuse is refused here too, so that a tree
//! which was not checked does no harm. Guarantees that values are defined before they are used, in the
//! same or an enclosing block, and that nothing has a shape without elements.

use std::collections::BTreeSet;

use kernel_abi::{Access, DType, trace};
use kernel_dsl::ast;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;
use rustc_hash::FxHashMap;

use super::constants::ConstValue;
use super::limits::{MAX_DEPTH, MAX_STATEMENTS, MAX_STEPS, MAX_TILE_ELEMENTS, MAX_TILE_REGISTERS};
use super::mistakes::too_deep;
use super::operands::{Tile, describe, is_empty};
use super::packed::Scales;
use super::pipes::Pipes;
use super::program::Modules;
use super::report::{Outcome, Refused, Reporter, not_built};
use super::scope::Frame;
use super::suggest::closest;
use super::template::{Bindings, KernelTemplate, Tuning};
use crate::distribution::{Distribution, LANES};
use crate::index::IndexVec;
use crate::infer;
use crate::kernel::{
    ClusterAxis, Extent, Kernel, Launch, Literal, Op, Param, ParamId, Pdl, RoleId, Stmt, StmtKind,
    Value, ValueId, VarId, Waiver,
};
use crate::target::Target;
use crate::verify;

/// Makes the kernel that a template stands for.
pub(super) fn instantiate(
    template: &KernelTemplate,
    bindings: &Bindings,
    target: Target,
) -> Result<Kernel, Vec<Diagnostic>> {
    let mut lower = Lower::new(template, target);
    let outcome = lower.kernel(template, bindings);
    if outcome.is_err() || lower.report.has_errors() {
        return Err(lower.report.into_sorted());
    }
    lower.kernel.body = lower.blocks.pop().map(|block| block.stmts).unwrap_or_default();
    lower.kernel.waivers = lower.waivers(template.item_span());
    infer::distribute(&mut lower.kernel)?;
    verify::number_settles(&mut lower.kernel);
    Ok(lower.kernel)
}

/// The values of the `tune` clause.
pub(super) fn tunings(template: &KernelTemplate) -> Vec<Tuning> {
    let mut lower = Lower::new(template, Target::ALL[0]);
    let clause = template.kernel().tune.iter().flat_map(|clause| &clause.value);
    let entries = clause.map(|tune| Tuning {
        name: tune.name.text.clone(),
        values: lower.domain_values(&tune.domain).unwrap_or_default(),
    });
    entries.collect()
}

/// The given `const` parameters whose value is not their default.
pub(super) fn named(template: &KernelTemplate, bindings: &Bindings) -> Vec<String> {
    let kernel = template.kernel();
    let bound = |bindings: &Bindings| {
        let mut lower = Lower::new(template, Target::ALL[0]);
        let outcome = lower.bind_consts(&kernel.consts, bindings, kernel.name.span);
        outcome.ok().map(|()| lower.kernel.bindings)
    };
    let all = bound(bindings);
    let is_named = |name: &str| {
        let others = bindings.iter().filter(|(other, _)| *other != name);
        bound(&others.map(|(other, value)| (other.to_owned(), value)).collect()) != all
    };
    bindings.iter().filter(|(name, _)| is_named(name)).map(|(name, _)| name.to_owned()).collect()
}

/// Statements of a block that is still open.
#[derive(Debug, Default)]
pub(super) struct OpenBlock {
    pub(super) stmts: Vec<Stmt>,
    /// Constants and launch values that are defined here already.
    shared: FxHashMap<SharedKey, ValueId>,
}

/// A scalar that is the same wherever it is computed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shared {
    Const(Literal),
    /// Index of the CTA along an axis of the grid.
    Cta(u8),
    /// Place of the CTA in its cluster.
    Cluster(ClusterAxis),
    /// A `scalar` parameter.
    Param(ParamId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SharedKey {
    /// The bits are those of the value in the kind of the type.
    Const(DType, u64),
    Cta(u8),
    Cluster(ClusterAxis),
    Param(ParamId),
}

/// One instantiation.
pub(super) struct Lower<'a> {
    pub(super) modules: &'a Modules,
    pub(super) target: Target,
    report: Reporter,
    pub(super) kernel: Kernel,
    pub(super) blocks: Vec<OpenBlock>,
    pub(super) frame: Frame<'a>,
    /// What is known of integer scalars: `value = r` modulo `m`, exactly `r` for m = 0.
    residues: FxHashMap<ValueId, (i64, i64)>,
    /// The scales of register tiles that have been assigned.
    pub(super) scales: FxHashMap<VarId, Scales>,
    /// Tiles in registers that a load from tensor memory fills.
    pub(super) loaded: BTreeSet<(VarId, u32)>,
    /// Calls that are being inlined, outermost first.
    pub(super) calls: Vec<Span>,
    /// Rounds of unrolled loops, outermost first.
    pub(super) rounds: Vec<(&'a str, i64)>,
    /// Bodies of functions that were inlined.
    pub(super) inlined: Vec<Span>,
    emitted: usize,
    steps: usize,
    depth: usize,
    /// The role whose statements are read.
    pub(super) role: Option<RoleId>,
    /// The role that is a kernel without roles.
    pub(super) whole: Option<RoleId>,
    /// Pipelines and barriers.
    pub(super) pipes: Pipes<'a>,
    /// Room for so many records of events, where they are asked for.
    pub(super) records: Option<u32>,
    /// A limit was reached; nothing more is done.
    stopped: bool,
}

impl<'a> Lower<'a> {
    fn new(template: &'a KernelTemplate, target: Target) -> Self {
        let kernel = Kernel {
            name: template.name().to_owned(),
            export: template.export().to_owned(),
            bindings: Vec::new(),
            target,
            launch: Launch {
                grid: [1, 1, 1],
                cluster: [1, 1, 1],
                warps: 1,
                pdl: Pdl::None,
                min_ctas: None,
                world: None,
                resident: false,
            },
            params: IndexVec::new(),
            values: IndexVec::new(),
            vars: IndexVec::new(),
            smem: IndexVec::new(),
            roles: IndexVec::new(),
            barriers: IndexVec::new(),
            events: Vec::new(),
            body: Vec::new(),
            waivers: Vec::new(),
            span: template.span(),
        };
        Lower {
            modules: template.modules(),
            target,
            report: Reporter::default(),
            kernel,
            blocks: vec![OpenBlock::default()],
            frame: Frame::new(template.unit()),
            residues: FxHashMap::default(),
            scales: FxHashMap::default(),
            loaded: BTreeSet::new(),
            calls: Vec::new(),
            rounds: Vec::new(),
            inlined: Vec::new(),
            emitted: 0,
            steps: 0,
            depth: 0,
            role: None,
            whole: None,
            pipes: Pipes::default(),
            records: None,
            stopped: false,
        }
    }

    fn kernel(&mut self, template: &'a KernelTemplate, bindings: &Bindings) -> Outcome<()> {
        let kernel = template.kernel();
        self.membership(template)?;
        self.bind_consts(&kernel.consts, bindings, kernel.name.span)?;
        self.wheres(kernel)?;
        let launch = self.launch(&kernel.launch, kernel.header_span);
        let params = self.params(&kernel.buffers);
        launch.and(params)?;
        self.rank_param(kernel)?;
        self.records = bindings.records();
        self.body(kernel)?;
        self.trace_param()?;
        self.connect();
        if self.report.has_errors() {
            return Err(Refused);
        }
        Ok(())
    }

    /// The buffer for events, behind all other parameters; a kernel without events has none.
    fn trace_param(&mut self) -> Outcome<()> {
        let Some(records) = self.records.filter(|_| !self.kernel.events.is_empty()) else {
            return Ok(());
        };
        let (ctas, roles) = (self.kernel.launch.ctas(), self.kernel.roles.len());
        let span = self.kernel.span;
        let Some(words) = trace::words(ctas, roles, records) else {
            let reason = format!("{records} events of each of {ctas} CTAs and {roles} roles");
            return Err(self.too_large(span, reason));
        };
        self.kernel.params.push(Param {
            name: trace::PARAM.to_owned(),
            access: Access::Inout,
            settled: false,
            words: None,
            dtype: DType::U64,
            shape: vec![Extent::Const(words)],
            stored: None,
            scaled: None,
            of: None,
            contract: None,
            span,
        });
        Ok(())
    }

    /// The target is one of those that the file states.
    fn membership(&mut self, template: &KernelTemplate) -> Outcome<()> {
        let stated = template.targets();
        if stated.contains(&self.target) {
            return Ok(());
        }
        let mut diagnostic = Diagnostic::error(
            Code::E0218,
            format!("`{}` is not written for {}", template.name(), self.target),
        )
        .label(template.span(), "this kernel");
        diagnostic = match template.file().targets().next() {
            Some(line) => diagnostic
                .secondary(line.span, "the targets of this file")
                .help(format!("add `{}` to the `target` line", self.target)),
            None => diagnostic.help(format!("write `target {};`", self.target)),
        };
        Err(self.error(diagnostic))
    }

    /// Waivers of the kernel and of the functions that were inlined.
    fn waivers(&self, item: Span) -> Vec<Waiver> {
        let files = self.modules.units.iter().flat_map(|unit| &unit.file.waivers);
        let inside = |waiver: &ast::Waiver| {
            std::iter::once(&item).chain(&self.inlined).any(|span| span.contains(waiver.covers))
        };
        files
            .filter(|waiver| inside(waiver))
            .map(|waiver| Waiver {
                code: waiver.code.name().to_owned(),
                reason: waiver.reason.clone(),
                span: waiver.covers,
            })
            .collect()
    }

    /// Reports a finding, with the call and the rounds that lead to it.
    pub(super) fn error(&mut self, mut diagnostic: Diagnostic) -> Refused {
        if self.stopped {
            return Refused;
        }
        if let Some(&call) = self.calls.last() {
            diagnostic = diagnostic.secondary(call, "inlined here");
        }
        if !self.rounds.is_empty() {
            let rounds: Vec<String> =
                self.rounds.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            diagnostic = diagnostic.note(format!("in the round {}", rounds.join(", ")));
        }
        self.report.error(diagnostic)
    }

    /// Refuses what is legal in the language and not built.
    pub(super) fn not_built(&mut self, span: Span, what: &str) -> Refused {
        self.error(not_built(span, what))
    }

    /// Reports a finding that ends the instantiation.
    pub(super) fn stop(&mut self, diagnostic: Diagnostic) -> Refused {
        let refused = self.error(diagnostic);
        self.stopped = true;
        refused
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Reports a name that stands for nothing.
    pub(super) fn unknown(&mut self, name: &str, span: Span) -> Refused {
        let mut diagnostic = Diagnostic::error(Code::E0201, format!("nothing is called `{name}`"))
            .label(span, "unknown name");
        if let Some(near) = closest(name, self.frame.names()) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        }
        self.error(diagnostic)
    }

    /// Runs `inner` one level deeper; refuses what nests or repeats beyond reason.
    pub(super) fn nested<T>(
        &mut self,
        span: Span,
        inner: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.steps += 1;
        if self.stopped {
            return Err(Refused);
        }
        if self.steps > MAX_STEPS {
            return Err(
                self.too_large(span, format!("more than {MAX_STEPS} steps to write it out"))
            );
        }
        if self.depth >= MAX_DEPTH {
            return Err(self.error(too_deep(span)));
        }
        self.depth += 1;
        let outcome = inner(self);
        self.depth -= 1;
        outcome
    }

    fn too_large(&mut self, span: Span, reason: String) -> Refused {
        self.stop(
            Diagnostic::error(Code::E0219, "this kernel grows too large")
                .label(span, reason)
                .help("unroll less: `unroll n`, or a loop without `unroll`"),
        )
    }

    /// Statements of the open block so far.
    pub(super) fn mark(&self) -> usize {
        self.blocks.last().map_or(0, |block| block.stmts.len())
    }

    /// Those of the open block since then.
    pub(super) fn since(&self, mark: usize) -> &[Stmt] {
        self.blocks.last().and_then(|block| block.stmts.get(mark..)).unwrap_or_default()
    }

    /// Appends a statement to the open block.
    pub(super) fn emit(&mut self, kind: StmtKind, span: Span) -> Outcome<()> {
        if self.stopped {
            return Err(Refused);
        }
        self.emitted += 1;
        if self.emitted > MAX_STATEMENTS {
            return Err(self.too_large(span, format!("more than {MAX_STATEMENTS} statements")));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.stmts.push(Stmt { kind, span });
        }
        Ok(())
    }

    /// Adds a value that some statement will define.
    pub(super) fn declare_value(&mut self, dtype: DType, shape: Vec<u32>, span: Span) -> ValueId {
        let distribution = Distribution::scalar(self.warps());
        self.kernel.values.push(Value { dtype, shape, distribution, name: None, span })
    }

    /// Emits an operation with one result of a shape that has elements.
    pub(super) fn define(
        &mut self,
        op: Op,
        dtype: DType,
        shape: Vec<u32>,
        span: Span,
    ) -> Outcome<Tile> {
        debug_assert!(!is_empty(&shape), "a tile without elements has no value");
        self.fits(dtype, &shape, span)?;
        self.one_thread(dtype, &shape, span)?;
        let id = self.declare_value(dtype, shape.clone(), span);
        self.emit(StmtKind::Def { results: vec![id], op }, span)?;
        Ok(Tile::new(id, dtype, shape))
    }

    /// A scalar that is computed once a block.
    pub(super) fn shared(&mut self, what: Shared, dtype: DType, span: Span) -> Outcome<ValueId> {
        let (key, op) = match what {
            Shared::Const(literal) => {
                let bits = match literal {
                    Literal::Float(v) => v.to_bits(),
                    Literal::Int(v) => v as u64,
                    Literal::Bool(v) => u64::from(v),
                };
                (SharedKey::Const(dtype, bits), Op::Const(literal))
            }
            Shared::Cta(axis) => (SharedKey::Cta(axis), Op::CtaIndex(axis)),
            Shared::Cluster(axis) => (SharedKey::Cluster(axis), Op::ClusterIndex(axis)),
            Shared::Param(param) => (SharedKey::Param(param), Op::ScalarParam(param)),
        };
        let known = self.blocks.iter().rev().find_map(|block| block.shared.get(&key).copied());
        if let Some(id) = known {
            return Ok(id);
        }
        let tile = self.define(op, dtype, Vec::new(), span)?;
        let id = tile.id().expect("rank 0 has one element");
        if let Some(block) = self.blocks.last_mut() {
            block.shared.insert(key, id);
        }
        Ok(id)
    }

    /// Whether the open block is the kernel's own.
    pub(super) fn is_top(&self) -> bool {
        self.blocks.len() == 1
    }

    /// Runs `inner` with a block of its own and returns its statements.
    pub(super) fn block_of(&mut self, inner: impl FnOnce(&mut Self)) -> Vec<Stmt> {
        self.blocks.push(OpenBlock::default());
        inner(self);
        self.blocks.pop().map(|block| block.stmts).unwrap_or_default()
    }

    /// Refuses shapes that no kernel can hold in registers.
    pub(super) fn fits(&mut self, dtype: DType, shape: &[u32], span: Span) -> Outcome<()> {
        let elements = shape.iter().try_fold(1_u64, |n, &extent| n.checked_mul(u64::from(extent)));
        let threads = u64::from(self.warps()) * u64::from(LANES);
        let registers =
            elements.map(|n| n.saturating_mul(u64::from(dtype.bits())).div_ceil(32 * threads));
        let reason = match (elements, registers) {
            (Some(n), Some(_)) if n > MAX_TILE_ELEMENTS => {
                format!("{n} elements, the limit is {MAX_TILE_ELEMENTS}")
            }
            (Some(_), Some(r)) if r > MAX_TILE_REGISTERS => format!(
                "{r} registers of each of {threads} threads, the limit is {MAX_TILE_REGISTERS}"
            ),
            (Some(_), Some(_)) => return Ok(()),
            (_, _) => "more elements than 64 bits count".to_owned(),
        };
        Err(self.error(
            Diagnostic::error(
                Code::E0219,
                format!("{} is too large for registers", describe(dtype, shape)),
            )
            .label(span, reason)
            .help("work on a slice at a time"),
        ))
    }

    /// Names a value after the `let` that binds it.
    pub(super) fn name_value(&mut self, id: ValueId, name: &str) {
        let value = &mut self.kernel.values[id];
        if value.name.is_none() {
            value.name = Some(name.to_owned());
        }
    }

    /// Notes what is known of an integer constant.
    pub(super) fn set_residue(&mut self, id: ValueId, value: ConstValue) {
        if let ConstValue::Int(v) = value {
            self.residues.insert(id, (0, v));
        }
    }

    /// Notes that a scalar equals `residue` modulo `modulus`.
    pub(super) fn set_congruence(&mut self, id: ValueId, modulus: i64, residue: i64) {
        self.residues.insert(id, (modulus, residue));
    }

    /// `(m, r)`: the scalar equals `r` modulo `m`, exactly for m = 0.
    pub(super) fn congruence(&self, id: ValueId) -> (i64, i64) {
        self.residues.get(&id).copied().unwrap_or((1, 0))
    }
}
