//! Every code: which errors have it, what they say, and whose fault they are.

use std::time::Duration;

use kernel_abi::plan::{PlanCode, PlanError};
use kernel_runtime::error::DriverError;
use kernel_runtime::{Code, MemoryNeed, RuntimeError, probe};

fn driver(code: u32, name: &str) -> DriverError {
    DriverError { call: "cuCall", code, name: name.to_owned() }
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// One error of each kind, its code and a piece of what it says.
fn errors() -> Vec<(RuntimeError, &'static str, &'static str)> {
    let kernel = || text("gemv<N = 4>");
    vec![
        (RuntimeError::NoDriver, "R0101", "no CUDA driver"),
        (
            RuntimeError::OldDriver { found: 12040, needed: 12080 },
            "R0102",
            "speaks version 12.4, version 12.8 is needed",
        ),
        (
            RuntimeError::Unusable(driver(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")),
            "R0102",
            "cuCall returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)",
        ),
        (RuntimeError::NoDevice, "R0103", "no device"),
        (
            RuntimeError::NoSuchDevice { ordinal: 3, count: 1 },
            "R0104",
            "there is no device cuda:3; there is cuda:0 alone",
        ),
        (
            RuntimeError::Busy { ordinal: 0, device: text("H200"), why: text("held") },
            "R0105",
            "cuda:0 (H200) is not free: held",
        ),
        (RuntimeError::from(driver(719, "CUDA_ERROR_LAUNCH_FAILED")), "R0106", "was lost"),
        (RuntimeError::from(driver(1, "CUDA_ERROR_INVALID_VALUE")), "R0107", "returned 1"),
        (
            RuntimeError::Memory {
                what: text("the weights"),
                needed: 98_000_000_000,
                free: 70_500_000_000,
                total: 140_000_000_000,
                others: 69_000_000_000,
            },
            "R0201",
            "the weights need 98.00 GB on the device, 70.50 GB of 140.00 GB are free, 27.50 GB are missing; other \
             processes hold about 69.00 GB",
        ),
        (
            RuntimeError::Size { buffer: text("ids"), wanted: 4, found: 8 },
            "R0202",
            "`ids` has 4 bytes, not 8",
        ),
        (RuntimeError::Absent { buffer: 7, rank: 2 }, "R0203", "no buffer 7 of rank 2"),
        (
            RuntimeError::NoContent { buffer: text("logits"), why: "is written by a step" },
            "R0204",
            "`logits` is written by a step",
        ),
        (
            RuntimeError::Architecture {
                kernel: kernel(),
                built_for: text("sm_100a"),
                device: text("sm_90"),
            },
            "R0301",
            "is built for sm_100a, the device is sm_90",
        ),
        (
            RuntimeError::NoKernel {
                kernel: kernel(),
                device: text("sm_90"),
                why: text("it has 3 others"),
            },
            "R0302",
            "there is no kernel gemv<N = 4> for sm_90; it has 3 others",
        ),
        (
            RuntimeError::Image { kernel: kernel(), form: "PTX", fault: text("line 3") },
            "R0303",
            "the driver refuses its PTX: line 3",
        ),
        (RuntimeError::Layout { kernel: kernel(), fault: text("x") }, "R0304", "differ: x"),
        (RuntimeError::Arguments { kernel: kernel(), fault: text("x") }, "R0305", "4>: x"),
        (RuntimeError::Shape { kernel: kernel(), fault: text("x") }, "R0306", "launched: x"),
        (
            RuntimeError::Plan(vec![PlanError {
                code: PlanCode::Race,
                node: text("add"),
                message: text("a race"),
            }]),
            "R0307",
            "P0105: add: a race",
        ),
        (RuntimeError::Unsupported(text("four ranks")), "R0308", "this version: four ranks"),
        (
            RuntimeError::Hung { limit: Duration::from_secs(8), kernels: vec![kernel()] },
            "R0401",
            "not done after 8.0 s; in flight: gemv<N = 4>",
        ),
        (RuntimeError::GivenUp, "R0402", "not used any more"),
    ]
}

#[test]
fn every_code_has_an_error_that_says_what_is_wrong() {
    for (error, code, piece) in errors() {
        assert_eq!(error.code().name(), code);
        assert!(error.to_string().contains(piece), "{error}");
    }
    let all = errors();
    for code in Code::ALL {
        assert!(all.iter().any(|(error, ..)| error.code() == *code), "{code}");
    }
}

#[test]
fn only_the_driver_leaves_work_behind() {
    let left: Vec<&str> = errors()
        .iter()
        .filter(|(error, ..)| error.leaves_work_behind())
        .map(|(.., code, _)| *code)
        .collect();
    assert_eq!(left, ["R0106", "R0401", "R0402"]);
    assert!(errors().iter().all(|(error, code, _)| {
        let of_the_world = code.starts_with("R01") || ["R0201", "R0401", "R0402"].contains(code);
        error.is_of_the_world() == of_the_world
    }));
}

#[test]
fn a_probe_finds_devices_or_says_why_not() {
    match probe() {
        Ok(driver) => assert!(!driver.devices.is_empty()),
        Err(error) => {
            let code = error.code();
            let named = [Code::R0101, Code::R0102, Code::R0103].contains(&code);
            assert!(named, "{code}: {error}");
        }
    }
}

#[test]
fn the_readme_lists_every_code() {
    let readme = include_str!("../README.md");
    for code in Code::ALL {
        let rows = readme.lines().filter(|line| line.starts_with(&format!("| {code} |"))).count();
        assert_eq!(rows, 1, "{code}");
    }
    assert!(Code::ALL.windows(2).all(|pair| pair[0].name() < pair[1].name()));
}

#[test]
fn a_plan_that_does_not_fit_says_what_needs_the_memory() {
    let need = MemoryNeed { weights: 91_200_000_000, states: 3_100_000_000, step: 200_000_000 };
    assert_eq!(
        need.parts(),
        "the buffers of the plan (weights 91.20 GB, states 3.10 GB, a step 0.20 GB) and its kernels"
    );
    let own = RuntimeError::Memory {
        what: need.parts(),
        needed: need.total(),
        free: 90_000_000_000,
        total: 91_000_000_000,
        others: 1_000_000_000,
    };
    assert!(own.to_string().ends_with("90.00 GB of 91.00 GB are free, 4.50 GB are missing"));
}
