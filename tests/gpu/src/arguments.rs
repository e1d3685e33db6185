//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use kernel_abi::bundle::{Bundle, Policy};
use kernel_ir::target::Target;

use crate::Stop;
use crate::machine::Care;
use crate::sanitize::TOOLS;

/// What is printed for `--help` and a wrong command line.
pub(crate) const USAGE: &str = "usage:
  gpu-tests sources --out DIR [--suite DIR]      writes all kernels with a build.toml; then
                                                 kernelc build DIR --set gpu --target sm_90a --out OUT
  gpu-tests run --bundle OUT/gpu.kbundle [--seed N] [--device N] [--suite DIR] [--report FILE] [--bare] [--limit SECONDS]
      [--trace FILE] [libtest options, WORD]; --bare: no guards around buffers; --limit: of one launch; --trace: events
      of the kernels of a bundle that was built with --trace, by case, in Chrome's format
  gpu-tests plan --bundle OUT/gpu.kbundle [--seed N] [--device N] [--report FILE]
      a plan of kernels, copies and collectives as graphs, with and without shared memory and poison
  gpu-tests fallback --bundle OUT/gpu.kbundle [--seed N] [--device N] [--suite DIR] [--report FILE]
      kernels whose machine code is missing or damaged: the driver compiles their PTX, with a warning
  gpu-tests hang [--device N] [--report FILE]    a step with a kernel that does not end, and the process after it
  gpu-tests numerics --bundle OUT/numerics.kbundle [--every] [--seed N] [--device N] [--report FILE] [WORD]
      measures against the bounds of docs/numerics.md; --every: functions on all 2^32 numbers; --rehearse needs no
      bundle and no device: the device level of the emulator stands in for it. The bundle comes from
      kernelc build tests/gpu/numerics --set numerics --target sm_90a --out OUT
  gpu-tests sanitize --bundle OUT/gpu.kbundle --out DIR [--sanitizer compute-sanitizer] [--jobs N] [--limit SECONDS]
      [--suite DIR] [--report FILE] [memcheck racecheck initcheck synccheck]; logs in DIR; --limit: of one process;
      each tool must also find what it looks for in a kernel with a flaw: gpu-tests flaw TOOL
  gpu-tests trap --bundle OUT/gpu.kbundle [--runs N] [--device N] [--cubins DIR] [--report FILE]
  gpu-tests trap --ptx DIR [--target sm_90a]     writes the PTX of the trap; ptxas makes the cubins of it
  gpu-tests hostile --program kimi-k3 --bundle mini.kbundle --model DIR [--wrong OTHER_TARGET.kbundle]
      [--large TP16.kbundle] [--device N] [--report FILE]; takes all memory of the device for moments
  gpu-tests upload --bundle TP16.kbundle --out DIR [--device N] [--report FILE]
      how fast experts of Kimi K3 are packed and copied to the device; DIR gets 8 GB for the moment
  gpu-tests ranks --bundle OUT/ranks.kbundle [--devices 0,1] [--runs N] [--seed N] [--report FILE]
      the push all-reduce and the output projection, a rank a device of the list; one that is named twice has two
      ranks. The bundle comes from
      kernelc build tests/ranks --set ranks --target sm_90a --out OUT
The file tests are in the program; --suite reads them from a folder instead. A bundle with kernels whose audit is not
clean is refused without --allow-unaudited. Without a device every test of `run` is ignored, or fails where KERNEL_GPU
is 1. Exit codes: 1 where something is not as it must be or the bundle is refused, 2 a wrong command line, 4 the world.
";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Write the sources.
    Sources,
    /// Run the cases.
    Run,
    /// Run a plan.
    Plan,
    /// Run kernels with harmed machine code.
    Fallback,
    /// Run a step that hangs.
    Hang,
    /// Measure the numerics of a device.
    Numerics,
    /// Run the cases under compute-sanitizer.
    Sanitize,
    /// Run a kernel with a flaw.
    Flaw,
    /// Run the trap.
    Trap,
    /// Give the program of the model bad input.
    Hostile,
    /// Measure how fast weights come onto the device.
    Upload,
    /// Run the push all-reduce on several devices.
    Ranks,
}

