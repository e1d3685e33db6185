//! Sources from disk and the way from a file to verified kernels.

use std::path::{Path, PathBuf};

use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::{FileId, SourceMap};
use kernel_ir::pipeline::{self, Front};
use kernel_ir::sema::{Bindings, ConstValue, KernelTemplate};
use kernel_ir::target::Target;

use crate::build_file::{BindValue, BuildFile, Entry};
use crate::cli::{Answer, Cli, Format, KernelArgs, exit};
use crate::files;
use crate::output;
use crate::tools::{self, Tool};

/// The texts of one run of kernelc.
#[derive(Debug, Default)]
pub struct Session {
    /// Every text that was read.
    pub sources: SourceMap,
}

/// A refusal that is already worded.
pub type Refusal = Box<Answer>;

impl Session {
    /// A session without texts.
    pub fn new() -> Session {
        Session::default()
    }

    /// Reads a file; `-` reads standard input.
    ///
    /// # Errors
    /// The file cannot be read, or is not UTF-8.
    pub fn load(&mut self, format: Format, path: &str) -> Result<FileId, Refusal> {
        let bytes = files::read_or_stdin(path, files::MAX_SOURCE)
            .map_err(|error| cannot_read(format, path, &error.to_string()))?;
        let name = if path == files::STDIN { "<stdin>" } else { path };
        match String::from_utf8(bytes) {
            Ok(text) => Ok(self.sources.add(name, text)),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let diagnostic = Diagnostic::error(Code::E0001, format!("`{name}` is not UTF-8"))
                    .note(format!("the first byte that does not fit is at offset {at}"))
                    .help("save the file as UTF-8");
                Err(Box::new(output::diagnostics(format, &self.sources, &[diagnostic])))
            }
        }
    }

    /// Parses a loaded file with its imports and checks it.
    pub fn front(&mut self, root: FileId) -> Front {
        let mut read = |path: &str| {
            let bytes = files::read(Path::new(path), files::MAX_SOURCE)
                .map_err(|error| error.to_string())?;
            String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())
        };
        pipeline::front(&mut self.sources, root, &mut read)
    }

    /// Loads and checks a file; a file with errors is refused with all of them.
    ///
    /// # Errors
    /// What [`Session::load`] says, or the findings.
    pub fn open(&mut self, format: Format, path: &str) -> Result<Front, Refusal> {
        let root = self.load(format, path)?;
        let front = self.front(root);
        if front.has_errors() {
            return Err(Box::new(output::diagnostics(format, &self.sources, &front.diagnostics)));
        }
        Ok(front)
    }

    /// The kernel, bindings and target that the command line names.
    ///
    /// # Errors
    /// No or several kernels fit, a binding is not of the form `NAME=VALUE`, or the file states no target.
    pub fn pick<'f>(
        &self,
        format: Format,
        front: &'f Front,
        args: &KernelArgs,
    ) -> Result<(&'f KernelTemplate, Bindings, Target), Refusal> {
        let names: Vec<&str> = front.templates.iter().map(KernelTemplate::name).collect();
        let template = match &args.kernel {
            Some(name) => front.template(name).ok_or_else(|| {
                usage(format, &format!("no kernel `{name}`; the file has {}", names.join(", ")))
            })?,
            None => match front.templates.as_slice() {
                [only] => only,
                [] => return Err(usage(format, "the file has no kernel")),
                _ => {
                    let hint = format!("choose one with --kernel: {}", names.join(", "));
                    return Err(usage(format, &hint));
                }
            },
        };
        let bindings = parse_bindings(&args.bind).map_err(|message| usage(format, &message))?;
        let bindings = match args.trace {
            Some(records) => bindings.traced(records),
            None => bindings,
        };
        let target = match args.target {
            Some(target) => target,
            None => *template.targets().first().ok_or_else(|| {
                usage(format, "the file states no target; name one with --target")
            })?,
        };
        Ok((template, bindings, target))
    }
}

/// Reads `NAME=VALUE` pairs.
pub fn parse_bindings(pairs: &[String]) -> Result<Bindings, String> {
    let mut bindings = Bindings::new();
    for pair in pairs {
        let (name, value) = pair
            .split_once('=')
            .ok_or_else(|| format!("E0208: `{pair}` is not of the form NAME=VALUE"))?;
        if bindings.get(name.trim()).is_some() {
            return Err(format!("E0208: `{}` is bound twice", name.trim()));
        }
        let value = match value.trim() {
            "true" => ConstValue::Bool(true),
            "false" => ConstValue::Bool(false),
            number => match number.parse::<i64>() {
                Ok(number) => ConstValue::Int(number),
                Err(_) => {
                    return Err(format!(
                        "E0208: `{number}` is neither an integer nor true or false"
                    ));
                }
            },
        };
        bindings.set(name.trim(), value);
    }
    Ok(bindings)
}

