//! Files of `tests/suite/sema`: what sema accepts, and what it refuses at which place.
//!
//! `//~ error[E0201]: text` expects a finding whose primary label starts on its line; `//@ target:`,
//! `//@ kernel:` and `//@ bind:` say what is instantiated. A finding without annotation fails.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the cases are files beside the crates")]

use std::path::{Path, PathBuf};

use kernel_dsl::ast::File;
use kernel_dsl::diag::Diagnostic;
use kernel_dsl::{FileId, SourceMap};
use kernel_ir::kernel::{Evict, Kernel, Op, Stmt, StmtKind};
use kernel_ir::sema::{self, Bindings, ConstValue, Program};
use kernel_ir::target::Target;

/// A file with everything that it imports.
struct Loaded {
    sources: SourceMap,
    root: FileId,
    program: Option<Program>,
    diagnostics: Vec<Diagnostic>,
}

fn parse(loaded: &mut Loaded, path: &Path, text: String) -> (FileId, File) {
    let id = loaded.sources.add(path.display().to_string(), text);
    let parsed = kernel_dsl::parse(&loaded.sources, id);
    loaded.diagnostics.extend(parsed.diagnostics);
    (id, parsed.file)
}

/// Parses a file and, through the folder that it stands in, its imports.
fn load(path: &Path) -> Loaded {
    let text = std::fs::read_to_string(path).unwrap();
    let mut loaded = Loaded {
        sources: SourceMap::new(),
        root: FileId(0),
        program: None,
        diagnostics: Vec::new(),
    };
    let (root, file) = parse(&mut loaded, path, text);
    loaded.root = root;
    let mut program = Program::new(file);
    let mut known: Vec<(PathBuf, FileId)> = vec![(path.canonicalize().unwrap(), root)];
    loop {
        let missing = program.missing_imports();
        if missing.is_empty() {
            break;
        }
        for import in missing {
            let importer = PathBuf::from(loaded.sources.name(import.importer));
            let target = importer.parent().unwrap().join(&import.path);
            let Ok(target) = target.canonicalize() else {
                program.fail(&import, "no such file");
                continue;
            };
            if let Some((_, id)) = known.iter().find(|(path, _)| *path == target) {
                assert!(program.link(&import, *id));
                continue;
            }
            let text = std::fs::read_to_string(&target).unwrap();
            let (id, file) = parse(&mut loaded, &target, text);
            known.push((target, id));
            program.add(&import, file);
        }
    }
    loaded.program = Some(program);
    loaded
}

#[derive(Default)]
struct Wanted {
    target: Option<Target>,
    kernel: Option<String>,
    bindings: Bindings,
    /// Line, severity, code, text.
    findings: Vec<(u32, String, String, String)>,
}

fn wanted(text: &str) -> Wanted {
    let mut wanted = Wanted::default();
    for (number, line) in (1..).zip(text.lines()) {
        if let Some((key, value)) =
            line.trim_start().strip_prefix("//@").and_then(|l| l.split_once(':'))
        {
            match key.trim() {
                "target" => wanted.target = Target::from_name(value.trim()),
                "kernel" => wanted.kernel = Some(value.trim().to_owned()),
                "bind" => {
                    for pair in value.split(',') {
                        let (name, value) = pair.split_once('=').unwrap();
                        wanted.bindings.set(name.trim(), value.parse::<ConstValue>().unwrap());
                    }
                }
                "test" => {}
                other => panic!("unknown directive {other}"),
            }
        }
        for annotation in line.split("//~").skip(1) {
            let up = annotation.chars().take_while(|&c| c == '^').count();
            let (head, text) = annotation[up..].split_once(':').unwrap();
            let (severity, code) = head.trim().strip_suffix(']').unwrap().split_once('[').unwrap();
            wanted.findings.push((
                number - u32::try_from(up).unwrap(),
                severity.to_owned(),
                code.to_owned(),
                text.trim().to_owned(),
            ));
        }
    }
    wanted
}

/// The kernels of a file as its directives ask for them, or what is wrong.
fn run(loaded: &mut Loaded, wanted: &Wanted) -> Vec<Kernel> {
    if !loaded.diagnostics.is_empty() {
        return Vec::new();
    }
    let checked = sema::check(loaded.program.as_ref().unwrap());
    let failed = checked.has_errors();
    loaded.diagnostics.extend(checked.diagnostics);
    if failed {
        return Vec::new();
    }
    let mut kernels = Vec::new();
    for template in &checked.templates {
        if wanted.kernel.as_ref().is_some_and(|name| name != template.name()) {
            continue;
        }
        let target = wanted.target.unwrap_or(template.targets()[0]);
        match sema::instantiate(template, &wanted.bindings, target) {
            Ok(kernel) => kernels.push(kernel),
            Err(found) => loaded.diagnostics.extend(found),
        }
    }
    kernels
}

