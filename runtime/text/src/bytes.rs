//! The alphabet of byte-level BPE: each byte is one printable character.
//!
//! Bytes that print as themselves in Latin-1 keep their code point; the others are numbered from U+0100 in order.

/// Where the code points of the other bytes begin.
const FIRST: u32 = 0x100;

/// True for bytes that keep their code point.
const fn prints(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The byte of a character of the alphabet.
fn byte_of(c: char) -> Option<u8> {
    if let Ok(byte) = u8::try_from(u32::from(c)) {
        return prints(byte).then_some(byte);
    }
    let place = usize::try_from(u32::from(c).checked_sub(FIRST)?).ok()?;
    (0..=u8::MAX).filter(|byte| !prints(*byte)).nth(place)
}

/// The bytes of a token's text, or `None` where a character is not of the alphabet.
pub(crate) fn bytes_of(token: &str) -> Option<Vec<u8>> {
    token.chars().map(byte_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character() {
        let mut bytes: Vec<u8> = ('\u{0}'..'\u{200}').filter_map(byte_of).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=u8::MAX).collect::<Vec<u8>>());
        // The space is the 33rd of the others, as in every vocabulary of this kind.
        assert_eq!(bytes_of("Ġa"), Some(b" a".to_vec()));
        assert_eq!(bytes_of("Ċ"), Some(b"\n".to_vec()));
        assert_eq!(bytes_of("Ã©"), Some("é".as_bytes().to_vec()));
        assert_eq!(bytes_of("a b"), None);
        assert_eq!(bytes_of("中"), None);
    }
}
