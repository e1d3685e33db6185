//! Which kernels run on a GPU: every operation file with all its cases, the whole kernels of `suite/run`, and
//! the kernels of Kimi K3 at the shapes of one rank at tensor parallelism 16.

use std::collections::BTreeMap;

use kernel_ir::ops::UnaryOp;
use kernel_ir::ops::hardware::Slack;
use kernel_ir::sema::{ConstParam, ConstType};
use kernel_ir::target::Target;

use crate::directive::{Binding, Directives};
use crate::program;
use crate::suite;

/// A file to compile, with everything that it imports, and its runs.
#[derive(Debug, Clone)]
pub struct Source {
    /// Name, by which sources are chosen.
    pub name: String,
    /// Folder that its files have in common with those of its kind.
    pub folder: &'static str,
    /// Path of the file below the folder that `files` are written to.
    pub path: String,
    /// Paths and texts.
    pub files: Vec<(String, String)>,
    /// What its kernels are made for.
    pub targets: Vec<Target>,
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
    /// The name of the artefact of a case.
    pub fn bundled(&self, number: usize) -> String {
        format!("{}.{number}", self.name.replace('/', "_"))
    }

    /// Its file in a folder of all sources.
    pub fn file(&self) -> String {
        format!("{}/{}", self.folder, self.path)
    }

    /// The checked file.
    pub fn program(&self) -> program::Program {
        let text = |path: &str| {
            let file = self.files.iter().find(|(known, _)| known == path);
            file.map(|(_, text)| text.clone()).ok_or_else(|| format!("there is no file `{path}`"))
        };
        let own = text(&self.path).unwrap_or_default();
        program::Program::of_text(&self.path, &own, &mut |path| text(path))
    }

    /// Its entries of the sets that its targets are for.
    fn entries(&self) -> String {
        let sets = SETS.iter().filter(|(_, target)| self.targets.contains(target));
        sets.map(|(set, _)| self.entries_of(set)).collect()
    }

    fn entries_of(&self, set: &str) -> String {
        let mut text = String::new();
        for (number, case) in self.cases.iter().enumerate() {
            let entry = |(name, value): &(String, i64)| match case.flags.contains(name) {
                true => format!("{name} = {}", *value != 0),
                false => format!("{name} = {value}"),
            };
            let bind: Vec<String> = case.bind.iter().map(entry).collect();
            text.push_str(&format!(
                "[[set.{set}]]\nkernel = \"{}\"\nname = \"{}\"\nfile = \"{}\"\nbind = {{ {} }}\n\n",
                case.kernel,
                self.bundled(number),
                self.file(),
                bind.join(", ")
            ));
        }
        text
    }
}

/// The sets of the folder, and a target that a file must state to be in it.
const SETS: [(&str, Target); 2] = [("gpu", Target::Sm90a), ("gpu_blackwell", Target::Sm100a)];

/// All sources as one folder with a `build.toml`: paths below it and texts.
pub fn folder(sources: &[Source]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut build = String::new();
    for source in sources {
        let texts = source.files.iter();
        files.extend(texts.map(|(path, text)| (format!("{}/{path}", source.folder), text.clone())));
        build.push_str(&source.entries());
    }
    files.insert("build.toml".to_owned(), build);
    files
}

/// Everything that runs on a GPU; `folder` holds the file tests.
///
/// # Errors
/// A test file cannot be read.
pub fn sources(folder: &std::path::Path) -> Result<Vec<Source>, String> {
    let show =
        |path: &str, error: std::io::Error| format!("{}: {error}", folder.join(path).display());
    let mut paths = library(folder).map_err(|error| show(LIBRARY, error))?;
    let tests = suite::file_tests(folder)?;
    paths.extend(tests.into_iter().filter(|test| test.case.is_none()).map(|test| test.path));
    let mut texts = BTreeMap::new();
    for path in paths {
        let text = std::fs::read_to_string(folder.join(&path)).map_err(|e| show(&path, e))?;
        texts.insert(path, text);
    }
    sources_of(&texts)
}

/// Everything that runs on a GPU; `texts` are those of the folder of the file tests, by their paths below it. Those that
/// are neither operations nor whole kernels nor imported are left out.
///
/// # Errors
/// A directive of a test cannot be read.
pub fn sources_of(texts: &BTreeMap<String, String>) -> Result<Vec<Source>, String> {
    let lib: Vec<(String, String)> = texts
        .iter()
        .filter(|(path, _)| path.starts_with("lib/"))
        .map(|(path, text)| (path.clone(), text.clone()))
        .collect();
    let mut all = Vec::new();
    for path in texts.keys() {
        let is_run =
            path.starts_with("ops/") || path.starts_with("run/") && !path.starts_with("run/err/");
        // Several ranks are `gpu-tests ranks`.
        if is_run && !path.starts_with("ops/ranks/") {
            all.push(of_test(texts, path, &lib)?);
        }
    }
    all.extend(k3());
    Ok(all)
}

