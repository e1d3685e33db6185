//! kernelc as a process, and folders to work in.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a process answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Exit code; 128 and the number of the signal for a process that a signal ended.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// Every line of standard output as JSON.
    pub fn json_lines(&self) -> Vec<serde_json::Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.stdout.lines().map(parse).collect()
    }

    /// Panics with all that was said unless the exit code is `code`.
    pub fn expect_code(self, code: i32) -> Answer {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }
}

/// The compiler: what KERNELC_BIN names, otherwise the program beside the folder of the test programs.
///
/// # Panics
/// There is no such file.
pub fn kernelc_path() -> PathBuf {
    let path = match std::env::var_os("KERNELC_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe().expect("a test program knows its path");
            let profile =
                test.ancestors().nth(2).expect("test programs lie in `deps` of a profile");
            profile.join("kernelc")
        }
    };
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build -p kernelc`, or set KERNELC_BIN",
        path.display()
    );
    path
}

/// The root of the repository.
pub fn root() -> PathBuf {
    crate::program::package_folder().join("..").canonicalize().expect("the repository is there")
}

/// A call of kernelc in the root of the repository, where it finds the project's tools.
pub fn kernelc<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Answer {
    let mut command = Command::new(kernelc_path());
    command.args(args).current_dir(root());
    answer(command, b"")
}

/// A call with something on standard input.
pub fn kernelc_with_input<S: AsRef<std::ffi::OsStr>>(
    args: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Answer {
    let mut command = Command::new(kernelc_path());
    command.args(args).current_dir(root());
    answer(command, input)
}

/// Runs a command to its end.
pub fn answer(mut command: Command, input: &[u8]) -> Answer {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("standard input is a pipe");
    let input = input.to_vec();
    // On a thread of its own: a program that answers before it has read all must not block.
    let writer = std::thread::spawn(move || {
        // A program may refuse before it reads; then there is nothing to write to.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("the process can be waited for");
    writer.join().expect("writing does not panic");
    Answer {
        code: exit_code(output.status),
        stdout: String::from_utf8(output.stdout).expect("answers are UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("messages are UTF-8"),
    }
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or(0),
    }
}

/// An empty folder for one test.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes the folder `name` in `parent`, or empties it.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn new(parent: &str, name: &str) -> Scratch {
        let folder = Path::new(parent).join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder).expect("the folder of a test can be emptied");
        }
        std::fs::create_dir_all(&folder).expect("the folder of a test can be made");
        Scratch { folder }
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().expect("paths of tests are UTF-8").to_owned()
    }

    /// Writes a file and gives its path.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        if let Some(folder) = Path::new(&path).parent() {
            std::fs::create_dir_all(folder).expect("the folder of a test can be written");
        }
        std::fs::write(&path, content).expect("the folder of a test can be written");
        path
    }

    /// Reads a file.
    ///
    /// # Panics
    /// It is not there.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Names of all files below the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        collect(&self.folder, "", &mut names);
        names.sort();
        names
    }
}

fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("the folder of a test can be read").flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), names);
        } else {
            names.push(name);
        }
    }
}
