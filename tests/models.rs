//! Every kernel of Kimi K3 on the emulator: kernel level and device level give the same bits, and both are
//! within tolerance of the reference in f64; and layer 1 of kimi-k3-mini on its real weights.

use std::process::ExitCode;

use kernel_tests::layer1;

mod models {
    pub(crate) mod attn_res;
    pub(crate) mod dense;
    pub(crate) mod kda;
    pub(crate) mod mla;
    pub(crate) mod moe;
    pub(crate) mod pointwise;
    pub(crate) mod select;
    pub(crate) mod specialized;
    mod support;

    pub(crate) use support::trial;
}

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    let mut trials = vec![models::trial("layer1".to_owned(), layer1_matches_its_goldens)];
    trials.extend(models::dense::trials());
    trials.extend(models::attn_res::trials());
    trials.extend(models::pointwise::trials());
    trials.extend(models::select::trials());
    trials.extend(models::kda::trials());
    trials.extend(models::mla::trials());
    trials.extend(models::moe::trials());
    trials.extend(models::specialized::trials());
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[expect(clippy::print_stdout, reason = "the measured numbers belong to the test")]
fn layer1_matches_its_goldens() -> Result<(), String> {
    let streams = layer1::streams()?;
    print!("{}", layer1::table(&streams));
    layer1::judge(&streams)
}
