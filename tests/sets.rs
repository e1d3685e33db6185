//! `build.toml` names every kernel of every decode plan that is compiled ahead.

use kernel_tests::sets::{MARK, text};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/kimi_k3/kernels/build.toml");

#[test]
fn the_sets_are_those_of_the_plans() {
    let file = std::fs::read_to_string(PATH).unwrap();
    let by_hand = &file[..file.find(MARK).unwrap()];
    let wanted = format!("{by_hand}{}", text().unwrap());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, &wanted).unwrap();
    }
    let file = std::fs::read_to_string(PATH).unwrap();
    let differs = file.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(file == wanted, "run it with BLESS=1; the first line that differs: {differs:?}");
}
