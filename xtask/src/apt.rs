//! Debian packages: finds what is missing, installs it through apt, or says what to install.

use crate::process::{capture, run, stdout, succeeds};
use anyhow::{Result, bail};
use std::io::IsTerminal;
use std::path::Path;
use std::process::Command;

/// Something the build needs, and the Debian package that brings it.
struct Need {
    package: &'static str,
    found: Found,
}

/// How to see that a need is met.
enum Found {
    /// The package itself is installed.
    Package,
    /// The command ends with exit code 0, whoever installed the program.
    Runs(&'static [&'static str]),
}

/// LLVM 22 with MLIR links statically; zlib and zstd are what LLVM's own libraries ask for.
/// C++ compiles the bindings of MLIR's table reader; pip brings ptxas and its companions.
const NEEDS: [Need; 11] = [
    Need { package: "llvm-22-dev", found: Found::Package },
    Need { package: "libmlir-22-dev", found: Found::Package },
    Need { package: "mlir-22-tools", found: Found::Package },
    Need { package: "libclang-22-dev", found: Found::Package },
    Need { package: "libpolly-22-dev", found: Found::Package },
    Need { package: "zlib1g-dev", found: Found::Package },
    Need { package: "libzstd-dev", found: Found::Package },
    Need { package: "g++", found: Found::Runs(&["c++", "--version"]) },
    Need { package: "git", found: Found::Runs(&["git", "--version"]) },
    Need { package: "python3", found: Found::Runs(&["python3", "--version"]) },
    Need { package: "python3-pip", found: Found::Runs(&["python3", "-c", "import pip"]) },
];

/// `.cargo/config.toml` gives this variable the folder of Debian's packages unless it is set.
const PREFIX_VARIABLE: &str = "MLIR_SYS_220_PREFIX";

/// How commands that change the system are run.
#[derive(Debug, PartialEq, Eq)]
enum Privilege {
    Root,
    Sudo,
    None,
}

/// Installs the missing packages, or fails with the line to type.
pub(crate) fn install_missing() -> Result<()> {
    let os_release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !is_debian_like(&os_release) || !succeeds(Command::new("dpkg-query").arg("--version")) {
        return check_foreign();
    }
    let missing = missing(&NEEDS, &installed_packages()?, runs);
    if missing.is_empty() {
        println!("setup: the {} things the build needs are there", NEEDS.len());
        return Ok(());
    }
    println!("setup: missing Debian packages: {}", missing.join(" "));
    let privilege = privilege();
    if privilege == Privilege::None {
        bail!(
            "this user may not install packages; run this, then call again:\n  {}\n  {}",
            line(&as_root(&Privilege::Sudo, &["apt-get", "update"])),
            line(&install(&Privilege::Sudo, &missing)),
        );
    }
    run(&mut command(&as_root(&privilege, &["apt-get", "update", "-qq"])))?;
    refuse_unknown(&missing)?;
    run(&mut command(&install(&privilege, &missing)))?;
    let still = self::missing(&NEEDS, &installed_packages()?, runs);
    if !still.is_empty() {
        bail!("apt-get reported success, yet these are missing: {}", still.join(" "));
    }
    Ok(())
}

/// On other systems LLVM comes from elsewhere: it is looked for, never installed.
fn check_foreign() -> Result<()> {
    let prefix = std::env::var(PREFIX_VARIABLE).unwrap_or_default();
    let llvm = Path::new(&prefix).join("bin/llvm-config").exists()
        && Path::new(&prefix).join("include/mlir-c").exists();
    let absent: Vec<&str> = NEEDS
        .iter()
        .filter_map(|need| match need.found {
            Found::Package => None,
            Found::Runs(words) => (!runs(words)).then_some(need.package),
        })
        .collect();
    if llvm && absent.is_empty() {
        println!("setup: not a Debian system; LLVM and MLIR found in {prefix}");
        return Ok(());
    }
    bail!(
        "this is not a Debian system, so nothing is installed here; please install\n  \
         LLVM 22 and MLIR 22 with static libraries and headers, libclang 22, zlib, zstd, \
         a C++ compiler, git, Python 3 with pip\n\
         and set MLIR_SYS_220_PREFIX, TABLEGEN_220_PREFIX and LLVM_SYS_221_PREFIX to the folder of LLVM \
         (now `{prefix}`, which {})",
        if llvm { "holds it" } else { "does not hold it" }
    )
}

fn is_debian_like(os_release: &str) -> bool {
    os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|ids| ids.trim_matches('"').split_whitespace())
        .any(|id| id == "debian")
}

/// dpkg's lines `name status`, for the packages of [`NEEDS`] that it knows.
fn installed_packages() -> Result<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${Package} ${db:Status-Status}\\n"]);
    query.args(NEEDS.iter().map(|need| need.package));
    // The exit code is 1 when one of the names is unknown, which is an answer.
    Ok(String::from_utf8_lossy(&capture(&mut query)?.stdout).into_owned())
}

