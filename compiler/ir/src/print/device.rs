//! Text of the device level.

use super::kernel::types;
use super::{cache, evict, launch, line, literal, param};
use crate::device::{
    Address, Arg, Change, DeviceKernel, DeviceOp, DevicePipe, DeviceStmt, Factor, Frag, FragId,
    Lanes, Map, Matrix, MatrixLoad, OpRole, Piece, Place, ProductStart, Special, TensorLeft,
    TensorOp, TensorScales, Vector, WaitOrder, WarpgroupOp,
};
use crate::index::Id;
use crate::kernel::{Barrier, BarrierId, Between, Extent, MapAxis, MapId, TensorMap, WgmmaAtom};

/// Tables up to this length are printed in full.
const SHOWN_TABLE: usize = 16;

pub(super) fn print(text: &mut String, device: &DeviceKernel) {
    line!(
        text,
        0,
        "device kernel {} export \"{}\" target {}",
        device.name,
        device.export,
        device.target
    );
    line!(text, 1, "{}", launch(&device.launch));
    line!(text, 1, "shared {} bytes", device.shared_bytes);
    for (id, declared) in device.params.iter_enumerated() {
        line!(text, 1, "{}", param(id, declared, &device.params));
    }
    for (id, declared) in device.maps.iter_enumerated() {
        line!(text, 1, "{}", map(device, id, declared));
    }
    for (id, slot) in device.slots.iter_enumerated() {
        line!(text, 1, "slot {id} {}: {} x {}", slot.name, slot.dtype, slot.len);
    }
    line!(text, 0, "{{");
    block(text, device, &device.body, 1);
    line!(text, 0, "}}");
}

fn block(text: &mut String, device: &DeviceKernel, stmts: &[DeviceStmt], depth: usize) {
    for stmt in stmts {
        statement(text, device, stmt, depth);
    }
}

fn statement(text: &mut String, device: &DeviceKernel, stmt: &DeviceStmt, depth: usize) {
    let loc = format!("@{}", stmt.loc.index() + 1);
    match &stmt.op {
        DeviceOp::For { var, start, end, step, body } => {
            line!(text, depth, "{loc} for {var} in {start}..{end} step {step} {{");
            block(text, device, body, depth + 1);
            line!(text, depth, "}}");
        }
        DeviceOp::Repeat { body, again } => {
            line!(text, depth, "{loc} repeat {{");
            block(text, device, body, depth + 1);
            line!(text, depth, "}} while {again}");
        }
        DeviceOp::If { cond, then_body, else_body } => {
            line!(text, depth, "{loc} if {cond} {{");
            block(text, device, then_body, depth + 1);
            if !else_body.is_empty() {
                line!(text, depth, "}} else {{");
                block(text, device, else_body, depth + 1);
            }
            line!(text, depth, "}}");
        }
        DeviceOp::Role { role, body } => {
            let role = &device.roles[*role];
            let how = role.how();
            line!(text, depth, "{loc} role {}: warps {}{how} {{", role.name, role.range());
            block(text, device, body, depth + 1);
            line!(text, depth, "}}");
        }
        op => line!(text, depth, "{loc} {}", operation(device, op, order(device, stmt))),
    }
}

/// The side of the wait of an access, in words.
fn order(device: &DeviceKernel, stmt: &DeviceStmt) -> &'static str {
    let order = match device.locs[stmt.loc].role {
        OpRole::Load { order, .. }
        | OpRole::Update { order, .. }
        | OpRole::Store { order, .. }
        | OpRole::Prefetch { order, .. } => order,
        OpRole::Compute
        | OpRole::GridWait
        | OpRole::GridLaunch
        | OpRole::Arrive { .. }
        | OpRole::Signal { .. }
        | OpRole::Await { .. }
        | OpRole::LastArriver { .. } => return "",
    };
    match order {
        WaitOrder::NoWait => "",
        WaitOrder::Before => " before wait",
        WaitOrder::After => " after wait",
        WaitOrder::Mixed => " on both sides of wait",
    }
}

