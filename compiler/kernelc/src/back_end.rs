//! The back half of a build: jobs for the worker processes, and the audit of what they made.

use std::path::{Path, PathBuf};

use kernel_audit::{Processes, Report, Toolchain, check_build};
use kernel_codegen::{CodegenError, SourceLine, Stage, Tools, Usage};
use kernel_dsl::source::SourceMap;
use kernel_ir::device::DeviceKernel;

use crate::cli::{Answer, Cli, Format, exit};
use crate::operations::{Operation, map_name, obligations, operations};
use crate::package::{MANIFEST_FORMAT, Manifest};
use crate::session::{self, Refusal};
use crate::tools::{self, Tool};
use crate::worker::{Done, Job, JobInput, Pool};

/// What this machine compiles with.
#[derive(Debug, Clone)]
pub struct Machine {
    ptxas: PathBuf,
    nvdisasm: PathBuf,
    ptxas_version: String,
    nvdisasm_version: String,
    /// Length and time of this program's file: a rebuilt compiler builds everything again.
    program: String,
}

impl Machine {
    /// Finds the tools.
    ///
    /// # Errors
    /// One of them is missing.
    pub fn find(cli: &Cli) -> Result<Machine, Refusal> {
        let ptxas = session::tool(cli, Tool::Ptxas)?;
        let nvdisasm = session::tool(cli, Tool::Nvdisasm)?;
        let program = std::env::current_exe().and_then(|path| path.metadata()).map_or_else(
            |_| String::new(),
            |meta| {
                let time =
                    meta.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
                format!("{} {}", meta.len(), time.map_or(0, |t| t.as_nanos()))
            },
        );
        Ok(Machine {
            ptxas_version: tools::version(&ptxas).unwrap_or_default(),
            nvdisasm_version: tools::version(&nvdisasm).unwrap_or_default(),
            ptxas,
            nvdisasm,
            program,
        })
    }

    /// Text that changes whenever results may change.
    pub fn identity(&self) -> String {
        format!("{} {} {}", self.program, self.ptxas_version, self.nvdisasm_version)
    }

    /// A manifest of this machine's versions without kernels.
    pub fn manifest(&self) -> Manifest {
        Manifest {
            format: MANIFEST_FORMAT,
            kernelc: env!("CARGO_PKG_VERSION").to_owned(),
            llvm: kernel_codegen::llvm_version(),
            ptxas: self.ptxas_version.clone(),
            nvdisasm: self.nvdisasm_version.clone(),
            bundle: String::new(),
            bundle_sha256: String::new(),
            kernels: Vec::new(),
        }
    }

    fn processes(&self) -> Processes {
        Processes {
            ptxas: Some(self.ptxas.clone()),
            nvdisasm: Some(self.nvdisasm.clone()),
            scratch: std::env::temp_dir(),
        }
    }
}

/// A kernel with machine code and report.
#[derive(Debug, Clone)]
pub struct Product {
    /// PTX.
    pub ptx: String,
    /// Machine code.
    pub cubin: Vec<u8>,
    /// What it needs.
    pub usage: Usage,
    /// What the audit says.
    pub report: Report,
    /// What each `.loc` line of the PTX stands for.
    pub operations: Vec<Operation>,
}

impl Product {
    /// Bytes that a thread spills, stores and loads.
    pub fn spill_bytes(&self) -> u32 {
        self.usage.spill_store_bytes + self.usage.spill_load_bytes
    }
}

/// Runs one job in a worker.
///
/// # Errors
/// The back end failed.
pub fn compile_one(cli: &Cli, job: Job) -> Result<Done, Refusal> {
    // A stage before machine code needs no tools.
    let tools = match job.last {
        Stage::Cubin => Tools { ptxas: Some(session::tool(cli, Tool::Ptxas)?), nvdisasm: None },
        Stage::Mlir | Stage::Llvm | Stage::Ptx => Tools::default(),
    };
    let pool = pool(tools, 1);
    let mut results = pool.run(vec![job]);
    results
        .pop()
        .expect("a pool answers every job")
        .map_err(|error| Box::new(failure(cli.format, &[error])))
}

