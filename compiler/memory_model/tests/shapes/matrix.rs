//! The dimensions of the matrix, and which of their combinations make a program.

use kernel_memory_model::event::{Scope, Strength};

/// Who does what to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One thread hands data to another.
    Mp,
    /// Two threads hand data to each other.
    Sb,
    /// Data goes through the hands of a third thread.
    Isa2,
    /// A thread uses data that nobody has handed to it, and hands it on.
    Wrc,
}

impl Shape {
    pub(crate) const ALL: [Shape; 4] = [Shape::Mp, Shape::Sb, Shape::Isa2, Shape::Wrc];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Shape::Mp => "MP",
            Shape::Sb => "SB",
            Shape::Isa2 => "ISA2",
            Shape::Wrc => "WRC",
        }
    }
}

/// How far apart the threads stand: the narrowest scope that has them all.
pub(crate) const DISTANCES: [Scope; 4] = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys];

/// Who waits for a copy before the data is handed over, and for what of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The bytes, at an mbarrier: whoever is handed that barrier's round, and else the issuer.
    Bytes,
    /// The issuer, by `wait_group`.
    Group,
    /// The issuer, by `wait_group.read`.
    GroupRead,
    /// Nobody.
    Nothing,
}

/// What a thread does to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Store(Strength),
    Load(Strength),
    /// A copy writes the data.
    Fill(Awaited),
    /// A copy reads the data.
    Drain(Awaited),
}

impl Act {
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Act::Store(_) | Act::Fill(_))
    }
}

/// The two accesses of the data, and fences of the async proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Payload {
    pub(crate) name: &'static str,
    pub(crate) first: Act,
    /// Behind the first access, by its thread.
    pub(crate) is_fenced_first: bool,
    /// Ahead of the second access, by its thread.
    pub(crate) is_fenced_second: bool,
    pub(crate) second: Act,
}

const STORE: Act = Act::Store(Strength::Weak);
const LOAD: Act = Act::Load(Strength::Weak);
const COPY: Act = Act::Drain(Awaited::Nothing);

const fn payload(name: &'static str, first: Act, fences: [bool; 2], second: Act) -> Payload {
    let [is_fenced_first, is_fenced_second] = fences;
    Payload { name, first, is_fenced_first, is_fenced_second, second }
}

const fn word(name: &'static str, scope: Scope) -> Payload {
    let strength = Strength::Relaxed(scope);
    payload(name, Act::Store(strength), [false; 2], Act::Load(strength))
}

pub(crate) const PAYLOADS: [Payload; 18] = [
    payload("st; ld", STORE, [false; 2], LOAD),
    word("st.relaxed.sys; ld.relaxed.sys", Scope::Sys),
    word("st.relaxed.cta; ld.relaxed.cta", Scope::Cta),
    payload("st; copy out", STORE, [false; 2], COPY),
    payload("st, fence; copy out", STORE, [true, false], COPY),
    payload("st; fence, copy out", STORE, [false, true], COPY),
    payload("copy in, mbarrier; ld", Act::Fill(Awaited::Bytes), [false; 2], LOAD),
    payload("copy in; ld", Act::Fill(Awaited::Nothing), [false; 2], LOAD),
    payload("copy in, mbarrier; copy out", Act::Fill(Awaited::Bytes), [false; 2], COPY),
    payload("bulk store, wait_group; ld", Act::Fill(Awaited::Group), [false; 2], LOAD),
    payload("bulk store, wait_group.read; ld", Act::Fill(Awaited::GroupRead), [false; 2], LOAD),
    payload("bulk store, wait_group; copy in", Act::Fill(Awaited::Group), [false; 2], COPY),
    payload(
        "bulk store, wait_group; fence, copy in",
        Act::Fill(Awaited::Group),
        [false, true],
        COPY,
    ),
    payload("copy out, wait_group.read; st", Act::Drain(Awaited::GroupRead), [false; 2], STORE),
    payload("copy out; st", Act::Drain(Awaited::Nothing), [false; 2], STORE),
    payload("ld; copy in", LOAD, [false; 2], Act::Fill(Awaited::Nothing)),
    payload("ld, fence; copy in", LOAD, [true, false], Act::Fill(Awaited::Nothing)),
    payload("ld; fence, copy in", LOAD, [false, true], Act::Fill(Awaited::Nothing)),
];

