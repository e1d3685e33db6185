//! `kernelc explain`: a diagnostic code, or what the compiler decided for a kernel.

use clap::Args;
use kernel_abi::plan::PlanCode;
use kernel_dsl::diag::Code;
use kernel_ir::{explain, pipeline};

use super::{Answer, Cli, Format, KernelArgs};
use crate::output;
use crate::session::{self, Refusal, Session};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A code such as E0107, or a `.tile` file.
    pub what: String,
    /// Which kernel of the file; a name may follow the file.
    pub name: Option<String>,
    /// Bindings and target.
    #[command(flatten)]
    pub kernel: KernelArgs,
}

/// Explains.
pub fn run(cli: &Cli, args: &ExplainArgs) -> Answer {
    match page(&args.what) {
        Some((code, title, page)) => explain_code(cli.format, code, title, page),
        None => explain_kernel(cli, args).unwrap_or_else(|refusal| *refusal),
    }
}

/// Code, title and page.
fn page(what: &str) -> Option<(&'static str, &'static str, &'static str)> {
    if let Ok(code) = what.parse::<Code>() {
        return Some((code.name(), code.title(), code.page()));
    }
    let code =
        PlanCode::ALL.into_iter().find(|code| code.name().eq_ignore_ascii_case(what.trim()))?;
    Some((code.name(), code.title(), plan_page(code)))
}

/// The page of a code of plans.
fn plan_page(code: PlanCode) -> &'static str {
    match code {
        PlanCode::Structure => include_str!("../../../../docs/codes/P0101.md"),
        PlanCode::Argument => include_str!("../../../../docs/codes/P0102.md"),
        PlanCode::StaticWritten => include_str!("../../../../docs/codes/P0103.md"),
        PlanCode::ReadBeforeWrite => include_str!("../../../../docs/codes/P0104.md"),
        PlanCode::Race => include_str!("../../../../docs/codes/P0105.md"),
        PlanCode::Contract => include_str!("../../../../docs/codes/P0106.md"),
        PlanCode::Settled => include_str!("../../../../docs/codes/P0107.md"),
        PlanCode::Collective => include_str!("../../../../docs/codes/P0108.md"),
        PlanCode::Stored => include_str!("../../../../docs/codes/P0109.md"),
        PlanCode::Early => include_str!("../../../../docs/codes/P0110.md"),
        PlanCode::Chain => include_str!("../../../../docs/codes/P0111.md"),
        PlanCode::Proxy => include_str!("../../../../docs/codes/P0112.md"),
        PlanCode::Ranks => include_str!("../../../../docs/codes/P0113.md"),
        PlanCode::Words => include_str!("../../../../docs/codes/P0114.md"),
        PlanCode::Rows => include_str!("../../../../docs/codes/P0115.md"),
    }
}

fn explain_code(format: Format, code: &str, title: &str, page: &str) -> Answer {
    match format {
        Format::Json => Answer::ok(format!(
            "{}\n",
            serde_json::json!({ "code": code, "title": title, "page": page })
        )),
        Format::Text | Format::Sarif => Answer::ok(page.to_owned()),
    }
}

/// Where the codes of other crates are explained.
fn other_home(what: &str) -> Option<&'static str> {
    let number = what.get(1..).unwrap_or_default();
    if number.len() != 4 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match what.as_bytes()[0] {
        b'B' => Some("codes of bundles are in docs/architecture.md"),
        b'M' => Some("codes of litmus tests are in docs/memory-model.md"),
        b'R' => Some("codes of the runtime are in runtime/cuda/README.md"),
        b'K' => Some("codes of kimi-k3 are in models/kimi_k3/README.md"),
        b'T' => Some("codes of tokenizers are in runtime/text/README.md"),
        _ => None,
    }
}

fn explain_kernel(cli: &Cli, args: &ExplainArgs) -> Result<Answer, Refusal> {
    let looks_like_code = args.what.len() == 5
        && args.what.starts_with(['E', 'P'])
        && args.what[1..].bytes().all(|b| b.is_ascii_digit());
    if looks_like_code {
        return Err(session::usage(cli.format, &format!("there is no code {}", args.what)));
    }
    if let Some(home) = other_home(&args.what) {
        return Err(session::usage(cli.format, home));
    }
    let mut session = Session::new();
    let front = session.open(cli.format, &args.what)?;
    let mut which = args.kernel.clone();
    if which.kernel.is_none() {
        which.kernel.clone_from(&args.name);
    }
    let (template, bindings, target) = session.pick(cli.format, &front, &which)?;
    let refuse = |found: Vec<kernel_dsl::diag::Diagnostic>| {
        Box::new(output::diagnostics(cli.format, &session.sources, &found))
    };
    let built = pipeline::build(template, &bindings, target).map_err(refuse)?;
    let report = explain::report(&built.kernel, &session.sources).map_err(refuse)?;
    Ok(match cli.format {
        Format::Json => Answer::ok(format!("{}\n", serde_json::json!(report))),
        Format::Text | Format::Sarif => Answer::ok(report.text()),
    })
}
