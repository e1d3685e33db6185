//! The words of the language, and the form of each statement for messages.

/// Words that start an item and nothing else.
pub(super) const ITEM_WORDS: &[&str] = &["target", "import", "kernel", "fn"];

/// Words that start a statement and never stand inside one (`release` also follows `order`).
const STATEMENT_WORDS: &[&str] = &[
    "advance",
    "assert",
    "atom",
    "await",
    "barrier",
    "commit",
    "const",
    "copy",
    "for",
    "frag",
    "grid_launch",
    "grid_wait",
    "if",
    "let",
    "mma",
    "multimem",
    "open",
    "pipeline",
    "prefetch",
    "printf",
    "publish",
    "release",
    "role",
    "settle",
    "signal",
    "smem",
    "store",
    "sync",
    "tmem",
    "trace",
    "unsafe",
    "view",
    "wait",
];

/// Words that are no names besides those that start items and statements.
const OTHER_RESERVED: &[&str] = &[
    "arrive", "each", "else", "export", "false", "gmem", "in", "inf", "inout", "input", "launch",
    "layout", "load", "match", "output", "peer", "scalar", "scratch", "settled", "spread",
    "static", "sym", "sym_flag", "sym_mc", "true", "tune", "until", "via", "where", "writable",
];

/// Whether a word at the start of a line begins a new statement or item.
pub(super) fn starts_statement(word: &str) -> bool {
    STATEMENT_WORDS.contains(&word) || ITEM_WORDS.contains(&word)
}

/// Whether a word cannot be a name; the rule `reserved` of the grammar lists the same words.
pub(super) fn is_reserved(word: &str) -> bool {
    starts_statement(word) || OTHER_RESERVED.contains(&word)
}

/// How the thing that starts with `word` is written, for the help of a diagnostic.
pub(super) fn form_of(word: &str) -> Option<&'static str> {
    let form = match word {
        "target" => "target NAME, …;",
        "import" => "import \"FILE.tile\";",
        "kernel" => {
            "kernel NAME<const …>(BUFFERS) launch { … } where … tune … export \"SYMBOL\" { … }"
        }
        "fn" => "fn NAME<const …>(PARAMETERS) -> TYPE { … }",
        "advance" => "advance EPOCH;",
        "assert" => "assert CONDITION, \"MESSAGE\";",
        "atom" => "atom NAME = wgmma(m = …, n = …, k = …, a = …, b = …, d = …);",
        "await" => "await FLAG until VALUE order acquire scope cta|cluster|gpu|sys;",
        "barrier" => "barrier NAME : BYTES ring N scope SCOPE from ROLE to ROLE;",
        "commit" => "commit;` or `commit BARRIER;",
        "const" => "const NAME : TYPE = VALUE;",
        "copy" => "copy.async|bulk|tma|st_async SOURCE -> PLACE into BARRIER evict first|last;",
        "for" => {
            "for NAME in A..B step S unroll N { … }` or `for NAME in tickets(COUNTER, N) { … }"
        }
        "frag" => {
            "frag NAME : TYPE[SHAPE] ring N spread(warp: AXIS, lane: AXIS, vec: AXIS) = VALUE;"
        }
        "smem" => "smem NAME : TYPE[SHAPE] swizzle MODE align BYTES ring N;",
        "tmem" => "tmem NAME : TYPE[SHAPE];",
        "if" => "if CONDITION { … } else { … }",
        "let" => "let NAME = VALUE;` or `let (A, B) = VALUE;",
        "load" => "load SOURCE else VALUE -> PLACE evict first|last no_allocate;",
        "match" => "match arch { sm_90a => { … } _ => { … } }",
        "mma" => "mma A * B -> ACC via ATOM add CONDITION;",
        "multimem" => "multimem.store VALUE -> PLACE;",
        "open" => "open PIPELINE@SLOT;",
        "pipeline" => {
            "pipeline NAME { stages: N; full: BYTES from ROLE to ROLE; empty: from ROLE to ROLE; }"
        }
        "prefetch" => "prefetch.l2|tma SOURCE evict first|last;",
        "printf" => "printf \"TEXT {}\", VALUE;",
        "publish" => "publish BUFFER;",
        "release" => "release BARRIER@SLOT;",
        "role" => "role NAME: warps A..B elect one registers N { … }",
        "settle" => "settle VALUE but N;",
        "signal" => "signal FLAG add N order release scope cta|cluster|gpu|sys;",
        "store" => "store VALUE -> PLACE evict first|last;",
        "sync" => "sync;`, `sync ROLE;` or `sync cluster;",
        "trace" => "trace \"EVENT\";",
        "ptx" => "ptx \"TEXT\" out(NAME) in(VALUE, …) = VALUE;",
        "unsafe" => "unsafe { ptx \"TEXT\" out(NAME) in(VALUE, …) = VALUE; }",
        "view" => "view NAME = SOURCE by \"n (j k) -> n j k\" (k = 8);",
        "wait" => "wait BARRIER@SLOT;",
        "grid_wait" => "grid_wait;",
        "grid_launch" => "grid_launch;",
        _ => return None,
    };
    Some(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_reserves_the_same_words() {
        let grammar = include_str!("../grammar.pest");
        let start = grammar.find("reserved = @{").expect("the rule exists");
        let rule = &grammar[start..start + grammar[start..].find('}').expect("it ends")];
        let mut in_grammar: Vec<&str> = rule.split('"').skip(1).step_by(2).collect();
        let lists = [ITEM_WORDS, STATEMENT_WORDS, OTHER_RESERVED];
        let mut here: Vec<&str> = lists.iter().flat_map(|list| list.iter().copied()).collect();
        in_grammar.sort_unstable();
        here.sort_unstable();
        assert_eq!(here, in_grammar);
    }

    #[test]
    fn every_statement_word_has_a_form() {
        for word in STATEMENT_WORDS.iter().chain(ITEM_WORDS) {
            assert!(form_of(word).is_some(), "{word}");
        }
    }
}
