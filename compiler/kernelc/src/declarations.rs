//! What `kernelc audit --declarations FILE.toml` reads: who writes the parameters of foreign kernels.
//!
//! ```toml
//! static = ["w"]            # of every kernel that has it
//!
//! [kernel.gemv]             # of one kernel
//! static = ["scales"]
//! mutable = ["x", "#2"]     # by name, or by number in a cubin
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use kernel_audit::{Claim, Declaration, Declarations, UsageError};
use serde::Deserialize;
use toml::Spanned;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "static")]
    statics: Vec<Spanned<String>>,
    #[serde(default)]
    mutable: Vec<Spanned<String>>,
    #[serde(default)]
    kernel: BTreeMap<String, OfKernel>,
}

/// What is said of one kernel.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfKernel {
    #[serde(default, rename = "static")]
    statics: Vec<Spanned<String>>,
    #[serde(default)]
    mutable: Vec<Spanned<String>>,
}

/// The claims of a file, with the places where they stand.
#[derive(Debug, Default)]
pub struct DeclarationFile {
    claims: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    /// The claim as it would be written after `--static` or `--mutable`.
    text: String,
    claim: Claim,
    declaration: Declaration,
    /// Line and column, from 1.
    at: (usize, usize),
}

/// A fault of a file, with its line and column from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line and column.
    pub at: (usize, usize),
    /// What is wrong.
    pub message: String,
}

impl DeclarationFile {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// It is no TOML of this form, or a claim names no parameter.
    pub fn parse(text: &str) -> Result<DeclarationFile, Fault> {
        let file: File = toml::from_str(text).map_err(|error| Fault {
            at: place(text, error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let mut all = DeclarationFile::default();
        all.add(text, None, &file.statics, Claim::Static)?;
        all.add(text, None, &file.mutable, Claim::Mutable)?;
        for (kernel, of_kernel) in &file.kernel {
            all.add(text, Some(kernel), &of_kernel.statics, Claim::Static)?;
            all.add(text, Some(kernel), &of_kernel.mutable, Claim::Mutable)?;
        }
        Ok(all)
    }

    fn add(
        &mut self,
        text: &str,
        kernel: Option<&str>,
        names: &[Spanned<String>],
        claim: Claim,
    ) -> Result<(), Fault> {
        for name in names {
            let Range { start, .. } = name.span();
            let at = place(text, start);
            let name = name.get_ref();
            let written = match kernel {
                Some(_) if name.contains(':') => {
                    let message = format!("`{name}` names a kernel inside of the table of one");
                    return Err(Fault { at, message });
                }
                Some(kernel) => format!("{kernel}:{name}"),
                None => name.clone(),
            };
            let declaration = Declaration::parse(&written, claim)
                .map_err(|error| Fault { at, message: error.to_string() })?;
            self.claims.push(Place { text: written, claim, declaration, at });
        }
        Ok(())
    }

    /// Adds the claims to those of the command line.
    pub fn add_to(&self, declarations: &mut Declarations) {
        for place in &self.claims {
            declarations.push(place.declaration.clone());
        }
    }

    /// Where the claim stands that an audit refused; none where it is not of this file.
    pub fn place_of(&self, error: &UsageError) -> Option<(usize, usize)> {
        let is_meant = |place: &&Place| match error {
            UsageError::UnknownParam { name, .. } | UsageError::Both(name) => place.text == *name,
            UsageError::UnknownKernel(kernel) => {
                place.text.rsplit_once(':').is_some_and(|(of, _)| of == kernel)
            }
            UsageError::Empty(_) | UsageError::Ordinal(_) | UsageError::Target(_) => false,
        };
        // Of two claims that contradict each other, the later one is the mutable one.
        self.claims.iter().filter(is_meant).max_by_key(|place| place.claim).map(|place| place.at)
    }
}

/// Line and column of a byte of the text, from 1.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        DeclarationFile::parse(text).unwrap_err()
    }

    #[test]
    fn claims_of_all_kernels_and_of_one_are_read() {
        let file = DeclarationFile::parse(
            "static = [\"w\"]\n\n[kernel.gemv]\nstatic = [\"s\"]\nmutable = [\"x\", \"#2\"]\n",
        )
        .unwrap();
        let texts: Vec<(&str, Claim)> =
            file.claims.iter().map(|place| (place.text.as_str(), place.claim)).collect();
        assert_eq!(
            texts,
            [
                ("w", Claim::Static),
                ("gemv:s", Claim::Static),
                ("gemv:x", Claim::Mutable),
                ("gemv:#2", Claim::Mutable),
            ]
        );
        assert!(DeclarationFile::parse("").unwrap().claims.is_empty());
    }

    #[test]
    fn faults_name_their_line_and_column() {
        assert_eq!(fault("static = [\"w\"]\nconstant = [\"x\"]\n").at, (2, 1));
        assert_eq!(fault("static = [\"w\"\n").at.0, 1);
        assert_eq!(fault("static = \"w\"\n").at, (1, 10));
        assert_eq!(fault("static = [\n  \"w\",\n  \"#x\",\n]\n").at, (3, 3));
        let inside = fault("[kernel.k]\nmutable = [\"k:x\"]\n");
        assert_eq!(inside.at, (2, 12));
        assert!(inside.message.contains("inside of the table"), "{inside:?}");
    }

    #[test]
    fn what_the_audit_refuses_is_found_in_the_file() {
        let file =
            DeclarationFile::parse("static = [\"w\"]\n[kernel.gemv]\nmutable = [\"x\"]\n").unwrap();
        let unknown =
            |name: &str| UsageError::UnknownParam { name: name.to_owned(), hint: String::new() };
        assert_eq!(file.place_of(&unknown("w")), Some((1, 11)));
        assert_eq!(file.place_of(&unknown("gemv:x")), Some((3, 12)));
        assert_eq!(file.place_of(&UsageError::UnknownKernel("gemv".to_owned())), Some((3, 12)));
        assert_eq!(file.place_of(&unknown("y")), None);
    }
}