/// Compiles and audits kernels in parallel; results are in the order of `kernels`.
///
/// # Errors
/// The back end failed for some; all failures are reported.
pub fn compile_all(
    cli: &Cli,
    machine: &Machine,
    sources: &SourceMap,
    workers: Option<usize>,
    kernels: &[&DeviceKernel],
) -> Result<Vec<Product>, Refusal> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.unwrap_or(cores);
    let tools =
        Tools { ptxas: Some(machine.ptxas.clone()), nvdisasm: Some(machine.nvdisasm.clone()) };
    let jobs = kernels.iter().map(|kernel| job(sources, kernel, Stage::Cubin)).collect();
    let mut errors = Vec::new();
    let mut made = Vec::new();
    for result in pool(tools, workers).run(jobs) {
        match result {
            Ok(done) => made.push(done),
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(Box::new(failure(cli.format, &errors)));
    }
    let processes = machine.processes();
    let products = in_parallel(workers, kernels.iter().zip(made).collect(), |(kernel, done)| {
        let (cubin, usage) = done.cubin.unwrap_or_default();
        let ptx = done.ptx.unwrap_or_default();
        let operations = operations(sources, kernel);
        let of_maps = kernel.maps.iter().map(|map| {
            let param = &kernel.params[map.param];
            (map_name(&param.name), param.access)
        });
        let params = kernel.params.iter().map(|p| (p.name.clone(), p.access)).chain(of_maps);
        let params = params.collect();
        let duties = obligations(&kernel.export, params, &operations);
        let report = check_build(&ptx, &cubin, &duties, &processes);
        Product { ptx, cubin, usage, report, operations }
    });
    Ok(products)
}

/// Maps items on several threads and keeps their order.
pub fn in_parallel<T: Send, R: Send>(
    threads: usize,
    items: Vec<T>,
    run: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let mut lanes: Vec<Vec<(usize, T)>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
    let count = lanes.len();
    for (index, item) in items.into_iter().enumerate() {
        lanes[index % count].push((index, item));
    }
    let run = &run;
    let mut results: Vec<(usize, R)> = std::thread::scope(|scope| {
        let handles: Vec<_> = lanes
            .into_iter()
            .map(|lane| {
                scope.spawn(move || {
                    lane.into_iter().map(|(i, item)| (i, run(item))).collect::<Vec<_>>()
                })
            })
            .collect();
        handles
            .into_iter()
            .flat_map(|handle| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn pool(tools: Tools, workers: usize) -> Pool {
    // Without a path to itself the program cannot start workers; the pool then reports that.
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("kernelc"));
    Pool { program, tools, workers }
}

/// The job that takes a kernel up to `last`.
pub fn job(sources: &SourceMap, kernel: &DeviceKernel, last: Stage) -> Job {
    let places: Vec<SourceLine> = kernel
        .locs
        .iter()
        .map(|loc| SourceLine {
            file: sources.name(loc.span.file).to_owned(),
            line: sources.line_col(loc.span.file, loc.span.lo).line,
        })
        .collect();
    let file = places.first().map_or("FILE", |place| place.file.as_str());
    let reproduce = format!(
        "kernelc emit --stage {} --kernel {} --target {} {file}, with the same --bind",
        if last == Stage::Cubin { "sass" } else { last.name() },
        kernel.name,
        kernel.target
    );
    Job {
        name: kernel.export.clone(),
        target: kernel.target.name().to_owned(),
        input: JobInput::Device(Box::new(kernel.clone()), places),
        last,
        reproduce,
    }
}

/// The disassembly of a cubin.
///
/// # Errors
/// nvdisasm failed.
pub fn disassemble(cli: &Cli, nvdisasm: &Path, cubin: &[u8]) -> Result<String, Refusal> {
    let processes = Processes {
        ptxas: None,
        nvdisasm: Some(nvdisasm.to_owned()),
        scratch: std::env::temp_dir(),
    };
    processes
        .disassemble(cubin)
        .map_err(|error| Box::new(session::world(cli.format, "E0807", &error.to_string())))
}

/// Failures of the back end, each with its code, the stage and what to do.
fn failure(format: Format, errors: &[CodegenError]) -> Answer {
    let mut all = Answer { code: exit::WORLD, ..Answer::default() };
    for error in errors {
        let code = match error {
            CodegenError::ToolMissing { .. } => "E0801",
            CodegenError::Ptxas { .. } => "E0802",
            CodegenError::Serialized { .. } => "E0811",
            CodegenError::Author { .. } => "E0812",
            CodegenError::Crashed { .. } => "E0803",
            CodegenError::WorkerDied { .. } | CodegenError::Worker(_) => "E0804",
            CodegenError::Backend(_)
            | CodegenError::Mlir(_)
            | CodegenError::Translate(_)
            | CodegenError::Lower { .. }
            | CodegenError::Leftovers(_) => "E0808",
        };
        let mut message = error.to_string();
        if let Some(help) = error.help() {
            message.push_str(&format!("\n  = help: {help}"));
        }
        let answer = session::world(format, code, &message);
        all.stdout.push_str(&answer.stdout);
        all.stderr.push_str(&answer.stderr);
    }
    all
}
