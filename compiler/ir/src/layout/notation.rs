//! The notation of layout expressions: text to [`Expr`].
//!
//! ```text
//! expr     := term | swizzle "o" INT "o" term
//! term     := INT [":" tuple] | tuple [":" tuple] | NAME "(" expr {"," expr} ")"
//! tuple    := INT | "(" expr {"," expr} [","] ")"        one element needs the trailing comma
//! swizzle  := "swizzle" "(" INT "," INT "," INT ")"
//! ```
//!
//! The two sides of a colon hold integers and tuples only. The printer is `Display` of the layout
//! types; what it prints parses back to the same layout.

use super::error::LayoutError;
use super::{IntTuple, MAX_DEPTH, MAX_LINE};

/// An operation that an expression can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fewest modes, same map.
    Coalesce,
    /// Coalesce without modes of stride 0.
    Filter,
    /// First after second.
    Composition,
    /// The indices that a layout skips.
    Complement,
    /// `layout(r(i)) == i`.
    RightInverse,
    /// `l(layout(i)) == i`.
    LeftInverse,
    /// Tile and rest.
    LogicalDivide,
    /// Tiles and rests gathered.
    ZippedDivide,
    /// Tiles gathered, rests apart.
    TiledDivide,
    /// Block and repetitions.
    LogicalProduct,
    /// Blocks and repetitions gathered.
    ZippedProduct,
    /// Blocks gathered, repetitions apart.
    TiledProduct,
}

impl Operation {
    /// Every operation, in the order of the documentation.
    pub const ALL: [Self; 12] = [
        Self::Coalesce,
        Self::Filter,
        Self::Composition,
        Self::Complement,
        Self::RightInverse,
        Self::LeftInverse,
        Self::LogicalDivide,
        Self::ZippedDivide,
        Self::TiledDivide,
        Self::LogicalProduct,
        Self::ZippedProduct,
        Self::TiledProduct,
    ];

    /// The name in the notation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coalesce => "coalesce",
            Self::Filter => "filter",
            Self::Composition => "composition",
            Self::Complement => "complement",
            Self::RightInverse => "right_inverse",
            Self::LeftInverse => "left_inverse",
            Self::LogicalDivide => "logical_divide",
            Self::ZippedDivide => "zipped_divide",
            Self::TiledDivide => "tiled_divide",
            Self::LogicalProduct => "logical_product",
            Self::ZippedProduct => "zipped_product",
            Self::TiledProduct => "tiled_product",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }
}

/// A parsed expression; numbers are not checked beyond 64 bits yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expr {
    /// An integer: a tiler, a codomain size or a part of a tuple.
    Int(i64),
    /// A bare tuple: a by-mode tiler.
    Tuple(Vec<Expr>),
    /// `shape:stride`.
    Layout {
        /// Left of the colon.
        shape: IntTuple,
        /// Right of the colon.
        stride: IntTuple,
    },
    /// `swizzle(bits,base,shift)`.
    Swizzle([i64; 3]),
    /// `swizzle(bits,base,shift) o offset o inner`.
    Composed {
        /// The parameters of the swizzle.
        swizzle: [i64; 3],
        /// What is added before the swizzle.
        offset: i64,
        /// The layout that is applied first.
        inner: Box<Expr>,
    },
    /// An operation on its arguments.
    Call {
        /// Which one.
        operation: Operation,
        /// As written, not yet counted.
        arguments: Vec<Expr>,
    },
}

