//! A process that is watched, paused and ended.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// After this a process is killed: it hangs.
const END: Duration = Duration::from_secs(30);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(1);

/// A folder of the system that is removed at the end.
pub(crate) struct Scratch {
    folder: PathBuf,
    children: AtomicU32,
}

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, String> {
        let folder = std::env::temp_dir().join(format!("gpu-tests-{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Scratch { folder, children: AtomicU32::new(0) })
    }

    /// A file of it.
    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A message without the path of the folder.
    pub(crate) fn without_path(&self, text: &str) -> String {
        text.replace(&*self.folder.to_string_lossy(), "DIR")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays behind lies in the folder of temporary files.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A running process.
pub(crate) struct Child {
    process: std::process::Child,
    started: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// What came of a process.
pub(crate) struct Ended {
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) taken: Duration,
    pub(crate) stdout: Vec<u8>,
    stderr: String,
}

impl Ended {
    /// What is no process.
    pub(crate) fn said(message: String, taken: Duration) -> Ended {
        Ended { exit: None, signal: None, taken, stdout: Vec::new(), stderr: message }
    }

    /// The line with the error, else the last one.
    pub(crate) fn message(&self) -> String {
        let lines = || self.stderr.lines().filter(|line| !line.trim().is_empty());
        let error = lines().find(|line| line.contains("error["));
        error.or(lines().next_back()).unwrap_or_default().to_owned()
    }
}

impl Child {
    /// Starts a process whose output goes into files.
    pub(crate) fn start(mut command: Command, scratch: &Scratch) -> Result<Child, String> {
        let number = scratch.children.fetch_add(1, Ordering::Relaxed);
        let (stdout, stderr) =
            (scratch.at(&format!("{number}.out")), scratch.at(&format!("{number}.err")));
        let create = |path: &Path| {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        command.stdin(Stdio::null()).stdout(create(&stdout)?).stderr(create(&stderr)?);
        let started = Instant::now();
        let program = command.get_program().to_string_lossy().into_owned();
        let process = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        Ok(Child { process, started, stdout, stderr })
    }

    /// Waits until the process has a file of that name mapped (`maps`) or open (`fd`).
    pub(crate) fn wait_for(&self, table: &str, name: &str) -> Result<(), String> {
        let path = PathBuf::from(format!("/proc/{}/{table}", self.process.id()));
        self.wait(&format!("`{name}` in `{table}`"), || {
            if table == "fd" {
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                let mut targets = entries.filter_map(|entry| std::fs::read_link(entry.path()).ok());
                targets.any(|target| target.ends_with(name))
            } else {
                std::fs::read_to_string(&path).is_ok_and(|text| text.contains(name))
            }
        })
    }

    /// Waits until the process has written text.
    pub(crate) fn wait_for_text(&self) -> Result<(), String> {
        self.wait("text", || std::fs::metadata(&self.stdout).is_ok_and(|file| file.len() > 0))
    }

    fn wait(&self, what: &str, is_there: impl Fn() -> bool) -> Result<(), String> {
        while !is_there() {
            if self.started.elapsed() > END {
                return Err(format!("waited for {what} in vain"));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Does something while the process stands still.
    pub(crate) fn paused(&self, act: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        self.send("STOP")?;
        let done = act();
        self.send("CONT")?;
        done
    }

    /// Sends a signal.
    pub(crate) fn send(&self, signal: &str) -> Result<(), String> {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &id]).status();
        match sent {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err(format!("SIG{signal} cannot be sent: the process has ended")),
            Err(error) => Err(format!("kill: {error}")),
        }
    }

    /// Waits for the end; a process that hangs is killed.
    pub(crate) fn end(mut self) -> Ended {
        let status = loop {
            match self.process.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if self.started.elapsed() < END => std::thread::sleep(LOOK),
                Ok(None) | Err(_) => {
                    // It may just have ended.
                    let _ = self.process.kill();
                    break self.process.wait().ok();
                }
            }
        };
        let stderr = std::fs::read(&self.stderr).unwrap_or_default();
        Ended {
            exit: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            taken: self.started.elapsed(),
            stdout: std::fs::read(&self.stdout).unwrap_or_default(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, scratch: &Scratch) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::start(command, scratch).expect("there is a shell")
    }

    #[test]
    fn a_process_is_watched_paused_and_ended() {
        let scratch = Scratch::new().expect("the folder of temporary files can be written");
        let child = shell("echo text; echo 'error[K0703]: stopped' >&2; exit 130", &scratch);
        child.wait_for_text().expect("it writes");
        let ended = child.end();
        assert_eq!((ended.exit, ended.signal), (Some(130), None));
        assert_eq!((&*ended.stdout, &*ended.message()), (&b"text\n"[..], "error[K0703]: stopped"));
        let child = shell("exec sleep 20", &scratch);
        child.wait_for("maps", "sleep").expect("it runs");
        let mut seen = String::new();
        let stat = format!("/proc/{}/stat", child.process.id());
        child
            .paused(|| {
                std::thread::sleep(Duration::from_millis(20));
                seen = std::fs::read_to_string(&stat).unwrap_or_default();
                Ok(())
            })
            .expect("it takes signals");
        assert!(seen.contains(" T "), "{seen}");
        child.send("KILL").expect("it takes signals");
        assert_eq!(child.end().signal, Some(9));
        let file = scratch.at("x");
        assert_eq!(scratch.without_path(&format!("no {}", file.display())), "no DIR/x");
    }
}
