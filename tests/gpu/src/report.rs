//! The JSON of `--report`: a file that is there as a whole or not at all.

use std::path::{Path, PathBuf};

use kernel_abi::whole::WholeFile;
use serde_json::Value;

/// The report of a task, where one is wanted.
#[derive(Debug)]
pub(crate) struct Report(Option<(PathBuf, WholeFile)>);

impl Report {
    /// Begins the file before the work: what cannot be written is known then.
    ///
    /// # Errors
    /// The folder does not take it, or there is something that is no regular file.
    pub(crate) fn create(path: Option<&Path>) -> Result<Report, String> {
        let Some(path) = path else { return Ok(Report(None)) };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let created = match folder {
            Some(folder) => std::fs::create_dir_all(folder).and_then(|()| WholeFile::create(path)),
            None => WholeFile::create(path),
        };
        let file = created.map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Report(Some((path.to_owned(), file))))
    }

    /// Writes it.
    ///
    /// # Errors
    /// The disk does not take it.
    pub(crate) fn finish(self, report: &Value) -> Result<(), String> {
        let Some((path, file)) = self.0 else { return Ok(()) };
        let written = file.finish_with(format!("{report:#}\n").as_bytes());
        written.map_err(|error| format!("{}: {error}", path.display()))
    }
}
