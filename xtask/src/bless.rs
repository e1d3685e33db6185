//! `cargo xtask bless`: rewrites full-output expectations, never the `//~` lines of a file test.

use crate::filetest::run_file_tests;
use anyhow::Result;
use std::process::ExitCode;

pub(crate) fn main(args: &[String]) -> Result<ExitCode> {
    run_file_tests(args, &[("BLESS", "1"), ("INSTA_UPDATE", "always")])
}
