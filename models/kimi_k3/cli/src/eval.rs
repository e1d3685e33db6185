//! `kimi-k3 eval`.

use std::time::Instant;

use kernel_text::Tokenizer;
use kimi_k3::eval::{self, Agreement, Task};
use kimi_k3::request::check_tokens;
use serde::Serialize;

use crate::args::Eval;
use crate::engine::{Engine, Source};
use crate::error::CliError;
use crate::jobs::{self, Stop};
use crate::{interrupt, output};

/// What one task gave.
#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    /// The own output, free-running, is correct.
    correct: bool,
    /// With the reference ids fed in, the likeliest token is the reference's.
    agreement: Agreement,
    /// The same for the first token alone.
    first: bool,
    tokens: usize,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    tasks: usize,
    correct: usize,
    reference_correct: usize,
    /// Places at which the likeliest token is the reference's, its ids fed in.
    agreeing_tokens: usize,
    reference_tokens: usize,
    agreeing_first_tokens: usize,
    /// Tokens decoded in all.
    steps: usize,
    seconds: f64,
}

pub(crate) fn run(options: &Eval) -> Result<(), CliError> {
    interrupt::listen();
    let mut tasks = eval::open(&options.tasks)?;
    tasks.truncate(options.limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)));
    let source = Source::open(&options.model)?;
    let tokenizer = Tokenizer::open(&options.model.model)?;
    let bos = source.config.tokens.bos;
    let mut prompts = Vec::new();
    for task in &tasks {
        let ids = tokenizer.encode_prompt(bos, &task.prompt)?;
        task.check_prompt(ids.len(), &options.tasks)?;
        let mut all: Vec<i64> = ids.iter().map(|&id| i64::from(id)).collect();
        // The reference ids are fed in, so they must be tokens too.
        all.extend(task.reference_ids.iter().map(|&id| i64::from(id)));
        check_tokens(&source.config, &all, 0)
            .map_err(|error| CliError::Task { task: task.shown_name(), error })?;
        prompts.push(ids);
    }
    let length = |at: usize| prompts[at].len() + tasks[at].new_tokens();
    let context = (0..tasks.len()).map(length).max().unwrap_or(1);
    // Long tasks first, so that no job waits long for the last one.
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(length(at)), at));

    let jobs = (options.jobs as usize).clamp(1, tasks.len().max(1));
    let plan = source.plan(context, jobs as u64)?;
    let started = Instant::now();
    let bar = output::progress("tasks");
    bar.set_length(tasks.len() as u64);
    let start = || source.engine(plan.clone(), jobs == 1);
    let work = |engine: &mut Engine, at: usize, stop: &Stop| {
        let outcome = solve(engine, &tokenizer, &tasks[at], &prompts[at], stop)?;
        bar.inc(1);
        Ok(outcome)
    };
    let outcomes = jobs::run(jobs, &order, vec![Outcome::default(); tasks.len()], start, work)?;
    bar.finish_and_clear();
    report(options, &tasks, &outcomes, started.elapsed().as_secs_f64())
}

/// Runs a task twice from the end of its prompt: with the reference ids fed in, and, from the first place at which
/// the model chooses otherwise, on its own.
fn solve(
    engine: &mut Engine,
    tokenizer: &Tokenizer,
    task: &Task,
    prompt: &[u32],
    stop: &Stop,
) -> Result<Outcome, CliError> {
    engine.reset()?;
    for &id in prompt {
        stop.check()?;
        engine.step(id)?;
    }
    let mut tokens = prompt.len();
    let mut choices = Vec::new();
    let mut own: Option<Vec<u32>> = None;
    for (at, &reference) in task.reference_ids.iter().enumerate() {
        stop.check()?;
        let choice = engine.greedy()?;
        choices.push(choice);
        if choice != reference && own.is_none() {
            let here = engine.snapshot()?;
            let mut ids = choices.clone();
            while ids.len() < task.new_tokens() {
                stop.check()?;
                engine.step(ids[ids.len() - 1])?;
                tokens += 1;
                ids.push(engine.greedy()?);
            }
            own = Some(ids);
            engine.restore(&here)?;
        }
        if at + 1 < task.reference_ids.len() {
            engine.step(reference)?;
            tokens += 1;
        }
    }
    let own = own.unwrap_or_else(|| choices.clone());
    Ok(Outcome {
        correct: task.is_correct(&tokenizer.decode(&own)?),
        agreement: task.agreement(&choices),
        first: choices.first() == task.reference_ids.first(),
        tokens,
    })
}

fn report(
    options: &Eval,
    tasks: &[Task],
    outcomes: &[Outcome],
    seconds: f64,
) -> Result<(), CliError> {
    let mut agreement = Agreement::default();
    for outcome in outcomes {
        agreement += outcome.agreement;
    }
    let report = Report {
        tasks: tasks.len(),
        correct: outcomes.iter().filter(|outcome| outcome.correct).count(),
        reference_correct: tasks.iter().filter(|task| task.reference_correct).count(),
        agreeing_tokens: agreement.equal,
        reference_tokens: agreement.all,
        agreeing_first_tokens: outcomes.iter().filter(|outcome| outcome.first).count(),
        steps: outcomes.iter().map(|outcome| outcome.tokens).sum(),
        seconds,
    };
    if options.json {
        let json = serde_json::to_string(&report).expect("numbers have a JSON form");
        return output::text(&format!("{json}\n"));
    }
    output::text(&format!(
        "correct:   {} of {} (reference {})\nagreement: {} of {} tokens with the reference ids fed in, \
         {} of {} first tokens\n{} tokens in {:.1} s\n",
        report.correct,
        report.tasks,
        report.reference_correct,
        report.agreeing_tokens,
        report.reference_tokens,
        report.agreeing_first_tokens,
        report.tasks,
        report.steps,
        report.seconds,
    ))
}
