//! Back-end jobs in processes of their own.
//!
//! LLVM aborts the process on input that it cannot select, and ptxas may crash. kernelc therefore starts
//! its own binary as `kernelc __worker`, one process a core, and keeps each for many jobs. A worker says
//! which stage it enters before it enters it; when it ends without an answer, or takes too long, the one
//! job that it had becomes [`CodegenError::WorkerDied`] with that stage, and a fresh process takes the
//! next. Jobs and answers are frames on standard input and output (`protocol`); standard error is kept
//! for the report.

mod process;
mod protocol;
mod serve;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kernel_codegen::{CodegenError, SourceLine, Stage, Tools, Usage};
use kernel_ir::device::DeviceKernel;
use serde::{Deserialize, Serialize};

use self::process::Worker;
pub use self::serve::serve;

/// How long one job may take. Real kernels take well under a second.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Work for one process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Name of the kernel or the text, for messages.
    pub name: String,
    /// Name of the target.
    pub target: String,
    /// What to start from.
    pub input: JobInput,
    /// The last stage to run.
    pub last: Stage,
    /// A command that shows the job again.
    pub reproduce: String,
}

/// What a job starts from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum JobInput {
    /// A kernel of the device level, and the source of each of its places.
    Device(Box<DeviceKernel>, Vec<SourceLine>),
    /// The text of an MLIR module.
    Mlir(String),
    /// The text of an LLVM module.
    Llvm(String),
    /// PTX.
    Ptx(String),
}

impl JobInput {
    /// The first stage that the job enters.
    fn first_stage(&self) -> Stage {
        match self {
            JobInput::Device(..) => Stage::Mlir,
            JobInput::Mlir(_) => Stage::Llvm,
            JobInput::Llvm(_) => Stage::Ptx,
            JobInput::Ptx(_) => Stage::Cubin,
        }
    }
}

/// What a job made, as far as it went; what it started from is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Done {
    /// The module before any pass.
    pub mlir: Option<String>,
    /// The module before LLVM's passes.
    pub llvm: Option<String>,
    /// PTX.
    pub ptx: Option<String>,
    /// Machine code and what it needs.
    pub cubin: Option<(Vec<u8>, Usage)>,
}

/// How jobs are run.
#[derive(Debug, Clone)]
pub struct Pool {
    /// The binary that serves `__worker`: kernelc itself.
    pub program: PathBuf,
    /// The vendor's tools.
    pub tools: Tools,
    /// Processes at a time; at least one runs.
    pub workers: usize,
}

impl Pool {
    /// Runs the jobs; the answers are in the order of the jobs.
    pub fn run(&self, jobs: Vec<Job>) -> Vec<Result<Done, CodegenError>> {
        self.run_within(jobs, TIME_LIMIT)
    }

    fn run_within(&self, jobs: Vec<Job>, limit: Duration) -> Vec<Result<Done, CodegenError>> {
        let next = AtomicUsize::new(0);
        let answers: Vec<Mutex<Option<Result<Done, CodegenError>>>> =
            jobs.iter().map(|_| Mutex::new(None)).collect();
        let lane = || {
            let mut worker = None;
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                let answer = self.answer(&mut worker, job, limit);
                *answers[index].lock().expect("no holder of the lock panics") = Some(answer);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.workers.clamp(1, jobs.len().max(1)) {
                scope.spawn(lane);
            }
        });
        let answer = |cell: Mutex<Option<_>>| {
            let answer = cell.into_inner().expect("no holder of the lock panics");
            answer.expect("every job was taken by a lane")
        };
        answers.into_iter().map(answer).collect()
    }

    fn answer(
        &self,
        worker: &mut Option<Worker>,
        job: &Job,
        limit: Duration,
    ) -> Result<Done, CodegenError> {
        let mut running = match worker.take() {
            Some(running) => running,
            None => Worker::start(&self.program)?,
        };
        let answer = running.run(job, &self.tools, limit);
        if !matches!(answer, Err(CodegenError::WorkerDied { .. } | CodegenError::Worker(_))) {
            *worker = Some(running);
        }
        answer
    }
}