fn operation(device: &DeviceKernel, op: &DeviceOp, order: &str) -> String {
    let def = |dst: FragId| {
        let frag = device.frags[dst];
        match frag.len {
            1 => format!("{dst}: {} =", frag.dtype),
            len => format!("{dst}: {} x {len} =", frag.dtype),
        }
    };
    match op {
        DeviceOp::Const { dst, values } => {
            let values: Vec<String> = values.iter().map(|value| literal(*value)).collect();
            format!("{} const {}", def(*dst), values.join(", "))
        }
        DeviceOp::Special { dst, which } => {
            let which = match which {
                Special::CtaIndex(0) => "cta.x".to_owned(),
                Special::CtaIndex(1) => "cta.y".to_owned(),
                Special::CtaIndex(_) => "cta.z".to_owned(),
                Special::ClusterIndex(axis) => axis.name().to_owned(),
                Special::Lane => "lane".to_owned(),
                Special::Warp => "warp".to_owned(),
                Special::WarpFrom(first) => format!("warp - {first}"),
                Special::WarpModulo(warps) => format!("warp mod {warps}"),
            };
            format!("{} {which}", def(*dst))
        }
        DeviceOp::ScalarParam { dst, param } => {
            format!("{} scalar {}", def(*dst), device.params[*param].name)
        }
        DeviceOp::Unary { dst, op, x } => format!("{} {} {}", def(*dst), op.name(), arg(x)),
        DeviceOp::Binary { dst, op, a, b } => {
            format!("{} {} {}, {}", def(*dst), op.name(), arg(a), arg(b))
        }
        DeviceOp::Compare { dst, op, a, b } => {
            format!("{} {} {}, {}", def(*dst), op.name(), arg(a), arg(b))
        }
        DeviceOp::Select { dst, cond, a, b } => {
            format!("{} select {}, {}, {}", def(*dst), arg(cond), arg(a), arg(b))
        }
        DeviceOp::Fma { dst, a, b, c } => {
            format!("{} fma {}, {}, {}", def(*dst), arg(a), arg(b), arg(c))
        }
        DeviceOp::Inline { dst, text, equals, inputs } => {
            let inputs: String = inputs.iter().map(|x| format!(", {}", arg(x))).collect();
            format!("{} ptx {text:?} as {}{inputs}", def(*dst), arg(equals))
        }
        DeviceOp::Convert { dst, x } => format!("{} convert {}", def(*dst), arg(x)),
        DeviceOp::Copy { dst, x } => format!("{} copy {}", def(*dst), arg(x)),
        DeviceOp::Join { dst, from } => {
            let shown: Vec<String> =
                from.iter().take(SHOWN_TABLE).map(|(frag, i)| format!("{frag}[{i}]")).collect();
            let more = if from.len() > SHOWN_TABLE { ", …" } else { "" };
            format!("{} join {}{more}", def(*dst), shown.join(", "))
        }
        DeviceOp::Mma { dst, a, b, acc, atoms } => {
            format!("{} mma.m16n8k16 {a}, {b}, from {acc}, {} atoms", def(*dst), atoms.len())
        }
        DeviceOp::Shuffle { dst, x, lanes } => {
            let lanes = match lanes {
                Lanes::Xor(xor) => format!("xor {xor}"),
                Lanes::Register((frag, i)) => format!("from {frag}[{i}]"),
            };
            format!("{} shuffle {x} {lanes}", def(*dst))
        }
        DeviceOp::ReduceLanes { dst, x, op } => {
            format!("{} reduce.{} {x} over lanes", def(*dst), op.name())
        }
        DeviceOp::Load { dst, place, vectors, other, cache: policy } => {
            let other = other.map(|other| format!(" else {other}")).unwrap_or_default();
            let (at, policy) = (places(device, place, vectors), cache(*policy));
            format!("{} load {at}{other}{policy}{order}", def(*dst))
        }
        DeviceOp::LoadMatrices { dst, place, loads } => {
            format!("{} ldmatrix {}", def(*dst), places(device, place, &rows(loads)))
        }
        DeviceOp::StoreMatrices { src, place, stores } => {
            format!("stmatrix {src} -> {}{order}", places(device, place, &rows(stores)))
        }
        DeviceOp::Store { src, place, vectors, update, cache: policy } => {
            let (at, policy) = (places(device, place, vectors), cache(*policy));
            let verb = update.map_or("store".to_owned(), |op| format!("atomic.{}", op.name()));
            format!("{verb} {} -> {at}{policy}{order}", arg(src))
        }
        DeviceOp::Prefetch { place, vectors, bytes, evict: policy } => {
            let bytes = bytes.map(|(frag, element)| format!(" bytes {frag}[{element}]"));
            let (at, bytes) = (places(device, place, vectors), bytes.unwrap_or_default());
            format!("prefetch.l2 {at}{bytes}{}{order}", evict(*policy))
        }
        DeviceOp::Warpgroup(op) => warpgroup(op),
        DeviceOp::Tensor(op) => tensor(device, op),
        DeviceOp::ReadSlot { dst, slot } => format!("{} {slot}", def(*dst)),
        DeviceOp::SetSlot { slot, x } => format!("{slot} = {}", arg(x)),
        DeviceOp::CopyAsync { source, dest, pieces, evict: policy } => {
            let vectors = |side: fn(&Piece) -> Address| -> Vec<Vector> {
                let vector = |piece: &Piece| {
                    let Address { offset, constant } = side(piece);
                    let predicate = piece.predicate;
                    Vector { first: 0, len: piece.len, offset, constant, predicate }
                };
                pieces.iter().map(vector).collect()
            };
            let from = places(device, source, &vectors(|piece| piece.source));
            let to = places(device, dest, &vectors(|piece| piece.dest));
            let zeros = pieces.iter().filter(|piece| piece.present.is_some()).count();
            let zeros = if zeros > 0 { format!(" zeros in {zeros}") } else { String::new() };
            format!("copy.async {from} -> {to}{zeros}{}{order}", evict(*policy))
        }
        DeviceOp::CommitGroup => "commit_group".to_owned(),
        DeviceOp::WaitGroup { pending } => format!("wait_group {pending}"),
        DeviceOp::Barrier => "barrier".to_owned(),
        DeviceOp::ClusterBarrier => "barrier of the cluster".to_owned(),
        DeviceOp::RoleBarrier { role } => format!("barrier of {}", device.roles[*role].name),
        DeviceOp::Pipe(op) => pipe(device, op, order),
        DeviceOp::Fence => "fence acq_rel gpu".to_owned(),
        DeviceOp::Signal { param, rank, at, add, alias } => {
            let (place, scope) = match rank {
                Some(rank) => (Place::Peer { param: *param, rank: *rank }, "sys"),
                None => (Place::Global(*param), "gpu"),
            };
            let place = places(device, &place, std::slice::from_ref(at));
            format!("signal {place} add {add} release {scope}{}", aliases(*alias))
        }
        DeviceOp::Await { param, at, until, alias } => {
            let place = places(device, &Place::Global(*param), std::slice::from_ref(at));
            let scope = if device.params[*param].is_flag() { "sys" } else { "gpu" };
            format!("await {place} until {until} acquire {scope}{}", aliases(*alias))
        }
        DeviceOp::Atomic { dst, param, at, change } => {
            let place = places(device, &Place::Global(*param), std::slice::from_ref(at));
            let (frag, element) = change.register();
            let name = match change {
                Change::Count { .. } => "inc",
                Change::Apply { op, .. } => op.name(),
            };
            format!("{} atomic.{name} {place}, {frag}[{element}]", def(*dst))
        }
        DeviceOp::GridWait => "grid_wait".to_owned(),
        DeviceOp::GridLaunch => "grid_launch".to_owned(),
        DeviceOp::Assert { cond, message } => format!("assert {cond}, {message:?}"),
        DeviceOp::Trace { event } => {
            let name = device.events.get(*event as usize).map_or("", String::as_str);
            format!("trace {name:?}")
        }
        DeviceOp::Printf { format, args } => {
            let args: String = args.iter().map(|arg| format!(", {arg}")).collect();
            format!("printf {format:?}{args}")
        }
        DeviceOp::Role { .. }
        | DeviceOp::For { .. }
        | DeviceOp::Repeat { .. }
        | DeviceOp::If { .. } => String::new(),
    }
}

