//! The reference in f64 against every golden of kimi-k3-mini, for all four prompts, free-running for 64 tokens, with
//! its drafter.
//!
//! Bounds: the column for f32 of the table in `mini/README.md`. The goldens are stored as f32.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernel_abi::DType;
use kimi_k3::config::DraftConfig;
use kimi_k3::reference::draft::Draft;
use kimi_k3::reference::model::{LayerState, Model, State};
use kimi_k3::reference::select::argmax;
use kimi_k3::{Checkpoint, Config};

/// Relative L2 of a stream, a state, a cache.
const RELATIVE_L2: f64 = 1e-5;
/// Greatest difference of a logit.
const LOGIT: f64 = 1e-3;
/// Root mean square of the differences of logits.
const LOGIT_RMS: f64 = 1e-4;
/// Layers whose intermediate values are goldens.
const TRACED: [usize; 3] = [1, 3, 7];
/// Positions of `*_last4`.
const LAST: usize = 4;
/// Tokens of the greedy goldens.
const GREEDY: usize = 64;

fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mini")
}

fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| {
        let config = Config::open(&mini()).unwrap();
        Model::load(&config, &Checkpoint::open(&mini()).unwrap()).unwrap()
    })
}

fn drafter() -> &'static (DraftConfig, Draft) {
    static DRAFT: OnceLock<(DraftConfig, Draft)> = OnceLock::new();
    DRAFT.get_or_init(|| {
        let (folder, target) = (mini().join("dspark"), model().config());
        let config = DraftConfig::open(&folder, target).unwrap();
        let draft = Draft::load(&config, target, &Checkpoint::open(&folder).unwrap()).unwrap();
        (config, draft)
    })
}

/// The goldens of a prompt, and which of them were looked at.
struct Goldens {
    file: Checkpoint,
    seen: BTreeSet<String>,
    faults: Vec<String>,
}

impl Goldens {
    fn open(prompt: &str) -> Goldens {
        let file = Checkpoint::open_file(&mini().join(format!("golden/{prompt}.safetensors")));
        Goldens { file: file.unwrap(), seen: BTreeSet::new(), faults: Vec::new() }
    }

    fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_ok()
    }

    fn values(&mut self, name: &str) -> Vec<f64> {
        self.seen.insert(name.to_owned());
        self.file.tensor(name).unwrap().to_f64()
    }

    fn ids(&mut self, name: &str) -> Vec<u32> {
        assert_eq!(self.file.tensor(name).unwrap().dtype, DType::I32);
        self.values(name).iter().map(|id| *id as u32).collect()
    }

    /// Integers agree, numbers are within the relative L2.
    fn check(&mut self, name: &str, got: &[f64]) {
        let want = self.values(name);
        if got.len() != want.len() {
            self.faults.push(format!("{name}: {} values, wanted {}", got.len(), want.len()));
            return;
        }
        let error: f64 = got.iter().zip(&want).map(|(g, w)| (g - w) * (g - w)).sum();
        let norm: f64 = want.iter().map(|w| w * w).sum();
        let is_exact = self.file.tensor(name).unwrap().dtype == DType::I32;
        let bound = if is_exact { 0.0 } else { RELATIVE_L2 };
        let relative = if error == 0.0 { 0.0 } else { (error / norm).sqrt() };
        // The comparison also refuses NaN.
        if !matches!(
            relative.partial_cmp(&bound),
            Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
        ) {
            self.faults.push(format!("{name}: relative L2 {relative:.2e}, at most {bound:e}"));
        }
    }

    fn check_logits(&mut self, name: &str, got: &[f64]) {
        let want = self.values(name);
        assert_eq!(got.len(), want.len(), "{name}");
        let differences = got.iter().zip(&want).map(|(g, w)| (g - w).abs());
        let most = differences.clone().fold(0.0, f64::max);
        let rms = (differences.map(|d| d * d).sum::<f64>() / want.len() as f64).sqrt();
        if rms.is_nan() || most > LOGIT || rms > LOGIT_RMS {
            self.faults.push(format!("{name}: at most {most:.2e} apart, rms {rms:.2e}"));
        }
    }

    /// The values of `*_last4` goldens: positions outermost, then layers.
    fn check_last(&mut self, name: &str, steps: &[Step], traced: &str) {
        let from = steps.len() - LAST;
        let values = steps[from..].iter().flat_map(|step| {
            let of_name = step.iter().filter(|((_, name), _)| *name == traced);
            of_name.flat_map(|(_, values)| values.iter().copied())
        });
        self.check(name, &values.collect::<Vec<f64>>());
    }
}

