//! Several ranks: `rank` and `world`, memory of other ranks, `signal` and `await`.

use kernel_abi::{Access, DType};
use kernel_dsl::ast::{
    self, Await, Expr, ExprKind, Index, IndexKind, InstanceKind, LaunchKey, Order, Qualifier, Ref,
    Scope, Signal, Space,
};
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::constants::Const;
use super::lower::{Lower, Shared};
use super::mistakes::{ring_without_slot, slot_without_ring, word_mistake};
use super::operands::{Operand, Tile};
use super::report::{Outcome, Refused};
use super::scope::{Buffer, Entity, Instance, Memory, OfRank};
use crate::kernel::{
    self, Contract, ContractBound, Extent, Literal, MAX_WORLD, Op, Param, ParamId, RANK, StmtKind,
    Storage, ValueId,
};
use crate::ops::BinaryOp;

/// Slots of a ring in memory of ranks at most.
const MAX_SLOTS: i64 = 1 << 16;

/// How flags are used.
pub(super) const FLAG_FORM: &str = "write `signal f@peer(*)[i, rank] add 1 order release scope sys;` and \
     `await f[i, each] until t + 1 order acquire scope sys;`";

impl<'a> Lower<'a> {
    /// The entries of `launch` that concern ranks.
    pub(super) fn world(&mut self, launch: &'a ast::Launch) -> Outcome<(Option<u32>, bool)> {
        let resident = match launch.get(LaunchKey::Resident) {
            None => false,
            Some(e) if is_all(e) => true,
            Some(e) => return Err(self.error(resident_mistake(e.span))),
        };
        let Some(e) = launch.get(LaunchKey::World) else { return Ok((None, resident)) };
        let world = self.const_extent(e, "the number of ranks", 1, i64::from(MAX_WORLD))?;
        Ok((Some(world), resident))
    }

    /// The scalar that says which rank this is.
    pub(super) fn rank_param(&mut self, kernel: &'a ast::Kernel) -> Outcome<()> {
        let Some(world) = self.kernel.launch.world else { return Ok(()) };
        if let Some(other) = kernel.buffers.iter().find(|buffer| buffer.name.text == RANK) {
            return Err(self.error(
                Diagnostic::error(Code::E0202, "`rank` is defined twice")
                    .label(other.name.span, "a kernel with `world` knows its rank by this name")
                    .help("choose another name"),
            ));
        }
        let span = kernel.launch.get(LaunchKey::World).map_or(kernel.name.span, |e| e.span);
        let hi = ContractBound::Const(i64::from(world));
        self.kernel.params.push(Param {
            name: RANK.to_owned(),
            access: Access::Scalar,
            settled: false,
            words: None,
            dtype: DType::I32,
            shape: Vec::new(),
            stored: None,
            scaled: None,
            of: None,
            contract: Some(Contract { lo: 0, hi, distinct: None }),
            span,
        });
        Ok(())
    }

    /// `rank` and `world`, where they are no names of the author.
    pub(super) fn rank_name(&mut self, name: &str, span: Span) -> Option<Outcome<Operand>> {
        let world = self.kernel.launch.world;
        match (name, world) {
            ("world", Some(world)) => Some(Ok(Operand::Const(Const::int(i64::from(world))))),
            (RANK, Some(_)) => {
                let id =
                    self.kernel.params.ids().find(|&id| self.kernel.params[id].name == RANK)?;
                let value = self.shared(Shared::Param(id), DType::I32, span);
                Some(value.map(|value| Operand::Tile(Tile::new(value, DType::I32, Vec::new()))))
            }
            (RANK | "world", None) => Some(Err(self.error(
                Diagnostic::error(Code::E0201, format!("nothing is called `{name}`"))
                    .label(span, "this kernel is not one of several ranks")
                    .help("write `world: n` in `launch`"),
            ))),
            (_, _) => None,
        }
    }

    /// The parameter, where a buffer is memory that other ranks write data to.
    pub(super) fn inbox(&self, buffer: &Buffer) -> Option<ParamId> {
        match buffer.memory {
            Memory::Param(param) => self.kernel.params[param].is_inbox().then_some(param),
            Memory::Smem { .. } => None,
        }
    }

