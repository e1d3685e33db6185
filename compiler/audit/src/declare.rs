//! What the user says of parameters: static, or mutable.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// What is said of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// No one writes the memory while the grid runs.
    Static,
    /// Someone may write the memory while the grid runs.
    Mutable,
}

/// One claim: `name`, `KERNEL:name`, or `#0` and `KERNEL:#0` by ordinal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    claim: Claim,
    kernel: Option<String>,
    param: Selector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Selector {
    Name(String),
    Ordinal(u32),
}

/// All claims of one audit.
#[derive(Clone, Debug, Default)]
pub struct Declarations {
    list: Vec<Declaration>,
}

/// The user asked for something that makes no sense for this file.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum UsageError {
    /// The claim has no name.
    #[error("`{0}` names no parameter")]
    Empty(String),
    /// An ordinal that is no number.
    #[error("`{0}` is no ordinal; write `#0` for the first parameter")]
    Ordinal(String),
    /// No kernel of the file has such a parameter.
    #[error("no kernel has a parameter `{name}`{hint}")]
    UnknownParam {
        /// What was written.
        name: String,
        /// Which parameters there are.
        hint: String,
    },
    /// The file has no such kernel.
    #[error("the file has no kernel `{0}`")]
    UnknownKernel(String),
    /// A parameter is claimed to be both.
    #[error("`{0}` is declared both static and mutable")]
    Both(String),
    /// The target is not one that the tools know.
    #[error("`{0}` is no target; write for example `sm_90a`")]
    Target(String),
}

impl Declaration {
    /// Reads a claim as it is written after `--static` or `--mutable`.
    ///
    /// # Errors
    /// The text names no parameter.
    pub fn parse(text: &str, claim: Claim) -> Result<Self, UsageError> {
        let (kernel, param) = match text.rsplit_once(':') {
            Some((kernel, param)) => (Some(kernel), param),
            None => (None, text),
        };
        if param.is_empty() || kernel.is_some_and(str::is_empty) {
            return Err(UsageError::Empty(text.to_owned()));
        }
        let param = match param.strip_prefix('#') {
            Some(number) => match number.parse() {
                Ok(ordinal) => Selector::Ordinal(ordinal),
                Err(_) => return Err(UsageError::Ordinal(text.to_owned())),
            },
            None => Selector::Name(param.to_owned()),
        };
        Ok(Declaration { claim, kernel: kernel.map(str::to_owned), param })
    }

    fn text(&self) -> String {
        let param = match &self.param {
            Selector::Name(name) => name.clone(),
            Selector::Ordinal(ordinal) => format!("#{ordinal}"),
        };
        match &self.kernel {
            Some(kernel) => format!("{kernel}:{param}"),
            None => param,
        }
    }
}

impl Declarations {
    /// Claims from what was written after `--static` and `--mutable`.
    ///
    /// # Errors
    /// A text names no parameter.
    pub fn parse<S: AsRef<str>>(statics: &[S], mutables: &[S]) -> Result<Self, UsageError> {
        let mut list = Vec::new();
        for text in statics {
            list.push(Declaration::parse(text.as_ref(), Claim::Static)?);
        }
        for text in mutables {
            list.push(Declaration::parse(text.as_ref(), Claim::Mutable)?);
        }
        Ok(Declarations { list })
    }

    /// Adds a claim.
    pub fn push(&mut self, declaration: Declaration) {
        self.list.push(declaration);
    }
}

/// Claims of one kernel, by what they speak of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) params: BTreeMap<u32, Claim>,
    pub(crate) globals: BTreeMap<u32, Claim>,
}

/// What names a kernel offers to claims.
pub(crate) struct Names<'a> {
    pub(crate) kernel: &'a str,
    pub(crate) params: Vec<&'a str>,
    pub(crate) globals: &'a [String],
}

/// Matches claims with kernels.
pub(crate) fn resolve(
    declarations: &Declarations,
    kernels: &[Names<'_>],
) -> Result<Vec<Claims>, UsageError> {
    let mut claims = vec![Claims::default(); kernels.len()];
    for declaration in &declarations.list {
        let mut kernel_found = false;
        let mut found = false;
        for (kernel, claims) in kernels.iter().zip(&mut claims) {
            if declaration.kernel.as_deref().is_some_and(|name| name != kernel.kernel) {
                continue;
            }
            kernel_found = true;
            let param = match &declaration.param {
                Selector::Name(name) => kernel.params.iter().position(|param| param == name),
                Selector::Ordinal(ordinal) => {
                    Some(*ordinal as usize).filter(|&index| index < kernel.params.len())
                }
            };
            let global = match &declaration.param {
                Selector::Name(name) => kernel.globals.iter().position(|global| global == name),
                Selector::Ordinal(_) => None,
            };
            let old = match (param, global) {
                (Some(param), _) => claims.params.insert(param as u32, declaration.claim),
                (None, Some(global)) => claims.globals.insert(global as u32, declaration.claim),
                (None, None) => continue,
            };
            if old.is_some_and(|old| old != declaration.claim) {
                return Err(UsageError::Both(declaration.text()));
            }
            found = true;
        }
        if let (false, Some(kernel)) = (kernel_found, &declaration.kernel) {
            return Err(UsageError::UnknownKernel(kernel.clone()));
        }
        if !found {
            return Err(UsageError::UnknownParam { name: declaration.text(), hint: hint(kernels) });
        }
    }
    Ok(claims)
}

fn hint(kernels: &[Names<'_>]) -> String {
    let names: BTreeSet<&str> =
        kernels.iter().flat_map(|kernel| kernel.params.iter().copied()).take(64).collect();
    if names.is_empty() {
        return String::new();
    }
    let list: Vec<&str> = names.into_iter().take(12).collect();
    format!("; there are {}", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOBALS: &[String] = &[];

    fn names() -> Vec<Names<'static>> {
        vec![
            Names { kernel: "a", params: vec!["x", "y"], globals: GLOBALS },
            Names { kernel: "b", params: vec!["x"], globals: GLOBALS },
        ]
    }

    #[test]
    fn a_name_speaks_of_every_kernel_and_a_prefix_of_one() {
        let all = Declarations::parse(&["x"], &[]).unwrap();
        let claims = resolve(&all, &names()).unwrap();
        assert_eq!(claims[0].params[&0], Claim::Static);
        assert_eq!(claims[1].params[&0], Claim::Static);
        let one = Declarations::parse(&["b:#0"], &[]).unwrap();
        let claims = resolve(&one, &names()).unwrap();
        assert!(claims[0].params.is_empty());
        assert_eq!(claims[1].params[&0], Claim::Static);
    }

    #[test]
    fn unknown_names_are_wrong_usage() {
        let error = |statics: &[&str], mutables: &[&str]| {
            let all = Declarations::parse(statics, mutables)?;
            resolve(&all, &names()).map(|_| ())
        };
        assert!(matches!(error(&["z"], &[]), Err(UsageError::UnknownParam { .. })));
        assert!(matches!(error(&["b:y"], &[]), Err(UsageError::UnknownParam { .. })));
        assert!(matches!(error(&["c:x"], &[]), Err(UsageError::UnknownKernel(_))));
        assert!(matches!(error(&["#7"], &[]), Err(UsageError::UnknownParam { .. })));
        assert!(matches!(error(&["#x"], &[]), Err(UsageError::Ordinal(_))));
        assert!(matches!(error(&[""], &[]), Err(UsageError::Empty(_))));
        assert!(matches!(error(&["x"], &["a:x"]), Err(UsageError::Both(_))));
    }
}
