//! Text of the kernel level.

use std::fmt::Write;

use kernel_abi::DType;

use super::{cache, evict, extent, launch, line, literal, param, shape};
use crate::kernel::{
    Await, AxisIndex, Between, Kernel, LeftOperand, Op, Outgoing, PipeOp, PrefetchRange, Signal,
    Spread, SpreadAxis, Start, Stmt, StmtKind, Storage, Tensor, TensorAtom, TileAccess, ValueId,
    ViewAxis, Warpgroup, Word,
};

pub(super) fn print(text: &mut String, kernel: &Kernel) {
    line!(text, 0, "kernel {} export \"{}\" target {}", kernel.name, kernel.export, kernel.target);
    for (name, value) in &kernel.bindings {
        line!(text, 1, "const {name} = {value}");
    }
    line!(text, 1, "{}", launch(&kernel.launch));
    for (id, declared) in kernel.params.iter_enumerated() {
        line!(text, 1, "{}", param(id, declared, &kernel.params));
    }
    for (id, var) in kernel.vars.iter_enumerated() {
        let ring = if var.slots > 1 { format!(" ring {}", var.slots) } else { String::new() };
        let spread = var.spread.as_ref().map(|s| format!(" {}", spread(s))).unwrap_or_default();
        let (dtype, shape) = (var.dtype, shape(&var.shape));
        line!(text, 1, "frag {id} {}: {dtype}{shape}{ring}{spread} {}", var.name, var.distribution);
    }
    for (id, tile) in kernel.smem.iter_enumerated() {
        let ring = if tile.slots > 1 { format!(" ring {}", tile.slots) } else { String::new() };
        let swizzle = tile.swizzle.name().map(|s| format!(" swizzle {s}")).unwrap_or_default();
        let (name, dtype, shape) = (&tile.name, tile.dtype, shape(&tile.shape));
        if tile.is_tensor() {
            line!(text, 1, "tmem {id} {name}: {dtype}{shape}{ring}");
            continue;
        }
        line!(text, 1, "smem {id} {name}: {dtype}{shape}{swizzle} align {}{ring}", tile.align);
    }
    line!(text, 0, "{{");
    block(text, kernel, &kernel.body, 1);
    line!(text, 0, "}}");
}

