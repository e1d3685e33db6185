//! One test for each trap of lowering that the operations of this version can meet.

use kernel_abi::{Access, DType};
use kernel_codegen::{Input, LeftoverKind, Stage, Tools, run, scan};
use kernel_ir::device::{Arg, DeviceKernel, DeviceOp, DevicePipe};
use kernel_ir::index::Id;
use kernel_ir::kernel::{Evict, RoleId};
use kernel_ir::ops::BinaryOp;
use kernel_ir::target::Target;

use crate::kernels::{Instruction, KernelBuilder, build, lines, position, sass};

/// Weights are loaded before the wait, activations after it, in a loop; the product is stored.
fn consumer(target: Target) -> DeviceKernel {
    let mut k = KernelBuilder::new("consumer", target);
    let w = k.param("w", Access::Static, DType::F32);
    let x = k.param("x", Access::Input, DType::F32);
    let y = k.param("y", Access::Output, DType::F32);
    let at = k.thread(4);
    let weights = k.load(w, at, 4);
    let slot = k.slot(DType::F32, 4);
    k.push(DeviceOp::GridWait);
    k.push(DeviceOp::SetSlot { slot, x: Arg::whole(weights) });
    let (start, end) = (k.int(0), k.int(64));
    let var = k.frag(DType::I32, 1);
    let body = k.body(|k| {
        let sum = k.frag(DType::F32, 4);
        k.push(DeviceOp::ReadSlot { dst: sum, slot });
        let four = k.int(4);
        let offset = k.binary(BinaryOp::Mul, var, four);
        let activations = k.load(x, offset, 4);
        let product = k.binary(BinaryOp::Mul, activations, weights);
        let next = k.binary(BinaryOp::Add, sum, product);
        k.push(DeviceOp::SetSlot { slot, x: Arg::whole(next) });
    });
    k.push(DeviceOp::For { var, start, end, step: 1, body });
    let last = k.frag(DType::F32, 4);
    k.push(DeviceOp::ReadSlot { dst: last, slot });
    k.store(y, at, last);
    k.push(DeviceOp::GridLaunch);
    k.finish()
}

/// T1, T2: no pointer makes a promise, so no load is non-coherent, in LLVM IR, PTX and machine code.
#[test]
fn t1_no_load_becomes_non_coherent() {
    for target in Target::ALL {
        let compiled = build(&consumer(target));
        for promise in ["noalias", "readonly", "readnone", "invariant"] {
            assert!(!compiled.llvm.contains(promise), "{promise} in {}", compiled.llvm);
        }
        assert_eq!(scan(&compiled.ptx), []);
        let constant = sass(&compiled).iter().any(|i| i.text.contains("CONSTANT"));
        assert!(!constant, "{}", compiled.ptx);
    }
}

/// T1 the other way: a load of LLVM's own through a `noalias` pointer that is never written becomes
/// non-coherent, and the scan says so. If this fails, LLVM no longer does it.
#[test]
fn t1_the_scan_sees_what_noalias_does() {
    let text = "\
define ptx_kernel void @k(ptr addrspace(1) noalias %x, ptr addrspace(1) %y) {
  call void asm sideeffect \"griddepcontrol.wait;\", \"~{memory}\"()
  %v = load float, ptr addrspace(1) %x
  store float %v, ptr addrspace(1) %y
  ret void
}
";
    let input = Input::Llvm(text);
    let made = run(input, "k", Target::Sm90a, Stage::Ptx, &Tools::default(), &mut |_| {})
        .expect("it compiles");
    let found = scan(&made.ptx.expect("there is PTX"));
    assert!(found.iter().any(|l| l.kind == LeftoverKind::NonCoherent), "{found:?}");
}

/// T2: a wait that is said to touch less than all memory loses the load behind it to the one ahead of it. If this
/// fails, LLVM no longer does it.
#[test]
fn t2_a_wait_that_touches_less_loses_a_load() {
    let loads = |effects: &str| {
        let text = format!(
            "define ptx_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y) {{
  %a = load float, ptr addrspace(1) %x
  call void asm sideeffect \"griddepcontrol.wait;\", \"~{{memory}}\"() #0
  %b = load float, ptr addrspace(1) %x
  %d = fsub float %a, %b
  store float %d, ptr addrspace(1) %y
  ret void
}}
attributes #0 = {{ {effects} }}
"
        );
        let input = Input::Llvm(&text);
        let made = run(input, "k", Target::Sm90a, Stage::Ptx, &Tools::default(), &mut |_| {})
            .expect("it compiles");
        made.ptx.expect("there is PTX").matches("ld.global").count()
    };
    assert_eq!(loads("nounwind"), 2);
    for effects in ["memory(argmem: readwrite)", "memory(none)"] {
        assert_eq!(loads(effects), 1, "{effects}");
    }
}

