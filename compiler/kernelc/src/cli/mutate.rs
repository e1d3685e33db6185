//! `kernelc mutate FILE`: one synchronisation less at a time, and what sees it.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use kernel_emulator::Memory;
use kernel_ir::pipeline::Built;
use kernel_mutation::{Mutant, Operator, Subject, Unfit, Verdict, mutants};
use serde_json::{Value, json};

use super::{Answer, Cli, Format, KernelArgs, exit};
use crate::files;
use crate::output;
use crate::session::{self, Refusal, Session};

/// Arguments of `mutate`.
///
/// Exit codes: 0 every mutant is seen, is the same program, or is none that this version builds; 1 some survive, or the kernel itself is refused.
#[derive(Debug, Args)]
pub struct MutateArgs {
    /// The file; `-` reads standard input.
    pub file: String,
    /// Which kernel.
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// Schedules in which a mutant that nothing refuses runs on the emulator.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..))]
    pub schedules: u64,
    /// Seed of inputs and schedules.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Launches in a row of a kernel over several ranks.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub launches: u64,
}

/// Judges the mutants of a kernel.
pub fn run(cli: &Cli, args: &MutateArgs) -> Answer {
    execute(cli, args).unwrap_or_else(|refusal| *refusal)
}

fn execute(cli: &Cli, args: &MutateArgs) -> Result<Answer, Refusal> {
    let mut session = Session::new();
    let front = session.open(cli.format, &args.file)?;
    let (template, bindings, target) = session.pick(cli.format, &front, &args.kernel)?;
    let file = kernel_dsl::parse(&session.sources, front.root).file;
    let all = mutants(&session.sources, &file);
    let read = |path: &str| {
        let bytes = files::read(Path::new(path), files::MAX_SOURCE).map_err(|e| e.to_string())?;
        String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())
    };
    let subject = Subject {
        name: session.sources.name(front.root),
        read: &read,
        kernel: template.name(),
        bindings: &|_| bindings.clone(),
        target: Some(target),
        memories: &|built| memories(built, args.seed),
        launches: args.launches as usize,
        schedules: (args.schedules, args.seed),
    };
    let text = session.sources.text(front.root);
    let verdicts = subject.judge(text, &all).map_err(|unfit| {
        let found = match unfit {
            Unfit::Refused(found) => found,
            Unfit::Run(error) => vec![error.to_diagnostic()],
            Unfit::Memory(reason) => return session::usage(cli.format, &reason),
        };
        Box::new(output::diagnostics(cli.format, &session.sources, &found))
    })?;
    let judged: Vec<(&Mutant, Verdict)> = all.iter().zip(verdicts).collect();
    let survives = |verdict| matches!(verdict, Verdict::Survives | Verdict::Panicked);
    let code = match judged.iter().any(|(_, verdict)| survives(*verdict)) {
        true => exit::FINDINGS,
        false => exit::OK,
    };
    let stdout = match cli.format {
        Format::Json => lines_of_json(&session, &judged),
        Format::Text | Format::Sarif => text_of(&session, &judged),
    };
    Ok(Answer { stdout, code, ..Answer::default() })
}

/// Random memory of each rank.
pub(super) fn memories(built: &Built, seed: u64) -> Result<Vec<Memory>, String> {
    let params = &built.kernel.params;
    let world = built.kernel.launch.world.unwrap_or(1);
    let mut memories: Vec<Memory> = (0..world).map(|_| Memory::new(params)).collect();
    kernel_emulator::fill_ranks(params, &mut memories, seed).map_err(|error| error.to_string())?;
    Ok(memories)
}

fn place(session: &Session, mutant: &Mutant) -> String {
    let start = session.sources.start(mutant.span);
    format!("{}:{}:{}", session.sources.name(mutant.span.file), start.line, start.column)
}

fn text_of(session: &Session, judged: &[(&Mutant, Verdict)]) -> String {
    let mut text = String::new();
    let mut rows: BTreeMap<Operator, [usize; 4]> = BTreeMap::new();
    for (mutant, verdict) in judged {
        text.push_str(&format!("{}: {}: {verdict}\n", place(session, mutant), mutant.operator));
        let row = rows.entry(mutant.operator).or_default();
        row[0] += 1;
        row[1] += usize::from(verdict.is_killed());
        row[2] += usize::from(*verdict == Verdict::Equivalent);
        row[3] += usize::from(*verdict == Verdict::NotBuilt);
    }
    text.push_str("\nmutants  seen  same program  not built  left  change\n");
    for (operator, [count, seen, same, unknown]) in rows {
        let left = count - seen - same - unknown;
        let row = format!("{count:7}  {seen:4}  {same:12}  {unknown:9}  {left:4}  {operator}\n");
        text.push_str(&row);
    }
    text
}

fn lines_of_json(session: &Session, judged: &[(&Mutant, Verdict)]) -> String {
    let line = |(mutant, verdict): &(&Mutant, Verdict)| -> String {
        let code = match verdict {
            Verdict::Refused(code) | Verdict::Found(code) => Value::from(code.name()),
            Verdict::Differs
            | Verdict::NotBuilt
            | Verdict::Equivalent
            | Verdict::Survives
            | Verdict::Panicked => Value::Null,
        };
        let object = json!({
            "place": place(session, mutant),
            "change": mutant.operator.name(),
            "before": mutant.before,
            "verdict": verdict.word(),
            "code": code,
        });
        format!("{object}\n")
    };
    judged.iter().map(line).collect()
}
