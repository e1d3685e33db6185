//! The decode step of Kimi K3 as a plan: every operation a kernel, for 1 to 16 tensor-parallel ranks.
//!
//! A step takes one token for each of `rows` requests. The host fills [`HostBuffers::ids`], `positions`,
//! `slots` and `pages`; the step leaves logits and the greedy choice. The state of a request is its slot of
//! the convolution windows and recurrent states and its pages of the latent caches.
//!
//! How the ranks share the work: attention by heads, every MLP and every expert by columns of its inner
//! width, the latent up-projection and the vocabulary by rows; norms, router, latent down-projection and
//! the low-rank projections are the same on all ranks.

mod attention;
mod feed_forward;
mod shape;
mod tile;

use kernel_abi::DType;
use kernel_abi::plan::{BufferId, BufferRole, Plan, PlanBuilder, Promise, Region, Scalar};

use crate::config::{self, Attention, Config, MAX_BLOCKS};
use crate::names;
use crate::weights::{Piece, Recipe};

pub use shape::ShapeError;

use shape::ModelShape;

/// Snapshots that the kernel of the mix has room for.
const SLOTS: u64 = MAX_BLOCKS as u64;

/// Elements of a row of a packed expert that share a scale.
const GROUP: u64 = config::GROUP as u64;

/// Positions of a page of the latent cache.
pub const PAGE: u64 = 64;

/// What a decode plan is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Tokens of a step, one a request: 1, 2, 4 or 8.
    pub rows: u64,
    /// Tensor-parallel ranks: 1 to 16.
    pub ranks: u64,
    /// Positions that a request can have; rounded up to whole pages.
    pub context: u64,
}

/// A decode step with the buffers that the host uses.
#[derive(Debug, Clone)]
pub struct DecodePlan {
    /// The nodes and buffers.
    pub plan: Plan,
    /// How each weight of a rank is made from the checkpoint: `weights[i].1[rank]`.
    pub weights: Vec<(BufferId, Vec<Recipe>)>,
    /// The buffers that the host uses.
    pub host: HostBuffers,
}

/// The buffers of a decode step that the host writes and reads.
#[derive(Debug, Clone)]
pub struct HostBuffers {
    /// i32 `[rows]`: token ids. The host writes it.
    pub ids: BufferId,
    /// i32 `[rows]`: position of each token, which is the number of tokens before it. The host writes it.
    pub positions: BufferId,
    /// i32 `[rows]`: slot of each request's state; 0 stands for no request. The host writes it.
    pub slots: BufferId,
    /// i32 `[rows, pages of a request]`: pages of each request's cache. The host writes it.
    pub pages: BufferId,
    /// f32 `[rows, vocab]`.
    pub logits: BufferId,
    /// f32 `[rows, ranks]`: greatest logit of each rank's part of the vocabulary.
    pub best: BufferId,
    /// i32 `[rows, ranks]`: the id of each of them.
    pub best_ids: BufferId,
    /// Buffers that keep state from step to step.
    pub states: Vec<BufferId>,
    /// What the step is made for; `context` is a multiple of [`PAGE`].
    pub options: DecodeOptions,
    /// Entries of the vocabulary.
    pub vocab: u64,
}

impl HostBuffers {
    /// Pages of one request.
    pub fn pages_per_request(&self) -> u64 {
        self.options.context / PAGE
    }

    /// The pages of each row when every row has its own: row `m` has the pages from
    /// `1 + m * pages_per_request`; page 0 belongs to no request.
    pub fn own_pages(&self) -> Vec<i32> {
        (1..=self.options.rows * self.pages_per_request()).map(|page| page as i32).collect()
    }

    /// The slots of each row when every row has its own: 1, 2, …
    pub fn own_slots(&self) -> Vec<i32> {
        (1..=self.options.rows).map(|slot| slot as i32).collect()
    }
}

impl DecodeOptions {
    /// Whether there is a plan for a model; quick, where making one is not.
    ///
    /// # Errors
    /// As [`DecodePlan::new`].
    pub fn check(&self, config: &Config) -> Result<(), ShapeError> {
        ModelShape::of(config).check(self)
    }
}

