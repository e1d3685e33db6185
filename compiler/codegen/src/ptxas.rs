//! PTX to cubin, and back to text.
//!
//! ptxas and nvdisasm want to seek in what they read and write, so they get anonymous files: nothing
//! lands on a disk, and no path reaches the cubin.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use kernel_ir::target::Target;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::error::CodegenError;

/// The vendor's tools, found by the caller; `None` where they were not found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tools {
    /// The assembler.
    pub ptxas: Option<PathBuf>,
    /// The disassembler.
    pub nvdisasm: Option<PathBuf>,
}

/// A kernel in machine code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The file.
    pub bytes: Vec<u8>,
    /// What ptxas says about it; of the last kernel when there are several.
    pub usage: Usage,
    /// Warnings of ptxas.
    pub warnings: Vec<String>,
}

/// What a kernel needs, in the words of ptxas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of the stack frame of a thread.
    pub stack_bytes: u32,
    /// Bytes stored by spills.
    pub spill_store_bytes: u32,
    /// Bytes loaded by spills.
    pub spill_load_bytes: u32,
    /// Bytes of static shared memory; what a device kernel asks for is dynamic.
    pub shared_bytes: u32,
    /// Bytes of constant memory that ptxas counts.
    pub constant_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// Assembles PTX; `name` stands for the file in messages.
pub fn assemble(
    ptx: &str,
    name: &str,
    target: Target,
    tools: &Tools,
) -> Result<Cubin, CodegenError> {
    let arguments = ["-arch", target.name(), "-O3", "-v", "-lineinfo"];
    let call = Call {
        tool: "ptxas",
        path: tools.ptxas.as_ref(),
        arguments: &arguments,
        shown: format!("{name}.ptx"),
    };
    let output = call.run(ptx.as_bytes(), &["-o", "/proc/self/fd/1", "/proc/self/fd/0"])?;
    if !output.status.success() || output.stdout.is_empty() {
        return Err(call.failure(&output));
    }
    if let Some(line) = serialized(&output.log) {
        return Err(CodegenError::Serialized { command: call.command(), log: line.to_owned() });
    }
    if let Some(line) = ignored(&output.log) {
        return Err(CodegenError::Ptxas { command: call.command(), log: line.to_owned() });
    }
    let warnings = output.log.lines().filter(|l| l.contains("warning")).map(str::to_owned);
    Ok(Cubin {
        usage: parse_usage(&output.log),
        warnings: warnings.collect(),
        bytes: output.stdout,
    })
}

/// Machine code as text, with the `.loc` line of each instruction.
pub fn disassemble(cubin: &[u8], name: &str, tools: &Tools) -> Result<String, CodegenError> {
    let call = Call {
        tool: "nvdisasm",
        path: tools.nvdisasm.as_ref(),
        arguments: &["-g", "-c"],
        shown: format!("{name}.cubin"),
    };
    let output = call.run(cubin, &["/proc/self/fd/0"])?;
    if !output.status.success() {
        return Err(call.failure(&output));
    }
    String::from_utf8(output.stdout).map_err(|_| CodegenError::Ptxas {
        command: call.command(),
        log: "its output is not text".to_owned(),
    })
}

/// The first line of `--version` that names a release, as `13.5.37`.
pub fn version(tools: &Tools) -> Result<String, CodegenError> {
    let call = Call {
        tool: "ptxas",
        path: tools.ptxas.as_ref(),
        arguments: &["--version"],
        shown: String::new(),
    };
    let output = call.run(b"", &[])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.split(|c: char| c.is_whitespace() || c == ',').find_map(|word| {
        word.strip_prefix('V').filter(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    });
    found.map(str::to_owned).ok_or_else(|| call.failure(&output))
}

struct Call<'a> {
    tool: &'static str,
    path: Option<&'a PathBuf>,
    arguments: &'a [&'a str],
    shown: String,
}

struct Output {
    status: ExitStatus,
    stdout: Vec<u8>,
    log: String,
}

