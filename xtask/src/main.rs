//! The commands of the project, run as `cargo xtask NAME`.
//!
//! They set a fresh machine up, build, test, show and time. Nothing here links LLVM or CUDA: this
//! program must build on a machine that has neither, because it is what installs them.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this program talks to a person: its lines are its result"
)]

mod apt;
mod bench;
mod bless;
mod counts;
mod decode;
mod demo;
mod filetest;
mod fuzz;
mod manifest;
mod mutate;
mod process;
mod schedules;
mod setup;
mod table;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  demo                  set the machine up, compile and audit every kernel for every target,
                        run them on real input, show the load that ptxas moves, write a text
  test [OPTIONS]        set the machine up, run every check and test that needs no GPU
                        -p, --package NAME     only this package (may be repeated)
                        --tests-only           no formatter, lints and documentation
                        --runner nextest|cargo (default: cargo-nextest where it is installed)
                        -- ARGS                filters and arguments for the test programs
  bench [OPTIONS]       time the release build of kernelc against its targets
                        --out FILE             write the numbers as JSON
                        --runs N               runs of each measurement (default 11)
  decode [OPTIONS]      measure the release build of kimi-k3 on kimi-k3-mini: speed, memory, evaluation sets
                        --out FILE             write the numbers as JSON
                        --runs N               runs of the speed (default 5)
                        --limit N              tasks of each set (default all)
                        --sets A,B             of recall, ith, arith (default all three)
                        --jobs N               tasks at a time (default 2)
  filetest [PATH|NAME]  run the file tests whose name holds one of the words or paths
  fuzz [WHAT...]        change kernels at random: nothing panics, and what is accepted runs as promised; then random
                        input for every reader. WHAT is kernels, source, ptx, sass, litmus or bundles (default all)
                        --minutes N            how long, each (default 10)
                        --seed S               of the changes of kernels (default 1)
  mutate                take one synchronisation of every kernel away at a time and say what sees it
  schedules [WORD]      run every operation file and every kernel of kimi-k3-mini on the emulator in many schedules
                        --count N              schedules of each (default 1000)
                        --seed S               of the choices (default 1)
  bless [PATH|NAME]     rewrite the full-output expectations of those file tests
  setup                 install what is missing and stop

`cargo xtask setup` comes first in demo, test and bench: it looks for the Debian packages and the
pinned ptxas, nvdisasm and cuobjdump, and installs what is missing.
The last line of `test` is `N passed, N failed`; the exit code is 1 when anything failed.
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    if rest.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let result = match command.as_deref() {
        Some("bench") => bench::main(&rest),
        Some("bless") => bless::main(&rest),
        Some("decode") => decode::main(&rest),
        Some("demo") => demo::main(&rest),
        Some("filetest") => filetest::main(&rest),
        Some("fuzz") => fuzz::main(&rest),
        Some("mutate") => mutate::main(&rest),
        Some("schedules") => schedules::main(&rest),
        Some("setup") => setup::main(&rest),
        Some("test") => test::main(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprint!("error: there is no command `{other}`\n\n{HELP}");
            return ExitCode::from(2);
        }
        None => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
