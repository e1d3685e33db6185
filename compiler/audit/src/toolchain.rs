//! The tools of the machine code, behind a trait.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use thiserror::Error;

/// How PTX is assembled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembleOptions {
    /// Target, for example `sm_90a`.
    pub target: String,
    /// Whether line information is kept.
    pub line_info: bool,
}

/// Assembler and disassembler.
pub trait Toolchain {
    /// PTX to cubin.
    ///
    /// # Errors
    /// The tool is missing, crashed, or refused the text.
    fn assemble(&self, ptx: &str, options: &AssembleOptions) -> Result<Vec<u8>, ToolError>;

    /// Cubin to the text of the disassembler, with line information where there is some.
    ///
    /// # Errors
    /// The tool is missing, crashed, or refused the file.
    fn disassemble(&self, cubin: &[u8]) -> Result<String, ToolError>;
}

/// A tool did not do its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The tool is not there. The user has to install it.
    #[error(
        "{tool} was not found{place}; `python3 -m pip install --no-deps --target .tools {package}` gets it, or name it with {variable}"
    )]
    Missing {
        /// Name of the tool.
        tool: &'static str,
        /// Where it was looked for.
        place: String,
        /// The package that holds it.
        package: &'static str,
        /// The environment variable that names it.
        variable: &'static str,
    },
    /// The tool refused its input. The input is at fault.
    #[error("{tool} refused the input: {message}")]
    Refused {
        /// Name of the tool.
        tool: &'static str,
        /// What it said.
        message: String,
    },
    /// The tool ended without an answer. The tool is at fault.
    #[error("{tool} crashed ({status}){message}")]
    Crashed {
        /// Name of the tool.
        tool: &'static str,
        /// How it ended.
        status: String,
        /// What it said.
        message: String,
    },
    /// The tool did not end in time. The input is at fault, or the machine.
    #[error("{tool} did not end within {seconds} seconds and was stopped")]
    TimedOut {
        /// Name of the tool.
        tool: &'static str,
        /// How long it was waited for.
        seconds: u64,
    },
    /// Files or pipes failed. The machine is at fault.
    #[error("running {tool}: {source}")]
    Io {
        /// Name of the tool.
        tool: &'static str,
        /// What failed.
        source: std::io::Error,
    },
}

/// ptxas and nvdisasm as processes.
#[derive(Clone, Debug)]
pub struct Processes {
    /// The assembler, if one is known.
    pub ptxas: Option<PathBuf>,
    /// The disassembler, if one is known.
    pub nvdisasm: Option<PathBuf>,
    /// A folder for files between the tools; it has to exist.
    pub scratch: PathBuf,
}

/// How long a tool may take for one file.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// How often it is looked whether a tool ended that has closed its output.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

const PTXAS: (&str, &str, &str) = ("ptxas", "nvidia-cuda-nvcc==13.5.37", "KERNELC_PTXAS");
const NVDISASM: (&str, &str, &str) =
    ("nvdisasm", "nvidia-cuda-nvdisasm==13.5.37", "KERNELC_NVDISASM");

impl Toolchain for Processes {
    fn assemble(&self, ptx: &str, options: &AssembleOptions) -> Result<Vec<u8>, ToolError> {
        let tool = PTXAS.0;
        let files = Scratch::new(&self.scratch, tool)?;
        let (input, output) = (files.path("in.ptx"), files.path("out.cubin"));
        std::fs::write(&input, ptx).map_err(|source| ToolError::Io { tool, source })?;
        let mut command = command(self.ptxas.as_deref(), PTXAS)?;
        command.arg("-arch").arg(&options.target).arg("-O3").arg("-w");
        if options.line_info {
            command.arg("-lineinfo");
        }
        command.arg(&input).arg("-o").arg(&output);
        run(command, PTXAS, self.ptxas.as_deref()).map_err(|error| match error {
            // The name of the file between the tools means nothing to the reader.
            ToolError::Refused { tool, message } => {
                let name = input.display().to_string();
                ToolError::Refused { tool, message: message.replace(&name, "the PTX") }
            }
            other => other,
        })?;
        std::fs::read(&output).map_err(|source| ToolError::Io { tool, source })
    }