/// T2 for ours: whatever waits, meets or fences may touch all memory, as far as LLVM knows.
#[test]
fn t2_what_orders_memory_touches_all_of_it() {
    for target in Target::ALL {
        let compiled = build(&consumer(target));
        let waits = |line: &&str| line.contains("asm") && line.contains("griddepcontrol");
        let lines: Vec<&str> = compiled.llvm.lines().filter(waits).collect();
        assert_eq!(lines.len(), 2, "{}", compiled.llvm);
        for line in lines {
            assert!(line.contains("sideeffect") && line.contains("~{memory}"), "{line}");
            assert!(!line.contains('#'), "attributes of the call: {line}");
        }
    }
}

fn order(code: &[Instruction]) -> Vec<&str> {
    code.iter()
        .filter_map(|i| {
            ["LDG", "ACQBULK", "STG", "PREEXIT"].into_iter().find(|w| i.text.contains(w))
        })
        .collect()
}

/// T3: loads of weights stay above the wait and loads of activations below it, in machine code.
#[test]
fn t3_loads_stay_on_their_side_of_the_wait() {
    for target in Target::ALL {
        let compiled = build(&consumer(target));
        let code = sass(&compiled);
        let wait = position(&code, "ACQBULK");
        let wait_line = code[wait].line.expect("the wait has a line");
        for (at, load) in code.iter().enumerate().filter(|(_, i)| i.text.contains("LDG")) {
            let line = load.line.expect("a load has a line");
            assert_eq!(at < wait, line < wait_line, "{target}: line {line} in {:?}", order(&code));
        }
        let first = order(&code)[0];
        assert_eq!(first, "LDG", "{target}: the weights sank");
    }
}

/// T4: the store comes before `launch_dependents`, as the author wrote it.
#[test]
fn t4_stores_stay_before_grid_launch() {
    for target in Target::ALL {
        let compiled = build(&consumer(target));
        let code = sass(&compiled);
        assert!(position(&code, "STG") < position(&code, "PREEXIT"), "{:?}", order(&code));
    }
}

/// A plain load of the same place on both sides of each thing that waits or meets is two loads: the
/// second neither takes the value of the first nor moves above.
#[test]
fn nothing_plain_crosses_a_wait() {
    for (name, waits) in [
        ("grid_wait", DeviceOp::GridWait),
        ("grid_launch", DeviceOp::GridLaunch),
        ("barrier", DeviceOp::Barrier),
        ("barrier of a cluster", DeviceOp::ClusterBarrier),
        ("named barrier", DeviceOp::RoleBarrier { role: RoleId::new(0) }),
    ] {
        let mut k = KernelBuilder::new("crossing", Target::Sm90a);
        k.role("all", 0, 4);
        let x = k.param("x", Access::Inout, DType::F32);
        let y = k.param("y", Access::Output, DType::F32);
        let at = k.thread(1);
        let before = k.load(x, at, 1);
        k.push(waits);
        let after = k.load(x, at, 1);
        let difference = k.binary(BinaryOp::Sub, before, after);
        k.store(y, at, difference);
        let compiled = build(&k.finish());
        let shape: Vec<&str> = lines(&compiled.ptx)
            .iter()
            .filter_map(|line| {
                ["ld.global", "griddepcontrol", "barrier.cluster.wait", "bar.sync", "st.global"]
                    .into_iter()
                    .find(|verb| line.starts_with(verb))
            })
            .collect();
        assert_eq!(shape.len(), 4, "{name}: {}", compiled.ptx);
        assert_eq!([shape[0], shape[2], shape[3]], ["ld.global", "ld.global", "st.global"]);
        let code = sass(&compiled);
        let loads = code.iter().filter(|i| i.text.contains("LDG")).count();
        assert_eq!(loads, 2, "{name}: {code:#?}");
    }
}

