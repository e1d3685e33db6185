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

            /// The code as text, `K0101`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Code::$name => stringify!($name),)*
                }
            }
        }
    };
}

codes! {
    /// The configuration cannot be read.
    K0101,
    /// The configuration is no JSON object.
    K0102,
    /// A field is missing.
    K0103,
    /// A field holds a value of another kind.
    K0104,
    /// A value is outside of what is sensible.
    K0105,
    /// A size is no multiple of what it must be.
    K0106,
    /// A setting that this crate does not implement.
    K0107,
    /// The lists of layers do not name every layer once.
    K0108,
    /// A file of the checkpoint cannot be read.
    K0201,
    /// The header of a safetensors file is broken.
    K0202,
    /// The place of a tensor in its file is wrong: past the end, overlapping, of another size than its shape.
    K0203,
    /// A name occurs twice.
    K0204,
    /// The index of a checkpoint in several files is broken.
    K0205,
    /// The index names a file that is not there, or that is not in the folder.
    K0206,
    /// A tensor is missing.
    K0207,
    /// A tensor has another shape.
    K0208,
    /// A tensor has another element type.
    K0209,
    /// A block scale is the code 255, which is no number.
    K0210,
    /// A parameter is NaN or infinite.
    K0211,
    /// The folder holds no checkpoint.
    K0212,
    /// A file changed while it was in use.
    K0213,
    /// A file of packed weights is not what was written; it is made anew.
    K0214,
    /// Packed weights cannot be kept in a file.
    K0215,
    /// A prompt is empty.
    K0301,
    /// A token id is outside the vocabulary.
    K0302,
    /// Prompt and new tokens are longer than the context.
    K0303,
    /// A file of token ids is none.
    K0304,
    /// The tensor-parallel ranks do not divide what they share.
    K0401,
    /// A step of as many rows as no kernel takes.
    K0402,
    /// A context of no position, or of more than the model has.
    K0403,
    /// An extent or a size of the model that the kernels do not take.
    K0404,
    /// More or fewer tokens than rows of the step.
    K0501,
    /// What executes the plan failed.
    K0502,
    /// The logits are not finite.
    K0503,
    /// The buffers need more memory than there is.
    K0504,
    /// A CUDA device without a bundle of kernels.
    K0505,
    /// A set of tasks cannot be read.
    K0601,
    /// A set of tasks is empty, a line of it is no task, or a task does not fit the tokenizer.
    K0602,
    /// A file of the command line cannot be read or written.
    K0701,
    /// Standard output does not take the text.
    K0702,
    /// Stopped by Ctrl-C.
    K0703,
    /// A fault of the program.
    K0704,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
