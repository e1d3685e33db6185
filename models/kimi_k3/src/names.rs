//! Names of the checkpoint's tensors: one function a tensor.
//!
//! The shapes are those of the checkpoint, before any sharding; letters as in [`mod@crate::reference`].

/// Before every name of the text model.
const PREFIX: &str = "language_model";

macro_rules! model_names {
    ($($(#[$doc:meta])* $name:ident = $suffix:literal;)*) => {
        $($(#[$doc])* pub fn $name() -> String {
            format!(concat!("{}.", $suffix), PREFIX)
        })*
    };
}

macro_rules! layer_names {
    ($($(#[$doc:meta])* $name:ident = $suffix:literal;)*) => {
        $($(#[$doc])* pub fn $name(layer: usize) -> String {
            format!(concat!("{}.model.layers.{}.", $suffix), $crate::names::PREFIX, layer)
        })*
    };
}

model_names! {
    /// Token embedding, bf16 [vocab, hidden].
    embed_tokens = "model.embed_tokens.weight";
    /// Norm before the output, bf16 `[hidden]`.
    norm = "model.norm.weight";
    /// Norm weight of the last mix, bf16 `[hidden]`.
    output_res_norm = "model.output_attn_res_norm.weight";
    /// Projection of the last mix, bf16 [1, hidden].
    output_res_proj = "model.output_attn_res_proj.weight";
    /// Output projection, bf16 [vocab, hidden].
    lm_head = "lm_head.weight";
}

layer_names! {
    /// Norm before the attention, bf16 `[hidden]`.
    input_layernorm = "input_layernorm.weight";
    /// Norm before the feed-forward part, bf16 `[hidden]`.
    post_attention_layernorm = "post_attention_layernorm.weight";
    /// Norm weight of the mix before the attention, bf16 `[hidden]`. Layer 0 has one and does not use it.
    attention_res_norm = "self_attention_res_norm.weight";
    /// Projection of the mix before the attention, bf16 [1, hidden].
    attention_res_proj = "self_attention_res_proj.weight";
    /// Norm weight of the mix before the feed-forward part, bf16 `[hidden]`.
    mlp_res_norm = "mlp_res_norm.weight";
    /// Projection of the mix before the feed-forward part, bf16 [1, hidden].
    mlp_res_proj = "mlp_res_proj.weight";
    /// Output gate of the attention, bf16 [H * D, hidden] (KDA) or [H * V, hidden] (MLA).
    g_proj = "self_attn.g_proj.weight";
    /// Output projection of the attention, bf16 [hidden, H * D] (KDA) or [hidden, H * V] (MLA).
    o_proj = "self_attn.o_proj.weight";
}

/// Kimi Delta Attention.
pub mod kda {
    layer_names! {
        /// Queries, bf16 [H * D, hidden].
        q_proj = "self_attn.q_proj.weight";
        /// Keys, bf16 [H * D, hidden].
        k_proj = "self_attn.k_proj.weight";
        /// Values, bf16 [H * D, hidden].
        v_proj = "self_attn.v_proj.weight";
        /// Strength of an update, bf16 [H, hidden].
        b_proj = "self_attn.b_proj.weight";
        /// First half of the decay's input, bf16 [D, hidden].
        f_a_proj = "self_attn.f_a_proj.weight";
        /// Second half of the decay's input, bf16 [H * D, D].
        f_b_proj = "self_attn.f_b_proj.weight";
        /// Convolution of the queries, f32 [H * D, 1, 4], tap 0 oldest.
        q_conv1d = "self_attn.q_conv1d.weight";
        /// Convolution of the keys, f32 [H * D, 1, 4].
        k_conv1d = "self_attn.k_conv1d.weight";
        /// Convolution of the values, f32 [H * D, 1, 4].
        v_conv1d = "self_attn.v_conv1d.weight";
        /// Rate of the decay, f32 [H or more]: the first H are valid.
        a_log = "self_attn.A_log";
        /// Offset of the decay's input, f32 [H * D].
        dt_bias = "self_attn.dt_bias";
        /// Norm of the output, bf16 `[D]`.
        o_norm = "self_attn.o_norm.weight";
    }
}

/// Multi-head latent attention.
pub mod mla {
    layer_names! {
        /// Queries into their rank, bf16 [q_lora, hidden].
        q_a_proj = "self_attn.q_a_proj.weight";
        /// Norm there, bf16 `[q_lora]`.
        q_a_layernorm = "self_attn.q_a_layernorm.weight";
        /// Queries out of their rank, bf16 [H * (N + P), q_lora].
        q_b_proj = "self_attn.q_b_proj.weight";
        /// Latent and shared key, bf16 [L + P, hidden].
        kv_a_proj = "self_attn.kv_a_proj_with_mqa.weight";
        /// Norm of the latent, bf16 `[L]`.
        kv_a_layernorm = "self_attn.kv_a_layernorm.weight";
        /// Keys and values out of the latent, bf16 [H * (N + V), L].
        kv_b_proj = "self_attn.kv_b_proj.weight";
    }
}

/// The dense MLP.
pub mod dense {
    layer_names! {
        /// Gate, bf16 [width, hidden].
        gate_proj = "mlp.gate_proj.weight";
        /// Linear part, bf16 [width, hidden].
        up_proj = "mlp.up_proj.weight";
        /// Back, bf16 [hidden, width].
        down_proj = "mlp.down_proj.weight";
    }
}

/// The latent mixture of experts.
pub mod moe {
    layer_names! {
        /// Router, bf16 [E, hidden].
        gate = "block_sparse_moe.gate.weight";
        /// Bias of the selection, f32 `[E]`.
        gate_bias = "block_sparse_moe.gate.e_score_correction_bias";
        /// Into the latent, bf16 [Z, hidden].
        latent_down = "block_sparse_moe.routed_expert_down_proj.weight";
        /// Norm of the summed experts, bf16 `[Z]`.
        latent_norm = "block_sparse_moe.routed_expert_norm.weight";
        /// Out of the latent, bf16 [hidden, Z].
        latent_up = "block_sparse_moe.routed_expert_up_proj.weight";
        /// Gate of the shared MLP, bf16 [width, hidden].
        shared_gate = "block_sparse_moe.shared_experts.gate_proj.weight";
        /// Linear part of the shared MLP, bf16 [width, hidden].
        shared_up = "block_sparse_moe.shared_experts.up_proj.weight";
        /// Back from the shared MLP, bf16 [hidden, width].
        shared_down = "block_sparse_moe.shared_experts.down_proj.weight";
    }

    /// The three matrices of a routed expert.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Matrix {
        /// Gate, [I, Z].
        W1,
        /// Back, [Z, I].
        W2,
        /// Linear part, [I, Z].
        W3,
    }

    impl Matrix {
        /// All three, in the order of their numbers.
        pub const ALL: [Matrix; 3] = [Matrix::W1, Matrix::W2, Matrix::W3];

        /// As in the checkpoint's names.
        pub const fn name(self) -> &'static str {
            match self {
                Matrix::W1 => "w1",
                Matrix::W2 => "w2",
                Matrix::W3 => "w3",
            }
        }
    }

    fn expert(layer: usize, expert: usize, matrix: Matrix, part: &str) -> String {
        let (prefix, matrix) = (super::PREFIX, matrix.name());
        format!("{prefix}.model.layers.{layer}.block_sparse_moe.experts.{expert}.{matrix}.{part}")
    }

    /// Codes of e2m1, u8 [rows, cols / 2], the even column in the low nibble.
    pub fn packed(layer: usize, expert_id: usize, matrix: Matrix) -> String {
        expert(layer, expert_id, matrix, "weight_packed")
    }

    /// Codes of ue8m0, u8 [rows, cols / 32].
    pub fn scale(layer: usize, expert_id: usize, matrix: Matrix) -> String {
        expert(layer, expert_id, matrix, "weight_scale")
    }
}

/// A DSpark drafter, whose checkpoint has no prefix; it shares embedding and output projection with its target.
pub mod draft {
    macro_rules! names {
        ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
            $($(#[$doc])* pub const $name: &str = $text;)*
        };
    }

    macro_rules! layer_names {
        ($($(#[$doc:meta])* $name:ident = $suffix:literal;)*) => {
            $($(#[$doc])* pub fn $name(layer: usize) -> String {
                format!(concat!("layers.{}.", $suffix), layer)
            })*
        };
    }

    names! {
        /// The target's streams into its own, bf16 [hidden, taps * hidden].
        CONTEXT_PROJ = "context_proj.weight";
        /// Norm there, bf16 `[hidden]`.
        CONTEXT_NORM = "context_norm.weight";
        /// Norm before the output, bf16 `[hidden]`.
        FINAL_NORM = "final_norm.weight";
        /// Embedding of the token before, bf16 [vocab, rank].
        MARKOV_W1 = "markov_head.markov_w1.weight";
        /// From there to a bias of the logits, bf16 [vocab, rank].
        MARKOV_W2 = "markov_head.markov_w2.weight";
    }

    layer_names! {
        /// Norm before the attention, bf16 `[hidden]`.
        input_layernorm = "input_layernorm.weight";
        /// Norm before the MLP, bf16 `[hidden]`.
        post_attention_layernorm = "post_attention_layernorm.weight";
        /// Queries into their rank, bf16 [q_lora, hidden].
        q_a_proj = "self_attn.q_a_proj.weight";
        /// Norm there, bf16 `[q_lora]`.
        q_a_layernorm = "self_attn.q_a_layernorm.weight";
        /// Queries out of their rank, bf16 [H * (N + P), q_lora].
        q_b_proj = "self_attn.q_b_proj.weight";
        /// Latent and shared key, bf16 [L + P, hidden].
        kv_a_proj = "self_attn.kv_a_proj_with_mqa.weight";
        /// Norm of the latent, bf16 `[L]`.
        kv_a_layernorm = "self_attn.kv_a_layernorm.weight";
        /// Keys and values out of the latent, bf16 [H * (N + V), L].
        kv_b_proj = "self_attn.kv_b_proj.weight";
        /// Output projection, bf16 [hidden, H * V].
        o_proj = "self_attn.o_proj.weight";
        /// Gate, bf16 [width, hidden].
        gate_proj = "mlp.gate_proj.weight";
        /// Linear part, bf16 [width, hidden].
        up_proj = "mlp.up_proj.weight";
        /// Back, bf16 [hidden, width].
        down_proj = "mlp.down_proj.weight";
    }
}
