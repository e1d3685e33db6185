//! A kernel of a module as the rules see it.
//!
//! Assumes a parsed module. Guarantees a flow graph over the instructions of the kernel and its
//! callees, with steps that move values and a role for every access of memory; whatever touches memory
//! and is not understood is a gap.

use rustc_hash::FxHashMap;

use super::effect::{Class, classify};
use super::inline::{Context, Layout, branch_targets, call_lists, called, lay_out};
use super::parse::type_bits;
use super::{Formal, Function, Instruction, Module, Operand, Space};
use crate::dataflow::{Guard, Program, Source, Step};
use crate::graph::Graph;
use crate::kernel::{Gap, Kernel, Param, Place, Role, is_harmless_function};
use crate::traffic::{Arg, Traffic};
use crate::values::{ANY_SHARED, DYNAMIC_SHARED, Origin, ValueId, Values};

mod compute;
mod guards;
mod memory;
mod traffic;

/// Makes the kernel that the rules judge.
pub(crate) fn lower(module: &Module, function: &Function) -> Kernel {
    let layout = lay_out(module, function);
    let count = layout.nodes as usize;
    let mut graph = Graph::default();
    for _ in 0..count {
        graph.add_node();
    }
    let mut lowering = Lowering {
        module,
        layout: &layout,
        values: Values::new(),
        graph,
        steps: vec![Vec::new(); count],
        guards: vec![None; count],
        roles: vec![Role::None; count],
        places: vec![Place { id: u32::MAX, address: 0 }; count],
        gaps: layout.gaps.clone(),
        shared_of: FxHashMap::default(),
        constants: FxHashMap::default(),
        traffic: Traffic { threads: function.threads, ..Traffic::default() },
    };
    for context in &layout.contexts {
        lowering.shared_of.entry(&context.function.name).or_insert(context.first_slot);
    }
    if !module.wide {
        lowering.gaps.push(Gap { node: None, message: "addresses have 32 bits".to_owned() });
    }
    for index in 0..layout.contexts.len() {
        lowering.context(index as u32);
    }
    let params = function.params.iter().map(|formal| kernel_param(function, formal)).collect();
    let entry = lowering.entry_of(0, layout.exit);
    lowering.unify_guards(entry);
    Kernel {
        name: function.name.clone(),
        params,
        globals: module.vars.iter().map(|var| var.name.clone()).collect(),
        program: Program {
            graph: lowering.graph,
            steps: lowering.steps,
            guards: lowering.guards,
            entry,
            regs: layout.regs,
        },
        initial: Vec::new(),
        values: lowering.values,
        roles: lowering.roles,
        places: lowering.places,
        gaps: lowering.gaps,
        traffic: lowering.traffic,
    }
}

fn kernel_param(function: &Function, formal: &Formal) -> Param {
    match formal {
        Formal::Var(var) => {
            let var = &function.vars[*var as usize];
            Param {
                label: var.name.clone(),
                bytes: var.bytes,
                is_pointer: var.is_pointer,
                is_bytes: var.is_array,
            }
        }
        Formal::Reg(_) => {
            Param { label: String::new(), bytes: 8, is_pointer: false, is_bytes: false }
        }
    }
}

struct Lowering<'a> {
    module: &'a Module,
    layout: &'a Layout<'a>,
    values: Values,
    graph: Graph,
    steps: Vec<Vec<Step>>,
    guards: Vec<Option<Guard>>,
    roles: Vec<Role>,
    places: Vec<Place>,
    gaps: Vec<Gap>,
    /// First variable of the first call of each function.
    shared_of: FxHashMap<&'a str, u32>,
    traffic: Traffic,
    /// Registers that one instruction sets to a constant, and others with none.
    constants: FxHashMap<u32, Option<i64>>,
}

/// The context and node of the instruction that is being lowered.
#[derive(Clone, Copy)]
struct At {
    context: u32,
    node: u32,
}

impl<'a> Lowering<'a> {
    fn context_of(&self, at: At) -> &'a Context<'a> {
        &self.layout.contexts[at.context as usize]
    }

    /// First node of a context; `after` where it is empty.
    fn entry_of(&self, context: u32, after: u32) -> u32 {
        let context = &self.layout.contexts[context as usize];
        let empty = context.function.body.as_ref().is_none_or(|body| body.instructions.is_empty());
        if empty { after } else { context.first_node }
    }

