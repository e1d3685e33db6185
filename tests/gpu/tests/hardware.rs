//! The kernels of `tests/hardware` build for every target, and on the emulator both ways of a question agree.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernel_abi::DType;
use kernel_emulator::{Argument, Buffer, Memory, Options, run_kernel};
use kernel_tests::program::{Program, package_folder, target};

/// Contents of buffers by name.
type Contents = BTreeMap<String, Buffer>;

/// Scalars of the kernels: those of Kimi K3.
const SCALARS: [(&str, f32); 2] = [("beta", 4.0), ("linear_beta", 25.0)];

fn folder() -> PathBuf {
    package_folder().join("hardware")
}

/// Runs a kernel on named buffers, which are row-major, and puts back what they hold then; what is not there is random.
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
        if let Some((_, value)) = SCALARS.iter().find(|(name, _)| *name == param.name) {
            memory.set_scalar(id, param.dtype, u64::from(value.to_bits()));
        }
        if let Some(buffer) = contents.get(&param.name) {
            let packed = param.stored.as_ref().map(|layout| {
                let bytes =
                    layout.pack(param.dtype, buffer.bytes()).expect("it has that many elements");
                Buffer::filled(param.dtype, bytes)
            });
            memory.set_buffer(id, packed.unwrap_or_else(|| buffer.clone()));
        }
    }
    memory.fill_missing(params, 7).expect("random data exists");
    run_kernel(&built.kernel, &mut memory, &Options::STANDARD)
        .unwrap_or_else(|error| panic!("{kernel}: {error}"));
    for (id, param) in params.iter_enumerated().filter(|(_, param)| param.stored.is_none()) {
        if let Argument::Buffer(buffer) = memory.argument(id) {
            contents.insert(param.name.clone(), buffer.clone());
        }
    }
}

fn values(contents: &Contents, name: &str) -> Vec<f64> {
    contents[name].to_f64()
}

