//! The one table of instruction names: PTX templates for inline assembly, and LLVM intrinsics.
//!
//! Templates number their operands as LLVM does: results first, then arguments. Whatever waits or touches
//! memory clobbers memory. In particular `griddepcontrol` stands here although NVVM has an operation for
//! it: the back end's instruction for that operation is not marked as touching memory, and a pass that
//! sinks loads could carry one across it.

mod pipes;
mod tensor;

use kernel_abi::DType;
use kernel_ir::ops::inline::register_bits;
use kernel_ir::ops::{AtomicOp, ReduceOp};

pub(crate) use pipes::*;
pub(crate) use tensor::*;

/// Clobber that keeps plain accesses on their side.
const MEMORY: &str = "~{memory}";

/// Inline assembly: template and constraints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asm {
    /// PTX with `$0`, `$1`, … for operands.
    pub(crate) template: String,
    /// LLVM's constraint string.
    pub(crate) constraints: String,
    /// False where the value depends on the operands alone.
    pub(crate) side_effects: bool,
}

impl Asm {
    fn effect(template: &str, inputs: &str) -> Asm {
        let constraints =
            if inputs.is_empty() { MEMORY.to_owned() } else { format!("{inputs},{MEMORY}") };
        Asm { template: template.to_owned(), constraints, side_effects: true }
    }
}

/// PTX of an author: `%0` is the result, `%1`, `%2`, … are arguments of these types, the result's first. It computes
/// from registers alone, so that what nobody needs may go; the result is written before all arguments are read.
pub(crate) fn inline(text: &str, types: &[DType]) -> Option<Asm> {
    let register = |&dtype: &DType| match (register_bits(dtype)?, dtype) {
        (16, _) => Some("h"),
        (_, DType::F32) => Some("f"),
        (32, _) => Some("r"),
        (_, _) => Some("l"),
    };
    let mut constraints = types.iter().map(register).collect::<Option<Vec<_>>>()?;
    let result = format!("=&{}", constraints.first()?);
    constraints[0] = &result;
    let template = format!("{{\n\t{}\n\t}}", text.replace('%', "$"));
    Some(Asm { template, constraints: constraints.join(","), side_effects: false })
}

/// `grid_wait`.
pub(crate) fn grid_wait() -> Asm {
    Asm::effect("griddepcontrol.wait;", "")
}

/// `grid_launch`.
pub(crate) fn grid_launch() -> Asm {
    Asm::effect("griddepcontrol.launch_dependents;", "")
}

/// Writes an event down where the part has room for it, and counts it: address of the part, events before, and 1 for the
/// thread that does it, 0 for others. No branch, which would part the threads of a warpgroup with products under way.
pub(crate) fn trace(event: u32, records: u32) -> Asm {
    Asm::effect(
        &format!(
            "{{\n\t.reg .pred first, room;\n\t.reg .b32 name, sm;\n\t.reg .b64 what, time, tick, count, place;\n\t\
             mov.u64 time, %globaltimer;\n\tmov.u64 tick, %clock64;\n\tmov.u32 sm, %smid;\n\t\
             mov.u32 name, {event};\n\tmov.b64 what, {{name, sm}};\n\t\
             cvt.u64.u32 count, $1;\n\tadd.u64 count, count, 1;\n\t\
             setp.ne.b32 first, $2, 0;\n\t@first st.global.u64 [$0], count;\n\t\
             setp.lt.and.u32 room, $1, {records}, first;\n\t\
             mad.wide.u32 place, $1, 24, $0;\n\t@room st.global.u64 [place+8], what;\n\t\
             @room st.global.u64 [place+16], time;\n\t@room st.global.u64 [place+24], tick;\n\t}}"
        ),
        "l,r,r",
    )
}

/// All threads of all CTAs of the cluster meet: what one did before, the others see after. One piece, so that nothing
/// comes between arrival and wait.
pub(crate) fn cluster_barrier() -> Asm {
    Asm::effect(
        "barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;",
        "",
    )
}