fn show(sources: &SourceMap, diagnostic: &Diagnostic) -> String {
    let label = diagnostic.primary().unwrap();
    let place = sources.start(label.span);
    format!(
        "{}:{}:{}: {}[{}]: {} | {} | {:?} {:?}",
        sources.name(label.span.file),
        place.line,
        place.column,
        diagnostic.severity.word(),
        diagnostic.code,
        diagnostic.message,
        label.message,
        diagnostic.notes,
        diagnostic.help,
    )
}

/// What differs between the findings of a file and its annotations.
fn judge(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let wanted = wanted(&text);
    let mut loaded = load(path);
    run(&mut loaded, &wanted);
    let mut open = wanted.findings;
    let mut wrong = Vec::new();
    for diagnostic in &loaded.diagnostics {
        let label = diagnostic.primary().unwrap();
        let line = loaded.sources.start(label.span).line;
        let hit = open.iter().position(|(at, severity, code, text)| {
            label.span.file == loaded.root
                && *at == line
                && severity == diagnostic.severity.word()
                && code == diagnostic.code.name()
                && (diagnostic.message.contains(text) || label.message.contains(text))
        });
        match hit {
            Some(at) => {
                open.remove(at);
            }
            None => wrong.push(format!("unexpected: {}", show(&loaded.sources, diagnostic))),
        }
    }
    for (line, severity, code, text) in open {
        wrong.push(format!("{}:{line}: missing: {severity}[{code}]: {text}", path.display()));
    }
    wrong
}

fn files(folder: &str) -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/suite").join(folder);
    let entries = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "tile")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

