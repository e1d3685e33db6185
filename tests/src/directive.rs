//! What a test file says about itself.
//!
//! ```text
//! //@ test: run            which runner judges the file
//! //@ target: sm_90a       otherwise the first target that the file states
//! //@ kernel: k            otherwise the only kernel
//! //@ bind: M = 8, K = 512
//! //@ case: K = 96, W = 3  runs the kernel once more with these bindings besides, on random buffers
//! //@ seed: 7              of random inputs; 1 when left out
//! //@ in x: 1.0 2.0 nan    values of a buffer or scalar; random when left out
//! //@ out y: 3.0 4.0*8     values that must come out, compared as exactly as the dtype prints
//! //@ in x@1: 5.0 6.0      the same of one rank, in a kernel over several; `out y@1:` likewise
//! //@ launches: 3          how often the ranks launch it; once when left out
//! //@ chain: a, b, a       kernels that are launched one after another and overlap; parameters of one name are one
//! //@ steps: 1000          statements that one CTA may execute
//! //@ level: kernel        the expected error of the run is one that only this level can see
//! //@ gpu: exp2            how far hardware may be from the emulator, as `kernel_ir::ops::hardware` says of this
//! //@ gpu: mma 256         function or of so many products on the tensor core; equal bits when left out
//! //@ gpu: ulp 4 abs 3e-7  the same for a file that uses several functions: within either bound
//! ```
//!
//! A value is a number, `nan`, `inf` or the code in hexadecimal, `0x7fc0`; `v*n` stands for n times v. Several
//! `in` or `out` lines of one name are read as one.
//!
//! `//~ error[E0412]: text` expects a finding whose primary label starts on its line, with that code and with
//! the text in its message or label; `//~^` means the line above. A finding without annotation fails.

use kernel_ir::ops::UnaryOp;
use kernel_ir::ops::hardware::Slack;

/// A parsed test file.
#[derive(Debug, Clone, Default)]
pub struct Directives {
    /// Which runner judges the file.
    pub test: String,
    /// Target.
    pub target: Option<String>,
    /// Kernel.
    pub kernel: Option<String>,
    /// Values of const parameters.
    pub bind: Binding,
    /// Bindings of further runs, each on top of `bind`.
    pub cases: Vec<Binding>,
    /// Seed of random inputs.
    pub seed: u64,
    /// Values of inputs.
    pub inputs: Vec<(String, Vec<String>)>,
    /// Values of outputs.
    pub outputs: Vec<(String, Vec<String>)>,
    /// Kernels that are launched one after another.
    pub chain: Vec<String>,
    /// How often ranks launch the kernel, if it is not once.
    pub launches: Option<usize>,
    /// Statements that one CTA may execute.
    pub steps: Option<u64>,
    /// The expected error of the run is seen at the kernel level alone.
    pub kernel_level_only: bool,
    /// How far hardware may be from the emulator.
    pub gpu: Slack,
    /// Expected findings.
    pub expected: Vec<Expected>,
}

/// Values of const parameters by name; truth values are 1 and 0.
pub type Binding = Vec<(String, i64)>;

/// An expected finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Line of the primary label, from 1.
    pub line: u32,
    /// `error` or `warning`.
    pub severity: String,
    /// `E0412`.
    pub code: String,
    /// Part of the message or of the primary label.
    pub text: String,
}

impl Directives {
    /// Reads the directives of a file.
    ///
    /// # Errors
    /// A directive is not of a known form.
    pub fn parse(text: &str) -> Result<Directives, String> {
        let mut d = Directives { seed: 1, ..Directives::default() };
        for (number, line) in (1u32..).zip(text.lines()) {
            if let Some(rest) = line.trim_start().strip_prefix("//@") {
                d.directive(rest.trim()).map_err(|reason| format!("line {number}: {reason}"))?;
            }
            for annotation in line.split("//~").skip(1) {
                let up = annotation.chars().take_while(|c| *c == '^').count();
                let line = u32::try_from(up).ok().and_then(|up| number.checked_sub(up));
                let line = line.ok_or("an annotation points above the file")?;
                d.expected.push(
                    expected(line, &annotation[up..]).map_err(|r| format!("line {number}: {r}"))?,
                );
            }
        }
        Ok(d)
    }

    /// The bindings of the base run, with those of a further run on top.
    pub fn bindings(&self, case: Option<&Binding>) -> Binding {
        let mut all = self.bind.clone();
        for (name, value) in case.into_iter().flatten() {
            match all.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = *value,
                None => all.push((name.clone(), *value)),
            }
        }
        all
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (key, value) = text.split_once(':').ok_or("a directive is `key: value`")?;
        let value = value.split("//").next().unwrap_or("").trim();
        match key.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["test"] => self.test = value.to_owned(),
            ["target"] => self.target = Some(value.to_owned()),
            ["kernel"] => self.kernel = Some(value.to_owned()),
            ["seed"] => self.seed = value.parse().map_err(|_| "a seed is a number")?,
            ["bind"] => self.bind.extend(binding(value)?),
            ["case"] => self.cases.push(binding(value)?),
            ["chain"] => {
                self.chain.extend(value.split(',').map(|name| name.trim().to_owned()));
            }
            ["launches"] => {
                self.launches = Some(value.parse().map_err(|_| "launches are counted")?);
            }
            ["steps"] => self.steps = Some(value.parse().map_err(|_| "a limit is a number")?),
            ["level"] if value == "kernel" => self.kernel_level_only = true,
            ["gpu"] => self.gpu = slack(value)?,
            ["in", name] => append(&mut self.inputs, name, value),
            ["out", name] => append(&mut self.outputs, name, value),
            _ => return Err(format!("unknown directive `{key}`")),
        }
        Ok(())
    }
}