/// How one thread tells another that the data is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// `bar.sync`: one of the CTA, so threads of other CTAs meet at another one.
    Bar,
    /// `barrier.cluster.arrive.release` and `.wait.acquire`.
    Cluster,
    /// `barrier.cluster.arrive.relaxed`.
    ClusterRelaxed,
    /// `mbarrier.arrive.release` and `mbarrier.try_wait.acquire` of this scope.
    Mbarrier(Scope),
    /// The round of an mbarrier that bytes of a copy complete, without an arrival: those of the data where a copy
    /// brings it, else those of another copy.
    Bytes,
    /// `st.release` and `ld.acquire` of a word.
    Flag(Scope),
    /// `fence.acq_rel`, then `st.relaxed.sys`; `ld.relaxed.sys`, then `fence.acq_rel`.
    Fences(Scope),
    /// `st.relaxed.sys` and `ld.relaxed.sys`.
    FlagRelaxed,
    /// The end of a launch, and `griddepcontrol.wait` in the next one.
    Pdl,
    /// A launch that starts early and does not wait.
    PdlNoWait,
    /// Nobody waits: each thread has a `fence.sc` between its accesses.
    FenceSc(Scope),
}

impl HandOver {
    pub(crate) const ALL: [HandOver; 21] = [
        HandOver::Bar,
        HandOver::Cluster,
        HandOver::ClusterRelaxed,
        HandOver::Mbarrier(Scope::Cta),
        HandOver::Mbarrier(Scope::Cluster),
        HandOver::Bytes,
        HandOver::Flag(Scope::Cta),
        HandOver::Flag(Scope::Cluster),
        HandOver::Flag(Scope::Gpu),
        HandOver::Flag(Scope::Sys),
        HandOver::Fences(Scope::Cta),
        HandOver::Fences(Scope::Cluster),
        HandOver::Fences(Scope::Gpu),
        HandOver::Fences(Scope::Sys),
        HandOver::FlagRelaxed,
        HandOver::Pdl,
        HandOver::PdlNoWait,
        HandOver::FenceSc(Scope::Cta),
        HandOver::FenceSc(Scope::Cluster),
        HandOver::FenceSc(Scope::Gpu),
        HandOver::FenceSc(Scope::Sys),
    ];

    pub(crate) fn name(self) -> String {
        let scoped = |what: &str, scope: Scope| format!("{what}.{}", scope.name());
        match self {
            HandOver::Bar => "bar.sync".to_owned(),
            HandOver::Cluster => "cluster".to_owned(),
            HandOver::ClusterRelaxed => "cluster.relaxed".to_owned(),
            HandOver::Mbarrier(scope) => scoped("mbarrier", scope),
            HandOver::Bytes => "complete_tx".to_owned(),
            HandOver::Flag(scope) => scoped("flag", scope),
            HandOver::Fences(scope) => scoped("flag+fence", scope),
            HandOver::FlagRelaxed => "flag.relaxed".to_owned(),
            HandOver::Pdl => "grid wait".to_owned(),
            HandOver::PdlNoWait => "no grid wait".to_owned(),
            HandOver::FenceSc(scope) => scoped("fence.sc", scope),
        }
    }
}

/// A program of the matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    pub(crate) shape: Shape,
    pub(crate) payload: Payload,
    /// The hand-over, or two of them where there are two.
    pub(crate) hand_overs: [HandOver; 2],
    /// How far apart the threads of each stand.
    pub(crate) distances: [Scope; 2],
}

/// Whether a hand-over can be written for threads that far apart.
pub(crate) fn is_reachable(hand_over: HandOver, distance: Scope) -> bool {
    match hand_over {
        // Mbarriers lie in shared memory, which the cluster alone reaches.
        HandOver::Mbarrier(_) | HandOver::Bytes => distance <= Scope::Cluster,
        // The launches of a stream are of one device, and no CTA is in two.
        HandOver::Pdl | HandOver::PdlNoWait => distance == Scope::Gpu,
        HandOver::Bar
        | HandOver::Cluster
        | HandOver::ClusterRelaxed
        | HandOver::Flag(_)
        | HandOver::Fences(_)
        | HandOver::FlagRelaxed
        | HandOver::FenceSc(_) => true,
    }
}

/// Whether the combination is a program that says something; the reasons stand in `data/shapes/README.md`.
pub(crate) fn makes_sense(shape: Shape, payload: Payload, hand_over: HandOver) -> bool {
    let of_shape = match shape {
        Shape::Mp | Shape::Isa2 => !matches!(hand_over, HandOver::FenceSc(_)),
        // A launch hands nothing back to the one ahead of it.
        Shape::Sb => !matches!(hand_over, HandOver::Pdl | HandOver::PdlNoWait),
        // Somebody sees the data without a hand-over: it is written first.
        Shape::Wrc => !matches!(hand_over, HandOver::FenceSc(_)) && payload.first.writes(),
    };
    // `fence.sc` alone is there for stores and loads.
    let is_generic = |act| matches!(act, Act::Store(_) | Act::Load(_));
    let of_fence = !matches!(hand_over, HandOver::FenceSc(_))
        || is_generic(payload.first) && is_generic(payload.second);
    of_shape && of_fence
}
