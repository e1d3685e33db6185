//! The textual stages, and errors at each of them.

use kernel_abi::{Access, DType};
use kernel_codegen::{CodegenError, Input, Stage, Tools, run};
use kernel_ir::device::{Arg, DeviceKernel, DeviceOp, FragId};
use kernel_ir::index::Id;
use kernel_ir::kernel::Literal;
use kernel_ir::ops::{BinaryOp, UnaryOp};
use kernel_ir::target::Target;

use crate::kernels::{KernelBuilder, build, sass, tools};

fn double(target: Target) -> DeviceKernel {
    let mut k = KernelBuilder::new("double", target);
    let x = k.param("x", Access::Input, DType::F32);
    let y = k.param("y", Access::Output, DType::F32);
    let at = k.thread(1);
    k.push(DeviceOp::GridWait);
    let loaded = k.load(x, at, 1);
    let sum = k.binary(BinaryOp::Add, loaded, loaded);
    k.store(y, at, sum);
    k.finish()
}

#[test]
fn each_textual_stage_leads_to_the_same_cubin() {
    for target in Target::ALL {
        let all = build(&double(target));
        let from = |input| {
            run(input, "double", target, Stage::Cubin, &tools(), &mut |_| {}).expect("it compiles")
        };
        let mlir = from(Input::Mlir(&all.mlir));
        assert_eq!(mlir.llvm.as_deref(), Some(all.llvm.as_str()));
        let llvm = from(Input::Llvm(&all.llvm));
        assert_eq!(llvm.ptx.as_deref(), Some(all.ptx.as_str()));
        let ptx = from(Input::Ptx(&all.ptx));
        assert_eq!(ptx.ptx, None, "what a job starts from is not repeated");
        assert_eq!(ptx.cubin.expect("there is a cubin").bytes, all.cubin);
    }
}

#[test]
fn the_same_kernel_gives_the_same_bytes() {
    let (one, two) = (build(&double(Target::Sm90a)), build(&double(Target::Sm90a)));
    assert_eq!(one, two);
}

#[test]
fn stages_are_announced_before_they_run() {
    let kernel = double(Target::Sm90a);
    let input = Input::Kernel { kernel: &kernel, places: &[] };
    let mut entered = Vec::new();
    run(input, "double", kernel.target, Stage::Cubin, &tools(), &mut |stage| entered.push(stage))
        .expect("it compiles");
    assert_eq!(entered, Stage::ALL);
    let made = run(input, "double", kernel.target, Stage::Ptx, &Tools::default(), &mut |_| {})
        .expect("PTX needs no tools");
    assert!(made.ptx.is_some() && made.cubin.is_none());
}

#[test]
fn every_operation_has_its_line_in_ptx_and_machine_code() {
    let mut k = KernelBuilder::new("placed", Target::Sm90a);
    let x = k.param("x", Access::Input, DType::F32);
    let y = k.param("y", Access::Output, DType::F32);
    let at = k.thread(1);
    let wait = k.push(DeviceOp::GridWait);
    let loaded = k.load(x, at, 1);
    let load_line = wait.index() + 2;
    k.store(y, at, loaded);
    let compiled = build(&k.finish());
    assert!(compiled.ptx.contains("\"placed.ops\""), "{}", compiled.ptx);
    assert!(compiled.ptx.contains(".target sm_90a\n"), "no `, debug`: {}", compiled.ptx);
    let line_of = |word: &str| {
        let code = sass(&compiled);
        code.iter().find(|i| i.text.contains(word)).and_then(|i| i.line)
    };
    assert_eq!(line_of("ACQBULK"), Some(wait.index() as u32 + 1));
    assert_eq!(line_of("LDG"), Some(load_line as u32));
    assert_eq!(line_of("STG"), Some(load_line as u32 + 1));
}

fn error(input: Input<'_>, last: Stage) -> CodegenError {
    run(input, "broken", Target::Sm90a, last, &tools(), &mut |_| {}).expect_err("it is broken")
}

#[test]
fn broken_texts_are_errors_of_their_stage() {
    let mlir = error(Input::Mlir("not mlir"), Stage::Cubin);
    assert!(matches!(&mlir, CodegenError::Mlir(said) if !said.is_empty()), "{mlir}");
    let unknown = error(Input::Mlir("llvm.func @f() { %0 = nvvm.nothing : i32 }"), Stage::Cubin);
    assert!(matches!(unknown, CodegenError::Mlir(_)), "{unknown}");
    let llvm = error(Input::Llvm("define ptx_kernel void @k() {"), Stage::Cubin);
    assert!(matches!(llvm, CodegenError::Backend(_)), "{llvm}");
    let ptx = error(Input::Ptx(".version 8.8\n.target sm_90a\nbogus\n"), Stage::Cubin);
    let CodegenError::Ptxas { command, log } = &ptx else { panic!("{ptx}") };
    assert!(command.contains("-arch sm_90a") && command.ends_with("broken.ptx"), "{command}");
    assert!(log.contains("broken.ptx, line 3") && !log.contains("/proc"), "{log}");
    assert_eq!(ptx.stage(), Stage::Cubin);
}

#[test]
fn what_has_no_lowering_is_refused_with_its_line() {
    let refused = |fill: &dyn Fn(&mut KernelBuilder)| {
        let mut k = KernelBuilder::new("refused", Target::Sm90a);
        fill(&mut k);
        let kernel = k.finish();
        let error = error(Input::Kernel { kernel: &kernel, places: &[] }, Stage::Cubin);
        let CodegenError::Lower { line, message, .. } = error else { panic!("{error}") };
        (line, message)
    };
    let (line, message) = refused(&|k| {
        let x = k.constant(DType::I32, Literal::Int(1));
        k.unary(UnaryOp::Exp, x);
    });
    assert_eq!(line, 2);
    assert!(message.contains("exp"), "{message}");
    let (line, message) = refused(&|k| {
        k.constant(DType::F32, Literal::Int(1));
    });
    assert_eq!((line, message.contains("f32")), (1, true), "{message}");
    let (_, message) = refused(&|k| {
        let dst = k.frag(DType::F32, 1);
        k.push(DeviceOp::Copy { dst, x: Arg::whole(FragId::new(7)) });
    });
    assert!(message.contains("not defined"), "{message}");
    let (_, message) = refused(&|k| {
        k.constant(DType::E4m3, Literal::Bool(true));
    });
    assert!(message.contains("e4m3"), "{message}");
    let (line, _) = refused(&|k| k.launch().warps = 64);
    assert_eq!(line, 0);
    let (_, message) = refused(&|k| {
        let x = k.param("x", Access::Input, DType::F32);
        let at = k.int(0);
        k.load(x, at, 3);
    });
    assert!(message.contains("no memory instruction"), "{message}");
}
