//! The back end in processes of its own.
//!
//! LLVM aborts the process on what it cannot select. So kernelc starts its own binary as workers, one for each
//! core, and keeps them for many jobs. A worker reads one request a line from standard input and announces
//! each stage before it enters it, so that a death is known by its stage; the job that caused it fails with
//! a diagnostic and the next one gets a fresh worker.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use kernel_codegen::{CodegenError, Input, SourceLine, Stage, Tools, Usage};
use kernel_ir::device::DeviceKernel;
use kernel_ir::target::Target;
use serde::{Deserialize, Serialize};

/// How long one stage may take.
const STAGE_LIMIT: Duration = Duration::from_secs(120);

/// The end of a worker's standard error that is kept for messages.
const STDERR_TAIL: usize = 4096;

/// The subcommand that makes kernelc a worker.
const SUBCOMMAND: &str = "__worker";

/// A kernel, or the text of a stage, to be taken further.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Name of the kernel or of the file, for messages.
    pub name: String,
    /// What it is compiled for: a target's name.
    pub target: String,
    /// What it starts from.
    pub input: JobInput,
    /// The last stage to run.
    pub last: Stage,
    /// A command that runs the job again, for messages.
    pub reproduce: String,
}

/// What a job starts from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum JobInput {
    /// A kernel of the device level with the source of each of its operations.
    Device(Box<DeviceKernel>, Vec<SourceLine>),
    /// The text of an MLIR module.
    Mlir(String),
    /// The text of an LLVM module.
    Llvm(String),
    /// PTX.
    Ptx(String),
}

/// What a job made, as far as it went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    /// MLIR.
    pub mlir: Option<String>,
    /// LLVM IR.
    pub llvm: Option<String>,
    /// PTX.
    pub ptx: Option<String>,
    /// Machine code and what it needs.
    pub cubin: Option<(Vec<u8>, Usage)>,
}

/// What a worker writes, one a line.
#[derive(Debug, Serialize, Deserialize)]
enum Reply {
    /// A stage is about to run.
    Enter(Stage),
    /// The job has ended.
    Done(Box<Result<Done, CodegenError>>),
}

/// The request line of a job.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    job: Job,
    tools: Tools,
}

/// The life of a worker: answers requests until standard input ends.
pub fn serve() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(request) = serde_json::from_str::<Request>(&line) else { return };
        let result = answer(&request, &mut |stage| send(&mut out, &Reply::Enter(stage)));
        send(&mut out, &Reply::Done(Box::new(result)));
    }
}

fn send(out: &mut impl Write, reply: &Reply) {
    let line = serde_json::to_string(reply).expect("replies hold strings and numbers only");
    // A parent that has gone away will not read this; there is nobody left to tell.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn answer(request: &Request, enter: &mut dyn FnMut(Stage)) -> Result<Done, CodegenError> {
    let job = &request.job;
    let target = Target::from_name(&job.target)
        .ok_or_else(|| CodegenError::Backend(format!("unknown target `{}`", job.target)))?;
    let input = match &job.input {
        JobInput::Device(kernel, places) => Input::Kernel { kernel, places },
        JobInput::Mlir(text) => Input::Mlir(text),
        JobInput::Llvm(text) => Input::Llvm(text),
        JobInput::Ptx(text) => Input::Ptx(text),
    };
    let made = kernel_codegen::run(input, &job.name, target, job.last, &request.tools, enter)?;
    Ok(Done {
        mlir: made.mlir,
        llvm: made.llvm,
        ptx: made.ptx,
        cubin: made.cubin.map(|cubin| (cubin.bytes, cubin.usage)),
    })
}

/// Workers and the tools that they use.
#[derive(Debug, Clone)]
pub struct Pool {
    /// This program.
    pub program: PathBuf,
    /// The assembler and the disassembler.
    pub tools: Tools,
    /// How many workers at most.
    pub workers: usize,
}

