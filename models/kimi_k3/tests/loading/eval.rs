//! The sets of tasks: they load, and the rules give the reference model the score that it has.

use std::path::Path;

use kimi_k3::code::Code;
use kimi_k3::eval::{self, Agreement, Kind, Task};

use super::folder::{Folder, mini};

fn tasks(name: &str) -> Vec<Task> {
    eval::open(&mini().join(format!("eval/{name}.jsonl"))).unwrap()
}

#[test]
fn the_reference_scores_as_it_is_said_to() {
    for (name, kind, correct) in
        [("recall", Kind::Recall, 9), ("ith", Kind::Ith, 44), ("arith", Kind::Arith, 91)]
    {
        let tasks = tasks(name);
        assert_eq!(tasks.len(), 100);
        assert!(tasks.iter().all(|task| task.kind == kind));
        for task in &tasks {
            assert_eq!(
                task.is_correct(&task.reference_text),
                task.reference_correct,
                "{}",
                task.id
            );
            assert!(task.new_tokens() > 0);
        }
        assert_eq!(tasks.iter().filter(|task| task.reference_correct).count(), correct);
    }
}

#[test]
fn an_answer_must_be_whole() {
    let task = &tasks("ith")[0];
    assert_eq!(task.answer, "old 99");
    for (output, correct) in [
        (" old 99", true),
        (" old 99\nfirst", true),
        ("old 99", false),
        (" old 9", false),
        (" old 999", false),
        ("  old 99", false),
        ("", false),
    ] {
        assert_eq!(task.is_correct(output), correct, "{output}");
    }
    let task = &tasks("arith")[0];
    assert!(task.is_correct(" whatever #### 45\nQ"));
    assert!(!task.is_correct(" whatever #### 450\n") && !task.is_correct(" 45\n#### 45"));
}

#[test]
fn agreement_is_place_by_place() {
    let task = &tasks("recall")[0];
    let mut total = Agreement::default();
    total += task.agreement(&task.reference_ids);
    let mut other = task.reference_ids.clone();
    other[3] += 1;
    total += task.agreement(&other);
    total += task.agreement(&other[..4]);
    assert_eq!(total, Agreement { equal: 8 + 7 + 3, all: 24 });
}

#[test]
fn a_set_of_another_tokenizer_is_refused_with_its_task() {
    let task = &tasks("ith")[0];
    let path = Path::new("set.jsonl");
    task.check_prompt(task.prompt_tokens, path).unwrap();
    let error = task.check_prompt(task.prompt_tokens + 1, path).unwrap_err();
    assert_eq!(error.code(), Code::K0602);
    let start = format!("set.jsonl: task `{}` has a prompt of ", task.id);
    assert!(error.to_string().starts_with(&start), "{error}");
}

#[test]
fn a_broken_set_is_refused_with_its_line() {
    let whole = std::fs::read_to_string(mini().join("eval/arith.jsonl")).unwrap();
    let first = whole.lines().next().unwrap();
    let parse = |text: &str| eval::parse(text, Path::new("set.jsonl"));
    assert_eq!(parse(&format!("\n{first}\n\n{first}")).unwrap().len(), 2);
    let long = format!("\"{}\"", "x".repeat(10_000));
    for line in [
        "{",
        "3",
        "{}",
        &first.replace("\"arith\"", "\"riddle\""),
        &first.replace("\"arith\"", &long),
        &first.replace("\"final\"", "\"finale\""),
        &first.replace("\"reference_ids\": [", "\"reference_ids\": [-1, "),
        &first.replace("\"reference_ids\": [228", "\"reference_ids\": [], \"x\": [228"),
    ] {
        let error = parse(&format!("{first}\n{line}")).unwrap_err();
        assert_eq!(error.code(), Code::K0602);
        let message = error.to_string();
        assert!(message.starts_with("set.jsonl: line 2 is no task: "), "{message}");
        assert!(message.matches("line").count() == 1 && message.len() < 500, "{message}");
    }
    for text in ["", "\n \n"] {
        let error = parse(text).unwrap_err();
        assert_eq!(error.code(), Code::K0602);
        assert_eq!(error.to_string(), "set.jsonl holds no task");
    }
    let folder = Folder::new();
    folder.write("tasks.jsonl", b"\n\n\xff\n");
    let error = eval::open(&folder.path().join("tasks.jsonl")).unwrap_err();
    assert_eq!(error.code(), Code::K0602);
    assert!(error.to_string().contains("line 3"), "{error}");
    let error = eval::open(Folder::new().path()).unwrap_err();
    assert_eq!(error.code(), Code::K0601);
}