/// Parses one expression; surrounding blanks are ignored.
pub fn parse(text: &str) -> Result<Expr, LayoutError> {
    if text.len() > MAX_LINE {
        return Err(LayoutError::too_large(format!(
            "the expression has {} bytes, the limit is {MAX_LINE}",
            text.len()
        )));
    }
    let tokens = tokenize(text)?;
    if tokens.is_empty() {
        return Err(LayoutError::notation("empty expression"));
    }
    let mut parser = Parser { tokens: &tokens, next: 0, end: text.chars().count() + 1 };
    let expr = parser.expr(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(_) => Err(parser.unexpected("the end of the expression")),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Int(i64),
    Name(String),
    Open,
    Close,
    Comma,
    Colon,
}

impl Token {
    fn describe(&self) -> String {
        match self {
            Self::Int(value) => format!("`{value}`"),
            Self::Name(name) => format!("`{}`", shorten(name)),
            Self::Open => "`(`".to_owned(),
            Self::Close => "`)`".to_owned(),
            Self::Comma => "`,`".to_owned(),
            Self::Colon => "`:`".to_owned(),
        }
    }
}

/// The start of a name, so that a message stays one short line.
fn shorten(name: &str) -> String {
    const SHOWN: usize = 32;
    if name.len() <= SHOWN { name.to_owned() } else { format!("{}…", &name[..SHOWN]) }
}

/// Tokens with their columns, counted in characters from 1.
fn tokenize(text: &str) -> Result<Vec<(Token, usize)>, LayoutError> {
    let characters: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = characters.get(at) {
        let column = at + 1;
        let single = match first {
            '(' => Some(Token::Open),
            ')' => Some(Token::Close),
            ',' => Some(Token::Comma),
            ':' => Some(Token::Colon),
            _ => None,
        };
        if let Some(token) = single {
            tokens.push((token, column));
            at += 1;
        } else if first.is_whitespace() {
            at += 1;
        } else if first.is_ascii_digit() || first == '-' {
            let start = at;
            at += 1;
            while characters.get(at).is_some_and(char::is_ascii_digit) {
                at += 1;
            }
            let digits: String = characters[start..at].iter().collect();
            tokens.push((Token::Int(parse_int(&digits, column)?), column));
            if characters.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
                return Err(LayoutError::notation(format!(
                    "column {column}: a number is followed by a letter"
                )));
            }
        } else if first.is_ascii_alphabetic() || first == '_' {
            let start = at;
            while characters.get(at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                at += 1;
            }
            tokens.push((Token::Name(characters[start..at].iter().collect()), column));
        } else {
            return Err(LayoutError::notation(format!(
                "column {column}: the character `{}` has no meaning here",
                first.escape_debug()
            )));
        }
    }
    Ok(tokens)
}

fn parse_int(digits: &str, column: usize) -> Result<i64, LayoutError> {
    if digits == "-" {
        return Err(LayoutError::notation(format!("column {column}: `-` without a number")));
    }
    digits.parse().map_err(|_| {
        LayoutError::too_large(format!("column {column}: the number does not fit in 64 bits"))
    })
}

struct Parser<'t> {
    tokens: &'t [(Token, usize)],
    next: usize,
    end: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn column(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(_, column)| *column)
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.next += 1;
        }
        found
    }

    fn expect(&mut self, token: &Token) -> Result<(), LayoutError> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(&token.describe())) }
    }

    fn unexpected(&self, wanted: &str) -> LayoutError {
        let found = self.peek().map_or("the end".to_owned(), Token::describe);
        LayoutError::notation(format!("column {}: expected {wanted}, found {found}", self.column()))
    }

    fn expr(&mut self, depth: usize) -> Result<Expr, LayoutError> {
        if depth > MAX_DEPTH {
            return Err(LayoutError::too_large(format!(
                "column {}: the expression nests more than {MAX_DEPTH} levels deep",
                self.column()
            )));
        }
        match self.peek() {
            Some(Token::Name(name)) => {
                let name = name.clone();
                self.call(&name, depth)
            }
            Some(Token::Int(_) | Token::Open) => {
                let column = self.column();
                let left = self.tuple(depth)?;
                if !self.take(&Token::Colon) {
                    return Ok(left);
                }
                let shape = as_tuple(left, column, "shape")?;
                let column = self.column();
                let stride = as_tuple(self.tuple(depth)?, column, "stride")?;
                Ok(Expr::Layout { shape, stride })
            }
            Some(Token::Close | Token::Comma | Token::Colon) | None => {
                Err(self.unexpected("a layout, a tuple, an integer or an operation"))
            }
        }
    }

    fn tuple(&mut self, depth: usize) -> Result<Expr, LayoutError> {
        match self.peek() {
            Some(&Token::Int(value)) => {
                self.next += 1;
                Ok(Expr::Int(value))
            }
            Some(Token::Open) => {
                let column = self.column();
                self.next += 1;
                let mut parts = Vec::new();
                while !self.take(&Token::Close) {
                    parts.push(self.expr(depth + 1)?);
                    if self.take(&Token::Comma) {
                        continue;
                    }
                    self.expect(&Token::Close)?;
                    if parts.len() == 1 {
                        return Err(LayoutError::notation(format!(
                            "column {column}: parentheses around one element without a comma: \
                             write `(8,)` for a tuple of one and `8` for an integer"
                        )));
                    }
                    break;
                }
                if parts.is_empty() {
                    return Err(LayoutError::notation(format!(
                        "column {column}: a tuple has at least one element"
                    )));
                }
                Ok(Expr::Tuple(parts))
            }
            Some(Token::Name(_) | Token::Close | Token::Comma | Token::Colon) | None => {
                Err(self.unexpected("an integer or a tuple"))
            }
        }
    }

    fn call(&mut self, name: &str, depth: usize) -> Result<Expr, LayoutError> {
        let column = self.column();
        if name == "swizzle" {
            self.next += 1;
            return self.swizzle(depth);
        }
        let Some(operation) = Operation::named(name) else {
            let known: Vec<&str> = Operation::ALL.into_iter().map(Operation::name).collect();
            return Err(LayoutError::notation(format!(
                "column {column}: there is no operation `{}`; there are {} and swizzle",
                shorten(name),
                known.join(", ")
            )));
        };
        self.next += 1;
        self.expect(&Token::Open)?;
        let mut arguments = vec![self.expr(depth + 1)?];
        while self.take(&Token::Comma) {
            arguments.push(self.expr(depth + 1)?);
        }
        self.expect(&Token::Close)?;
        Ok(Expr::Call { operation, arguments })
    }

    fn swizzle(&mut self, depth: usize) -> Result<Expr, LayoutError> {
        self.expect(&Token::Open)?;
        let bits = self.int("the number of bits")?;
        self.expect(&Token::Comma)?;
        let base = self.int("the base")?;
        self.expect(&Token::Comma)?;
        let shift = self.int("the shift")?;
        self.expect(&Token::Close)?;
        let swizzle = [bits, base, shift];
        if !self.take(&Token::Name("o".to_owned())) {
            return Ok(Expr::Swizzle(swizzle));
        }
        let offset = self.int("the offset")?;
        if !self.take(&Token::Name("o".to_owned())) {
            return Err(self.unexpected("`o` and a layout after the offset"));
        }
        let inner = Box::new(self.expr(depth + 1)?);
        Ok(Expr::Composed { swizzle, offset, inner })
    }

    fn int(&mut self, what: &str) -> Result<i64, LayoutError> {
        match self.peek() {
            Some(&Token::Int(value)) => {
                self.next += 1;
                Ok(value)
            }
            Some(Token::Name(_) | Token::Open | Token::Close | Token::Comma | Token::Colon)
            | None => Err(self.unexpected(&format!("{what}, an integer"))),
        }
    }
}

