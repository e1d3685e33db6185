//! Conditions on how an execution ends.

use super::Word;

/// Something that has a value at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A number.
    Constant(Word),
    /// A register: thread and register by their place in the test.
    Register(usize, usize),
    /// A location, by its place in the test.
    Location(usize),
}

/// A comparison of signed numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `==` or `=`
    Equal,
    /// `!=` or `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Compare {
    /// Whether it holds.
    pub const fn holds(self, left: Word, right: Word) -> bool {
        match self {
            Compare::Equal => left == right,
            Compare::NotEqual => left != right,
            Compare::Less => left < right,
            Compare::LessEqual => left <= right,
            Compare::Greater => left > right,
            Compare::GreaterEqual => left >= right,
        }
    }
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// A comparison.
    Compare(Operand, Compare, Operand),
    /// `~` or `not`
    Not(Box<Condition>),
    /// `/\`; of nothing it is `true`
    And(Vec<Condition>),
    /// `\/`; of nothing it is `false`
    Or(Vec<Condition>),
}

impl Condition {
    /// Whether the condition holds, as far as what is known decides it.
    pub fn decide(&self, known: &impl Fn(&Operand) -> Option<Word>) -> Option<bool> {
        match self {
            Condition::Compare(left, compare, right) => {
                Some(compare.holds(known(left)?, known(right)?))
            }
            Condition::Not(inner) => inner.decide(known).map(|holds| !holds),
            Condition::And(parts) => all(parts.iter().map(|part| part.decide(known))),
            Condition::Or(parts) => {
                all(parts.iter().map(|part| part.decide(known).map(|holds| !holds)))
                    .map(|none| !none)
            }
        }
    }

    /// The locations whose final values the condition asks for, each once, in order.
    pub fn locations(&self) -> Vec<usize> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn collect(&self, found: &mut Vec<usize>) {
        match self {
            Condition::Compare(left, _, right) => {
                for operand in [left, right] {
                    match operand {
                        Operand::Location(location) => found.push(*location),
                        Operand::Constant(_) | Operand::Register(..) => {}
                    }
                }
            }
            Condition::Not(inner) => inner.collect(found),
            Condition::And(parts) | Condition::Or(parts) => {
                for part in parts {
                    part.collect(found);
                }
            }
        }
    }
}

/// Whether all hold: known as soon as one does not.
fn all(parts: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = Some(true);
    for part in parts {
        match part {
            Some(false) => return Some(false),
            Some(true) => {}
            None => known = None,
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_does_not_hide_what_is() {
        let is = |register, value| {
            Condition::Compare(
                Operand::Register(0, register),
                Compare::Equal,
                Operand::Constant(value),
            )
        };
        let known = |operand: &Operand| match operand {
            Operand::Constant(value) => Some(*value),
            Operand::Register(0, 0) => Some(1),
            Operand::Register(..) | Operand::Location(_) => None,
        };
        let both = Condition::And(vec![is(1, 0), is(0, 2)]);
        let either = Condition::Or(vec![is(1, 0), is(0, 1)]);
        assert_eq!(both.decide(&known), Some(false));
        assert_eq!(either.decide(&known), Some(true));
        assert_eq!(Condition::And(vec![is(1, 0), is(0, 1)]).decide(&known), None);
        assert_eq!(Condition::Not(Box::new(either)).decide(&known), Some(false));
    }
}
