//! Writes a list of the file tests that a GPU runs, with their texts, for `src/suite.rs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Folders of `tests/suite`: operations, whole kernels, and what they import.
const FOLDERS: [&str; 3] = ["lib", "ops", "run"];
/// What stops with an error is for the emulator alone.
const LEFT_OUT: &str = "run/err";

fn main() -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let suite = package.join("../suite").canonicalize()?;
    let mut files = BTreeMap::new();
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={}", suite.join(folder).display());
        walk(&suite, folder, &mut files)?;
    }
    let mut list = "&[\n".to_owned();
    for (name, path) in files {
        writeln!(list, "({name:?}, include_str!({:?})),", path.display().to_string())?;
    }
    list.push_str("]\n");
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("suite.rs"), list)?;
    Ok(())
}

fn walk(
    suite: &Path,
    folder: &str,
    files: &mut BTreeMap<String, PathBuf>,
) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(suite.join(folder))? {
        let entry = entry?;
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if name == LEFT_OUT {
            continue;
        }
        if entry.file_type()?.is_dir() {
            walk(suite, &name, files)?;
        } else if name.ends_with(".tile") {
            files.insert(name, entry.path());
        }
    }
    Ok(())
}
