//! A kernel in machine code as the rules see it.
//!
//! Assumes the text of the disassembler and what the cubin says of the kernel. Guarantees a flow graph
//! in execution order, each call with its own copy of the subroutine, with steps that move values and
//! a role for every access of memory; what touches memory and is not understood is a gap.

use rustc_hash::FxHashMap;

use super::elf::{CubinInfo, KernelInfo};
use super::opcode::{Class, classify, has};
use super::{Code, Instruction, Operand, REGISTERS, Reg};
use crate::dataflow::{Guard, Program, Source, Step};
use crate::graph::Graph;
use crate::kernel::{Gap, Kernel, Named, Order, Param, Place, Role, is_harmless_function};
use crate::values::{ANY_SHARED, Origin, SHARED_WINDOW, ValueId, Values};

mod compute;

/// Nodes of one kernel at most; larger ones are not judged.
const MOST_NODES: usize = 200_000;
/// Calls nest no deeper than this.
const DEEPEST_CALL: u32 = 64;
/// Distance in which an invalidation belongs to the load before it.
const ACQUIRE_REACH: usize = 16;
/// Distance in which the address of a called function was loaded.
const CALL_REACH: usize = 64;
/// The tracked variable that stands for the stack of the thread.
const STACK: u32 = 0;

/// Which lines number the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lines<'a> {
    /// None: the address does.
    None,
    /// Those of one file.
    Of(&'a str),
    /// Those of any file.
    Any,
}

/// Makes the kernel in section `section` ready for the rules.
pub(crate) fn lower(code: &Code, section: usize, cubin: &CubinInfo, lines: Lines<'_>) -> Kernel {
    let unknown = KernelInfo::default();
    let info = cubin.kernels.get(&code.sections[section].name).unwrap_or(&unknown);
    let mut lowering = Lowering {
        code,
        info,
        bank_functions: &cubin.bank_functions,
        lines,
        values: Values::new(),
        graph: Graph::default(),
        steps: Vec::new(),
        guards: Vec::new(),
        roles: Vec::new(),
        places: Vec::new(),
        gaps: Vec::new(),
        contexts: vec![Context { caller: None, target: (section, 0), depth: 0 }],
        nodes: FxHashMap::default(),
        work: Vec::new(),
        symbols: symbols(code),
    };
    let exit = lowering.add_node();
    let entry = if code.sections[section].instructions.is_empty() {
        exit
    } else {
        lowering.node(0, section, 0)
    };
    while let Some((node, context, section, index)) = lowering.work.pop() {
        if lowering.graph.len() > MOST_NODES {
            lowering
                .gaps
                .push(Gap { node: None, message: "the kernel is too large to follow".to_owned() });
            break;
        }
        lowering.visit(node, context, section, index, exit);
    }
    let params = info
        .params
        .iter()
        .enumerate()
        .map(|(ordinal, &(_, bytes))| Param {
            label: format!("#{ordinal}"),
            bytes,
            is_pointer: false,
            is_bytes: bytes > 8,
        })
        .collect();
    Kernel {
        name: code.sections[section].name.clone(),
        params,
        globals: Vec::new(),
        program: Program {
            graph: lowering.graph,
            steps: lowering.steps,
            guards: lowering.guards,
            entry,
            regs: REGISTERS,
        },
        initial: Vec::new(),
        values: lowering.values,
        roles: lowering.roles,
        places: lowering.places,
        gaps: lowering.gaps,
        traffic: crate::traffic::Traffic::default(),
    }
}

/// One call of a subroutine.
#[derive(Clone, Copy, Debug)]
struct Context {
    /// Context, section and instruction of the call.
    caller: Option<(u32, usize, u32)>,
    target: (usize, u32),
    depth: u32,
}

struct Lowering<'a> {
    code: &'a Code,
    info: &'a KernelInfo,
    bank_functions: &'a [String],
    lines: Lines<'a>,
    values: Values,
    graph: Graph,
    steps: Vec<Vec<Step>>,
    guards: Vec<Option<Guard>>,
    roles: Vec<Role>,
    places: Vec<Place>,
    gaps: Vec<Gap>,
    contexts: Vec<Context>,
    nodes: FxHashMap<(u32, usize, u32), u32>,
    work: Vec<(u32, u32, usize, u32)>,
    symbols: FxHashMap<&'a str, (usize, u32)>,
}

