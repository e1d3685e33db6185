//! The blocks marked `tile` of README.md and docs/*.md: each is a whole file that must be accepted, or that
//! has the findings which its `//~` annotations say.

use std::path::PathBuf;

use crate::directive::Directives;
use crate::program::{self, Program};

/// A block of a document.
#[derive(Debug, Clone)]
pub struct Example {
    /// Document and line of the block.
    pub name: String,
    text: String,
}

/// All blocks, by document and line.
///
/// # Errors
/// A document cannot be read.
pub fn all() -> Result<Vec<Example>, String> {
    let root = program::package_folder().join("..");
    let mut documents: Vec<PathBuf> = std::fs::read_dir(root.join("docs"))
        .map_err(|error| format!("docs: {error}"))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    documents.sort();
    let readme = root.join("README.md");
    if readme.exists() {
        documents.push(readme);
    }
    let mut examples = Vec::new();
    for path in documents {
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        examples.extend(blocks(&name, &text));
    }
    Ok(examples)
}

fn blocks(document: &str, text: &str) -> Vec<Example> {
    let mut found = Vec::new();
    let mut block: Option<Example> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match &mut block {
            None if line.trim() == "```tile" => {
                block = Some(Example {
                    name: format!("docs/{document}:{number}"),
                    text: String::new(),
                });
            }
            None => {}
            Some(_) if line.trim() == "```" => found.extend(block.take()),
            Some(example) => {
                example.text.push_str(line);
                example.text.push('\n');
            }
        }
    }
    found
}

impl Example {
    /// Checks the block; kernels whose constants all have defaults are built.
    ///
    /// # Errors
    /// Findings that no annotation expects, or the reverse.
    pub fn run(&self) -> Result<(), String> {
        let directives = Directives::parse(&self.text)?;
        let mut read = |path: &str| Err(format!("a document has no file `{path}`"));
        let program = Program::of_text(&self.name, &self.text, &mut read);
        let mut found = program.front.diagnostics.clone();
        for template in &program.front.templates {
            if template.const_params().iter().all(|param| param.has_default) {
                match program.build_or_findings(template, &directives.bind, None) {
                    Ok(built) => found.extend(built.diagnostics),
                    Err(findings) => found.extend(findings),
                }
            }
        }
        program.match_findings(&found, &directives.expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_with_their_lines() {
        let text = "a\n```tile\nkernel\n```\n```\nnot this\n```\n```tile\nfn\n```\n";
        let found: Vec<(String, String)> =
            blocks("x.md", text).into_iter().map(|e| (e.name, e.text)).collect();
        let want = [("docs/x.md:2", "kernel\n"), ("docs/x.md:8", "fn\n")];
        assert_eq!(found, want.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