fn missing(needs: &[Need], dpkg: &str, runs: impl Fn(&[&str]) -> bool) -> Vec<&'static str> {
    let is_installed = |package: &str| {
        dpkg.lines().any(|line| line.split_once(' ') == Some((package, "installed")))
    };
    let is_met = |need: &&Need| match need.found {
        Found::Package => is_installed(need.package),
        Found::Runs(words) => runs(words),
    };
    needs.iter().filter(|need| !is_met(need)).map(|need| need.package).collect()
}

fn runs(words: &[&str]) -> bool {
    words.split_first().is_some_and(|(program, args)| succeeds(Command::new(program).args(args)))
}

/// Fails when the package lists of this machine do not have one of `packages`.
fn refuse_unknown(packages: &[&str]) -> Result<()> {
    let policy = stdout(Command::new("apt-cache").env("LC_ALL", "C").arg("policy").args(packages))?;
    let unknown = without_candidate(packages, &policy);
    if unknown.is_empty() {
        return Ok(());
    }
    bail!(
        "the package sources of this machine offer no {}; Debian 12 has LLVM 22 in its security \
         archive (suite bookworm-security, component main): add it to the apt sources and call \
         again, or install LLVM 22 with MLIR yourself",
        unknown.join(" ")
    )
}

/// The packages for which `apt-cache policy` names no version that could be installed.
fn without_candidate<'a>(packages: &[&'a str], policy: &str) -> Vec<&'a str> {
    let has_candidate = |package: &str| {
        let head = format!("{package}:");
        policy
            .lines()
            .skip_while(|line| *line != head)
            .skip(1)
            .take_while(|line| line.starts_with(' '))
            .filter_map(|line| line.trim().strip_prefix("Candidate: "))
            .any(|version| version != "(none)")
    };
    packages.iter().copied().filter(|package| !has_candidate(package)).collect()
}

fn privilege() -> Privilege {
    if stdout(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0") {
        return Privilege::Root;
    }
    // Without a terminal sudo cannot ask for a password, so it must not need one.
    let may_ask = std::io::stdin().is_terminal() && succeeds(Command::new("sudo").arg("--version"));
    if may_ask || succeeds(Command::new("sudo").args(["-n", "true"])) {
        return Privilege::Sudo;
    }
    Privilege::None
}

fn install(privilege: &Privilege, packages: &[&str]) -> Vec<String> {
    let mut words = vec![
        "env",
        "DEBIAN_FRONTEND=noninteractive",
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=300",
    ];
    words.extend(packages);
    as_root(privilege, &words)
}

fn as_root(privilege: &Privilege, words: &[&str]) -> Vec<String> {
    let sudo = match privilege {
        Privilege::Sudo => Some("sudo"),
        Privilege::Root | Privilege::None => None,
    };
    sudo.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn line(words: &[String]) -> String {
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIPLE: [Need; 3] = [
        Need { package: "llvm-22-dev", found: Found::Package },
        Need { package: "zlib1g-dev", found: Found::Package },
        Need { package: "g++", found: Found::Runs(&["c++", "--version"]) },
    ];

    #[test]
    fn debian_and_its_children_are_recognised() {
        assert!(is_debian_like("NAME=x\nID=debian\n"));
        assert!(is_debian_like("ID=pop\nID_LIKE=\"ubuntu debian\"\n"));
        assert!(!is_debian_like("ID=fedora\nID_LIKE=rhel\n"));
        assert!(!is_debian_like(""));
    }

    #[test]
    fn a_removed_or_unknown_package_is_missing() {
        let dpkg = "llvm-22-dev installed\nzlib1g-dev config-files\n";
        assert_eq!(missing(&TRIPLE, dpkg, |_| true), ["zlib1g-dev"]);
        assert_eq!(missing(&TRIPLE, "", |_| true), ["llvm-22-dev", "zlib1g-dev"]);
    }

    #[test]
    fn a_program_counts_whoever_installed_it() {
        let dpkg = "llvm-22-dev installed\nzlib1g-dev installed\n";
        assert_eq!(missing(&TRIPLE, dpkg, |_| false), ["g++"]);
        assert!(missing(&TRIPLE, dpkg, |words| words[0] == "c++").is_empty());
    }

    #[test]
    fn packages_without_a_candidate_are_named() {
        let policy = "llvm-22-dev:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\nzlib1g-dev:\n  Installed: (none)\n  Candidate: 1:1.2.13\n  Version table:\n     1:1.2.13 500\n";
        let asked = ["llvm-22-dev", "zlib1g-dev", "libzstd-dev"];
        assert_eq!(without_candidate(&asked, policy), ["llvm-22-dev", "libzstd-dev"]);
    }

    #[test]
    fn the_line_to_type_goes_through_sudo() {
        let words = install(&Privilege::Sudo, &["g++"]);
        assert_eq!(
            line(&words),
            "sudo env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=300 g++"
        );
        assert_eq!(line(&as_root(&Privilege::Root, &["apt-get", "update"])), "apt-get update");
    }
}