/// So many threads meet at a named barrier: what one of them did before, the others see after.
pub(crate) fn named_barrier(number: u32, threads: u32) -> Asm {
    Asm::effect(&format!("bar.sync {number}, {threads};"), "")
}

/// Each thread of the warpgroup gives registers back: it has so many after.
pub(crate) fn fewer_registers(count: u32) -> Asm {
    Asm::effect(&format!("setmaxnreg.dec.sync.aligned.u32 {count};"), "")
}

/// Each thread of the warpgroup waits for registers: it has so many after.
pub(crate) fn more_registers(count: u32) -> Asm {
    Asm::effect(&format!("setmaxnreg.inc.sync.aligned.u32 {count};"), "")
}

/// Orders the thread's accesses on both sides, for all threads of the device.
pub(crate) fn fence() -> Asm {
    Asm::effect("fence.acq_rel.gpu;", "")
}

/// The address of memory on a rank, from the table of a parameter: nobody writes the table while the kernel runs.
pub(crate) fn address_of_rank() -> Asm {
    Asm::effect("ld.global.u64 $0, [$1];", "=l,l")
}

/// What is done at a multicast address comes into order with what is done at the other ones of its memory.
const ALIAS: &str = "fence.proxy.alias;";

/// Raises a word, after all that the thread did before, or had met in a barrier, with `alias` also at multicast
/// addresses.
pub(crate) fn signal(scope: SyncScope, alias: bool) -> Asm {
    let fence = if alias { format!("{ALIAS}\n\t") } else { String::new() };
    let scope = scope.name();
    Asm::effect(&format!("{fence}red.release.{scope}.global.add.u32 [$0], $1;"), "l,r")
}

/// Waits until the word at an address has reached a value, as a signed difference. One piece, so that nothing comes
/// between the rounds; label and registers belong to its braces.
pub(crate) fn wait_for(scope: SyncScope, alias: bool) -> Asm {
    let (scope, fence) = (scope.name(), if alias { ALIAS } else { "" });
    let template = format!(
        "{{\n\t.reg .pred again;\n\t.reg .b32 word;\nlook:\n\tld.acquire.{scope}.global.u32 word, [$0];\n\t\
         sub.s32 word, word, $1;\n\tsetp.lt.s32 again, word, 0;\n\t@again bra look;\n\t{fence}}}"
    );
    Asm::effect(&template, "l,r")
}

/// Who sees a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncScope {
    /// All threads of the device.
    Device,
    /// All threads of all devices.
    System,
}

impl SyncScope {
    fn name(self) -> &'static str {
        match self {
            SyncScope::Device => "gpu",
            SyncScope::System => "sys",
        }
    }
}

/// The type that an atomic names, and the register that holds it.
fn atomic_type(op: &str, dtype: DType) -> (&'static str, &'static str) {
    match (op, dtype) {
        ("and" | "or", DType::U64) => ("b64", "l"),
        (_, DType::U64) => ("u64", "l"),
        ("and" | "or", _) => ("b32", "r"),
        (_, DType::I32) => ("s32", "r"),
        (_, _) => ("u32", "r"),
    }
}