/// One side of a colon: integers and tuples of them only.
fn as_tuple(expr: Expr, column: usize, side: &str) -> Result<IntTuple, LayoutError> {
    match expr {
        Expr::Int(value) => Ok(IntTuple::Int(value)),
        Expr::Tuple(parts) => Ok(IntTuple::Tuple(
            parts.into_iter().map(|part| as_tuple(part, column, side)).collect::<Result<_, _>>()?,
        )),
        Expr::Layout { .. } | Expr::Swizzle(_) | Expr::Composed { .. } | Expr::Call { .. } => {
            Err(LayoutError::notation(format!(
                "column {column}: a {side} holds integers and tuples of integers only"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse(text).unwrap_err().message
    }

    #[test]
    fn parses_every_form() {
        assert_eq!(parse(" 8 ").unwrap(), Expr::Int(8));
        assert_eq!(parse("(8,)").unwrap(), Expr::Tuple(vec![Expr::Int(8)]));
        assert_eq!(parse("(2,4,)").unwrap(), parse("(2, 4)").unwrap());
        assert!(matches!(parse("(2,(3,4)):(1,(2,6))").unwrap(), Expr::Layout { .. }));
        assert!(matches!(parse("swizzle(2,0,-3)").unwrap(), Expr::Swizzle([2, 0, -3])));
        assert!(matches!(
            parse("swizzle(3,4,3) o 16 o coalesce((8,8):(1,8))").unwrap(),
            Expr::Composed { offset: 16, .. }
        ));
        assert!(matches!(
            parse("zipped_divide(8:1,(2:1,))").unwrap(),
            Expr::Call { operation: Operation::ZippedDivide, .. }
        ));
    }

    #[test]
    fn says_where_the_notation_breaks() {
        assert_eq!(message(""), "empty expression");
        assert!(message("(8)").contains("`(8,)`"));
        assert!(message("()").contains("at least one element"));
        assert_eq!(message("8:1 8"), "column 5: expected the end of the expression, found `8`");
        assert!(message("(8:1,2):1").starts_with("column 1: a shape holds integers"));
        assert!(message("frob(8:1)").contains("there is no operation `frob`"));
        assert!(message("8:\u{7}").contains("`\\u{7}`"));
        assert!(message("coalesce(8:1").ends_with("found the end"));
        assert!(message("-").contains("without a number"));
        assert!(message("8x:1").contains("followed by a letter"));
    }

    #[test]
    fn hostile_input_is_too_large() {
        let code = |text: &str| parse(text).unwrap_err().code();
        assert_eq!(code(&"(".repeat(60_000)), "E0303");
        assert_eq!(code(&"coalesce(".repeat(5_000)), "E0303");
        assert_eq!(code(&" ".repeat(MAX_LINE + 1)), "E0303");
        assert_eq!(code("99999999999999999999:1"), "E0303");
        let swizzles = "swizzle(0,0,0) o 0 o ".repeat(2_000);
        assert_eq!(code(&swizzles), "E0303");
    }
}
