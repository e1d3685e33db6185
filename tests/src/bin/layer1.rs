//! Prints layer 1 of kimi-k3-mini on the emulator against its goldens; exit 1 when it is out of tolerance.

use std::io::Write;
use std::process::ExitCode;

use kernel_tests::layer1;

fn main() -> ExitCode {
    let (text, code) = match layer1::streams() {
        Ok(streams) => match layer1::judge(&streams) {
            Ok(()) => (layer1::table(&streams), ExitCode::SUCCESS),
            Err(faults) => (
                format!("{}out of tolerance:\n{faults}\n", layer1::table(&streams)),
                ExitCode::FAILURE,
            ),
        },
        Err(reason) => (format!("error: {reason}\n"), ExitCode::FAILURE),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
