//! kernelc as a process: what each command answers and leaves behind, and that every bad input gets a coded
//! error, the documented exit code, and writes nothing.

#![expect(clippy::unwrap_used, reason = "unwrap is how a test fails")]

mod cli {
    mod audited;
    mod bad_input;
    mod build;
    mod bundle;
    mod commands;
    mod litmus;
    mod mutate;
    mod reduce;
    mod run;
    mod trace;
}