/// `spread(warp: 0, lane: 1)`.
pub(crate) fn spread(spread: &Spread) -> String {
    let axes = |axes: &[SpreadAxis]| {
        let one = |a: &SpreadAxis| match a.factor {
            Some(factor) => format!("({}, {factor})", a.axis),
            None => a.axis.to_string(),
        };
        axes.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    let parts: Vec<String> = [("warp", &spread.warp), ("lane", &spread.lane), ("vec", &spread.vec)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(word, list)| format!("{word}: {}", axes(list)))
        .collect();
    format!("spread({})", parts.join(", "))
}

fn block(text: &mut String, kernel: &Kernel, stmts: &[Stmt], depth: usize) {
    for stmt in stmts {
        statement(text, kernel, stmt, depth);
    }
}

fn statement(text: &mut String, kernel: &Kernel, stmt: &Stmt, depth: usize) {
    match &stmt.kind {
        StmtKind::Def { results, op } => {
            let names: Vec<String> = results.iter().map(ValueId::to_string).collect();
            let types: Vec<String> = results.iter().map(|&id| type_of(kernel, id)).collect();
            line!(
                text,
                depth,
                "{} = {} : {}",
                names.join(", "),
                operation(kernel, op),
                types.join(", ")
            );
        }
        StmtKind::SetVar { var, slot, value } => {
            let name = slot_name(kernel, *var, *slot);
            line!(text, depth, "{name} = {value}");
        }
        StmtKind::Store { value, access, update, cache: policy } => {
            let (to, policy) = (place(kernel, access), cache(*policy));
            match update {
                None => line!(text, depth, "store {value} -> {to}{policy}"),
                Some(op) => line!(text, depth, "atomic.{} {to}, {value}", op.name()),
            }
        }
        StmtKind::Prefetch { what, evict: policy } => {
            let verb = match what {
                PrefetchRange::Tile(_) | PrefetchRange::Elements { .. } => "prefetch.l2",
                PrefetchRange::Box(_) => "prefetch.tma",
            };
            let what = match what {
                PrefetchRange::Tile(access) | PrefetchRange::Box(access) => place(kernel, access),
                PrefetchRange::Elements { param, start, end } => {
                    format!("{}[{start} .. {end}]", kernel.params[*param].name)
                }
            };
            line!(text, depth, "{verb} {what}{}", evict(*policy));
        }
        StmtKind::Advance { word: at } => line!(text, depth, "advance {}", word(kernel, at)),
        StmtKind::Signal(Signal { param, index, to, add, .. }) => {
            let index: Vec<String> = index.iter().map(ValueId::to_string).collect();
            let name = &kernel.params[*param].name;
            let to = to.map_or_else(|| "*".to_owned(), |to| to.to_string());
            line!(text, depth, "signal {name}@peer({to})[{}] add {add}", index.join(", "));
        }
        StmtKind::Await(Await { param, index, until, .. }) => {
            let position = |at: &Option<ValueId>| at.map_or("each".into(), |at| at.to_string());
            let index: Vec<String> = index.iter().map(position).collect();
            let name = &kernel.params[*param].name;
            line!(text, depth, "await {name}[{}] until {until}", index.join(", "));
        }
        StmtKind::CopyAsync { source, dest, evict: policy } => {
            let (from, to) = (place(kernel, source), place(kernel, dest));
            line!(text, depth, "copy.async {from} -> {to}{}", evict(*policy));
        }
        StmtKind::EmptyGroup => line!(text, depth, "empty group"),
        StmtKind::Settle { storage, pending, .. } => {
            line!(text, depth, "settle {} but {pending}", slot_of(kernel, *storage));
        }
        StmtKind::Outgoing(op) => line!(text, depth, "{}", outgoing(kernel, op)),
        StmtKind::Warpgroup(op) => line!(text, depth, "{}", warpgroup(kernel, op)),
        StmtKind::Tensor(op) => line!(text, depth, "{}", tensor(kernel, op)),
        StmtKind::Sync => line!(text, depth, "sync"),
        StmtKind::SyncCluster => line!(text, depth, "sync cluster"),
        StmtKind::SyncRole => line!(text, depth, "sync of the role"),
        StmtKind::Pipe(op) => pipe(text, kernel, op, depth),
        StmtKind::Role { role, body } => {
            let role = &kernel.roles[*role];
            let how = role.how();
            line!(text, depth, "role {}: warps {}{how} {{", role.name, role.range());
            block(text, kernel, body, depth + 1);
            line!(text, depth, "}}");
        }
        StmtKind::GridWait => line!(text, depth, "grid_wait"),
        StmtKind::GridLaunch => line!(text, depth, "grid_launch"),
        StmtKind::Assert { cond, message } => line!(text, depth, "assert {cond}, {message:?}"),
        StmtKind::Trace { event } => {
            let name = kernel.events.get(*event as usize).map_or("", String::as_str);
            line!(text, depth, "trace {name:?}");
        }
        StmtKind::Printf { format, args } => {
            let args: String = args.iter().map(|arg| format!(", {arg}")).collect();
            line!(text, depth, "printf {format:?}{args}");
        }
        StmtKind::For { var, end, tickets: Some(at), body, .. } => {
            line!(text, depth, "for {var} in tickets({}, {end}) {{", word(kernel, at));
            block(text, kernel, body, depth + 1);
            line!(text, depth, "}}");
        }
        StmtKind::For { var, start, end, step, tickets: None, body } => {
            line!(text, depth, "for {var} in {start}..{end} step {step} {{");
            block(text, kernel, body, depth + 1);
            line!(text, depth, "}}");
        }
        StmtKind::If { cond, then_body, else_body } => {
            line!(text, depth, "if {cond} {{");
            block(text, kernel, then_body, depth + 1);
            if !else_body.is_empty() {
                line!(text, depth, "}} else {{");
                block(text, kernel, else_body, depth + 1);
            }
            line!(text, depth, "}}");
        }
    }
}

/// `s@v1`, `y`.
fn slot_of(kernel: &Kernel, storage: Storage) -> String {
    let slot = storage.slot().map(|slot| format!("@{slot}")).unwrap_or_default();
    format!("{}{slot}", kernel.name_of(storage))
}

fn outgoing(kernel: &Kernel, op: &Outgoing) -> String {
    match op {
        Outgoing::Copy { source, dest, evict: policy, way } => {
            let (from, to) = (place(kernel, source), place(kernel, dest));
            format!("{} {from} -> {to}{}", way.name(), evict(*policy))
        }
        Outgoing::EmptyGroup => "empty group of copies out".to_owned(),
        Outgoing::Settle { storage, pending, .. } => {
            format!("settle out {} but {pending}", slot_of(kernel, *storage))
        }
        Outgoing::Publish { storage } => format!("publish {}", slot_of(kernel, *storage)),
    }
}

fn warpgroup(kernel: &Kernel, op: &Warpgroup) -> String {
    match op {
        Warpgroup::Mma(mma) => {
            let start = start(mma.start);
            let a = match &mma.a {
                LeftOperand::Shared(access) => place(kernel, access),
                LeftOperand::Registers(value) => value.to_string(),
            };
            let across = if mma.across { " across" } else { "" };
            let b = format!("{}{across}", place(kernel, &mma.b));
            let (n, depth, types) = (mma.atom.n, mma.atom.depth(), types(mma.atom.types));
            let sums = slot_name(kernel, mma.var, mma.slot);
            format!("wgmma.m64n{n}k{depth}.{types} {a}, {b} -> {sums}{start}")
        }
        Warpgroup::Commit => "commit".to_owned(),
        Warpgroup::Settle { var, slot, pending } => {
            format!("settle {} but {pending}", slot_name(kernel, *var, *slot))
        }
    }
}

/// The types of both operands of a product.
pub(super) fn types([left, right]: [DType; 2]) -> String {
    if left == right { left.to_string() } else { format!("{left}.{right}") }
}

fn tensor(kernel: &Kernel, op: &Tensor) -> String {
    match op {
        Tensor::Mma(mma) => {
            let start = start(mma.start);
            let (a, b) = (place(kernel, &mma.a), place(kernel, &mma.b));
            let [a, b] = match &mma.scales {
                None => [a, b],
                Some([of_a, of_b]) => {
                    let (of_a, of_b) = (place(kernel, of_a), place(kernel, of_b));
                    [format!("{a} scaled by {of_a}"), format!("{b} scaled by {of_b}")]
                }
            };
            let TensorAtom { m, n, types: both, scaled: _, pair } = mma.atom;
            let pair = if pair { ".pair" } else { "" };
            let (depth, types) = (mma.atom.depth(), types(both));
            let acc = place(kernel, &mma.acc);
            format!("tcgen05{pair}.m{m}n{n}k{depth}.{types} {a}, {b} -> {acc}{start}")
        }
        Tensor::Load { var, slot, access } => {
            format!("load {} -> {}", place(kernel, access), slot_name(kernel, *var, *slot))
        }
        Tensor::Store { value, access } => format!("store {value} -> {}", place(kernel, access)),
        Tensor::Settle { var, slot } => format!("settle {}", slot_name(kernel, *var, *slot)),
    }
}

fn start(start: Start) -> String {
    match start {
        Start::Sums => String::new(),
        Start::Zero => " from zero".to_owned(),
        Start::When(cond) => format!(" add {cond}"),
    }
}

fn pipe(text: &mut String, kernel: &Kernel, op: &PipeOp, depth: usize) {
    let (barrier, at) = op.place();
    let name = &kernel.barriers[barrier].name;
    match op {
        PipeOp::Open { empty, .. } => {
            let empty = &kernel.barriers[*empty].name;
            line!(text, depth, "open {name}@{at} after {empty}");
        }
        PipeOp::Wait { .. } => line!(text, depth, "wait {name}@{at}"),
        PipeOp::Commit { everywhere, .. } => {
            line!(text, depth, "commit {name}{}@{at}", all_ctas(*everywhere));
        }
        PipeOp::Release { everywhere, .. } => {
            let first = kernel.barriers[barrier].between == Between::Gathered;
            let whose = if first { "@cta(0)" } else { all_ctas(*everywhere) };
            line!(text, depth, "release {name}{whose}@{at}");
        }
        PipeOp::Send { value, dest, .. } => {
            let to = place(kernel, dest);
            line!(text, depth, "copy.st_async {value} -> {to} into {name}@{at}");
        }
        PipeOp::Copy { source, dest, evict: policy, way, everywhere, .. } => {
            let (from, to) = (place(kernel, source), place(kernel, dest));
            let way = way.name();
            let (all, policy) = (all_ctas(*everywhere), evict(*policy));
            let first = kernel.barriers[barrier].between == Between::Gathered;
            let all = if first { "@cta(0)" } else { all };
            line!(text, depth, "{way} {from} -> {to} into {name}{all}@{at}{policy}");
        }
    }
}

fn all_ctas(everywhere: bool) -> &'static str {
    if everywhere { "@cta(*)" } else { "" }
}