    fn gap(&mut self, at: At, message: impl Into<String>) {
        self.gaps.push(Gap { node: Some(at.node), message: message.into() });
    }

    fn context(&mut self, index: u32) {
        let layout = self.layout;
        let context = &layout.contexts[index as usize];
        let Some(body) = &context.function.body else { return };
        let returns = layout.backs.get(&index).copied().unwrap_or(layout.exit);
        let count = body.instructions.len() as u32;
        for (offset, instruction) in body.instructions.iter().enumerate() {
            let at = At { context: index, node: context.first_node + offset as u32 };
            self.note_constant(at, instruction);
        }
        for (offset, instruction) in body.instructions.iter().enumerate() {
            let at = At { context: index, node: context.first_node + offset as u32 };
            let next = if offset as u32 + 1 < count { at.node + 1 } else { returns };
            self.places[at.node as usize] = Place { id: instruction.id, address: 0 };
            self.guards[at.node as usize] = instruction
                .guard
                .map(|(reg, negated)| Guard { reg: context.first_reg + reg, negated });
            self.instruction(at, instruction);
            self.traffic(at, instruction);
            self.flow(at, instruction, next, returns);
        }
    }

    fn note_constant(&mut self, at: At, instruction: &Instruction) {
        let set = match &instruction.operands[..] {
            [_, Operand::Integer(number)] if instruction.opcode == "mov" => Some(*number),
            _ => None,
        };
        for reg in self.results(at, instruction) {
            self.constants.entry(reg).and_modify(|old| *old = None).or_insert(set);
        }
    }

    /// The number that an operand always is.
    fn constant(&self, at: At, operand: &Operand) -> Option<i64> {
        match operand {
            Operand::Integer(number) => Some(*number),
            other => self.constants.get(&self.register(at, other)?).copied().flatten(),
        }
    }

    /// Edges out of the instruction.
    fn flow(&mut self, at: At, instruction: &Instruction, next: u32, returns: u32) {
        let layout = self.layout;
        let context = self.context_of(at);
        let class = classify(&instruction.opcode, &instruction.modifiers);
        let mut falls = instruction.guard.is_some();
        match class {
            Some(Class::Branch | Class::BranchTable) => {
                match branch_targets(&instruction.targets) {
                    Some(labels) => {
                        let count =
                            context.function.body.as_ref().map_or(0, |b| b.instructions.len());
                        for &label in labels {
                            let to = if (label as usize) < count {
                                context.first_node + label
                            } else {
                                returns
                            };
                            self.graph.add_edge(at.node, to);
                        }
                    }
                    None => self.gap(at, "the branch has targets that are not known"),
                }
            }
            Some(Class::Return) => self.graph.add_edge(at.node, returns),
            Some(Class::Exit) => self.graph.add_edge(at.node, layout.exit),
            Some(Class::Call) => {
                match layout.links.get(&(at.context, at.node - context.first_node)) {
                    Some(link) => {
                        let first = self.entry_of(link.callee, link.back);
                        self.graph.add_edge(at.node, first);
                        self.graph.add_edge(link.back, next);
                        self.pass_arguments(at, instruction, link.callee, link.back);
                    }
                    None => {
                        self.call_outside(at, instruction);
                        falls = true;
                    }
                }
            }
            Some(
                Class::Compute
                | Class::Load
                | Class::LoadUniform
                | Class::Store
                | Class::Atomic
                | Class::Reduction
                | Class::Texture
                | Class::SurfaceRead
                | Class::SurfaceWrite
                | Class::Hint
                | Class::AsyncCopy
                | Class::Multimem
                | Class::Fragment
                | Class::OnChip
                | Class::Barrier
                | Class::Fence
                | Class::Mbarrier
                | Class::GridControl,
            )
            | None => falls = true,
        }
        if falls {
            self.graph.add_edge(at.node, next);
        }
    }

    /// Binds arguments to parameters before the callee, and results after it.
    fn pass_arguments(&mut self, at: At, instruction: &Instruction, callee: u32, back: u32) {
        let (results, arguments) = call_lists(&instruction.operands);
        let inner = At { context: callee, node: back };
        let function = self.context_of(inner).function;
        for (formal, actual) in function.params.iter().zip(arguments) {
            let steps = self.transfer(inner, formal, at, actual, true);
            self.steps[at.node as usize].extend(steps);
        }
        for (formal, actual) in function.returns.iter().zip(results) {
            let steps = self.transfer(inner, formal, at, actual, false);
            self.steps[back as usize].extend(steps);
        }
    }

