//! A text as tokens with the white space before each.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name, a keyword or a number.
    Word,
    /// `// …` or `/* … */`
    Comment,
    /// `"…"`
    Text,
    /// `(`, `[`, `{`, or the `<` of a list of parameters.
    Open,
    /// What closes it.
    Close,
    /// One other character.
    Sign,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// White space before it.
    pub(crate) before: String,
    pub(crate) text: String,
}

impl Token {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text && self.kind != Kind::Text && self.kind != Kind::Comment
    }

    /// Its value, where it is a decimal number.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.kind {
            Kind::Word => self.text.parse().ok(),
            Kind::Comment | Kind::Text | Kind::Open | Kind::Close | Kind::Sign => None,
        }
    }
}

/// The text again.
pub(crate) fn join(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        text.push_str(&token.before);
        text.push_str(&token.text);
    }
    let text = text.trim_start();
    if text.is_empty() { String::new() } else { format!("{text}\n") }
}

/// The tokens of a text. Brackets without a partner are signs.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut found: Vec<Token> = Vec::new();
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start();
        let before = rest[..rest.len() - trimmed.len()].to_owned();
        let Some(first) = trimmed.chars().next() else { break };
        let (kind, length) = token(trimmed, first);
        let (text, behind) = trimmed.split_at(length);
        found.push(Token { kind, before, text: text.trim_end().to_owned() });
        rest = behind;
    }
    pair(&mut found);
    found
}

/// Kind and bytes of the token that a text starts with.
fn token(text: &str, first: char) -> (Kind, usize) {
    let until = |end: &str, from: usize| text[from..].find(end).map(|at| from + at);
    if text.starts_with("//") {
        return (Kind::Comment, until("\n", 0).unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, until("*/", 2).map_or(text.len(), |at| at + 2));
    }
    if first == '"' {
        let mut is_escaped = false;
        let end = text.char_indices().skip(1).find(|(_, c)| {
            let is_end = !is_escaped && *c == '"';
            is_escaped = !is_escaped && *c == '\\';
            is_end
        });
        return (Kind::Text, end.map_or(text.len(), |(at, _)| at + 1));
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    if is_word(first) {
        return (Kind::Word, text.find(|c| !is_word(c)).unwrap_or(text.len()));
    }
    let kind = match first {
        '(' | '[' | '{' => Kind::Open,
        ')' | ']' | '}' => Kind::Close,
        _ => Kind::Sign,
    };
    (kind, first.len_utf8())
}

/// Makes signs of brackets without a partner, and brackets of the signs around a list of parameters (`<const …>`).
fn pair(tokens: &mut [Token]) {
    for at in 1..tokens.len().saturating_sub(1) {
        let is_list = tokens[at].text == "<"
            && tokens[at].before.is_empty()
            && tokens[at - 1].kind == Kind::Word
            && tokens[at + 1].is("const");
        if is_list {
            let end = (at..tokens.len()).find(|&i| tokens[i].is(">") || tokens[i].is("{"));
            if let Some(end) = end.filter(|&end| tokens[end].is(">")) {
                tokens[at].kind = Kind::Open;
                tokens[end].kind = Kind::Close;
            }
        }
    }
    let mut open: Vec<usize> = Vec::new();
    let mut alone: Vec<usize> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open => open.push(at),
            Kind::Close => {
                match open.iter().rposition(|&o| closes(&tokens[o].text) == token.text) {
                    Some(partner) => {
                        alone.extend(open.drain(partner..).skip(1));
                    }
                    None => alone.push(at),
                }
            }
            Kind::Word | Kind::Comment | Kind::Text | Kind::Sign => {}
        }
    }
    for at in alone.into_iter().chain(open) {
        tokens[at].kind = Kind::Sign;
    }
}

fn closes(open: &str) -> &'static str {
    match open {
        "(" => ")",
        "[" => "]",
        "{" => "}",
        _ => ">",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_make_the_text_again() {
        let text =
            "kernel a<const N: int = 4>(x : f32[N]) { // why\n  store \"a\\\"b\" -> y; /* z */ }\n";
        assert_eq!(join(&tokens(text)), text);
    }

    #[test]
    fn brackets_without_a_partner_are_signs() {
        let found = tokens("a ( b ] { c } \"open");
        let kinds: Vec<Kind> = found.iter().map(|token| token.kind).collect();
        use Kind::{Close, Open, Sign, Text, Word};
        assert_eq!(kinds, [Word, Sign, Word, Sign, Open, Word, Close, Text]);
    }
}
