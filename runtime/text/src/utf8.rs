//! Bytes in, whole characters out.

/// Text of which bytes arrive in pieces: an unfinished character waits for its rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Utf8Stream {
    /// The beginning of one character: at most three bytes between calls.
    held: Vec<u8>,
}

impl Utf8Stream {
    /// A stream without bytes.
    pub fn new() -> Utf8Stream {
        Utf8Stream::default()
    }

    /// Adds bytes and returns the characters that are whole now. Bytes that can become none are U+FFFD, one for each
    /// longest beginning of a character, as [`String::from_utf8_lossy`] does.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::new();
        let mut whole = 0;
        let mut unfinished = 0;
        for chunk in self.held.utf8_chunks() {
            text.push_str(chunk.valid());
            whole += chunk.valid().len() + chunk.invalid().len();
            let is_last = whole == self.held.len();
            if is_last && may_continue(chunk.invalid()) {
                unfinished = chunk.invalid().len();
            } else if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held.drain(..self.held.len() - unfinished);
        text
    }

    /// What is left when nothing follows: nothing, or U+FFFD for an unfinished character.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}

/// True for a beginning of a character that more bytes can complete.
fn may_continue(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(_) => false,
        Err(error) => error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the pieces: together they give what the bytes give at once.
    fn in_pieces(bytes: &[u8], size: usize) -> (String, Vec<String>) {
        let mut stream = Utf8Stream::new();
        let mut parts: Vec<String> = bytes.chunks(size).map(|piece| stream.push(piece)).collect();
        parts.push(stream.finish());
        (parts.concat(), parts)
    }

    #[test]
    fn a_character_waits_for_its_rest() {
        let (text, parts) = in_pieces("aé中🦀b".as_bytes(), 1);
        assert_eq!(text, "aé中🦀b");
        assert_eq!(parts, ["a", "", "é", "", "", "中", "", "", "", "🦀", "b", ""]);
    }

    #[test]
    fn pieces_of_any_size_give_the_whole() {
        let samples: [&[u8]; 6] = [
            b"plain",
            "größe — 中文 🦀🦀".as_bytes(),
            b"\xff\xfea\x80\x80b\xe4\xb8",
            b"\xf0\x9f\xa6",
            b"\xe4\xb8a\xf0\x9f\xa6\xf0\x9f\xa6\x80",
            b"\xed\xa0\x80\xc0\xaf\xf8\x88",
        ];
        for bytes in samples {
            for size in 1..=bytes.len() {
                assert_eq!(in_pieces(bytes, size).0, String::from_utf8_lossy(bytes), "{size}");
            }
        }
    }

    #[test]
    fn what_no_byte_can_complete_does_not_wait() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"\x80"), "\u{fffd}");
        assert_eq!(stream.push(b"\xe4"), "");
        assert_eq!(stream.push(b"x"), "\u{fffd}x");
        assert_eq!(stream.push(b"\xc0"), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }
}
