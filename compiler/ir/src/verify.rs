//! The verifier: what must hold of a kernel before anything is made of it.
//!
//! A pass gets read-only IR, reports everything it finds and repairs nothing. Passes on the kernel level
//! judge what the author wrote; passes on the device level judge what `expand` made of it, so that a
//! mistake of `expand` is caught by the same properties. [`Verified`] can be made here alone.

mod atomics;
mod bounds;
mod buffers;
mod cluster;
mod device;
mod device_fences;
mod expansion;
pub mod happens_before;
mod memory_order;
mod missing;
mod pipes;
mod ranks;
mod roles;
mod scalars;
mod scatter;
mod shared_memory;
mod structure;
mod tmem;
mod told;
mod waivers;
mod words;

pub(crate) use pipes::opened as indices_opened;
pub(crate) use shared_memory::derive as number_settles;

use std::ops::Deref;

use kernel_dsl::diag::{Code, Diagnostic, Severity, Sink};

use crate::device::DeviceKernel;
use crate::kernel::Kernel;

pub use missing::CODES_OF_ORDER;
pub use waivers::Waived;

/// Proof that every pass of its level accepted the kernel. There is no way to change the kernel inside.
#[derive(Debug, Clone)]
pub struct Verified<K>(K);

impl<K> Verified<K> {
    /// Gives the kernel back without the proof, to be changed and verified again.
    pub fn into_inner(self) -> K {
        self.0
    }
}

impl<K> Deref for Verified<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.0
    }
}

/// One property family.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// Short name, as `kernelc check --list` prints it.
    pub name: &'static str,
    /// Codes it can report.
    pub codes: &'static [Code],
    /// What holds when it reports nothing.
    pub proves: &'static str,
    /// The pass itself.
    run: Run,
}

