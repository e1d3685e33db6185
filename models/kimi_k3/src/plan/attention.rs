//! The mixers: KDA and MLA, up to the summed output of `o_proj`.

use kernel_abi::DType;
use kernel_abi::plan::{BufferId, Scalar};

use super::{Columns, PAGE, Step};
use crate::names;
use crate::reference::kda;
use crate::weights::{Piece, Recipe};

/// Taps of the convolution, and the inputs that it keeps.
const TAPS: u64 = kda::TAPS as u64;
const WINDOW: u64 = kda::WINDOW as u64;

/// Shares of the pages of all requests at most: about as many as an H200 or B200 has multiprocessors, 132 and 148.
const MOST_SHARES: u64 = 128;

/// Rows of a merged projection are padded to this.
const ROW_PAD: u64 = 16;

impl Step<'_> {
    /// The merged projection of the mixer's input: the pieces of a rank one below the other, padded.
    fn in_proj(
        &mut self,
        layer: usize,
        x: BufferId,
        pieces: impl Fn(u64) -> Vec<Piece>,
    ) -> Columns {
        let hidden = self.shape.hidden;
        let rows: u64 = pieces(0).iter().map(Piece::row_count).sum();
        let width = rows.div_ceil(ROW_PAD) * ROW_PAD;
        let name = format!("layer{layer}.in_proj");
        let w = self.weight(format!("{name}.weight"), DType::Bf16, &[width, hidden], |rank| {
            let mut pieces = pieces(rank);
            pieces.push(Piece::zeros(DType::Bf16, width - rows, hidden));
            Recipe::Rows(pieces)
        });
        let x = Columns { buffer: x, width: hidden, start: 0 };
        let buffer = self.gemv(&name, w, x, width, hidden, DType::Bf16);
        Columns { buffer, width, start: 0 }
    }

    /// The output projection of `k` columns a rank, summed over the ranks: f32 `[rows, hidden]`.
    fn o_proj(&mut self, layer: usize, x: BufferId, k: u64) -> BufferId {
        let hidden = self.shape.hidden;
        let name = format!("layer{layer}.o_proj");
        let tensor = names::o_proj(layer);
        let all = k * self.options.ranks;
        let w = self.weight(format!("{name}.weight"), DType::Bf16, &[hidden, k], |rank| {
            let columns = rank * k..(rank + 1) * k;
            Recipe::Rows(vec![Piece::columns(&tensor, DType::Bf16, hidden, columns, all)])
        });
        let x = Columns { buffer: x, width: k, start: 0 };
        let part = self.gemv(&name, w, x, hidden, k, DType::F32);
        let sum = self.activation(
            format!("layer{layer}.attn_out"),
            DType::F32,
            &[self.options.rows, hidden],
        );
        self.plan.all_reduce(format!("layer{layer}.attn_out"), part, sum);
        sum
    }

    pub(super) fn kda(&mut self, layer: usize, x: BufferId) -> BufferId {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let (all_heads, dim, hidden) =
            (self.shape.kda_heads, self.shape.kda_dim, self.shape.hidden);
        let heads = all_heads / ranks;
        let (width, all) = (heads * dim, all_heads * dim);
        let name = |part: &str| format!("layer{layer}.{part}");
        let proj = self.in_proj(layer, x, |rank| {
            let share = rank * width..(rank + 1) * width;
            let head = rank * heads..(rank + 1) * heads;
            let rows_of =
                |name: String| Piece::rows(&name, DType::Bf16, share.clone(), all, hidden);
            let (q, k, v) =
                (names::kda::q_proj(layer), names::kda::k_proj(layer), names::kda::v_proj(layer));
            let mut pieces: Vec<Piece> = [q, k, v, names::g_proj(layer)].map(rows_of).into();
            let (f_a, b) = (names::kda::f_a_proj(layer), names::kda::b_proj(layer));
            pieces.push(Piece::whole(&f_a, DType::Bf16, dim, hidden));
            pieces.push(Piece::rows(&b, DType::Bf16, head, all_heads, hidden));
            pieces
        });
        let at = |start: u64| Columns { start, ..proj };
        let share = |rank: u64| rank * width..(rank + 1) * width;

        let f_b = self.weight(name("f_b.weight"), DType::Bf16, &[width, dim], |rank| {
            let tensor = names::kda::f_b_proj(layer);
            Recipe::Rows(vec![Piece::rows(&tensor, DType::Bf16, share(rank), all, dim)])
        });
        let f = self.gemv(&name("f"), f_b, at(4 * width), width, dim, DType::Bf16);

        let taps = self.weight(name("conv.weight"), DType::F32, &[3 * width, TAPS], |rank| {
            let parts = [
                names::kda::q_conv1d(layer),
                names::kda::k_conv1d(layer),
                names::kda::v_conv1d(layer),
            ];
            let rows_of = |name: String| Piece::rows(&name, DType::F32, share(rank), all, TAPS);
            Recipe::Rows(parts.map(rows_of).into())
        });
        let slots = rows + 1;
        let window = self.state(name("conv_state"), DType::Bf16, &[slots, WINDOW, 3 * width]);
        let conv = self.activation(name("conv_out"), DType::F32, &[rows, 3 * width]);
        self.plan
            .kernel(
                name("conv"),
                "kda_conv.tile",
                "kda_conv",
                &[("M", rows), ("C", 3 * width), ("SLOTS", slots), ("XW", proj.width)],
            )
            .read("w", taps)
            .read("slot", self.slots)
            .read("x", proj.buffer)
            .update("window", window)
            .write("y", conv)
            .add();

        let a_log = self.weight(name("a_log"), DType::F32, &[heads], |rank| {
            let head = rank * heads..(rank + 1) * heads;
            Recipe::Rows(vec![Piece::columns(
                &names::kda::a_log(layer),
                DType::F32,
                1,
                head,
                all_heads,
            )])
        });
        let dt_bias = self.weight(name("dt_bias"), DType::F32, &[heads, dim], |rank| {
            Recipe::Rows(vec![Piece::columns(
                &names::kda::dt_bias(layer),
                DType::F32,
                1,
                share(rank),
                all,
            )])
        });
        let decay = self.activation(name("decay"), DType::F32, &[rows, heads, dim]);
        let beta = self.activation(name("beta"), DType::F32, &[rows, heads]);
        let b = at(4 * width + dim);
        self.plan
            .kernel(
                name("gate"),
                "kda_gate.tile",
                "kda_gate",
                &[("M", rows), ("H", heads), ("D", dim), ("XW", b.width), ("X0", b.start)],
            )
            .read("a_log", a_log)
            .read("dt_bias", dt_bias)
            .read("f", f)
            .read("proj", b.buffer)
            .write("decay", decay)
            .write("beta", beta)
            .scalar("lower", Scalar::F32(self.shape.gate_lower))
            .add();

        let state = self.state(name("kda_state"), DType::F32, &[slots, heads, dim, dim]);
        let o = self.activation(name("o_state"), DType::F32, &[rows, heads, dim]);
        self.plan
            .kernel(
                name("recurrence"),
                "kda_recurrence.tile",
                "kda_recurrence",
                &[("M", rows), ("H", heads), ("D", dim), ("SLOTS", slots)],
            )
            .read("slot", self.slots)
            .read("y", conv)
            .read("decay", decay)
            .read("beta", beta)
            .update("S", state)
            .write("o", o)
            .add();

        let gamma = self.vector(names::kda::o_norm(layer), DType::Bf16, dim);
        let gated = self.activation(name("o_gated"), DType::Bf16, &[rows, heads, dim]);
        let g = at(3 * width);
        self.plan
            .kernel(
                name("gated_norm"),
                "kda_norm.tile",
                "kda_gated_norm",
                &[("M", rows), ("H", heads), ("D", dim), ("XW", g.width), ("X0", g.start)],
            )
            .read("gamma", gamma)
            .read("o", o)
            .read("proj", g.buffer)
            .write("out", gated)
            .scalar("eps", Scalar::F32(self.shape.eps))
            .add();
        self.o_proj(layer, gated, width)
    }

    pub(super) fn mla(&mut self, layer: usize, x: BufferId) -> BufferId {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let shape = self.shape;
        let heads = shape.heads / ranks;
        let (hidden, q_lora, latent) = (shape.hidden, shape.q_lora, shape.kv_lora);
        let (nope, rope, v_dim) = (shape.nope, shape.rope, shape.v_dim);
        let (cache_row, query) = (latent + rope, nope + rope);
        let eps = Scalar::F32(shape.latent_eps);
        let name = |part: &str| format!("layer{layer}.{part}");
        let proj = self.in_proj(layer, x, |rank| {
            let share = rank * heads * v_dim..(rank + 1) * heads * v_dim;
            let all = shape.heads * v_dim;
            vec![
                Piece::whole(&names::mla::q_a_proj(layer), DType::Bf16, q_lora, hidden),
                Piece::whole(&names::mla::kv_a_proj(layer), DType::Bf16, cache_row, hidden),
                Piece::rows(&names::g_proj(layer), DType::Bf16, share, all, hidden),
            ]
        });
        let at = |start: u64| Columns { start, ..proj };

        let gamma = self.vector(names::mla::q_a_layernorm(layer), DType::Bf16, q_lora);
        let c_q = self.activation(name("c_q"), DType::Bf16, &[rows, q_lora]);
        self.plan
            .kernel(
                name("q_norm"),
                "rms_norm.tile",
                "rms_norm",
                &[("M", rows), ("W", q_lora), ("XW", proj.width), ("X0", 0)],
            )
            .read("gamma", gamma)
            .read("x", proj.buffer)
            .write("out", c_q)
            .scalar("eps", eps)
            .add();

        let q_b = self.weight(name("q_b.weight"), DType::Bf16, &[heads * query, q_lora], |rank| {
            let share = rank * heads * query..(rank + 1) * heads * query;
            let all = shape.heads * query;
            Recipe::Rows(vec![Piece::rows(
                &names::mla::q_b_proj(layer),
                DType::Bf16,
                share,
                all,
                q_lora,
            )])
        });
        let c_q = Columns { buffer: c_q, width: q_lora, start: 0 };
        let q = self.gemv(&name("q"), q_b, c_q, heads * query, q_lora, DType::Bf16);

        // Rows of kv_b_proj: for each head nope rows of keys, then v_dim rows of values.
        let kv_rows = shape.heads * (nope + v_dim);
        let kv_b = |rank: u64, first: u64, count: u64| {
            let head = move |h: u64| (rank * heads + h) * (nope + v_dim) + first;
            let name = names::mla::kv_b_proj(layer);
            (0..heads)
                .map(|h| Piece::rows(&name, DType::Bf16, head(h)..head(h) + count, kv_rows, latent))
                .collect::<Vec<Piece>>()
        };
        let wuk = self.weight(name("wuk"), DType::Bf16, &[heads, latent, nope], |rank| {
            Recipe::Transposed(kv_b(rank, 0, nope))
        });
        let wuv = self.weight(name("wuv"), DType::Bf16, &[heads, v_dim, latent], |rank| {
            Recipe::Rows(kv_b(rank, nope, v_dim))
        });
        let absorbed = self.activation(name("q_absorbed"), DType::Bf16, &[rows, heads, cache_row]);
        self.plan
            .kernel(
                name("absorb"),
                "mla_absorb.tile",
                "mla_absorb",
                &[("M", rows), ("H", heads), ("N", nope), ("P", rope), ("L", latent)],
            )
            .read("wuk", wuk)
            .read("q", q)
            .write("out", absorbed)
            .add();

        let per_request = self.options.context / PAGE;
        let pages = self.all_pages();
        let cache = self.state(name("mla_cache"), DType::Bf16, &[pages, PAGE, cache_row]);
        let gamma = self.vector(names::mla::kv_a_layernorm(layer), DType::Bf16, latent);
        let paging = [("PAGE", PAGE), ("NP", per_request), ("L", latent), ("P", rope)];
        let kv = at(q_lora);
        let mut bindings = vec![("M", rows), ("XW", kv.width), ("X0", kv.start)];
        bindings.extend(paging);
        self.plan
            .kernel(name("cache_insert"), "mla_cache.tile", "mla_cache_insert", &bindings)
            .read("gamma", gamma)
            .read("len", self.positions)
            .read("table", self.pages)
            .read("proj", kv.buffer)
            .update("cache", cache)
            .scalar("pages", Scalar::I32(pages as i32))
            .scalar("eps", eps)
            .add();

        // As short as a page, as long as every multiprocessor has one.
        let split = per_request.clamp(1, MOST_SHARES.div_ceil(rows));
        let po = self.activation(name("split.o"), DType::F32, &[rows, split, heads, latent]);
        let pl = self.activation(name("split.lse"), DType::F32, &[rows, split, heads]);
        let mut bindings = vec![("M", rows), ("H", heads), ("SPLIT", split)];
        bindings.extend(paging);
        self.plan
            .kernel(name("attention"), "mla_decode.tile", "mla_decode", &bindings)
            .read("len", self.positions)
            .read("table", self.pages)
            .read("q", absorbed)
            .read("cache", cache)
            .write("po", po)
            .write("pl", pl)
            .scalar("pages", Scalar::I32(pages as i32))
            .scalar("scale", Scalar::F32((query as f32).sqrt().recip()))
            .add();
        let o_latent = self.activation(name("o_latent"), DType::Bf16, &[rows, heads, latent]);
        let lse = self.activation(name("lse"), DType::F32, &[rows, heads]);
        self.plan
            .kernel(
                name("merge"),
                "mla_decode.tile",
                "mla_merge",
                &[("M", rows), ("H", heads), ("L", latent), ("SPLIT", split)],
            )
            .read("po", po)
            .read("pl", pl)
            .write("o", o_latent)
            .write("lse", lse)
            .add();

        let o = self.activation(name("o"), DType::Bf16, &[rows, heads, v_dim]);
        self.plan
            .kernel(
                name("value"),
                "mla_value.tile",
                "mla_value",
                &[("M", rows), ("H", heads), ("V", v_dim), ("L", latent)],
            )
            .read("wuv", wuv)
            .read("o", o_latent)
            .write("out", o)
            .add();
        let width = heads * v_dim;
        let gated = self.activation(name("o_gated"), DType::Bf16, &[rows, width]);
        let g = at(q_lora + cache_row);
        self.plan
            .kernel(
                name("gate"),
                "mla_gate.tile",
                "mla_gate",
                &[("M", rows), ("W", width), ("XW", g.width), ("X0", g.start)],
            )
            .read("o", o)
            .read("proj", g.buffer)
            .write("out", gated)
            .add();
        self.o_proj(layer, gated, width)
    }
}
