//! The table of diagnostic codes: one row a code, sorted. Each has a page, `docs/codes/CODE.md`, with the rule, a file that
//! fails and the same one put right, which `kernelc explain CODE` prints.
//!
//! Ranges: `E00xx` files and parsing, `E01xx` memory order and the verifier, `E02xx` names, types,
//! shapes and constants, `E03xx` layouts, `E04xx` bounds and contracts, `E05xx` targets and
//! resources, `E06xx` what this version lacks, `E07xx` errors of a run on the emulator, `E08xx` the
//! back end and its tools, `E09xx` findings of the audit.

use std::fmt;
use std::str::FromStr;

/// Builds [`Code`] from rows `CODE "title";`. The title is that of the page, which must be there.
macro_rules! codes {
    ($($code:ident $title:literal;)*) => {
        /// Names the rule that a diagnostic speaks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $title] $code,)*
        }

        impl Code {
            /// Every code in ascending order.
            pub const ALL: &'static [Code] = &[$(Code::$code,)*];

            /// The code as people write it: `E0107`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$code => stringify!($code),)* }
            }

            /// What the rule is about, in one line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$code => $title,)* }
            }

            /// Its page, in Markdown.
            pub fn page(self) -> &'static str {
                match self {
                    $(Code::$code => include_str!(concat!(
                        "../../../docs/codes/", stringify!($code), ".md"
                    )),)*
                }
            }
        }
    };
}