/// A store to shared memory, a barrier, a load of what another thread stored: in this order.
#[test]
fn shared_memory_keeps_its_side_of_a_barrier() {
    use kernel_ir::device::{Place, Special};
    use kernel_ir::kernel::CachePolicy;
    let mut k = KernelBuilder::new("exchange", Target::Sm90a);
    let y = k.param("y", Access::Output, DType::F32);
    k.shared(512);
    let at = k.thread(1);
    let lane = k.special(Special::Lane);
    let value = k.convert(lane, DType::F32);
    let cache = CachePolicy::default();
    let place = Place::Shared { base: 0, dtype: DType::F32 };
    let mine = vec![crate::kernels::vector(0, 1, Some(lane), 0, None)];
    k.push(DeviceOp::Store {
        src: Arg::whole(value),
        place: place.clone(),
        vectors: mine,
        update: None,
        cache,
    });
    k.push(DeviceOp::Barrier);
    let dst = k.frag(DType::F32, 1);
    let other = vec![crate::kernels::vector(0, 1, None, 5, None)];
    k.push(DeviceOp::Load { dst, place, vectors: other, other: None, cache });
    k.store(y, at, dst);
    let compiled = build(&k.finish());
    assert!(compiled.ptx.contains(".extern .shared"), "{}", compiled.ptx);
    assert_eq!(compiled.usage.shared_bytes, 0, "what a kernel asks for is dynamic");
    let code = sass(&compiled);
    let (store, load) = (position(&code, "STS"), position(&code, "LDS"));
    assert!(store < position(&code, "BAR.SYNC") && position(&code, "BAR.SYNC") < load);
}

/// T5: what `atomicrmw` becomes is found; nothing of ours becomes one.
#[test]
fn t5_bare_atomics_are_found() {
    let text = "\
target triple = \"nvptx64-nvidia-cuda\"
define ptx_kernel void @k(ptr addrspace(1) %p) {
  %1 = atomicrmw add ptr addrspace(1) %p, i32 1 release
  ret void
}
";
    let input = Input::Llvm(text);
    let made = run(input, "k", Target::Sm90a, Stage::Ptx, &Tools::default(), &mut |_| {})
        .expect("it compiles");
    let found = scan(&made.ptx.expect("there is PTX"));
    assert!(found.iter().any(|l| l.kind == LeftoverKind::BareAtomic), "{found:?}");
}

/// T6: no target attribute, so the verifier of MLIR 22 cannot refuse what sm_103a has.
#[test]
fn t6_the_module_names_no_target() {
    let compiled = build(&consumer(Target::Sm103a));
    assert!(!compiled.mlir.contains("nvvm.target"), "{}", compiled.mlir);
    assert!(compiled.ptx.contains(".target sm_103a"), "{}", compiled.ptx);
}

/// T9b: every entry carries its number of threads.
#[test]
fn t9b_the_entry_states_its_threads() {
    let mut k = KernelBuilder::new("sized", Target::Sm90a);
    k.launch().warps = 5;
    k.launch().min_ctas = Some(3);
    let compiled = build(&k.finish());
    assert!(compiled.ptx.contains(".reqntid 160"), "{}", compiled.ptx);
    assert!(compiled.ptx.contains(".minnctapersm 3"), "{}", compiled.ptx);
}

/// T10: an intrinsic that LLVM does not know is an error of its stage, not a call of an unknown function.
#[test]
fn t10_unknown_intrinsics_do_not_pass() {
    let text = "\
target triple = \"nvptx64-nvidia-cuda\"
declare void @llvm.nvvm.no.such.thing()
define ptx_kernel void @k() {
  call void @llvm.nvvm.no.such.thing()
  ret void
}
";
    let input = Input::Llvm(text);
    run(input, "k", Target::Sm90a, Stage::Ptx, &Tools::default(), &mut |_| {})
        .expect_err("the intrinsic does not exist");
    assert!(kernel_codegen::llvm_version().starts_with("22.1."));
}

/// `a * b + c` stays two roundings down to machine code; `fma` is one.
#[test]
fn nothing_is_contracted() {
    for (fused, wanted) in [(false, ["FMUL", "FADD"]), (true, ["FFMA", "FFMA"])] {
        let mut k = KernelBuilder::new("contraction", Target::Sm90a);
        let x = k.param("x", Access::Input, DType::F32);
        let y = k.param("y", Access::Output, DType::F32);
        let at = k.thread(4);
        let a = k.load(x, at, 4);
        let pick = |i| Arg::all(a, i);
        let dst = k.frag(DType::F32, 1);
        if fused {
            k.push(DeviceOp::Fma { dst, a: pick(0), b: pick(1), c: pick(2) });
        } else {
            let product = k.frag(DType::F32, 1);
            k.push(DeviceOp::Binary { dst: product, op: BinaryOp::Mul, a: pick(0), b: pick(1) });
            let (a, b) = (Arg::whole(product), pick(2));
            k.push(DeviceOp::Binary { dst, op: BinaryOp::Add, a, b });
        }
        k.store(y, at, dst);
        let compiled = build(&k.finish());
        let ptx = if fused { ["fma.rn.f32"; 2] } else { ["mul.rn.f32", "add.rn.f32"] };
        assert!(ptx.iter().all(|op| compiled.ptx.contains(op)), "{}", compiled.ptx);
        let code = sass(&compiled);
        for op in wanted {
            position(&code, op);
        }
        let other = if fused { "FMUL" } else { "FFMA" };
        assert!(!code.iter().any(|i| i.text.contains(other)), "{code:#?}");
    }
}