/// The old value of an element that is changed in one step, relaxed, for all threads of the device. Arguments: address;
/// value, or for `inc` the greatest one.
pub(crate) fn atomic(op: &str, dtype: DType) -> Asm {
    let (r#type, register) = atomic_type(op, dtype);
    Asm::effect(
        &format!("atom.relaxed.gpu.global.{op}.{type} $0, [$1], $2;"),
        &format!("={register},l,{register}"),
    )
}

/// Changes an element in one step, relaxed, for all threads of the device. Arguments: address; value; predicate.
pub(crate) fn update(op: AtomicOp, dtype: DType, predicated: bool) -> Asm {
    let (r#type, register) = atomic_type(op.name(), dtype);
    let (guard, last) = if predicated { ("@$2 ", ",b") } else { ("", "") };
    Asm::effect(
        &format!("{guard}red.relaxed.gpu.global.{}.{type} [$0], $1;", op.name()),
        &format!("l,{register}{last}"),
    )
}

/// Ends the thread.
pub(crate) fn exit() -> Asm {
    Asm::effect("exit;", "")
}

/// Stops the launch.
pub(crate) fn trap() -> Asm {
    Asm::effect("trap;", "")
}

/// A shift of 64 bits whose amount is a register of 32, with what PTX does for amounts past the width.
pub(crate) fn shift_64(direction: Shift) -> Asm {
    let name = match direction {
        Shift::Left => "shl.b64",
        Shift::Right => "shr.u64",
        Shift::RightSigned => "shr.s64",
    };
    Asm {
        template: format!("{name} $0, $1, $2;"),
        constraints: "=l,l,r".to_owned(),
        side_effects: false,
    }
}

/// Two elements of a format of 8 bits, in a word of 16, as two f16 in a word of 32; exact.
pub(crate) fn widen_bytes(format: ByteFloat) -> Asm {
    Asm {
        template: format!("cvt.rn.f16x2.{} $0, $1;", format.pair()),
        constraints: "=r,h".to_owned(),
        side_effects: false,
    }
}

/// Two f32, the upper one first, as two elements of a format of 8 bits: to nearest even, saturating.
pub(crate) fn narrow_bytes(format: ByteFloat) -> Asm {
    Asm {
        template: format!("cvt.rn.satfinite.{}.f32 $0, $1, $2;", format.pair()),
        constraints: "=h,f,f".to_owned(),
        side_effects: false,
    }
}

/// A floating-point format of 8 bits with a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteFloat {
    /// 4 bits of exponent.
    E4m3,
    /// 5 bits of exponent.
    E5m2,
}

impl ByteFloat {
    const fn pair(self) -> &'static str {
        match self {
            ByteFloat::E4m3 => "e4m3x2",
            ByteFloat::E5m2 => "e5m2x2",
        }
    }
}

/// Direction of a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shift {
    /// Towards the high bits.
    Left,
    /// Towards the low bits, zeros come in.
    Right,
    /// Towards the low bits, the sign comes in.
    RightSigned,
}

/// The policy operand of accesses with `.L2::cache_hint`: vectors of 16 bytes and less take the eviction
/// priority in no other form.
pub(crate) fn create_policy(priority: Priority) -> Asm {
    let name = match priority {
        Priority::First => "evict_first",
        Priority::Last => "evict_last",
    };
    Asm {
        template: format!("createpolicy.fractional.L2::{name}.b64 $0;"),
        constraints: "=l".to_owned(),
        side_effects: false,
    }
}

/// An asynchronous copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyForm {
    /// Bytes that arrive: 4, 8 or 16.
    pub(crate) bytes: u32,
    /// An operand says how many of them are read; the rest arrives as zeros.
    pub(crate) zeros: bool,
    /// A policy operand follows.
    pub(crate) policy: bool,
    /// A predicate operand comes last.
    pub(crate) predicated: bool,
}

/// Arguments: destination; source; bytes that are read; policy; predicate.
pub(crate) fn copy_async(form: CopyForm) -> Asm {
    let mut constraints = vec!["l", "l"];
    // Copies of 16 bytes leave the first-level cache alone.
    let level = if form.bytes == 16 { "cg" } else { "ca" };
    let hint = if form.policy { ".L2::cache_hint" } else { "" };
    let mut tail = String::new();
    if form.zeros {
        tail += &format!(", ${}", constraints.len());
        constraints.push("r");
    }
    if form.policy {
        tail += &format!(", ${}", constraints.len());
        constraints.push("l");
    }
    let mut guard = String::new();
    if form.predicated {
        guard = format!("@${} ", constraints.len());
        constraints.push("b");
    }
    let bytes = form.bytes;
    Asm::effect(
        &format!("{guard}cp.async.{level}.shared.global{hint} [$0], [$1], {bytes}{tail};"),
        &constraints.join(","),
    )
}