/// Traced values of one token, by layer and name.
type Step = BTreeMap<(usize, &'static str), Vec<f64>>;

fn matches_its_goldens(prompt: &str) {
    let model = model();
    let mut goldens = Goldens::open(prompt);
    let ids = goldens.ids("ids");
    let mut state = State::new(model.config());
    let mut steps: Vec<Step> = Vec::new();
    let all_logits = goldens.has("logits_all");
    let (mut logits_all, mut logits) = (Vec::new(), Vec::new());
    for (at, &id) in ids.iter().enumerate() {
        let mut step = Step::new();
        let x = model.step(&mut state, id, &mut |layer, name, values| {
            step.insert((layer, name), values.to_vec());
        });
        steps.push(step);
        if all_logits || at + 1 == ids.len() {
            logits = model.logits(&x);
            logits_all.extend_from_slice(&logits);
        }
    }
    goldens.check_logits("logits_last", &logits);
    if all_logits {
        goldens.check_logits("logits_all", &logits_all);
    }
    for (&(layer, name), values) in steps.last().unwrap() {
        if TRACED.contains(&layer) {
            goldens.check(&format!("trace.layer{layer}.{name}"), values);
        }
    }
    goldens.check_last("p_last4", &steps, "p_out");
    goldens.check_last("router_logits_last4", &steps, "router_logits");
    goldens.check_last("router_picked_last4", &steps, "picked");
    goldens.check_last("router_weights_last4", &steps, "weights");
    for (at, layer) in state.layers.iter().enumerate() {
        match layer {
            LayerState::Kda { window, state } if [1, 5].contains(&at) => {
                goldens.check(&format!("conv_state.layer{at}"), window);
                goldens.check(&format!("kda_state.layer{at}"), state);
            }
            LayerState::Mla { rows } if [3, 8].contains(&at) => {
                goldens.check(&format!("mla_cache.layer{at}"), rows);
            }
            LayerState::Kda { .. } | LayerState::Mla { .. } => {}
        }
    }
    let mut taps: Vec<Vec<f64>> = steps.iter().map(taps_of).collect();
    let chosen = free_running(model, &mut state, logits, &mut goldens, &mut taps);
    drafting(model, ids.len(), &chosen, &taps, &mut goldens);
    assert!(goldens.faults.is_empty(), "{}", goldens.faults.join("\n"));
    let unseen: Vec<&str> =
        goldens.file.names().filter(|name| !goldens.seen.contains(*name)).collect();
    assert!(unseen.is_empty(), "not compared: {unseen:?}");
}

/// What the drafter reads of a token.
fn taps_of(step: &Step) -> Vec<f64> {
    let (config, _) = drafter();
    config.taps.iter().flat_map(|&layer| step[&(layer, "p_out")].iter().copied()).collect()
}

/// Each token is the model's own choice. Returns the choices, as many more as a last step of drafting looks at.
fn free_running(
    model: &Model,
    state: &mut State,
    mut logits: Vec<f64>,
    goldens: &mut Goldens,
    taps: &mut Vec<Vec<f64>>,
) -> Vec<u32> {
    let want = goldens.ids("greedy_ids");
    let margins = goldens.values("greedy_margin");
    assert_eq!((want.len(), margins.len()), (GREEDY, GREEDY));
    let (mut chosen, mut all) = (Vec::new(), Vec::new());
    for at in 0..GREEDY + drafter().0.drafts {
        let (best, id) = argmax(&logits);
        if at < GREEDY {
            let others = logits.iter().enumerate().filter(|(other, _)| *other != id);
            let second = others.map(|(_, logit)| *logit).fold(f64::NEG_INFINITY, f64::max);
            let margin = margins[at];
            assert!((best - second - margin).abs() < LOGIT, "{best} - {second}, wanted {margin}");
            all.append(&mut logits);
        }
        chosen.push(id as u32);
        let mut step = Step::new();
        let x = model.step(state, id as u32, &mut |layer, name, values| {
            step.insert((layer, name), values.to_vec());
        });
        taps.push(taps_of(&step));
        logits = model.logits(&x);
    }
    assert_eq!(chosen[..GREEDY], want);
    goldens.check_logits("greedy_logits", &all);
    chosen
}

/// Steps of drafting until 64 tokens exist: what the model itself would choose is accepted, and one more token comes
/// from the model. `taps` has one row a position, `prompt` of them before the first choice.
fn drafting(
    model: &Model,
    prompt: usize,
    chosen: &[u32],
    taps: &[Vec<f64>],
    goldens: &mut Goldens,
) {
    let (_, draft) = drafter();
    let mut context = draft.context();
    let (mut accepted_counts, mut ids) = (Vec::new(), Vec::new());
    // The first token comes from the prompt.
    let mut known = 1;
    while known < GREEDY {
        for row in &taps[context.positions..prompt + known - 1] {
            draft.extend(&mut context, row);
        }
        let proposal = draft.propose(model, &context, chosen[known - 1]);
        if accepted_counts.is_empty() {
            goldens.check("draft_step0_anchor", &[f64::from(chosen[0])]);
            for (at, rows) in context.rows.iter().enumerate() {
                goldens.check(&format!("draft_context.layer{at}"), rows);
            }
            goldens.check("draft_step0_hidden", &proposal.hidden);
            goldens.check_logits("draft_step0_logits", &proposal.logits);
            let first: Vec<f64> = proposal.ids.iter().map(|id| f64::from(*id)).collect();
            goldens.check("draft_step0_ids", &first);
        }
        let equal = proposal.ids.iter().zip(&chosen[known..]).take_while(|(a, b)| a == b).count();
        accepted_counts.push(equal as f64);
        ids.extend(proposal.ids.iter().map(|id| f64::from(*id)));
        known += equal + 1;
    }
    goldens.check("accepted_counts", &accepted_counts);
    goldens.check("draft_ids_per_step", &ids);
}

#[test]
fn text() {
    matches_its_goldens("text");
}

#[test]
fn code() {
    matches_its_goldens("code");
}

#[test]
fn recall() {
    matches_its_goldens("recall");
}

#[test]
fn json() {
    matches_its_goldens("json");
}

#[test]
fn a_wrong_weight_is_seen() {
    // The comparison is not blind: one step with the tokens of another prompt differs.
    let mut goldens = Goldens::open("text");
    let mut state = State::new(model().config());
    let mut last = Vec::new();
    model().step(&mut state, 5, &mut |layer, name, values| {
        if (layer, name) == (1, "p_out") {
            last = values.to_vec();
        }
    });
    goldens.check("trace.layer1.p_out", &last);
    assert_eq!(goldens.faults.len(), 1);
}
