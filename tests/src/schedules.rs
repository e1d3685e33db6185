//! Kernels under many schedules: whatever the order of CTAs, roles and ranks, and however late copies land, both levels
//! give the bits that they give in the first one; and launches that overlap, those that they give one after another.

use std::collections::BTreeSet;
use std::path::Path;

use kernel_abi::plan::KernelKey;
use kernel_emulator::{Memory, Options, Schedule};
use kernel_ir::kernel::{Kernel, Words};
use kernel_ir::pipeline::Built;
use kimi_k3::plan::DecodeOptions;
use kimi_k3::sets::{Model, SETS};
use rayon::prelude::*;

use crate::decode::{self, Decoding};
use crate::directive::Directives;
use crate::program::{self, Program};
use crate::runner::{self, Failure, Run};
use crate::suite::FileTest;
use crate::{k3, overlap, ranks, sets, suite};

/// Which schedules.
#[derive(Debug, Clone, Copy)]
pub struct Schedules {
    /// How many.
    pub count: u64,
    /// Of the choices.
    pub seed: u64,
}

impl Schedules {
    /// The emulator's options for each of them.
    pub fn options(self) -> impl Iterator<Item = Options> {
        let schedule = move |number| Schedule::numbered(self.seed, number);
        (0..self.count)
            .map(move |number| Options { schedule: schedule(number), ..Options::STANDARD })
    }

    /// What `run` gives in the first schedule, and in all others on the cores there are: an error of the earliest
    /// schedule that fails or gives something else.
    ///
    /// # Errors
    /// A run fails, or gives something else than the first.
    pub fn same_in_each<T, E, R>(self, run: R, other: impl Fn(u64) -> E + Sync) -> Result<T, E>
    where
        T: PartialEq + Send + Sync,
        E: Send,
        R: Fn(u64, Schedule) -> Result<T, E> + Sync,
    {
        let one = |number| run(number, Schedule::numbered(self.seed, number));
        let first = one(0)?;
        let wrong = (1..self.count).into_par_iter().find_map_first(|number| match one(number) {
            Ok(ended) => (ended != first).then(|| other(number)),
            Err(error) => Some(error),
        });
        wrong.map_or(Ok(first), Err)
    }
}

/// Random memory of a kernel, the same every time.
///
/// # Panics
/// A contract of the kernel cannot be met.
pub fn memory(kernel: &Kernel) -> Memory {
    let mut memory = Memory::new(&kernel.params);
    memory.fill_missing(&kernel.params, 1).expect("the contracts of a test kernel can be met");
    memory
}

/// True where anything of a launch may come in more than one order.
pub fn has_a_choice(kernel: &Kernel) -> bool {
    let counts = kernel
        .params
        .iter()
        .any(|param| matches!(param.words, Some(Words::Counter | Words::Raised)));
    kernel.launch.world.is_some()
        || kernel.launch.cluster != [1, 1, 1]
        || !kernel.roles.is_empty()
        || !kernel.barriers.is_empty()
        || counts && kernel.launch.grid != [1, 1, 1]
}

/// Runs an operation file or a whole kernel of `tests/suite` in every schedule; false where there is only one.
///
/// # Errors
/// A run fails, its outputs are not those of the file, or two runs differ.
pub fn run_file(suite: &Path, test: &FileTest, schedules: Schedules) -> Result<bool, String> {
    let directives = suite::directives(suite, &test.path)?;
    let program = Program::read(suite, &test.path)?;
    let case = test.case.and_then(|number| directives.cases.get(number));
    let built = suite::build(&program, &directives, case)?;
    if !has_a_choice(&built.kernel) {
        return Ok(false);
    }
    if built.kernel.launch.world.is_some() {
        let memories = ranks::memories(&built, &directives, case)?;
        let launches = directives.launches.unwrap_or(1);
        let ended = ranks::run_all(&built, &memories, launches, schedules, run_of(&directives))
            .map_err(|failure| failure.to_string())?;
        if case.is_none() {
            ranks::match_outputs(&built, &directives, &ended)?;
        }
        return Ok(true);
    }
    let memory = runner::memory(&built, &directives, case)?;
    let ended = run_all(&built, &memory, schedules, run_of(&directives))?;
    if case.is_none() {
        runner::match_outputs(&built, &directives, &ended)?;
    }
    Ok(true)
}

/// How the directives want a run.
fn run_of(directives: &Directives) -> Run {
    let mut run = Run::STANDARD;
    run.options.max_steps = directives.steps.unwrap_or(run.options.max_steps);
    run
}

/// The file tests that end well: operations and whole kernels with all their cases.
///
/// # Errors
/// A file cannot be read.
pub fn files(suite: &Path) -> Result<Vec<FileTest>, String> {
    files_of(suite, &["ops", "run"])
}

/// The chains of kernels that end well.
///
/// # Errors
/// A file cannot be read.
pub fn chains(suite: &Path) -> Result<Vec<FileTest>, String> {
    files_of(suite, &["overlap"])
}

