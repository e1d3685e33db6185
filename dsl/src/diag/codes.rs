//! The table of diagnostic codes: one row a code, sorted; `kernelc explain CODE` prints a row.
//!
//! Ranges: `E00xx` files and parsing, `E01xx` memory order and the verifier, `E02xx` names, types,
//! shapes and constants, `E03xx` layouts, `E04xx` bounds and contracts, `E05xx` targets and
//! resources, `E06xx` what this version lacks, `E07xx` errors of a run on the emulator, `E08xx` the
//! back end and its tools, `E09xx` findings of the audit.

use std::fmt;
use std::str::FromStr;

/// Builds [`Code`] from rows `CODE "title" "explanation";`. The explanation shows a short failing
/// example and its fix.
macro_rules! codes {
    ($($code:ident $title:literal $explanation:literal;)*) => {
        /// Names the rule that a diagnostic speaks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// Every code in ascending order.
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            /// The code as people write it: `E0107`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$code => stringify!($code),)* }
            }

            /// What the rule is about, in one line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$code => $title,)* }
            }

            /// A short failing example and its fix.
            pub fn explanation(self) -> &'static str {
                match self { $(Code::$code => $explanation,)* }
            }
        }
    };
}

codes! {
    // Files, words and grammar.
    E0001 "file is not UTF-8" "A source file is UTF-8 text; outside comments and strings the language needs only ASCII.\nSave the file as UTF-8.";
    E0002 "character that the language does not know" "fails:\n    let a = b ? c : d $ e;\nOutside comments and strings only the characters of the grammar may stand, and no control characters.\nRemove the character, or move it into a comment.";
    E0003 "comment or string without an end" "fails:\n    /* the rest of the file is a comment\nEnd a block comment with `*/` and a string with `\"` on the same line.";
    E0004 "brackets that do not match" "fails:\n    store f(a, b -> y;\nEach `(`, `[` and `{` needs its partner, nested properly.";
    E0005 "nested too deeply" "An expression or block nests deeper than the compiler follows.\nBind parts of the expression with `let` or `const`, or move inner blocks into a `fn`.";
    E0006 "number that does not fit" "fails:\n    const N = 99999999999999999999;\nAn integer literal has at most 64 bits; a float literal must be finite.";
    E0007 "string with an unknown escape" "fails:\n    printf \"\\q\";\nKnown escapes are `\\n`, `\\t`, `\\\"` and `\\\\`.";
    E0010 "statement or item that does not fit the grammar" "fails:\n    store x, y;\nwrite:\n    store x -> y;\nThe diagnostic says what was found, what was expected there, and the form of the statement.";
    E0011 "missing end of a statement" "fails:\n    let a = b\n    let c = d;\nEvery statement without a block ends with `;`.";
    E0012 "unknown or repeated entry" "fails:\n    launch { grid: 1, grid: 2, wraps: 4 }\nEach entry of `launch`, `pipeline` and of a kernel header may be given once and must be a known one.";
    E0013 "word of the language used as a name" "fails:\n    let store = 1;\nChoose another name.";
    E0014 "comparison of a comparison" "fails:\n    if 0 <= r < V { }\nwrite:\n    if 0 <= r && r < V { }";
    E0015 "waiver that cannot be used" "fails:\n    // allow E0107\nwrite:\n    // allow E0107: the previous kernel is known to be finished, see plan.rs\nA waiver names an existing code and gives a reason; it stands on the line before the statement it covers.";
    E0016 "header that lacks a part" "fails:\n    kernel k(input x: gmem f32[4]) { }\nA kernel header needs `launch { grid: …, warps: … }` and a body.";

    // Memory order and the other rules of the verifier.
    E0107 "activation read that is not ordered after `grid_wait`" "fails:\n    kernel k(input x: gmem f32[128], output y: gmem f32[128]) launch { grid: 1, warps: 4, pdl: both } {\n        let v = load x;      // the previous kernel may still be writing x\n        grid_wait;\n        store v -> y;\n        grid_launch;\n    }\nwrite:\n        grid_wait;\n        let v = load x;\nAn `input` is written by an earlier kernel of the stream. With programmatic dependent launch this kernel starts before that one has finished, so only `static` and `settled` data may be read before the wait.";
    E0108 "write before `grid_wait`" "fails:\n    store v -> y;        // an earlier kernel may still read y\n    grid_wait;\nwrite:\n    grid_wait;\n    store v -> y;\nEarlier kernels may still read or write what this kernel overwrites.";
    E0109 "path without `grid_wait`" "fails:\n    if cta.x == 0 { grid_wait; store v -> y; }\nwrite:\n    grid_wait;\n    if cta.x == 0 { store v -> y; }\nA kernel that can finish without waiting breaks the chain: kernels after it may start before kernels ahead of it are done.";
    E0110 "`grid_launch` before `grid_wait`" "fails:\n    grid_launch;\n    grid_wait;\nwrite:\n    grid_wait;\n    grid_launch;\nThe next kernel may start once this one launches it; it must not do so while the kernel ahead is still running.";
    E0111 "launch attribute that the body contradicts" "fails:\n    launch { grid: 1, warps: 4, pdl: none } { grid_wait; }\nwrite:\n    launch { grid: 1, warps: 4, pdl: consumer } { grid_wait; }\n`grid_wait` needs `pdl: consumer` or `both`, `grid_launch` needs `producer` or `both`, so that the launch attribute and the code cannot disagree.";
    E0112 "waiver that silences nothing" "warns:\n    // allow E0107: x is finished\n    grid_wait;\nA waiver covers findings of its code in the statement that follows it. Remove it when there are none.";
    E0113 "shared memory touched without `sync`" "fails:\n    store v -> s;\n    store load s -> y;       // other threads wrote what this reads\nwrite:\n    store v -> s;\n    sync;\n    store load s -> y;\nStores to shared memory become visible to other threads by `sync`. Between two of them no two threads may touch one element when one of them writes; in a loop, the end of the body and its start are one interval. Accesses are apart where their ring slots or constant slices provably are.";
    E0114 "counter or epoch used in another way" "fails:\n    inout counter c : gmem u32[1]\n    let n = load c[0];\nwrite:\n    if arrive.last c[0] of 8 { … }\nThe words of a counter are touched by `arrive.last` alone; those of an epoch by `let t = load e[i]` and `advance e[i];`.";
    E0115 "arrivals that do not add up" "fails, with `grid: 16`:\n    if arrive.last c[0] of 8 { … }\nwrite:\n    if arrive.last c[0] of 16 { … }\nEach CTA that shares the word arrives once, and the word starts again at zero when `n` have arrived. With another number the last one is not the last.";
    E0116 "read of what other CTAs of the launch write" "fails:\n    store v -> part[cta.x, :];\n    let all = load part;             // other CTAs may not have stored yet\nwrite:\n    if arrive.last c[0] of N { let all = load part; … }\nCTAs run in any order. What others stored before they arrived can be read inside of `if arrive.last`, by the last one; what they stored before a signal behind an `await` for all of them; what CTAs of the cluster stored before a `sync cluster` behind it. Any other load of a buffer that the kernel stores to must be of elements that the same CTA alone stores: on some axis both have the same function of the CTA's index (`part[cta.x, :]`, `y[cta.x * 8 .. + 8]`), or a slot that a contract calls `distinct`, `s[load slot[cta.x], :]`.";
    E0117 "epoch that is not advanced once" "fails:\n    let t = load e[cta.x];\n    if t > 0 { advance e[cta.x]; }\nwrite:\n    let t = load e[cta.x];\n    …\n    advance e[cta.x];\nOn every path an epoch is advanced once, after the last time it is read.";
    E0118 "shared memory touched while a copy fills it" "fails:\n    copy.async x -> s;\n    sync;\n    store load s -> y;       // the copy may still be under way\nwrite:\n    copy.async x -> s;\n    settle s;\n    sync;\n    store load s -> y;\n`settle` waits for the copies of the thread that executes it, so a `sync` must follow before other threads' bytes are read.";
    E0119 "`settle` of what no copy fills" "fails:\n    copy.async x -> s@0;\n    settle s@1;\nEvery path to a `settle` should start a copy to its slot.";
    E0120 "buffer touched without `sync`" "fails:\n    store v -> y;\n    store load y[127 - iota(128)] -> z;   // other threads wrote what this reads\nwrite:\n    store v -> y;\n    sync;\n    store load y[127 - iota(128)] -> z;\nWhat a thread stores to a buffer the other threads of the CTA see after `sync`. Two accesses of one buffer, one of them a store, need a `sync` between where their slices meet, unless both are spread over the threads alike and start alike, so that each element stays in one thread.";
    E0121 "`sync cluster` that not all CTAs reach" "fails:\n    if cluster.rank == 0 { sync cluster; }   // the others never come\nwrite:\n    sync cluster;\nAll CTAs of a cluster meet at each `sync cluster`, so it stands under no condition and in no loop whose bounds may differ between them: nothing that depends on `cta` along an axis of the cluster, on `cluster.rank`, on `arrive.last`, on shared memory or on a buffer that the kernel writes.";
    E0122 "shared memory of a cluster touched without `sync cluster`" "fails:\n    store v -> s@cta(0);\n    store load s -> y;        // another CTA may write this now\nwrite:\n    store v -> s@cta(0)[cluster.rank, :];\n    sync cluster;\n    store load s -> y;\nCTAs of a cluster run each at its own pace between two `sync cluster`s. An access of one and an access of another, one of them a write, need a `sync cluster` between, unless their slots or slices lie apart: by a constant, or because both start at a multiple of `cluster.rank`.";
    E0131 "memory or words of ranks used in another way" "fails:\n    store v -> inbox@t[rank, :];                    // on which rank?\n    signal ready@peer(*)[0, rank] add 1;            // in which order?\nwrite:\n    store v -> inbox@peer(p)@t[rank, :];\n    signal ready@peer(*)[0, rank] add 1 order release scope sys;\n    await ready[0, each] until t + 1 order acquire scope sys;\nRanks push: each stores to memory of the others, raises a word of each, waits for one word of every sender, and reads its own memory.";
    E0132 "store to another rank that no signal publishes" "fails:\n    store v -> inbox@peer(p)@t[rank, :];\n    signal ready@peer(*)[0, rank] add 1 order release scope sys;\nwrite:\n    store v -> inbox@peer(p)@t[rank, :];\n    sync;\n    signal ready@peer(*)[0, rank] add 1 order release scope sys;\nA signal publishes what its own threads did and what all threads did before the last `sync`; several threads store, so a `sync` stands between. What is stored after the last signal reaches nobody in order.";
    E0133 "read of what other ranks write" "fails:\n    let v = load inbox@t;                           // nothing says that it has arrived\nwrite:\n    await ready[0, each] until t + 1 order acquire scope sys;\n    let v = load inbox@t;\nOn every path a wait for a word of every sender stands before the read, and the place that a rank stores to has its own number in it, so that two ranks never store to one element.";
    E0134 "words of ranks that do not follow the epochs" "fails:\n    await ready[0, each] until 1 order acquire scope sys;      // true in every later launch\nwrite:\n    let t = load seq[cta.x];\n    store v -> inbox@peer(p)@t[rank, :];\n    sync;\n    signal ready@peer(*)[cta.x, rank] add 1 order release scope sys;\n    await ready[cta.x, each] until t + 1 order acquire scope sys;\n    let v = load inbox@t;\n    advance seq[cta.x];\nThis is the form that is proved: a ring of two slots at least, slot t of epoch t, one word for each sender and CTA, raised by 1 once in each launch, waited for up to t + 1 once, by the same CTA. A sender that is an epoch ahead writes the other slot; it cannot be two ahead, since it waits for this rank too.";
    E0135 "kernel that waits for others and may not be there whole" "fails:\n    launch { grid: 64, warps: 4, world: 8 }\nwrite:\n    launch { grid: 64, warps: 4, world: 8, resident: all }\nA CTA that waits keeps its place on the device. With `resident: all` whoever launches checks that all CTAs fit at once.";
    E0136 "multicast address that is touched otherwise" "fails:\n    peer x : sym f32[N] ring 2, peer all : sym_mc f32[N] ring 2 of x,\n    let v = load all@t;\nwrite:\n    let v = multimem.load_reduce.add(all@t);\n    multimem.store v -> all@t;\nA `sym_mc` parameter is the multicast address of the memory `x` of all ranks: one store goes to each of them, one load gives the fold of what they have, and an ordinary access has no meaning. There are instructions for sums of f32, f16, bf16 and integers of 32 and 64 bits, and for `max` and `min` of all of these but f32.";
    E0137 "memory of ranks that is stored to by two ways" "fails:\n    multimem.store v -> all@t[0, :];\n    store w -> x@peer(p)@t[1, :];        // `all` is the multicast address of `x`\nwrite:\n    multimem.store v -> all@t[0, :];\n    multimem.store w -> all@t[1, :];\nStores at a multicast address and at those of single ranks come in no order with each other, not even from one thread. A kernel stores to one memory in one way.";
    E0140 "sums used while a product may add to them" "fails:\n    mma sA * (sB)^T -> acc via MMA; commit;\n    store acc -> y;              // the product is still under way\nwrite:\n    mma sA * (sB)^T -> acc via MMA; commit;\n    settle acc;\n    store acc -> y;\nA product of a warpgroup runs on its own. Until a `settle` of its sums that leaves no group in flight with it, they are neither read nor assigned; further products may add to them.";
    E0141 "operand written while a product may read it" "fails:\n    mma sA * (sB)^T -> acc via MMA; commit;\n    store v -> sA;               // the product may still read sA\nwrite:\n    mma sA * (sB)^T -> acc via MMA; commit;\n    settle acc; sync;\n    store v -> sA;\nA product reads shared memory at any time between `mma` and the `settle` that waits for its group. `settle acc but n` leaves the n youngest groups in flight: slots that older ones read may be filled again after a `sync`.";
    E0142 "product that nothing settles" "fails:\n    mma sA * (sB)^T -> acc via MMA;\n    settle acc;                  // the group is still open\nwrite:\n    mma sA * (sB)^T -> acc via MMA; commit;\n    settle acc;\n`commit` closes the group of the products since the last one, and `settle` waits for closed groups. Each product is settled on every path, and each `settle` has a product to wait for.";
    E0143 "slot released while a product may read it" "fails:\n    mma sW@t * (sX@t)^T -> acc via MMA; commit;\n    release ld.empty@t;          // the product may still read the slot\nwrite:\n    mma sW@t * (sX@t)^T -> acc via MMA; commit;\n    settle acc but 1;\n    if t > 0 { release ld.empty@(t - 1); }\nWho waits for an empty slot fills it again. `settle acc but n` leaves the n youngest groups in flight, so the slots of older ones may be released after it.";
    E0145 "tensor memory used in another way" "fails:\n    role epilogue: warps 2..4 { frag r : f32[128, N] = load acc; settle r; }\nwrite:\n    role epilogue: warps 2..6 { frag r : f32[128, N] = load acc; settle r; }\nEach warp reaches 32 of the 128 rows. Products are started in a role, and another role reads their sums after a barrier that they are committed to.";
    E0146 "product in tensor memory that is not waited for" "fails:\n    mma sW@t * (sX@t)^T -> acc via MMA; release ld.empty@t;\nwrite:\n    mma sW@t * (sX@t)^T -> acc via MMA; commit ld.empty@t;\nA product runs on its own: only a `commit` waits for it, and a barrier that somebody waits for is committed to behind the last one.";
    E0147 "load from tensor memory that has not settled" "fails:\n    frag r : f32[128, N] = load acc; release free; settle r;\nwrite:\n    frag r : f32[128, N] = load acc; settle r; release free;\nA load runs on its own. Between it and its `settle` stand other loads alone.";
    E0148 "products of a pair of CTAs" "fails, in a cluster of 2:\n    role tensor: warps 1..2 elect one {\n        wait ld.full@t;\n        mma sW@t * (sX@t)^T -> acc via PAIR; commit ld.empty@t;      // in both CTAs, and each for itself\n    }\nwrite:\n    copy.tma W.tile(128, 64)[cluster.rank, t] -> sW@t into ld.full@cta(0)@t;\n    …\n    if cluster.rank == 0 {\n        wait ld.full@t;\n        mma sW@t * (sX@t)^T -> acc via PAIR; commit ld.empty@cta(*)@t;\n    }\nOne thread of the first CTA starts the products of both. It waits until the copies of both have landed, which count at its barrier; and it commits to the barriers of both, since both fill their slots again and both read their sums. All products of the kernel are such, and nothing but copies into that pipeline touches the operands.";
    E0150 "warps of a role" "fails:\n    role loader: warps 0..1 { }\n    role math: warps 0..4 { }\nwrite:\n    role loader: warps 4..5 { }\n    role math: warps 0..4 { }\nRoles that follow each other directly run side by side, so no warp is in two of them, and all are warps of the kernel. Roles stand at the top of a kernel, outside of loops and choices. A role that says `elect one` is one thread: it has scalars alone.";
    E0151 "meeting that not all threads reach" "fails:\n    role math: warps 0..4 { sync; }\nwrite:\n    role math: warps 0..4 { sync math; }\n`sync` and `sync cluster` are for all threads of a CTA and stand outside of roles; inside of a role its own threads meet by `sync ROLE`.";
    E0152 "tile of other threads" "fails:\n    let v = load x;\n    role math: warps 0..4 { store v -> y; }\nwrite:\n    role math: warps 0..4 { let v = load x; store v -> y; }\nA tile lies in the registers of the threads that make it, and a role is other threads than the whole CTA. Scalars may be used in roles, for each thread has them.";
    E0153 "roles that touch memory without order" "fails:\n    role a: warps 0..1 { store v -> s; }\n    role b: warps 1..2 { let w = load s; }\nwrite:\n    role a: warps 0..1 { store v -> s; }\n    sync;\n    role b: warps 1..2 { let w = load s; }\nRoles run each at its own pace. What one writes and another touches needs something that orders the two.";
    E0154 "slot that does not go round between roles" "fails:\n    role loader: warps 0..1 elect one { for t in 0..n { open ld@t; copy.bulk x[t, :] -> s@t into ld.full@t; } }\n    role math: warps 4..8 { for t in 0..n { wait ld.full@t; acc += load s@t; } }      // never released\nwrite:\n    role math: warps 4..8 { for t in 0..n { wait ld.full@t; acc += load s@t; release ld.empty@t; } }\nThe producer opens a slot, fills it by copies that bring the announced bytes or by stores and a `release` of `full`; the consumer waits for `full` and releases `empty`. Each index from 0 on is handled once and in order at both ends, by constants or by a loop with step 1, up to one common number.";
    E0155 "registers of a role" "fails, with `warps: 12`:\n    role math: warps 4..12 registers 248 { … }\nwrite:\n    role loader: warps 0..4 elect one registers 24 { … }\n    role math: warps 4..12 registers 240 { … }\nA budget is a multiple of 8 from 24 to 240, for whole warpgroups: four warps, the first of them a multiple of 4. A thread starts with 65536 / threads registers (in steps of 8), and all warps together have no more than that at any time. No statement follows the roles with budgets.";
    E0156 "bytes of other CTAs that do not add up" "fails, in a cluster of 4:\n    barrier inbox : bytes(part) scope cluster to math;     // part : f32[4, 128]\n    if cluster.rank != 0 { copy.st_async v -> part@cta(0)[cluster.rank] into inbox@cta(0); }\n    else { wait inbox; }                                   // 3 of 4 rows come\nwrite:\n    smem part : f32[3, 128];\n    copy.st_async v -> part@cta(0)[cluster.rank - 1] into inbox@cta(0);\nEach CTA that waits gets exactly the bytes of the barrier, each element once; a CTA that gets bytes waits for them; and nothing but `copy.st_async` and loads behind the wait touches the tile. Who sends what to whom follows from constants and `cluster.rank`.";
    E0157 "slots that all CTAs of a cluster fill" "fails:\n    copy.tma W.tile(64, 64)[0, t] -> w@cta(*)@t into ld.full@cta(*)@t;\n    release ld.empty@t;                // the other CTAs do not see it\nwrite:\n    release ld.empty@cta(*)@t;\nA copy with `@cta(*)` fills the slot of every CTA of the cluster, and each counts its bytes. The next one waits until the consumers of all CTAs have released the slot, so they release it in all CTAs. All CTAs go round equally often, each gets the bytes that it announces, and no two copies write one element.";
    E0160 "shared memory written while a copy reads it" "fails:\n    copy.bulk s -> y;\n    sync;\n    store v -> s;            // the copy may still read s\nwrite:\n    copy.bulk s -> y;\n    settle s;\n    sync;\n    store v -> s;\nA copy out of shared memory reads at any time until its thread has settled the slot, or the buffer that it writes. Who hands the slot over, by `release` or a meeting, settles it before.";
    E0161 "copy out of shared memory that nothing waits for" "fails:\n    copy.bulk s -> y;\n    settle s;                // it has read s, and y is not complete\nwrite:\n    copy.bulk s -> y;\n    settle y;\n`settle s` waits until copies have read the tile, `settle y` until they are complete. Each copy is complete on every path before the threads of its role end, and before another copy writes the same elements: nothing orders what two copies under way write, neither `sync` nor `settle s`.";
    E0162 "copy of what is not published" "fails:\n    store v -> s;\n    sync;\n    copy.bulk s -> y;        // may read s as it was before\nwrite:\n    store v -> s;\n    publish s;\n    sync;\n    copy.bulk s -> y;\nCopies go another way to memory than the accesses of threads. Each thread orders what it has stored by `publish`, and a meeting, or a `release` and a `wait`, follows. What `copy.async` brings is published behind its `settle`, and what another CTA has stored behind the `sync cluster`, by the CTA that copies.";
    E0163 "buffer that copies write, touched in another way" "fails:\n    copy.bulk s -> y[cta.x, :];\n    store v -> y[cta.x + 1, :];\nA buffer that copies out of shared memory write is written by them alone, and read by later kernels.";
    E0170 "atomic operation that is none" "fails:\n    let n = atomic.add(count[0], 1);\nwrite:\n    let n = atomic.add(count[0], 1) order relaxed scope gpu;\nAtomics change elements of an `inout` buffer of u32, i32 or u64, by `add`, `max`, `min`, `and` or `or`, each in one step. Order and scope are always written. What an atomic finds proves nothing about other CTAs, so it orders nothing and is relaxed.";
    E0171 "result that depends on the order of CTAs" "fails:\n    let n = atomic.add(count[0], 1) order relaxed scope gpu;\n    store v -> y[i32(n), :];\nwrite:\n    atomic.add(count[0], 1) order relaxed scope gpu;\n    if arrive.last done[0] of N { … load count[0] … }\nWhich CTA finds which value is another one in every run, so nothing that is computed from it, and nothing that it decides, reaches memory. The value that an element has in the end is always the same.";
    E0172 "rounds of a work list that store to one element" "fails:\n    for t in tickets(c[0], n) { store v -> y[cta.x, :]; }\nwrite:\n    for t in tickets(c[0], n) { store v -> y[t, :]; }\nEach number is given to one CTA, so what is stored to `y[t, …]` or `y[t * 8 .. + 8]` is apart for any two rounds. Nothing else says so: a CTA does any number of rounds.";
    E0173 "round of a work list that depends on its CTA" "fails:\n    frag sum : f32[8] = 0.0;\n    for t in tickets(c[0], n) { sum += load x[t, :]; store sum -> y[t, :]; }\nwrite:\n    for t in tickets(c[0], n) { frag sum : f32[8] = 0.0; sum += load x[t, :]; store sum -> y[t, :]; }\nWhich CTA does a round, and which rounds it did before, is another thing in every run. So what a round stores depends on its number alone, not on `cta`, nor on tiles that an earlier round has left.";
    E0174 "signals of a counter that do not add up" "fails, with `grid: 16`:\n    signal c[0] add 1 order release scope gpu;\n    await c[0] until 16 order acquire scope gpu;      // true at once in every later launch\nwrite:\n    let t = load e[cta.x];                            // inout epoch e : gmem u32[16]\n    signal c[0] add 1 order release scope gpu;\n    await c[0] until (t + 1) * 16 order acquire scope gpu;\n    advance e[cta.x];\nEvery CTA raises a word once in each launch, outside of loops and choices, and then waits until all that share the word have: as many as there are CTAs with the same index, times what each adds, times the launches so far.";

    // Names, types, shapes, constants.
    E0201 "unknown name" "fails:\n    store y -> z;       // nothing is called z\nThe help names the closest known name.";
    E0202 "name defined twice" "fails:\n    let a = 1; let a = 2;\nChoose another name; a tile is changed by `=`, not by a second `let`.";
    E0203 "types that do not agree" "fails:\n    let a = f32(x) + bf16(y);\nwrite:\n    let a = f32(x) + f32(y);\nConversions are always written.";
    E0204 "shapes that do not agree" "fails:\n    let s = a + b;      // f32[8, 4] + f32[8]\nwrite:\n    let s = a + b[:, _];\nAxes are matched from the last one; `_` adds an axis of 1.";
    E0205 "value that is not constant" "fails:\n    frag a : f32[load n[0]];\nShapes, ring sizes and warps are known at instantiation.";
    E0206 "wrong number or kind of arguments" "fails:\n    let m = max(a);\nThe diagnostic shows the form of the operation.";
    E0207 "tile where a scalar is needed" "fails:\n    if x > 0.0 { }      // x is a tile\nControl flow is uniform: conditions, loop bounds, slice starts and ring indices are scalars. Choose per element with `select`.";
    E0208 "binding that does not fit its parameter" "A value given for a `const` parameter lies outside its domain, has another type, or is missing.";
    E0209 "`where` clause that does not hold" "fails, for N = 100 and ROWS = 8:\n    where N % ROWS == 0\nChoose other bindings; a failing `where` removes a tune point.";
    E0210 "write to what is read-only" "fails:\n    store v -> x;       // x is `input`\nOnly `output`, `inout`, `scratch` and `peer` buffers, tiles and shared memory are written.";
    E0211 "file that cannot be imported" "fails:\n    import \"gmev.tile\";\nThe path is relative to the file that imports it. An import brings in the functions and constants of that file.";
    E0212 "files that import each other" "fails:\n    // a.tile\n    import \"b.tile\";\n    // b.tile\n    import \"a.tile\";\nMove what both need to a third file.";
    E0213 "function that calls itself" "fails:\n    fn f(x: f32) -> f32 { f(x) }\nCalls are inlined, so a function can reach itself neither directly nor through others. Write a loop.";
    E0214 "constant without a value" "fails:\n    const A = 1 / 0;\nConstants are 64-bit integers, 64-bit floats and truth values; division by zero, overflow and conversions that lose the value are errors.";
    E0215 "header entry that makes no sense" "fails:\n    launch { grid: 0, warps: 4 }\nA grid has one to three positive extents, `pdl` is `none`, `producer`, `consumer` or `both`, an export is a C identifier.";
    E0216 "letters that do not fit" "fails:\n    let y = contract(\"r k, k -> r\", w, x);      // w has three axes\n    view V = W by \"n k -> n\";\nEach axis of an operand has one letter, a letter has one extent everywhere, and a `view` keeps every letter.";
    E0217 "ring slot that is missing or not constant" "fails:\n    frag w : f32[8] ring 2;\n    for s in 0..n { load x[s * 8 .. + 8] -> w@s; }\nwrite:\n    for s in 0..n unroll 2 { load x[s * 8 .. + 8] -> w@s; }\nThe slots of a `frag` ring are registers, so which one is meant must be known at instantiation.";
    E0218 "kernel that is not written for the target" "fails for sm_90a:\n    target sm_100a;\n    kernel k() launch { grid: 1, warps: 1 } { }\nEvery file with kernels states its targets in a `target` line.";
    E0219 "kernel that grows too large" "fails:\n    for i in 0..1000000 unroll { acc += load x[i]; }\nThe limits are on statements after unrolling and inlining, on elements of a tile, on registers of a thread, and on the rounds of nested loops through which the verifier follows shared memory.";
    E0220 "buffer argument with another qualifier" "fails:\n    fn f(x: static f32[8]) { }\n    kernel k(input x: gmem f32[8]) launch { grid: 1, warps: 1 } { f(x); }\nThe qualifier decides when a read is legal, so a function states it and the argument must have the same; `writable` takes any buffer that may be written.";
    E0221 "buffer where a value is needed, or the reverse" "fails:\n    let y = x + 1.0;        // x is a buffer\nwrite:\n    let y = load x + 1.0;\nThe cost of a load is always visible.";
    E0222 "indices that do not fit" "fails:\n    let v = load x[0];      // x has two axes\nwrite:\n    let v = load x[0, :];\nEvery axis has one index: a scalar, `a .. + L`, `:`, or an i32 tile; `_` adds an axis of 1.";
    E0223 "PTX that is not taken" "fails:\n    unsafe { ptx \"ld.global.f32 %0, [%1];\" out(y) in(a) = a; }\nwrite:\n    unsafe { ptx \"fma.rn.f32 %0, %1, %2, %1;\" out(y) in(a, b) = fma(a, b, a); }\nA text is a list of instructions that compute `%0` from `%1`, `%2`, … in registers, in each thread for itself: no memory, no other threads, no branches, no special registers. `= value` says in the language what it computes, element by element; the emulator runs that, and tests on a GPU compare the two.";

    // Layouts.
    E0301 "undefined layout operation" "fails:\n    composition((4, 6):(1, 8), 5:3)\nThe divisibility that the operation needs does not hold for these layouts.";
    E0302 "layout notation" "fails:\n    (4, 8):(1\nA layout is `shape:stride` with equal nesting, as in `(4, (2, 2)):(1, (4, 8))`; a tuple of one has a trailing comma.";
    E0303 "layout too large" "fails:\n    kernelc layout --map '1000000000000:1'\nSizes and indices fit in 64 bits, a map has at most 2^20 indices, an expression at most 64 KiB and 64 levels of nesting.";
    E0310 "two layouts for one tile" "fails:\n    let s = a + b;      // a and b are spread over the threads in different ways\nwrite:\n    let s = a + relayout(b);\nNo data moves between threads unless `relayout` says so.";
    E0311 "box that no tensor copy moves" "fails:\n    static w : gmem bf16[64, 36]      // rows of 72 bytes\n    copy.tma w.tile(8, 32)[i, j] -> s@t into ld.full@t;\nwrite:\n    static w : gmem bf16[64, 40]      // rows of 80 bytes\nThe hardware moves boxes of 1 to 5 axes with at most 256 positions each. Strides and the rows of a box are multiples of 16 bytes, the last axis is contiguous, and with a swizzle a row is one line of it.";

    // Bounds and contracts.
    E0401 "access that cannot be proved in bounds" "fails:\n    let v = load x[i .. + 8];         // nothing bounds i\nwrite:\n    let v = load x[i .. + 8 until n] else 0.0;\nBounds come from const extents, loop ranges, `where`, contracts on inputs and `until`.";
    E0402 "absent elements without a value" "fails:\n    let v = load x[i .. + 8 until n];\nwrite:\n    let v = load x[i .. + 8 until n] else 0.0;";
    E0403 "contract that cannot hold" "fails:\n    input ids : gmem i32[M] in 8..0\nThe interval of a contract must not be empty.";
    E0404 "store that may write an element twice" "fails:\n    store v -> y[load to];           // two entries of `to` may be equal\nwrite:\n    input to : gmem i32[M] in 0..N distinct\nThe entries of an index tile that a store uses are distinct: `iota`, data declared `distinct`, the running count `select(c, scan.add(i32(c), axis = 0, exclusive), -1)`. What only the author knows is waived, `// allow E0404: why`, and is then listed as trusted; the emulator reports two entries that meet.";
    E0405 "slice of a packed buffer that parts a group" "fails:\n    static w : gmem e2m1[N, K] scaled_by(s, group = 32), static s : gmem ue8m0[N, K / 32],\n    let v = load w[n, i * 8 .. + 8];\nwrite:\n    let v = load w[n, i * 32 .. + 32];\nThe elements of a group share a scale, and two elements of e2m1 share a byte. So a slice starts at a multiple of the group and takes a multiple of it; both are proved.";

    // Targets and resources.
    E0501 "unknown target" "Known targets are listed by `kernelc doctor`.";
    E0502 "target that lacks a feature" "fails on sm_90a:\n    tmem acc : f32[128, 64];\nUse `match arch`, or state only the targets that have the feature.";
    E0503 "resources of a target exceeded" "Registers, shared memory, warps or barriers exceed what the target or `launch` allows; the notes give the breakdown.";

    // What this version lacks.
    E0600 "not supported in this version" "The text is legal in the language and this version of the compiler does not build it yet. It is refused, never ignored.";

    // Errors of a run on the emulator.
    E0701 "read of memory that nothing wrote" "fails:\n    frag a : f32[8];\n    store a -> y;\nUnwritten memory is poison. An `input` of a kernel launched early is poison until its producer has finished.";
    E0702 "access out of bounds" "An index lies outside the buffer at run time; the notes give index and extent.";
    E0703 "contract violated" "A value breaks the `in a..b` contract of its parameter; the notes give position and value.";
    E0704 "assertion failed" "fails:\n    assert n > 0, \"n is positive\";     // with n = 0";
    E0705 "integer division by zero" "fails:\n    let q = a / n;      // with n = 0";
    E0706 "argument that does not fit its parameter" "A buffer or scalar is missing at launch, or has another element type or length than its parameter; the notes give both.";
    E0707 "two stores to one address" "fails, with a grid of more than one:\n    store x -> y[0 .. + 8];      // every CTA writes the same elements\nEach element is stored by one CTA, and once by one store.";
    E0708 "store to a buffer that may not be written" "`static` and `input` buffers are read only; declare the parameter `output`, `inout` or `scratch`.";
    E0709 "too many steps" "A CTA ran more statements than the limit of the run allows; look at the bounds of its loops, or raise the limit.";
    E0710 "race in shared memory" "Two threads touch one byte of shared memory without a barrier between them, and one of them writes. The verifier refuses kernels that can do this (E0113), so it is a fault of the compiler.";
    E0711 "misaligned vector access" "A vector access is not aligned to its size, or is wider than the target allows. This is a fault of the compiler.";
    E0712 "threads that part ways" "A barrier, a loop or a shuffle is not reached by all threads of the CTA alike. This is a fault of the compiler.";
    E0713 "race between CTAs" "fails, with a grid of more than one:\n    store v -> part[cta.x, :];\n    if arrive.last c[cta.y] of 4 { let all = load part; }     // CTAs that do not arrive at this word stored a part of it\nA CTA reads what another CTA of the same launch writes, and nothing orders the two. The last arriver sees what the others stored before they arrived at the same word.";
    E0714 "all that run wait for each other" "Every CTA that has not ended waits for a word that nobody raises, or for CTAs that do not come. The message says who waits for what.";
    E0715 "race between CTAs of a cluster" "Two CTAs of a cluster touch one element of shared memory without a `sync cluster` between them, and one of them writes.";
    E0716 "shared memory of a CTA that is not there" "Shared memory of another CTA is touched before that CTA has started or after it has ended. The compiler lets the CTAs of a cluster meet first and last; this is its fault.";
    E0717 "race between ranks" "fails:\n    store v -> inbox@peer(p)@t[rank, :];\n    let w = load inbox@t;                           // the others may be writing it\nA rank reads what another rank writes, or overwrites what it may still read, and no signal and wait order the two. The message names both places.";
    E0718 "race between roles" "Two roles touch one element of shared memory, one of them writes, and nothing orders the two: neither a `sync` of all threads between the regions nor a barrier that one releases and the other waits for.";
    E0719 "barrier out of turn" "A role waits for a round of a barrier that is neither the one at hand nor the last, which a thread cannot tell apart, or more arrive than a round takes. The verifier refuses kernels that can do this (E0154), so it is a fault of the compiler.";
    E0720 "race between launches" "fails, where the launch before writes x:\n    let v = load x;                                 // that launch may still run\n    grid_wait;\nA kernel with `pdl: consumer` or `both` starts while the launch before it still runs. What that one writes is read, and what it reads or writes is written, after `grid_wait` only. A wait covers the launch before and what that one waited for: one that can end without waiting leaves those before it uncovered. The message names both places.";

    // The back end and its tools.
    E0801 "ptxas is missing" "Machine code is made by ptxas. `cargo xtask test` installs the pinned version; `kernelc doctor` says where it is looked for.";
    E0802 "ptxas refused the code" "This is a fault of the compiler: it wrote PTX that the target does not take. The notes carry the log and the reproduce command.";
    E0803 "ptxas crashed" "The assembler ended by a signal. The notes give the reproduce command.";
    E0804 "the back end ended abnormally" "LLVM aborted or the worker process died. The notes name kernel, stage and reproduce command.";
    E0805 "output cannot be written" "The disk is full or the folder may not be written; nothing was left half written.";
    E0806 "input cannot be read" "A file is missing, may not be read, is no regular file, is larger than its kind may be (16 MiB of source, 256 MiB of what is audited, the bytes of the buffer for a tensor), is of another format than its name says, or holds a tensor of another element type or shape than the kernel asks for.";
    E0807 "the disassembler failed" "nvdisasm ended with an error on this machine code. The notes carry its log.";
    E0808 "the back end refused the code" "MLIR or LLVM does not take what it was given. For a `.tile` file this is a fault of the compiler; for a text given with `--from` it is a fault of the text. The message says what was refused.";
    E0810 "the compiler contradicts itself" "An internal form breaks its own rules. This is a fault of the compiler, whatever the source says; report it with the reproduce command.";
    E0811 "products that wait for each other" "ptxas says that it serialises `wgmma`: the sums of products under way do not stay in their registers, because there are too few or because something moves them. The code would be right and slow, so it is not built. Take smaller sums, or keep less besides them.";
    E0812 "PTX of an author that the assembler refuses" "fails:\n    unsafe { ptx \"add.rz.f16 %0, %1, %1;\" out(y) in(x) = x + x; }   // no such rounding\nThe text has the form of instructions that a kernel may hold (E0223), and the assembler knows no such combination of their parts. The message has what it says, and the place of the text.";

    // Findings of the audit.
    E0901 "non-coherent load of data that may change" "fails:\n    ld.global.nc.f32 %f1, [x];      // x is written by an earlier kernel\nA non-coherent load may be moved ahead of a wait. Use a plain load, or declare the parameter `--static` if nobody writes it.";
    E0902 "load moved ahead of its wait" "In the machine code the load stands before the wait that the PTX places it after.";
    E0903 "weight load that sank below the wait" "A load of static data that the kernel places before `grid_wait` stands behind it in the machine code, so the overlap is lost.";
    E0904 "instruction that the audit does not understand" "An instruction that touches memory is unknown to the audit, so the verdict is \"not judged\".";
    E0905 "load ahead of the wait" "A note: the author placed a non-coherent load before the wait. It is right only if nobody writes what it reads while the grid runs. In our own builds an activation load on that side is an error of the compiler.";
    E0906 "wait or launch signal that is missing" "In our own builds: `grid_wait` or `grid_launch` stands in the source and is no longer there in the PTX or in the machine code. This is a fault of the compiler or of the assembler.";
    E0907 "atomic without order and scope" "In our own builds: an atomic on global memory that says neither order nor scope loses both. This is a fault of the compiler.";
    E0908 "tool of the machine code that failed" "ptxas or nvdisasm is missing or failed, so that the machine code cannot be judged. The message carries what it said.";
    E0909 "ordinary access at a multicast address" "In our own builds: what touches a `sym_mc` parameter is no `multimem`, or a `multimem` stands where the kernel has none. This is a fault of the compiler.";
}

impl Code {
    /// The four digits.
    pub fn number(self) -> u32 {
        self.name()[1..].parse().expect("a code is `E` and four digits")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no code of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no diagnostic code")]
pub struct UnknownCode(pub String);

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let wanted = text.trim().to_ascii_uppercase();
        let found = Code::ALL.iter().copied().find(|code| code.name() == wanted);
        found.ok_or_else(|| UnknownCode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_complete() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for &code in Code::ALL {
            assert_eq!(code.name().len(), 5, "{code}");
            assert_eq!(code.name().parse(), Ok(code));
            assert!(!code.title().is_empty() && !code.explanation().is_empty(), "{code}");
        }
        assert_eq!("e0107".parse(), Ok(Code::E0107));
        assert!("E9999".parse::<Code>().is_err());
    }
}
