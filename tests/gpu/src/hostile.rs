//! Bad input on hardware: `kimi-k3` as a process on a device that others hold, with bundles and checkpoints that are
//! wrong or change under it, and killed at any time. Each case must end within ten seconds with its code and leave the
//! memory of the device free; then the next start works.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kernel_abi::DType;
use kernel_runtime::{Buffer, Device, probe};
use serde_json::{Value, json};

use crate::arguments::Arguments;
use crate::child::{Child, Ended, Scratch};
use crate::report::Report;

/// A case that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of the memory of a device that may differ between two looks.
const TOLERANCE: u64 = 64 << 20;
/// MiB that another process leaves free, from too few for a context to enough.
const LEFT_FREE: [u64; 8] = [32, 256, 448, 512, 576, 640, 704, 2048];
/// What is left free of a rank of Kimi K3 that needs some 98 GB.
const LEFT_OF_LARGE: u64 = 60_000_000_000;
/// The files of a model.
const MODEL: [&str; 3] = ["config.json", "model.safetensors", "tokenizer.json"];
/// Tokens that take a device seconds.
const MANY: &str = "8000";

/// What must come of a case.
enum Want {
    /// The text of a run that nobody disturbs.
    Text,
    /// An exit code and one of these codes of errors, of which the message holds this.
    Code(i32, &'static [&'static str], &'static str),
    /// One of the two: the device has room, or it is said that it has not.
    TextOr(i32, &'static [&'static str], &'static str),
    /// The end by SIGKILL.
    Killed,
}

/// Runs every case and writes the report; 1 where one was not as it must be.
pub(crate) fn main(all: &Arguments, say: fn(&str)) -> Result<u8, String> {
    let program = all.program.clone().ok_or("--program is missing")?;
    let bundle = all.bundle.clone().ok_or("--bundle is missing")?;
    let model = all.model.clone().ok_or("--model is missing")?;
    let report = Report::create(all.report.as_deref())?;
    let device =
        Device::open(all.device).map_err(|error| format!("{}: {error}", error.code().name()))?;
    let scratch = Scratch::new()?;
    let mut stage =
        Stage { program, bundle, model, device, scratch, say, rows: Vec::new(), text: Vec::new() };
    stage.undisturbed()?;
    stage.bundles(all.wrong.as_deref())?;
    stage.checkpoints()?;
    stage.memory(all.large.as_deref())?;
    stage.signals()?;
    stage.run("the next start", Want::Text)?;
    let is_right = stage.rows.iter().all(|row| row["verdict"] == RIGHT);
    report.finish(&json!({
        "device": stage.device.info().name,
        "driver": probe().map(|driver| driver.version).unwrap_or(0),
        "limit_seconds": LIMIT.as_secs(),
        "all_right": is_right,
        "cases": stage.rows,
        "not_run": "exclusive compute mode: the settings of a card stay as they are; \
                    a unit test of kernel_runtime has its codes",
    }))?;
    Ok(u8::from(!is_right))
}

const RIGHT: &str = "right";

struct Stage {
    program: PathBuf,
    bundle: PathBuf,
    model: PathBuf,
    device: Device,
    scratch: Scratch,
    say: fn(&str),
    rows: Vec<Value>,
    /// What the model writes.
    text: Vec<u8>,
}

impl Stage {
    /// `kimi-k3 generate` on the device.
    fn generate(&self, model: &Path, bundle: &Path, tokens: &str) -> Result<Child, String> {
        self.generate_with(model, bundle, tokens, &[])
    }

    fn generate_with(
        &self,
        model: &Path,
        bundle: &Path,
        tokens: &str,
        more: &[&str],
    ) -> Result<Child, String> {
        let device = format!("cuda:{}", self.device.info().ordinal);
        let words = ["--device", &device, "--prompt", "1 In the beginning"];
        let mut command = std::process::Command::new(&self.program);
        command.arg("generate").arg("--model").arg(model).arg("--bundle").arg(bundle);
        command.args(words).args(["--max-new-tokens", tokens]).args(more);
        Child::start(command, &self.scratch)
    }

    /// A run that nothing is wrong with.
    fn run(&mut self, name: &str, want: Want) -> Result<(), String> {
        let child = self.generate(&self.model, &self.bundle, "16")?;
        self.judge(name, child.end(), want);
        Ok(())
    }