/// A binding as people write it: `N = 8, W = 3`.
pub fn show_binding(binding: &Binding) -> String {
    let parts: Vec<String> =
        binding.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    parts.join(", ")
}

fn append(lists: &mut Vec<(String, Vec<String>)>, name: &str, value: &str) {
    let words = value.split_whitespace().map(str::to_owned);
    match lists.iter_mut().find(|(known, _)| known == name) {
        Some((_, list)) => list.extend(words),
        None => lists.push((name.to_owned(), words.collect())),
    }
}

fn binding(text: &str) -> Result<Binding, String> {
    let pair = |pair: &str| {
        let (name, number) = pair.split_once('=').ok_or("a binding is `NAME = VALUE`")?;
        let number = match number.trim() {
            "true" => 1,
            "false" => 0,
            number => number.parse().map_err(|_| format!("`{number}` is no integer"))?,
        };
        Ok((name.trim().to_owned(), number))
    };
    text.split(',').map(pair).collect()
}

fn slack(text: &str) -> Result<Slack, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if let ["mma", depth] = *words {
        let depth = depth.parse().map_err(|_| format!("`{depth}` is no number of products"))?;
        return Ok(Slack::of_product(depth));
    }
    if let [name] = *words {
        let op = UnaryOp::ALL.iter().find(|op| op.name() == name);
        return op.map(|op| Slack::of(*op)).ok_or_else(|| format!("there is no function `{name}`"));
    }
    let mut slack = Slack::EXACT;
    for pair in words.chunks(2) {
        match *pair {
            ["ulp", n] => {
                slack.ulp = n.parse().map_err(|_| format!("`{n}` is no number of codes"))?
            }
            ["abs", x] => slack.abs = x.parse().map_err(|_| format!("`{x}` is no number"))?,
            _ => return Err("a tolerance is `ulp N`, `abs X`, or both".to_owned()),
        }
    }
    Ok(slack)
}

fn expected(line: u32, text: &str) -> Result<Expected, String> {
    let text = text.trim();
    let (head, message) = text.split_once(':').unwrap_or((text, ""));
    let (severity, code) = head
        .trim()
        .strip_suffix(']')
        .and_then(|head| head.split_once('['))
        .ok_or("an annotation is `error[E0412]: text`")?;
    Ok(Expected {
        line,
        severity: severity.to_owned(),
        code: code.to_owned(),
        text: message.trim().trim_matches('`').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_and_annotations_are_read() {
        let d = Directives::parse(
            "//@ test: run\n//@ bind: M = 8, F = true\n//@ in x: 1 nan\nlet a = b; //~ error[E0201]: unknown\n//~^ error[E0202]\n",
        )
        .unwrap();
        assert_eq!(d.test, "run");
        assert_eq!(d.bind, [("M".to_owned(), 8), ("F".to_owned(), 1)]);
        assert_eq!(d.inputs, [("x".to_owned(), vec!["1".to_owned(), "nan".to_owned()])]);
        let lines: Vec<(u32, &str)> =
            d.expected.iter().map(|e| (e.line, e.code.as_str())).collect();
        assert_eq!(lines, [(4, "E0201"), (4, "E0202")]);
    }

    #[test]
    fn cases_replace_bindings_and_values_run_over_lines() {
        let d = Directives::parse(
            "//@ bind: M = 8, K = 4\n//@ case: K = 3, W = 2\n//@ out y: 1 2\n//@ out y: 3*2\n//@ gpu: ulp 2 abs 3e-7\n",
        )
        .unwrap();
        assert_eq!(show_binding(&d.bindings(d.cases.first())), "M = 8, K = 3, W = 2");
        assert_eq!(show_binding(&d.bindings(None)), "M = 8, K = 4");
        assert_eq!(d.outputs[0].1, ["1", "2", "3*2"]);
        assert_eq!(d.gpu, Slack { ulp: 2, abs: 3e-7 });
        let of = |text: &str| Directives::parse(text).unwrap().gpu;
        assert_eq!(of("//@ gpu: exp2"), Slack::of(UnaryOp::Exp2));
        assert_eq!(of("//@ gpu: mma 256"), Slack::of_product(256));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, reason) in [
            ("\n//@ tset: run", "line 2: unknown directive `tset`"),
            ("//@ bind: M", "line 1: a binding is `NAME = VALUE`"),
            ("x //~ E0412", "line 1: an annotation is `error[E0412]: text`"),
            ("x //~^^ error[E0412]", "an annotation points above the file"),
            ("//@ gpu: 3", "line 1: there is no function `3`"),
            ("//@ gpu: mma x", "line 1: `x` is no number of products"),
            ("//@ gpu: 3 4", "line 1: a tolerance is `ulp N`, `abs X`, or both"),
        ] {
            assert_eq!(Directives::parse(text).unwrap_err(), reason);
        }
    }
}
