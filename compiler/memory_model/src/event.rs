//! Events: what the threads of one execution did to memory, and with what strength.

use std::fmt;

/// Which threads a strong operation speaks to (PTX ISA 8.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// The threads of the CTA.
    Cta,
    /// The threads of the cluster.
    Cluster,
    /// The threads of the device.
    Gpu,
    /// All threads, those of the host included.
    Sys,
}

impl Scope {
    /// The scope as PTX spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

/// Where a thread runs. Numbers count within the next wider one: CTA 0 of device 0 is not CTA 0 of device 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The device.
    pub gpu: u32,
    /// The cluster of the device; `None` for a CTA that is a cluster of its own.
    pub cluster: Option<u32>,
    /// The CTA of the device.
    pub cta: u32,
}

impl Position {
    /// A CTA of a device, in no cluster with others.
    pub const fn new(gpu: u32, cta: u32) -> Position {
        Position { gpu, cluster: None, cta }
    }

    /// Whether a thread at `other` is in this thread's instance of `scope`.
    pub fn shares(self, other: Position, scope: Scope) -> bool {
        match scope {
            Scope::Cta => self.gpu == other.gpu && self.cta == other.cta,
            Scope::Cluster => {
                self.shares(other, Scope::Cta)
                    || (self.gpu == other.gpu
                        && self.cluster.is_some()
                        && self.cluster == other.cluster)
            }
            Scope::Gpu => self.gpu == other.gpu,
            Scope::Sys => true,
        }
    }
}

/// The way by which an access reaches memory (PTX ISA 8.6; ISCA 2022, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Proxy {
    /// `ld`, `st`, `atom`, `red`.
    Generic,
    /// Constant memory.
    Constant,
    /// Textures.
    Texture,
    /// Surfaces.
    Surface,
    /// Bulk copies and operands of the tensor core in shared memory.
    Async,
}

impl Proxy {
    /// The proxy as PTX spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Proxy::Generic => "generic",
            Proxy::Constant => "constant",
            Proxy::Texture => "texture",
            Proxy::Surface => "surface",
            Proxy::Async => "async",
        }
    }
}

/// What a proxy fence joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyFence {
    /// A proxy with the generic one, for the accesses of the fence's CTA.
    Proxy(Proxy),
    /// Virtual addresses of the same memory.
    Alias,
}

/// The strength of one access. Weak accesses have no scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// Neither atomic nor ordered.
    Weak,
    /// Strong, without a pattern of its own.
    Relaxed(Scope),
    /// A read that ends an acquire pattern.
    Acquire(Scope),
    /// A write that begins a release pattern.
    Release(Scope),
}

impl Strength {
    /// The scope of a strong access.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Strength::Weak => None,
            Strength::Relaxed(scope) | Strength::Acquire(scope) | Strength::Release(scope) => {
                Some(scope)
            }
        }
    }

    /// Whether the access is strong.
    pub const fn is_strong(self) -> bool {
        self.scope().is_some()
    }
}

impl fmt::Display for Strength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strength::Weak => f.write_str("weak"),
            Strength::Relaxed(scope) => write!(f, "relaxed.{}", scope.name()),
            Strength::Acquire(scope) => write!(f, "acquire.{}", scope.name()),
            Strength::Release(scope) => write!(f, "release.{}", scope.name()),
        }
    }
}

/// What a fence orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FenceOrder {
    /// Ends acquire patterns.
    Acquire,
    /// Begins release patterns.
    Release,
    /// Both.
    AcqRel,
    /// Both, and in one order with the other fences of this kind.
    Sc,
}

impl FenceOrder {
    /// The order as PTX spells it.
    pub const fn name(self) -> &'static str {
        match self {
            FenceOrder::Acquire => "acquire",
            FenceOrder::Release => "release",
            FenceOrder::AcqRel => "acq_rel",
            FenceOrder::Sc => "sc",
        }
    }

    /// Whether the fence may begin a release pattern.
    pub const fn releases(self) -> bool {
        !matches!(self, FenceOrder::Acquire)
    }

    /// Whether the fence may end an acquire pattern.
    pub const fn acquires(self) -> bool {
        !matches!(self, FenceOrder::Release)
    }
}

/// Bytes of memory, and the virtual address by which they are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The physical memory: places of different objects never overlap.
    pub object: u32,
    /// The virtual address range of the object; another one is an alias.
    pub mapping: u32,
    /// The first byte within the object.
    pub offset: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Place {
    /// A whole object by its first mapping.
    pub const fn of(object: u32, bytes: u64) -> Place {
        Place { object, mapping: 0, offset: 0, bytes }
    }

    /// Whether two places touch a byte in common, and all such bytes are of this one.
    pub(crate) fn has_common_of(&self, a: &Place, b: &Place) -> bool {
        let end = |place: &Place| place.offset.saturating_add(place.bytes);
        let (from, to) = (a.offset.max(b.offset), end(a).min(end(b)));
        a.overlaps(b) && self.object == a.object && self.offset <= from && to <= end(self)
    }

    /// Whether both touch a byte of physical memory.
    pub fn overlaps(&self, other: &Place) -> bool {
        self.object == other.object
            && self.offset < other.offset.saturating_add(other.bytes)
            && other.offset < self.offset.saturating_add(self.bytes)
    }

    /// Whether both touch a byte by the same virtual address.
    pub fn overlaps_virtually(&self, other: &Place) -> bool {
        self.mapping == other.mapping && self.overlaps(other)
    }

    /// Whether both are the same bytes, whatever their virtual addresses.
    pub fn is_same_memory(&self, other: &Place) -> bool {
        self.object == other.object && self.offset == other.offset && self.bytes == other.bytes
    }
}