/// `map m0: W, 64 of 256 step 1, 8 of 32 step 256, swizzle b128`
fn map(device: &DeviceKernel, id: MapId, map: &TensorMap) -> String {
    let axis = |MapAxis { extent, stride, length }: &MapAxis| {
        let extent = match extent {
            Extent::Const(extent) => extent.to_string(),
            Extent::Scalar(param) => device.params[*param].name.clone(),
        };
        format!(", {length} of {extent} step {stride}")
    };
    let axes: String = map.axes.iter().map(axis).collect();
    let swizzle = map.swizzle.name().map(|name| format!(", swizzle {name}")).unwrap_or_default();
    format!("map {id}: {}{axes}{swizzle}", device.params[map.param].name)
}

fn pipe(device: &DeviceKernel, pipe: &DevicePipe, order: &str) -> String {
    let at = |barrier: BarrierId, (frag, i): (FragId, u32)| {
        format!("{}@{frag}[{i}]", device.barriers[barrier].barrier.name)
    };
    match pipe {
        DevicePipe::Init => "make the barriers of roles".to_owned(),
        DevicePipe::Fence => "fence for asynchronous reads of buffers".to_owned(),
        DevicePipe::Wait { barrier, slot, rounds: (frag, i) } => {
            format!("wait {} for rounds {frag}[{i}]", at(*barrier, *slot))
        }
        DevicePipe::Announce { barrier, slot } => {
            let declared = &device.barriers[*barrier].barrier;
            let by = if is_gathered(declared) { ", by the first CTA" } else { "" };
            format!("announce {} bytes at {}{by}", declared.bytes_awaited(), at(*barrier, *slot))
        }
        DevicePipe::Commit { barrier, slot, everywhere } => {
            format!("commit to {}{}", at(*barrier, *slot), all_ctas(*everywhere))
        }
        DevicePipe::Arrive { barrier, slot, everywhere } => {
            let first = is_gathered(&device.barriers[*barrier].barrier);
            let whose = if first { " of the first CTA" } else { all_ctas(*everywhere) };
            format!("arrive at {}{whose}", at(*barrier, *slot))
        }
        DevicePipe::Prefetch { map, at: starts, evict: policy } => {
            let starts: Vec<String> =
                starts.iter().map(|(frag, i)| format!("{frag}[{i}]")).collect();
            format!("prefetch.tma {map}[{}]{}{order}", starts.join(", "), evict(*policy))
        }
        DevicePipe::Box {
            map,
            at: starts,
            dest,
            offset,
            barrier,
            slot,
            evict: policy,
            everywhere,
        } => {
            let (from, to) = (corner(*map, starts), box_in(device, *map, dest, *offset));
            let (policy, all) = (evict(*policy), all_ctas(*everywhere));
            let first = is_gathered(&device.barriers[*barrier].barrier);
            let all = if first { " of the first CTA" } else { all };
            format!("copy.tma {from} -> {to} into {}{all}{policy}{order}", at(*barrier, *slot))
        }
        DevicePipe::BoxOut { map, at: starts, source, offset, evict: policy } => {
            let (from, to) = (box_in(device, *map, source, *offset), corner(*map, starts));
            format!("copy.tma {from} -> {to}{}{order}", evict(*policy))
        }
        DevicePipe::CommitGroup => "commit_group of copies out".to_owned(),
        DevicePipe::WaitGroup { pending, reads } => {
            let reads = if *reads { ".read" } else { "" };
            format!("wait_group{reads} {pending} of copies out")
        }
        DevicePipe::Send { src, dest, vectors, barrier, slot } => {
            let to = places(device, dest, vectors);
            format!("copy.st_async {} -> {to} into {}", src.frag, at(*barrier, *slot))
        }
        DevicePipe::Copy { source, dest, pieces, barrier, slot, evict: policy, everywhere } => {
            let (copy, policy) = (runs(device, source, dest, pieces), evict(*policy));
            let all = all_ctas(*everywhere);
            format!("{copy} into {}{all}{policy}{order}", at(*barrier, *slot))
        }
        DevicePipe::CopyOut { source, dest, pieces, evict: policy } => {
            format!("{}{}{order}", runs(device, source, dest, pieces), evict(*policy))
        }
    }
}