/// The folder of what tests import.
const LIBRARY: &str = "lib";

/// The files that tests import.
fn library(folder: &std::path::Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(folder.join(LIBRARY))?;
    let path =
        |entry: std::fs::DirEntry| format!("{LIBRARY}/{}", entry.file_name().to_string_lossy());
    let mut paths: Vec<String> = entries.map(|entry| entry.map(path)).collect::<Result<_, _>>()?;
    // A folder is read in any order.
    paths.sort();
    Ok(paths)
}

fn of_test(
    texts: &BTreeMap<String, String>,
    path: &str,
    lib: &[(String, String)],
) -> Result<Source, String> {
    let text = texts.get(path).ok_or_else(|| format!("there is no file `{path}`"))?.clone();
    let directives = Directives::parse(&text).map_err(|reason| format!("{path}: {reason}"))?;
    let mut import =
        |name: &str| texts.get(name).cloned().ok_or_else(|| format!("there is no file `{name}`"));
    let checked = program::Program::of_text(path, &text, &mut import);
    let kernel = match checked.chosen(&directives)?.as_slice() {
        [only] => only.name().to_owned(),
        several => return Err(format!("{path}: {} kernels", several.len())),
    };
    let flags = flags(&checked, &kernel);
    let targets = checked.front.template(&kernel).map(|t| t.targets()).unwrap_or_default();
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
    let (name, path) = (path.to_owned(), path.to_owned());
    Ok(Source { name, folder: "suite", path, files, targets, cases })
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

const EXACT: Slack = Slack::EXACT;
/// One approximate function before the rounding to bf16: a result may fall on the other side.
const ROUNDED: Slack = Slack { ulp: 1, abs: 1e-6 };
/// Two such roundings, one after the other, with cancellation in between.
const ROUNDED_TWICE: Slack = Slack { ulp: 3, abs: 2e-5 };
/// Several approximate functions one after the other in f32, each with the room of `exp`.
const FUNCTIONS: Slack = Slack { ulp: 16 * Slack::of(UnaryOp::Exp).ulp, abs: 1e-9 };
/// The same with sums in f32 of values of the order of 1 that may cancel.
const SUMS: Slack = Slack { ulp: 2 * FUNCTIONS.ulp, abs: 1e-5 };

/// An activation that is rounded to bf16 between two sums may fall on the other side: within a code of bf16 of the result.
const BF16_BETWEEN: Slack = Slack { ulp: 1 << 16, abs: 1e-5 };

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
    ("latent_up", "gemv.tile", "gemv_add", &[("M", 1), ("N", 448), ("K", 3584)], &[], EXACT),
    (
        "kda_f",
        "gemv.tile",
        "gemv_bf16",
        &[("M", 2), ("N", 768), ("K", 128), ("XW", 3216), ("X0", 3072)],
        &[],
        EXACT,
    ),
    (
        "latent_norm",
        "latent_norm.tile",
        "latent_norm",
        &[("M", 2), ("W", 3584)],
        &[("eps", "1e-5")],
        ROUNDED,
    ),
    ("residual_add", "residual.tile", "residual_add", &[("M", 2), ("H", 7168)], &[], EXACT),
    ("residual_open", "residual.tile", "residual_open", &[("M", 2), ("H", 7168)], &[], EXACT),
    (
        "situ_gate",
        "situ.tile",
        "situ_gate",
        &[("M", 1), ("I", 384)],
        &[("beta", "4"), ("linear_beta", "25")],
        ROUNDED,
    ),
    (
        "kda_conv",
        "kda_conv.tile",
        "kda_conv",
        &[("M", 2), ("C", 2304), ("SLOTS", 3), ("XW", 3216)],
        &[],
        FUNCTIONS,
    ),
    (
        "kda_gate",
        "kda_gate.tile",
        "kda_gate",
        &[("M", 2), ("H", 6), ("D", 128), ("XW", 3216), ("X0", 3200)],
        &[("lower", "-5")],
        FUNCTIONS,
    ),
    (
        "kda_recurrence",
        "kda_recurrence.tile",
        "kda_recurrence",
        &[("M", 2), ("H", 6), ("D", 128), ("SLOTS", 3)],
        &[],
        SUMS,
    ),
    (
        "kda_gated_norm",
        "kda_norm.tile",
        "kda_gated_norm",
        &[("M", 2), ("H", 6), ("D", 128), ("XW", 3216), ("X0", 2304)],
        &[("eps", "1e-5")],
        ROUNDED,
    ),
    (
        "mla_absorb",
        "mla_absorb.tile",
        "mla_absorb",
        &[("M", 2), ("H", 6), ("L", 512), ("N", 128), ("P", 64)],
        &[],
        EXACT,
    ),
    (
        "mla_cache_insert",
        "mla_cache.tile",
        "mla_cache_insert",
        &[("M", 1), ("L", 512), ("P", 64), ("NP", 16), ("XW", 2880), ("X0", 1536)],
        &[("pages", "20"), ("eps", "1e-5")],
        ROUNDED,
    ),
    (
        "mla_decode",
        "mla_decode.tile",
        "mla_decode",
        &[("M", 2), ("H", 6), ("L", 512), ("P", 64), ("NP", 16), ("SPLIT", 4)],
        &[("pages", "20"), ("scale", "0.0721687836")],
        SUMS,
    ),
    (
        "mla_merge",
        "mla_decode.tile",
        "mla_merge",
        &[("M", 2), ("H", 6), ("L", 512), ("SPLIT", 5)],
        &[],
        ROUNDED_TWICE,
    ),
    (
        "mla_value",
        "mla_value.tile",
        "mla_value",
        &[("M", 2), ("H", 6), ("V", 128), ("L", 512)],
        &[],
        EXACT,
    ),
    (
        "mla_gate",
        "mla_gate.tile",
        "mla_gate",
        &[("M", 2), ("W", 768), ("XW", 2880), ("X0", 2112)],
        &[],
        ROUNDED,
    ),
    (
        "router_topk",
        "router.tile",
        "router_topk",
        &[("M", 2), ("E", 896), ("K", 16)],
        &[("factor", "1")],
        FUNCTIONS,
    ),
    (
        "group_experts",
        "group_experts.tile",
        "group_experts",
        &[("M", 8), ("K", 16), ("E", 896)],
        &[],
        EXACT,
    ),
    (
        "expert_w13",
        "experts.tile",
        "expert_w13",
        &[("M", 1), ("K", 4), ("E", 5), ("I", 192), ("Z", 3584)],
        &[("beta", "4"), ("linear_beta", "25")],
        ROUNDED_TWICE,
    ),
    (
        "expert_w2",
        "experts.tile",
        "expert_w2",
        &[("M", 1), ("K", 4), ("E", 5), ("I", 192), ("Z", 3584)],
        &[],
        EXACT,
    ),
    ("expert_sum", "experts.tile", "expert_sum", &[("M", 2), ("K", 16), ("Z", 3584)], &[], EXACT),
    (
        "attn_res_norm_cluster",
        "specialized/attn_res_norm.tile",
        "attn_res_norm_cluster",
        &[("M", 2), ("H", 7168), ("NB", 8)],
        &[("eps", "1e-5")],
        ROUNDED_TWICE,
    ),
    (
        "kda_core",
        "specialized/kda_core.tile",
        "kda_core",
        &[("M", 2), ("H", 6), ("SLOTS", 3)],
        &[("lower", "-5"), ("eps", "1e-5")],
        ROUNDED_TWICE,
    ),
    (
        "router fused",
        "specialized/router.tile",
        "router",
        &[("M", 2), ("E", 896), ("H", 7168), ("K", 16)],
        &[("factor", "1")],
        FUNCTIONS,
    ),
    (
        "argmax_shard",
        "specialized/argmax_shard.tile",
        "argmax_shard",
        &[("M", 2), ("V", 10240)],
        &[("first", "51200")],
        EXACT,
    ),
    (
        "experts fused",
        "specialized/experts.tile",
        "experts",
        &[("M", 2), ("K", 4), ("E", 5), ("I", 192), ("Z", 3584)],
        &[("beta", "4"), ("linear_beta", "25")],
        BF16_BETWEEN,
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
    let files = kimi_k3::kernels::FILES.iter().chain(kimi_k3::kernels::SPECIALIZED);
    let all: Vec<(String, String)> =
        files.clone().map(|file| (file.name.to_owned(), file.text.to_owned())).collect();
    files
        .map(|file| Source {
            name: format!("kimi_k3/{}", file.name),
            folder: "kimi_k3",
            path: file.name.to_owned(),
            files: all.clone(),
            targets: Target::ALL.to_vec(),
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
            let text = kimi_k3::kernels::file(&source.path).unwrap().text;
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
        let text = folder(std::slice::from_ref(&gemv))["build.toml"].clone();
        assert!(text.starts_with(
            "[[set.gpu]]\nkernel = \"gemv_bf16\"\nname = \"kimi_k3_gemv.tile.0\"\nfile = \"kimi_k3/gemv.tile\"\n\
             bind = { M = 1, N = 3216, K = 7168 }\n"
        ));
        assert_eq!(text.matches("[[set.gpu]]").count(), gemv.cases.len());
    }
}