impl DecodePlan {
    /// The plan of a model.
    ///
    /// # Errors
    /// Ranks that do not divide what they share, rows that no kernel takes, or too long a context.
    pub fn new(config: &Config, options: DecodeOptions) -> Result<DecodePlan, ShapeError> {
        let shape = &ModelShape::of(config);
        shape.check(&options)?;
        let context = options.context.div_ceil(PAGE) * PAGE;
        let mut step = Step::new(shape, DecodeOptions { context, ..options });
        step.embed();
        for layer in 0..shape.layers.len() {
            step.layer(layer);
        }
        Ok(step.finish())
    }
}

/// The buffers that every layer reads.
struct Step<'s> {
    shape: &'s ModelShape,
    options: DecodeOptions,
    plan: PlanBuilder,
    weights: Vec<(BufferId, Vec<Recipe>)>,
    states: Vec<BufferId>,
    ids: BufferId,
    positions: BufferId,
    slots: BufferId,
    pages: BufferId,
    /// bf16 `[SLOTS, rows, hidden]`: snapshots of the prefix stream.
    blocks: BufferId,
    /// Snapshots taken.
    snapshots: u64,
    /// bf16 `[rows, hidden]`: the prefix stream.
    prefix: BufferId,
}

/// A row-major activation with columns `start..` of rows of `width`.
#[derive(Debug, Clone, Copy)]
struct Columns {
    buffer: BufferId,
    width: u64,
    start: u64,
}

