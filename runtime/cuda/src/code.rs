//! Stable codes of the errors of this crate.

use std::fmt;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What went wrong, as a code that stays the same when the message is reworded. `README.md` of this crate
        /// lists them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in order.
            pub const ALL: &[Code] = &[$(Code::$name,)*];

            /// The code as text, `R0101`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }
        }
    };
}

codes! {
    /// The machine has no CUDA driver.
    R0101,
    /// The driver is too old, or cannot be used.
    R0102,
    /// The driver has no device.
    R0103,
    /// There is no device of that number.
    R0104,
    /// Another process holds the device, or nobody may use it.
    R0105,
    /// The device was lost: a kernel did what it must not, or the hardware failed.
    R0106,
    /// A call of the driver failed.
    R0107,
    /// The device has too little memory.
    R0201,
    /// Bytes that do not fit a buffer.
    R0202,
    /// There is no such buffer, or no such rank.
    R0203,
    /// A buffer has no content to read, or lacks the content that a step needs.
    R0204,
    /// There is no machine code for the device.
    R0301,
    /// There is no kernel that a plan needs.
    R0302,
    /// The driver refuses machine code or PTX.
    R0303,
    /// The parameters of machine code are not those that its description says.
    R0304,
    /// The arguments of a launch do not fit the parameters.
    R0305,
    /// The device does not take the shape of a launch.
    R0306,
    /// The plan is refused.
    R0307,
    /// What this version does not do.
    R0308,
    /// A kernel did not end in time.
    R0401,
    /// The device is not used any more after a kernel that did not end, or after it was lost.
    R0402,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
