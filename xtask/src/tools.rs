//! ptxas, nvdisasm and cuobjdump at exact versions, from Python wheels, in an ignored folder.
//!
//! What the audit reports depends on the version of these three, so the project never takes those
//! of the machine: `xtask/tools.lock` pins them by hash and a stamp says what is installed.

use crate::process::{run, stdout};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOCK: &str = "xtask/tools.lock";
const FOLDER: &str = ".tools";
const PROGRAMS_IN_FOLDER: &str = "nvidia/cu13/bin";
/// Holds the hash of the lock file that the folder was made from.
const STAMP: &str = "made-from";

/// The programs, with the variables by which kernelc and the tests find them.
const PROGRAMS: [(&str, &str); 3] = [
    ("ptxas", "KERNELC_PTXAS"),
    ("nvdisasm", "KERNELC_NVDISASM"),
    ("cuobjdump", "KERNELC_CUOBJDUMP"),
];

/// The installed programs.
#[derive(Clone)]
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The variables to set for kernelc and for tests.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        PROGRAMS.iter().map(|(name, variable)| (*variable, self.folder.join(name)))
    }
}

/// Installs the tools below `root` unless the ones that the lock file names are there.
pub(crate) fn install(root: &Path) -> Result<Tools> {
    let lock = fs::read(root.join(LOCK)).with_context(|| format!("reading {LOCK}"))?;
    let stamp = hash(&lock);
    let folder = root.join(FOLDER);
    let tools = Tools { folder: folder.join(PROGRAMS_IN_FOLDER) };
    if is_current(&folder, &stamp) {
        println!("setup: ptxas, nvdisasm and cuobjdump are there");
        return Ok(tools);
    }
    if !cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))) {
        bail!(
            "ptxas, nvdisasm and cuobjdump are pinned for Linux on x86_64 and aarch64 only; \
             elsewhere the project does not build kernels"
        );
    }
    println!("setup: installing ptxas, nvdisasm and cuobjdump into {FOLDER}");
    // Made aside and moved: a stop half way leaves no folder that looks complete.
    let fresh = root.join(format!("{FOLDER}.new-{}", std::process::id()));
    let made = fill(&fresh, root, &stamp).and_then(|()| put_in_place(&fresh, &folder, &stamp));
    if made.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_dir_all(&fresh);
    }
    made?;
    Ok(tools)
}

fn is_current(folder: &Path, stamp: &str) -> bool {
    let programs = folder.join(PROGRAMS_IN_FOLDER);
    fs::read_to_string(folder.join(STAMP)).is_ok_and(|made_from| made_from == stamp)
        && PROGRAMS.iter().all(|(name, _)| programs.join(name).is_file())
}

fn fill(fresh: &Path, root: &Path, stamp: &str) -> Result<()> {
    if fresh.exists() {
        fs::remove_dir_all(fresh)?;
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--target"]).arg(fresh);
    pip.arg("--requirement").arg(root.join(LOCK));
    // As variables, since a pip that does not know one of them ignores it. The wheels go into a
    // folder of ours, so neither the distribution's Python nor root's is changed.
    pip.env("PIP_BREAK_SYSTEM_PACKAGES", "1");
    pip.env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
    pip.env("PIP_NO_INPUT", "1");
    pip.env("PIP_ROOT_USER_ACTION", "ignore");
    pip.env_remove("PIP_USER");
    run(&mut pip).context("the vendor tools could not be installed")?;
    for (name, _) in PROGRAMS {
        let program = fresh.join(PROGRAMS_IN_FOLDER).join(name);
        stdout(Command::new(&program).arg("--version"))
            .with_context(|| format!("the installed {name} does not run"))?;
    }
    fs::write(fresh.join(STAMP), stamp)?;
    Ok(())
}

fn put_in_place(fresh: &Path, folder: &Path, stamp: &str) -> Result<()> {
    let old = fresh.with_extension(format!("old-{}", std::process::id()));
    match fs::rename(folder, &old) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        moved => moved.with_context(|| format!("moving the old {FOLDER} away"))?,
    }
    let moved = fs::rename(fresh, folder);
    if old.exists() {
        fs::remove_dir_all(&old)?;
    }
    match moved {
        Ok(()) => Ok(()),
        // Another run was faster; what it installed is the same.
        Err(_) if is_current(folder, stamp) => Ok(fs::remove_dir_all(fresh)?),
        Err(error) => Err(error).with_context(|| format!("moving the new {FOLDER} into place")),
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that ends with the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn with_tools(&self, name: &str, stamp: &str) -> PathBuf {
            let folder = self.0.join(name);
            let programs = folder.join(PROGRAMS_IN_FOLDER);
            fs::create_dir_all(&programs).unwrap();
            for (name, _) in PROGRAMS {
                fs::write(programs.join(name), "").unwrap();
            }
            fs::write(folder.join(STAMP), stamp).unwrap();
            folder
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_is_current_when_stamp_and_programs_are_there() {
        let scratch = Scratch::new("current");
        let folder = scratch.with_tools(".tools", "one");
        assert!(is_current(&folder, "one"));
        assert!(!is_current(&folder, "two"));
        fs::remove_file(folder.join(PROGRAMS_IN_FOLDER).join("ptxas")).unwrap();
        assert!(!is_current(&folder, "one"));
        assert!(!is_current(&scratch.0.join("absent"), "one"));
    }

    #[test]
    fn a_stale_folder_is_replaced_as_a_whole() {
        let scratch = Scratch::new("stale");
        let folder = scratch.with_tools(".tools", "old");
        fs::write(folder.join("left-over"), "").unwrap();
        let fresh = scratch.with_tools(".tools.new-1", "new");
        put_in_place(&fresh, &folder, "new").unwrap();
        assert!(is_current(&folder, "new"));
        assert!(!folder.join("left-over").exists());
        assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1);
    }

    #[test]
    fn the_lock_pins_every_package_by_hash() {
        let lock = include_str!("../tools.lock");
        for package in ["nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm", "nvidia-cuda-cuobjdump"] {
            assert!(lock.contains(&format!("{package}==13.5.37 \\\n    --hash=sha256:")));
        }
    }
}
