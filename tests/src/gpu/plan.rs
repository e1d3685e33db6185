//! Which kernels run on a GPU: every operation file with all its cases, the whole kernels of `suite/run`, and
//! the kernels of Kimi K3 at the shapes of one rank at tensor parallelism 16.

use kernel_ir::sema::{ConstParam, ConstType};

use crate::directive::{Binding, Directives, Slack};
use crate::program;
use crate::suite;

/// A file to compile, with everything that it imports, and its runs.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name, by which sources are chosen.
    pub name: String,
    /// Path of the file below the folder that `files` are written to.
    pub path: String,
    /// Paths and texts.
    pub files: Vec<(String, String)>,
    /// The runs, in the order of their artefacts.
    pub cases: Vec<Case>,
}

/// One run of one kernel.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name in the report.
    pub name: String,
    /// Kernel.
    pub kernel: String,
    /// Values of const parameters.
    pub bind: Binding,
    /// Const parameters that are truth values.
    pub flags: Vec<String>,
    /// Given inputs, and how far hardware may be off.
    pub directives: Directives,
    /// Buffers are random, whatever the directives give.
    pub is_further: bool,
}

impl Source {
    /// The name of an artefact.
    pub fn artefact(number: usize) -> String {
        format!("case{number}")
    }

    /// A `build.toml` with the set `gpu`.
    pub fn build_file(&self) -> String {
        let mut text = String::new();
        for (number, case) in self.cases.iter().enumerate() {
            let entry = |(name, value): &(String, i64)| match case.flags.contains(name) {
                true => format!("{name} = {}", *value != 0),
                false => format!("{name} = {value}"),
            };
            let bind: Vec<String> = case.bind.iter().map(entry).collect();
            text.push_str(&format!(
                "[[set.gpu]]\nkernel = \"{}\"\nname = \"{}\"\nbind = {{ {} }}\n\n",
                case.kernel,
                Source::artefact(number),
                bind.join(", ")
            ));
        }
        text
    }
}

/// Everything that runs on a GPU.
///
/// # Errors
/// A test file cannot be read.
pub fn sources() -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    let folder = program::package_folder().join("suite");
    let lib = library(&folder)?;
    for test in suite::file_tests(&folder)? {
        let is_run = test.path.starts_with("ops/")
            || test.path.starts_with("run/") && !test.path.starts_with("run/err/");
        if is_run && test.case.is_none() {
            all.push(of_test(&folder, &test.path, &lib)?);
        }
    }
    all.extend(k3());
    Ok(all)
}

/// The files that tests import.
fn library(folder: &std::path::Path) -> Result<Vec<(String, String)>, String> {
    let entries = std::fs::read_dir(folder.join("lib")).map_err(|error| format!("lib: {error}"))?;
    let mut files = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        let path = format!("lib/{}", entry.file_name().to_string_lossy());
        let text = std::fs::read_to_string(entry.path()).map_err(|e| format!("{path}: {e}"))?;
        files.push((path, text));
    }
    files.sort();
    Ok(files)
}

fn of_test(
    folder: &std::path::Path,
    path: &str,
    lib: &[(String, String)],
) -> Result<Source, String> {
    let text = std::fs::read_to_string(folder.join(path)).map_err(|e| format!("{path}: {e}"))?;
    let directives = Directives::parse(&text).map_err(|reason| format!("{path}: {reason}"))?;
    let checked = program::Program::read(folder, path)?;
    let kernel = match checked.chosen(&directives)?.as_slice() {
        [only] => only.name().to_owned(),
        several => return Err(format!("{path}: {} kernels", several.len())),
    };
    let flags = flags(&checked, &kernel);
    let mut cases = vec![Case {
        name: path.to_owned(),
        kernel: kernel.clone(),
        bind: directives.bindings(None),
        flags: flags.clone(),
        directives: directives.clone(),
        is_further: false,
    }];
    for case in &directives.cases {
        cases.push(Case {
            name: format!("{path}[{}]", crate::directive::show_binding(case)),
            kernel: kernel.clone(),
            bind: directives.bindings(Some(case)),
            flags: flags.clone(),
            directives: directives.clone(),
            is_further: true,
        });
    }
    let mut files = lib.to_vec();
    files.push((path.to_owned(), text));
    Ok(Source { name: path.to_owned(), path: path.to_owned(), files, cases })
}

/// The const parameters of a kernel that are truth values.
fn flags(program: &program::Program, kernel: &str) -> Vec<String> {
    let params = program.front.template(kernel).map(|t| t.const_params()).unwrap_or_default();
    let is_flag = |p: &ConstParam| p.ty == ConstType::Bool;
    params.into_iter().filter(is_flag).map(|p| p.name).collect()
}