/// A matrix product m16n8k16. Results: 4 sums. Arguments: 4 registers of the left operand, 2 of the right one,
/// 4 sums.
pub(crate) fn mma(is_bf16: bool) -> Asm {
    let dtype = if is_bf16 { "bf16" } else { "f16" };
    Asm {
        template: format!(
            "mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32 \
             {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
        ),
        constraints: "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f".to_owned(),
        side_effects: true,
    }
}

/// Matrices of 8 by 8 elements of 16 bits. Results: a register each. Argument: the place of the lane's row.
pub(crate) fn load_matrices(count: u32) -> Asm {
    let registers: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
    let results: Vec<&str> = (0..count).map(|_| "=r").collect();
    let template = format!(
        "ldmatrix.sync.aligned.m8n8.x{count}.shared.b16 {{{}}}, [${count}];",
        registers.join(", ")
    );
    let constraints = format!("{},l,{MEMORY}", results.join(","));
    Asm { template, constraints, side_effects: true }
}

/// Writes matrices of 8 by 8 elements of 16 bits. Arguments: the address of a row, and one register a matrix.
pub(crate) fn store_matrices(count: u32) -> Asm {
    let registers: Vec<String> = (1..=count).map(|i| format!("${i}")).collect();
    let constraints: Vec<&str> = (0..count).map(|_| "r").collect();
    let registers = registers.join(", ");
    let template = format!("stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [$0], {{{registers}}};");
    Asm::effect(&template, &format!("l,{}", constraints.join(",")))
}

/// Orders what the thread wrote to shared memory ahead of what the tensor core reads after it.
pub(crate) fn proxy_fence() -> Asm {
    Asm::effect("fence.proxy.async.shared::cta;", "")
}

/// Closes the group of products.
pub(crate) fn wgmma_commit() -> Asm {
    Asm::effect("wgmma.commit_group.sync.aligned;", "")
}

/// Hands registers over to products. Results and arguments: `count` sums.
pub(crate) fn wgmma_fence(count: u32) -> Asm {
    through("wgmma.fence.sync.aligned;".to_owned(), count, "")
}

/// Waits until at most `pending` groups of products are in flight. Results and arguments: `count` sums.
pub(crate) fn wgmma_wait(pending: u32, count: u32) -> Asm {
    through(format!("wgmma.wait_group.sync.aligned {pending};"), count, "")
}

/// Where the operands of a product of a warpgroup are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WgmmaForm {
    /// The left one is in four registers, else in shared memory.
    pub(crate) registers: bool,
    /// The right one has n contiguous, else k.
    pub(crate) across: bool,
}

/// A product of a warpgroup, m64 by `n` by 32 bytes of k. Results: `n / 2` sums. Arguments: their values before, the left
/// operand or its descriptor, the descriptor of the right one, and whether the sums are added to.
pub(crate) fn wgmma(n: u32, [left, right]: [DType; 2], form: WgmmaForm) -> Asm {
    let across = u32::from(form.across);
    // Operands of 16 bits in shared memory may be transposed.
    let (depth, order) = match (left.bits(), form.registers) {
        (16, false) => (16, format!(", 0, {across}")),
        (16, true) => (16, format!(", {across}")),
        _ => (32, String::new()),
    };
    let count = n / 2;
    let sums: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
    let first = 2 * count;
    let (a, b, constraints) = if form.registers {
        let registers: Vec<String> = (first..first + 4).map(|i| format!("${i}")).collect();
        (format!("{{{}}}", registers.join(", ")), first + 4, "r,r,r,r,l,b")
    } else {
        (format!("${first}"), first + 1, "l,l,b")
    };
    let add = b + 1;
    let template = format!(
        "wgmma.mma_async.sync.aligned.m64n{n}k{depth}.f32.{left}.{right} {{{}}}, {a}, ${b}, ${add}, 1, 1{order};",
        sums.join(", ")
    );
    through(template, count, constraints)
}