impl Pool {
    /// Runs jobs and gives their results in order. A job that ends its worker fails alone.
    pub fn run(&self, jobs: Vec<Job>) -> Vec<Result<Done, CodegenError>> {
        let count = jobs.len();
        let queue: Mutex<VecDeque<(usize, Job)>> = Mutex::new(jobs.into_iter().enumerate().collect());
        let results = Mutex::new((0..count).map(|_| None).collect::<Vec<_>>());
        thread::scope(|scope| {
            for _ in 0..self.workers.clamp(1, count.max(1)) {
                scope.spawn(|| {
                    let mut worker = None;
                    loop {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some((index, job)) = next else { return };
                        let result = self.one(&mut worker, job);
                        results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|r| r.expect("every job of the queue was taken and answered")).collect()
    }

    fn one(&self, slot: &mut Option<Worker>, job: Job) -> Result<Done, CodegenError> {
        let mut worker = match slot.take() {
            Some(worker) => worker,
            None => Worker::start(&self.program).map_err(|e| CodegenError::Worker(e.to_string()))?,
        };
        let (name, reproduce) = (job.name.clone(), job.reproduce.clone());
        let request = Request { job, tools: self.tools.clone() };
        match worker.ask(&request) {
            Ok(result) => {
                *slot = Some(worker);
                result
            }
            Err(stage) => {
                let (status, stderr) = worker.bury();
                Err(CodegenError::WorkerDied { kernel: name, stage, status, stderr, reproduce })
            }
        }
    }
}

/// A running worker.
#[derive(Debug)]
struct Worker {
    child: Child,
    stdin: ChildStdin,
    replies: Receiver<Reply>,
    stderr: thread::JoinHandle<Vec<u8>>,
}

impl Worker {
    fn start(program: &Path) -> std::io::Result<Worker> {
        let mut child = Command::new(program)
            .arg(SUBCOMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let closed = || std::io::Error::other("a pipe of the worker is closed");
        let stdin = child.stdin.take().ok_or_else(closed)?;
        let stdout = child.stdout.take().ok_or_else(closed)?;
        let stderr = child.stderr.take().ok_or_else(closed)?;
        let (sender, replies) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let reply = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                let Some(reply) = reply else { return };
                if sender.send(reply).is_err() {
                    return;
                }
            }
        });
        let stderr = thread::spawn(move || keep_tail(stderr));
        Ok(Worker { child, stdin, replies, stderr })
    }

    /// Sends a request and waits for its answer; an error names the last stage that was entered.
    fn ask(&mut self, request: &Request) -> Result<Result<Done, CodegenError>, Stage> {
        let mut stage = Stage::Mlir;
        let line = serde_json::to_string(request).map_err(|_| stage)?;
        if writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush()).is_err() {
            return Err(stage);
        }
        loop {
            match self.replies.recv_timeout(STAGE_LIMIT) {
                Ok(Reply::Enter(entered)) => stage = entered,
                Ok(Reply::Done(result)) => return Ok(*result),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Err(stage),
            }
        }
    }

    /// Ends the worker, if it still runs, and says how it ended and what it wrote last.
    fn bury(mut self) -> (String, String) {
        drop(self.stdin);
        let ended = (0..20).find_map(|_| match self.child.try_wait() {
            Ok(Some(status)) => Some(describe(status)),
            Ok(None) | Err(_) => {
                thread::sleep(Duration::from_millis(10));
                None
            }
        });
        let status = ended.unwrap_or_else(|| {
            // A worker that cannot be killed has ended in the meantime.
            let _ = self.child.kill();
            let _ = self.child.wait();
            format!("stopped after {} s without an answer", STAGE_LIMIT.as_secs())
        });
        let stderr = self.stderr.join().unwrap_or_default();
        (status, String::from_utf8_lossy(&stderr).trim().to_owned())
    }
}

fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        let name = match signal {
            4 => " SIGILL",
            6 => " SIGABRT",
            8 => " SIGFPE",
            9 => " SIGKILL",
            11 => " SIGSEGV",
            _ => "",
        };
        return format!("signal {signal}{name}");
    }
    status.to_string()
}

fn keep_tail(mut stderr: impl Read) -> Vec<u8> {
    let mut tail = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut chunk) {
        tail.extend_from_slice(&chunk[..read]);
        let excess = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..excess);
    }
    tail
}