fn files_of(suite: &Path, kinds: &[&str]) -> Result<Vec<FileTest>, String> {
    let mut chosen = Vec::new();
    for test in suite::file_tests(suite)? {
        let directives = suite::directives(suite, &test.path)?;
        let is_run = kinds.contains(&directives.test.as_str());
        if is_run && directives.expected.is_empty() {
            chosen.push(test);
        }
    }
    Ok(chosen)
}

/// The kernels of the decode steps of kimi-k3-mini.
///
/// # Errors
/// A plan cannot be made.
pub fn kernels_of_mini() -> Result<Vec<KernelKey>, String> {
    let mut keys = BTreeSet::new();
    for set in SETS.iter().filter(|set| set.model == Model::Mini) {
        keys.extend(sets::kernels(set)?);
    }
    Ok(keys.into_iter().collect())
}

/// File and kernel of the specialised path, and constants.
type Specialized = (&'static str, &'static str, &'static [(&'static str, i64)]);

/// The kernels of the specialised path, each with a few CTAs.
pub fn specialized() -> Vec<KernelKey> {
    let kernels: [Specialized; 5] = [
        ("attn_res_norm", "attn_res_norm_cluster", &[("M", 2), ("H", 1792), ("NB", 2), ("C", 7)]),
        ("argmax_shard", "argmax_shard", &[("M", 2), ("V", 1000), ("BN", 256)]),
        (
            "experts",
            "experts",
            &[("M", 2), ("K", 2), ("E", 5), ("I", 64), ("Z", 64), ("C", 4), ("NW", 1)],
        ),
        ("kda_core", "kda_core", &[("M", 2), ("H", 2), ("D", 32), ("SLOTS", 3), ("VS", 4)]),
        ("router", "router", &[("M", 2), ("E", 32), ("H", 256), ("K", 4)]),
    ];
    let key = |(file, kernel, bind): Specialized| KernelKey {
        file: format!("specialized/{file}.tile"),
        kernel: kernel.to_owned(),
        bindings: bind.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    };
    kernels.into_iter().map(key).collect()
}

/// Runs a kernel of a plan in every schedule, on random memory; false where there is only one.
///
/// # Errors
/// A run fails, or two runs differ.
pub fn run_kernel(key: &KernelKey, schedules: Schedules) -> Result<bool, String> {
    let bind: Vec<(&str, i64)> = key.bindings.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    let built = k3::build(&key.file, &key.kernel, &bind)?;
    let mut memory = Memory::new(&built.kernel.params);
    memory.fill_missing(&built.kernel.params, k3::SEED).map_err(|error| error.to_string())?;
    let all = has_a_choice(&built.kernel);
    let schedules = if all { schedules } else { Schedules { count: 1, ..schedules } };
    run_all(&built, &memory, schedules, Run::STANDARD).map(|_| all)
}

/// The kernels of the specialised path one after another, and all once more, overlapping, in every schedule; each has
/// buffers of its own.
///
/// # Errors
/// A run fails, two runs differ, or one differs from that of the kernels alone.
pub fn overlap_specialized(schedules: Schedules) -> Result<(), String> {
    let build = |key: &KernelKey| {
        let bind: Vec<(&str, i64)> = key.bindings.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        k3::build(&key.file, &key.kernel, &bind)
    };
    let built = specialized().iter().map(build).collect::<Result<Vec<Built>, String>>()?;
    let kernels: Vec<&Built> = built.iter().chain(&built).collect();
    let start = overlap::memory_apart(&built, 2)?;
    let ended = overlap::run_all(&kernels, &start, schedules).map_err(|e| e.to_string())?;
    let alone = overlap::run_alone(&kernels, &start).map_err(|e| e.to_string())?;
    if ended == alone { Ok(()) } else { Err("kernels that overlap give other bits".to_owned()) }
}

/// Runs a chain of `tests/suite/overlap` in every schedule.
///
/// # Errors
/// A run fails, its outputs are not those of the file, or two runs differ.
pub fn run_chain(suite: &Path, test: &FileTest, schedules: Schedules) -> Result<(), String> {
    let directives = suite::directives(suite, &test.path)?;
    let program = Program::read(suite, &test.path)?;
    let chain = overlap::chain(&program, &directives)?;
    let kernels: Vec<&Built> = chain.iter().collect();
    let start = overlap::memory_of(&kernels, &directives)?;
    let ended = overlap::run_all(&kernels, &start, schedules).map_err(|e| e.to_string())?;
    overlap::match_outputs(&kernels, &directives, &ended)
}

/// Tokens of two steps of two rows.
const IDS: [[i32; 2]; 2] = [[25, 1112], [836, 228]];