impl Call<'_> {
    fn run(&self, input: &[u8], files: &[&str]) -> Result<Output, CodegenError> {
        let path = self.path.ok_or_else(|| self.missing("no path to it is known".to_owned()))?;
        let mut stdin = self.anonymous_file()?;
        let mut stdout = self.anonymous_file()?;
        let broken = |error: std::io::Error| CodegenError::Ptxas {
            command: self.command(),
            log: error.to_string(),
        };
        stdin.write_all(input).map_err(broken)?;
        stdin.seek(SeekFrom::Start(0)).map_err(broken)?;
        let output = Command::new(path)
            .args(self.arguments)
            .args(files)
            .stdin(Stdio::from(stdin))
            .stdout(Stdio::from(stdout.try_clone().map_err(broken)?))
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| self.missing(format!("{}: {error}", path.display())))?;
        let mut bytes = Vec::new();
        stdout.seek(SeekFrom::Start(0)).map_err(broken)?;
        stdout.read_to_end(&mut bytes).map_err(broken)?;
        let log = String::from_utf8_lossy(&output.stderr).replace("/proc/self/fd/0", &self.shown);
        Ok(Output { status: output.status, stdout: bytes, log })
    }

    fn anonymous_file(&self) -> Result<File, CodegenError> {
        memfd_create("kernelc", MemfdFlags::CLOEXEC).map(File::from).map_err(|error| {
            CodegenError::Ptxas { command: self.command(), log: format!("no memory file: {error}") }
        })
    }

    fn command(&self) -> String {
        format!("{} {} {}", self.tool, self.arguments.join(" "), self.shown)
    }

    fn failure(&self, output: &Output) -> CodegenError {
        let log = output.log.trim();
        let log = if log.is_empty() { "it said nothing" } else { log };
        let (command, log) = (self.command(), format!("{log} ({})", output.status));
        // Without an exit code it was a signal that ended the program.
        match output.status.code() {
            Some(_) => CodegenError::Ptxas { command, log },
            None => CodegenError::Crashed { command, log },
        }
    }

    fn missing(&self, reason: String) -> CodegenError {
        CodegenError::ToolMissing { tool: self.tool.to_owned(), reason }
    }
}

/// The line that says that products of a warpgroup wait for each other: their sums do not stay in place.
fn serialized(log: &str) -> Option<&str> {
    log.lines().map(str::trim).find(|line| line.contains("wgmma") && line.contains("serialized"))
}

/// The line that says that register budgets are not kept.
fn ignored(log: &str) -> Option<&str> {
    log.lines().map(str::trim).find(|line| line.contains("setmaxnreg"))
}

/// Reads the lines that `ptxas -v` writes for each kernel:
///
/// ```text
///     8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
/// ptxas info    : Used 14 registers, used 1 barriers, 512 bytes smem, 400 bytes cmem[0]
/// ```
fn parse_usage(log: &str) -> Usage {
    let mut usage = Usage::default();
    for line in log.lines() {
        let text = line.split_once("info    :").map_or(line, |(_, rest)| rest);
        for part in text.split(',') {
            let part = part.trim();
            let lower = part.to_ascii_lowercase();
            let part = lower.strip_prefix("used ").unwrap_or(&lower);
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u32>() else { continue };
            let field = match what {
                "registers" => &mut usage.registers,
                "barriers" => &mut usage.barriers,
                "bytes stack frame" => &mut usage.stack_bytes,
                "bytes spill stores" => &mut usage.spill_store_bytes,
                "bytes spill loads" => &mut usage.spill_load_bytes,
                "bytes smem" => &mut usage.shared_bytes,
                _ if what.starts_with("bytes cmem") => &mut usage.constant_bytes,
                _ => continue,
            };
            *field = number;
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_the_verbose_log() {
        let log = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 8 bytes cumulative stack size, 512 bytes smem, 400 bytes cmem[0]
ptxas info    : Compile time = 31.936 ms
";
        assert_eq!(
            parse_usage(log),
            Usage {
                registers: 14,
                stack_bytes: 8,
                spill_store_bytes: 12,
                spill_load_bytes: 16,
                shared_bytes: 512,
                constant_bytes: 400,
                barriers: 1,
            }
        );
    }

    #[test]
    fn products_that_wait_for_each_other_are_an_error() {
        let said = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are \
                    serialized due to insufficient register resources for the wgmma pipeline in function 'k'";
        assert_eq!(serialized(&format!("ptxas info    : 0 bytes gmem\n{said}\n")), Some(said));
        assert_eq!(serialized("ptxas info    : Used 14 registers"), None);
    }

    #[test]
    fn a_missing_tool_says_how_to_get_it() {
        let none = assemble("", "k", Target::Sm90a, &Tools::default()).unwrap_err();
        assert!(matches!(&none, CodegenError::ToolMissing { tool, .. } if tool == "ptxas"));
        assert!(none.help().unwrap().contains("nvidia-cuda-nvcc"));
        let gone = Tools { ptxas: Some("/nonexistent/ptxas".into()), nvdisasm: None };
        let gone = assemble("", "k", Target::Sm90a, &gone).unwrap_err();
        assert!(gone.to_string().contains("/nonexistent/ptxas"), "{gone}");
    }
}
