//! What an audit says.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::code::Code;

/// The judgement of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything was understood and nothing is wrong.
    Clean,
    /// At least one finding.
    Findings,
    /// Something was not understood, so that the file cannot be called clean.
    NotJudged,
}

impl Verdict {
    /// Exit code of the command: 0 clean, 1 findings, 3 not judged. Wrong usage is 2.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Clean => 0,
            Verdict::Findings => 1,
            Verdict::NotJudged => 3,
        }
    }
}

/// Exit code for wrong usage.
pub const EXIT_USAGE: u8 = 2;

/// A line of PTX.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Line, from 1.
    pub line: u32,
    /// The instruction.
    pub text: String,
}

/// Addresses in the machine code, as `0x00d0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SassSpot {
    /// Of the load, or of the load that it was merged with.
    pub load: String,
    /// Of the wait; none where a cubin has none ahead of the load.
    pub wait: Option<String>,
}

/// A finding or a note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Which kind.
    #[serde(serialize_with = "print_code")]
    pub code: Code,
    /// The kernel.
    pub kernel: String,
    /// The parameter that is read; none where the address cannot be traced.
    pub param: Option<String>,
    /// The load, where the file is PTX.
    pub ptx: Option<Spot>,
    /// The wait that the load is judged by, where the file is PTX and there is one.
    pub wait: Option<Spot>,
    /// Places in the machine code: for a moved load, and for every load of a cubin.
    pub sass: Option<SassSpot>,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do.
    pub help: String,
}

fn print_code<S: serde::Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.code())
}

/// The result of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The judgement.
    pub verdict: Verdict,
    /// What is wrong.
    pub findings: Vec<Item>,
    /// What is worth knowing: reads ahead of a wait, moved static loads, what was not understood.
    pub notes: Vec<Item>,
    /// What the judgement rests on.
    pub assumed: Vec<String>,
}

impl Report {
    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self)
            .expect("a report holds strings and numbers, which always serialise")
    }

    /// The report as a SARIF log, for tools that show findings beside the text.
    pub fn to_sarif(&self, file: &str) -> String {
        let results: Vec<serde_json::Value> = [("error", &self.findings), ("note", &self.notes)]
            .into_iter()
            .flat_map(|(level, items)| {
                items.iter().map(move |item| sarif_result(level, item, file))
            })
            .collect();
        let rules: Vec<serde_json::Value> = Code::ALL
            .iter()
            .map(|code| json!({ "id": code.code(), "shortDescription": { "text": code.title() } }))
            .collect();
        let log = json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": { "driver": { "name": "kernelc audit", "rules": rules } },
                "results": results,
            }],
        });
        format!("{log:#}")
    }

    /// The report as text for a terminal, without colours.
    pub fn to_text(&self, file: &str) -> String {
        let mut text = String::new();
        for (kind, items) in [("error", &self.findings), ("note", &self.notes)] {
            for item in items {
                write_item(&mut text, file, kind, item);
            }
        }
        for line in &self.assumed {
            let _ = writeln!(text, "assumed: {line}");
        }
        let summary = match self.verdict {
            Verdict::Clean => "clean".to_owned(),
            Verdict::Findings => format!("findings: {}", self.findings.len()),
            Verdict::NotJudged => "not judged".to_owned(),
        };
        let _ = writeln!(text, "{file}: {summary}");
        text
    }
}

fn sarif_result(level: &str, item: &Item, file: &str) -> serde_json::Value {
    let mut place = json!({ "artifactLocation": { "uri": file } });
    if let Some(spot) = &item.ptx {
        place["region"] = json!({ "startLine": spot.line, "snippet": { "text": spot.text } });
    }
    json!({
        "ruleId": item.code.code(),
        "level": level,
        "message": { "text": format!("{}: {}", item.kernel, item.message) },
        "locations": [{ "physicalLocation": place }],
        "properties": { "param": item.param, "wait": item.wait, "sass": item.sass },
    })
}

fn write_item(text: &mut String, file: &str, kind: &str, item: &Item) {
    let _ = writeln!(text, "{kind}[{}]: {}", item.code.code(), item.message);
    let param = item.param.as_ref().map(|p| format!(", parameter `{p}`")).unwrap_or_default();
    let place = item.ptx.as_ref().map(|spot| format!(":{}", spot.line)).unwrap_or_default();
    let _ = writeln!(text, "  --> {file}{place}, kernel `{}`{param}", item.kernel);
    if let Some(spot) = &item.ptx {
        let _ = writeln!(text, "   | {:>5} | {}", spot.line, spot.text);
    }
    if let Some(spot) = &item.wait {
        let _ = writeln!(text, "   | {:>5} | {}   <- the wait", spot.line, spot.text);
    }
    if let Some(sass) = &item.sass {
        let wait = sass.wait.as_ref().map(|wait| format!(", wait at {wait}")).unwrap_or_default();
        let _ = writeln!(text, "   = machine code: load at {}{wait}", sass.load);
    }
    if !item.help.is_empty() {
        let _ = writeln!(text, "   = help: {}", item.help);
    }
}
