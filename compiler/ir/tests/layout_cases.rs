//! Every case of `tests/data/layout/layout_algebra.jsonl`, through the library and the notation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kernel_ir::layout::{
    AnswerOptions, AnyLayout, ComposedLayout, IntTuple, Layout, LayoutError, Swizzle, Tiler,
    answer_line, coalesce, complement, compose, filter, left_inverse, logical_divide,
    logical_product, right_inverse, tiled_divide, tiled_product, zipped_divide, zipped_product,
};
use serde_json::Value;

const CASES: &str = include_str!("../../../tests/data/layout/layout_algebra.jsonl");
const JSON_MAP: AnswerOptions = AnswerOptions { json: true, map: true };
const TEXT: AnswerOptions = AnswerOptions { json: false, map: false };

fn cases() -> Vec<Value> {
    let parsed = CASES.lines().map(|line| serde_json::from_str(line).unwrap());
    parsed.filter(|case: &Value| case.get("op").is_some()).collect()
}

fn tuple(value: &Value) -> IntTuple {
    match value {
        Value::Array(parts) => IntTuple::Tuple(parts.iter().map(tuple).collect()),
        number => IntTuple::Int(number.as_i64().unwrap()),
    }
}

fn layout(value: &Value) -> Layout {
    Layout::new(&tuple(&value["shape"]), &tuple(&value["stride"])).unwrap()
}

fn tiler(value: &Value) -> Tiler {
    match value {
        Value::Array(parts) => Tiler::Modes(parts.iter().map(tiler).collect()),
        Value::Object(_) => Tiler::Layout(layout(value)),
        number => Tiler::Int(number.as_i64().unwrap()),
    }
}

fn by_library(case: &Value) -> Result<AnyLayout, LayoutError> {
    let args = case["args"].as_array().unwrap();
    let first = layout(&args[0]);
    let second = || tiler(&args[1]);
    let number = |value: &Value| value.as_i64().unwrap();
    let result = match case["op"].as_str().unwrap() {
        "coalesce" => Ok(coalesce(&first)),
        "filter" => Ok(filter(&first)),
        "right_inverse" => Ok(right_inverse(&first)),
        "left_inverse" => left_inverse(&first),
        "complement" => complement(&first, args.get(1).map_or(1, number)),
        "composition" => compose(&first, &second()),
        "logical_divide" => logical_divide(&first, &second()),
        "zipped_divide" => zipped_divide(&first, &second()),
        "tiled_divide" => tiled_divide(&first, &second()),
        "logical_product" => logical_product(&first, &second()),
        "zipped_product" => zipped_product(&first, &second()),
        "tiled_product" => tiled_product(&first, &second()),
        "swizzled_layout" => {
            let parts: Vec<i64> = case["swizzle"].as_array().unwrap().iter().map(number).collect();
            let swizzle = Swizzle::new(parts[0], parts[1], parts[2])?;
            let composed = ComposedLayout::new(swizzle, number(&case["offset"]), first)?;
            return Ok(composed.into());
        }
        other => panic!("the cases name an unknown operation {other}"),
    };
    result.map(AnyLayout::from)
}

fn notation(value: &Value) -> String {
    match value {
        Value::Object(_) => format!("{}:{}", tuple(&value["shape"]), tuple(&value["stride"])),
        Value::Array(parts) => {
            let inside: Vec<String> = parts.iter().map(notation).collect();
            format!("({}{})", inside.join(", "), if inside.len() == 1 { "," } else { "" })
        }
        number => number.to_string(),
    }
}

fn expression(case: &Value) -> String {
    let args: Vec<String> = case["args"].as_array().unwrap().iter().map(notation).collect();
    match case["op"].as_str().unwrap() {
        "swizzled_layout" => {
            let swizzle = case["swizzle"].as_array().unwrap();
            let parts: Vec<String> = swizzle.iter().map(Value::to_string).collect();
            format!("swizzle({}) o {} o {}", parts.join(","), case["offset"], args[0])
        }
        op => format!("{op}({})", args.join(", ")),
    }
}

#[test]
fn the_library_gives_every_result() {
    let cases = cases();
    assert!(cases.len() > 400);
    for case in cases {
        match by_library(&case) {
            Err(error) => {
                assert_eq!(case["error"], true, "{case}: {error}");
                assert_eq!(error.code(), "E0301", "{case}: {error}");
            }
            Ok(result) => {
                assert_eq!(case["error"], Value::Null, "{case}: {result}");
                if let Some(expected) = case.get("result") {
                    assert_eq!(result.to_string(), notation(expected), "{case}");
                }
                if let Some(expected) = case.get("map") {
                    let map = Value::from(result.map().unwrap());
                    assert_eq!(map, *expected, "{case}: {result}");
                }
            }
        }
    }
}

#[test]
fn the_line_interface_gives_every_result() {
    for case in cases() {
        let text = expression(&case);
        let answer = answer_line(&text, JSON_MAP);
        let value: Value = serde_json::from_str(&answer.text).unwrap();
        if case["error"] == true {
            assert!(answer.is_error, "{text}: {value}");
            assert_eq!(value["error"]["code"], "E0301", "{text}");
            continue;
        }
        if let Some(expected) = case.get("map") {
            assert_eq!(value["map"], *expected, "{text}");
        }
        let shown = answer_line(&text, TEXT);
        assert!(!shown.is_error, "{text}: {}", shown.text);
        let again = answer_line(&shown.text, TEXT);
        assert_eq!(shown.text, again.text, "what is printed parses back");
        match case.get("result") {
            Some(expected) => {
                let value: Value = serde_json::from_str(
                    &answer_line(&text, AnswerOptions { json: true, map: false }).text,
                )
                .unwrap();
                assert_eq!(value, *expected, "{text}");
                assert_eq!(shown.text, notation(expected), "{text}");
            }
            None => {
                assert_eq!(value["swizzle"], case["swizzle"], "{text}");
                assert_eq!(value["offset"], case["offset"], "{text}");
                assert_eq!(value["shape"], case["args"][0]["shape"], "{text}");
                assert_eq!(value["stride"], case["args"][0]["stride"], "{text}");
            }
        }
    }
}
