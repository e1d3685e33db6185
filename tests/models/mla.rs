//! Multi-head latent attention.

use kernel_abi::DType;
use kernel_emulator::Buffer;
use kernel_tests::{k3, runner};
use kimi_k3::reference::mla;
use libtest_mimic::Trial;

use super::support::{check, scaled, trial};

/// Tokens, heads, latent, shared key, query and value widths.
#[derive(Debug, Clone, Copy)]
struct Shape {
    m: usize,
    h: usize,
    l: usize,
    p: usize,
    n: usize,
    v: usize,
    q_lora: usize,
}

impl Shape {
    /// Width of a row of the merged projection: q_a, kv_a, g, up to a multiple of 16.
    fn merged(self) -> usize {
        (self.q_lora + self.l + self.p + self.h * self.v).next_multiple_of(16)
    }
}

/// K3 at TP16, kimi-k3-mini for two tokens and eight, a rank of sixteen of the tiny model.
const SHAPES: [Shape; 5] = [
    Shape { m: 1, h: 6, l: 512, p: 64, n: 128, v: 128, q_lora: 1536 },
    Shape { m: 2, h: 4, l: 64, p: 16, n: 32, v: 32, q_lora: 96 },
    Shape { m: 8, h: 4, l: 64, p: 16, n: 32, v: 32, q_lora: 96 },
    Shape { m: 2, h: 1, l: 64, p: 16, n: 16, v: 16, q_lora: 96 },
    Shape { m: 8, h: 1, l: 64, p: 16, n: 16, v: 16, q_lora: 96 },
];

type Test = fn(Shape) -> Result<(), String>;

/// The tests of this family.
pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Test); 5] = [
        ("mla_absorb", absorb),
        ("mla_cache_insert", cache_insert),
        ("mla_decode and mla_merge", attention),
        ("mla_value", value),
        ("mla_gate", gate),
    ];
    let mut trials = Vec::new();
    for (kernel, test) in tests {
        for shape in SHAPES {
            let Shape { m, h, l, .. } = shape;
            trials.push(trial(format!("{kernel} H={h} L={l} M={m}"), move || test(shape)));
        }
    }
    trials
}