    fn disassemble(&self, cubin: &[u8]) -> Result<String, ToolError> {
        let tool = NVDISASM.0;
        let files = Scratch::new(&self.scratch, tool)?;
        let input = files.path("in.cubin");
        std::fs::write(&input, cubin).map_err(|source| ToolError::Io { tool, source })?;
        let mut command = command(self.nvdisasm.as_deref(), NVDISASM)?;
        // Without the analysis of branch stacks the tool is faster; the targets of indirect branches
        // are read from the cubin. A large first allocation saves it a tenth of its time.
        command.arg("-g").arg("-c").arg("-ndf").arg(&input);
        command.env("MALLOC_TOP_PAD_", "67108864");
        run(command, NVDISASM, self.nvdisasm.as_deref())
    }
}

fn missing(of: (&'static str, &'static str, &'static str), path: Option<&Path>) -> ToolError {
    let place = path.map(|path| format!(" at {}", path.display())).unwrap_or_default();
    ToolError::Missing { tool: of.0, place, package: of.1, variable: of.2 }
}

fn command(
    path: Option<&Path>,
    of: (&'static str, &'static str, &'static str),
) -> Result<Command, ToolError> {
    path.map(Command::new).ok_or_else(|| missing(of, None))
}

fn run(
    command: Command,
    of: (&'static str, &'static str, &'static str),
    path: Option<&Path>,
) -> Result<String, ToolError> {
    run_within(command, of, path, TIME_LIMIT)
}

/// Reads a pipe to its end in a thread of its own.
fn drain(pipe: Option<impl Read + Send + 'static>) -> Receiver<std::io::Result<Vec<u8>>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = match pipe {
            Some(mut pipe) => pipe.read_to_end(&mut bytes),
            None => Ok(0),
        };
        // Nobody waits any more where the tool was stopped.
        let _ = sender.send(read.map(|_| bytes));
    });
    receiver
}

fn run_within(
    mut command: Command,
    of: (&'static str, &'static str, &'static str),
    path: Option<&Path>,
    limit: Duration,
) -> Result<String, ToolError> {
    let tool = of.0;
    let started = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(missing(of, path));
        }
        Err(source) => return Err(ToolError::Io { tool, source }),
    };
    let (errors, output) = (drain(child.stderr.take()), drain(child.stdout.take()));
    let left = || limit.saturating_sub(started.elapsed());
    let output = output.recv_timeout(left());
    let status = loop {
        match child.try_wait().map_err(|source| ToolError::Io { tool, source })? {
            Some(status) => break Some(status),
            None if output.is_err() || left().is_zero() => break None,
            None => std::thread::sleep(LOOK_AGAIN),
        }
    };
    let (Ok(output), Some(status)) = (output, status) else {
        // It may have ended by itself by now; then there is nothing to stop.
        let _ = child.kill();
        let _ = child.wait();
        return Err(ToolError::TimedOut { tool, seconds: limit.as_secs() });
    };
    let output = output.map_err(|source| ToolError::Io { tool, source })?;
    // What cannot be read of a message is left out of it.
    let errors = errors.recv_timeout(left()).ok().and_then(Result::ok).unwrap_or_default();
    let message = String::from_utf8_lossy(&errors).trim().to_owned();
    if status.success() {
        return Ok(String::from_utf8_lossy(&output).into_owned());
    }
    match status.code() {
        Some(_) if !message.is_empty() => Err(ToolError::Refused { tool, message }),
        _ => Err(ToolError::Crashed {
            tool,
            status: status.to_string(),
            message: if message.is_empty() { message } else { format!(": {message}") },
        }),
    }
}

/// Files of one call, removed at its end.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn new(parent: &Path, tool: &'static str) -> Result<Self, ToolError> {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = parent.join(format!("kernel-audit-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|source| ToolError::Io { tool, source })?;
        Ok(Scratch { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed is left to the system.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<String, ToolError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_within(command, PTXAS, None, limit)
    }

    #[test]
    fn a_tool_that_does_not_end_is_stopped() {
        let started = Instant::now();
        for script in ["exec sleep 60", "exec >&- 2>&-; exec sleep 60"] {
            let error = shell(script, Duration::from_millis(200));
            assert!(matches!(error, Err(ToolError::TimedOut { .. })), "{script}: {error:?}");
        }
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_tool_that_ends_says_what_it_has_to() {
        let limit = Duration::from_secs(60);
        assert_eq!(shell("echo code; echo remark >&2", limit).unwrap(), "code\n");
        let refused = shell("echo wrong >&2; exit 3", limit);
        assert!(
            matches!(&refused, Err(ToolError::Refused { message, .. }) if message == "wrong"),
            "{refused:?}"
        );
        let crashed = shell("kill -9 $$", limit);
        assert!(matches!(crashed, Err(ToolError::Crashed { .. })), "{crashed:?}");
    }
}
