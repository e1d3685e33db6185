//! `kernelc doctor`: which tools and targets there are.

use clap::Args;
use kernel_ir::target::Target;

use super::{Answer, Cli, Format, exit};
use crate::tools::{self, Tool};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {}

/// Lists tools with their paths and versions, and targets with their limits; exit code 4 when a tool is missing.
pub fn run(cli: &Cli, _args: &DoctorArgs) -> Answer {
    let here = std::env::current_dir().unwrap_or_default();
    let found: Vec<_> = Tool::ALL
        .into_iter()
        .map(|tool| {
            let explicit = match tool {
                Tool::Ptxas => cli.ptxas.as_deref(),
                Tool::Nvdisasm => cli.nvdisasm.as_deref(),
            };
            let path = tool.find(explicit, &here);
            let version = path.as_deref().and_then(tools::version);
            (tool, path, version)
        })
        .collect();
    let missing = found.iter().any(|(_, path, _)| path.is_none());
    let code = if missing { exit::WORLD } else { exit::OK };
    let llvm = kernel_codegen::llvm_version();
    let stdout = match cli.format {
        Format::Json => {
            let tools: Vec<_> = found
                .iter()
                .map(|(tool, path, version)| {
                    serde_json::json!({ "name": tool.name(), "path": path, "version": version })
                })
                .collect();
            let targets: Vec<_> = Target::ALL
                .iter()
                .map(|t| {
                    let info = t.info();
                    serde_json::json!({
                        "name": info.name,
                        "ptx_version": f64::from(info.ptx_version) / 10.0,
                        "max_shared_bytes": info.max_shared_bytes,
                        "max_registers": info.max_registers,
                    })
                })
                .collect();
            let version = env!("CARGO_PKG_VERSION");
            let all = serde_json::json!({ "kernelc": version, "llvm": llvm, "tools": tools, "targets": targets });
            format!("{all}\n")
        }
        Format::Text | Format::Sarif => {
            let mut text = format!("kernelc {}, LLVM {llvm}\n\ntools\n", env!("CARGO_PKG_VERSION"));
            for (tool, path, version) in &found {
                let line = match path {
                    Some(path) => format!(
                        "  {:<9} {:<10} {}\n",
                        tool.name(),
                        version.as_deref().unwrap_or("?"),
                        path.display()
                    ),
                    None => format!("  {:<9} missing    {}\n", tool.name(), tools::HOW_TO_GET),
                };
                text.push_str(&line);
            }
            text.push_str("\ntargets\n");
            for target in Target::ALL {
                let info = target.info();
                text.push_str(&format!(
                    "  {:<8} PTX {}.{}, shared memory {} bytes a CTA, {} registers a thread\n",
                    info.name,
                    info.ptx_version / 10,
                    info.ptx_version % 10,
                    info.max_shared_bytes,
                    info.max_registers
                ));
            }
            text
        }
    };
    Answer { stdout, code, ..Answer::default() }
}
