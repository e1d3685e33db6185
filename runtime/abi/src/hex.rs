//! Bytes as text, two lower-case digits each: how hashes are written.

use std::fmt::Write;

/// The digits of bytes.
pub fn text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A text takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text of just as many digits.
pub fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |code: u8| char::from(code).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_digits_and_bytes_again() {
        assert_eq!(text(&[0x00, 0x7f, 0xff, 0x10]), "007fff10");
        assert_eq!(text(&[]), "");
        assert_eq!(bytes("007fff10"), Some([0x00, 0x7f, 0xff, 0x10]));
        for wrong in
            ["007fff1", "007fff1000", "+07fff10", "007fffg0", "\u{e9}\u{e9}\u{e9}\u{e9}", ""]
        {
            assert_eq!(bytes::<4>(wrong), None, "{wrong}");
        }
    }
}