#[test]
fn chains_of_settled_reads_find_nothing_wrong_and_see_a_missed_round() {
    let filled = |value: f32| Buffer::from_f32(DType::F32, &[value; 256]);
    let names = ["w", "count", "turn", "rounds", "early", "late", "sink"];
    let zeros: Contents = names.map(|name| (name.to_owned(), filled(0.0))).into();
    let file = "settled_chain.tile";
    let run = |kernel: &str, contents: &mut Contents| run(file, kernel, &[("C", 2)], contents);
    let mut contents = zeros.clone();
    for _ in 0..3 {
        for kernel in ["chain_write", "chain_between", "chain_read"] {
            run(kernel, &mut contents);
        }
    }
    assert_eq!(values(&contents, "w"), vec![3.0; 256]);
    assert_eq!(
        (values(&contents, "early"), values(&contents, "late")),
        (vec![0.0; 256], vec![0.0; 256])
    );
    // A round that nobody wrote.
    run("chain_read", &mut contents);
    assert_eq!(
        (values(&contents, "early"), values(&contents, "late")),
        (vec![1.0; 256], vec![1.0; 256])
    );

    let mut contents = zeros.clone();
    for _ in 0..2 {
        for kernel in
            ["chain_spoil", "chain_warm", "chain_write", "chain_between", "chain_read_all"]
        {
            run(kernel, &mut contents);
        }
    }
    assert_eq!(values(&contents, "sink"), vec![-1.0; 256]);
    assert_eq!(
        (values(&contents, "w"), values(&contents, "early")),
        (vec![2.0; 256], vec![0.0; 256])
    );
    run("chain_spoil", &mut contents);
    run("chain_read_all", &mut contents);
    assert_eq!(values(&contents, "early"), vec![2.0; 256]);

    // One after the other, as the emulator runs them, the control is right as well.
    let mut contents = zeros;
    contents.insert("one".to_owned(), filled(1.0));
    for _ in 0..2 {
        self::run(file, "chain_late", &[("C", 2), ("SPINS", 4)], &mut contents);
        run("chain_read", &mut contents);
    }
    assert_eq!(
        (values(&contents, "w"), values(&contents, "early")),
        (vec![2.0; 256], vec![0.0; 256])
    );
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
fn the_best_experts_are_the_same_in_both_ways() {
    let bind = |own: &[(&'static str, i64)]| [&[("M", 2), ("E", 128)], own].concat();
    let mut last = Contents::new();
    run("topk_end.tile", "topk_last", &bind(&[("H", 512)]), &mut last);
    let mut two: Contents = ["W", "x"].map(|name| (name.to_owned(), last[name].clone())).into();
    run("topk_end.tile", "topk_logits", &bind(&[("H", 512)]), &mut two);
    run("topk_end.tile", "topk_row", &bind(&[("NW", 1)]), &mut two);
    assert_eq!(last["id"].bytes(), two["id"].bytes());
    let z = values(&two, "z");
    for (logits, ids) in z.chunks(128).zip(values(&two, "id").chunks(16)) {
        let mut order: Vec<usize> = (0..128).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        assert!(order.iter().zip(ids).all(|(wanted, found)| *wanted as f64 == *found));
    }
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

/// Two tokens, two picks of three experts, in a size that the emulator does at once.
const EXPERTS: [(&str, i64); 5] = [("M", 2), ("K", 2), ("E", 3), ("I", 64), ("Z", 128)];

/// Scales near 1, which differ.
fn scales(count: usize) -> Buffer {
    Buffer::from_codes(
        DType::Ue8m0,
        &(0..count as u64).map(|i| 118 + i * 5 % 9).collect::<Vec<_>>(),
    )
}

/// What `lanes` computes and what another form does, from the same numbers.
fn experts_agree(lanes: &str, form: &str, own: &[(&str, i64)], [x, y]: [&str; 2]) {
    let file = "experts.tile";
    let mut plain =
        Contents::from([("s13".to_owned(), scales(1536)), ("s2".to_owned(), scales(768))]);
    run(file, lanes, &[&EXPERTS[..], &[("NW", 1)]].concat(), &mut plain);
    let wanted = values(&plain, y);
    let mut other = plain;
    other.insert(y.to_owned(), Buffer::poison(DType::F32, wanted.len()));
    if form.ends_with("_f16") {
        let same: Vec<f32> = values(&other, x).iter().map(|v| *v as f32).collect();
        other.insert(x.to_owned(), Buffer::from_f32(DType::F16, &same));
    }
    run(file, form, &[&EXPERTS[..], own].concat(), &mut other);
    let found = values(&other, y);
    let greatest = wanted.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    assert!(greatest > 0.0 && wanted.len() == found.len());
    for (at, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
        assert!((wanted - found).abs() <= 1e-4 * greatest, "{form} at {at}: {found}, not {wanted}");
    }
}

#[test]
fn the_experts_are_the_same_in_all_forms() {
    for form in ["w13_row_bf16", "w13_row_f16", "w13_packed_bf16", "w13_packed_f16"] {
        for warps in [1, 2] {
            experts_agree("w13_lanes", form, &[("NW", warps)], ["z", "act"]);
        }
    }
    for form in ["w13_packed_bf16", "w13_packed_f16"] {
        experts_agree("w13_lanes", form, &[("NW", 1), ("TILES", 2), ("AHEAD", 1)], ["z", "act"]);
    }
    for form in ["w2_row_bf16", "w2_row_f16"] {
        experts_agree("w2_lanes", form, &[("NW", 1), ("TILES", 4)], ["gate", "y"]);
    }
    for form in ["w2_packed_bf16", "w2_packed_f16"] {
        for (warps, tiles) in [(1, 1), (4, 2), (2, 1)] {
            experts_agree("w2_lanes", form, &[("NW", warps), ("TILES", tiles)], ["gate", "y"]);
        }
    }
}
