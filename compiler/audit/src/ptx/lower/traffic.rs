//! What instructions compute, store, copy and fence, for the rules of proxies.

use super::super::{Instruction, Operand, Space};
use super::{At, Lowering, element_bytes, elements, has, has_shared, space};
use crate::traffic::{Arg, Compare, Computed, Event, Memory, Op, Place, Special};
use crate::values::DYNAMIC_SHARED;

/// Scopes beyond the CTA.
const WIDE: [&str; 5] = ["cluster", "gpu", "sys", "gl", "vc"];

impl Lowering<'_> {
    /// Notes all that the instruction does.
    pub(super) fn traffic(&mut self, at: At, instruction: &Instruction) {
        let computed = self.computed(at, instruction);
        if let Some(computed) = computed {
            self.traffic.computed.entry(at.node).or_default().push(computed);
        }
        let events = self.events(at, instruction);
        if !events.is_empty() {
            self.traffic.events.entry(at.node).or_default().extend(events);
        }
        self.spill(at, instruction);
    }

    /// An argument that a call binds to a register of the callee, or a result.
    pub(super) fn bound(&mut self, node: u32, dst: u32, arg: Arg) {
        let args = vec![arg];
        let computed = Computed { dst, op: Op::Sum, args, bits: 64, out: 64, signed: false };
        self.traffic.computed.entry(node).or_default().push(computed);
    }

    fn spill(&mut self, at: At, instruction: &Instruction) {
        if instruction.opcode != "st"
            || !matches!(space(instruction), Some(Space::Local | Space::Param))
        {
            return;
        }
        let [Operand::Address(parts, _), data, ..] = &instruction.operands[..] else { return };
        let mut place = None;
        let mut by = 0i64;
        for part in parts {
            match self.arg(at, part) {
                Arg::Slot(slot, offset) if place.is_none() => place = Some((slot, offset)),
                Arg::Number(number) => by = by.wrapping_add(number),
                _ => return,
            }
        }
        let Some((slot, offset)) = place else { return };
        let bytes = i64::from(element_bytes(instruction));
        for (index, element) in elements(data).iter().enumerate() {
            let key = (slot, offset.wrapping_add(by).wrapping_add(index as i64 * bytes));
            let arg = self.arg(at, element);
            self.traffic.slots.entry(key).or_default().push((at.node, arg));
        }
    }

    pub(super) fn arg(&mut self, at: At, operand: &Operand) -> Arg {
        let context = self.context_of(at);
        match operand {
            Operand::Reg(reg) => Arg::Reg(context.first_reg + reg),
            Operand::Integer(number) => Arg::Number(*number),
            Operand::ModuleVar(var, offset) => match self.module.vars[*var as usize].space {
                Space::Shared => self.shared_arg(*var, None, *offset),
                Space::Global => Arg::Global(*var, *offset),
                Space::Const | Space::Local | Space::Param | Space::Texture => Arg::Unknown,
            },
            Operand::LocalVar(var, offset) => {
                let info = &context.function.vars[*var as usize];
                match info.space {
                    Space::Shared => self.shared_arg(*var, Some(at.context), *offset),
                    Space::Param if at.context == 0 => {
                        let formal = context.function.params.iter().position(
                            |formal| matches!(formal, super::Formal::Var(name) if name == var),
                        );
                        match formal {
                            Some(index) => Arg::Param(index as u32, *offset, info.bytes),
                            None => Arg::Slot(context.first_slot + var, *offset),
                        }
                    }
                    Space::Param | Space::Local => Arg::Slot(context.first_slot + var, *offset),
                    Space::Global | Space::Const | Space::Texture => Arg::Unknown,
                }
            }
            Operand::Name(name) => special(name).map_or(Arg::Unknown, Arg::Special),
            Operand::Function(_)
            | Operand::Float
            | Operand::Vector(_)
            | Operand::Address(..)
            | Operand::List(_)
            | Operand::Pair(..)
            | Operand::Negated(_) => Arg::Unknown,
        }
    }

    fn shared_arg(&mut self, var: u32, context: Option<u32>, offset: i64) -> Arg {
        let context = context.map(|index| &self.layout.contexts[index as usize]);
        let number = self.shared(var, context);
        let bytes = match context {
            None => self.module.vars[var as usize].bytes,
            Some(context) => context.function.vars[var as usize].bytes,
        };
        let bytes = if number == DYNAMIC_SHARED { 0 } else { bytes };
        self.traffic.shared.insert(number, bytes);
        Arg::Shared(number, offset)
    }

    fn args(&mut self, at: At, operands: &[Operand]) -> Vec<Arg> {
        operands.iter().map(|operand| self.arg(at, operand)).collect()
    }

    /// The parts of an address.
    fn parts(&mut self, at: At, operand: Option<&Operand>) -> Vec<Arg> {
        match operand {
            Some(Operand::Address(parts, _)) => self.args(at, parts),
            Some(other) => vec![self.arg(at, other)],
            None => vec![Arg::Unknown],
        }
    }

    fn computed(&mut self, at: At, instruction: &Instruction) -> Option<Computed> {
        let operands = &instruction.operands;
        let kind = instruction
            .modifiers
            .iter()
            .rev()
            .find(|name| super::type_bits(&format!(".{name}")).is_some())
            .map_or("b32", String::as_str);
        if kind.starts_with('f') || kind.starts_with("bf") || kind.starts_with("tf") {
            return None;
        }
        let bits = super::type_bits(&format!(".{kind}"))?;
        let mut out = bits;
        let signed = kind.starts_with('s');
        let opcode = instruction.opcode.as_str();
        let target = match (opcode, operands.first()?) {
            ("elect", Operand::Pair(_, predicate)) => predicate.as_ref(),
            (_, Operand::Pair(value, _)) => value.as_ref(),
            (_, other) => other,
        };
        let dst = self.register(at, target)?;
        let mut args = self.args(at, &operands[1..]);
        let op = match opcode {
            "mov" => match operands.get(1)? {
                Operand::Vector(halves) => {
                    args = self.args(at, halves);
                    Op::Pack
                }
                _ => Op::Sum,
            },
            "cvta" => Op::Sum,
            "cvt" => {
                // Signs are carried from the source to a wider result.
                let mut types = instruction.modifiers.iter();
                out = types.find_map(|m| super::type_bits(&format!(".{m}")))?;
                args.truncate(1);
                Op::Sum
            }
            "ld" if space(instruction) == Some(Space::Param)
                || space(instruction) == Some(Space::Local) =>
            {
                args = self.parts(at, operands.get(1));
                let bytes = element_bytes(instruction);
                if let Some(Arg::Param(_, _, size)) = args.first_mut() {
                    *size = bytes;
                }
                if let [place, Arg::Number(by)] = args[..] {
                    args = match place {
                        Arg::Param(param, offset, size) => {
                            vec![Arg::Param(param, offset.wrapping_add(by), size)]
                        }
                        Arg::Slot(slot, offset) => vec![Arg::Slot(slot, offset.wrapping_add(by))],
                        _ => vec![Arg::Unknown],
                    };
                }
                if !matches!(args[..], [Arg::Param(..) | Arg::Slot(..)]) {
                    return None;
                }
                Op::Sum
            }
            "shfl" => match (has(instruction, "idx"), args.get(1)?) {
                (true, Arg::Number(0)) => {
                    args.truncate(1);
                    Op::FirstLane
                }
                _ => return None,
            },
            "elect" => Op::Elect,
            "add" => Op::Sum,
            "sub" => Op::Less,
            "mul" if has(instruction, "hi") => Op::ProductHigh,
            "mul" => {
                out = if has(instruction, "wide") { bits * 2 } else { bits };
                Op::Product
            }
            "mad" if has(instruction, "hi") => return None,
            "mad" => {
                out = if has(instruction, "wide") { bits * 2 } else { bits };
                Op::ProductSum
            }
            "shl" => Op::ShiftLeft,
            "shr" => Op::ShiftRight,
            "and" => Op::And,
            "or" => Op::Or,
            "xor" => Op::Xor,
            "not" => Op::Not,
            "min" => Op::Min,
            "max" => Op::Max,
            "div" => Op::Divide,
            "rem" => Op::Remainder,
            "bfe" => Op::Extract,
            "bfi" => Op::Insert,
            "lop3" => match args.pop()? {
                Arg::Number(table) => Op::Table(u8::try_from(table).ok()?),
                _ => return None,
            },
            "selp" => Op::Pick,
            "setp" if args.len() == 2 => Op::Compare(comparison(instruction)?),
            _ => return None,
        };
        if matches!(op, Op::Compare(_) | Op::Elect) {
            out = 1;
        }
        Some(Computed { dst, op, args, bits, out, signed })
    }

    fn events(&mut self, at: At, instruction: &Instruction) -> Vec<Event> {
        let operands = &instruction.operands;
        let first = instruction.modifiers.first().map(String::as_str).unwrap_or_default();
        let memory = match space(instruction) {
            Some(Space::Shared) => Memory::Shared,
            Some(Space::Global) => Memory::Global,
            _ => Memory::Generic,
        };
        match instruction.opcode.as_str() {
            "st" if matches!(first, "async" | "bulk") => Vec::new(),
            "st" | "stmatrix" => {
                if matches!(space(instruction), Some(Space::Local | Space::Param | Space::Const)) {
                    return Vec::new();
                }
                let addr = self.parts(at, operands.first());
                let each = element_bytes(instruction);
                let bytes = match instruction.opcode.as_str() {
                    "stmatrix" => 16,
                    _ => {
                        let data = operands.get(1).map_or(1, |data| elements(data).len() as u32);
                        each.saturating_mul(data)
                    }
                };
                let mut events =
                    vec![Event::Write { memory, addr: addr.clone(), bytes, later: false }];
                let scalar = !matches!(operands.get(1), Some(Operand::Vector(_)));
                let is_number = instruction
                    .modifiers
                    .iter()
                    .any(|m| matches!(m.as_str(), "b32" | "u32" | "s32" | "b64" | "u64" | "s64"));
                if memory != Memory::Shared && scalar && is_number {
                    events.push(signal(instruction, addr));
                }
                events
            }
            "red" if first == "async" => Vec::new(),
            "red" | "atom" => {
                let target = usize::from(instruction.opcode == "atom");
                let addr = self.parts(at, operands.get(target));
                let bytes = element_bytes(instruction);
                let mut events =
                    vec![Event::Write { memory, addr: addr.clone(), bytes, later: false }];
                if memory != Memory::Shared {
                    events.push(signal(instruction, addr));
                }
                events
            }
            "wmma" if first == "store" => {
                let addr = self.parts(at, operands.first());
                vec![Event::Write { memory, addr, bytes: 16, later: false }]
            }
            "multimem" if matches!(first, "red" | "st") => {
                let addr = self.parts(at, operands.first());
                vec![signal(instruction, addr)]
            }
            "multimem" if first == "cp" => self.bulk(at, instruction),
            "cp" if has(instruction, "bulk") => self.bulk(at, instruction),
            "cp" => self.small_copy(at, instruction),
            "wgmma" if first == "mma_async" => self.operands(at, &[1, 2], instruction),
            "tcgen05" if first == "mma" => self.operands(at, &[1, 2], instruction),
            "tcgen05" if first == "cp" => self.operands(at, &[1], instruction),
            "fence" | "membar" => fence(instruction),
            "bar" | "barrier" => self.meeting(at, instruction),
            "mbarrier" => {
                let is_wait = has(instruction, "test_wait") || has(instruction, "try_wait");
                let position = operands.iter().position(|o| matches!(o, Operand::Address(..)));
                let addr = self.parts(at, position.and_then(|index| operands.get(index)));
                if is_wait {
                    vec![Event::Await { addr }]
                } else if first.starts_with("arrive") && !has(instruction, "relaxed") {
                    vec![Event::Arrive { addr, copies: false }]
                } else {
                    Vec::new()
                }
            }
            _ => Vec::new(),
        }
    }

    /// Reads of operands by the tensor core.
    fn operands(&mut self, at: At, which: &[usize], instruction: &Instruction) -> Vec<Event> {
        let mut events = Vec::new();
        for &index in which {
            let Some(operand @ Operand::Reg(_)) = instruction.operands.get(index) else { continue };
            let place = Place::Descriptor(self.arg(at, operand));
            events.push(Event::Read { memory: Memory::Shared, place, bytes: None });
        }
        events
    }

    fn small_copy(&mut self, at: At, instruction: &Instruction) -> Vec<Event> {
        let operands = &instruction.operands;
        if has(instruction, "wait_group") || has(instruction, "wait_all") {
            return vec![Event::CopiesDone];
        }
        if has(instruction, "mbarrier") {
            let addr = self.parts(at, operands.first());
            return vec![Event::Arrive { addr, copies: true }];
        }
        if !has_shared(instruction) {
            return Vec::new();
        }
        let addr = self.parts(at, operands.first());
        let bytes = match operands.get(2) {
            Some(Operand::Integer(bytes)) => u32::try_from(*bytes).unwrap_or(16),
            _ => 16,
        };
        vec![Event::Write { memory: Memory::Shared, addr, bytes, later: true }]
    }

    fn bulk(&mut self, at: At, instruction: &Instruction) -> Vec<Event> {
        let operands = &instruction.operands;
        if has(instruction, "commit_group") {
            return vec![Event::Commit];
        }
        if has(instruction, "wait_group") {
            let left = match operands.first() {
                Some(Operand::Integer(left)) => *left,
                _ => i64::MAX,
            };
            return vec![Event::GroupWait { reads: has(instruction, "read"), left }];
        }
        if has(instruction, "prefetch") {
            return Vec::new();
        }
        let spaces: Vec<&str> = instruction
            .modifiers
            .iter()
            .map(String::as_str)
            .filter(|m| *m == "global" || m.starts_with("shared"))
            .collect();
        let is_tensor = has(instruction, "tensor");
        let mut events = Vec::new();
        let (to, from) = match spaces[..] {
            [to, from, ..] => (to, from),
            _ => return events,
        };
        let bytes = match (is_tensor, operands.get(2)) {
            (false, Some(size)) => Some(self.arg(at, size)),
            _ => None,
        };
        if from.starts_with("shared") {
            let place = Place::Address(self.parts(at, operands.get(1)));
            events.push(Event::Read { memory: Memory::Shared, place, bytes });
        } else if !is_tensor {
            let place = Place::Address(self.parts(at, operands.get(1)));
            events.push(Event::Read { memory: Memory::Global, place, bytes });
        }
        if to == "global" {
            let addr =
                if is_tensor { vec![Arg::Unknown] } else { self.parts(at, operands.first()) };
            events.push(Event::Out { addr });
        }
        events
    }

    fn meeting(&mut self, at: At, instruction: &Instruction) -> Vec<Event> {
        if has(instruction, "cluster") {
            return if has(instruction, "wait") { vec![Event::MeetCluster] } else { Vec::new() };
        }
        if has(instruction, "warp") {
            return vec![Event::MeetWarp];
        }
        let position = usize::from(has(instruction, "red"));
        let id = match instruction.operands.get(position) {
            Some(operand) => self.arg(at, operand),
            None => Arg::Number(0),
        };
        vec![Event::Meet { id, waits: !has(instruction, "arrive") }]
    }
}