codes! {
    // Files, words and grammar.
    E0001 "file is not UTF-8";
    E0002 "character that the language does not know";
    E0003 "comment or string without an end";
    E0004 "brackets that do not match";
    E0005 "nested too deeply";
    E0006 "number that does not fit";
    E0007 "string with an unknown escape";
    E0010 "statement or item that does not fit the grammar";
    E0011 "missing end of a statement";
    E0012 "unknown or repeated entry";
    E0013 "word of the language used as a name";
    E0014 "comparison of a comparison";
    E0015 "waiver that cannot be used";
    E0016 "header that lacks a part";

    // Memory order and the other rules of the verifier.
    E0107 "activation read that is not ordered after `grid_wait`";
    E0108 "write before `grid_wait`";
    E0109 "path without `grid_wait`";
    E0110 "`grid_launch` before `grid_wait`";
    E0111 "launch attribute that the body contradicts";
    E0112 "waiver that silences nothing";
    E0113 "shared memory touched without `sync`";
    E0114 "counter or epoch used in another way";
    E0115 "arrivals that do not add up";
    E0116 "read of what other CTAs of the launch write";
    E0117 "epoch that is not advanced once";
    E0118 "shared memory touched while a copy fills it";
    E0119 "`settle` of what no copy fills";
    E0120 "buffer touched without `sync`";
    E0121 "`sync cluster` that not all CTAs reach";
    E0122 "shared memory of a cluster touched without `sync cluster`";
    E0131 "memory or words of ranks used in another way";
    E0132 "store to another rank that no signal publishes";
    E0133 "read of what other ranks write";
    E0134 "words of ranks that do not follow the epochs";
    E0135 "kernel that waits for others and may not be there whole";
    E0136 "multicast address that is touched otherwise";
    E0137 "memory of ranks that is stored to by two ways";
    E0140 "sums used while a product may add to them";
    E0141 "operand written while a product may read it";
    E0142 "product that nothing settles";
    E0143 "slot released while a product may read it";
    E0145 "tensor memory used in another way";
    E0146 "product in tensor memory that is not waited for";
    E0147 "load from tensor memory that has not settled";
    E0148 "products of a pair of CTAs";
    E0150 "warps of a role";
    E0151 "meeting that not all threads reach";
    E0152 "tile of other threads";
    E0153 "roles that touch memory without order";
    E0154 "slot that does not go round between roles";
    E0155 "registers of a role";
    E0156 "bytes of other CTAs that do not add up";
    E0157 "slots that all CTAs of a cluster fill";
    E0160 "shared memory written while a copy reads it";
    E0161 "copy out of shared memory that nothing waits for";
    E0162 "copy of what is not published";
    E0163 "buffer that copies write, touched in another way";
    E0170 "atomic operation that is none";
    E0171 "result that depends on the order of CTAs";
    E0172 "rounds of a work list that store to one element";
    E0173 "round of a work list that depends on its CTA";
    E0174 "signals of a counter that do not add up";
    E0175 "element that several CTAs store to";

    // Names, types, shapes, constants.
    E0201 "unknown name";
    E0202 "name defined twice";
    E0203 "types that do not agree";
    E0204 "shapes that do not agree";
    E0205 "value that is not constant";
    E0206 "wrong number or kind of arguments";
    E0207 "tile where a scalar is needed";
    E0208 "binding that does not fit its parameter";
    E0209 "`where` clause that does not hold";
    E0210 "write to what is read-only";
    E0211 "file that cannot be imported";
    E0212 "files that import each other";
    E0213 "function that calls itself";
    E0214 "constant without a value";
    E0215 "header entry that makes no sense";
    E0216 "letters that do not fit";
    E0217 "ring slot that is missing or not constant";
    E0218 "kernel that is not written for the target";
    E0219 "kernel that grows too large";
    E0220 "buffer argument with another qualifier";
    E0221 "buffer where a value is needed, or the reverse";
    E0222 "indices that do not fit";
    E0223 "PTX that is not taken";

    // Layouts.
    E0301 "undefined layout operation";
    E0302 "layout notation";
    E0303 "layout too large";
    E0310 "two layouts for one tile";
    E0311 "box that no tensor copy moves";

    // Bounds and contracts.
    E0401 "access that cannot be proved in bounds";
    E0402 "absent elements without a value";
    E0403 "contract that cannot hold";
    E0404 "store that may write an element twice";
    E0405 "slice of a packed buffer that parts a group";

    // Targets and resources.
    E0501 "unknown target";
    E0502 "target that lacks a feature";
    E0503 "resources of a target exceeded";

    // What this version lacks.
    E0600 "not supported in this version";

    // Errors of a run on the emulator.
    E0701 "read of memory that nothing wrote";
    E0702 "access out of bounds";
    E0703 "contract violated";
    E0704 "assertion failed";
    E0705 "integer division by zero";
    E0706 "argument that does not fit its parameter";
    E0707 "two stores to one address";
    E0708 "store to a buffer that may not be written";
    E0709 "too many steps";
    E0710 "race in shared memory";
    E0711 "misaligned vector access";
    E0712 "threads that part ways";
    E0713 "race between CTAs";
    E0714 "all that run wait for each other";
    E0715 "race between CTAs of a cluster";
    E0716 "shared memory of a CTA that is not there";
    E0717 "race between ranks";
    E0718 "race between roles";
    E0719 "barrier out of turn";
    E0720 "race between launches";
    E0721 "race by the axioms of the memory model";

    // The back end and its tools.
    E0801 "ptxas is missing";
    E0802 "ptxas refused the code";
    E0803 "ptxas crashed";
    E0804 "the back end ended abnormally";
    E0805 "output cannot be written";
    E0806 "input cannot be read";
    E0807 "the disassembler failed";
    E0808 "the back end refused the code";
    E0810 "the compiler contradicts itself";
    E0811 "products that wait for each other";
    E0812 "PTX of an author that the assembler refuses";

    // Findings of the audit.
    E0901 "non-coherent load of data that may change";
    E0902 "load moved ahead of its wait";
    E0903 "weight load that sank below the wait";
    E0904 "instruction that the audit does not understand";
    E0905 "load ahead of the wait";
    E0906 "wait or launch signal that is missing";
    E0907 "atomic without order and scope";
    E0908 "tool of the machine code that failed";
    E0909 "ordinary access at a multicast address";
    E0910 "asynchronous read of what was stored without a proxy fence";
    E0911 "signal ahead of the end of an asynchronous store";
}

impl Code {
    /// The four digits.
    pub fn number(self) -> u32 {
        self.name()[1..].parse().expect("a code is `E` and four digits")
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no code of the table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no diagnostic code")]
pub struct UnknownCode(pub String);

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        let wanted = text.trim().to_ascii_uppercase();
        let found = Code::ALL.iter().copied().find(|code| code.name() == wanted);
        found.ok_or_else(|| UnknownCode(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_complete() {
        assert!(Code::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for &code in Code::ALL {
            assert_eq!(code.name().len(), 5, "{code}");
            assert_eq!(code.name().parse(), Ok(code));
            let head = format!("# {code}: {}\n", code.title());
            assert!(!code.title().is_empty() && code.page().starts_with(&head), "{code}");
        }
        assert_eq!("e0107".parse(), Ok(Code::E0107));
        assert!("E9999".parse::<Code>().is_err());
    }
}