/// The approximations keep subnormals, and division and square root round correctly.
#[test]
fn arithmetic_is_exact_where_it_says_so() {
    use kernel_ir::ops::UnaryOp;
    let mut k = KernelBuilder::new("numerics", Target::Sm90a);
    let x = k.param("x", Access::Input, DType::F32);
    let y = k.param("y", Access::Output, DType::F32);
    let at = k.thread(1);
    let mut value = k.load(x, at, 1);
    for op in [UnaryOp::Exp2, UnaryOp::Log2, UnaryOp::Rsqrt, UnaryOp::Sqrt, UnaryOp::Sigmoid] {
        value = k.unary(op, value);
    }
    let nine = k.int(9);
    let other = k.load(x, nine, 1);
    value = k.binary(BinaryOp::Div, value, other);
    value = k.binary(BinaryOp::Min, value, other);
    value = k.binary(BinaryOp::Max, value, other);
    k.store(y, at, value);
    let compiled = build(&k.finish());
    assert!(!compiled.ptx.contains(".ftz"), "{}", compiled.ptx);
    for op in [
        "ex2.approx.f32",
        "lg2.approx.f32",
        "rsqrt.approx.f32",
        "sqrt.rn.f32",
        "rcp.rn.f32",
        "div.rn.f32",
        "min.f32",
        "max.f32",
    ] {
        assert!(compiled.ptx.contains(op), "no {op} in {}", compiled.ptx);
    }
    let lines = lines(&compiled.ptx);
    assert!(!lines.iter().any(|l| l.starts_with("fma")), "{}", compiled.ptx);
}

/// Lines of operations are one more than their ids, also where several statements share one.
#[test]
fn lines_start_at_one() {
    let mut k = KernelBuilder::new("lines", Target::Sm90a);
    let wait = k.push(DeviceOp::GridWait);
    assert_eq!(wait.index(), 0);
    let compiled = build(&k.finish());
    let at = position(&sass(&compiled), "ACQBULK");
    assert_eq!(sass(&compiled)[at].line, Some(1));
}

/// The amount of a 64-bit shift is bounded as a number of 64 bits before it becomes one of 32. Seen on an
/// H200: LLVM 22 folded a guard on the whole amount away, and `1 << 2^63` was 1.
#[test]
fn amounts_of_wide_shifts_are_bounded_first() {
    for (op, shift) in [(BinaryOp::Shl, "shl.b64"), (BinaryOp::Shr, "shr.s64")] {
        let mut k = KernelBuilder::new("shift", Target::Sm90a);
        let x = k.param("x", Access::Input, DType::I64);
        let y = k.param("y", Access::Output, DType::I64);
        let at = k.thread(2);
        let both = k.load(x, at, 2);
        let dst = k.frag(DType::I64, 1);
        k.push(DeviceOp::Binary { dst, op, a: Arg::all(both, 0), b: Arg::all(both, 1) });
        k.store(y, at, dst);
        let lines = lines(&build(&k.finish()).ptx);
        let find = |op: &str| lines.iter().position(|line| line.starts_with(op));
        let (bounded, shifted) = (find("min.u64"), find(shift));
        assert!(bounded.is_some() && bounded < shifted, "{lines:#?}");
    }
}

/// A tensor map is a parameter by value that nothing copies: the hardware reads it where the launch has put it, aligned.
#[test]
fn a_tensor_map_stays_where_the_launch_has_put_it() {
    for target in Target::ALL {
        let mut k = KernelBuilder::new("boxes", target);
        let w = k.param("w", Access::Static, DType::F32);
        let map = k.map(w);
        let at = vec![(k.int(16), 0), (k.int(-3), 0)];
        k.push(DeviceOp::Pipe(DevicePipe::Prefetch { map, at, evict: Some(Evict::Last) }));
        let compiled = build(&k.finish());
        let ptx = &compiled.ptx;
        for part in [
            ".param .align 64 .b8 boxes_param_1[128]",
            "cvta.param.u64",
            "cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [",
        ] {
            assert!(ptx.contains(part), "{part} in {ptx}");
        }
        assert!(!ptx.contains(".local"), "{ptx}");
        assert_eq!(scan(ptx), []);
        assert!(sass(&compiled).iter().any(|i| i.text.contains("UTMAPF")), "{ptx}");
    }
}