    fn transfer(
        &mut self,
        inner: At,
        formal: &Formal,
        outer: At,
        actual: &Operand,
        into: bool,
    ) -> Vec<Step> {
        let inside = self.context_of(inner);
        let outside = self.context_of(outer);
        match (formal, actual) {
            (Formal::Var(var), Operand::LocalVar(name, _)) => {
                let (formal, actual) = (inside.first_slot + var, outside.first_slot + name);
                let (from, to) = if into { (actual, formal) } else { (formal, actual) };
                self.traffic.copied.entry(to).or_default().push(from);
                vec![Step::CopySlot { from, to }]
            }
            (Formal::Var(var), actual) => {
                let slot = self.values.origin(Origin::Slot(inside.first_slot + var), Some(0));
                let addr = vec![Source::Value(slot)];
                if into {
                    let src = self.source(outer, actual);
                    let arg = self.arg(outer, actual);
                    let stored =
                        self.traffic.slots.entry((inside.first_slot + var, 0)).or_default();
                    stored.push((outer.node, arg));
                    vec![Step::Store { addr, bytes: 8, src }]
                } else {
                    match self.register(outer, actual) {
                        Some(dst) => {
                            vec![Step::Load { dst, addr, bytes: 8, missing: ValueId::OPAQUE }]
                        }
                        None => Vec::new(),
                    }
                }
            }
            (Formal::Reg(reg), actual) => {
                let inner_reg = inside.first_reg + reg;
                if into {
                    let parts = vec![self.source(outer, actual)];
                    let arg = self.arg(outer, actual);
                    self.bound(outer.node, inner_reg, arg);
                    vec![Step::Sum { dst: inner_reg, parts }]
                } else {
                    match self.register(outer, actual) {
                        Some(dst) => {
                            self.bound(inner.node, dst, Arg::Reg(inner_reg));
                            vec![Step::Sum { dst, parts: vec![Source::Reg(inner_reg)] }]
                        }
                        None => Vec::new(),
                    }
                }
            }
        }
    }

    /// A call that cannot be followed, or need not be.
    fn call_outside(&mut self, at: At, instruction: &Instruction) {
        match called(&instruction.operands) {
            Some(name) if is_harmless_function(name) => {}
            Some(name) => {
                let known = self.layout.gaps.iter().any(|gap| gap.node == Some(at.node));
                if !known {
                    self.gap(at, format!("`{name}` is called and is not in the file"));
                }
            }
            None => self.gap(at, "the function to call is computed"),
        }
        let (results, _) = call_lists(&instruction.operands);
        for result in results {
            if let Operand::LocalVar(var, _) = result {
                let slot = self.context_of(at).first_slot + var;
                let slot = self.values.origin(Origin::Slot(slot), Some(0));
                self.steps[at.node as usize].push(Step::Store {
                    addr: vec![Source::Value(slot)],
                    bytes: 16,
                    src: Source::Value(ValueId::OPAQUE),
                });
            } else if let Some(dst) = self.register(at, result) {
                self.steps[at.node as usize].push(Step::Opaque { dst, uses: Vec::new() });
            }
        }
    }