    /// The memory that `x@t` or `x@peer(p)@t` means, and the slot of its ring.
    pub(super) fn inbox_place(
        &mut self,
        param: ParamId,
        named: Instance,
        reference: &'a Ref,
        defined: Span,
    ) -> Outcome<(Storage, ValueId)> {
        let name = reference.path.text();
        let Instance { rank, slot } = self.inbox_instance(param, named, reference, defined)?;
        let slot = match (slot, self.slots_of(param)) {
            (Some(slot), _) => slot,
            (None, 1) => self.shared(Shared::Const(Literal::Int(0)), DType::I32, defined)?,
            (None, _) => {
                return Err(self.error(ring_without_slot(&name, reference.path.span, defined)));
            }
        };
        let storage = match rank {
            None => Storage::Buffer(param),
            Some(OfRank::Each) => Storage::Peers(param),
            Some(OfRank::One(rank)) => Storage::Peer(param, rank),
        };
        Ok((storage, slot))
    }

    /// The slots of the ring of memory of ranks.
    fn slots_of(&self, param: ParamId) -> i64 {
        match self.kernel.params[param].shape.first() {
            Some(Extent::Const(slots)) => i64::from(*slots),
            Some(Extent::Scalar(_)) | None => 1,
        }
    }

    /// The rank and the slot that `x`, `x@t` or `x@peer(p)@t` names, beside what is named already.
    pub(super) fn inbox_instance(
        &mut self,
        param: ParamId,
        named: Instance,
        reference: &'a Ref,
        defined: Span,
    ) -> Outcome<Instance> {
        let name = reference.path.text();
        let (mut rank, mut slot) = (None, None);
        for at in &reference.at {
            match &at.kind {
                InstanceKind::Peer(e) if rank.is_none() && named.rank.is_none() => {
                    rank = Some(&**e);
                }
                InstanceKind::Slot(e) if slot.is_none() && named.slot.is_none() => {
                    slot = Some((at.span, &**e));
                }
                InstanceKind::AllPeers => {
                    return Err(self.error(misuse(
                        "`@peer(*)` of data",
                        at.span,
                        "a store goes to one rank",
                        "write `store v[_, …] -> x@peer(each)@t[…];`, or a loop: `for d in 0..world unroll { store v -> x@peer((rank + d) % world)@t[…]; }`",
                    )));
                }
                InstanceKind::Peer(_)
                | InstanceKind::Slot(_)
                | InstanceKind::Cta(_)
                | InstanceKind::AllCtas => {
                    return Err(self.error(misuse(
                        "too many instances",
                        at.span,
                        "one rank and one slot say where this is",
                        "write `x@peer(p)@t[…]`",
                    )));
                }
            }
        }
        let slots = self.slots_of(param);
        let slot = match slot {
            Some((at, _)) if slots == 1 => {
                return Err(self.error(slot_without_ring(&name, at, defined)));
            }
            Some((_, e)) => Some(self.slot_of_ring(e, slots)?),
            None => named.slot,
        };
        let rank = match rank {
            Some(Expr { kind: ExprKind::Each, .. }) => Some(OfRank::Each),
            Some(e) => {
                let operand = self.expr(e)?;
                Some(OfRank::One(self.scalar(operand, DType::I32, "a rank", e.span)?))
            }
            None => named.rank,
        };
        Ok(Instance { rank, slot })
    }

    /// `t` modulo a power of two.
    fn slot_of_ring(&mut self, e: &'a Expr, slots: i64) -> Outcome<ValueId> {
        let operand = self.expr(e)?;
        let dtype = match &operand {
            Operand::Tile(tile) if tile.dtype == DType::U32 => DType::U32,
            Operand::Tile(_) | Operand::Const(_) => DType::I32,
        };
        let number = self.scalar(operand, dtype, "a ring slot", e.span)?;
        let mask = self.shared(Shared::Const(Literal::Int(slots - 1)), dtype, e.span)?;
        let op = Op::Binary { op: BinaryOp::And, a: number, b: mask };
        let slot = self.define(op, dtype, Vec::new(), e.span)?;
        let slot = match (slot.id(), dtype) {
            (Some(id), DType::U32) => {
                self.define(Op::Convert { x: id }, DType::I32, Vec::new(), e.span)?
            }
            (_, _) => slot,
        };
        Ok(slot.id().expect("rank 0 has one element"))
    }

