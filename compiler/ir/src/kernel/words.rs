//! Words between CTAs, between launches, and between ranks.

use kernel_dsl::source::Span;
use serde::{Deserialize, Serialize};

use super::{Param, ParamId, ValueId};

/// What the u32 words of a buffer are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Words {
    /// Counts arrivals of CTAs, or tickets: zero before the first launch and after each.
    Counter,
    /// A counter that signals raise: by as much in each launch.
    Raised,
    /// Counts launches: one word a CTA, advanced once by each.
    Epoch,
    /// Counts what other ranks have signalled: one word a sender, raised once by each launch.
    Flag,
}

impl Words {
    /// The word of the language.
    pub fn name(self) -> &'static str {
        match self {
            Words::Counter | Words::Raised => "counter",
            Words::Epoch => "epoch",
            Words::Flag => "flag",
        }
    }
}

/// A word of a counter or epoch buffer.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    /// The buffer, of one axis.
    pub param: ParamId,
    /// i32 scalar.
    pub index: ValueId,
    /// The text of it.
    pub span: Span,
}

impl Param {
    /// True for words that signals raise, by as much in each launch.
    pub fn is_raised(&self) -> bool {
        matches!(self.words, Some(Words::Flag | Words::Raised))
    }

    /// True for words that are zero before a launch and after it: they count CTAs.
    pub fn counts_arrivals(&self) -> bool {
        self.words == Some(Words::Counter)
    }
}