/// Hands four registers over to products that read them. Results and arguments: the registers.
pub(crate) fn wgmma_left() -> Asm {
    let constraints = format!("=r,=r,=r,=r,0,1,2,3,{MEMORY}");
    let template = "wgmma.fence.sync.aligned;".to_owned();
    Asm { template, constraints, side_effects: true }
}

/// An instruction that may change `count` f32 in their registers; other arguments follow them.
fn through(template: String, count: u32, others: &str) -> Asm {
    let mut constraints: Vec<String> = (0..count).map(|_| "=f".to_owned()).collect();
    constraints.extend((0..count).map(|i| i.to_string()));
    constraints.extend((!others.is_empty()).then(|| others.to_owned()));
    constraints.push(MEMORY.to_owned());
    Asm { template, constraints: constraints.join(","), side_effects: true }
}

/// Closes the group of the thread's copies.
pub(crate) fn commit_group() -> Asm {
    Asm::effect("cp.async.commit_group;", "")
}

/// Waits until at most `pending` groups of the thread's copies are in flight.
pub(crate) fn wait_group(pending: u32) -> Asm {
    Asm::effect(&format!("cp.async.wait_group {pending};"), "")
}

/// Brings a line into L2; PTX has no form that evicts it first.
pub(crate) fn prefetch(last: Priority, predicated: bool) -> Asm {
    let guard = if predicated { "@$1 " } else { "" };
    let suffix = match last {
        Priority::First => "",
        Priority::Last => "::evict_last",
    };
    Asm::effect(
        &format!("{guard}prefetch.global.L2{suffix} [$0];"),
        if predicated { "l,b" } else { "l" },
    )
}

/// Brings so many bytes from an address on into L2. Arguments: address; bytes; policy; predicate.
pub(crate) fn prefetch_bytes(policy: bool, predicated: bool) -> Asm {
    let mut constraints = vec!["l", "r"];
    let (hint, tail) = if policy { (".L2::cache_hint", ", $2") } else { ("", "") };
    constraints.extend(policy.then_some("l"));
    let mut guard = String::new();
    if predicated {
        guard = format!("@${} ", constraints.len());
        constraints.push("b");
    }
    let template = format!("{guard}cp.async.bulk.prefetch.L2.global{hint} [$0], $1{tail};");
    Asm::effect(&template, &constraints.join(","))
}

/// Priority of eviction from L2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Goes first.
    First,
    /// Stays longest.
    Last,
}

/// A state space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// Memory of the device.
    Global,
    /// Memory of the CTA.
    Shared,
    /// Memory of a CTA of the cluster.
    Cluster,
}

/// Registers that one access moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    /// How many: 1, 2 or 4.
    pub(crate) count: u32,
    /// Bits of each: 8, 16, 32 or 64.
    pub(crate) bits: u32,
}

impl Words {
    /// The registers for `len` elements of `bits` bits, at most 16 bytes.
    pub(crate) fn of(len: u32, bits: u32) -> Option<Words> {
        let total = len.checked_mul(bits)?;
        if bits == 64 {
            return matches!(len, 1 | 2).then_some(Words { count: len, bits: 64 });
        }
        match total {
            8 | 16 | 32 => Some(Words { count: 1, bits: total }),
            64 => Some(Words { count: 2, bits: 32 }),
            128 => Some(Words { count: 4, bits: 32 }),
            _ => None,
        }
    }

    /// Bits of the register that holds one word; PTX has no 8-bit registers.
    pub(crate) const fn register_bits(self) -> u32 {
        if self.bits == 8 { 16 } else { self.bits }
    }

    fn constraint(self) -> &'static str {
        match self.register_bits() {
            16 => "h",
            32 => "r",
            _ => "l",
        }
    }

    fn suffix(self) -> String {
        let vector = match self.count {
            1 => String::new(),
            n => format!(".v{n}"),
        };
        format!("{vector}.b{}", self.bits)
    }

    fn registers(self, first: u32) -> String {
        let names: Vec<String> = (0..self.count).map(|i| format!("${}", first + i)).collect();
        if self.count == 1 { names.concat() } else { format!("{{{}}}", names.join(", ")) }
    }
}