/// One run of a K3 kernel: artefact, file, kernel, constants, scalars, tolerance.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, i64)],
    &'static [(&'static str, &'static str)],
    Slack,
);

const EXACT: Slack = Slack { ulp: 0, abs: 0.0 };
/// One approximate function before the rounding to bf16: a result may fall on the other side.
const ROUNDED: Slack = Slack { ulp: 1, abs: 1e-6 };
/// Two such roundings, one after the other, with cancellation in between.
const ROUNDED_TWICE: Slack = Slack { ulp: 3, abs: 2e-5 };
/// Approximate functions and their sum in f32.
const FUNCTIONS: Slack = Slack { ulp: 32, abs: 1e-9 };

const ROWS: &[Row] = &[
    ("in_proj M=1", "gemv.tile", "gemv_bf16", &[("M", 1), ("N", 3216), ("K", 7168)], &[], EXACT),
    ("in_proj M=4", "gemv.tile", "gemv_bf16", &[("M", 4), ("N", 3216), ("K", 7168)], &[], EXACT),
    ("router", "gemv.tile", "gemv_f32", &[("M", 1), ("N", 896), ("K", 7168)], &[], EXACT),
    (
        "o_proj",
        "gemv.tile",
        "gemv_bf16",
        &[("M", 1), ("N", 7168), ("K", 768), ("STEP", 256)],
        &[],
        EXACT,
    ),
    (
        "rms_norm",
        "rms_norm.tile",
        "rms_norm",
        &[("M", 1), ("W", 7168)],
        &[("eps", "1e-5")],
        ROUNDED,
    ),
    (
        "attn_res_norm NB=8",
        "attn_res_norm.tile",
        "attn_res_norm",
        &[("M", 1), ("H", 7168), ("NB", 8)],
        &[("eps", "1e-5")],
        ROUNDED_TWICE,
    ),
    (
        "attn_res_norm NB=0",
        "attn_res_norm.tile",
        "attn_res_norm",
        &[("M", 2), ("H", 7168), ("NB", 0)],
        &[("eps", "1e-5")],
        ROUNDED_TWICE,
    ),
    (
        "softmax",
        "softmax.tile",
        "softmax",
        &[("M", 6), ("N", 4096)],
        &[("scale", "3.5")],
        FUNCTIONS,
    ),
    ("silu_gate", "silu_gate.tile", "silu_gate", &[("M", 1), ("I", 384)], &[], ROUNDED),
    (
        "embed",
        "embed.tile",
        "embed",
        &[("M", 8), ("V", 10240), ("H", 7168)],
        &[("first", "10240"), ("vocab", "30720")],
        EXACT,
    ),
    ("argmax_block", "argmax.tile", "argmax_block", &[("M", 2), ("V", 10240)], &[], EXACT),
    (
        "argmax_merge",
        "argmax.tile",
        "argmax_merge",
        &[("M", 2), ("V", 10240)],
        &[("first", "51200")],
        EXACT,
    ),
];

/// One source a file of the model crate.
fn k3() -> Vec<Source> {
    let cases_of = |file: &str| -> Vec<Case> {
        let rows = ROWS.iter().filter(|row| row.1 == file);
        rows.map(|(name, _, kernel, bind, scalars, gpu)| Case {
            name: format!("kimi_k3/{name}"),
            kernel: (*kernel).to_owned(),
            bind: bind.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            flags: Vec::new(),
            directives: Directives {
                gpu: *gpu,
                inputs: scalars
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()]))
                    .collect(),
                ..Directives::default()
            },
            is_further: true,
        })
        .collect()
    };
    kimi_k3::kernels::FILES
        .iter()
        .map(|file| Source {
            name: format!("kimi_k3/{}", file.name),
            path: file.name.to_owned(),
            files: vec![(file.name.to_owned(), file.text.to_owned())],
            cases: cases_of(file.name),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_the_model_has_a_case() {
        for source in k3() {
            let text = &source.files[0].1;
            let kernels = text.lines().filter_map(|line| line.strip_prefix("kernel "));
            for kernel in kernels {
                let name = kernel.split(['<', '(']).next().unwrap();
                assert!(source.cases.iter().any(|c| c.kernel == name), "{name} has no case");
            }
        }
    }

    #[test]
    fn the_build_file_names_every_case_once() {
        let gemv = k3().into_iter().find(|source| source.path == "gemv.tile").unwrap();
        let text = gemv.build_file();
        assert!(text.starts_with(
            "[[set.gpu]]\nkernel = \"gemv_bf16\"\nname = \"case0\"\nbind = { M = 1, N = 3216, K = 7168 }\n"
        ));
        assert_eq!(text.matches("[[set.gpu]]").count(), 4);
    }
}
