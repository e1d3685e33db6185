//! `build.toml`: which kernels `kernelc build` makes, with what bindings.
//!
//! ```toml
//! [[set.tp16]]
//! kernel = "gemv_bf16"                    # the kernel in one of the folder's files
//! name = "in_proj"                        # the artefact; the kernel's name when left out
//! bind = { M = 1, N = 3216, K = 7168 }    # const parameters
//! targets = ["sm_90a"]                    # fewer targets than the file states
//! file = "more/gemv.tile"                 # the file of the kernel, where several have one of that name
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

/// The file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildFile {
    /// Entries by the name of their set.
    #[serde(default)]
    pub set: BTreeMap<String, Vec<Entry>>,
}

/// One artefact.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the artefact.
    pub name: Option<String>,
    /// Values of const parameters.
    #[serde(default)]
    pub bind: BTreeMap<String, BindValue>,
    /// Targets, when fewer than the file states.
    pub targets: Option<Vec<String>>,
    /// The file of the kernel, by its path below the folder; without, the first of the folder that has such a kernel.
    pub file: Option<String>,
}

/// A value of a const parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum BindValue {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
}

impl BuildFile {
    /// Reads the text of a `build.toml`.
    pub fn parse(text: &str) -> Result<BuildFile, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }
}

impl Entry {
    /// The artefact's name: letters, digits, `_`, `-` and `.` only, so that it can name a file.
    pub fn artefact(&self) -> Result<&str, String> {
        let name = self.name.as_deref().unwrap_or(&self.kernel);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return Err(format!(
                "`{name}` cannot name an artefact: use letters, digits, `_`, `-`, `.`"
            ));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_unknown_fields_refused() {
        let file = BuildFile::parse(
            "[[set.a]]\nkernel = \"k\"\nbind = { M = 1, F = true }\n[[set.a]]\nkernel = \"k\"\nname = \"two\"\n",
        )
        .unwrap();
        assert_eq!(file.set["a"].len(), 2);
        assert_eq!(file.set["a"][0].bind["F"], BindValue::Bool(true));
        assert_eq!(file.set["a"][1].artefact(), Ok("two"));
        assert!(BuildFile::parse("[[set.a]]\nkernle = \"k\"\n").is_err());
    }

    #[test]
    fn an_artefact_names_a_file_of_its_folder() {
        let entry = |name: &str| Entry {
            kernel: "k".to_owned(),
            name: Some(name.to_owned()),
            bind: BTreeMap::new(),
            targets: None,
            file: None,
        };
        for bad in ["", "a/b", "..", "a b"] {
            assert!(entry(bad).artefact().is_err(), "{bad}");
        }
    }
}
