//! The kernels of `tests/hardware` build for every target, and on the emulator both ways of a question agree.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel_emulator::{Argument, Buffer, Memory, Options, run_kernel};
use kernel_tests::program::{Program, package_folder, target};

/// Contents of buffers by name.
type Contents = BTreeMap<String, Buffer>;

fn folder() -> PathBuf {
    package_folder().join("hardware")
}

/// Runs a kernel on named buffers and puts back what they hold then; what is not there is random.
fn run(file: &str, kernel: &str, bind: &[(&str, i64)], contents: &mut Contents) {
    let program = Program::read(&folder(), file).expect("the file is there");
    let template = program.front.template(kernel).unwrap_or_else(|| panic!("{file}: {kernel}"));
    let bind: Vec<(String, i64)> = bind.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
    for name in ["sm_90a", "sm_100a", "sm_103a"] {
        let found = program.build(template, &bind, target(name).expect("a target"));
        found.unwrap_or_else(|findings| panic!("{kernel} for {name}: {findings}"));
    }
    let built = program.build(template, &bind, None).expect("it was built before");
    let params = &built.kernel.params;
    let mut memory = Memory::new(params);
    for (id, param) in params.iter_enumerated() {
        if let Some(buffer) = contents.get(&param.name) {
            memory.set_buffer(id, buffer.clone());
        }
    }
    memory.fill_missing(params, 7).expect("random data exists");
    run_kernel(&built.kernel, &mut memory, &Options::STANDARD)
        .unwrap_or_else(|error| panic!("{kernel}: {error}"));
    for (id, param) in params.iter_enumerated() {
        if let Argument::Buffer(buffer) = memory.argument(id) {
            contents.insert(param.name.clone(), buffer.clone());
        }
    }
}

fn values(contents: &Contents, name: &str) -> Vec<f64> {
    contents[name].to_f64()
}

#[test]
fn a_chain_of_settled_reads_finds_nothing_wrong_and_its_control_does() {
    let zeros = || Buffer::from_f32(kernel_abi::DType::F32, &[0.0; 256]);
    let names = ["w", "seen", "bad", "turn"];
    let mut contents: Contents = names.map(|name| (name.to_owned(), zeros())).into();
    let file = "settled_chain.tile";
    for _ in 0..3 {
        run(file, "chain_write", &[("C", 2)], &mut contents);
        run(file, "chain_between", &[("C", 2)], &mut contents);
        run(file, "chain_read", &[("C", 2)], &mut contents);
    }
    run(file, "chain_write", &[("C", 2)], &mut contents);
    assert_eq!(values(&contents, "w"), vec![4.0; 256]);
    assert_eq!(values(&contents, "bad"), vec![0.0; 256]);
    // A round in which nobody has read what was written.
    run(file, "chain_write", &[("C", 2)], &mut contents);
    assert_eq!(values(&contents, "bad"), vec![1.0; 256]);
}

#[test]
fn a_split_sum_is_the_same_in_both_ways() {
    let bind = [("M", 2), ("SPLIT", 8)];
    let mut last = Contents::new();
    run("split_sum.tile", "split_last", &bind, &mut last);
    let mut two = Contents::from([("x".to_owned(), last["x"].clone())]);
    run("split_sum.tile", "split_parts", &bind, &mut two);
    run("split_sum.tile", "split_merge", &bind, &mut two);
    assert_eq!(last["y"].bytes(), two["y"].bytes());
    assert_eq!(last["done"].bytes(), [0; 8]);
}

#[test]
fn a_winner_is_the_same_in_both_ways() {
    let mut last = Contents::new();
    run("argmax_end.tile", "argmax_last", &[("V", 4096)], &mut last);
    let mut two = Contents::from([("logits".to_owned(), last["logits"].clone())]);
    run("argmax_end.tile", "argmax_parts", &[("V", 4096)], &mut two);
    run("argmax_end.tile", "argmax_row", &[("V", 4096)], &mut two);
    assert_eq!(
        (last["best"].bytes(), last["at"].bytes()),
        (two["best"].bytes(), two["at"].bytes())
    );
}

#[test]
fn wide_and_partial_sums_are_near_for_all_numbers_of_rows() {
    for rows in [4, 8, 16] {
        let bind = [("N", 32), ("K", 1024), ("ROWS", rows), ("AHEAD", 2)];
        let mut wide = Contents::new();
        run("gemv_sums.tile", "rows_wide", &bind, &mut wide);
        let mut partial: Contents =
            ["W", "x"].map(|name| (name.to_owned(), wide[name].clone())).into();
        run("gemv_sums.tile", "rows_partial", &bind, &mut partial);
        let pairs = values(&wide, "y").into_iter().zip(values(&partial, "y"));
        assert!(
            pairs.clone().count() == 32 && pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4)
        );
    }
}
