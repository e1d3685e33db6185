//! What a mutant does to a kernel.

use std::fmt;

/// What a mutant does to a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// A statement of this kind is taken away.
    Remove(&'static str),
    /// `order release`, `acquire` or `acq_rel` becomes `order relaxed`.
    WeakenOrder,
    /// `scope sys` becomes `scope gpu`, `scope gpu` becomes `scope cta`.
    NarrowScope,
    /// `arrive.last c of n` counts to n - 1.
    FewerArrivals,
    /// A ring, or a pipeline, has one slot less.
    FewerSlots,
    /// A barrier waits for 16 bytes less.
    FewerBytes,
    /// `settle` leaves one group more in flight.
    SettleLess,
    /// `await` is content with one less.
    AwaitLess,
    /// A synchronisation and the statement behind it, which is no declaration, change places.
    SwapAfter,
}

impl Operator {
    /// Its name in tables and on the command line.
    pub fn name(self) -> String {
        match self {
            Operator::Remove(what) => format!("remove {what}"),
            Operator::WeakenOrder => "weaken order".to_owned(),
            Operator::NarrowScope => "narrow scope".to_owned(),
            Operator::FewerArrivals => "one arrival less".to_owned(),
            Operator::FewerSlots => "one slot less".to_owned(),
            Operator::FewerBytes => "16 bytes less".to_owned(),
            Operator::SettleLess => "settle one group less".to_owned(),
            Operator::AwaitLess => "await one less".to_owned(),
            Operator::SwapAfter => "swap with the next".to_owned(),
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