impl<'s> Step<'s> {
    fn new(shape: &'s ModelShape, options: DecodeOptions) -> Step<'s> {
        let mut plan = PlanBuilder::new(options.ranks as u32);
        let rows = options.rows;
        let per_request = options.context / PAGE;
        let promise = |hi: u64, distinct: bool| BufferRole::Host {
            promise: Some(Promise {
                lo: 0,
                hi: hi as i64,
                distinct,
                except: distinct.then_some(0),
            }),
        };
        let pages = 1 + rows * per_request;
        let ids = plan.buffer("ids", DType::I32, &[rows], promise(shape.vocab, false));
        let positions =
            plan.buffer("positions", DType::I32, &[rows], promise(options.context, false));
        let slots = plan.buffer("slots", DType::I32, &[rows], promise(rows + 1, true));
        let pages = plan.buffer("pages", DType::I32, &[rows, per_request], promise(pages, true));
        let hidden = shape.hidden;
        let blocks = plan.buffer("blocks", DType::Bf16, &[SLOTS, rows, hidden], BufferRole::Step);
        let prefix = plan.buffer("embedding", DType::Bf16, &[rows, hidden], BufferRole::Step);
        Step {
            shape,
            options,
            plan,
            weights: Vec::new(),
            states: Vec::new(),
            ids,
            positions,
            slots,
            pages,
            blocks,
            snapshots: 0,
            prefix,
        }
    }

    /// Pages of the whole cache.
    fn all_pages(&self) -> u64 {
        1 + self.options.rows * (self.options.context / PAGE)
    }

    fn activation(&mut self, name: String, dtype: DType, shape: &[u64]) -> BufferId {
        self.plan.buffer(name, dtype, shape, BufferRole::Step)
    }

    fn state(&mut self, name: String, dtype: DType, shape: &[u64]) -> BufferId {
        let id = self.plan.buffer(name, dtype, shape, BufferRole::State);
        self.states.push(id);
        id
    }

    /// A weight whose part of rank `r` is `recipe(r)`.
    fn weight(
        &mut self,
        name: String,
        dtype: DType,
        shape: &[u64],
        recipe: impl Fn(u64) -> Recipe,
    ) -> BufferId {
        let id = self.plan.buffer(name, dtype, shape, BufferRole::Weight);
        self.weights.push((id, (0..self.options.ranks).map(recipe).collect()));
        id
    }

    /// A vector that is a whole tensor of the checkpoint on every rank.
    fn vector(&mut self, tensor: String, dtype: DType, len: u64) -> BufferId {
        let piece = Piece::whole(&tensor, dtype, 1, len);
        self.weight(tensor, dtype, &[len], |_| Recipe::Rows(vec![piece.clone()]))
    }

    /// `y[rows, n] = W x` with `W` of shape `[n, k]`.
    fn gemv(&mut self, name: &str, w: BufferId, x: Columns, n: u64, k: u64, y: DType) -> BufferId {
        let rows = self.options.rows;
        let out = self.activation(name.to_owned(), y, &[rows, n]);
        let kernel = if y == DType::F32 { "gemv_f32" } else { "gemv_bf16" };
        let tile = tile::gemv(rows, n, k);
        let nothing = self.nothing();
        self.plan
            .kernel(
                name,
                "gemv.tile",
                kernel,
                &[
                    ("M", rows),
                    ("N", n),
                    ("K", k),
                    ("XW", x.width),
                    ("X0", x.start),
                    ("ROWS", tile.rows),
                    ("STEP", tile.step),
                    ("AHEAD", tile.ahead),
                ],
            )
            .read("W", w)
            .read("x", x.buffer)
            .write("y", out)
            .read("next_w", nothing)
            .add();
        out
    }

    /// The mix of the snapshots and the prefix, and its norm: bf16 `[rows, hidden]`.
    fn mix(&mut self, name: &str, norm: &str, projection: &str, gamma: &str) -> BufferId {
        let (rows, hidden) = (self.options.rows, self.shape.hidden);
        let product = Recipe::Product { a: norm.to_owned(), b: projection.to_owned(), len: hidden };
        let wnp = self.weight(format!("{name}.wnp"), DType::F32, &[hidden], |_| product.clone());
        let gamma = self.vector(gamma.to_owned(), DType::Bf16, hidden);
        let h = self.activation(format!("{name}.h"), DType::Bf16, &[rows, hidden]);
        let out = self.activation(format!("{name}.x"), DType::Bf16, &[rows, hidden]);
        let bindings = [("M", rows), ("H", hidden), ("NB", self.snapshots)];
        self.plan
            .kernel(name, "attn_res_norm.tile", "attn_res_norm", &bindings)
            .read("wnp", wnp)
            .read("gamma", gamma)
            .read_prefix("blocks", self.blocks, self.snapshots * rows * hidden)
            .read("p", self.prefix)
            .write("h", h)
            .write("out", out)
            .scalar("eps", Scalar::F32(self.shape.eps))
            .add();
        out
    }

    fn embed(&mut self) {
        let (rows, hidden, ranks) = (self.options.rows, self.shape.hidden, self.options.ranks);
        let shard = self.shape.vocab / ranks;
        let tensor = names::embed_tokens();
        let vocab = self.shape.vocab;
        let table = self.weight("embed".into(), DType::Bf16, &[shard, hidden], |rank| {
            let rows = rank * shard..(rank + 1) * shard;
            Recipe::Rows(vec![Piece::rows(&tensor, DType::Bf16, rows, vocab, hidden)])
        });
        let firsts = (0..ranks).map(|rank| Scalar::I32((rank * shard) as i32)).collect();
        self.plan
            .kernel("embed", "embed.tile", "embed", &[("M", rows), ("V", shard), ("H", hidden)])
            .read("E", table)
            .read("ids", self.ids)
            .write("p", self.prefix)
            .scalars("first", firsts)
            .scalar("vocab", Scalar::I32(vocab as i32))
            .add();
        // Each row is on one rank and zero on the others, so the sum is exact.
        self.plan.all_reduce("embed.sum", self.prefix, self.prefix);
    }

    fn layer(&mut self, layer: usize) {
        let (rows, hidden) = (self.options.rows, self.shape.hidden);
        let name = |part: &str| format!("layer{layer}.{part}");
        let x = self.mix(
            &name("attn_mix"),
            &names::attention_res_norm(layer),
            &names::attention_res_proj(layer),
            &names::input_layernorm(layer),
        );
        let opens = (layer as u64).is_multiple_of(self.shape.block);
        if opens {
            let start = self.snapshots * rows * hidden;
            let src = Region { buffer: self.prefix, start: 0, len: rows * hidden };
            let dst = Region { buffer: self.blocks, start, len: rows * hidden };
            self.plan.copy(name("snapshot"), src, dst);
            self.snapshots += 1;
        }
        let y = match self.shape.layers[layer] {
            Attention::Kda => self.kda(layer, x),
            Attention::Mla => self.mla(layer, x),
        };
        self.add(&name("p_mid"), y, !opens);
        let x = self.mix(
            &name("mlp_mix"),
            &names::mlp_res_norm(layer),
            &names::mlp_res_proj(layer),
            &names::post_attention_layernorm(layer),
        );
        let y = if (layer as u64) < self.shape.dense_layers {
            self.dense(layer, x)
        } else {
            self.moe(layer, x)
        };
        self.add(&name("p_out"), y, true);
    }

    /// The prefix becomes `bf16(prefix + y)`, or `bf16(y)` where a block opens.
    fn add(&mut self, name: &str, y: BufferId, keeps: bool) {
        let (rows, hidden) = (self.options.rows, self.shape.hidden);
        let out = self.activation(name.to_owned(), DType::Bf16, &[rows, hidden]);
        let kernel = if keeps { "residual_add" } else { "residual_open" };
        let bindings = [("M", rows), ("H", hidden)];
        let mut node = self.plan.kernel(name, "residual.tile", kernel, &bindings).read("y", y);
        if keeps {
            node = node.read("p", self.prefix);
        }
        node.write("out", out).add();
        self.prefix = out;
    }

    fn finish(mut self) -> DecodePlan {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let (hidden, vocab) = (self.shape.hidden, self.shape.vocab);
        let x = self.mix(
            "final_mix",
            &names::output_res_norm(),
            &names::output_res_proj(),
            &names::norm(),
        );
        let shard = vocab / ranks;
        let head = self.weight("lm_head".into(), DType::Bf16, &[shard, hidden], |rank| {
            let rows = rank * shard..(rank + 1) * shard;
            let tensor = names::lm_head();
            Recipe::Rows(vec![Piece::rows(&tensor, DType::Bf16, rows, vocab, hidden)])
        });
        let x = Columns { buffer: x, width: hidden, start: 0 };
        let part = self.gemv("logits.part", head, x, shard, hidden, DType::F32);
        let logits = self.activation("logits".into(), DType::F32, &[rows, vocab]);
        self.plan.all_gather("logits", part, logits, rows);
        let (best, best_ids) = self.argmax(part, shard);
        let host = HostBuffers {
            ids: self.ids,
            positions: self.positions,
            slots: self.slots,
            pages: self.pages,
            logits,
            best,
            best_ids,
            states: self.states,
            options: self.options,
            vocab,
        };
        DecodePlan { plan: self.plan.finish(), weights: self.weights, host }
    }

    /// The greatest logit of each rank's part of the vocabulary and its id, gathered.
    fn argmax(&mut self, logits: BufferId, shard: u64) -> (BufferId, BufferId) {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let block = tile::argmax_block(shard);
        let blocks = shard.div_ceil(block);
        let bindings = [("M", rows), ("V", shard), ("BN", block)];
        let bv = self.activation("argmax.values".into(), DType::F32, &[rows, blocks]);
        let bi = self.activation("argmax.ids".into(), DType::I32, &[rows, blocks]);
        self.plan
            .kernel("argmax.block", "argmax.tile", "argmax_block", &bindings)
            .read("logits", logits)
            .write("bv", bv)
            .write("bi", bi)
            .add();
        let value = self.activation("argmax.best".into(), DType::F32, &[rows]);
        let at = self.activation("argmax.at".into(), DType::I32, &[rows]);
        let firsts = (0..ranks).map(|rank| Scalar::I32((rank * shard) as i32)).collect();
        self.plan
            .kernel("argmax.merge", "argmax.tile", "argmax_merge", &bindings)
            .read("bv", bv)
            .read("bi", bi)
            .write("best", value)
            .write("at", at)
            .scalars("first", firsts)
            .add();
        let best = self.activation("best".into(), DType::F32, &[rows, ranks]);
        let best_ids = self.activation("best_ids".into(), DType::I32, &[rows, ranks]);
        self.plan.all_gather("best", value, best, rows);
        self.plan.all_gather("best_ids", at, best_ids, rows);
        (best, best_ids)
    }

    /// The empty weight that stands for "no next weight to prefetch".
    fn nothing(&mut self) -> BufferId {
        let first = self.weights.iter().find(|(_, recipes)| recipes[0].is_nothing());
        match first {
            Some((id, _)) => *id,
            None => self.weight("nothing".into(), DType::U8, &[0], |_| Recipe::Rows(Vec::new())),
        }
    }
}
