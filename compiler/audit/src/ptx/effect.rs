//! The instructions of PTX: which there are, and what kind of thing each does.

/// The kind of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Computes from registers alone.
    Compute,
    Load,
    /// `ldu`: a load of data that is uniform over the warp, and never changes.
    LoadUniform,
    Store,
    Atomic,
    /// An atomic without result.
    Reduction,
    Texture,
    SurfaceRead,
    SurfaceWrite,
    /// Names an address without reading data: prefetches and the like.
    Hint,
    /// Copies and reductions that run on their own, with their groups and waits.
    AsyncCopy,
    Multimem,
    /// Loads and stores of matrix fragments through any address.
    Fragment,
    /// Touches shared or tensor memory only.
    OnChip,
    Barrier,
    Fence,
    Mbarrier,
    GridControl,
    Branch,
    BranchTable,
    Call,
    Return,
    Exit,
}

/// The class of an opcode with its first modifiers; `None` where it is not known.
pub(crate) fn classify(opcode: &str, modifiers: &[String]) -> Option<Class> {
    let first = modifiers.first().map(String::as_str).unwrap_or_default();
    Some(match opcode {
        "abs" | "activemask" | "add" | "addc" | "and" | "bfe" | "bfi" | "bfind" | "bmsk"
        | "brev" | "clz" | "cnot" | "copysign" | "cos" | "cvt" | "cvta" | "div" | "dp2a"
        | "dp4a" | "elect" | "ex2" | "fma" | "fns" | "getctarank" | "isspacep" | "lg2" | "lop3"
        | "mad" | "mad24" | "madc" | "mapa" | "match" | "max" | "min" | "mma" | "mov"
        | "movmatrix" | "mul" | "mul24" | "neg" | "not" | "or" | "popc" | "prmt" | "rcp"
        | "redux" | "rem" | "rsqrt" | "sad" | "selp" | "set" | "setp" | "shf" | "shfl" | "shl"
        | "shr" | "sin" | "slct" | "spdecompress" | "sqrt" | "sub" | "subc" | "szext" | "tanh"
        | "testp" | "vabsdiff" | "vabsdiff2" | "vabsdiff4" | "vadd" | "vadd2" | "vadd4"
        | "vavrg2" | "vavrg4" | "vmad" | "vmax" | "vmax2" | "vmax4" | "vmin" | "vmin2"
        | "vmin4" | "vote" | "vset" | "vset2" | "vset4" | "vshl" | "vshr" | "vsub" | "vsub2"
        | "vsub4" | "xor" | "alloca" | "stacksave" | "stackrestore" | "createpolicy"
        | "istypep" | "suq" | "txq" | "nanosleep" | "pmevent" | "setmaxnreg" | "brkpt" => {
            Class::Compute
        }
        "ld" => Class::Load,
        "ldu" => Class::LoadUniform,
        "st" if matches!(first, "async" | "bulk") => Class::OnChip,
        "st" => Class::Store,
        "red" if first == "async" => Class::OnChip,
        "red" => Class::Reduction,
        "atom" => Class::Atomic,
        "tex" | "tld4" => Class::Texture,
        "suld" => Class::SurfaceRead,
        "sust" | "sured" => Class::SurfaceWrite,
        "prefetch" | "prefetchu" | "discard" | "applypriority" => Class::Hint,
        "cp" if matches!(first, "async" | "reduce") => Class::AsyncCopy,
        "multimem" if matches!(first, "ld_reduce" | "st" | "red" | "cp") => Class::Multimem,
        "wmma" if matches!(first, "load" | "store") => Class::Fragment,
        "wmma" if first == "mma" => Class::Compute,
        "ldmatrix" | "stmatrix" | "clusterlaunchcontrol" | "tensormap" => Class::OnChip,
        "wgmma" | "tcgen05" => Class::OnChip,
        "bar" | "barrier" => Class::Barrier,
        "fence" | "membar" => Class::Fence,
        "mbarrier" => Class::Mbarrier,
        "griddepcontrol" if matches!(first, "wait" | "launch_dependents") => Class::GridControl,
        "bra" => Class::Branch,
        "brx" if first == "idx" => Class::BranchTable,
        "call" => Class::Call,
        "ret" => Class::Return,
        "exit" | "trap" => Class::Exit,
        _ => return None,
    })
}

/// Modifiers that a load may carry; a load with another one is not understood.
pub(crate) fn is_load_modifier(name: &str) -> bool {
    super::parse::type_bits(&format!(".{name}")).is_some()
        || matches!(
            name,
            "weak"
                | "relaxed"
                | "acquire"
                | "volatile"
                | "mmio"
                | "cta"
                | "cluster"
                | "gpu"
                | "sys"
                | "const"
                | "global"
                | "local"
                | "param"
                | "param::entry"
                | "param::func"
                | "shared"
                | "shared::cta"
                | "shared::cluster"
                | "ca"
                | "cg"
                | "cs"
                | "lu"
                | "cv"
                | "nc"
                | "proxy::readonly"
                | "v2"
                | "v4"
                | "v8"
                | "unified"
        )
        || is_cache_modifier(name)
}

fn is_cache_modifier(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("L1::").or_else(|| name.strip_prefix("L2::")) else {
        return false;
    };
    matches!(
        rest,
        "evict_normal"
            | "evict_unchanged"
            | "evict_first"
            | "evict_last"
            | "no_allocate"
            | "cache_hint"
            | "32B"
            | "64B"
            | "128B"
            | "256B"
    )
}

/// Modifiers that an atomic may carry.
pub(crate) fn is_atomic_modifier(name: &str) -> bool {
    super::parse::type_bits(&format!(".{name}")).is_some()
        || is_cache_modifier(name)
        || matches!(
            name,
            "relaxed"
                | "acquire"
                | "release"
                | "acq_rel"
                | "cta"
                | "cluster"
                | "gpu"
                | "sys"
                | "global"
                | "shared"
                | "shared::cta"
                | "shared::cluster"
                | "and"
                | "or"
                | "xor"
                | "cas"
                | "exch"
                | "add"
                | "inc"
                | "dec"
                | "min"
                | "max"
                | "noftz"
                | "v2"
                | "v4"
                | "v8"
                | "vec_32_bit"
        )
}