    fn instruction(&mut self, at: At, instruction: &Instruction) {
        let Some(class) = classify(&instruction.opcode, &instruction.modifiers) else {
            self.gap(at, format!("`{}` is not known", mnemonic(instruction)));
            self.clobber(at, instruction);
            return;
        };
        match class {
            Class::Compute => self.compute(at, instruction),
            Class::Load => self.load(at, instruction),
            Class::LoadUniform => self.load_as(at, instruction, Some(Space::Global), true),
            Class::Store => self.store(at, instruction),
            Class::Atomic => self.atomic(at, instruction),
            Class::Reduction => {
                if !has_shared(instruction) {
                    self.touch(at, instruction, 0);
                }
            }
            Class::Texture | Class::SurfaceRead => self.texture(at, instruction),
            Class::SurfaceWrite => {}
            Class::Hint => self.touch(at, instruction, 0),
            Class::AsyncCopy => self.async_copy(at, instruction),
            Class::Multimem => self.multimem(at, instruction),
            Class::Fragment => self.fragment(at, instruction),
            Class::OnChip => self.on_chip(at, instruction),
            Class::Barrier => {
                let (waits, cluster) = (!has(instruction, "arrive"), has(instruction, "cluster"));
                self.roles[at.node as usize] = Role::Barrier { waits, cluster };
                if has(instruction, "red") {
                    self.numbers(at, instruction);
                }
            }
            Class::Fence => self.roles[at.node as usize] = Role::Fence,
            Class::Mbarrier => {
                if has(instruction, "test_wait") || has(instruction, "try_wait") {
                    self.roles[at.node as usize] = Role::Barrier { waits: true, cluster: false };
                }
                self.numbers(at, instruction);
            }
            Class::GridControl => {
                self.roles[at.node as usize] =
                    if has(instruction, "wait") { Role::GridWait } else { Role::GridLaunch };
            }
            Class::Branch | Class::Call | Class::Return | Class::Exit => {}
            Class::BranchTable => {
                // The index decides where control goes, as a predicate does.
                let on = self.uses(at, &instruction.operands);
                self.steps[at.node as usize].push(Step::Depend { on });
            }
        }
    }

    /// All registers of the first operand become numbers that depend on the others.
    fn numbers(&mut self, at: At, instruction: &Instruction) {
        let uses = self.uses(at, &instruction.operands[1.min(instruction.operands.len())..]);
        for dst in self.results(at, instruction) {
            self.steps[at.node as usize].push(Step::Number { dst, uses: uses.clone() });
        }
    }

    /// The registers that the instruction writes: those of its first operand, unless that is an
    /// address or the instruction writes none.
    fn results(&self, at: At, instruction: &Instruction) -> Vec<u32> {
        let writes_none = matches!(
            instruction.opcode.as_str(),
            "nanosleep" | "pmevent" | "setmaxnreg" | "brkpt" | "stackrestore" | "brx"
        ) || matches!(instruction.opcode.as_str(), "bar" | "barrier")
            && !has(instruction, "red");
        match instruction.operands.first() {
            Some(Operand::Address(..)) | None => Vec::new(),
            Some(_) if writes_none => Vec::new(),
            Some(target) => self.registers(at, target),
        }
    }

    /// All registers of the first operand become values that are not followed.
    fn clobber(&mut self, at: At, instruction: &Instruction) {
        for dst in self.results(at, instruction) {
            self.steps[at.node as usize].push(Step::Opaque { dst, uses: Vec::new() });
        }
    }

    fn register(&self, at: At, operand: &Operand) -> Option<u32> {
        operand.register().map(|reg| self.context_of(at).first_reg + reg)
    }

    fn registers(&self, at: At, operand: &Operand) -> Vec<u32> {
        match operand {
            Operand::Reg(reg) => vec![self.context_of(at).first_reg + reg],
            Operand::Vector(list) | Operand::List(list) => {
                list.iter().flat_map(|item| self.registers(at, item)).collect()
            }
            Operand::Address(parts, rest) => {
                parts.iter().chain(rest).flat_map(|item| self.registers(at, item)).collect()
            }
            Operand::Pair(a, b) => {
                let mut list = self.registers(at, a);
                list.extend(self.registers(at, b));
                list
            }
            Operand::Negated(inner) => self.registers(at, inner),
            Operand::Name(_)
            | Operand::ModuleVar(..)
            | Operand::LocalVar(..)
            | Operand::Function(_)
            | Operand::Integer(_)
            | Operand::Float => Vec::new(),
        }
    }

    fn uses(&self, at: At, operands: &[Operand]) -> Vec<Source> {
        operands.iter().flat_map(|operand| self.registers(at, operand)).map(Source::Used).collect()
    }

    /// The number of a variable of shared memory, of the module or of the function of a context. Each
    /// function has its variables once, however often it is called.
    fn shared(&self, var: u32, context: Option<&Context<'_>>) -> u32 {
        let (info, number) = match context {
            None => (&self.module.vars[var as usize], var),
            Some(context) => {
                let first = self.shared_of.get(context.function.name.as_str());
                let first = first.copied().unwrap_or(context.first_slot);
                let number = self.module.vars.len() as u32 + first + var;
                (&context.function.vars[var as usize], number)
            }
        };
        let has_no_size = info.is_array && matches!(info.bytes, 0 | u32::MAX);
        if has_no_size { DYNAMIC_SHARED } else { number }
    }