fn absorb(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, p, n, .. } = shape;
    let bind =
        [("M", m as i64), ("H", h as i64), ("L", l as i64), ("N", n as i64), ("P", p as i64)];
    let built = k3::build("mla_absorb.tile", "mla_absorb", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (wuk, q) = (a.buffer("wuk"), a.buffer("q"));
        let out = q.chunks(h * (n + p)).flat_map(|q| mla::absorb(&wuk, q, h, n));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn value(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, v, .. } = shape;
    let bind = [("M", m as i64), ("H", h as i64), ("V", v as i64), ("L", l as i64)];
    let built = k3::build("mla_value.tile", "mla_value", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (wuv, o) = (a.buffer("wuv"), a.buffer("o"));
        let out = o.chunks(h * l).flat_map(|o| mla::value(&wuv, o, h));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

fn gate(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, p, v, q_lora, .. } = shape;
    let (w, xw, x0) = (h * v, shape.merged(), q_lora + l + p);
    let bind = [("M", m as i64), ("W", w as i64), ("XW", xw as i64), ("X0", x0 as i64)];
    let built = k3::build("mla_gate.tile", "mla_gate", &bind)?;
    let memory = k3::memory(&built, Vec::new(), &[])?;
    check(&built, memory, |a| {
        let (o, proj) = (a.buffer("o"), a.buffer("proj"));
        let rows = o.chunks(w).zip(proj.chunks(xw));
        let out = rows.flat_map(|(o, row)| mla::output_gate(o, &row[x0..][..w]));
        vec![("out", out.collect())]
    })?;
    Ok(())
}

/// Pages of a request.
const NP: usize = 5;

/// The lengths before this token, and the pages of each request: distinct, not in order, and a few that nobody has.
fn requests(m: usize, page: usize) -> (Vec<i32>, Vec<i32>, usize) {
    let lengths = [2 * page + 3, 0, NP * page - 1, page - 1, page, 3 * page + 1, 1, 7];
    let lengths = lengths.iter().cycle().take(m).map(|n| *n as i32).collect();
    let pages = m * NP + 3;
    // 7 has no factor in common with any of the numbers of pages here.
    assert!(!pages.is_multiple_of(7));
    let table = (0..m * NP).map(|i| ((i * 7 + 2) % pages) as i32).collect();
    (lengths, table, pages)
}

fn cache_insert(shape: Shape) -> Result<(), String> {
    let Shape { m, l, p, q_lora, .. } = shape;
    let page = if m == 1 { 64 } else { 16 };
    let (xw, x0, width) = (shape.merged(), q_lora, l + p);
    let (lengths, table, pages) = requests(m, page);
    let bind = [
        ("M", m as i64),
        ("L", l as i64),
        ("P", p as i64),
        ("PAGE", page as i64),
        ("NP", NP as i64),
        ("XW", xw as i64),
        ("X0", x0 as i64),
    ];
    let built = k3::build("mla_cache.tile", "mla_cache_insert", &bind)?;
    let memory = k3::memory(
        &built,
        vec![("len", Buffer::from_i32(&lengths)), ("table", Buffer::from_i32(&table))],
        &[("pages", pages as f64), ("eps", 1e-5)],
    )?;
    check(&built, memory, |a| {
        let (gamma, proj, mut cache) = (a.buffer("gamma"), a.buffer("proj"), a.buffer("cache"));
        for (i, row) in proj.chunks(xw).enumerate() {
            let at = lengths[i] as usize;
            let row = mla::cache_row(&row[x0..][..width], &gamma, a.scalar("eps"));
            let place = table[i * NP + at / page] as usize * page + at % page;
            cache[place * width..][..width].copy_from_slice(&row);
        }
        vec![("cache", cache)]
    })?;
    Ok(())
}

/// Rows that no token may see are NaN.
fn attention(shape: Shape) -> Result<(), String> {
    let Shape { m, h, l, p, n, .. } = shape;
    let (page, split) = if m == 1 { (64, 3) } else { (16, 4) };
    let width = l + p;
    let (lengths, table, pages) = requests(m, page);
    let bind = [
        ("M", m as i64),
        ("H", h as i64),
        ("L", l as i64),
        ("P", p as i64),
        ("PAGE", page as i64),
        ("NP", NP as i64),
        ("SPLIT", split as i64),
    ];
    let decode = k3::build("mla_decode.tile", "mla_decode", &bind)?;
    let random = scaled(DType::Bf16, pages * page * width, 11, 1.0)?;
    let nan = kernel_abi::numeric::float_from_f64(DType::Bf16, f64::NAN).ok_or("bf16 has NaN")?;
    let mut codes = vec![nan; pages * page * width];
    for (i, &length) in lengths.iter().enumerate() {
        for at in 0..=length as usize {
            let first = (table[i * NP + at / page] as usize * page + at % page) * width;
            for (place, slot) in codes[first..first + width].iter_mut().enumerate() {
                *slot = random.code(first + place).ok_or("random buffers are written")?;
            }
        }
    }
    let memory = k3::memory(
        &decode,
        vec![
            ("len", Buffer::from_i32(&lengths)),
            ("table", Buffer::from_i32(&table)),
            ("q", scaled(DType::Bf16, m * h * width, 12, 2.0)?),
            ("cache", Buffer::from_codes(DType::Bf16, &codes)),
        ],
        &[("pages", pages as f64), ("scale", ((n + p) as f64).powf(-0.5))],
    )?;
    let after = check(&decode, memory, |a| {
        let (q, cache, scale) = (a.buffer("q"), a.buffer("cache"), a.scalar("scale"));
        let (mut po, mut pl) = (Vec::new(), Vec::new());
        for (i, &length) in lengths.iter().enumerate() {
            let count = (length as usize + 1).div_ceil(page);
            let share = count.div_ceil(split);
            for part in 0..split {
                let end = ((part + 1) * share * page).min(length as usize + 1);
                let rows: Vec<f64> = (part * share * page..end)
                    .map(|at| table[i * NP + at / page] as usize * page + at % page)
                    .flat_map(|row| cache[row * width..][..width].to_vec())
                    .collect();
                for q in q[i * h * width..][..h * width].chunks(width) {
                    let reading = mla::attend(q, &rows, l, scale);
                    po.extend(reading.o);
                    pl.push(reading.lse);
                }
            }
        }
        vec![("po", po), ("pl", pl)]
    })?;
    merge(shape, split, |name| {
        let id = runner::param(&decode, name)?;
        after.buffer(id).cloned().ok_or_else(|| format!("`{name}` has no buffer"))
    })
}

/// Joins the shares that the kernel before has made.
fn merge(
    shape: Shape,
    split: usize,
    part: impl Fn(&str) -> Result<Buffer, String>,
) -> Result<(), String> {
    let Shape { m, h, l, .. } = shape;
    let bind = [("M", m as i64), ("H", h as i64), ("L", l as i64), ("SPLIT", split as i64)];
    let built = k3::build("mla_decode.tile", "mla_merge", &bind)?;
    let memory = k3::memory(&built, vec![("po", part("po")?), ("pl", part("pl")?)], &[])?;
    check(&built, memory, |a| {
        let (po, pl) = (a.buffer("po"), a.buffer("pl"));
        let (mut o, mut lse) = (Vec::new(), Vec::new());
        for i in 0..m {
            for head in 0..h {
                let parts: Vec<(&[f64], f64)> = (0..split)
                    .map(|s| (i * split + s) * h + head)
                    .map(|at| (&po[at * l..][..l], pl[at]))
                    .collect();
                let (one, sum) = mla::merge(&parts);
                o.extend(one);
                lse.push(sum);
            }
        }
        vec![("o", o), ("lse", lse)]
    })?;
    Ok(())
}
