//! The command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is printed for `--help` and a wrong command line.
pub(crate) const USAGE: &str = "usage: kernel-bench --bundle FILE [options]
  Times every kernel of a bundle on random data with a cold second-level cache. Kernels of one name and one set of
  parameters (the variants of `kernelc build --all-tunings`) are contenders: they take turns.
    --kernel WORD           kernels whose artefact name has this word; may be given again
    --chain A,B,C           these artefacts, one after the other, as one contender; may be given again. A parameter
                            takes the buffer of the same name, type and size of any other kernel of the chains
    --begin after|early     of the kernels in a chain: early (the default) where they are made for it
    --repeat after|early    of a contender's launches among each other: after is the default
    --launches N            launches of a contender in one graph (32)
    --runs N                starts of the graph that count (30)
    --warm                  one set of buffers and no flush
    --scalar NAME=VALUE     value of a scalar parameter; without, the greatest that its contract allows
    --fill NAME=VALUE       every element of a buffer before the first launch, instead of random ones
    --touched NAME=N        elements of a buffer that one launch touches, where it is not all of them
    --zero NAME             a buffer whose bytes must all be 0 after all runs, otherwise exit code 1
    --seed N                of the random data (1)
    --device N              number of the device (0)
    --allow-unaudited       takes kernels whose audit is not clean
    --json FILE             everything as JSON
    --commit HASH           what the bundle was built from, for the JSON
";

/// What is printed for `--help` and `--version`.
pub(crate) fn asked(words: impl Iterator<Item = String>) -> Option<&'static str> {
    const VERSION: &str = concat!("kernel-bench ", env!("CARGO_PKG_VERSION"), "\n");
    words
        .filter_map(|word| match word.as_str() {
            "--help" | "-h" => Some(USAGE),
            "--version" | "-V" => Some(VERSION),
            _ => None,
        })
        .next()
}

/// When something starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// When what stands before it is over.
    After,
    /// Before, where the kernel is made for it.
    Early,
}

impl Start {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Start::After => "after",
            Start::Early => "early",
        }
    }
}

/// The command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arguments {
    pub(crate) bundle: PathBuf,
    pub(crate) words: Vec<String>,
    pub(crate) chains: Vec<Vec<String>>,
    pub(crate) begin: Start,
    pub(crate) repeat: Start,
    pub(crate) launches: u32,
    pub(crate) runs: u32,
    pub(crate) is_warm: bool,
    pub(crate) scalars: BTreeMap<String, f64>,
    pub(crate) fills: BTreeMap<String, f64>,
    pub(crate) touched: BTreeMap<String, u64>,
    pub(crate) zeros: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) device: u32,
    pub(crate) allow_unaudited: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) commit: Option<String>,
}

/// Launches of one graph at most: more make graphs that take seconds to prepare.
const MOST_LAUNCHES: u32 = 4096;

/// Runs at most.
const MOST_RUNS: u32 = 1_000_000;

impl Arguments {
    /// Reads the words behind the name of the program.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
        let mut bundle = None;
        let mut all = Arguments {
            bundle: PathBuf::new(),
            words: Vec::new(),
            chains: Vec::new(),
            begin: Start::Early,
            repeat: Start::After,
            launches: 32,
            runs: 30,
            is_warm: false,
            scalars: BTreeMap::new(),
            fills: BTreeMap::new(),
            touched: BTreeMap::new(),
            zeros: Vec::new(),
            seed: 1,
            device: 0,
            allow_unaudited: false,
            json: None,
            commit: None,
        };
        while let Some(word) = words.next() {
            let option = word.as_str();
            let mut value = || words.next().ok_or_else(|| format!("{option} wants a value"));
            match option {
                "--bundle" => bundle = Some(PathBuf::from(value()?)),
                "--kernel" => all.words.push(value()?),
                "--chain" => all.chains.push(chain(&value()?)?),
                "--begin" => all.begin = start(option, &value()?)?,
                "--repeat" => all.repeat = start(option, &value()?)?,
                "--launches" => all.launches = count(option, &value()?, MOST_LAUNCHES)?,
                "--runs" => all.runs = count(option, &value()?, MOST_RUNS)?,
                "--warm" => all.is_warm = true,
                "--scalar" => pair(option, &value()?, &mut all.scalars)?,
                "--fill" => pair(option, &value()?, &mut all.fills)?,
                "--touched" => pair(option, &value()?, &mut all.touched)?,
                "--zero" => all.zeros.push(value()?),
                "--seed" => all.seed = number(option, &value()?)?,
                "--device" => all.device = number(option, &value()?)?,
                "--allow-unaudited" => all.allow_unaudited = true,
                "--json" => all.json = Some(PathBuf::from(value()?)),
                "--commit" => all.commit = Some(value()?),
                _ => return Err(format!("unknown option `{option}`")),
            }
        }
        if !all.words.is_empty() && !all.chains.is_empty() {
            return Err("--kernel and --chain exclude each other".to_owned());
        }
        all.bundle = bundle.ok_or("--bundle is missing")?;
        Ok(all)
    }
}

