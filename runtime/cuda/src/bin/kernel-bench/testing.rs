//! A bundle for tests, with bytes in place of machine code.

use std::collections::{BTreeMap, BTreeSet};

use kernel_abi::bundle::{
    Artefact, AuditVerdict, Bundle, KernelHead, LaunchSpec, Maker, Policy, encode,
};
use kernel_abi::plan::{ExtentSpec, ParamSpec, Signature};
use kernel_abi::{Access, DType};

fn param(name: &str, access: Access, dtype: DType, shape: &[u64]) -> ParamSpec {
    let shape = shape.iter().map(|&extent| ExtentSpec::Const(extent)).collect();
    ParamSpec::new(name, access, dtype, shape)
}

fn artefact(name: &str, kernel: &str, params: Vec<ParamSpec>) -> Artefact {
    let head = KernelHead {
        name: name.to_owned(),
        file: "file.tile".to_owned(),
        kernel: kernel.to_owned(),
        entry: kernel.to_owned(),
        target: "sm_90a".to_owned(),
        bindings: BTreeMap::from([("M".to_owned(), 1)]),
        named: BTreeSet::new(),
        signature: Signature::new(params, true),
        launch: LaunchSpec {
            grid: [16, 1, 1],
            cluster: [1; 3],
            threads: 128,
            static_shared_bytes: 0,
            dynamic_shared_bytes: 0,
            tensor_columns: 0,
            registers: 40,
            spill_bytes: 0,
            launches_next: true,
            resident: false,
        },
        audit: AuditVerdict::Clean,
        kernel_ir: "00".repeat(32),
        device_ir: "00".repeat(32),
        waived: Vec::new(),
        events: Vec::new(),
        roles: Vec::new(),
    };
    let text = || name.to_owned();
    Artefact { head, cubin: text().into_bytes(), ptx: text(), report: text(), operations: text() }
}

/// `gemv` and a variant of it, and `first` and `second`, which share `x`.
pub(crate) fn bundle() -> Bundle {
    let gemv = || {
        vec![
            param("w", Access::Static, DType::Bf16, &[64, 32]),
            param("x", Access::Input, DType::F32, &[32]),
            param("y", Access::Output, DType::F32, &[64]),
        ]
    };
    let first = vec![
        param("x", Access::Output, DType::F32, &[32]),
        param("done", Access::Inout, DType::U32, &[1]),
    ];
    let second = vec![
        param("x", Access::Input, DType::F32, &[32]),
        param("done", Access::Inout, DType::U32, &[2]),
        param("n", Access::Scalar, DType::I32, &[]),
    ];
    let artefacts = [
        artefact("gemv", "gemv", gemv()),
        artefact("gemv-ROWS4", "gemv", gemv()),
        artefact("first", "first", first),
        artefact("second", "second", second),
    ];
    let bytes = encode(&Maker::default(), &artefacts).expect("the bundle is right");
    Bundle::from_bytes(bytes, Policy::AUDITED).expect("it was just written")
}