impl Pass {
    /// The level of the IR that the pass reads.
    pub fn stage(&self) -> &'static str {
        match self.run {
            Run::Kernel(_) => "kernel",
            Run::Device(_) | Run::Expansion(_) => "device",
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Run {
    Kernel(fn(&Kernel, &mut Sink)),
    Device(fn(&DeviceKernel, &mut Sink)),
    /// Of both levels: what was proved, and what was made of it.
    Expansion(fn(&Kernel, &DeviceKernel, &mut Sink)),
}

/// Every pass, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "structure",
        codes: &[Code::E0810],
        proves: "each value is defined once before it is used, and shapes and dtypes of operands agree",
        run: Run::Kernel(structure::check),
    },
    Pass {
        name: "roles",
        codes: &[Code::E0150, Code::E0153, Code::E0155],
        proves: "R9, in part: warps of roles that run side by side are apart, none reads a buffer that \
                 another one stores to, and two change one by one operation",
        run: Run::Kernel(roles::check),
    },
    Pass {
        name: "pipes",
        codes: &[Code::E0148, Code::E0154, Code::E0156, Code::E0157, Code::E0219],
        proves: "R3, R4, R11, in part: each role of a barrier handles each index once and in order, all of them as \
                 many; copies bring the bytes that are announced, those of all CTAs of a cluster together; products of \
                 a pair of CTAs start in the first one, when what both have copied is there, and tell both",
        run: Run::Kernel(pipes::check),
    },
    Pass {
        name: "tmem",
        codes: &[Code::E0145, Code::E0146, Code::E0147],
        proves: "R5, R11, in part: products in tensor memory are committed to a barrier that is waited for, and loads \
                 from there settle before anything follows",
        run: Run::Kernel(tmem::check),
    },
    Pass {
        name: "memory-order",
        codes: &[Code::E0107, Code::E0108, Code::E0109, Code::E0110, Code::E0111],
        proves: "R1, R2: on every path, data that an earlier kernel may still write is read, and memory \
                 that it may still read is written, only after `grid_wait`; every path waits, and \
                 `grid_launch` comes after the wait",
        run: Run::Kernel(memory_order::check),
    },
    Pass {
        name: "bounds",
        codes: &[Code::E0401],
        proves: "every access lies inside its buffer for all inputs that keep the contracts",
        run: Run::Kernel(bounds::check),
    },
    Pass {
        name: "scatter",
        codes: &[Code::E0404],
        proves: "no store by an index tile writes an element twice; where the author waives it, it is trusted",
        run: Run::Kernel(scatter::check),
    },
    Pass {
        name: "words",
        codes: &[Code::E0115, Code::E0117, Code::E0215],
        proves: "R8, in part: CTAs that share a word of a counter are as many as it counts, and an epoch is \
                 advanced once on every path after its last use, each CTA's own word",
        run: Run::Kernel(words::check),
    },
    Pass {
        name: "atomics",
        codes: &[Code::E0115, Code::E0171, Code::E0173],
        proves: "nothing that depends on which CTA came first or last, by what an atomic finds, by the tickets that a \
                 CTA takes or by `arrive.last`, reaches memory; all CTAs find one number of tickets",
        run: Run::Kernel(atomics::check),
    },
    Pass {
        name: "buffers",
        codes: &[Code::E0116, Code::E0120, Code::E0172, Code::E0175, Code::E0219],
        proves: "R7: what other CTAs of the launch store is read behind an arrival, a wait or a meeting that orders it; \
                 no two CTAs store to one element in no order; no two threads of a CTA touch an element of a buffer \
                 between two `sync`s, one of them writing; no two rounds of a work list store to one element",
        run: Run::Kernel(buffers::check),
    },
    Pass {
        name: "shared-memory",
        codes: &[
            Code::E0113,
            Code::E0118,
            Code::E0119,
            Code::E0140,
            Code::E0141,
            Code::E0142,
            Code::E0143,
            Code::E0146,
            Code::E0153,
            Code::E0160,
            Code::E0161,
            Code::E0162,
            Code::E0163,
            Code::E0219,
            Code::E0503,
        ],
        proves: "R5, R6, R10: no two threads touch an element of shared memory between two `sync`s, one of \
                 them writing; what a copy fills is touched after `settle` and `sync`; what a \
                 product reads is written, and its sums are used, after `settle`; what a copy out of shared memory \
                 reads is published, and written when it has read; the tiles fit the target",
        run: Run::Kernel(shared_memory::check),
    },
    Pass {
        name: "cluster",
        codes: &[Code::E0121, Code::E0122, Code::E0219],
        proves: "R9, R10 between CTAs: all CTAs of a cluster reach each `sync cluster`, and no two of them touch \
                 an element of shared memory between two of those, one of them writing",
        run: Run::Kernel(cluster::check),
    },
    Pass {
        name: "ranks",
        codes: &[Code::E0132, Code::E0133, Code::E0134, Code::E0135, Code::E0137, Code::E0174],
        proves: "R7, R8 between ranks: what a rank stores to another one is published by a signal after a `sync`, and \
                 read after a wait for every sender; memory is stored to at a multicast address or at those of \
                 ranks, not both; slots and words follow the epochs, so nothing is overwritten \
                 that a slower rank may still read; who waits is resident, and waits for signals that all who share the \
                 word have passed",
        run: Run::Kernel(ranks::check),
    },
    Pass {
        name: "happens-before",
        codes: &[
            Code::E0107,
            Code::E0108,
            Code::E0113,
            Code::E0116,
            Code::E0118,
            Code::E0120,
            Code::E0122,
            Code::E0133,
            Code::E0134,
            Code::E0153,
            Code::E0160,
            Code::E0162,
            Code::E0175,
        ],
        proves: "R1, R5 to R8, R10 again, in the graph of all events: any two accesses that may touch one element, one \
                 of them writing, are ordered by a path, or kept apart",
        run: Run::Kernel(happens_before::check),
    },
    Pass {
        name: "device-structure",
        codes: &[Code::E0810],
        proves: "each register is defined before it is used, lengths agree, vectors tile their registers \
                 and shared accesses lie inside the CTA's shared memory",
        run: Run::Device(device::check_structure),
    },
    Pass {
        name: "device-memory-order",
        codes: &[Code::E0107, Code::E0108, Code::E0109, Code::E0110],
        proves: "R1 and R2 again, on what the expansion made of the kernel",
        run: Run::Device(device::check_memory_order),
    },
    Pass {
        name: "device-source-order",
        codes: &[Code::E0810],
        proves: "the order of the source survives the expansion: each statement that orders or touches memory is \
                 there once, in its role, loop and choice, between the same others",
        run: Run::Expansion(expansion::check),
    },
    Pass {
        name: "device-fences",
        codes: &[Code::E0810],
        proves: "R5, R6 and R10 of what the expansion adds: threads meet between the two ends of an exchange, and on \
                 every path a fence stands between what threads or earlier kernels do and the copies and products \
                 that need it; the CTAs of a cluster have met before one touches memory of another, and after",
        run: Run::Expansion(device_fences::check),
    },
];

