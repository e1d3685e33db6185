//! Files that appear together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{PART, folder_of};

/// The start of the names of folders in which files are written.
const STAGE: &str = ".staged.";

/// Files that are all on the disk before the first of them is in its place. Until then they are in a folder of their
/// own beside their places; the next writer removes such folders that nobody holds.
#[derive(Debug, Default)]
pub struct WholeFiles {
    stages: BTreeMap<PathBuf, Stage>,
    files: Vec<(PathBuf, PathBuf)>,
}

/// Files on their way into one folder.
#[derive(Debug)]
struct Stage {
    folder: TempDir,
    /// Locked for as long as its writer lives.
    _held: File,
}

impl Stage {
    fn create(beside: &Path) -> Result<Stage> {
        for left in std::fs::read_dir(beside).into_iter().flatten().flatten() {
            let name = left.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(STAGE) && name.ends_with(PART) {
                remove_unheld(&left.path());
            }
        }
        let folder = tempfile::Builder::new().prefix(STAGE).suffix(PART).tempdir_in(beside)?;
        let held = File::open(folder.path())?;
        // Without a lock another writer may remove it, which ends in an error and not in half a file.
        let _ = held.try_lock();
        Ok(Stage { folder, _held: held })
    }
}

/// Removes the folder of a writer that is gone.
fn remove_unheld(folder: &Path) {
    if let Ok(held) = File::open(folder)
        && held.try_lock().is_ok()
    {
        // Another writer may have been quicker.
        let _ = std::fs::remove_dir_all(folder);
    }
}

impl WholeFiles {
    /// Writes a file beside its place; those added last appear last. Folders on the way are made.
    ///
    /// # Errors
    /// The disk does not take it, or something that is no file is in its place.
    pub fn add(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let folder = folder_of(path);
        std::fs::create_dir_all(folder)?;
        if path.is_dir() {
            return Err(Error::new(ErrorKind::InvalidInput, "a folder is in its place"));
        }
        if !self.stages.contains_key(folder) {
            self.stages.insert(folder.to_owned(), Stage::create(folder)?);
        }
        let staged = self.stages[folder].folder.path().join(self.files.len().to_string());
        let mut file = File::create_new(&staged)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        self.files.push((staged, path.to_owned()));
        Ok(())
    }

    /// Puts all files in their places, in the order in which they were added.
    ///
    /// # Errors
    /// One of them cannot be put there: its place, how many are in theirs, and why.
    pub fn finish(self) -> std::result::Result<(), (PathBuf, usize, Error)> {
        for (done, (staged, path)) in self.files.iter().enumerate() {
            std::fs::rename(staged, path).map_err(|error| (path.clone(), done, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn files_appear_together_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = WholeFiles::default();
        let (a, b) = (folder.path().join("a"), folder.path().join("inner/b"));
        files.add(&a, b"1").unwrap();
        files.add(&b, b"2").unwrap();
        assert!(!a.exists() && !b.exists());
        files.finish().unwrap();
        assert_eq!(
            (std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap()),
            (b"1".into(), b"2".into())
        );
        assert_eq!((entries(folder.path()), entries(&folder.path().join("inner"))), (2, 1));
        let mut files = WholeFiles::default();
        files.add(&a, b"other").unwrap();
        drop(files);
        assert_eq!((std::fs::read(&a).unwrap(), entries(folder.path())), (b"1".into(), 2));
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_and_what_is_held_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".staged.left.part");
        let held = folder.path().join(".staged.held.part");
        for stage in [&left, &held] {
            std::fs::create_dir(stage).unwrap();
            std::fs::write(stage.join("0"), "half").unwrap();
        }
        let lock = File::open(&held).unwrap();
        lock.try_lock().unwrap();
        let mut files = WholeFiles::default();
        files.add(&folder.path().join("a"), b"1").unwrap();
        files.finish().unwrap();
        assert!(!left.exists() && held.exists());
        assert_eq!(entries(folder.path()), 2);
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_is_an_error_before_anything_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = WholeFiles::default();
        files.add(&folder.path().join("a"), b"1").unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        assert!(files.add(&folder.path().join("b"), b"2").is_err());
        assert!(!folder.path().join("a").exists());
    }
}
