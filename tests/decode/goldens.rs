//! kimi-k3-mini against the outputs of its reference in f64, with the reference ids fed in.

use kernel_tests::decode::{Decoding, Distance, mini, relative_l2};
use kernel_tests::tolerance::{
    CACHE, DIVERGENCE, DIVERGENCE_MEAN, LOGIT_RMS, MARGIN, PICK_GAP, STATE, STREAM, STREAM_MEAN,
};
use kimi_k3::Checkpoint;
use kimi_k3::plan::DecodeOptions;
use serde_json::{Value, json};

/// Names the folder that gets a report of each prompt; `cargo xtask decode` asks for it.
const REPORT: &str = "KERNEL_TEST_REPORT";
/// Near ties of a prompt that may go the other way: 11 of 256 did in the measurement of the README, and a prompt has
/// 32 places here.
const FLIPS: usize = 4;
/// Positions of `*_last4`.
const LAST: usize = 4;

/// Runs a prompt and its 64 reference ids, and compares.
///
/// # Errors
/// Everything that is outside of its bound.
pub(crate) fn check(prompt: &str) -> Result<(), String> {
    let path = mini().join(format!("golden/{prompt}.safetensors"));
    let goldens = Goldens::open(&path)?;
    let ids = goldens.ids("ids");
    let greedy = goldens.ids("greedy_ids");
    let context = (ids.len() + greedy.len()) as u64;
    let mut model = Decoding::open(&mini(), DecodeOptions { rows: 1, ranks: 1, context })?;
    let mut report = Report::default();
    let mut last = Vec::new();
    let mut all = Vec::new();
    for (at, &id) in ids.iter().enumerate() {
        model.step(&[id])?;
        if at + LAST >= ids.len() {
            last.push(Position::of(&model));
        }
        if goldens.has("logits_all") {
            all.extend(model.logits().iter().map(|&l| f64::from(l)));
        }
    }
    if goldens.has("logits_all") {
        report.logits("logits_all", &all, &goldens.values("logits_all"), model.config.vocab);
    }
    streams(&goldens, &last, &model, &mut report);
    traces(&goldens, &model, ids.len(), &mut report);
    for layer in [1, 5] {
        let name = format!("kda_state.layer{layer}");
        report.close(&name, &model.state(layer, 0), &goldens.values(&name), STATE);
        let name = format!("conv_state.layer{layer}");
        report.close(&name, &model.window(layer, 0), &goldens.values(&name), CACHE);
    }
    for layer in [3, 8] {
        let name = format!("mla_cache.layer{layer}");
        report.close(&name, &model.cache(layer, ids.len()), &goldens.values(&name), CACHE);
    }
    let mut logits: Vec<f64> = model.logits().iter().map(|&l| f64::from(l)).collect();
    report.logits("logits_last", &logits, &goldens.values("logits_last"), model.config.vocab);
    let mut choices = model.greedy();
    for &id in &greedy[..greedy.len() - 1] {
        model.step(&[id])?;
        logits.extend(model.logits().iter().map(|&l| f64::from(l)));
        choices.extend(model.greedy());
    }
    report.logits("greedy_logits", &logits, &goldens.values("greedy_logits"), model.config.vocab);
    let margins = goldens.values("greedy_margin");
    let differing = choices.iter().zip(&greedy).zip(&margins).enumerate();
    let differing: Vec<Value> = differing
        .filter(|(_, ((got, want), _))| got != want)
        .map(|(at, ((got, want), margin))| {
            if *margin > MARGIN {
                report.faults.push(format!("token {at} is {got}, not {want}, margin {margin:.3}"));
            }
            json!({ "at": at, "margin": margin })
        })
        .collect();
    if let Some(folder) = std::env::var_os(REPORT) {
        let (of, agreeing) = (greedy.len(), greedy.len() - differing.len());
        let text = json!({
            "agreeing": agreeing,
            "of": of,
            "differing": differing,
            "measured": report.lines,
        });
        let path = std::path::Path::new(&folder).join(format!("{prompt}.json"));
        std::fs::write(&path, text.to_string())
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if report.faults.is_empty() { Ok(()) } else { Err(report.faults.join("\n")) }
}

/// What `*_last4` compares of one position.
struct Position {
    streams: Vec<Vec<f64>>,
    router: Vec<Vec<f64>>,
    picked: Vec<Vec<f64>>,
    weights: Vec<Vec<f64>>,
}

impl Position {
    fn of(model: &Decoding) -> Position {
        let layers = model.config.layers.len();
        let each = |layers: std::ops::Range<usize>, part: &str| {
            layers.map(|layer| model.buffer(0, &format!("layer{layer}.{part}"))).collect()
        };
        Position {
            streams: each(0..layers, "p_out"),
            router: each(1..layers, "router_logits"),
            picked: each(1..layers, "picked"),
            weights: each(1..layers, "weights"),
        }
    }
}

fn streams(goldens: &Goldens, last: &[Position], model: &Decoding, report: &mut Report) {
    let hidden = model.config.hidden;
    let moe = &model.config.moe;
    let layers = model.config.layers.len();
    let want = goldens.values("p_last4");
    let mut distances = Vec::new();
    for (at, position) in last.iter().enumerate() {
        for (layer, got) in position.streams.iter().enumerate() {
            let want = &want[(at * layers + layer) * hidden..][..hidden];
            let distance = relative_l2(got, want);
            report.within(&format!("p_last4 {at} layer {layer}"), distance, STREAM);
            distances.push(distance);
        }
    }
    let mean = distances.iter().sum::<f64>() / distances.len() as f64;
    report.within("p_last4, mean", mean, STREAM_MEAN);

    let logits = goldens.values("router_logits_last4");
    let picked = goldens.values("router_picked_last4");
    let weights = goldens.values("router_weights_last4");
    let (mut compared, mut flips, mut after) = (0, 0, 0);
    for (at, position) in last.iter().enumerate() {
        // Once a near tie went the other way, the layers behind it see another stream.
        let mut flipped = false;
        for layer in 0..layers - 1 {
            let place = at * (layers - 1) + layer;
            let name = format!("router {at} layer {}", layer + 1);
            let want = &logits[place * moe.experts..][..moe.experts];
            report.close(&format!("{name} logits"), &position.router[layer], want, STREAM);
            let of_place = |values: &[f64]| values[place * moe.picks..][..moe.picks].to_vec();
            let same = set(&position.picked[layer]) == set(&of_place(&picked));
            if gap(want, &goldens.bias(layer + 1), moe.picks) <= PICK_GAP {
                flips += usize::from(!same);
                flipped |= !same;
                continue;
            }
            if flipped {
                after += usize::from(!same);
                continue;
            }
            compared += 1;
            if !same {
                report.faults.push(format!("{name}: other experts than the reference"));
            } else {
                let (ids, want) = (of_place(&picked), of_place(&weights));
                let got = in_order_of(&ids, &position.picked[layer], &position.weights[layer]);
                report.close(&format!("{name} weights"), &got, &want, STREAM);
            }
        }
    }
    report.lines.push(format!(
        "picks compared at {compared} places; {flips} near ties went the other way, {after} more behind them"
    ));
    if flips > FLIPS {
        report.faults.push(format!("{flips} near ties went the other way, at most {FLIPS}"));
    }
}

/// Ids without their order.
fn set(ids: &[f64]) -> Vec<i64> {
    let mut ids: Vec<i64> = ids.iter().map(|id| *id as i64).collect();
    ids.sort_unstable();
    ids
}

/// Values of the picks `found`, in the order of the same picks `wanted`; several for each.
fn in_order_of(wanted: &[f64], found: &[f64], values: &[f64]) -> Vec<f64> {
    let each = values.len() / found.len();
    let place = |id: &f64| found.iter().position(|other| other == id).expect("the same picks");
    wanted.iter().flat_map(|id| &values[place(id) * each..][..each]).copied().collect()
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The distance between the last picked score and the first one that is not.
fn gap(logits: &[f64], bias: &[f64], picks: usize) -> f64 {
    let score = |(l, b): (&f64, &f64)| 1.0 / (1.0 + (-l).exp()) + b;
    let mut scores: Vec<f64> = logits.iter().zip(bias).map(score).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    scores[picks - 1] - scores[picks]
}

/// Intermediate values of the last prompt token.
fn traces(goldens: &Goldens, model: &Decoding, tokens: usize, report: &mut Report) {
    let config = &model.config;
    let (kda, mla) = (&config.kda, &config.mla);
    let (width, dim, gate) = (kda.width(), kda.head_dim, mla.q_lora + mla.cache_width());
    for layer in [1, 3, 7] {
        let mut compare = |golden: &str, got: &[f64]| {
            let name = format!("trace.layer{layer}.{golden}");
            let bound = if golden == "state" { STATE } else { STREAM };
            report.close(&name, got, &goldens.values(&name), bound);
        };
        let buffer = |name: &str| model.buffer(0, &format!("layer{layer}.{name}"));
        for (golden, name) in [
            ("h_attn", "attn_mix.h"),
            ("x_attn", "attn_mix.x"),
            ("o_gated", "o_gated"),
            ("attn_out", "attn_out"),
            ("p_mid", "p_mid"),
            ("h_mlp", "mlp_mix.h"),
            ("x_mlp", "mlp_mix.x"),
            ("router_logits", "router_logits"),
            ("latent", "latent"),
            ("shared_out", "shared.stripe"),
            ("ffn_out", "ffn_out"),
            ("p_out", "p_out"),
        ] {
            compare(golden, &buffer(name));
        }
        let picked = goldens.values(&format!("trace.layer{layer}.picked"));
        // Other experts give other sums; whether they may be others is judged above.
        if set(&buffer("picked")) == set(&picked) {
            for name in ["latent_sum", "latent_norm"] {
                compare(name, &buffer(name));
            }
            // What the shared MLP does not give.
            let routed = difference(&buffer("ffn_out"), &buffer("shared.stripe"));
            compare("routed_out", &routed);
            for name in ["weights", "expert_out"] {
                compare(name, &in_order_of(&picked, &buffer("picked"), &buffer(name)));
            }
        }
        compare("p_in", &model.buffer(0, &format!("layer{}.p_out", layer - 1)));
        let scores: Vec<f64> =
            buffer("router_logits").iter().map(|l| 1.0 / (1.0 + (-l).exp())).collect();
        compare("router_scores", &scores);
        let projection = buffer("in_proj");
        if layer == 1 {
            for (golden, part) in [("q_raw", 0), ("k_raw", 1), ("v_raw", 2), ("g_out", 3)] {
                compare(golden, &projection[part * width..][..width]);
            }
            compare("f_a", &projection[4 * width..][..dim]);
            compare("b", &projection[4 * width + dim..][..kda.heads]);
            for name in ["f", "conv_out", "beta", "o_state"] {
                compare(name, &buffer(name));
            }
            compare("v", &buffer("conv_out")[2 * width..]);
            let log_decay: Vec<f64> = buffer("decay").iter().map(|d| d.ln()).collect();
            compare("log_decay", &log_decay);
            compare("state", &model.state(layer, 0));
            continue;
        }
        let row = model.cache(layer, tokens).split_off((tokens - 1) * mla.cache_width());
        compare("c_tilde", &row[..mla.kv_lora]);
        compare("k_pe", &row[mla.kv_lora..]);
        compare("c_q_raw", &projection[..mla.q_lora]);
        compare("kv_a", &projection[mla.q_lora..][..mla.cache_width()]);
        compare("gate", &projection[gate..][..mla.heads * mla.value]);
        for name in ["c_q", "q", "o"] {
            compare(name, &buffer(name));
        }
        let absorbed = buffer("q_absorbed");
        let latents = absorbed.chunks(mla.cache_width()).flat_map(|row| &row[..mla.kv_lora]);
        compare("q_latent", &latents.copied().collect::<Vec<f64>>());
    }
}

/// The tensors of a file of goldens, and the biases of the routers.
struct Goldens {
    file: Checkpoint,
    model: Checkpoint,
}

impl Goldens {
    fn open(path: &std::path::Path) -> Result<Goldens, String> {
        let open = |path| Checkpoint::open_file(path).map_err(|error| error.to_string());
        Ok(Goldens { file: open(path)?, model: open(&mini().join("model.safetensors"))? })
    }

    fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_ok()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.file.tensor(name).unwrap_or_else(|error| panic!("{error}")).to_f64()
    }

    fn ids(&self, name: &str) -> Vec<i32> {
        self.values(name).iter().map(|id| *id as i32).collect()
    }

    fn bias(&self, layer: usize) -> Vec<f64> {
        let name = kimi_k3::names::moe::gate_bias(layer);
        self.model.tensor(&name).unwrap_or_else(|error| panic!("{error}")).to_f64()
    }
}

/// What was measured and what is out of its bound.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    faults: Vec<String>,
}

impl Report {
    fn within(&mut self, name: &str, value: f64, bound: f64) {
        let line = format!("{name}: {value:.2e}, at most {bound:e}");
        // A NaN is a fault too.
        if value <= bound {
            self.lines.push(line);
        } else {
            self.faults.push(line);
        }
    }

    fn close(&mut self, name: &str, got: &[f64], want: &[f64], bound: f64) {
        self.within(&format!("{name}, relative L2"), relative_l2(got, want), bound);
    }

    fn logits(&mut self, name: &str, got: &[f64], want: &[f64], vocab: usize) {
        let Distance { rms, mean, most } = Distance::of(got, want, vocab);
        self.within(&format!("{name}, rms"), rms, LOGIT_RMS);
        if want.len() > vocab {
            self.within(&format!("{name}, mean divergence"), mean, DIVERGENCE_MEAN);
        }
        self.within(&format!("{name}, greatest divergence"), most, DIVERGENCE);
    }
}
