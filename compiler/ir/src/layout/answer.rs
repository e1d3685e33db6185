//! The line interface: one expression in, one line out.

use super::{AnyLayout, LayoutError, evaluate};

/// What an answer line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOptions {
    /// JSON instead of notation.
    pub json: bool,
    /// The index of every coordinate after the layout.
    pub map: bool,
}

/// The answer to one expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Exactly one line, without its end.
    pub text: String,
    /// Whether the expression was refused.
    pub is_error: bool,
}

/// Answers one line of text; whatever it holds, the answer is one line.
pub fn answer_line(text: &str, options: AnswerOptions) -> Answer {
    give(evaluate(text).and_then(|layout| show(&layout, options)), options)
}

/// Answers one line of bytes, which need not be UTF-8.
pub fn answer_bytes(bytes: &[u8], options: AnswerOptions) -> Answer {
    match std::str::from_utf8(bytes) {
        Ok(text) => answer_line(text, options),
        Err(error) => {
            let message =
                format!("the expression is not UTF-8 from byte {} on", error.valid_up_to());
            give(Err(LayoutError::notation(message)), options)
        }
    }
}

fn give(result: Result<String, LayoutError>, options: AnswerOptions) -> Answer {
    match result {
        Ok(text) => Answer { text, is_error: false },
        Err(error) => Answer { text: show_error(&error, options), is_error: true },
    }
}

fn show(layout: &AnyLayout, options: AnswerOptions) -> Result<String, LayoutError> {
    let map = if options.map { Some(list(&layout.map()?)) } else { None };
    if !options.json {
        return Ok(match map {
            Some(map) => format!("{layout} -> {map}"),
            None => layout.to_string(),
        });
    }
    let inner = layout.inner();
    let mut fields = vec![
        format!("\"shape\": {}", inner.shape().to_json()),
        format!("\"stride\": {}", inner.stride().to_json()),
    ];
    if let Some(map) = map {
        fields.push(format!("\"map\": {map}"));
    }
    match layout {
        AnyLayout::Plain(_) => {}
        AnyLayout::Composed(composed) => {
            let (bits, base, shift) = composed.swizzle().parameters();
            fields.push(format!("\"swizzle\": [{bits}, {base}, {shift}]"));
            fields.push(format!("\"offset\": {}", composed.offset()));
        }
    }
    Ok(format!("{{{}}}", fields.join(", ")))
}

fn show_error(error: &LayoutError, options: AnswerOptions) -> String {
    if options.json {
        format!(
            "{{\"error\": {{\"code\": \"{}\", \"message\": \"{}\"}}}}",
            error.code(),
            escape_json(&error.message)
        )
    } else {
        format!("error[{}]: {}", error.code(), error.message)
    }
}

fn list(indices: &[i64]) -> String {
    let parts: Vec<String> = indices.iter().map(i64::to_string).collect();
    format!("[{}]", parts.join(", "))
}

fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            control if control.is_control() => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: AnswerOptions = AnswerOptions { json: false, map: false };
    const MAP: AnswerOptions = AnswerOptions { json: false, map: true };
    const JSON: AnswerOptions = AnswerOptions { json: true, map: false };
    const JSON_MAP: AnswerOptions = AnswerOptions { json: true, map: true };

    #[test]
    fn answers_in_every_form() {
        let text = "composition((4,8):(1,4), (4,):(2,))";
        assert_eq!(answer_line(text, TEXT).text, "(4,):(2,)");
        assert_eq!(answer_line(text, MAP).text, "(4,):(2,) -> [0, 2, 4, 6]");
        assert_eq!(answer_line(text, JSON).text, r#"{"shape": [4], "stride": [2]}"#);
        assert_eq!(
            answer_line("swizzle(1,0,1) o 2 o 2:1\r", JSON_MAP).text,
            r#"{"shape": 2, "stride": 1, "map": [3, 2], "swizzle": [1, 0, 1], "offset": 2}"#
        );
    }

    #[test]
    fn whatever_comes_in_one_line_goes_out() {
        let hostile: [&[u8]; 6] = [b"", b"   ", b"8:\x0b1\x0c:", b"\"\\", b"\xff", b"coalesce(\n"];
        for bytes in hostile {
            for options in [TEXT, MAP, JSON, JSON_MAP] {
                let answer = answer_bytes(bytes, options);
                assert!(answer.is_error, "{answer:?}");
                assert!(!answer.text.is_empty() && !answer.text.contains('\n'), "{answer:?}");
                if options.json {
                    let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
                    assert_eq!(value["error"]["code"], "E0302");
                } else {
                    assert!(answer.text.starts_with("error[E0302]: "));
                }
            }
        }
    }

    #[test]
    fn a_huge_map_is_refused_but_its_layout_is_not() {
        assert!(!answer_line("1000000000000:1", TEXT).is_error);
        let refused = answer_line("1000000000000:1", MAP);
        assert!(refused.text.starts_with("error[E0303]: "), "{refused:?}");
    }
}