    /// `signal f@peer(*)[i, rank] add n order release scope sys;`
    pub(super) fn signal(&mut self, signal: &'a Signal, span: Span) -> Outcome<()> {
        if self.names_counter(&signal.flag) {
            return self.signal_counter(signal, span);
        }
        let (param, reference, indices) = self.flag(&signal.flag)?;
        let to = match reference.at.as_slice() {
            [at] => match &at.kind {
                InstanceKind::AllPeers => None,
                InstanceKind::Peer(e) if !matches!(e.kind, ExprKind::Each) => Some(&**e),
                InstanceKind::Peer(_)
                | InstanceKind::Slot(_)
                | InstanceKind::Cta(_)
                | InstanceKind::AllCtas => {
                    return Err(self.error(to_nobody(at.span)));
                }
            },
            [] => return Err(self.error(to_nobody(reference.path.span))),
            [_, at, ..] => return Err(self.error(to_nobody(at.span))),
        };
        self.ordered(signal.order, signal.scope, Order::Release, signal.flag.span)?;
        let add = match &signal.add {
            None => 1,
            Some(e) => self.const_extent(e, "what a signal adds", 1, i64::from(i32::MAX))?,
        };
        let mut index = Vec::with_capacity(indices.len());
        for at in indices {
            match self.position(at)? {
                Some(position) => index.push(position),
                None => {
                    return Err(self.error(misuse(
                        "`each` in a signal",
                        at.span,
                        "a signal raises one word of each rank",
                        FLAG_FORM,
                    )));
                }
            }
        }
        let to = match to {
            None => None,
            Some(e) => {
                let to = self.expr(e)?;
                Some(self.scalar(to, DType::I32, "a rank", e.span)?)
            }
        };
        let signal = kernel::Signal { param, index, to, add, span: signal.flag.span };
        self.emit(StmtKind::Signal(signal), span)
    }

    /// `await f[i, each] until v order acquire scope sys;`
    pub(super) fn wait_for(&mut self, wait: &'a Await, span: Span) -> Outcome<()> {
        if self.names_counter(&wait.flag) {
            return self.wait_for_counter(wait, span);
        }
        let (param, reference, indices) = self.flag(&wait.flag)?;
        if let Some(at) = reference.at.first() {
            return Err(self.error(misuse(
                "a wait for words of another rank",
                at.span,
                "other ranks raise the words of this one",
                FLAG_FORM,
            )));
        }
        self.ordered(wait.order, wait.scope, Order::Acquire, wait.flag.span)?;
        let positions: Outcome<Vec<Option<ValueId>>> =
            indices.iter().map(|at| self.position(at)).collect();
        let index = positions?;
        if index.iter().filter(|at| at.is_none()).count() > 1 {
            return Err(self.error(misuse(
                "a wait along two axes",
                wait.flag.span,
                "one axis is `each`: one word a sender",
                FLAG_FORM,
            )));
        }
        let until = self.expr(&wait.until)?;
        let until =
            self.scalar(until, DType::U32, "the value that is waited for", wait.until.span)?;
        let wait = kernel::Await { param, index, until, span: wait.flag.span };
        if let Some(Extent::Const(words)) =
            wait.each().and_then(|axis| self.kernel.params[param].shape.get(axis).copied())
            && words > MAX_WORLD
        {
            let message = format!("a wait for {words} words, at most {MAX_WORLD} together");
            return Err(self.error(
                Diagnostic::error(Code::E0131, message)
                    .label(wait.span, "each has a lane of one warp"),
            ));
        }
        self.emit(StmtKind::Await(wait), span)
    }

    /// A scalar position, or none for `each`.
    fn position(&mut self, index: &'a Index) -> Outcome<Option<ValueId>> {
        match &index.kind {
            IndexKind::At(Expr { kind: ExprKind::Each, .. }, None) => Ok(None),
            IndexKind::At(e, None) => {
                let operand = self.expr(e)?;
                self.scalar(operand, DType::I32, "the index of a word", e.span).map(Some)
            }
            IndexKind::At(_, Some(_)) | IndexKind::All(_) | IndexKind::NewAxis => {
                Err(self.error(misuse("several words", index.span, "one position", FLAG_FORM)))
            }
        }
    }

    /// The flags that a signal or a wait names, and the positions.
    fn flag(&mut self, e: &'a Expr) -> Outcome<(ParamId, &'a Ref, &'a [Index])> {
        let (base, indices) = match &e.kind {
            ExprKind::Index(base, indices) => (&**base, indices.as_slice()),
            _ => (e, [].as_slice()),
        };
        let ExprKind::Ref(reference) = &base.kind else {
            return Err(self.error(misuse("no flag", e.span, "a word of a flag", FLAG_FORM)));
        };
        let name = reference.path.text();
        let Some(named) = self.frame.lookup(&name) else {
            return Err(self.unknown(&name, reference.path.span));
        };
        let defined = named.span;
        let param = match &named.entity {
            Entity::Buffer(Buffer { memory: Memory::Param(param), .. }) => *param,
            Entity::Refused => return Err(Refused),
            Entity::Buffer(_)
            | Entity::Const(_)
            | Entity::Tile(_)
            | Entity::Range(_)
            | Entity::Atom(_)
            | Entity::Frag(_) => {
                return Err(self.error(word_mistake("flag", &name, base.span, defined)));
            }
        };
        let declared = &self.kernel.params[param];
        if !declared.is_flag() {
            let span = declared.span;
            return Err(self.error(word_mistake("flag", &name, base.span, span)));
        }
        let axes = declared.shape.len();
        if indices.len() != axes {
            let message = format!("{} indices for {axes} axes", indices.len());
            let declared = declared.span;
            return Err(self.error(
                Diagnostic::error(Code::E0222, message)
                    .label(e.span, "a word has a position along each axis")
                    .secondary(declared, format!("{axes} axes")),
            ));
        }
        Ok((param, reference, indices))
    }

