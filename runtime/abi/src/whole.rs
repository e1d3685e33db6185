//! Files that appear as a whole or not at all, whatever ends the process that writes them.
//!
//! On Linux the file has no name until it is finished, so that nothing is left of it. Where the file system does not
//! have files without names it is called `NAME.….part` and locked meanwhile; the next writer of `NAME` removes those
//! that nobody holds. [`WholeFiles`] are several that appear one after the other, once all of them are on the disk.

mod several;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

pub use several::WholeFiles;

/// A file that is being written.
#[derive(Debug)]
pub struct WholeFile {
    target: PathBuf,
    file: File,
    /// Its name meanwhile; none where it has none.
    part: Option<TempPath>,
}

impl WholeFile {
    /// Begins a file in the folder of the one that it will be; through a link, of the file that the link names.
    ///
    /// # Errors
    /// The folder does not take one, or there is something that is no regular file.
    pub fn create(path: &Path) -> Result<WholeFile> {
        let target = resolved(path)?;
        match nameless(folder_of(&target)) {
            Some(file) => {
                remove_left(&target);
                Ok(WholeFile { target, file, part: None })
            }
            None => WholeFile::create_named(&target),
        }
    }

    /// Begins a file with a name of its own.
    fn create_named(target: &Path) -> Result<WholeFile> {
        let folder = folder_of(target);
        remove_left(target);
        let prefix = part_prefix(target);
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(PART);
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let part = builder.tempfile_in(folder)?;
        // Without a lock another writer may remove it, which ends in an error and not in half a file.
        let _ = part.as_file().try_lock();
        let (file, part) = part.into_parts();
        Ok(WholeFile { target: target.to_owned(), file, part: Some(part) })
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What is left behind where the process is killed.
    pub fn part(&self) -> Option<&Path> {
        self.part.as_deref()
    }

    /// Writes the bytes and puts the file in its place.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn finish_with(self, bytes: &[u8]) -> Result<()> {
        self.file().write_all(bytes)?;
        self.finish()
    }

    /// Takes room for so many bytes at once, where the file system can: a full disk is found before it is full.
    ///
    /// # Errors
    /// There is too little room.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        reserve(&self.file, bytes)
    }

    /// Puts the file in its place once its bytes are on the disk.
    ///
    /// # Errors
    /// The disk does not take it.
    pub fn finish(self) -> Result<()> {
        let WholeFile { target, file, part } = self;
        file.sync_all()?;
        match part {
            Some(part) => part.persist(&target).map_err(Error::from)?,
            None => link(&file, &target)?,
        }
        // The name is on the disk with the folder; file systems that do not sync folders say so.
        if let Ok(folder) = File::open(folder_of(&target)) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// The end of the names of unfinished files.
const PART: &str = ".part";

fn part_prefix(target: &Path) -> OsString {
    let mut prefix = target.file_name().unwrap_or_default().to_owned();
    prefix.push(".");
    prefix
}

/// The file behind links; an error where something else than a file is there.
fn resolved(path: &Path) -> Result<PathBuf> {
    match std::fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            Err(Error::new(ErrorKind::InvalidInput, "not a regular file"))
        }
        Ok(_) => path.canonicalize(),
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            Ok(path.to_owned())
        }
        // A link to nothing, or a folder that cannot be looked into.
        Err(error) => Err(error),
    }
}

fn folder_of(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    }
}

/// Removes what writers of the same file have left that were killed.
fn remove_left(target: &Path) {
    let prefix = part_prefix(target);
    let prefix = prefix.to_string_lossy();
    // A folder that cannot be read may take files all the same.
    for left in std::fs::read_dir(folder_of(target)).into_iter().flatten().flatten() {
        let name = left.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&*prefix) && name.ends_with(PART) {
            remove_unheld(&left.path());
        }
    }
}

/// Removes an unfinished file whose writer is gone.
fn remove_unheld(path: &Path) {
    if let Ok(file) = File::open(path)
        && file.try_lock().is_ok()
    {
        // Another writer may have been quicker.
        let _ = std::fs::remove_file(path);
    }
}

/// A file without a name, where the system and the folder have such.
#[cfg(target_os = "linux")]
fn nameless(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?;
    Some(File::from(file))
}

/// Elsewhere no file is without a name.
#[cfg(not(target_os = "linux"))]
fn nameless(_: &Path) -> Option<File> {
    None
}

/// Gives a file without a name its name.
#[cfg(target_os = "linux")]
fn link(file: &File, target: &Path) -> Result<()> {
    use std::os::fd::AsRawFd;
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link_to = |path: &Path| {
        let follow = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, &from, rustix::fs::CWD, path, follow)
    };
    match link_to(target) {
        Err(rustix::io::Errno::EXIST) => {
            // A name of its own for the moment in which it replaces the other: by now it is whole. The file is locked
            // by then, so nobody takes it for one that was left.
            let _ = file.try_lock();
            let prefix = part_prefix(target);
            let mut builder = tempfile::Builder::new();
            builder.prefix(&prefix).suffix(PART);
            let beside = builder.make_in(folder_of(target), |path| Ok(link_to(path)?))?;
            beside.into_temp_path().persist(target).map_err(Error::from)
        }
        other => Ok(other?),
    }
}

/// Never called where no file is without a name.
#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> Result<()> {
    Err(Error::from(std::io::ErrorKind::Unsupported))
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> Result<()> {
    use rustix::io::Errno;
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_: &File, _: u64) -> Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_finished_and_replaces_another() {
        type Create = fn(&Path) -> Result<WholeFile>;
        for create in [WholeFile::create as Create, WholeFile::create_named] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("a");
            for text in ["one", "another"] {
                let file = create(&target).unwrap();
                file.file().write_all(text.as_bytes()).unwrap();
                let part = usize::from(file.part().is_some());
                let before = usize::from(target.exists());
                assert_eq!(names(folder.path()).len(), before + part);
                file.finish().unwrap();
                assert_eq!(std::fs::read_to_string(&target).unwrap(), text);
                assert_eq!(names(folder.path()), ["a"]);
            }
            drop(create(&target).unwrap());
            assert_eq!(names(folder.path()), ["a"]);
        }
    }

    #[test]
    fn what_a_killed_writer_left_is_removed_by_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        for left in ["a.1.part", "a.2.part", "b.1.part"] {
            std::fs::write(folder.path().join(left), "half").unwrap();
        }
        let held = File::open(folder.path().join("a.2.part")).unwrap();
        held.try_lock().unwrap();
        let file = WholeFile::create_named(&target).unwrap();
        file.finish().unwrap();
        assert_eq!(names(folder.path()), ["a", "a.2.part", "b.1.part"]);
    }

    #[test]
    fn what_was_left_under_the_own_process_number_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a");
        std::fs::write(&target, "old").unwrap();
        std::fs::write(folder.path().join(format!("a.{}.part", std::process::id())), "x").unwrap();
        let file = WholeFile::create(&target).unwrap();
        file.finish_with(b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "new");
        assert_eq!(names(folder.path()), ["a"]);
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        assert!(WholeFile::create(folder.path()).is_err());
        if cfg!(unix) {
            assert!(WholeFile::create(Path::new("/dev/null")).is_err());
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(WholeFile::create(Path::new("/no/such/folder/a")).is_err());
    }

    #[test]
    fn more_than_any_disk_has_is_refused_before_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = WholeFile::create(&folder.path().join("a")).unwrap();
        file.reserve(1000).unwrap();
        if cfg!(target_os = "linux") {
            assert!(file.reserve(1 << 60).is_err());
        }
    }
}