    /// Keeps what came of a case.
    fn judge(&mut self, name: &str, ended: Ended, want: Want) {
        let text_is = |ended: &Ended| ended.exit == Some(0) && ended.stdout == self.text;
        let code_is = |exit: i32, codes: &[&str], says: &str| {
            let message = ended.message();
            let has_code = codes.iter().any(|code| message.contains(&format!("error[{code}]")));
            ended.exit == Some(exit) && has_code && message.contains(says)
        };
        let is_right = match want {
            Want::Text => text_is(&ended),
            Want::Code(exit, codes, says) => code_is(exit, codes, says),
            Want::TextOr(exit, codes, says) => text_is(&ended) || code_is(exit, codes, says),
            Want::Killed => ended.signal == Some(9),
        };
        self.keep(name, &ended, is_right);
    }

    fn keep(&mut self, name: &str, ended: &Ended, is_right: bool) {
        let is_in_time = ended.taken <= LIMIT;
        let verdict = match (is_right, is_in_time) {
            (true, true) => RIGHT,
            (true, false) => "too slow",
            (false, _) => "wrong",
        };
        let message = self.scratch.without_path(&ended.message());
        let seconds = (ended.taken.as_secs_f64() * 1e3).round() / 1e3;
        (self.say)(&format!("{verdict}: {name}: {seconds:.2} s, {message}\n"));
        self.rows.push(json!({
            "case": name,
            "exit": ended.exit,
            "signal": ended.signal,
            "message": message,
            "seconds": seconds,
            "verdict": verdict,
        }));
    }

    fn undisturbed(&mut self) -> Result<(), String> {
        let child = self.generate(&self.model, &self.bundle, "16")?;
        let ended = child.end();
        self.text.clone_from(&ended.stdout);
        let is_right = ended.exit == Some(0) && !ended.stdout.is_empty();
        self.keep("alone", &ended, is_right);
        let packed = self.scratch.at("packed");
        let packed = packed.to_string_lossy();
        for name in ["packed weights are made", "packed weights are read"] {
            let more = ["--packed", &*packed, "--progress"];
            let child = self.generate_with(&self.model, &self.bundle, "16", &more)?;
            self.judge(name, child.end(), Want::Text);
        }
        let first = self.generate(&self.model, &self.bundle, "16")?;
        let second = self.generate(&self.model, &self.bundle, "16")?;
        self.judge("the first of two at a time", first.end(), Want::Text);
        self.judge("the second of two at a time", second.end(), Want::Text);
        Ok(())
    }

    fn bundles(&mut self, wrong: Option<&Path>) -> Result<(), String> {
        if let Some(wrong) = wrong {
            let child = self.generate(&self.model, wrong, "16")?;
            let want = Want::Code(1, &["R0301"], "the device is sm_");
            self.judge("a bundle for another architecture", child.end(), want);
        }
        let copy = self.scratch.at("copy.kbundle");
        let whole = read(&self.bundle)?;
        let mut flipped = whole.clone();
        if let Some(byte) = flipped.get_mut(whole.len() / 2) {
            *byte ^= 1;
        }
        write(&copy, &flipped)?;
        let child = self.generate(&self.model, &copy, "16")?;
        let want = Want::Code(1, &["B0105"], "copy.kbundle");
        self.judge("a bundle with a flipped bit", child.end(), want);
        write(&copy, &whole[..whole.len() / 3])?;
        let child = self.generate(&self.model, &copy, "16")?;
        self.judge("a bundle that was cut", child.end(), Want::Code(1, &["B0104"], "copy.kbundle"));
        write(&copy, &whole)?;
        let child = self.generate(&self.model, &copy, "16")?;
        child.wait_for("maps", "copy.kbundle")?;
        child.paused(|| cut(&copy, 0))?;
        let want = Want::Code(4, &["B0108"], "copy.kbundle");
        self.judge("a bundle that is cut while it is mapped", child.end(), want);
        Ok(())
    }