/// The command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) task: Task,
    pub(crate) suite: Option<PathBuf>,
    pub(crate) out: Option<PathBuf>,
    pub(crate) bundle: Option<PathBuf>,
    pub(crate) report: Option<PathBuf>,
    /// Where events go.
    pub(crate) trace: Option<PathBuf>,
    pub(crate) cubins: Option<PathBuf>,
    pub(crate) ptx: Option<PathBuf>,
    pub(crate) target: String,
    pub(crate) allow_unaudited: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) device: u32,
    /// One a rank.
    pub(crate) devices: Vec<u32>,
    pub(crate) runs: u32,
    /// Functions on every f32.
    pub(crate) every: bool,
    /// The emulator in the place of a device.
    pub(crate) rehearse: bool,
    pub(crate) care: Care,
    /// Of a process of the sanitizer.
    pub(crate) limit: Option<Duration>,
    /// `kimi-k3`.
    pub(crate) program: Option<PathBuf>,
    /// The folder of the model.
    pub(crate) model: Option<PathBuf>,
    /// A bundle for another architecture.
    pub(crate) wrong: Option<PathBuf>,
    /// A bundle of a rank of Kimi K3.
    pub(crate) large: Option<PathBuf>,
    pub(crate) sanitizer: PathBuf,
    pub(crate) jobs: usize,
    /// For the harness, or words in names, or tools.
    pub(crate) rest: Vec<String>,
}

impl Arguments {
    /// The bundle of `--bundle`.
    ///
    /// # Errors
    /// None is named, or it is refused.
    pub(crate) fn open_bundle(&self) -> Result<Bundle, Stop> {
        let missing = || Stop::Usage("--bundle is missing".to_owned());
        let path = self.bundle.as_ref().ok_or_else(missing)?;
        let policy = Policy { allow_unaudited: self.allow_unaudited };
        Bundle::open(path, policy).map_err(|error| {
            let text = format!("{}: {error}", error.code.name());
            if error.code.is_of_the_world() { Stop::World(text) } else { Stop::Refused(text) }
        })
    }