/// What an instruction does at a multicast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Multicast {
    /// What a load folds with; a store without.
    pub(crate) fold: Option<ReduceOp>,
    /// Of which elements.
    pub(crate) dtype: DType,
}

impl Multicast {
    /// A weak access: waits order it. Sums of 16-bit floats are formed in f32.
    fn name(self, words: Words) -> String {
        let is_half = matches!(self.dtype, DType::F16 | DType::Bf16);
        let element = match self.dtype {
            // The same bits, and the one that there is.
            DType::I64 if self.fold == Some(ReduceOp::Add) => "u64".to_owned(),
            DType::I32 | DType::I64 => format!("s{}", self.dtype.bits()),
            dtype if is_half => format!("{}x2", dtype.name()),
            dtype => dtype.name().to_owned(),
        };
        let vector = if words.count > 1 { format!(".v{}", words.count) } else { String::new() };
        match self.fold {
            None => format!("multimem.st.weak.global{vector}.{element}"),
            Some(fold) => {
                let acc = if is_half && fold == ReduceOp::Add { ".acc::f32" } else { "" };
                let fold = fold.name();
                format!("multimem.ld_reduce.weak.global.{fold}{acc}{vector}.{element}")
            }
        }
    }
}

/// An access that plain LLVM loads and stores cannot say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryForm {
    /// Where.
    pub(crate) space: Space,
    /// What is moved.
    pub(crate) words: Words,
    /// The address is that of all ranks.
    pub(crate) multicast: Option<Multicast>,
    /// `.L1::no_allocate`.
    pub(crate) no_allocate: bool,
    /// A policy operand follows the address.
    pub(crate) policy: bool,
    /// A predicate operand comes last.
    pub(crate) predicated: bool,
}

impl MemoryForm {
    fn name(self, verb: &str) -> String {
        if let Some(multicast) = self.multicast {
            return multicast.name(self.words);
        }
        let space = match self.space {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Cluster => "shared::cluster",
        };
        let l1 = if self.no_allocate { ".L1::no_allocate" } else { "" };
        let l2 = if self.policy { ".L2::cache_hint" } else { "" };
        format!("{verb}.{space}{l1}{l2}{}", self.words.suffix())
    }

    /// Results: the words. Arguments: their values where the predicate is false, if predicated; address;
    /// policy; predicate.
    pub(crate) fn load(self) -> Asm {
        let count = self.words.count;
        let constraint = self.words.constraint();
        let mut constraints: Vec<String> = (0..count).map(|_| format!("={constraint}")).collect();
        let mut next = count;
        if self.predicated {
            constraints.extend((0..count).map(|i| i.to_string()));
            next += count;
        }
        let address = next;
        constraints.push("l".to_owned());
        let mut template = self.guarded(&mut constraints, next + 1);
        template += &format!("{} {}, [${address}]", self.name("ld"), self.words.registers(0));
        self.close(template, constraints, next + 1)
    }

    /// Arguments: address; the words; policy; predicate.
    pub(crate) fn store(self) -> Asm {
        let mut constraints = vec!["l".to_owned()];
        constraints.extend((0..self.words.count).map(|_| self.words.constraint().to_owned()));
        let next = 1 + self.words.count;
        let mut template = self.guarded(&mut constraints, next);
        template += &format!("{} [$0], {}", self.name("st"), self.words.registers(1));
        self.close(template, constraints, next)
    }

    /// Adds the constraints of policy and predicate, whose operands start at `next`, and returns the guard.
    fn guarded(self, constraints: &mut Vec<String>, next: u32) -> String {
        if self.policy {
            constraints.push("l".to_owned());
        }
        if !self.predicated {
            return String::new();
        }
        constraints.push("b".to_owned());
        format!("@${} ", next + u32::from(self.policy))
    }