/// `f32[8, 64] [r4, l32] "name"`.
fn type_of(kernel: &Kernel, id: ValueId) -> String {
    let value = &kernel.values[id];
    let mut text = format!("{}{}", value.dtype, shape(&value.shape));
    if !value.is_scalar() {
        let _ = write!(text, " {}", value.distribution);
    }
    if let Some(name) = &value.name {
        let _ = write!(text, " \"{name}\"");
    }
    text
}

fn word(kernel: &Kernel, word: &Word) -> String {
    format!("{}[{}]", kernel.params[word.param].name, word.index)
}

fn slot_name(kernel: &Kernel, var: crate::kernel::VarId, slot: u32) -> String {
    match kernel.vars[var].slots {
        1 => var.to_string(),
        _ => format!("{var}@{slot}"),
    }
}

fn operation(kernel: &Kernel, op: &Op) -> String {
    match op {
        Op::Const(value) => format!("const {}", literal(*value)),
        Op::CtaIndex(axis) => {
            format!("cta.{}", ["x", "y", "z"].get(usize::from(*axis)).unwrap_or(&"?"))
        }
        Op::ClusterIndex(axis) => axis.name().to_owned(),
        Op::ScalarParam(param) => format!("scalar {}", kernel.params[*param].name),
        Op::Unary { op, x } => format!("{} {x}", op.name()),
        Op::Binary { op, a, b } => format!("{} {a}, {b}", op.name()),
        Op::Compare { op, a, b } => format!("{} {a}, {b}", op.name()),
        Op::Select { cond, a, b } => format!("select {cond}, {a}, {b}"),
        Op::Fma { a, b, c } => format!("fma {a}, {b}, {c}"),
        Op::Inline { text, equals, inputs } => {
            let inputs: String = inputs.iter().map(|x| format!(", {x}")).collect();
            format!("ptx {text:?} as {equals}{inputs}")
        }
        Op::Convert { x } => format!("convert {x}"),
        Op::Iota => "iota".to_owned(),
        Op::Splat { x } => format!("splat {x}"),
        Op::Expand { x, axes } => {
            let axes: Vec<String> =
                axes.iter().map(|a| a.map_or("_".to_owned(), |a| a.to_string())).collect();
            format!("expand {x}[{}]", axes.join(", "))
        }
        Op::Load { access, other, cache: policy } => {
            let other = other.map(|other| format!(" else {other}")).unwrap_or_default();
            format!("load {}{other}{}", place(kernel, access), cache(*policy))
        }
        Op::ReadVar { var, slot } => format!("read {}", slot_name(kernel, *var, *slot)),
        Op::Reduce { op, x, axis } => format!("reduce.{} {x}, axis {axis}", op.name()),
        Op::Argmax { x, axis } => format!("argmax {x}, axis {axis}"),
        Op::Contract { spec, a, b, acc } => {
            let acc = acc.map(|acc| format!(", from {acc}")).unwrap_or_default();
            let (left, right) = (spec.a.join(" "), spec.b.join(" "));
            format!("contract \"{left}, {right} -> {}\" {a}, {b}{acc}", spec.out.join(" "))
        }
        Op::Mma { spec, a, b, acc } => {
            let acc = acc.map(|acc| format!(", from {acc}")).unwrap_or_default();
            let (left, right) = (spec.a.join(" "), spec.b.join(" "));
            format!("mma_sync \"{left}, {right} -> {}\" {a}, {b}{acc}", spec.out.join(" "))
        }
        Op::Relayout { x } => format!("relayout {x}"),
        Op::Slice { x, parts } => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| match part.len {
                    Some(len) => format!("{} .. + {len}", part.start),
                    None => part.start.to_string(),
                })
                .collect();
            format!("slice {x}[{}]", parts.join(", "))
        }
        Op::ArriveLast { word: at, count } => {
            format!("arrive.last {} of {count}", word(kernel, at))
        }
        Op::Atomic { op, value, access } => {
            format!("atomic.{} {}, {value}", op.name(), place(kernel, access))
        }
        Op::Scan { x, axis, exclusive } => {
            let word = if *exclusive { ", exclusive" } else { "" };
            format!("scan.add {x}, axis {axis}{word}")
        }
        Op::Concat { a, b, axis } => format!("concat {a}, {b}, axis {axis}"),
    }
}

