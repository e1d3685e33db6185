//! Every case file with every declaration, judged from PTX alone.
#![expect(clippy::unwrap_used, reason = "what is not as expected fails the test")]

#[path = "support/cases.rs"]
mod support;

use support::{audit, declared, rows, text, word};

fn fail(problems: &[String]) {
    assert!(problems.is_empty(), "{} wrong:\n{}", problems.len(), problems.join("\n"));
}

#[test]
fn one_kernel_a_file() {
    let mut problems = Vec::new();
    for row in rows("basic") {
        if row.value.get("kernels").is_some() {
            continue;
        }
        let ptx = text("basic", &row.file);
        let px = vec!["px".to_owned()];
        let runs = [
            ("undeclared", audit(&ptx, &row.target, &[], &[], None)),
            ("mutable", audit(&ptx, &row.target, &[], &px, None)),
            ("static", audit(&ptx, &row.target, &px, &[], None)),
        ];
        for (field, report) in runs {
            let due = row.value[field].as_str().unwrap();
            let is = word(&report, None);
            if is != due || report.verdict == kernel_audit::Verdict::NotJudged {
                problems.push(format!(
                    "{} {field}: {is}, due {due}\n{}",
                    row.file,
                    report.to_text("")
                ));
            }
        }
    }
    fail(&problems);
}

#[test]
fn hard_files() {
    check_folder("hard");
}

fn check_folder(folder: &str) {
    let mut problems = Vec::new();
    for row in rows(folder) {
        let ptx = text(folder, &row.file);
        let open = audit(&ptx, &row.target, &[], &[], None);
        let mut check =
            |what: &str, report: &kernel_audit::Report, kernel: Option<&str>, due: &str| {
                let is = match report.verdict {
                    kernel_audit::Verdict::NotJudged => "not judged",
                    _ => word(report, kernel),
                };
                if is != due {
                    problems.push(format!(
                        "{} {what}: {is}, due {due}\n{}",
                        row.file,
                        report.to_text("")
                    ));
                }
            };
        if let Some(due) = row.value.get("undeclared").and_then(|v| v.as_str()) {
            check("undeclared", &open, None, due);
        }
        for (kernel, due) in
            row.value.get("kernels").and_then(|v| v.as_object()).into_iter().flatten()
        {
            let due = due.as_str().unwrap();
            check(kernel, &open, Some(kernel), due);
        }
        if let Some(field) = row.value.get("mutable") {
            let (names, due) = declared(field);
            check("mutable", &audit(&ptx, &row.target, &[], &names, None), None, &due);
        }
        if let Some(field) = row.value.get("static") {
            let (names, due) = declared(field);
            check("static", &audit(&ptx, &row.target, &names, &[], None), None, &due);
        }
    }
    fail(&problems);
}

#[test]
fn own_files() {
    check_folder("own");
}
