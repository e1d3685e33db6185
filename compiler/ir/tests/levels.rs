//! From text to both levels: what inference decides, how the levels print, what explain tells.

use kernel_dsl::source::SourceMap;
use kernel_ir::kernel::Kernel;
use kernel_ir::sema::Bindings;
use kernel_ir::target::Target;
use kernel_ir::{expand, explain, pipeline, print};

const GEMV: &str = r#"target sm_90a;
kernel gemv<const N: int = 64, const K: int = 2048, const ROWS: int = 8, const STEP: int = 512, const AHEAD: int = 4>(
    static W : gmem bf16[N, K],
    input  x : gmem bf16[K],
    output y : gmem f32[N],
)
launch { grid: N / ROWS, warps: 4, pdl: both }
{
    const NS = K / STEP; const A = min(AHEAD, NS); const J = STEP / 8;
    view Wv = W by "n (j k) -> n j k" (k = 8);
    view xv = x by "(j k) -> j k" (k = 8);
    let rows = cta.x * ROWS;
    frag w   : bf16[ROWS, J, 8] ring A;
    frag xs  : bf16[J, 8] ring 2;
    frag acc : f32[ROWS, J] = 0.0;
    for s in 0..A unroll { load Wv[rows .. + ROWS, s * J .. + J, :] -> w@s evict first no_allocate; }
    grid_wait;
    for s in 0..min(2, NS) unroll { load xv[s * J .. + J, :] -> xs@s; }
    for s in 0..NS unroll {
        acc += contract("r j k, j k -> r j", f32(w@s), f32(xs@s));
        if s + 2 < NS { load xv[(s + 2) * J .. + J, :] -> xs@(s + 2); }
        if s + A < NS { load Wv[rows .. + ROWS, (s + A) * J .. + J, :] -> w@(s + A) evict first no_allocate; }
    }
    grid_launch;
    store reduce.add(acc, axis = 1) -> y[rows .. + ROWS];
}
"#;

const SMALL: &str = r#"target sm_90a;
kernel small(input x : gmem f32[2, 256], output y : gmem f32[2], scalar n : i32 in 0..3)
launch { grid: 1, warps: 2, pdl: none }
{
    frag sum : f32[2] = 0.0;
    for i in 0..n { sum = sum + reduce.add(load x, axis = 1); }
    store sum -> y;
}
"#;

fn instantiate(text: &str) -> (SourceMap, Result<Kernel, Vec<kernel_dsl::diag::Diagnostic>>) {
    let mut sources = SourceMap::new();
    let file = sources.add("k.tile", text);
    let front = pipeline::front(&mut sources, file, &mut |path| Err(path.to_owned()));
    assert!(!front.has_errors(), "{:?}", front.diagnostics);
    let kernel = kernel_ir::sema::instantiate(&front.templates[0], &Bindings::new(), Target::Sm90a);
    (sources, kernel)
}