    /// Reads the words behind the name of the program.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let task = match words.next().as_deref() {
            Some("sources") => Task::Sources,
            Some("run") => Task::Run,
            Some("plan") => Task::Plan,
            Some("fallback") => Task::Fallback,
            Some("hang") => Task::Hang,
            Some("numerics") => Task::Numerics,
            Some("sanitize") => Task::Sanitize,
            Some("flaw") => Task::Flaw,
            Some("trap") => Task::Trap,
            Some("hostile") => Task::Hostile,
            Some("upload") => Task::Upload,
            Some("ranks") => Task::Ranks,
            Some(other) => return Err(format!("there is no task `{other}`")),
            None => return Err("a task is missing".to_owned()),
        };
        let mut all = Arguments {
            task,
            suite: None,
            out: None,
            bundle: None,
            report: None,
            trace: None,
            cubins: None,
            ptx: None,
            target: "sm_90a".to_owned(),
            allow_unaudited: false,
            seed: None,
            device: 0,
            devices: Vec::new(),
            runs: 200,
            every: false,
            rehearse: false,
            care: Care::STANDARD,
            limit: None,
            program: None,
            model: None,
            wrong: None,
            large: None,
            sanitizer: "compute-sanitizer".into(),
            jobs: 1,
            rest: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
            match word.as_str() {
                "--suite" => all.suite = Some(value()?.into()),
                "--out" => all.out = Some(value()?.into()),
                "--bundle" => all.bundle = Some(value()?.into()),
                "--report" => all.report = Some(value()?.into()),
                "--cubins" => all.cubins = Some(value()?.into()),
                "--ptx" => all.ptx = Some(value()?.into()),
                "--target" => all.target = value()?,
                "--allow-unaudited" => all.allow_unaudited = true,
                "--seed" => all.seed = Some(number(&word, &value()?)?),
                "--device" => all.device = number(&word, &value()?)?,
                "--devices" if all.task == Task::Ranks => {
                    let list = value()?;
                    let numbers = list.split(',').map(|one| number(&word, one));
                    all.devices = numbers.collect::<Result<_, _>>()?;
                }
                "--runs" => all.runs = number(&word, &value()?)?,
                "--every" if all.task == Task::Numerics => all.every = true,
                "--rehearse" if all.task == Task::Numerics => all.rehearse = true,
                "--trace" if all.task == Task::Run => all.trace = Some(value()?.into()),
                "--bare" if all.task == Task::Run => all.care.is_bare = true,
                "--limit" if all.task == Task::Run => {
                    all.care.limit = Duration::from_secs(number(&word, &value()?)?);
                }
                "--limit" if all.task == Task::Sanitize => {
                    all.limit = Some(Duration::from_secs(number(&word, &value()?)?));
                }
                "--program" if all.task == Task::Hostile => all.program = Some(value()?.into()),
                "--model" if all.task == Task::Hostile => all.model = Some(value()?.into()),
                "--wrong" if all.task == Task::Hostile => all.wrong = Some(value()?.into()),
                "--large" if all.task == Task::Hostile => all.large = Some(value()?.into()),
                "--sanitizer" => all.sanitizer = value()?.into(),
                "--jobs" => all.jobs = number(&word, &value()?)?,
                _ if matches!(
                    all.task,
                    Task::Numerics | Task::Sanitize | Task::Flaw | Task::Hang
                ) && !word.starts_with('-') =>
                {
                    all.rest.push(word)
                }
                _ if all.task == Task::Run => all.rest.push(word),
                _ => return Err(format!("unknown option `{word}`")),
            }
        }
        all.check()?;
        Ok(all)
    }

    /// Refuses what a task cannot do without, and names that nothing has.
    fn check(&self) -> Result<(), String> {
        let wants = |option: &str, value: &Option<PathBuf>| match value {
            Some(_) => Ok(()),
            None => Err(format!("{option} is missing")),
        };
        let bundle = || wants("--bundle", &self.bundle);
        let out = || wants("--out", &self.out);
        let tools = || match self.rest.iter().find(|tool| !TOOLS.contains(&tool.as_str())) {
            Some(other) => Err(format!("there is no tool `{other}`")),
            None => Ok(()),
        };
        match self.task {
            Task::Sources => out(),
            Task::Numerics if self.rehearse => Ok(()),
            Task::Run | Task::Plan | Task::Fallback | Task::Numerics | Task::Ranks => bundle(),
            Task::Hang => Ok(()),
            Task::Sanitize => bundle().and_then(|()| out()).and_then(|()| tools()),
            Task::Flaw if self.rest.len() == 1 => tools(),
            Task::Flaw => Err("one tool is wanted".to_owned()),
            Task::Trap if self.ptx.is_none() => bundle(),
            Task::Trap => match Target::from_name(&self.target) {
                Some(_) => Ok(()),
                None => Err(format!("there is no target `{}`", self.target)),
            },
            Task::Hostile => wants("--program", &self.program)
                .and_then(|()| bundle())
                .and_then(|()| wants("--model", &self.model)),
            Task::Upload => bundle().and_then(|()| out()),
        }
    }
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} wants a number, not `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken_and_the_rest_is_for_the_harness() {
        let all = parse("run --bundle b --seed 7 --test-threads 1 --allow-unaudited gemv").unwrap();
        assert_eq!((all.task, all.seed, all.device), (Task::Run, Some(7), 0));
        assert!(all.allow_unaudited && all.care == Care::STANDARD);
        assert_eq!(all.bundle, Some("b".into()));
        assert_eq!(all.rest, ["--test-threads", "1", "gemv"]);
        let all = parse("run --bundle b --bare --limit 90 gemv").unwrap();
        assert_eq!(all.care, Care { limit: Duration::from_secs(90), is_bare: true });
        let all = parse("sanitize --bundle b --out o --jobs 3 --limit 5 memcheck").unwrap();
        assert_eq!((all.jobs, all.limit), (3, Some(Duration::from_secs(5))));
    }

    #[test]
    fn devices_are_a_list() {
        let all = parse("ranks --bundle b --devices 0,1,0 --runs 9").unwrap();
        assert_eq!((all.task, all.devices, all.runs), (Task::Ranks, vec![0, 1, 0], 9));
        let error = parse("ranks --bundle b --devices 0,x").unwrap_err();
        assert_eq!(error, "--devices wants a number, not `x`");
    }

    #[test]
    fn numerics_has_words_and_options_of_its_own() {
        let all = parse("numerics --rehearse of_exp --every --report r").unwrap();
        assert_eq!((all.task, all.rehearse, all.every), (Task::Numerics, true, true));
        assert_eq!((all.rest, all.report), (vec!["of_exp".to_owned()], Some("r".into())));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, reason) in [
            ("", "a task is missing"),
            ("walk", "there is no task `walk`"),
            ("run --seed", "--seed wants a value"),
            ("run --seed x", "--seed wants a number, not `x`"),
            ("trap gemv", "unknown option `gemv`"),
            ("trap --every", "unknown option `--every`"),
            ("numerics --list", "unknown option `--list`"),
            ("numerics", "--bundle is missing"),
            ("run gemv", "--bundle is missing"),
            ("plan", "--bundle is missing"),
            ("fallback", "--bundle is missing"),
            ("sources", "--out is missing"),
            ("sanitize --bundle b", "--out is missing"),
            ("sanitize --bundle b --out o memchek", "there is no tool `memchek`"),
            ("flaw", "one tool is wanted"),
            ("flaw memchek", "there is no tool `memchek`"),
            ("trap", "--bundle is missing"),
            ("trap --ptx d --target sm_999", "there is no target `sm_999`"),
            ("hostile --bundle b", "--program is missing"),
            ("hostile --bundle b --program p", "--model is missing"),
            ("upload --bundle b", "--out is missing"),
        ] {
            assert_eq!(parse(text).unwrap_err(), reason);
        }
    }
}