fn is_gathered(barrier: &Barrier) -> bool {
    barrier.between == Between::Gathered
}

fn all_ctas(everywhere: bool) -> &'static str {
    if everywhere { " in all CTAs" } else { "" }
}

/// `m0[f1[0], f2[0]]`.
fn corner(map: MapId, starts: &[(FragId, u32)]) -> String {
    let starts: Vec<String> = starts.iter().map(|(frag, i)| format!("{frag}[{i}]")).collect();
    format!("{map}[{}]", starts.join(", "))
}

/// Where a box lies in shared memory.
fn box_in(device: &DeviceKernel, map: MapId, place: &Place, offset: Address) -> String {
    let Address { offset, constant } = offset;
    let len = u32::try_from(device.maps[map].elements()).unwrap_or(u32::MAX);
    places(device, place, &[Vector { first: 0, len, offset, constant, predicate: None }])
}

fn runs(device: &DeviceKernel, source: &Place, dest: &Place, pieces: &[Piece]) -> String {
    let side = |address: fn(&Piece) -> Address| -> Vec<Vector> {
        let vector = |piece: &Piece| {
            let Address { offset, constant } = address(piece);
            Vector { first: 0, len: piece.len, offset, constant, predicate: None }
        };
        pieces.iter().map(vector).collect()
    };
    let from = places(device, source, &side(|piece| piece.source));
    let to = places(device, dest, &side(|piece| piece.dest));
    format!("copy.bulk {from} -> {to}")
}