#[test]
fn the_gemv_sketch_is_spread_as_the_language_says() {
    let (sources, kernel) = instantiate(GEMV);
    let kernel = kernel.unwrap();
    let report = explain::report(&kernel, &sources).unwrap();
    let row = |name: &str| report.tiles.iter().find(|tile| tile.name == name).unwrap();
    assert_eq!(row("w").distribution, "[w2@2 r4, l32 w2, v8]");
    assert_eq!((row("xs").elements, row("xs").replicas), (8, 2));
    assert_eq!(row("acc").elements, 4);
    let weights: Vec<_> = report.accesses.iter().filter(|access| access.param == "W").collect();
    assert!(weights.iter().all(|access| access.wait == "before" && access.widest_bytes == 16));
    assert_eq!(weights.iter().map(|access| access.times).sum::<u32>(), 4);
    let text = report.text();
    for line in [
        "  k.tile:18:37 load x: 1 of 16 bytes, after the wait, 2 times",
        "  k.tile:25:11 add: 1 x 32 x 2, 64 bytes in exchange 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn both_levels_print_alike_every_time() {
    let (_, kernel) = instantiate(SMALL);
    let kernel = kernel.unwrap();
    let text = print::kernel(&kernel);
    for line in [
        "    scalar p2 n: i32 in 0..3",
        "    frag t0 sum: f32[2] [r2]",
        "        v6 = load x[v3 .. + 2 of 2:256, v3 .. + 256 of 256:1] : f32[2, 256] [r2, v4 l32 w2]",
        "        v7 = reduce.add v6, axis 1 : f32[2] [r2]",
        "        t0 = v8",
        "    store v9 -> y[v3 .. + 2 of 2:1]",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let device = expand::expand(&kernel).unwrap();
    let text = print::device(&device);
    assert_eq!(text, print::device(&expand::expand(&kernel).unwrap()));
    // In this order: the slot is set, the loop loads 16 bytes twice, folds lanes and warps, and ends with a
    // barrier, since the next round writes what this one reads.
    let mut rest = text.as_str();
    for part in [
        "slot $0 sum: f32 x 2",
        "$0 = %",
        "for %",
        "load x[x4: %",
        "xor 16",
        "store %",
        "-> shared+0 as f32[x2: %",
        "barrier",
        "load shared+0 as f32[x2: 0]",
        "load shared+0 as f32[x2: 2]",
        "$0 = %",
        "barrier",
        "    }\n",
        "-> y[x2: 0 if %",
    ] {
        let Some(at) = rest.find(part) else { panic!("{part}\n{text}") };
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn a_tile_across_itself_names_both_places_and_the_way_out() {
    let (sources, kernel) = instantiate(
        "target sm_90a;
kernel same(input ids : gmem i32[128], output n : gmem i32[128])
launch { grid: 1, warps: 8, pdl: none }
{
    let e = load ids;
    let same = e[:, _] == e[_, :];
    store reduce.add(i32(same), axis = 1) -> n;
}
",
    );
    let found = kernel.unwrap_err();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].code.name(), "E0310");
    let shown: Vec<_> = found[0].labels.iter().map(|label| sources.snippet(label.span)).collect();
    assert_eq!(shown, ["e[:, _] == e[_, :]", "load ids"]);
    assert!(found[0].help[0].contains("relayout(e)"), "{:?}", found[0].help);
}

#[test]
fn loops_are_walked_once_however_deep_they_are_nested() {
    let depth = 60;
    let text = format!(
        "target sm_90a;\nkernel deep(input x : gmem f32[128], output y : gmem f32[128], scalar n : i32)\n\
         launch {{ grid: 1, warps: 1, pdl: both }}\n{{ grid_wait; {} store load x -> y; {} }}",
        (0..depth).map(|i| format!("for i{i} in 0..n {{")).collect::<String>(),
        "}".repeat(depth),
    );
    let (_, kernel) = instantiate(&text);
    let outcome = kernel_ir::verify::kernel(kernel.unwrap());
    assert!(outcome.diagnostics.is_empty(), "{:?}", outcome.diagnostics);
    let source = outcome.verified.unwrap();
    let device = kernel_ir::verify::device(expand::expand(&source).unwrap(), &source);
    assert!(device.verified.is_some(), "{:?}", device.diagnostics);
}

#[test]
fn operands_come_as_matrices_and_explain_says_so() {
    let (sources, kernel) = instantiate(
        "target sm_90a;
kernel matrices(input x : gmem bf16[16, 64], input w : gmem bf16[16, 64], output y : gmem f32[16, 16])
launch { grid: 1, warps: 1, pdl: none }
{
    smem a : bf16[16, 64] swizzle b128;
    smem b : bf16[16, 64] swizzle b128;
    copy.async x -> a; copy.async w -> b; settle a; settle b; sync;
    store dot(a, b) via mma_sync -> y;
}
",
    );
    let kernel = kernel.unwrap();
    let report = explain::report(&kernel, &sources).unwrap();
    let text = report.text();
    for name in ["a", "b"] {
        let load = report.accesses.iter().find(|row| row.param == name && row.kind == "load");
        let notes = &load.unwrap_or_else(|| panic!("{text}")).notes;
        assert!(notes.iter().any(|note| note.contains("ldmatrix")), "{text}");
        assert!(notes.iter().any(|note| note.contains("no bank conflicts")), "{text}");
    }
    let device = print::device(&expand::expand(&kernel).unwrap());
    // One instruction of four matrices an atom of the left operand, and one for both columns of the right one.
    assert_eq!(device.matches("ldmatrix").count(), 8, "{device}");
}

#[test]
fn a_product_of_a_warpgroup_is_fenced_on_both_sides() {
    let (_, kernel) = instantiate(
        "target sm_90a;
kernel product(input x : gmem bf16[64, 64], input w : gmem bf16[8, 64], output y : gmem f32[64, 8])
launch { grid: 1, warps: 4, pdl: none }
{
    atom MMA = wgmma(m = 64, n = 8, k = 16, a = bf16, b = bf16, d = f32);
    smem a : bf16[64, 64] swizzle b128;
    smem b : bf16[8, 64] swizzle b128;
    frag acc : f32[64, 8] = 0.0;
    store load x -> a; copy.async w -> b; settle b; sync;
    mma a * (b)^T -> acc via MMA; commit;
    settle acc;
    store acc -> y;
}
",
    );
    let kernel = kernel.unwrap();
    let text = print::kernel(&kernel);
    for line in ["frag t0 acc: f32[64, 8] [l8@4 r2 w4, v2 l4]", "settle t0 but 0"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let device = print::device(&expand::expand(&kernel).unwrap());
    let mut rest = device.as_str();
    for part in [
        "wait_group 0",
        "fence for asynchronous reads of shared memory",
        "barrier",
        "wgmma.fence $0",
        "$0[0 …] += wgmma.m64n8k16.bf16 shared+0[0] lines of 128, shared+8192[0] lines of 128",
        "$0[0 …] += wgmma.m64n8k16.bf16 shared+0[16]",
        "$0[0 …] += wgmma.m64n8k16.bf16 shared+0[48]",
        "wgmma.commit_group",
        "wgmma.wait_group 0 for $0",
        "= $0",
    ] {
        let Some(at) = rest.find(part) else { panic!("{part}\n{device}") };
        rest = &rest[at + part.len()..];
    }
}
