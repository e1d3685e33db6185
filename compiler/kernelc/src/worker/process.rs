//! The parent's side of one worker process.

use std::io::{BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kernel_codegen::{CodegenError, Stage, Tools};

use super::protocol::{Event, Request, receive_event, send};
use super::{Done, Job};

/// How much of a worker's standard error is kept.
const KEPT_STDERR_BYTES: usize = 64 * 1024;
/// How much of it a report shows.
const SHOWN_STDERR_CHARS: usize = 2000;

/// A running worker.
pub(super) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    events: Receiver<Event>,
    stderr: Arc<Mutex<Vec<u8>>>,
    stderr_reader: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts `program __worker`.
    pub(super) fn start(program: &Path) -> Result<Worker, CodegenError> {
        let failed = |error: std::io::Error| {
            CodegenError::Worker(format!("{} __worker: {error}", program.display()))
        };
        let mut child = Command::new(program)
            .arg("__worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (Some(requests), Some(replies), Some(errors)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(CodegenError::Worker("a pipe to the process is missing".to_owned()));
        };
        let (sender, events) = channel();
        std::thread::spawn(move || {
            let mut replies = BufReader::new(replies);
            // The end of the pipe, or noise on it, closes the channel: the parent then sees to the process.
            while let Ok(Some(event)) = receive_event(&mut replies) {
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&stderr);
        let stderr_reader = std::thread::spawn(move || keep(errors, &kept));
        Ok(Worker {
            child,
            requests: Some(requests),
            events,
            stderr,
            stderr_reader: Some(stderr_reader),
        })
    }

    /// Runs one job. After [`CodegenError::WorkerDied`] and [`CodegenError::Worker`] the worker is of no
    /// further use.
    pub(super) fn run(
        &mut self,
        job: &Job,
        tools: &Tools,
        limit: Duration,
    ) -> Result<Done, CodegenError> {
        self.stderr.lock().expect("no holder of the lock panics").clear();
        let mut stage = job.input.first_stage();
        let deadline = Instant::now() + limit;
        let Some(requests) = &mut self.requests else {
            return Err(CodegenError::Worker("the process was closed".to_owned()));
        };
        // A worker that is gone cannot take the job; its end is reported below.
        let sent = send(requests, &Request { job, tools });
        if sent.is_ok() {
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                match self.events.recv_timeout(left) {
                    Ok(Event::Enters(entered)) => stage = entered,
                    Ok(Event::Answer(answer)) => return answer,
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        let status = format!("stopped after {} s", limit.as_secs_f32());
                        // It may have ended by itself just now.
                        let _ = self.child.kill();
                        let _ = self.child.wait();
                        return Err(self.died(job, stage, status));
                    }
                }
            }
        }
        // A worker that closed its pipes but lives is of no use either.
        self.requests = None;
        let status = match self.wait_a_moment() {
            Some(status) => describe(status),
            None => "it closed its pipes".to_owned(),
        };
        Err(self.died(job, stage, status))
    }

    /// The exit status, once the process has closed its pipes; `None` when it had to be stopped.
    fn wait_a_moment(&mut self) -> Option<ExitStatus> {
        for _ in 0..100 {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }

    fn died(&mut self, job: &Job, stage: Stage, status: String) -> CodegenError {
        if let Some(reader) = self.stderr_reader.take()
            && reader.join().is_err()
        {
            return CodegenError::Worker("the reader of its standard error panicked".to_owned());
        }
        let kept = self.stderr.lock().expect("no holder of the lock panics");
        CodegenError::WorkerDied {
            kernel: job.name.clone(),
            stage,
            status,
            stderr: shown(&String::from_utf8_lossy(&kept)),
            reproduce: job.reproduce.clone(),
        }
    }
}

impl Drop for Worker {
    /// Closes the worker's input, which ends it, and waits for that.
    fn drop(&mut self) {
        self.requests = None;
        if self.wait_a_moment().is_none() {
            tracing::warn!("a worker did not end by itself");
        }
    }
}

fn keep(mut errors: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut buffer) {
        let mut kept = kept.lock().expect("no holder of the lock panics");
        let room = KEPT_STDERR_BYTES.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

/// The first lines say what happened; a stack dump follows them.
fn shown(stderr: &str) -> String {
    let lines = stderr.lines().take_while(|line| {
        !line.starts_with("PLEASE submit a bug report") && !line.starts_with("Stack dump")
    });
    let text: Vec<&str> = lines.collect();
    let text = text.join("\n");
    let mut short: String = text.trim().chars().take(SHOWN_STDERR_CHARS).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

fn describe(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => {
            let name = match signal {
                4 => " (SIGILL)",
                6 => " (SIGABRT)",
                7 => " (SIGBUS)",
                8 => " (SIGFPE)",
                9 => " (SIGKILL)",
                11 => " (SIGSEGV)",
                _ => "",
            };
            format!("signal {signal}{name}")
        }
        (None, Some(code)) => format!("exit code {code}"),
        (None, None) => "an unknown end".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_happened_and_no_stack_dump() {
        let text = "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.x\nIn function: k\n\
                    PLEASE submit a bug report\nStack dump:\n0. Program arguments\n";
        assert_eq!(
            shown(text),
            "LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.x\nIn function: k"
        );
        assert_eq!(shown(&"x".repeat(5000)).chars().count(), SHOWN_STDERR_CHARS + 1);
    }

    #[test]
    fn ends_are_named() {
        assert_eq!(describe(ExitStatus::from_raw(6)), "signal 6 (SIGABRT)");
        assert_eq!(describe(ExitStatus::from_raw(101 << 8)), "exit code 101");
    }
}