fn judge_folder(folder: &str) {
    let wrong: Vec<String> = files(folder).iter().flat_map(|path| judge(path)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_that_are_refused_say_where_and_why() {
    judge_folder("sema/err");
}

#[test]
fn files_that_are_accepted_give_kernels_that_verify() {
    judge_folder("sema/ok");
    for path in files("sema/ok") {
        let wanted = wanted(&std::fs::read_to_string(&path).unwrap());
        let mut loaded = load(&path);
        let kernels = run(&mut loaded, &wanted);
        assert!(!kernels.is_empty(), "{}", path.display());
        for kernel in kernels {
            let found = kernel_ir::verify::kernel(kernel).diagnostics;
            let shown: Vec<String> = found.iter().map(|d| show(&loaded.sources, d)).collect();
            assert!(shown.is_empty(), "{}", shown.join("\n"));
        }
    }
}

/// The only kernel of a file of `sema/ok`, with further bindings.
fn kernel_of(file: &str, bindings: &[(&str, i64)]) -> Kernel {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/suite/sema/ok");
    let path = root.join(file);
    let mut loaded = load(&path);
    let mut wanted = wanted(&std::fs::read_to_string(&path).unwrap());
    for (name, value) in bindings {
        wanted.bindings.set(*name, ConstValue::Int(*value));
    }
    let mut kernels = run(&mut loaded, &wanted);
    let found: Vec<String> = loaded.diagnostics.iter().map(|d| show(&loaded.sources, d)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    kernels.pop().unwrap()
}

/// What a kernel does to memory and to assignable tiles, statement by statement; loops and choices are
/// indented.
fn outline(kernel: &Kernel) -> Vec<String> {
    let mut lines = Vec::new();
    walk(kernel, &kernel.body, "", &mut lines);
    lines
}

fn walk(kernel: &Kernel, stmts: &[Stmt], indent: &str, lines: &mut Vec<String>) {
    let inner = format!("{indent}  ");
    for stmt in stmts {
        let line = match &stmt.kind {
            StmtKind::Def { results, op } => {
                let value = &kernel.values[results[0]];
                match op {
                    Op::Load { access, .. } => {
                        format!("load {} {:?}", kernel.name_of(access.storage), value.shape)
                    }
                    Op::Contract { acc, .. } => {
                        format!("contract {:?} acc {}", value.shape, acc.is_some())
                    }
                    Op::Reduce { axis, .. } => format!("reduce axis {axis} {:?}", value.shape),
                    _ => continue,
                }
            }
            StmtKind::SetVar { var, slot, .. } => format!("{}@{slot} =", kernel.vars[*var].name),
            StmtKind::Store { access, .. } => {
                format!("store {}", kernel.name_of(access.storage))
            }
            StmtKind::Prefetch { .. } => "prefetch".to_owned(),
            StmtKind::Advance { .. } => "advance".to_owned(),
            StmtKind::CopyAsync { .. } => "copy.async".to_owned(),
            StmtKind::EmptyGroup => "empty group".to_owned(),
            StmtKind::Outgoing(_) => "copies out".to_owned(),
            StmtKind::Settle { pending, .. } => format!("settle but {pending}"),
            StmtKind::Sync => "sync".to_owned(),
            StmtKind::SyncCluster => "sync cluster".to_owned(),
            StmtKind::Signal(_) => "signal".to_owned(),
            StmtKind::Await(_) => "await".to_owned(),
            StmtKind::Warpgroup(_) => "warpgroup".to_owned(),
            StmtKind::Tensor(_) => "tensor memory".to_owned(),
            StmtKind::SyncRole => "sync of the role".to_owned(),
            StmtKind::Pipe(op) => format!("at {}", kernel.barriers[op.place().0].name),
            StmtKind::Role { role, body } => {
                lines.push(format!("{indent}role {}", kernel.roles[*role].name));
                walk(kernel, body, &inner, lines);
                continue;
            }
            StmtKind::GridWait => "grid_wait".to_owned(),
            StmtKind::GridLaunch => "grid_launch".to_owned(),
            StmtKind::Assert { message, .. } => format!("assert {message}"),
            StmtKind::Trace { event } => format!("trace {event}"),
            StmtKind::Printf { format, .. } => format!("printf {format}"),
            StmtKind::For { step, body, .. } => {
                lines.push(format!("{indent}for step {step}"));
                walk(kernel, body, &inner, lines);
                continue;
            }
            StmtKind::If { then_body, else_body, .. } => {
                lines.push(format!("{indent}if"));
                walk(kernel, then_body, &inner, lines);
                lines.push(format!("{indent}else"));
                walk(kernel, else_body, &inner, lines);
                continue;
            }
        };
        lines.push(format!("{indent}{line}"));
    }
}

#[test]
fn the_gemv_loads_weights_first_and_fills_its_rings() {
    let kernel = kernel_of("gemv.tile", &[("N", 16), ("K", 1536), ("NEXT", 4096)]);
    assert_eq!(kernel.export, "gemv_bf16");
    assert_eq!((kernel.launch.grid, kernel.launch.warps), ([2, 1, 1], 4));
    let bindings: Vec<String> = kernel.bindings.iter().map(|(n, v)| format!("{n} = {v}")).collect();
    assert_eq!(
        bindings.join(", "),
        "N = 16, K = 1536, ROWS = 8, STEP = 512, AHEAD = 4, NEXT = 4096"
    );
    assert_eq!(
        outline(&kernel),
        [
            "acc@0 =",
            "load W [8, 64, 8]",
            "w@0 =",
            "load W [8, 64, 8]",
            "w@1 =",
            "load W [8, 64, 8]",
            "w@2 =",
            "prefetch",
            "grid_wait",
            "load x [64, 8]",
            "xs@0 =",
            "load x [64, 8]",
            "xs@1 =",
            "contract [8, 64] acc true",
            "acc@0 =",
            "load x [64, 8]",
            "xs@0 =",
            "contract [8, 64] acc true",
            "acc@0 =",
            "contract [8, 64] acc true",
            "acc@0 =",
            "grid_launch",
            "reduce axis 1 [8]",
            "store y",
        ]
    );
    let none = kernel_of("gemv.tile", &[("NEXT", 0)]);
    assert!(!outline(&none).contains(&"prefetch".to_owned()), "extent 0: nothing to fetch");
    let weights = kernel.body.iter().find_map(|stmt| match &stmt.kind {
        StmtKind::Def { op: Op::Load { access, cache, .. }, .. } => Some((access, cache)),
        _ => None,
    });
    let (access, cache) = weights.unwrap();
    assert!(cache.no_allocate && cache.evict == Some(Evict::First));
    let digits: Vec<(u32, i64)> =
        access.axes.iter().flat_map(|a| &a.digits).map(|d| (d.extent, d.stride)).collect();
    assert_eq!(digits, [(16, 1536), (192, 8), (8, 1)]);
}

#[test]
fn the_norm_without_snapshots_has_nothing_of_them() {
    let two = outline(&kernel_of("attn_res_norm.tile", &[("NB", 2)]));
    let count = |lines: &[String], what: &str| lines.iter().filter(|l| l.starts_with(what)).count();
    assert_eq!(count(&two, "reduce axis 1 [2]"), 2);
    assert_eq!(count(&two, "reduce axis 0"), 5);
    assert_eq!(count(&two, "contract [512] acc false"), 1);
    assert_eq!(count(&two, "load blocks [2, 512]"), 1);
    let none = outline(&kernel_of("attn_res_norm.tile", &[]));
    assert_eq!(
        none,
        [
            "load wnp [512]",
            "load gamma [512]",
            "grid_wait",
            "load p [512]",
            "grid_launch",
            "reduce axis 0 []",
            "reduce axis 0 []",
            "store h",
            "reduce axis 0 []",
            "store out",
        ]
    );
    let first = kernel_of("attn_res_norm.tile", &[]);
    assert!(first.values.iter().all(|value| !value.shape.contains(&0)));
}

#[test]
fn loops_are_written_out_in_groups_and_what_is_left_stands_behind() {
    let kernel = kernel_of("loops.tile", &[]);
    let shown = outline(&kernel);
    let heads: Vec<&str> =
        shown.iter().map(String::as_str).filter(|l| l.starts_with("for") || *l == "if").collect();
    // n rounds; 2 groups of 4; groups of 2 in steps of 2 with one under a condition; steps of 4; 2 rounds
    assert_eq!(heads, ["for step 1", "for step 4", "for step 4", "if", "for step 4", "for step 1"]);
    let ring = shown.iter().filter(|line| line.trim_start().starts_with("r@")).count();
    assert_eq!(ring, 4 + 4 + 2, "four before the loop, four in it, two behind it");
}

#[test]
fn a_template_says_what_may_be_bound() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/suite/sema/ok");
    let loaded = load(&root.join("gemv.tile"));
    let checked = sema::check(loaded.program.as_ref().unwrap());
    let template = &checked.templates[0];
    assert_eq!(template.targets(), Target::ALL);
    let open: Vec<String> = template
        .const_params()
        .into_iter()
        .filter(|param| !param.has_default)
        .map(|param| param.name)
        .collect();
    assert_eq!(open, ["N", "K"]);
    let tunings = template.tunings();
    assert_eq!(tunings.len(), 3);
    assert_eq!(tunings[0].name, "ROWS");
    assert_eq!(tunings[0].values, [4, 8, 16].map(ConstValue::Int));
}

/// The codes that a text is refused with.
fn codes(text: &str) -> Vec<String> {
    let mut loaded = Loaded {
        sources: SourceMap::new(),
        root: FileId(0),
        program: None,
        diagnostics: Vec::new(),
    };
    let (_, file) = parse(&mut loaded, Path::new("text.tile"), text.to_owned());
    loaded.program = Some(Program::new(file));
    run(&mut loaded, &Wanted::default());
    loaded.diagnostics.iter().map(|d| d.code.name().to_owned()).collect()
}

#[test]
fn deep_and_long_texts_do_no_harm() {
    let kernel = |body: &str, rest: &str| {
        format!(
            "target sm_90a;\nkernel k(output y : gmem f32[1], scalar s : f32) \
             launch {{ grid: 1, warps: 1 }} {{ {body} }}\n{rest}"
        )
    };
    let chain = |depth: usize| {
        let calls: Vec<String> = (0..depth)
            .map(|i| format!("fn g{i}(x: f32) -> f32 {{ g{}(x) + 1.0 }}\n", i + 1))
            .collect();
        format!("{}fn g{depth}(x: f32) -> f32 {{ x }}\n", calls.concat())
    };
    let sum = |terms: usize| format!("store {} -> y[0];", vec!["s"; terms].join(" + "));
    assert_eq!(codes(&kernel(&sum(90), "")), [""; 0]);
    assert!(codes(&kernel(&sum(5000), "")).iter().all(|code| code == "E0005"));
    assert_eq!(codes(&kernel("store g0(s) -> y[0];", &chain(20))), [""; 0]);
    assert_eq!(codes(&kernel("store g0(s) -> y[0];", &chain(300))), ["E0005"]);
    let nested = |depth: usize| format!("{}s{}", "exp(".repeat(depth), ")".repeat(depth));
    for depth in [50, 110, 150, 190] {
        let found = codes(&kernel(&format!("store {} -> y[0];", nested(depth)), ""));
        assert!(found.iter().all(|code| code == "E0005"), "{depth}: {found:?}");
    }
    let blocks = format!("{}{}", "if s > 0.0 { ".repeat(60), "}".repeat(60));
    assert!(codes(&kernel(&blocks, "")).iter().all(|code| code == "E0005"));
    // 2^16 calls of one function through 16 others
    let doubling: Vec<String> = (0..16)
        .map(|i| format!("fn g{i}(x: f32) -> f32 {{ g{0}(x) + g{0}(x) }}\n", i + 1))
        .collect();
    let doubling = format!("{}fn g16(x: f32) -> f32 {{ exp(x) }}\n", doubling.concat());
    assert_eq!(codes(&kernel("store g0(s) -> y[0];", &doubling)), ["E0219"]);
}