/// A read or a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// What is accessed.
    pub place: Place,
    /// How strongly.
    pub strength: Strength,
    /// By which way.
    pub proxy: Proxy,
}

impl Access {
    /// A generic access.
    pub const fn new(place: Place, strength: Strength) -> Access {
        Access { place, strength, proxy: Proxy::Generic }
    }
}

/// Whether the value that an atomic read is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Returns {
    /// `atom`, and plain reads.
    Value,
    /// `red`: its read never ends an acquire pattern (PTX ISA 8.11.1).
    Nothing,
}

/// What an asynchronous access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// It takes from memory.
    Read,
    /// It puts into memory.
    Write,
}

/// The side of a barrier that an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BarrierSide {
    /// `bar.arrive`: says that the thread was there, and learns nothing.
    Arrive,
    /// `bar.sync`, `bar.red`: arrives and waits.
    Sync,
    /// `barrier.cluster.wait`: waits alone.
    Wait,
}

/// What an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The value that memory has before the threads start.
    Init(Place),
    /// A read.
    Read(Access, Returns),
    /// A write.
    Write(Access),
    /// A fence between threads.
    Fence(FenceOrder, Scope),
    /// A fence between proxies.
    ProxyFence(ProxyFence),
    /// A barrier between threads.
    Barrier(BarrierSide),
    /// A place in the program of a thread that touches no memory: where an asynchronous operation is issued, or
    /// is seen to be complete.
    Mark,
}

impl Kind {
    /// The bytes that the event touches.
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Kind::Init(place) => Some(place),
            Kind::Read(access, _) | Kind::Write(access) => Some(&access.place),
            Kind::Fence(..) | Kind::ProxyFence(_) | Kind::Barrier(_) | Kind::Mark => None,
        }
    }

    /// The access of a read or a write of a thread.
    pub const fn access(&self) -> Option<&Access> {
        match self {
            Kind::Read(access, _) | Kind::Write(access) => Some(access),
            Kind::Init(_)
            | Kind::Fence(..)
            | Kind::ProxyFence(_)
            | Kind::Barrier(_)
            | Kind::Mark => None,
        }
    }

    /// Whether the event puts a value into memory, as the initial ones do.
    pub const fn is_write(&self) -> bool {
        matches!(self, Kind::Init(_) | Kind::Write(_))
    }

    /// Whether the event takes a value from memory.
    pub const fn is_read(&self) -> bool {
        matches!(self, Kind::Read(..))
    }

    /// Whether the event is a `fence.sc`.
    pub const fn is_sc_fence(&self) -> bool {
        matches!(self, Kind::Fence(FenceOrder::Sc, _))
    }

    /// The scope of a strong operation: a fence, or an access that is not weak.
    pub fn strong_scope(&self) -> Option<Scope> {
        match self {
            Kind::Fence(_, scope) => Some(*scope),
            Kind::Read(access, _) | Kind::Write(access) => access.strength.scope(),
            Kind::Init(_) | Kind::ProxyFence(_) | Kind::Barrier(_) | Kind::Mark => None,
        }
    }

    /// The proxy by which an operation takes part in moral strength.
    pub const fn proxy(&self) -> Option<Proxy> {
        match self {
            Kind::Read(access, _) | Kind::Write(access) => Some(access.proxy),
            Kind::Fence(..) => Some(Proxy::Generic),
            Kind::ProxyFence(ProxyFence::Proxy(proxy)) => Some(*proxy),
            Kind::Init(_) | Kind::ProxyFence(ProxyFence::Alias) | Kind::Barrier(_) | Kind::Mark => {
                None
            }
        }
    }
}

/// A thread of an [`EventGraph`](crate::EventGraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub(crate) usize);

impl ThreadId {
    /// The number of the thread, in the order in which threads were added.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// An event of an [`EventGraph`](crate::EventGraph).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub(crate) usize);

impl EventId {
    /// The number of the event, in the order in which events were added.
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Something that a thread did, or the initial value of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// Who did it; `None` for initial values.
    pub thread: Option<ThreadId>,
    /// What it is.
    pub kind: Kind,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_sets_of_threads() {
        let here = Position { gpu: 0, cluster: Some(3), cta: 1 };
        let neighbour = Position { gpu: 0, cluster: Some(3), cta: 2 };
        let alone = Position::new(0, 2);
        let peer = Position { gpu: 1, cluster: Some(3), cta: 1 };
        let shared = |other: Position| {
            [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys].map(|s| here.shares(other, s))
        };
        assert_eq!(shared(here), [true; 4]);
        assert_eq!(shared(neighbour), [false, true, true, true]);
        assert_eq!(shared(alone), [false, false, true, true]);
        assert_eq!(shared(peer), [false, false, false, true]);
        assert!(alone.shares(alone, Scope::Cluster));
    }

    #[test]
    fn places_overlap_by_bytes_and_by_address() {
        let low = Place { object: 0, mapping: 0, offset: 0, bytes: 8 };
        let high = Place { object: 0, mapping: 0, offset: 4, bytes: 8 };
        let alias = Place { object: 0, mapping: 1, offset: 0, bytes: 8 };
        let last = Place { object: 0, mapping: 0, offset: u64::MAX, bytes: 8 };
        assert!(low.overlaps(&high) && !low.is_same_memory(&high));
        assert!(low.is_same_memory(&alias) && !low.overlaps_virtually(&alias));
        assert!(!low.overlaps(&last) && !low.overlaps(&Place::of(1, 8)));
    }
}