/// A step of kimi-k3-mini whose kernels overlap: in every schedule the logits of kernels one after another.
///
/// # Errors
/// A step fails, or its logits differ.
pub fn overlap_mini(schedules: Schedules) -> Result<(), String> {
    let all: Vec<(usize, Options)> = schedules.options().enumerate().collect();
    // Each thread has a model of its own.
    let part = all.len().div_ceil(rayon::current_num_threads()).max(1);
    all.par_chunks(part).try_for_each(|part| {
        let plan = DecodeOptions { rows: 2, ranks: 1, context: 128 };
        let mut model = Decoding::open(&decode::mini(), plan)?;
        model.step(&IDS[0])?;
        let before = model.snapshot()?;
        let mut logits = |options: Options| -> Result<Vec<u32>, String> {
            model.restore(&before)?;
            model.set_options(options);
            model.step(&IDS[1])?;
            Ok(model.logits().iter().map(|logit| logit.to_bits()).collect())
        };
        let wanted = logits(Options::STANDARD)?;
        for (number, options) in part {
            let got = logits(Options { overlap: true, ..*options })
                .map_err(|error| format!("schedule {number}: {error}"))?;
            if got != wanted {
                return Err(format!("schedule {number}: kernels that overlap give other logits"));
            }
        }
        Ok(())
    })
}

fn run_all(
    built: &Built,
    memory: &Memory,
    schedules: Schedules,
    run: Run,
) -> Result<Memory, String> {
    schedules.same_in_each(
        |number, schedule| {
            let run = Run { options: Options { schedule, ..run.options }, ..run };
            runner::run_both(built, memory.clone(), run)
                .map_err(|failure: Failure| format!("schedule {number}: {failure}"))
        },
        |number| format!("schedule {number} gives other bits than schedule 0"),
    )
}

/// Worlds of the kernels in `tests/ranks`.
const WORLDS: [i64; 6] = [1, 2, 3, 4, 8, 16];

/// A kernel of `tests/ranks`, with the constants of some small shapes.
#[derive(Debug, Clone)]
pub struct OfRanks {
    /// File and kernel.
    pub kernel: &'static str,
    bind: Vec<(&'static str, i64)>,
}

impl OfRanks {
    /// How it is called.
    pub fn name(&self) -> String {
        let bind: Vec<String> = self.bind.iter().map(|(name, n)| format!("{name} = {n}")).collect();
        format!("ranks/{}.tile ({})", self.kernel, bind.join(", "))
    }
}

/// The kernels of `tests/ranks` in every world, with two CTAs a rank.
pub fn of_ranks() -> Vec<OfRanks> {
    let push = |world| OfRanks {
        kernel: "all_reduce_push",
        bind: vec![("WORLD", world), ("N", 64), ("BN", 32), ("W", 1)],
    };
    let projection = |world| OfRanks {
        kernel: "o_proj_push",
        bind: vec![("WORLD", world), ("M", 1), ("N", 128), ("K", 64), ("NEXT", 4096)],
    };
    WORLDS.iter().map(|&w| push(w)).chain(WORLDS[..5].iter().map(|&w| projection(w))).collect()
}

/// Launches in a row: slots of the ring are used again.
const LAUNCHES: usize = 3;

/// Runs a kernel of `tests/ranks` in every schedule; the all-reduce gives the sum in the order of the ranks, bit for bit.
///
/// # Errors
/// A run fails, two runs differ, or a sum is another one.
pub fn run_ranks(kernel: &OfRanks, schedules: Schedules) -> Result<(), String> {
    let folder = program::package_folder().join("ranks");
    let program = Program::read(&folder, &format!("{}.tile", kernel.kernel))?;
    let bind = kernel.bind.iter().map(|(name, n)| ((*name).to_owned(), *n));
    let directives = Directives { bind: bind.collect(), ..Directives::default() };
    let built = suite::build(&program, &directives, None)?;
    let memories = ranks::memories(&built, &directives, None)?;
    let ended = ranks::run_all(&built, &memories, LAUNCHES, schedules, Run::STANDARD)
        .map_err(|failure| failure.to_string())?;
    if kernel.kernel != "all_reduce_push" {
        return Ok(());
    }
    let params = &built.kernel.params;
    let values = |memory: &Memory, name: &str| -> Option<Vec<f32>> {
        let buffer = memory.buffer(Memory::find(params, name)?)?;
        (0..buffer.len()).map(|i| Some(f32::from_bits(buffer.code(i)? as u32))).collect()
    };
    let parts: Option<Vec<Vec<f32>>> = memories.iter().map(|memory| values(memory, "x")).collect();
    let parts = parts.ok_or("the parts have values")?;
    for (rank, memory) in ended.iter().enumerate() {
        let got = values(memory, "y").ok_or("the sums have values")?;
        for (i, got) in got.iter().enumerate() {
            let wanted = parts.iter().fold(0.0f32, |sum, part| sum + part[i]);
            if got.to_bits() != wanted.to_bits() {
                return Err(format!("element {i} of rank {rank} is {got}, not {wanted}"));
            }
        }
    }
    Ok(())
}