    fn ordered(
        &mut self,
        order: Option<Order>,
        scope: Option<Scope>,
        wanted: Order,
        at: Span,
    ) -> Outcome<()> {
        if order == Some(wanted) && scope == Some(Scope::Sys) {
            return Ok(());
        }
        let word = wanted.word();
        Err(self.error(misuse(
            "an order that other ranks do not see",
            at,
            &format!("this takes `order {word} scope sys`"),
            FLAG_FORM,
        )))
    }
}

/// The extents of memory of ranks: the slots of its ring come first.
pub(super) fn slots<'a>(
    lower: &mut Lower<'a>,
    buffer: &'a ast::Buffer,
    shape: Vec<Extent>,
) -> Outcome<Vec<Extent>> {
    let slots = match &buffer.ring {
        None => 1,
        Some(e) => {
            let slots = lower.const_extent(e, "the number of slots", 1, MAX_SLOTS)?;
            if !slots.is_power_of_two() {
                return Err(lower.error(
                    Diagnostic::error(Code::E0215, format!("a ring of {slots} slots"))
                        .label(e.span, "slots of memory of ranks are a power of two")
                        .help("an epoch wraps after 2^32 launches, and `t mod n` goes on"),
                ));
            }
            slots
        }
    };
    Ok(std::iter::once(Extent::Const(slots)).chain(shape).collect())
}

fn to_nobody(at: Span) -> Diagnostic {
    misuse("a signal to nobody", at, "it raises the word of every rank, or of one", FLAG_FORM)
}

/// The finding for memory or words of ranks that are used in another way.
pub(super) fn misuse(message: &str, at: Span, label: &str, help: &str) -> Diagnostic {
    Diagnostic::error(Code::E0131, message).label(at, label).help(help)
}

/// A declaration of memory of ranks that makes no sense, and what to write.
pub(super) fn buffer_mistake(buffer: &ast::Buffer) -> Option<(String, &'static str)> {
    let name = &buffer.name.text;
    let peer = buffer.access.qualifier == Qualifier::Peer;
    if buffer.of.is_some() != (buffer.space == Some(Space::SymMc)) {
        return Some((
            format!("`{name}` is no multicast address of something"),
            "write `peer x : sym f32[N] ring 2, peer all : sym_mc f32[N] ring 2 of x`",
        ));
    }
    match (peer, buffer.space) {
        (true, Some(Space::Sym | Space::SymMc)) if buffer.contract.is_some() => Some((
            format!("a contract on `{name}`, which other ranks write"),
            "check values after they are read: `max`, `min`, `assert`",
        )),
        (true, Some(Space::Sym | Space::SymMc)) => None,
        (true, Some(Space::SymFlag)) => {
            let plain =
                buffer.ty.dtype.text == "u32" && buffer.ring.is_none() && buffer.contract.is_none();
            (!plain).then(|| {
                (
                    format!("the flags `{name}` are no words"),
                    "write `peer f : sym_flag u32[N, WORLD]`",
                )
            })
        }
        (true, _) => Some((
            format!("`{name}` does not lie in symmetric memory"),
            "write `peer x : sym f32[…]` or `peer f : sym_flag u32[…]`",
        )),
        (false, Some(Space::Sym | Space::SymFlag | Space::SymMc)) => Some((
            format!("`{name}` does not say that other ranks write it"),
            "symmetric memory is declared `peer`",
        )),
        (false, _) => None,
    }
}

/// `all`.
pub(super) fn is_all(e: &Expr) -> bool {
    matches!(&e.kind, ExprKind::Ref(reference) if reference.path.is("all"))
}

pub(super) fn resident_mistake(span: Span) -> Diagnostic {
    Diagnostic::error(Code::E0215, "an unknown kind of residency").label(span, "`all` goes here")
}

/// A buffer of ranks in a kernel without ranks.
pub(super) fn without_world(name: &str, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0215, format!("`{name}` in a kernel without ranks"))
        .label(at, "other ranks write it")
        .help("write `world: n, resident: all` in `launch`")
}
