//! Starting other programs: cargo, apt-get, pip, kernelc.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Output, Stdio};

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command` with its output on the terminal; an exit code other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Runs `command` and returns what it wrote; the caller judges the exit code.
pub(crate) fn capture(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| cannot_start(command))
}

/// Standard output of `command`, which must succeed.
pub(crate) fn stdout(command: &mut Command) -> Result<String> {
    let output = capture(command)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", shown(command), output.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Does `command` start and end with exit code 0?
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs `command`, shows its output as it comes, and returns its lines.
pub(crate) fn tee(command: &mut Command) -> Result<(ExitStatus, Vec<String>)> {
    println!("$ {}", shown(command));
    if std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    let out = child.stdout.take().expect("standard output was piped above");
    let err = child.stderr.take().expect("standard error was piped above");
    let (mut lines, more) = std::thread::scope(|scope| {
        let err_lines = scope.spawn(|| copy_lines(err, std::io::stderr()));
        let out_lines = copy_lines(out, std::io::stdout());
        (out_lines, err_lines.join().expect("the copying thread does not panic"))
    });
    lines.extend(more);
    let status = child.wait().with_context(|| format!("waiting for `{}`", shown(command)))?;
    Ok((status, lines))
}

fn copy_lines(from: impl Read, mut to: impl Write) -> Vec<String> {
    let mut lines = Vec::new();
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        // A closed terminal must not end the count.
        let _ = to.write_all(&line);
        let _ = to.flush();
        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
    lines
}

/// The command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for arg in command.get_args() {
        let arg = arg.to_string_lossy();
        text.push(' ');
        if arg.is_empty() || arg.contains(char::is_whitespace) {
            text.push_str(&format!("'{arg}'"));
        } else {
            text.push_str(&arg);
        }
    }
    text
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start `{}`", command.get_program().to_string_lossy())
}

/// The number that an option of a command is given.
pub(crate) fn number_of(option: &str, text: Option<&String>) -> Result<u64> {
    let text = text.with_context(|| format!("`{option}` wants a number"))?;
    text.parse().with_context(|| format!("`{option} {text}`: no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("/usr/bin/env");
        command.args(["-i", "two words", ""]);
        assert_eq!(shown(&command), "env -i 'two words' ''");
    }

    #[test]
    fn tee_returns_both_streams_and_the_status() {
        let (status, lines) =
            tee(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(lines, ["out", "err"]);
    }
}
