//! The file tests, named by their paths below `tests/suite`, and the examples of docs/*.md.

use std::process::ExitCode;
use std::sync::Arc;

use kernel_tests::{examples, program, suite};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Arc::new(program::package_folder().join("suite"));
    let mut trials = Vec::new();
    for test in suite::file_tests(&folder).expect("the test files can be read") {
        let folder = Arc::clone(&folder);
        trials.push(Trial::test(test.name.clone(), move || {
            suite::run(&folder, &test).map_err(Failed::from)
        }));
    }
    for example in examples::all().expect("the documents can be read") {
        trials.push(Trial::test(example.name.clone(), move || example.run().map_err(Failed::from)));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
