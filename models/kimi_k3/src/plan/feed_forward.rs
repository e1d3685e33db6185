//! The MLPs: dense, and latent mixture of experts beside the shared MLP; outputs are whole on every rank.

use kernel_abi::DType;
use kernel_abi::plan::{BufferId, Scalar};

use super::{Columns, GROUP, Step, tile};
use crate::names::{self, moe::Matrix};
use crate::weights::{Piece, Recipe};

/// The tensors of an MLP: gate, linear part, back.
struct Mlp {
    gate: String,
    up: String,
    down: String,
}

impl Step<'_> {
    /// Gate, up and SiTU of an MLP of `all` inner columns: bf16 `[rows, all / ranks]`.
    fn gate_up(&mut self, name: &str, tensors: &Mlp, x: BufferId, all: u64) -> BufferId {
        let (rows, hidden) = (self.options.rows, self.shape.hidden);
        let width = all / self.options.ranks;
        let w = self.weight(
            format!("{name}.gate_up.weight"),
            DType::Bf16,
            &[2 * width, hidden],
            |rank| {
                let half = |name: &String| {
                    let share = rank * width..(rank + 1) * width;
                    Piece::rows(name, DType::Bf16, share, all, hidden)
                };
                Recipe::Rows([&tensors.gate, &tensors.up].map(half).into())
            },
        );
        let x = Columns { buffer: x, width: hidden, start: 0 };
        let both = self.gemv(&format!("{name}.gate_up"), w, x, 2 * width, hidden, DType::Bf16);
        let act = self.activation(format!("{name}.act"), DType::Bf16, &[rows, width]);
        self.plan
            .kernel(format!("{name}.situ"), "situ.tile", "situ_gate", &[("M", rows), ("I", width)])
            .read("gate_up", both)
            .write("y", act)
            .scalar("beta", Scalar::F32(self.shape.beta))
            .scalar("linear_beta", Scalar::F32(self.shape.linear_beta))
            .add();
        act
    }

    /// The down-projection of an MLP, not yet summed over the ranks: f32 `[rows, hidden]`.
    fn down(&mut self, name: &str, tensors: &Mlp, act: BufferId, all: u64) -> BufferId {
        let hidden = self.shape.hidden;
        let width = all / self.options.ranks;
        let w = self.weight(format!("{name}.down.weight"), DType::Bf16, &[hidden, width], |rank| {
            let columns = rank * width..(rank + 1) * width;
            Recipe::Rows(vec![Piece::columns(&tensors.down, DType::Bf16, hidden, columns, all)])
        });
        let act = Columns { buffer: act, width, start: 0 };
        self.gemv(&format!("{name}.down"), w, act, hidden, width, DType::F32)
    }

    pub(super) fn dense(&mut self, layer: usize, x: BufferId) -> BufferId {
        let name = format!("layer{layer}.dense");
        let tensors = Mlp {
            gate: names::dense::gate_proj(layer),
            up: names::dense::up_proj(layer),
            down: names::dense::down_proj(layer),
        };
        let act = self.gate_up(&name, &tensors, x, self.shape.dense);
        let part = self.down(&name, &tensors, act, self.shape.dense);
        let shape = [self.options.rows, self.shape.hidden];
        let out = self.activation(format!("layer{layer}.ffn_out"), DType::F32, &shape);
        self.plan.all_reduce(format!("layer{layer}.ffn_out"), part, out);
        out
    }

    pub(super) fn moe(&mut self, layer: usize, x: BufferId) -> BufferId {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let (hidden, latent) = (self.shape.hidden, self.shape.latent);
        let name = |part: &str| format!("layer{layer}.{part}");
        let columns = Columns { buffer: x, width: hidden, start: 0 };
        let (ids, weights) = self.route(layer, columns);

        let w = self.weight(name("latent_down.weight"), DType::Bf16, &[latent, hidden], |_| {
            let tensor = names::moe::latent_down(layer);
            Recipe::Rows(vec![Piece::whole(&tensor, DType::Bf16, latent, hidden)])
        });
        let z = self.gemv(&name("latent"), w, columns, latent, hidden, DType::Bf16);
        let routed = self.experts(layer, z, ids, weights);

        // The norm needs the sum over all ranks.
        let sum = self.activation(name("latent_sum"), DType::F32, &[rows, latent]);
        self.plan.all_reduce(name("latent_sum"), routed, sum);
        let gamma = self.vector(names::moe::latent_norm(layer), DType::Bf16, latent);
        let normed = self.activation(name("latent_norm"), DType::Bf16, &[rows, latent]);
        self.plan
            .kernel(
                name("latent_norm"),
                "latent_norm.tile",
                "latent_norm",
                &[("M", rows), ("W", latent)],
            )
            .read("gamma", gamma)
            .read("x", sum)
            .write("out", normed)
            .scalar("eps", Scalar::F32(self.shape.eps))
            .add();

        let shared_name = name("shared");
        let tensors = Mlp {
            gate: names::moe::shared_gate(layer),
            up: names::moe::shared_up(layer),
            down: names::moe::shared_down(layer),
        };
        let act = self.gate_up(&shared_name, &tensors, x, self.shape.shared);
        let part = self.down(&shared_name, &tensors, act, self.shape.shared);
        let stripe = hidden / ranks;
        let shared = self.activation(name("shared.stripe"), DType::F32, &[rows, stripe]);
        self.plan.reduce_scatter(name("shared.stripe"), part, shared, rows);

        let w = self.weight(name("latent_up.weight"), DType::Bf16, &[stripe, latent], |rank| {
            let tensor = names::moe::latent_up(layer);
            let share = rank * stripe..(rank + 1) * stripe;
            Recipe::Rows(vec![Piece::rows(&tensor, DType::Bf16, share, hidden, latent)])
        });
        let out_stripe = self.activation(name("ffn_out.stripe"), DType::F32, &[rows, stripe]);
        let tile = tile::gemv(rows, stripe, latent);
        let nothing = self.nothing();
        self.plan
            .kernel(
                name("latent_up"),
                "gemv.tile",
                "gemv_add",
                &[
                    ("M", rows),
                    ("N", stripe),
                    ("K", latent),
                    ("XW", latent),
                    ("X0", 0),
                    ("ROWS", tile.rows),
                    ("STEP", tile.step),
                    ("AHEAD", tile.ahead),
                ],
            )
            .read("W", w)
            .read("x", normed)
            .read("add", shared)
            .write("y", out_stripe)
            .read("next_w", nothing)
            .add();
        let out = self.activation(name("ffn_out"), DType::F32, &[rows, hidden]);
        self.plan.all_gather(name("ffn_out"), out_stripe, out, rows);
        out
    }

    /// The experts of each row, best first, and their weights.
    fn route(&mut self, layer: usize, x: Columns) -> (BufferId, BufferId) {
        let (rows, hidden) = (self.options.rows, self.shape.hidden);
        let (experts, top_k) = (self.shape.experts, self.shape.top_k);
        let name = |part: &str| format!("layer{layer}.{part}");
        let w = self.weight(name("router.weight"), DType::Bf16, &[experts, hidden], |_| {
            let tensor = names::moe::gate(layer);
            Recipe::Rows(vec![Piece::whole(&tensor, DType::Bf16, experts, hidden)])
        });
        let logits = self.gemv(&name("router_logits"), w, x, experts, hidden, DType::F32);
        let bias = self.vector(names::moe::gate_bias(layer), DType::F32, experts);
        let ids = self.activation(name("picked"), DType::I32, &[rows, top_k]);
        let weights = self.activation(name("weights"), DType::F32, &[rows, top_k]);
        self.plan
            .kernel(
                name("top_k"),
                "router.tile",
                "router_topk",
                &[("M", rows), ("E", experts), ("K", top_k)],
            )
            .read("bias", bias)
            .read("z", logits)
            .write("id", ids)
            .write("wt", weights)
            .scalar("factor", Scalar::F32(self.shape.routed_scale))
            .add();
        (ids, weights)
    }

    /// The weighted sum of the picked experts over this rank's columns: f32 `[rows, latent]`.
    fn experts(&mut self, layer: usize, z: BufferId, ids: BufferId, weights: BufferId) -> BufferId {
        let (rows, ranks) = (self.options.rows, self.options.ranks);
        let (experts, top_k) = (self.shape.experts, self.shape.top_k);
        let (latent, all) = (self.shape.latent, self.shape.expert);
        let width = all / ranks;
        let name = |part: &str| format!("layer{layer}.{part}");
        // Bytes of a packed row: two codes each; one scale a group.
        let gate_up = |rank: u64, part: fn(usize, usize, Matrix) -> String, columns: u64| {
            let share = rank * width..(rank + 1) * width;
            let pieces = (0..experts as usize).flat_map(|e| {
                [Matrix::W1, Matrix::W3].map(|matrix| {
                    let name = part(layer, e, matrix);
                    Piece::rows(&name, DType::U8, share.clone(), all, columns)
                })
            });
            Recipe::Rows(pieces.collect())
        };
        let down = |rank: u64, part: fn(usize, usize, Matrix) -> String, per_byte: u64| {
            let columns = rank * width / per_byte..(rank + 1) * width / per_byte;
            let pieces = (0..experts as usize).map(|e| {
                let name = part(layer, e, Matrix::W2);
                Piece::columns(&name, DType::U8, latent, columns.clone(), all / per_byte)
            });
            Recipe::Rows(pieces.collect())
        };
        let w13 = self.weight(name("w13"), DType::E2m1, &[experts, 2, width, latent], |rank| {
            gate_up(rank, names::moe::packed, latent / 2)
        });
        let s13 = self.weight(
            name("w13.scale"),
            DType::Ue8m0,
            &[experts, 2, width, latent / GROUP],
            |rank| gate_up(rank, names::moe::scale, latent / GROUP),
        );
        let w2 = self.weight(name("w2"), DType::E2m1, &[experts, latent, width], |rank| {
            down(rank, names::moe::packed, 2)
        });
        let s2 = self.weight(
            name("w2.scale"),
            DType::Ue8m0,
            &[experts, latent, width / GROUP],
            |rank| down(rank, names::moe::scale, GROUP),
        );
        let bindings = [("M", rows), ("K", top_k), ("E", experts), ("I", width), ("Z", latent)];
        let picks = rows * top_k;
        let act = self.activation(name("expert_act"), DType::Bf16, &[picks, width]);
        self.plan
            .kernel(name("expert_w13"), "experts.tile", "expert_w13", &bindings)
            .read("w13", w13)
            .read("s13", s13)
            .read("id", ids)
            .read("z", z)
            .write("act", act)
            .scalar("beta", Scalar::F32(self.shape.beta))
            .scalar("linear_beta", Scalar::F32(self.shape.linear_beta))
            .add();
        let y = self.activation(name("expert_out"), DType::F32, &[picks, latent]);
        self.plan
            .kernel(name("expert_w2"), "experts.tile", "expert_w2", &bindings)
            .read("w2", w2)
            .read("s2", s2)
            .read("id", ids)
            .read("act", act)
            .write("y", y)
            .add();
        let out = self.activation(name("expert_sum"), DType::F32, &[rows, latent]);
        self.plan
            .kernel(
                name("expert_sum"),
                "experts.tile",
                "expert_sum",
                &[("M", rows), ("K", top_k), ("Z", latent)],
            )
            .read("y", y)
            .read("wt", weights)
            .write("out", out)
            .add();
        out
    }
}