fn chain(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().any(String::is_empty) {
        true => Err(format!("--chain wants names with commas between, not `{text}`")),
        false => Ok(names),
    }
}

fn start(option: &str, text: &str) -> Result<Start, String> {
    match text {
        "after" => Ok(Start::After),
        "early" => Ok(Start::Early),
        _ => Err(format!("{option} wants `after` or `early`, not `{text}`")),
    }
}

fn number<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} wants a number, not `{text}`"))
}

fn count(option: &str, text: &str, most: u32) -> Result<u32, String> {
    match number(option, text)? {
        n if (1..=most).contains(&n) => Ok(n),
        n => Err(format!("{option} wants a number from 1 to {most}, not {n}")),
    }
}

/// `NAME=VALUE`, each name once.
fn pair<T: std::str::FromStr>(
    option: &str,
    text: &str,
    all: &mut BTreeMap<String, T>,
) -> Result<(), String> {
    let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
        return Err(format!("{option} wants NAME=VALUE, not `{text}`"));
    };
    let value = value.parse().map_err(|_| format!("{option} {name}: `{value}` is no number"))?;
    match all.insert(name.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(format!("{option} gives `{name}` twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Arguments, String> {
        Arguments::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_taken() {
        let all = parse(
            "--bundle b --chain x,y --chain z --repeat early --begin after --runs 7 --launches 9 \
             --scalar eps=1e-5 --fill w=0 --touched e=7 --zero bad --warm --commit c",
        )
        .unwrap();
        assert_eq!(all.bundle, PathBuf::from("b"));
        assert_eq!(all.chains, [vec!["x".to_owned(), "y".to_owned()], vec!["z".to_owned()]]);
        assert_eq!((all.begin, all.repeat), (Start::After, Start::Early));
        assert_eq!((all.runs, all.launches, all.is_warm), (7, 9, true));
        assert_eq!((all.scalars["eps"], all.fills["w"], all.touched["e"]), (1e-5, 0.0, 7));
        assert_eq!(
            (all.zeros.as_slice(), all.commit.as_deref()),
            (&["bad".to_owned()][..], Some("c"))
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, reason) in [
            ("", "--bundle is missing"),
            ("--bundle", "--bundle wants a value"),
            ("gemv", "unknown option `gemv`"),
            ("--runs 0", "--runs wants a number from 1 to 1000000, not 0"),
            ("--runs x", "--runs wants a number, not `x`"),
            ("--launches 5000", "--launches wants a number from 1 to 4096, not 5000"),
            ("--begin now", "--begin wants `after` or `early`, not `now`"),
            ("--chain a,,b", "--chain wants names with commas between, not `a,,b`"),
            ("--scalar eps", "--scalar wants NAME=VALUE, not `eps`"),
            ("--scalar =1", "--scalar wants NAME=VALUE, not `=1`"),
            ("--scalar eps=x", "--scalar eps: `x` is no number"),
            ("--touched a=-1", "--touched a: `-1` is no number"),
            ("--fill a=1 --fill a=2", "--fill gives `a` twice"),
            ("--bundle b --kernel a --chain b", "--kernel and --chain exclude each other"),
        ] {
            assert_eq!(parse(text).unwrap_err(), reason, "{text}");
        }
    }
}
