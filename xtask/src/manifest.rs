//! What `kernelc build` writes beside the cubins: one entry for each kernel and target.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
pub(crate) struct Manifest {
    pub(crate) kernels: Vec<Built>,
}

#[derive(Deserialize)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) kernel: String,
    pub(crate) target: String,
    pub(crate) registers: u32,
    pub(crate) spill_bytes: u64,
    pub(crate) shared_bytes: u64,
    pub(crate) audit: Audit,
    pub(crate) cubin: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Audit {
    Clean,
    Findings,
    NotJudged,
}

impl Audit {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Audit::Clean => "clean",
            Audit::Findings => "findings",
            Audit::NotJudged => "not judged",
        }
    }
}

impl Manifest {
    /// Reads `manifest.json` in the output folder of a build.
    pub(crate) fn read(out: &Path) -> Result<Manifest> {
        let path = out.join("manifest.json");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    pub(crate) fn spill_bytes(&self) -> u64 {
        self.kernels.iter().map(|built| built.spill_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_not_needed_are_passed_over() {
        let manifest: Manifest = serde_json::from_str(
            r#"{"format": 1, "kernels": [{"name": "in_proj", "kernel": "gemv_bf16", "set": "demo",
                "target": "sm_90a", "registers": 40, "spill_bytes": 4, "shared_bytes": 512,
                "audit": "not-judged", "cubin": "a.cubin", "ptx": "a.ptx"}]}"#,
        )
        .unwrap();
        assert_eq!(manifest.spill_bytes(), 4);
        assert_eq!(manifest.kernels[0].audit.as_str(), "not judged");
    }
}
