//! Folders and files that tests make.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use kernel_abi::DType;
use kimi_k3::checkpoint::Tensor;
use serde_json::{Value, json};

/// A folder that is removed with its owner.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder of its own.
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{}-{number}", env!("CARGO_CRATE_NAME"), std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the target folder can be written");
        Folder(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).expect("the folder can be written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind lies in the target folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The mini's folder.
pub(crate) fn mini() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mini")
}

/// A safetensors file.
pub(crate) fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(data);
    file
}

/// The header's entry of a tensor whose bytes start at `start`.
pub(crate) fn tensor(view: &Tensor, start: usize) -> Value {
    let dtype = match view.dtype {
        DType::Bf16 => "BF16",
        DType::F32 => "F32",
        DType::U8 => "U8",
        other => panic!("the mini has no {other}"),
    };
    json!({"dtype": dtype, "shape": view.shape, "data_offsets": [start, start + view.bytes.len()]})
}
