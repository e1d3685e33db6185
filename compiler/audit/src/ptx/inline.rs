//! A kernel with all functions that it calls, each call with its own copy of the callee.

use rustc_hash::FxHashMap;

use super::{Function, Module, Operand, Targets};
use crate::kernel::Gap;

/// Nodes of one kernel at most; larger ones are not judged.
const MOST_NODES: usize = 200_000;
/// Calls nest no deeper than this.
const DEEPEST_CALL: u32 = 64;

/// One copy of a function.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) function: &'a Function,
    /// First node of the copy; nodes follow the instructions.
    pub(crate) first_node: u32,
    pub(crate) first_reg: u32,
    /// First tracked variable; they follow the variables of the function.
    pub(crate) first_slot: u32,
    /// Where the call stands: context and instruction.
    pub(crate) called_from: Option<(u32, u32)>,
    depth: u32,
}

/// A call whose callee is in the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) callee: u32,
    /// The node behind the callee, at which results come back.
    pub(crate) back: u32,
}

/// The kernel laid out as nodes.
#[derive(Debug)]
pub(crate) struct Layout<'a> {
    pub(crate) contexts: Vec<Context<'a>>,
    /// Links by context and instruction of the call.
    pub(crate) links: FxHashMap<(u32, u32), Link>,
    /// Where each context goes back to.
    pub(crate) backs: FxHashMap<u32, u32>,
    pub(crate) nodes: u32,
    pub(crate) regs: u32,
    pub(crate) slots: u32,
    pub(crate) exit: u32,
    pub(crate) gaps: Vec<Gap>,
}

/// Lays out `kernel` with its callees.
pub(crate) fn lay_out<'a>(module: &'a Module, kernel: &'a Function) -> Layout<'a> {
    match expand(module, kernel, true) {
        Some(layout) => layout,
        None => {
            let mut layout = expand(module, kernel, false)
                .expect("without callees nothing is too large to lay out");
            layout
                .gaps
                .push(Gap { node: None, message: "the kernel is too large to follow".to_owned() });
            layout
        }
    }
}

/// The layout, or none where the callees make it too large.
fn expand<'a>(module: &'a Module, kernel: &'a Function, callees: bool) -> Option<Layout<'a>> {
    let by_name: FxHashMap<&str, &Function> =
        module.functions.iter().map(|f| (f.name.as_str(), f)).collect();
    let mut layout = Layout {
        contexts: Vec::new(),
        links: FxHashMap::default(),
        backs: FxHashMap::default(),
        nodes: 0,
        regs: 0,
        slots: 0,
        exit: 0,
        gaps: Vec::new(),
    };
    layout.add(kernel, None, 0);
    let mut next = 0;
    while callees && next < layout.contexts.len() {
        let caller = next as u32;
        next += 1;
        let function = layout.contexts[caller as usize].function;
        let depth = layout.contexts[caller as usize].depth;
        let instructions = function.body.iter().flat_map(|body| &body.instructions);
        for (index, instruction) in instructions.enumerate() {
            if instruction.opcode != "call" {
                continue;
            }
            let node = layout.contexts[caller as usize].first_node + index as u32;
            let callee = called(&instruction.operands)
                .and_then(|name| by_name.get(name).copied())
                .filter(|callee| callee.body.is_some());
            let Some(callee) = callee else { continue };
            let mut gap = |message: String| layout.gaps.push(Gap { node: Some(node), message });
            let recursive = is_above(&layout.contexts, caller, &callee.name);
            if recursive {
                gap(format!("`{}` calls itself", callee.name));
                continue;
            }
            let size = callee.body.as_ref().map_or(0, |body| body.instructions.len());
            if depth >= DEEPEST_CALL || layout.nodes as usize + size > MOST_NODES {
                return None;
            }
            let context = layout.contexts.len() as u32;
            layout.add(callee, Some((caller, index as u32)), depth + 1);
            let back = layout.nodes;
            layout.nodes += 1;
            layout.links.insert((caller, index as u32), Link { callee: context, back });
            layout.backs.insert(context, back);
        }
    }
    layout.exit = layout.nodes;
    layout.nodes += 1;
    Some(layout)
}

impl<'a> Layout<'a> {
    fn add(&mut self, function: &'a Function, called_from: Option<(u32, u32)>, depth: u32) {
        let size = function.body.as_ref().map_or(0, |body| body.instructions.len()) as u32;
        self.contexts.push(Context {
            function,
            first_node: self.nodes,
            first_reg: self.regs,
            first_slot: self.slots,
            called_from,
            depth,
        });
        self.nodes += size;
        self.regs += function.regs;
        self.slots += function.vars.len() as u32;
    }
}

fn is_above(contexts: &[Context<'_>], from: u32, name: &str) -> bool {
    let mut at = Some(from);
    while let Some(index) = at {
        let context = &contexts[index as usize];
        if context.function.name == name {
            return true;
        }
        at = context.called_from.map(|(caller, _)| caller);
    }
    false
}

/// The name of the function that a call names, if it names one.
pub(crate) fn called(operands: &[Operand]) -> Option<&str> {
    let callee = operands.iter().find(|operand| !matches!(operand, Operand::List(_)))?;
    if let Operand::Function(name) | Operand::Name(name) = callee { Some(name) } else { None }
}

/// Results and arguments of a call.
pub(crate) fn call_lists(operands: &[Operand]) -> (&[Operand], &[Operand]) {
    let inner = |index: usize| operands.get(index).map(Operand::items).unwrap_or_default();
    let has_results = matches!(operands.first(), Some(Operand::List(_)));
    if has_results { (inner(0), inner(2)) } else { (&[], inner(1)) }
}

/// Instruction indices that a branch goes to, or `None` where they are not known.
pub(crate) fn branch_targets(targets: &Targets) -> Option<&[u32]> {
    match targets {
        Targets::Labels(list) => Some(list),
        Targets::None | Targets::Unknown => None,
    }
}
