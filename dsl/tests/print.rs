//! Any tree survives printing: `parse(print(tree))` is the tree, and printing it again gives the same
//! text.

#[path = "print/generate.rs"]
mod generate;

use generate::Source;
use kernel_dsl::ast::{dump, print::print};
use kernel_dsl::{SourceMap, parse};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trees_survive_printing(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        let tree = generate::file(&mut Source::new(&bytes));
        let text = print(&tree);
        let mut sources = SourceMap::new();
        let file = sources.add("generated.tile", text.as_str());
        let parsed = parse(&sources, file);
        prop_assert_eq!(&parsed.diagnostics, &[], "{}", text);
        let (wanted, found) = (dump(&tree), dump(&parsed.file));
        let differs = wanted.lines().zip(found.lines()).find(|(a, b)| a != b);
        prop_assert!(wanted == found, "{:?}\n{}", differs, text);
        prop_assert_eq!(print(&parsed.file), text);
    }
}
