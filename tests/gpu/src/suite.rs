//! The file tests that a GPU runs, as the program was built with them: a machine that runs it needs no repository.

use std::collections::BTreeMap;

/// Paths below `tests/suite` and texts; `build.rs` writes the list.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/suite.rs"));

/// The texts by their paths.
pub(crate) fn texts() -> BTreeMap<String, String> {
    TEXTS.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_file_tests_of_the_repository() {
        let folder = kernel_tests::program::package_folder().join("suite");
        let show = |sources: Vec<kernel_tests::gpu::Source>| format!("{sources:?}");
        let own = kernel_tests::gpu::sources_of(&texts()).expect("they can be read");
        let there = kernel_tests::gpu::sources(&folder).expect("they can be read");
        assert!(own.len() > 100);
        assert_eq!(show(own), show(there));
    }
}