/// What verification says.
#[derive(Debug)]
pub struct Outcome<K> {
    /// The kernel with its proof, when no pass found an error.
    pub verified: Option<Verified<K>>,
    /// Findings, waived ones left out.
    pub diagnostics: Vec<Diagnostic>,
    /// Findings that the author has waived, each with its reason.
    pub waived: Vec<Waived>,
}

/// A moment of verification, for whoever measures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The pass of that name begins.
    Begins(&'static str),
    /// It has ended.
    Ends(&'static str),
}

/// Runs every pass of the kernel level.
pub fn kernel(kernel: Kernel) -> Outcome<Kernel> {
    watched_kernel(kernel, &mut |_| {})
}

/// The same, and says when each pass begins and ends.
pub fn watched_kernel(kernel: Kernel, watch: &mut dyn FnMut(Moment)) -> Outcome<Kernel> {
    let mut sink = Sink::new();
    for pass in PASSES {
        if let Run::Kernel(run) = pass.run {
            watch(Moment::Begins(pass.name));
            run(&kernel, &mut sink);
            watch(Moment::Ends(pass.name));
        }
    }
    let found = sink.into_sorted().into_iter().map(|found| missing::explain(&kernel, found));
    let (diagnostics, waived) =
        waivers::apply(&kernel.waivers, found.collect(), kernel.launch.grid);
    let refused = diagnostics.iter().any(|d| d.severity == Severity::Error);
    Outcome { verified: (!refused).then_some(Verified(kernel)), diagnostics, waived }
}

/// Runs every pass of the device level. Findings that the source waived are waived here too.
pub fn device(kernel: DeviceKernel, source: &Verified<Kernel>) -> Outcome<DeviceKernel> {
    watched_device(kernel, source, &mut |_| {})
}

/// The same, and says when each pass begins and ends.
pub fn watched_device(
    kernel: DeviceKernel,
    source: &Verified<Kernel>,
    watch: &mut dyn FnMut(Moment),
) -> Outcome<DeviceKernel> {
    let mut sink = Sink::new();
    for pass in PASSES {
        let mut watched = |run: &mut dyn FnMut(&mut Sink)| {
            watch(Moment::Begins(pass.name));
            run(&mut sink);
            watch(Moment::Ends(pass.name));
        };
        match pass.run {
            Run::Kernel(_) => {}
            Run::Device(run) => watched(&mut |sink| run(&kernel, sink)),
            Run::Expansion(run) => watched(&mut |sink| run(source, &kernel, sink)),
        }
    }
    // A finding on the whole kernel stands where the kernel does, so that it can be waived there.
    let placed = |found: Diagnostic| match found.primary() {
        Some(_) => found,
        None => found.label(source.span, ""),
    };
    let found = sink.into_sorted().into_iter().map(placed);
    let found = found.map(|found| missing::explain(source, found)).collect();
    let (mut diagnostics, waived) = waivers::apply(&source.waivers, found, source.launch.grid);
    // A waiver that was needed at the kernel level may have nothing to silence here.
    diagnostics.retain(|d| d.code != Code::E0112);
    let refused = diagnostics.iter().any(|d| d.severity == Severity::Error);
    Outcome { verified: (!refused).then_some(Verified(kernel)), diagnostics, waived }
}