fn tensor(device: &DeviceKernel, op: &TensorOp) -> String {
    let column = |at: &Address| match at.offset {
        Some((frag, element)) => format!("{frag}[{element}] + {}", at.constant),
        None => at.constant.to_string(),
    };
    match op {
        TensorOp::Allocate { columns, word, pair } => {
            let pair = of_pair(*pair);
            format!("allocate {columns} columns of tensor memory{pair}, address to shared+{word}")
        }
        TensorOp::Attach { word } => format!("take the address from shared+{word}"),
        TensorOp::Free { columns, pair } => {
            format!("free {columns} columns of tensor memory{}", of_pair(*pair))
        }
        TensorOp::CopyScales { column: to, base, at, rows, pair } => {
            let (at, pair) = (column(at), of_pair(*pair));
            format!("tensor[{to} …] = scales of {rows} rows{pair} from shared+{base}[{at}]")
        }
        TensorOp::FenceBefore => "tcgen05.fence before".to_owned(),
        TensorOp::FenceAfter => "tcgen05.fence after".to_owned(),
        TensorOp::Product(product) => {
            let a = match &product.a {
                TensorLeft::Shared(a) => matrix(a),
                TensorLeft::Tensor(at) => format!("tensor[{}]", column(at)),
            };
            let b = matrix(&product.b);
            let (m, n, types) = (product.m, product.n, types(product.types));
            let (at, start) = (column(&product.column), start(product.start));
            let scales = product.scales.map_or_else(String::new, |scales| {
                let TensorScales { columns: [of_a, of_b], byte } = scales;
                format!(" scaled by tensor[{of_a}], tensor[{of_b}] byte {byte}")
            });
            let pair = if product.pair { ".pair" } else { "" };
            format!("tensor[{at}] += tcgen05{pair}.m{m}n{n}.{types} {a}, {b}{scales}{start}")
        }
        TensorOp::Store { src, column: at } => format!("tensor[{}] = {src}", column(at)),
        TensorOp::Load { dst, rows, column: at } => {
            let Frag { dtype, len } = device.frags[*dst];
            format!("{dst}: {dtype} x {len} = tensor[{}] of {rows} rows", column(at))
        }
    }
}

fn of_pair(pair: bool) -> &'static str {
    if pair { " of a pair" } else { "" }
}

fn matrix(matrix: &Matrix) -> String {
    let offset = match matrix.at.offset {
        Some((frag, element)) => format!("{frag}[{element}] + "),
        None => String::new(),
    };
    let (base, at, line) = (matrix.base, matrix.at.constant, matrix.line);
    let across = match matrix.across {
        None => String::new(),
        Some(0) => " across".to_owned(),
        Some(block) => format!(" across, blocks of {block}"),
    };
    format!("shared+{base}[{offset}{at}] lines of {line}{across}")
}