    /// The value of an operand.
    fn source(&mut self, at: At, operand: &Operand) -> Source {
        let context = self.context_of(at);
        let value = match operand {
            Operand::Reg(reg) => return Source::Reg(context.first_reg + reg),
            Operand::Integer(number) => self.values.constant(*number),
            Operand::ModuleVar(var, offset) => {
                let origin = match self.module.vars[*var as usize].space {
                    Space::Global | Space::Texture => Origin::Global(*var),
                    Space::Shared => Origin::Shared(self.shared(*var, None)),
                    Space::Const => Origin::Const,
                    Space::Local | Space::Param => Origin::Opaque,
                };
                self.values.origin(origin, Some(*offset))
            }
            Operand::LocalVar(var, offset) => {
                let origin = match context.function.vars[*var as usize].space {
                    Space::Param => {
                        let formal =
                            context.function.params.iter().position(
                                |formal| matches!(formal, Formal::Var(name) if name == var),
                            );
                        match formal {
                            Some(index) if at.context == 0 => Origin::ParamSpace(index as u32),
                            _ => Origin::Slot(context.first_slot + var),
                        }
                    }
                    Space::Local => Origin::Slot(context.first_slot + var),
                    Space::Shared => Origin::Shared(self.shared(*var, Some(context))),
                    Space::Const => Origin::Const,
                    Space::Global | Space::Texture => Origin::Opaque,
                };
                self.values.origin(origin, Some(*offset))
            }
            Operand::Negated(_) | Operand::Vector(_) | Operand::Pair(..) => ValueId::NUMBER,
            Operand::Name(_)
            | Operand::Function(_)
            | Operand::Float
            | Operand::Address(..)
            | Operand::List(_) => ValueId::NUMBER,
        };
        Source::Value(value)
    }

    /// The parts of a bracketed address.
    fn address(&mut self, at: At, operand: &Operand, space: Option<Space>) -> Vec<Source> {
        let mut parts = match operand {
            Operand::Address(parts, _) => parts.iter().map(|part| self.source(at, part)).collect(),
            other => vec![self.source(at, other)],
        };
        match space {
            Some(Space::Shared) => {
                parts.push(Source::Value(self.values.origin(Origin::Shared(ANY_SHARED), Some(0))));
            }
            Some(Space::Const) => {
                parts.push(Source::Value(self.values.origin(Origin::Const, Some(0))));
            }
            Some(Space::Global | Space::Local | Space::Param | Space::Texture) | None => {}
        }
        parts
    }
}

fn mnemonic(instruction: &Instruction) -> String {
    let mut text = instruction.opcode.clone();
    for modifier in &instruction.modifiers {
        text.push('.');
        text.push_str(modifier);
    }
    text
}

fn has(instruction: &Instruction, modifier: &str) -> bool {
    instruction.modifiers.iter().any(|name| name == modifier)
}

fn has_shared(instruction: &Instruction) -> bool {
    instruction.modifiers.iter().any(|name| name.starts_with("shared"))
}

/// The state space that an instruction names first.
fn space(instruction: &Instruction) -> Option<Space> {
    instruction.modifiers.iter().find_map(|name| {
        Some(match name.as_str() {
            "global" => Space::Global,
            "shared" | "shared::cta" | "shared::cluster" => Space::Shared,
            "const" => Space::Const,
            "local" => Space::Local,
            "param" | "param::entry" | "param::func" => Space::Param,
            _ => return None,
        })
    })
}

/// Bytes of one element, from the last type among the modifiers.
fn element_bytes(instruction: &Instruction) -> u32 {
    instruction
        .modifiers
        .iter()
        .rev()
        .find_map(|name| type_bits(&format!(".{name}")))
        .map_or(4, |bits| bits.div_ceil(8))
}

/// The elements of a vector operand, or the operand itself.
fn elements(operand: &Operand) -> &[Operand] {
    match operand {
        Operand::Vector(list) => list,
        other => std::slice::from_ref(other),
    }
}
