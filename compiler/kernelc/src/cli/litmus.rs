//! `kernelc litmus FILE…`: whether a small PTX program can end in a state, by the memory model.

use clap::{Args, ValueEnum};
use kernel_memory_model::axioms::Step;
use kernel_memory_model::decide::Execution;
use kernel_memory_model::{
    Code, Decision, Diagnostic, Limits, Model, Test, decide, explain, litmus, parse,
};
use serde_json::{Value, json};

use super::{Answer, Cli, Format, exit};
use crate::files;
use crate::session;

/// The model's versions on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// PTX ISA 6.0, without proxies.
    #[value(name = "6.0")]
    Ptx60,
    /// PTX ISA 7.5, with proxies.
    #[value(name = "7.5")]
    Ptx75,
}

/// Arguments of `litmus`.
///
/// Exit codes: 0 every file is decided, whatever the answer; 1 a file is no test of the dialect; 3 a test has more
/// executions than are looked at; 4 a file cannot be read.
#[derive(Debug, Args)]
pub struct LitmusArgs {
    /// Tests; `-` reads standard input.
    #[arg(required = true)]
    pub files: Vec<String>,
    /// Which text of the memory model judges.
    #[arg(long, value_enum, default_value = "7.5")]
    pub model: Version,
    /// Also print the execution that was found, or the axiom that forbids it with its cycle.
    #[arg(long)]
    pub explain: bool,
    /// Print a drawing for Graphviz instead; the answer stands in a comment.
    #[arg(long, conflicts_with = "explain")]
    pub dot: bool,
    /// How often a path may run through a loop.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub unroll: u32,
}

/// Decides tests.
pub fn run(cli: &Cli, args: &LitmusArgs) -> Answer {
    let mut all = Answer::default();
    for file in &args.files {
        let answer = one(cli.format, args, file);
        all.stdout.push_str(&answer.stdout);
        all.stderr.push_str(&answer.stderr);
        all.code = worse(all.code, answer.code);
    }
    all
}

/// The exit code that says more: a file that cannot be read, then a refused one, then an undecided one.
fn worse(a: u8, b: u8) -> u8 {
    let rank = |code: u8| match code {
        exit::OK => 0,
        exit::NOT_JUDGED => 1,
        exit::FINDINGS => 2,
        _ => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn one(format: Format, args: &LitmusArgs, file: &str) -> Answer {
    let read = files::read_or_stdin(file, litmus::MAX_BYTES as u64)
        .map_err(|error| error.to_string())
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()));
    let text = match read {
        Ok(text) => text,
        Err(message) => return *session::cannot_read(format, file, &message),
    };
    let test = match parse(&text) {
        Ok(test) => test,
        Err(found) => return refused(format, file, &found),
    };
    let model = match args.model {
        Version::Ptx60 => Model::Ptx60,
        Version::Ptx75 => Model::Ptx75,
    };
    let limits = Limits { unroll: args.unroll, ..Limits::default() };
    let decision = match decide(&test, model, &limits) {
        Ok(decision) => decision,
        Err(found) => return refused(format, file, &[found]),
    };
    let mut answer = Answer::ok(if args.dot {
        drawn(file, &test, &decision)
    } else {
        match format {
            Format::Json => format!("{}\n", object(args, file, model, &test, &decision)),
            Format::Text | Format::Sarif => told(args, file, &test, &decision),
        }
    });
    for &thread in &decision.endless {
        answer.stderr.push_str(&format!(
            "note: {file}: thread P{thread} comes to no end when each loop is run through {} times at most, so no \
             execution was judged; a greater --unroll may tell\n",
            args.unroll
        ));
    }
    answer
}

fn told(args: &LitmusArgs, file: &str, test: &Test, decision: &Decision) -> String {
    let mut text = format!("{file}: {}\n", decision.verdict.name());
    if args.explain {
        text.push_str(&explain::text(test, decision));
    }
    text
}

fn drawn(file: &str, test: &Test, decision: &Decision) -> String {
    let answer = format!("// {}: {}\n", file.escape_debug(), decision.verdict.name());
    let drawing = explain::dot(test, decision)
        .unwrap_or_else(|| "// no execution has the values of that state\n".to_owned());
    answer + &drawing
}

fn object(args: &LitmusArgs, file: &str, model: Model, test: &Test, decision: &Decision) -> Value {
    let mut object = json!({
        "file": file,
        "test": test.name,
        "model": model.name(),
        "asks": test.quantifier.name(),
        "verdict": decision.verdict.name(),
        "candidates": decision.candidates,
        "endless": decision.endless,
    });
    if args.explain {
        object["witness"] = decision.witness.as_ref().map_or(Value::Null, |e| execution(test, e));
        let refusals = decision.refusals.by_axiom.iter().map(|refusal| {
            let axiom = refusal.violation.axiom;
            let cycle = refusal.violation.cycle.iter().map(|step| {
                let mut object = edge(test, &refusal.execution, step);
                let parts = explain::parts(&refusal.execution, step);
                let parts: Vec<Value> =
                    parts.iter().map(|part| edge(test, &refusal.execution, part)).collect();
                object["parts"] = Value::Array(parts);
                object
            });
            json!({
                "axiom": axiom.name(),
                "formula": axiom.formula(),
                "source": axiom.source(),
                "count": refusal.count,
                "cycle": cycle.collect::<Vec<_>>(),
                "execution": execution(test, &refusal.execution),
            })
        });
        object["refusals"] = Value::Array(refusals.collect());
        object["other_memory"] = json!(decision.refusals.other_memory);
    }
    object
}

fn edge(test: &Test, execution: &Execution, step: &Step) -> Value {
    json!({
        "from": explain::name(test, execution, step.from),
        "edge": step.edge.name(),
        "to": explain::name(test, execution, step.to),
    })
}

fn execution(test: &Test, execution: &Execution) -> Value {
    let name = |event| explain::name(test, execution, event);
    let events = execution.origins.iter().enumerate().map(|(number, origin)| {
        let line = origin.thread.map(|thread| &test.threads[thread].code[origin.line]);
        json!({
            "event": name(number),
            "source": line.map(|line| &line.text),
            "line": line.map(|line| line.spot.line),
        })
    });
    let reads = execution.reads_from.pairs();
    let reads = reads.map(|(write, read)| json!({ "read": name(read), "from": name(write) }));
    json!({
        "events": events.collect::<Vec<_>>(),
        "reads": reads.collect::<Vec<_>>(),
        "end": explain::end_state(test, execution),
    })
}

fn refused(format: Format, file: &str, found: &[Diagnostic]) -> Answer {
    let mut answer = Answer::default();
    for one in found {
        let code = if one.code == Code::M0202 { exit::NOT_JUDGED } else { exit::FINDINGS };
        answer.code = worse(answer.code, code);
        match format {
            Format::Text | Format::Sarif => {
                let (code, message, spot) = (one.code, &one.message, one.spot);
                answer.stderr.push_str(&format!("error[{code}]: {message}\n  --> {file}:{spot}\n"));
            }
            Format::Json => {
                let object = json!({
                    "code": one.code.name(),
                    "severity": "error",
                    "message": one.message,
                    "file": file,
                    "span": { "start": { "line": one.spot.line, "column": one.spot.column } },
                });
                answer.stdout.push_str(&format!("{object}\n"));
            }
        }
    }
    answer
}
