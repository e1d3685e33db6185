//! What a plan and a decoder refuse, without a machine that executes: the executor here only keeps bytes.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

use std::collections::BTreeMap;

use kernel_abi::exec::Executor;
use kernel_abi::plan::{BufferId, CheckedPlan, Plan};
use kimi_k3::code::Code;
use kimi_k3::plan::{DecodeOptions, DecodePlan, HostBuffers};
use kimi_k3::step::{Decoder, StepError};
use kimi_k3::{Config, synthetic};

/// Keeps what the host writes; a step only fails when it is told to.
#[derive(Debug)]
struct Shelf {
    plan: CheckedPlan,
    bytes: BTreeMap<(u32, u32), Vec<u8>>,
    fails: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("out of order")]
struct OutOfOrder;

impl Executor for Shelf {
    type Error = OutOfOrder;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn write(&mut self, rank: u32, buffer: BufferId, bytes: &[u8]) -> Result<(), OutOfOrder> {
        self.bytes.insert((rank, buffer.0), bytes.to_vec());
        Ok(())
    }

    fn read(&self, rank: u32, buffer: BufferId) -> Result<Vec<u8>, OutOfOrder> {
        self.bytes.get(&(rank, buffer.0)).cloned().ok_or(OutOfOrder)
    }

    fn step(&mut self) -> Result<(), OutOfOrder> {
        if self.fails { Err(OutOfOrder) } else { Ok(()) }
    }
}

fn config() -> Config {
    Config::parse(synthetic::TINY_RANDOM).unwrap()
}

fn options(rows: u64, ranks: u64, context: u64) -> DecodeOptions {
    DecodeOptions { rows, ranks, context }
}

fn code(config: &Config, options: DecodeOptions) -> Code {
    DecodePlan::new(config, options).unwrap_err().code()
}

#[test]
fn plans_that_no_kernel_can_run_are_refused() {
    let config = config();
    assert_eq!(code(&config, options(1, 3, 64)), Code::K0401);
    assert_eq!(code(&config, options(3, 1, 64)), Code::K0402);
    assert_eq!(code(&config, options(0, 1, 64)), Code::K0402);
    assert_eq!(code(&config, options(1, 1, 0)), Code::K0403);
    assert_eq!(code(&config, options(1, 1, u64::MAX)), Code::K0403);
    assert_eq!(code(&config, options(1, 17, 64)), Code::K0404);
    let odd = Config { hidden: 200, ..config };
    assert_eq!(code(&odd, options(1, 1, 64)), Code::K0404);
}

#[test]
fn every_rank_has_weights_of_the_size_of_its_buffers() {
    let config = config();
    for ranks in [1, 2, 4, 8, 16] {
        let plan = DecodePlan::new(&config, options(2, ranks, 100)).unwrap();
        assert_eq!(plan.host.options.context, 128);
        assert_eq!(plan.host.own_pages(), [1, 2, 3, 4]);
        assert_eq!(plan.host.own_slots(), [1, 2]);
        for (_, recipes) in &plan.weights {
            assert_eq!(recipes.len(), ranks as usize);
        }
    }
}

/// A decoder of `rows` rows over a plan without nodes.
fn decoder(rows: u64, fails: bool) -> Decoder<Shelf> {
    let DecodePlan { plan, host, .. } = DecodePlan::new(&config(), options(rows, 1, 64)).unwrap();
    let plan = Plan { nodes: Vec::new(), ..plan }.check(BTreeMap::new()).unwrap();
    Decoder::new(Shelf { plan, bytes: BTreeMap::new(), fails }, host).unwrap()
}

fn refused(decoder: &mut Decoder<Shelf>, ids: &[i32]) -> Code {
    decoder.step(ids).unwrap_err().code()
}

#[test]
fn steps_that_cannot_be_done_are_refused() {
    let mut two = decoder(2, false);
    assert_eq!(refused(&mut two, &[1]), Code::K0501);
    assert_eq!(refused(&mut two, &[1, -1]), Code::K0302);
    assert_eq!(refused(&mut two, &[1, 2048]), Code::K0302);
    assert_eq!(two.positions(), [0, 0]);
    for _ in 0..64 {
        two.step(&[1, 2]).unwrap();
    }
    assert_eq!(refused(&mut two, &[1, 2]), Code::K0303);
    two.reset().unwrap();
    two.step(&[1, 2]).unwrap();
    assert_eq!(refused(&mut decoder(1, true), &[1]), Code::K0502);
    assert!(matches!(two.logits(), Err(StepError::Executor(OutOfOrder))));
}

#[test]
fn the_greedy_choice_takes_the_lowest_of_equal_ids() {
    let plan = DecodePlan::new(&config(), options(2, 4, 64)).unwrap();
    let host: HostBuffers = plan.host.clone();
    let plan = Plan { nodes: Vec::new(), ..plan.plan }.check(BTreeMap::new()).unwrap();
    let mut shelf = Shelf { plan, bytes: BTreeMap::new(), fails: false };
    let floats = [1.0f32, 3.0, 3.0, 2.0, -1.0, -3e38, -1.0, -2.0];
    let ids = [10i32, 700, 1100, 1600, 4, 600, 1030, 1537];
    let bytes = |words: &[[u8; 4]]| words.concat();
    shelf.write(0, host.best, &bytes(&floats.map(f32::to_le_bytes))).unwrap();
    shelf.write(0, host.best_ids, &bytes(&ids.map(i32::to_le_bytes))).unwrap();
    assert_eq!(Decoder::new(shelf, host).unwrap().greedy().unwrap(), [700, 4]);
}

#[test]
fn logits_that_are_not_finite_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut two = decoder(2, false);
        let (host, vocab) = (two.host().clone(), two.host().vocab as usize);
        let mut logits = vec![0.5f32; 2 * vocab];
        let mut best = [0.5f32; 2];
        let bytes =
            |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let fill = |decoder: Decoder<Shelf>, logits: &[f32], best: &[f32]| {
            let mut shelf = Shelf {
                plan: decoder.executor().plan.clone(),
                bytes: BTreeMap::new(),
                fails: false,
            };
            shelf.write(0, host.logits, &bytes(logits)).unwrap();
            shelf.write(0, host.best, &bytes(best)).unwrap();
            shelf.write(0, host.best_ids, &[0; 8]).unwrap();
            Decoder::new(shelf, host.clone()).unwrap()
        };
        two = fill(two, &logits, &best);
        assert_eq!(two.logits().unwrap(), logits);
        assert_eq!(two.greedy().unwrap(), [0, 0]);
        logits[vocab + 3] = bad;
        best[1] = bad;
        two = fill(two, &logits, &best);
        let error = two.logits().unwrap_err();
        assert_eq!(error.code(), Code::K0503);
        assert_eq!(error.to_string(), "the logits are not finite in row 1");
        assert_eq!(two.greedy().unwrap_err().code(), Code::K0503);
    }
}