/// The bindings of an entry of `build.toml`.
pub fn entry_bindings(entry: &Entry) -> Bindings {
    entry
        .bind
        .iter()
        .map(|(name, value)| {
            let value = match value {
                BindValue::Bool(b) => ConstValue::Bool(*b),
                BindValue::Int(i) => ConstValue::Int(*i),
            };
            (name.clone(), value)
        })
        .collect()
}

/// Every combination of the `tune` values of a kernel, on top of `base`.
pub fn tune_points(template: &KernelTemplate, base: &Bindings) -> Vec<Bindings> {
    template.tunings().iter().fold(vec![base.clone()], |points, tuning| {
        points
            .iter()
            .flat_map(|point| {
                tuning.values.iter().map(move |value| {
                    let mut tuned = point.clone();
                    tuned.set(tuning.name.clone(), *value);
                    tuned
                })
            })
            .collect()
    })
}

/// The `build.toml` beside a file or in a folder, if there is one.
///
/// # Errors
/// The file is there and cannot be read.
pub fn build_file(format: Format, path: &Path) -> Result<BuildFile, Refusal> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let file = folder.join("build.toml");
    match files::read(&file, files::MAX_SOURCE) {
        Ok(bytes) => {
            let parsed = String::from_utf8(bytes)
                .map_err(|_| "it is not UTF-8".to_owned())
                .and_then(|text| BuildFile::parse(&text));
            parsed.map_err(|message| {
                Box::new(world(format, "E0806", &format!("`{}`: {message}", file.display())))
            })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BuildFile::default()),
        Err(error) => Err(cannot_read(format, &file.display().to_string(), &error.to_string())),
    }
}

/// The `.tile` files that a path means: itself, or those in the folder, sorted.
///
/// # Errors
/// The folder cannot be read or holds none.
pub fn tile_files(format: Format, path: &Path) -> Result<Vec<PathBuf>, Refusal> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path)
        .map_err(|error| cannot_read(format, &path.display().to_string(), &error.to_string()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|file| file.extension().is_some_and(|e| e == "tile"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(usage(format, &format!("`{}` holds no .tile file", path.display())));
    }
    Ok(files)
}

/// The path of a tool, or a coded refusal that says how to get it.
///
/// # Errors
/// The tool is not found.
pub fn tool(cli: &Cli, tool: Tool) -> Result<PathBuf, Refusal> {
    let explicit = match tool {
        Tool::Ptxas => cli.ptxas.as_deref(),
        Tool::Nvdisasm => cli.nvdisasm.as_deref(),
    };
    let here = std::env::current_dir().unwrap_or_default();
    tool.find(explicit, &here).ok_or_else(|| {
        let named = explicit
            .map(|path| (format!("--{}", tool.name()), path.display().to_string()))
            .or_else(|| Some((tool.variable().to_owned(), std::env::var(tool.variable()).ok()?)));
        let message = match named {
            Some((who, path)) => {
                format!(
                    "{} is missing: {who} names `{path}`, which is no file; {}",
                    tool.name(),
                    tools::HOW_TO_GET
                )
            }
            None => format!("{} is missing; {}", tool.name(), tools::HOW_TO_GET),
        };
        Box::new(world(cli.format, "E0801", &message))
    })
}

/// A wrong command line.
pub fn usage(format: Format, message: &str) -> Refusal {
    let mut answer = world(format, "usage", message);
    answer.code = exit::USAGE;
    Box::new(answer)
}

/// A file that cannot be read.
pub fn cannot_read(format: Format, path: &str, reason: &str) -> Refusal {
    Box::new(world(format, "E0806", &format!("cannot read `{path}`: {reason}")))
}

/// Something outside kernelc failed.
pub fn world(format: Format, code: &str, message: &str) -> Answer {
    let mut answer = Answer { code: exit::WORLD, ..Answer::default() };
    match format {
        Format::Text | Format::Sarif => answer.stderr = format!("error[{code}]: {message}\n"),
        Format::Json => {
            let line = serde_json::json!({ "code": code, "severity": "error", "message": message });
            answer.stdout = format!("{line}\n");
        }
    }
    answer
}