    fn close(self, mut template: String, mut constraints: Vec<String>, policy: u32) -> Asm {
        if self.policy {
            template += &format!(", ${policy}");
        }
        template.push(';');
        constraints.push(MEMORY.to_owned());
        Asm { template, constraints: constraints.join(","), side_effects: true }
    }
}

/// An LLVM intrinsic without side effects that MLIR's dialects have no operation for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intrinsic {
    /// `ex2.approx.f32`, subnormals kept.
    Ex2,
    /// `lg2.approx.f32`, subnormals kept.
    Lg2,
    /// `rsqrt.approx.f32`, subnormals kept.
    Rsqrt,
    /// `min.f32`: a NaN loses, -0 is below +0.
    Min,
    /// `max.f32`: a NaN loses, -0 is below +0.
    Max,
    /// `prmt.b32`: bytes of two words by the nibbles of a third.
    Permute,
    /// `cvt.rzi.s32.f32`: saturates, NaN gives 0.
    F32ToI32,
    /// `cvt.rzi.u32.f32`: saturates, NaN gives 0.
    F32ToU32,
    /// `cvt.rzi.s64.f32`: saturates, NaN gives the least value.
    F32ToI64,
    /// `cvt.rzi.u64.f32`: saturates, NaN gives 2^63.
    F32ToU64,
}

impl Intrinsic {
    /// LLVM's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Intrinsic::Ex2 => "llvm.nvvm.ex2.approx",
            Intrinsic::Lg2 => "llvm.nvvm.lg2.approx.f",
            Intrinsic::Rsqrt => "llvm.nvvm.rsqrt.approx.f",
            Intrinsic::Min => "llvm.minimumnum",
            Intrinsic::Max => "llvm.maximumnum",
            Intrinsic::Permute => "llvm.nvvm.prmt",
            Intrinsic::F32ToI32 => "llvm.nvvm.f2i.rz",
            Intrinsic::F32ToU32 => "llvm.nvvm.f2ui.rz",
            Intrinsic::F32ToI64 => "llvm.nvvm.f2ll.rz",
            Intrinsic::F32ToU64 => "llvm.nvvm.f2ull.rz",
        }
    }
}

/// The device functions of CUDA that the driver resolves when it loads a module.
pub(crate) const SYSTEM_CALLS: [&str; 2] = [VPRINTF, ASSERT_FAIL];

/// `int vprintf(const char *format, void *arguments)`.
pub(crate) const VPRINTF: &str = "vprintf";

