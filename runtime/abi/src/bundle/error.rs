//! What a bundle is refused for.

use thiserror::Error;

/// The stable code of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundleCode {
    /// B0101: the file cannot be read or mapped.
    File,
    /// B0102: the file is no bundle.
    Kind,
    /// B0103: another version of the format.
    Version,
    /// B0104: the file ends early, or goes on behind its end.
    Length,
    /// B0105: a byte was changed.
    Hash,
    /// B0106: the index is not what an index must be.
    Index,
    /// B0107: the audit of a kernel is not clean.
    Audit,
    /// B0108: a part of the file is gone, cut off while it was mapped: what [`super::end_on_bus_error`] says.
    Gone,
}

impl BundleCode {
    /// All of them.
    pub const ALL: [BundleCode; 8] = [
        BundleCode::File,
        BundleCode::Kind,
        BundleCode::Version,
        BundleCode::Length,
        BundleCode::Hash,
        BundleCode::Index,
        BundleCode::Audit,
        BundleCode::Gone,
    ];

    /// Its text form.
    pub const fn name(self) -> &'static str {
        match self {
            BundleCode::File => "B0101",
            BundleCode::Kind => "B0102",
            BundleCode::Version => "B0103",
            BundleCode::Length => "B0104",
            BundleCode::Hash => "B0105",
            BundleCode::Index => "B0106",
            BundleCode::Audit => "B0107",
            BundleCode::Gone => "B0108",
        }
    }
}

impl BundleCode {
    /// True for what files and disks do, false for what stands in a bundle.
    pub const fn is_of_the_world(self) -> bool {
        match self {
            BundleCode::File | BundleCode::Gone => true,
            BundleCode::Kind
            | BundleCode::Version
            | BundleCode::Length
            | BundleCode::Hash
            | BundleCode::Index
            | BundleCode::Audit => false,
        }
    }
}

/// Why a bundle is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{bundle}: {message}")]
pub struct BundleError {
    /// The kind.
    pub code: BundleCode,
    /// Path of the file, or `bundle` for one in memory.
    pub bundle: String,
    /// What is wrong.
    pub message: String,
}

impl BundleError {
    pub(super) fn new(code: BundleCode, message: impl Into<String>) -> BundleError {
        BundleError { code, bundle: "bundle".to_owned(), message: message.into() }
    }

    /// The same of the bundle of that name.
    #[must_use]
    pub fn of(self, bundle: &str) -> BundleError {
        BundleError { bundle: bundle.to_owned(), ..self }
    }
}