fn special(name: &str) -> Option<Special> {
    Some(match name {
        "%tid.x" => Special::Thread,
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%tid.y" | "%tid.z" => Special::Axis,
        "%ctaid.x" | "%ctaid.y" | "%ctaid.z" | "%cluster_ctarank" | "%cluster_ctaid.x"
        | "%cluster_ctaid.y" | "%cluster_ctaid.z" | "%clusterid.x" | "%clusterid.y"
        | "%clusterid.z" => Special::Cta,
        "%ntid.x" => Special::Threads,
        "%ntid.y" | "%ntid.z" | "%nctaid.x" | "%nctaid.y" | "%nctaid.z" => Special::One,
        _ => return None,
    })
}

fn comparison(instruction: &Instruction) -> Option<Compare> {
    Some(match instruction.modifiers.first()?.as_str() {
        "eq" => Compare::Equal,
        "ne" => Compare::NotEqual,
        "lt" | "lo" => Compare::Less,
        "le" | "ls" => Compare::LessEqual,
        "gt" | "hi" => Compare::Greater,
        "ge" | "hs" => Compare::GreaterEqual,
        _ => return None,
    })
}

fn signal(instruction: &Instruction, addr: Vec<Arg>) -> Event {
    let is_atomic = matches!(instruction.opcode.as_str(), "atom" | "red" | "multimem");
    let release = has(instruction, "release") || has(instruction, "acq_rel");
    let strong = release
        || is_atomic
        || ["relaxed", "volatile", "mmio"].iter().any(|name| has(instruction, name));
    Event::Signal { addr, release: release && !has(instruction, "cta"), strong }
}

fn fence(instruction: &Instruction) -> Vec<Event> {
    let names = &instruction.modifiers;
    if !names.iter().any(|name| name.starts_with("proxy")) {
        let is_fence = !has(instruction, "mbarrier_init") && !has(instruction, "acquire");
        let is_wide = WIDE.iter().any(|scope| has(instruction, scope));
        return if is_fence && is_wide { vec![Event::Fence] } else { Vec::new() };
    }
    let starts = |what: &str| names.iter().any(|name| name.starts_with(what));
    if !starts("async") && !starts("proxy::async") {
        return Vec::new();
    }
    let shared = names.iter().any(|name| name.contains("shared"));
    let global = has(instruction, "global");
    vec![Event::ProxyFence { shared: shared || !global, global: global || !shared }]
}