    fn checkpoints(&mut self) -> Result<(), String> {
        let folder = self.scratch.at("model");
        for (name, replaced) in [
            ("a checkpoint that is cut while it is read", false),
            ("a checkpoint that is replaced while it is read", true),
        ] {
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            for file in MODEL {
                write(&folder.join(file), &read(&self.model.join(file))?)?;
            }
            let weights = folder.join("model.safetensors");
            let child = self.generate(&folder, &self.bundle, "16")?;
            child.wait_for("fd", "model.safetensors")?;
            // The header is read by then, the weights are not on the device.
            std::thread::sleep(Duration::from_millis(5));
            child.paused(|| {
                if !replaced {
                    return cut(&weights, 1 << 20);
                }
                let other = folder.join("other");
                write(&other, &read(&weights)?)?;
                std::fs::rename(&other, &weights).map_err(|error| error.to_string())
            })?;
            let want = Want::Code(1, &["K0213"], "model.safetensors");
            self.judge(name, child.end(), want);
        }
        Ok(())
    }

    fn memory(&mut self, large: Option<&Path>) -> Result<(), String> {
        for left in LEFT_FREE {
            let held = self.hold_all_but(left << 20)?;
            let name = format!("another process leaves {left} MiB of the device");
            let child = self.generate(&self.model, &self.bundle, "16")?;
            let ended = child.end();
            drop(held);
            self.judge(&name, ended, Want::TextOr(4, &["R0201", "R0105"], "other processes hold"));
        }
        if let Some(large) = large {
            let held = self.hold_all_but(LEFT_OF_LARGE)?;
            let mut command = std::process::Command::new(&self.program);
            let device = self.device.info().ordinal.to_string();
            command.args(["bench", "--rank", "0", "--of", "16", "--batch", "1", "--runs", "1"]);
            command.args(["--device", &device]).arg("--bundle").arg(large);
            let ended = Child::start(command, &self.scratch)?.end();
            drop(held);
            let want = Want::Code(4, &["R0201"], "GB are missing");
            self.judge("a rank of Kimi K3 beside a process with the rest", ended, want);
        }
        self.run("the memory of the other process is free again", Want::Text)
    }

    /// Takes memory until so many bytes are free.
    fn hold_all_but(&self, left: u64) -> Result<Vec<Buffer>, String> {
        let mut held = Vec::new();
        let mut step = 1_u64 << 34;
        while step >= 1 << 21 {
            let (free, _) = self.device.memory().map_err(|error| error.to_string())?;
            if free < left + step {
                step /= 2;
                continue;
            }
            match Buffer::new(&self.device, "held", DType::U8, step) {
                Ok(buffer) => held.push(buffer),
                Err(_) => step /= 2,
            }
        }
        Ok(held)
    }

    fn signals(&mut self) -> Result<(), String> {
        let name = self.bundle.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (signal, exit) in [("KILL", None), ("TERM", Some(130)), ("INT", Some(130))] {
            for loads in [true, false] {
                let before = self.free()?;
                let child = self.generate(&self.model, &self.bundle, MANY)?;
                if loads {
                    child.wait_for("maps", &name)?;
                    std::thread::sleep(Duration::from_millis(20));
                } else {
                    child.wait_for_text()?;
                }
                let sent = Instant::now();
                child.send(signal)?;
                let mut ended = child.end();
                ended.taken = sent.elapsed();
                let when = if loads { "while it loads" } else { "while it decodes" };
                let want = match exit {
                    Some(exit) => Want::Code(exit, &["K0703"], "stopped"),
                    None => Want::Killed,
                };
                self.judge(&format!("SIG{signal} {when}"), ended, want);
                self.is_free_again(before, &format!("SIG{signal} {when}"))?;
            }
        }
        Ok(())
    }

    fn free(&self) -> Result<u64, String> {
        self.device.memory().map(|(free, _)| free).map_err(|error| error.to_string())
    }

    /// Waits until as much is free as before.
    fn is_free_again(&mut self, before: u64, of: &str) -> Result<(), String> {
        let started = Instant::now();
        let mut free = self.free()?;
        while free + TOLERANCE < before && started.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(20));
            free = self.free()?;
        }
        let is_right = free + TOLERANCE >= before;
        let taken = started.elapsed();
        let message = format!("{free} bytes are free, {before} before");
        let ended = Ended::said(message, taken);
        self.keep(&format!("the memory of the device after {of}"), &ended, is_right);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    std::fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Cuts a file off.
fn cut(path: &Path, bytes: u64) -> Result<(), String> {
    let file = std::fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.set_len(bytes))
        .map_err(|error| format!("{}: {error}", path.display()))
}