/// Whether a call is a jump in disguise: it goes to a place without a symbol, and nothing before it puts
/// the address behind it into a register, to which a subroutine would return.
fn is_jump(label: Option<&str>, list: &[Instruction], index: u32) -> bool {
    let index = index as usize;
    let Some(next) = list.get(index + 1) else { return false };
    let back = Operand::Integer(next.address as i64);
    let before = list[..index].iter().rev().take(CALL_REACH);
    label.is_some_and(|name| name.starts_with(".L"))
        && !before.flat_map(|earlier| &earlier.operands).any(|operand| *operand == back)
}

/// Every name in the code.
fn symbols(code: &Code) -> FxHashMap<&str, (usize, u32)> {
    let mut map = FxHashMap::default();
    for (index, section) in code.sections.iter().enumerate() {
        map.insert(section.name.as_str(), (index, 0));
        for (name, at) in &section.labels {
            map.insert(name.as_str(), (index, *at));
        }
    }
    map
}

impl Lowering<'_> {
    fn add_node(&mut self) -> u32 {
        self.steps.push(Vec::new());
        self.guards.push(None);
        self.roles.push(Role::None);
        self.places.push(Place { id: u32::MAX, address: 0 });
        self.graph.add_node()
    }

    /// The node of an instruction in a context, to be visited when it is new.
    fn node(&mut self, context: u32, section: usize, index: u32) -> u32 {
        if let Some(&node) = self.nodes.get(&(context, section, index)) {
            return node;
        }
        let node = self.add_node();
        self.nodes.insert((context, section, index), node);
        self.work.push((node, context, section, index));
        node
    }

    fn gap(&mut self, node: u32, message: impl Into<String>) {
        self.gaps.push(Gap { node: Some(node), message: message.into() });
    }

    fn visit(&mut self, node: u32, context: u32, section: usize, index: u32, exit: u32) {
        let code = self.code;
        let list = &code.sections[section].instructions;
        let instruction = &list[index as usize];
        let line = instruction.line.as_ref();
        let id = match (line, self.lines) {
            (Some(line), Lines::Of(file)) if &*line.file == file => line.line,
            (Some(line), Lines::Any) => line.line,
            (_, Lines::None | Lines::Of(_) | Lines::Any) => u32::MAX,
        };
        self.places[node as usize] = Place { id, address: instruction.address };
        // An instruction that never runs is nothing.
        let never = instruction.guard.is_some_and(|g| g.reg.is_none() && g.negated);
        let class = if never { Class::Compute } else { classify(instruction) };
        self.guards[node as usize] =
            instruction.guard.and_then(|g| g.reg.map(|reg| Guard { reg, negated: g.negated }));
        if !never {
            self.effect(node, class, list, index);
        }
        self.flow(node, class, context, (section, index), exit);
    }

    /// Edges out of the instruction; the one that falls through comes last.
    fn flow(&mut self, node: u32, class: Class, context: u32, at: (usize, u32), exit: u32) {
        let (section, index) = at;
        let code = self.code;
        let list = &code.sections[section].instructions;
        let instruction = &list[index as usize];
        let guarded = self.guards[node as usize].is_some();
        let mut falls = guarded;
        let label = instruction.operands.iter().find_map(Operand::label);
        match class {
            Class::Branch => {
                falls |= instruction.operands.len() > 1
                    || has(instruction, "DIV")
                    || has(instruction, "CONV");
                match label.and_then(|name| self.symbols.get(name).copied()) {
                    Some((to, place)) => self.go(node, context, to, place, exit),
                    None => self.gap(node, "the branch has targets that are not known"),
                }
            }
            Class::BranchTable => {
                let targets = self.info.branches.get(&instruction.address).cloned();
                match targets {
                    Some(targets) if self.contexts[context as usize].target.0 == section => {
                        for target in targets {
                            let place = list.partition_point(|i| i.address < target) as u32;
                            self.go(node, context, section, place, exit);
                        }
                    }
                    _ => self.gap(node, "the branch has targets that are not known"),
                }
            }
            Class::Call => {
                falls = true;
                match label.and_then(|name| self.symbols.get(name).copied()) {
                    Some((to, place)) if is_jump(label, list, index) => {
                        falls = guarded;
                        self.go(node, context, to, place, exit);
                    }
                    Some(target) => {
                        falls = guarded;
                        self.call(node, context, at, target, exit);
                    }
                    None if self.is_harmless_call(list, index) => {}
                    None => self.gap(node, "the function to call is not known"),
                }
            }
            Class::Return => match self.contexts[context as usize].caller {
                Some((caller, section, call)) => self.go(node, caller, section, call + 1, exit),
                None => self.graph.add_edge(node, exit),
            },
            Class::Exit => self.graph.add_edge(node, exit),
            Class::Compute
            | Class::ConstantLoad
            | Class::ConstantLoadGlobal
            | Class::LoadGlobal
            | Class::LoadGeneric
            | Class::Copy
            | Class::LoadLocal
            | Class::StoreLocal
            | Class::LoadShared
            | Class::StoreShared
            | Class::Write
            | Class::Atomic
            | Class::AtomicGeneric
            | Class::Texture
            | Class::OnChip
            | Class::Barrier
            | Class::Fence
            | Class::Invalidate
            | Class::GridWait
            | Class::GridLaunch
            | Class::Unknown => falls = true,
        }
        if falls {
            self.go(node, context, section, index + 1, exit);
        }
    }

    fn go(&mut self, from: u32, context: u32, section: usize, index: u32, exit: u32) {
        let to = if (index as usize) < self.code.sections[section].instructions.len() {
            self.node(context, section, index)
        } else {
            exit
        };
        self.graph.add_edge(from, to);
    }

    /// Whether the call goes to a function that the bank of addresses holds, and all of those are
    /// known to read no data of the kernel.
    fn is_harmless_call(&self, list: &[Instruction], index: u32) -> bool {
        let call = &list[index as usize];
        let Some(Operand::Reg { reg, .. }) = call.operands.first() else {
            return call.operands.iter().any(
                |operand| matches!(operand, Operand::Label(name) if is_harmless_function(name)),
            );
        };
        let writer = list[..index as usize].iter().rev().take(CALL_REACH).find(|earlier| {
            matches!(earlier.operands.first(), Some(Operand::Reg { reg: dst, .. }) if dst == reg)
        });
        let from_bank = writer.is_some_and(|writer| {
            writer
                .operands
                .iter()
                .any(|operand| matches!(operand, Operand::Constant { bank: 4, .. }))
        });
        from_bank
            && !self.bank_functions.is_empty()
            && self.bank_functions.iter().all(|name| is_harmless_function(name))
    }

    fn call(&mut self, node: u32, context: u32, at: (usize, u32), target: (usize, u32), exit: u32) {
        let depth = self.contexts[context as usize].depth;
        let mut above = Some(context);
        while let Some(index) = above {
            let inside = self.contexts[index as usize];
            if inside.target == target || depth >= DEEPEST_CALL {
                self.gap(node, "the subroutine calls itself");
                self.go(node, context, at.0, at.1 + 1, exit);
                return;
            }
            above = inside.caller.map(|(caller, _, _)| caller);
        }
        let inner = self.contexts.len() as u32;
        self.contexts.push(Context {
            caller: Some((context, at.0, at.1)),
            target,
            depth: depth + 1,
        });
        self.go(node, inner, target.0, target.1, exit);
    }

    /// Steps and role of the instruction.
    fn effect(&mut self, node: u32, class: Class, list: &[Instruction], index: u32) {
        let instruction = &list[index as usize];
        let role = match class {
            Class::Compute => {
                self.compute(node, instruction);
                return;
            }
            Class::ConstantLoad => {
                self.constant_load(node, instruction);
                return;
            }
            Class::ConstantLoadGlobal => {
                let addr = self.address(instruction, 0);
                self.loaded(node, instruction);
                Role::Read { noncoherent: true, order: Order::Weak, named: Named::Global, addr }
            }
            Class::LoadGlobal | Class::LoadGeneric => {
                let addr = self.address(instruction, 0);
                self.load(node, instruction, &addr);
                let generic = class == Class::LoadGeneric;
                let named = if generic { Named::Generic } else { Named::Global };
                Role::Read {
                    noncoherent: has(instruction, "CONSTANT"),
                    order: self.order(list, index),
                    named,
                    addr,
                }
            }
            Class::Copy => {
                let addr = self.address(instruction, 1);
                Role::Read { noncoherent: false, order: Order::Weak, named: Named::Global, addr }
            }
            Class::LoadLocal => {
                let addr = self.address(instruction, 0);
                self.load(node, instruction, &addr);
                return;
            }
            Class::StoreLocal => {
                let addr = self.address(instruction, 0);
                self.store(node, instruction, &addr);
                return;
            }
            Class::LoadShared => {
                let mut addr = self.address(instruction, 0);
                addr.push(Source::Value(self.values.origin(Origin::Shared(ANY_SHARED), Some(0))));
                self.load(node, instruction, &addr);
                // Tensor memory and atomics are no loads of shared memory.
                if !matches!(instruction.base.as_str(), "LDS" | "LDSM" | "ULDS") {
                    return;
                }
                Role::SharedRead
            }
            Class::StoreShared => {
                let mut addr = self.address(instruction, 0);
                addr.push(Source::Value(self.values.origin(Origin::Shared(ANY_SHARED), Some(0))));
                self.store(node, instruction, &addr);
                return;
            }
            Class::Write => {
                let addr = self.address(instruction, 0);
                self.store(node, instruction, &addr);
                Role::Touch { addr }
            }
            Class::Atomic | Class::AtomicGeneric => {
                let addr = self.address(instruction, 0);
                self.loaded(node, instruction);
                let idle = matches!(
                    instruction.operands.last(),
                    Some(Operand::Reg { reg: Reg::Zero, .. })
                ) && ["OR", "XOR", "ADD"].iter().any(|op| has(instruction, op));
                let generic = class == Class::AtomicGeneric;
                Role::Atomic {
                    acquire: self.is_acquire(list, index),
                    polls: ["CAS", "CAST", "EXCH"].iter().any(|op| has(instruction, op)) || idle,
                    named: if generic { Named::Generic } else { Named::Global },
                    addr,
                }
            }
            Class::Texture => {
                let handle = instruction
                    .operands
                    .iter()
                    .skip(1)
                    .filter(|operand| {
                        matches!(operand, Operand::Constant { .. })
                            || operand.register().is_some_and(|n| n >= super::FIRST_UNIFORM)
                    })
                    .map(|operand| self.source(operand))
                    .collect();
                self.loaded(node, instruction);
                Role::Texture { handle }
            }
            Class::OnChip => {
                self.loaded(node, instruction);
                return;
            }
            Class::Barrier => {
                self.barrier(node, instruction);
                let arrives = instruction.base == "UCGABAR_ARV" || has(instruction, "ARV");
                let cluster = matches!(instruction.base.as_str(), "UCGABAR_ARV" | "UCGABAR_WAIT");
                Role::Barrier { waits: !arrives, cluster }
            }
            Class::Fence | Class::Invalidate => Role::Fence,
            Class::GridWait => Role::GridWait,
            Class::GridLaunch => Role::GridLaunch,
            Class::Branch | Class::BranchTable | Class::Call | Class::Return | Class::Exit => {
                let on = self.sources(instruction);
                self.steps[node as usize].push(Step::Depend { on });
                return;
            }
            Class::Unknown => {
                let mut name = instruction.base.clone();
                for modifier in &instruction.modifiers {
                    name.push('.');
                    name.push_str(modifier);
                }
                self.gap(node, format!("`{name}` is not known"));
                self.loaded(node, instruction);
                return;
            }
        };
        self.roles[node as usize] = role;
    }

    fn order(&self, list: &[Instruction], index: u32) -> Order {
        let instruction = &list[index as usize];
        let strong = ["STRONG", "MMIO", "VOLATILE"].iter().any(|m| has(instruction, m));
        if !strong {
            Order::Weak
        } else if self.is_acquire(list, index) {
            Order::Acquire
        } else {
            Order::Strong
        }
    }

    /// Whether the first-level cache is emptied behind the load before anything else synchronises.
    fn is_acquire(&self, list: &[Instruction], index: u32) -> bool {
        let own = &list[index as usize];
        for next in list.iter().skip(index as usize + 1).take(ACQUIRE_REACH) {
            match classify(next) {
                Class::Invalidate => {
                    return next.guard == own.guard || next.guard.is_none();
                }
                Class::LoadGlobal | Class::LoadGeneric if !has(next, "STRONG") => {}
                Class::Compute
                | Class::ConstantLoad
                | Class::LoadShared
                | Class::LoadLocal
                | Class::StoreLocal => {}
                Class::ConstantLoadGlobal
                | Class::LoadGlobal
                | Class::LoadGeneric
                | Class::Copy
                | Class::Write
                | Class::Atomic
                | Class::AtomicGeneric
                | Class::Texture
                | Class::OnChip
                | Class::StoreShared
                | Class::Barrier
                | Class::Fence
                | Class::GridWait
                | Class::GridLaunch
                | Class::Branch
                | Class::BranchTable
                | Class::Call
                | Class::Return
                | Class::Exit
                | Class::Unknown => return false,
            }
        }
        false
    }

    /// Parts of the bracketed address with this number.
    fn address(&mut self, instruction: &Instruction, which: usize) -> Vec<Source> {
        let parts = instruction.operands.iter().filter_map(Operand::address).nth(which);
        parts.into_iter().flatten().map(|part| self.source(part)).collect()
    }

    /// The value of an operand, for the low word of a pair.
    fn source(&mut self, operand: &Operand) -> Source {
        Source::Value(match operand {
            Operand::Reg { reg: Reg::Zero, .. } => self.values.constant(0),
            Operand::Reg { reg: Reg::Numbered(number), negated } => {
                return if *negated { Source::Used(*number) } else { Source::Reg(*number) };
            }
            Operand::Integer(number) => {
                // Words are printed without sign.
                let word = u32::try_from(*number).map(|word| i64::from(word.cast_signed()));
                self.values.constant(word.unwrap_or(*number))
            }
            Operand::Constant { bank, index, offset } => self.bank(*bank, *index, *offset),
            Operand::Predicate(predicate) => match predicate.reg {
                Some(reg) => return Source::Used(reg),
                None => ValueId::NUMBER,
            },
            Operand::CtaInCluster => self.values.origin(Origin::Shared(SHARED_WINDOW), Some(0)),
            Operand::Address(_) | Operand::Label(_) | Operand::Other => ValueId::NUMBER,
        })
    }

    /// What a constant bank holds.
    fn bank(&mut self, bank: u32, index: Option<Reg>, offset: i64) -> ValueId {
        if bank != 0 {
            return ValueId::OPAQUE;
        }
        let Some(base) = self.info.params_at else { return ValueId::OPAQUE };
        let at = offset - i64::from(base);
        if at < 0 {
            return if index.is_some() { ValueId::OPAQUE } else { ValueId::NUMBER };
        }
        let found = self.info.params.iter().position(|&(start, bytes)| {
            (i64::from(start)..i64::from(start) + i64::from(bytes)).contains(&at)
        });
        match found {
            Some(param) if index.is_some() && self.info.params[param].1 <= 8 => ValueId::OPAQUE,
            Some(param) if self.info.params[param].1 >= 8 => {
                self.values.origin(Origin::Param(param as u32), None)
            }
            Some(_) => ValueId::NUMBER,
            None => ValueId::OPAQUE,
        }
    }

    fn sources(&mut self, instruction: &Instruction) -> Vec<Source> {
        instruction
            .operands
            .iter()
            .filter_map(|operand| operand.register().or(operand.predicate()))
            .map(Source::Used)
            .collect()
    }
}
