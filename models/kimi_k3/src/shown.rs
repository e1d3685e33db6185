//! Texts of files in messages: their start alone.

/// Characters of a name that a message shows.
pub(crate) const NAME: usize = 100;

/// Characters of a parser's message that a message shows.
pub(crate) const FAULT: usize = 200;

/// The first `most` characters of a text.
pub(crate) fn shown(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(shown("größe", 5), "größe");
        assert_eq!(shown("größe", 3), "grö…");
    }
}
