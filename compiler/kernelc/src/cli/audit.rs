//! `kernelc audit FILE`: reads of data that may change, and reads that moved across a wait, in PTX or machine
//! code of any origin, or in a bundle, whose kernels are held to what the compiler proved of them.

use std::path::Path;

use clap::Args;
use kernel_abi::bundle::{Bundle, BundleCode, BundleError, Policy};
use kernel_audit::{Declarations, Processes, Report, audit_cubin, audit_ptx};
use kernel_ir::target::Target;

use super::{Answer, Cli, Format};
use crate::bundle;
use crate::declarations::DeclarationFile;
use crate::files;
use crate::session::{self, Refusal};
use crate::tools::Tool;

/// Arguments of `audit`.
///
/// Exit codes: 0 clean, 1 findings, 2 wrong usage, 3 not judged.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// PTX, a cubin or a bundle; `-` reads standard input.
    pub file: String,
    /// What PTX is assembled for; otherwise the file's own `.target`.
    #[arg(long, value_name = "TARGET", value_parser = super::parse_target)]
    pub target: Option<Target>,
    /// Nobody writes this parameter while the kernel runs: `name`, `KERNEL:name`, or `#0` in a cubin.
    #[arg(long = "static", value_name = "PARAM")]
    pub statics: Vec<String>,
    /// This parameter may be written while the kernel runs.
    #[arg(long, value_name = "PARAM")]
    pub mutable: Vec<String>,
    /// A TOML file of such declarations: `static` and `mutable` lists, for one kernel in `[kernel.NAME]`.
    #[arg(long, value_name = "FILE")]
    pub declarations: Option<String>,
    /// Judge PTX alone, without assembling it: moved reads are not seen.
    #[arg(long)]
    pub ptx_only: bool,
}

const ELF: &[u8] = b"\x7fELF";

/// Audits a file.
pub fn run(cli: &Cli, args: &AuditArgs) -> Answer {
    audit(cli, args).unwrap_or_else(|refusal| *refusal)
}

fn audit(cli: &Cli, args: &AuditArgs) -> Result<Answer, Refusal> {
    let wrong = |message: String| session::usage(cli.format, &message);
    let mut declarations = Declarations::parse(&args.statics, &args.mutable)
        .map_err(|error| wrong(error.to_string()))?;
    let file = match &args.declarations {
        Some(path) => Some((path, declaration_file(cli.format, path)?)),
        None => None,
    };
    if let Some((_, file)) = &file {
        file.add_to(&mut declarations);
    }
    let bytes = read(cli.format, &args.file)?;
    let is_named_bundle = args.file.ends_with(bundle::ENDING);
    if bytes.starts_with(bundle::MAGIC) || is_named_bundle {
        let declares = !args.statics.is_empty() || !args.mutable.is_empty() || file.is_some();
        if declares || args.ptx_only {
            return Err(wrong("a bundle says itself what is static; audit it as it is".to_owned()));
        }
        let tools = Processes {
            ptxas: None,
            nvdisasm: Some(session::tool(cli, Tool::Nvdisasm)?),
            scratch: std::env::temp_dir(),
        };
        let bundle = Bundle::from_bytes(bytes, Policy { allow_unaudited: true })
            .map_err(|error| bundle::refusal(cli.format, &error.of(&args.file)))?;
        let report = bundle::audit(&bundle, &tools).map_err(|message| {
            let code = BundleCode::Index;
            bundle::refusal(cli.format, &BundleError { code, bundle: args.file.clone(), message })
        })?;
        return Ok(answer(cli.format, &args.file, &report));
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(session::cannot_read(cli.format, &args.file, "it is empty"));
    }
    let report = if bytes.starts_with(ELF) {
        let nvdisasm = session::tool(cli, Tool::Nvdisasm)?;
        let tools =
            Processes { ptxas: None, nvdisasm: Some(nvdisasm), scratch: std::env::temp_dir() };
        audit_cubin(&bytes, &declarations, &tools)
    } else {
        let text = String::from_utf8(bytes).map_err(|_| {
            session::cannot_read(cli.format, &args.file, "it is neither PTX text nor a cubin")
        })?;
        let target = match args.target {
            Some(target) => target.name().to_owned(),
            None => stated_target(&text).ok_or_else(|| {
                wrong("the file states no `.target`; name one with --target".to_owned())
            })?,
        };
        if args.ptx_only {
            audit_ptx(&text, &declarations, &target, None)
        } else {
            let tools = Processes {
                ptxas: Some(session::tool(cli, Tool::Ptxas)?),
                nvdisasm: Some(session::tool(cli, Tool::Nvdisasm)?),
                scratch: std::env::temp_dir(),
            };
            audit_ptx(&text, &declarations, &target, Some(&tools))
        }
    };
    let report = report.map_err(|error| {
        let place = file.as_ref().and_then(|(path, file)| Some((path, file.place_of(&error)?)));
        match place {
            Some((path, at)) => bad_declaration(cli.format, path, at, &error.to_string()),
            None => wrong(error.to_string()),
        }
    })?;
    Ok(answer(cli.format, &args.file, &report))
}

fn declaration_file(format: Format, path: &str) -> Result<DeclarationFile, Refusal> {
    let bytes = files::read(Path::new(path), files::MAX_SOURCE)
        .map_err(|error| session::cannot_read(format, path, &error.to_string()))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| session::cannot_read(format, path, "it is not UTF-8"))?;
    DeclarationFile::parse(&text)
        .map_err(|fault| bad_declaration(format, path, fault.at, &fault.message))
}

fn bad_declaration(format: Format, path: &str, at: (usize, usize), message: &str) -> Refusal {
    let (line, column) = at;
    Box::new(session::world(format, "E0806", &format!("`{path}:{line}:{column}`: {message}")))
}

fn read(format: Format, path: &str) -> Result<Vec<u8>, Refusal> {
    files::read_or_stdin(path, files::MAX_AUDITED)
        .map_err(|error| session::cannot_read(format, path, &error.to_string()))
}

/// The architecture of the `.target` line.
fn stated_target(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".target"))?;
    let name = line.split([',', ' ', '\t', '/', ';']).find(|word| !word.is_empty())?;
    Some(name.to_owned())
}

fn answer(format: Format, file: &str, report: &Report) -> Answer {
    let stdout = match format {
        Format::Text => report.to_text(file),
        Format::Json => report.to_json() + "\n",
        Format::Sarif => report.to_sarif(file) + "\n",
    };
    Answer { stdout, code: report.verdict.exit_code(), ..Answer::default() }
}