/// `W[v1, v2 .. + 8 until v3, gather v4, _]`, with the digits of axes that are not plain.
fn place(kernel: &Kernel, access: &TileAccess) -> String {
    let mut views = access.axes.iter();
    let mut entries = Vec::new();
    for index in &access.index {
        if let AxisIndex::New = index {
            entries.push("_".to_owned());
            continue;
        }
        let view = views.next().map(|axis| view_axis(kernel, axis)).unwrap_or_default();
        entries.push(match index {
            AxisIndex::At(x) => format!("{x}{view}"),
            AxisIndex::Range { start, len, until } => {
                let until = until.map(|bound| format!(" until {bound}")).unwrap_or_default();
                format!("{start} .. + {len}{until}{view}")
            }
            AxisIndex::Gather(x) => format!("gather {x}{view}"),
            AxisIndex::Along(x) => format!("along {x}{view}"),
            AxisIndex::New => String::new(),
        });
    }
    let slot = access.storage.slot().map(|slot| format!("@{slot}")).unwrap_or_default();
    let rank = match access.storage {
        Storage::Peer(_, rank) => format!("@peer({rank})"),
        Storage::Peers(_) => "@peer(each)".to_owned(),
        Storage::Multicast(_, None) => "@multicast".to_owned(),
        Storage::Multicast(_, Some(fold)) => format!("@multicast({})", fold.name()),
        Storage::Buffer(_) | Storage::Smem(..) | Storage::Remote(..) => String::new(),
    };
    format!("{}{rank}{slot}[{}]", kernel.name_of(access.storage), entries.join(", "))
}

/// ` of 64:8`, `extent:stride`; several digits slowest first.
fn view_axis(kernel: &Kernel, axis: &ViewAxis) -> String {
    match axis.digits.as_slice() {
        [digit] => format!(" of {}:{}", extent(axis.extent, &kernel.params), digit.stride),
        digits => {
            let digits: Vec<String> =
                digits.iter().map(|digit| format!("{}:{}", digit.extent, digit.stride)).collect();
            format!(" of {}({})", extent(axis.extent, &kernel.params), digits.join(" "))
        }
    }
}
