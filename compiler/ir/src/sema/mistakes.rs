//! Findings that both the check and the instantiation report.

use kernel_dsl::ast::Text;
use kernel_dsl::diag::{Code, Diagnostic};
use kernel_dsl::source::Span;

use super::limits::MAX_DEPTH;

/// The finding for a buffer in the place of a value.
pub(super) fn buffer_as_value(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, format!("`{name}` is a buffer, not a value"))
        .label(at, "a value is needed here")
        .secondary(defined, "declared here")
        .help(format!("write `load {name}`"))
}

/// The finding for an atom in the place of a value.
pub(super) fn atom_as_value(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0206, format!("`{name}` is an atom, not a value"))
        .label(at, "an atom stands after `via` in `mma`")
        .secondary(defined, "defined here")
}

/// The finding for a slice of a buffer in the place of a value.
pub(super) fn buffer_slice_as_value(at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, "a slice of a buffer is no value")
        .label(at, "a value is needed here")
        .help("write `load` before it")
}

/// The finding for a value in the place of a buffer.
pub(super) fn value_as_buffer(name: &str, at: Span, defined: Span) -> Diagnostic {
    let what = if name == "this" { "this".to_owned() } else { format!("`{name}`") };
    let diagnostic = Diagnostic::error(Code::E0221, format!("{what} is no buffer"))
        .label(at, "a buffer is needed here");
    if at == defined { diagnostic } else { diagnostic.secondary(defined, "defined here") }
}

/// The finding for a ring whose slot is not said.
pub(super) fn ring_without_slot(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0217, format!("`{name}` is a ring: which slot is meant?"))
        .label(at, "no slot")
        .secondary(defined, "declared as a ring")
        .help(format!("write `{name}@t` for slot `t`, counted modulo the ring"))
}

/// The finding for a slot of what is no ring.
pub(super) fn slot_without_ring(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0217, format!("`{name}` is no ring"))
        .label(at, "a slot")
        .secondary(defined, "defined here")
        .help("declare it with `ring n`, or remove the slot")
}

/// The finding for a CTA of what is not shared memory.
pub(super) fn no_shared_memory(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, format!("`{name}` is no shared memory"))
        .label(at, "a CTA of the cluster")
        .secondary(defined, "defined here")
        .help("only tiles that `smem` declares lie in a CTA")
}

/// The finding for a rank of what is not memory of ranks.
pub(super) fn no_rank(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0131, format!("`{name}` is no memory of other ranks"))
        .label(at, "a rank")
        .secondary(defined, "defined here")
        .help("declare it `peer x : sym f32[…]`")
}

/// The finding for a second CTA of one access.
pub(super) fn two_ctas(name: &str, at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, format!("`{name}` of two CTAs"))
        .label(at, "a second CTA")
        .help("write one `@cta(…)`")
}

/// The finding for a change of what is defined once.
pub(super) fn not_assignable(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0210, format!("`{name}` is defined once and cannot be changed"))
        .label(at, "assigned here")
        .secondary(defined, "defined here")
        .help(format!("declare it as a tile: `frag {name} : f32[…] = …;`"))
}

/// The finding for a copy to what is not shared memory.
pub(super) fn copy_dest(at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, "a copy to what is not shared memory of the own CTA")
        .label(at, "`copy.async` goes from a buffer to a tile in shared memory")
        .help("write `store load x -> y;`")
}

/// The finding for `settle` of what no copy fills.
pub(super) fn settle_of(at: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, "`settle` of memory of others")
        .label(at, "`settle` waits for copies to or out of a tile in shared memory, or to a buffer")
}

/// The finding for an assignment to shared memory.
pub(super) fn smem_assigned(name: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0221, format!("`{name}` is a tile in shared memory"))
        .label(at, "shared memory is written by `store`")
        .secondary(defined, "declared here")
        .help(format!("write `store value -> {name};`"))
}

/// The finding for a store to what nobody may write.
pub(super) fn read_only(qualifier: &str, at: Span, defined: Span) -> Diagnostic {
    Diagnostic::error(Code::E0210, format!("`{qualifier}` buffers are read-only"))
        .label(at, "written here")
        .secondary(defined, "declared here")
        .help("declare it `output`, `inout` or `scratch`")
}

/// The finding for a tree that nests beyond [`MAX_DEPTH`].
pub(super) fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(Code::E0005, "nested too deeply")
        .label(span, format!("this is more than {MAX_DEPTH} levels deep"))
        .help("bind parts of it with `let` or `const`, or move inner blocks into a `fn`")
}

/// The text of an event is one line that shows something.
pub(super) fn trace_mistake(event: &Text) -> Option<Diagnostic> {
    let shows = !event.value.trim().is_empty() && !event.value.chars().any(char::is_control);
    (!shows).then(|| {
        Diagnostic::error(Code::E0206, "an event without a name")
            .label(event.span, "one line of text says what happens here")
            .help("write `trace \"weights are there\";`")
    })
}

/// Placeholders and arguments of `printf` are equally many.
pub(super) fn printf_mistake(text: &Text, args: usize) -> Option<Diagnostic> {
    let places = text.value.matches("{}").count();
    (places != args).then(|| {
        Diagnostic::error(Code::E0206, format!("{places} places `{{}}` for {args} arguments"))
            .label(text.span, format!("{places} places"))
    })
}

/// A counter or an epoch that is used in another way than by its own forms, or something else that is used so.
pub(super) fn word_mistake(word: &str, name: &str, at: Span, declared: Span) -> Diagnostic {
    let a = if word == "epoch" { "an" } else { "a" };
    Diagnostic::error(
        Code::E0114,
        format!("`{name}` and the forms of {a} {word} do not go together"),
    )
    .label(at, format!("{a} {word} is touched by its own forms only, and nothing else by them"))
    .secondary(declared, "declared here")
    .help(super::words::form(word))
}
