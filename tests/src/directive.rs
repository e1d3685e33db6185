//! What a test file says about itself.
//!
//! ```text
//! //@ test: run            which runner judges the file
//! //@ target: sm_90a       otherwise the first target that the file states
//! //@ kernel: k            otherwise the only kernel
//! //@ bind: M = 8, K = 512
//! //@ seed: 7              of random inputs; 1 when left out
//! //@ in x: 1.0 2.0 nan    values of a buffer or scalar; random when left out
//! //@ out y: 3.0 4.0       values that must come out, compared as exactly as the dtype prints
//! ```
//!
//! `//~ error[E0412]: text` expects a finding whose primary label starts on its line, with that code and with
//! the text in its message or label; `//~^` means the line above. A finding without annotation fails.

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
    pub bind: Vec<(String, i64)>,
    /// Seed of random inputs.
    pub seed: u64,
    /// Values of inputs.
    pub inputs: Vec<(String, Vec<String>)>,
    /// Values of outputs.
    pub outputs: Vec<(String, Vec<String>)>,
    /// Expected findings.
    pub expected: Vec<Expected>,
}

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
                let line = number - up as u32;
                d.expected.push(expected(line, &annotation[up..]).map_err(|r| format!("line {number}: {r}"))?);
            }
        }
        Ok(d)
    }

    fn directive(&mut self, text: &str) -> Result<(), String> {
        let (key, value) = text.split_once(':').ok_or("a directive is `key: value`")?;
        let value = value.split("//").next().unwrap_or("").trim();
        let words = |value: &str| value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match key.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["test"] => self.test = value.to_owned(),
            ["target"] => self.target = Some(value.to_owned()),
            ["kernel"] => self.kernel = Some(value.to_owned()),
            ["seed"] => self.seed = value.parse().map_err(|_| "a seed is a number")?,
            ["bind"] => {
                for pair in value.split(',') {
                    let (name, number) = pair.split_once('=').ok_or("a binding is `NAME = VALUE`")?;
                    let number = match number.trim() {
                        "true" => 1,
                        "false" => 0,
                        number => number.parse().map_err(|_| format!("`{number}` is no integer"))?,
                    };
                    self.bind.push((name.trim().to_owned(), number));
                }
            }
            ["in", name] => self.inputs.push(((*name).to_owned(), words(value))),
            ["out", name] => self.outputs.push(((*name).to_owned(), words(value))),
            _ => return Err(format!("unknown directive `{key}`")),
        }
        Ok(())
    }
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
        let lines: Vec<(u32, &str)> = d.expected.iter().map(|e| (e.line, e.code.as_str())).collect();
        assert_eq!(lines, [(4, "E0201"), (4, "E0202")]);
    }
}