/// The rows whose places lanes give, as vectors.
fn rows(matrices: &[MatrixLoad]) -> Vec<Vector> {
    let row = |one: &MatrixLoad| {
        let Address { offset, constant } = one.at;
        Vector { first: 0, len: one.count, offset, constant, predicate: None }
    };
    matrices.iter().map(row).collect()
}

fn start(start: ProductStart) -> String {
    match start {
        ProductStart::Sums => String::new(),
        ProductStart::Zero => " from zero".to_owned(),
        ProductStart::When((frag, element)) => format!(" add {frag}[{element}]"),
    }
}

fn warpgroup(op: &WarpgroupOp) -> String {
    match op {
        WarpgroupOp::ProxyFence => "fence for asynchronous reads of shared memory".to_owned(),
        WarpgroupOp::Fence { sums } => format!("wgmma.fence {sums}"),
        WarpgroupOp::Mma(product) => {
            let start = start(product.start);
            let a = match &product.a {
                Factor::Shared(a) => matrix(a),
                Factor::Registers { frag, elements } => {
                    format!("{frag}[{} …]", elements.first().copied().unwrap_or(0))
                }
            };
            let b = matrix(&product.b);
            let first = product.sums.first().copied().unwrap_or(0);
            let (slot, n) = (product.slot, product.n);
            let (depth, types) =
                (WgmmaAtom { n, types: product.types }.depth(), types(product.types));
            format!("{slot}[{first} …] += wgmma.m64n{n}k{depth}.{types} {a}, {b}{start}")
        }
        WarpgroupOp::Commit => "wgmma.commit_group".to_owned(),
        WarpgroupOp::Wait { pending, sums } => format!("wgmma.wait_group {pending} for {sums}"),
    }
}

/// What orders a multicast address with the others.
fn aliases(fence: bool) -> &'static str {
    if fence { " alias" } else { "" }
}

fn arg(arg: &Arg) -> String {
    match &arg.map {
        Map::Identity => arg.frag.to_string(),
        Map::All(index) => format!("{}[{index}]", arg.frag),
        Map::Table(table) => {
            let shown: Vec<String> = table.iter().take(SHOWN_TABLE).map(u32::to_string).collect();
            let more = if table.len() > SHOWN_TABLE { " …" } else { "" };
            format!("{}[{}{more}]", arg.frag, shown.join(" "))
        }
    }
}

/// `W[4x8: %3 + 0, %3 + 512 if %9]`: vectors of one length together.
fn places(device: &DeviceKernel, place: &Place, vectors: &[Vector]) -> String {
    let region = match place {
        Place::Global(param) => device.params[*param].name.clone(),
        Place::Shared { base, dtype } => format!("shared+{base} as {dtype}"),
        Place::Peer { param, rank: (frag, element) } => {
            format!("{} of rank {frag}[{element}]", device.params[*param].name)
        }
        Place::Multicast { param, fold } => {
            let fold = fold.map_or(String::new(), |fold| format!("{} of ", fold.name()));
            format!("{fold}{} of all ranks", device.params[*param].name)
        }
        Place::Remote { cta: (frag, element), base, dtype } => {
            format!("shared+{base} of cta {frag}[{element}] as {dtype}")
        }
    };
    let mut groups: Vec<(u32, Vec<String>)> = Vec::new();
    for vector in vectors {
        let register = |(frag, element): (FragId, u32)| match device.frags[frag].len {
            1 => frag.to_string(),
            _ => format!("{frag}[{element}]"),
        };
        let mut text = match (vector.offset, vector.constant) {
            (None, constant) => constant.to_string(),
            (Some(offset), 0) => register(offset),
            (Some(offset), constant) if constant < 0 => {
                format!("{} - {}", register(offset), constant.unsigned_abs())
            }
            (Some(offset), constant) => format!("{} + {constant}", register(offset)),
        };
        if let Some(predicate) = vector.predicate {
            text.push_str(&format!(" if {}", register(predicate)));
        }
        match groups.last_mut() {
            Some((len, list)) if *len == vector.len => list.push(text),
            Some(_) | None => groups.push((vector.len, vec![text])),
        }
    }
    let groups: Vec<String> =
        groups.into_iter().map(|(len, list)| format!("x{len}: {}", list.join(", "))).collect();
    format!("{region}[{}]", groups.join("; "))
}