/// `void __assertfail(message, file, unsigned line, function, size_t character_size)`: prints, and stops
/// the launch with the error that a failed device assertion has.
pub(crate) const ASSERT_FAIL: &str = "__assertfail";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_stores_number_their_operands_as_llvm_does() {
        let form = MemoryForm {
            space: Space::Global,
            words: Words::of(8, 16).unwrap(),
            multicast: None,
            no_allocate: true,
            policy: true,
            predicated: true,
        };
        let load = form.load();
        assert_eq!(
            load.template,
            "@$10 ld.global.L1::no_allocate.L2::cache_hint.v4.b32 {$0, $1, $2, $3}, [$8], $9;"
        );
        assert_eq!(load.constraints, "=r,=r,=r,=r,0,1,2,3,l,l,b,~{memory}");
        let store = form.store();
        assert_eq!(
            store.template,
            "@$6 st.global.L1::no_allocate.L2::cache_hint.v4.b32 [$0], {$1, $2, $3, $4}, $5;"
        );
        assert_eq!(store.constraints, "l,r,r,r,r,l,b,~{memory}");
    }

    #[test]
    fn multicast_addresses_have_forms_of_their_own() {
        let form = |fold, dtype: DType, len| MemoryForm {
            space: Space::Global,
            words: Words::of(len, dtype.bits()).unwrap(),
            multicast: Some(Multicast { fold, dtype }),
            no_allocate: false,
            policy: false,
            predicated: false,
        };
        let load = |fold, dtype, len| form(Some(fold), dtype, len).load().template;
        assert_eq!(
            load(ReduceOp::Add, DType::Bf16, 4),
            "multimem.ld_reduce.weak.global.add.acc::f32.v2.bf16x2 {$0, $1}, [$2];"
        );
        assert_eq!(
            load(ReduceOp::Max, DType::F16, 2),
            "multimem.ld_reduce.weak.global.max.f16x2 $0, [$1];"
        );
        let minimum = "multimem.ld_reduce.weak.global.min.s64 $0, [$1];";
        assert_eq!(load(ReduceOp::Min, DType::I64, 1), minimum);
        let sum = "multimem.ld_reduce.weak.global.add.u64 $0, [$1];";
        assert_eq!(load(ReduceOp::Add, DType::I64, 1), sum);
        assert_eq!(
            form(None, DType::F32, 4).store().template,
            "multimem.st.weak.global.v4.f32 [$0], {$1, $2, $3, $4};"
        );
    }

    #[test]
    fn copies_and_products_number_their_operands_as_llvm_does() {
        let form = CopyForm { bytes: 16, zeros: true, policy: true, predicated: true };
        let copy = copy_async(form);
        assert_eq!(
            copy.template,
            "@$4 cp.async.cg.shared.global.L2::cache_hint [$0], [$1], 16, $2, $3;"
        );
        assert_eq!(copy.constraints, "l,l,r,l,b,~{memory}");
        let plain = CopyForm { bytes: 4, zeros: false, policy: false, predicated: false };
        assert_eq!(copy_async(plain).template, "cp.async.ca.shared.global [$0], [$1], 4;");
        assert_eq!(
            mma(true).template,
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 \
             {$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
        );
    }

    #[test]
    fn matrices_number_their_operands_as_llvm_does() {
        let load = load_matrices(2);
        assert_eq!(load.template, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {$0, $1}, [$2];");
        assert_eq!(load.constraints, "=r,=r,l,~{memory}");
    }

    #[test]
    fn boxes_number_their_operands_as_llvm_does() {
        let copy = copy_box(2, true, None, false);
        assert_eq!(
            copy.template,
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint \
             [$0], [$1, {$2, $3}], [$4], $5;"
        );
        assert_eq!(copy.constraints, "l,l,r,r,l,l,~{memory}");
        assert_eq!(
            copy_box(1, true, None, true).template,
            "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2.L2::cache_hint \
             [$0], [$1, {$2}], [$3], $4;"
        );
        let prefetch = prefetch_box(1, false);
        assert_eq!(
            prefetch.template,
            "cp.async.bulk.prefetch.tensor.1d.L2.global.tile [$0, {$1}];"
        );
        assert_eq!(prefetch.constraints, "l,r,~{memory}");
    }

    #[test]
    fn products_of_a_warpgroup_keep_their_sums_in_place() {
        let form = WgmmaForm { registers: false, across: false };
        let product = wgmma(8, [DType::F16; 2], form);
        assert_eq!(
            product.template,
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {$0, $1, $2, $3}, $8, $9, $10, 1, 1, 0, 0;"
        );
        assert_eq!(product.constraints, "=f,=f,=f,=f,0,1,2,3,l,l,b,~{memory}");
        let wait = wgmma_wait(1, 2);
        assert_eq!(wait.template, "wgmma.wait_group.sync.aligned 1;");
        assert_eq!(wait.constraints, "=f,=f,0,1,~{memory}");
    }

    #[test]
    fn words_cover_every_vector_of_at_most_sixteen_bytes() {
        let of = |len, bits| Words::of(len, bits).map(|w| (w.count, w.bits));
        assert_eq!(of(1, 8), Some((1, 8)));
        assert_eq!(of(2, 8), Some((1, 16)));
        assert_eq!(of(16, 8), Some((4, 32)));
        assert_eq!(of(4, 16), Some((2, 32)));
        assert_eq!(of(1, 64), Some((1, 64)));
        assert_eq!(of(2, 64), Some((2, 64)));
        assert_eq!(of(16, 16), None);
        assert_eq!(of(3, 32), None);
        assert_eq!(of(u32::MAX, 64), None);
    }
}
