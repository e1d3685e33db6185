//! What is wrong with a checkpoint: each names the file or the tensor.

use std::path::PathBuf;

use thiserror::Error;

use crate::code::Code;

/// Why a checkpoint is refused.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The world's: a file cannot be read.
    #[error("{} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The header of a file is broken.
    #[error("{}: the header {fault}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The place of a tensor in its file is wrong.
    #[error("{}: tensor `{tensor}` {fault}", path.display())]
    Place {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong with its place.
        fault: String,
    },
    /// A name occurs twice.
    #[error("{}: `{name}` is there twice", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The index is broken.
    #[error("{}: the index {fault}", path.display())]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// The index names a file that is not there or not in the folder.
    #[error("{}: the index names the file `{file}`, {fault}", index.display())]
    IndexedFile {
        /// The index.
        index: PathBuf,
        /// The file as the index names it.
        file: String,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// A tensor is missing.
    #[error("there is no tensor `{tensor}` in {}", place.display())]
    Missing {
        /// The tensor.
        tensor: String,
        /// The file, or the folder of several files.
        place: PathBuf,
    },
    /// A tensor has another shape.
    #[error("tensor `{tensor}` has the shape {found:?}, expected {expected}")]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the configuration asks for.
        expected: String,
    },
    /// A tensor has another element type.
    #[error("tensor `{tensor}` has elements of type {found}, expected {expected}")]
    DType {
        /// The tensor.
        tensor: String,
        /// Its type.
        found: String,
        /// The type that is needed.
        expected: String,
    },
    /// A block scale is no number.
    #[error(
        "{}: tensor `{tensor}` holds the scale 255, which is no number, at [{row}, {column}]",
        path.display()
    )]
    Scale {
        /// Its file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Row of the scale.
        row: usize,
        /// Group within the row.
        column: usize,
    },
    /// A parameter is NaN or infinite.
    #[error("{}: tensor `{tensor}` is not finite at element {element}", path.display())]
    NotFinite {
        /// Its file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The element, in row-major order.
        element: usize,
    },
    /// The folder holds no checkpoint.
    #[error(
        "{} holds neither `model.safetensors` nor `model.safetensors.index.json`",
        folder.display()
    )]
    None {
        /// The folder.
        folder: PathBuf,
    },
    /// A file changed while it was in use.
    #[error("{} was {fault} while it was in use", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What happened to it.
        fault: &'static str,
    },
}

impl CheckpointError {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            CheckpointError::File { .. } => Code::K0201,
            CheckpointError::Header { .. } => Code::K0202,
            CheckpointError::Place { .. } => Code::K0203,
            CheckpointError::Twice { .. } => Code::K0204,
            CheckpointError::Index { .. } => Code::K0205,
            CheckpointError::IndexedFile { .. } => Code::K0206,
            CheckpointError::Missing { .. } => Code::K0207,
            CheckpointError::Shape { .. } => Code::K0208,
            CheckpointError::DType { .. } => Code::K0209,
            CheckpointError::Scale { .. } => Code::K0210,
            CheckpointError::NotFinite { .. } => Code::K0211,
            CheckpointError::None { .. } => Code::K0212,
            CheckpointError::Changed { .. } => Code::K0213,
        }
    }
}
