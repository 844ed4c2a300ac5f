//! `docs/guide/proxy-config.md` and the schema list the keys that are read, and no others.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{EVERYTHING, read};
use crate::config::httproute::HTTP_ROUTE;
use crate::config::keys::FILE_SHAPE;
use crate::config::node::{Node, Value, documents};
use crate::config::shape::{Is, Otherwise, Shape};

const GUIDE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/proxy-config.md"));

/// Every mapping below one, each once, with where it is.
fn shapes(path: &str, shape: &'static Shape, all: &mut Vec<(String, &'static Shape)>) {
    if all.iter().any(|(_, known)| std::ptr::eq(*known, shape)) {
        return;
    }
    all.push((path.to_owned(), shape));
    for key in shape.keys {
        below(&format!("{path}.{}", key.name), &key.is, all);
    }
}

fn below(path: &str, is: &'static Is, all: &mut Vec<(String, &'static Shape)>) {
    match is {
        Is::Map(shape) => shapes(path, shape, all),
        Is::ByName(shape) => shapes(&format!("{path}.NAME"), shape, all),
        Is::List(of) => below(&format!("{path}[]"), of, all),
        Is::Either(of) => of.iter().for_each(|is| below(path, is, all)),
        Is::Anything | Is::Text(_) | Is::Duration | Is::Count(..) | Is::Share | Is::Flag | Is::Word(_) => {}
    }
}

fn in_words(is: &Is) -> String {
    match is {
        Is::Anything => "anything".to_owned(),
        Is::Text(example) => format!("text, such as `{example}`"),
        Is::Duration => "duration".to_owned(),
        Is::Count(least, most) => format!("{least} to {most}"),
        Is::Flag => "`true` or `false`".to_owned(),
        Is::Share => "a number from 0 to 1".to_owned(),
        Is::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
        Is::Map(_) => "mapping".to_owned(),
        Is::ByName(_) => "mapping by name".to_owned(),
        Is::List(of) => format!("list of: {}", in_words(of)),
        Is::Either(of) => of.iter().map(in_words).collect::<Vec<_>>().join("; or "),
    }
}

/// The tables of the guide, as they should be.
fn tables() -> String {
    let mut out = String::new();
    for root in [("", &FILE_SHAPE), ("HTTPRoute", &HTTP_ROUTE)] {
        let mut all = Vec::new();
        shapes(root.0, root.1, &mut all);
        for (path, shape) in all {
            let path = path.trim_start_matches('.');
            // Described where routes are.
            if path.starts_with("HTTPRoute") && ["matches", "timeouts", "retry"].iter().any(|of| path.contains(of)) {
                continue;
            }
            let title = if path.is_empty() { "The document".to_owned() } else { format!("`{path}`") };
            write!(out, "### {title}\n\n| key | value | without it | meaning |\n|---|---|---|---|\n").unwrap();
            for key in shape.keys {
                let without = match key.otherwise {
                    Otherwise::Required => "**required**",
                    Otherwise::Is(default) => default,
                };
                writeln!(out, "| `{}` | {} | {without} | {} |", key.name, in_words(&key.is), key.says).unwrap();
            }
            for (name, instead) in shape.unsupported {
                writeln!(out, "| `{name}` | refused | | {instead} |").unwrap();
            }
            out.push('\n');
        }
    }
    out
}

#[test]
fn the_guide_lists_the_keys_that_are_read() {
    let (_, after) = GUIDE.split_once("<!-- keys -->\n\n").unwrap();
    let (listed, _) = after.split_once("<!-- end of keys -->").unwrap();
    let wanted = tables();
    if listed != wanted {
        let line = wanted.lines().zip(listed.lines()).find(|(wanted, listed)| wanted != listed);
        let (wanted_line, listed_line) = line.unwrap_or(("(the end)", "(the end)"));
        panic!(
            "docs/guide/proxy-config.md differs from the code. The first line that does:\n is  {listed_line}\n be  \
             {wanted_line}\n\nAll of it as it should be:\n{wanted}"
        );
    }
}

#[test]
fn the_guides_example_is_the_file_with_every_key() {
    assert!(
        GUIDE.contains(EVERYTHING.trim_start_matches("# Every key that there is.\n")),
        "docs/guide/proxy-config.md"
    );
}

/// The paths of all keys of a document. Names that the file chooses are `NAME`, items of lists `[]`.
fn paths(at: &str, node: &Node, all: &mut BTreeSet<String>) {
    match &node.value {
        Value::Map(entries) => {
            for (key, value) in entries {
                let name = if at == ".upstreams" { "NAME" } else { &key.text };
                let path = format!("{at}.{name}");
                paths(&path, value, all);
                all.insert(path);
            }
        }
        Value::List(items) => items.iter().for_each(|item| paths(&format!("{at}[]"), item, all)),
        Value::Null | Value::Scalar(_) => {}
    }
}

/// The same of a schema.
fn paths_of_schema(at: &str, schema: &serde_json::Value, all: &mut BTreeSet<String>) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        all.insert(format!("{at}.{key}"));
        paths_of_schema(&format!("{at}.{key}"), value, all);
    }
    if schema["additionalProperties"].is_object() {
        all.insert(format!("{at}.NAME"));
        paths_of_schema(&format!("{at}.NAME"), &schema["additionalProperties"], all);
    }
    if schema["items"].is_object() {
        paths_of_schema(&format!("{at}[]"), &schema["items"], all);
    }
    for one in schema["anyOf"].as_array().into_iter().flatten() {
        paths_of_schema(at, one, all);
    }
}

#[test]
fn every_key_of_the_schema_is_in_the_example_and_the_other_way_round() {
    let mut of_schema = BTreeSet::new();
    paths_of_schema("", &crate::config::schema()["$defs"]["configuration"], &mut of_schema);
    let mut of_file = BTreeSet::new();
    paths("", &documents(EVERYTHING).unwrap()[0], &mut of_file);
    assert_eq!(of_schema, of_file);
    assert!(of_schema.len() > 50, "{}", of_schema.len());

    // What is printed has no key that the schema does not have, and only those of the file that mean the same twice less.
    let mut of_print = BTreeSet::new();
    paths("", &documents(&read(EVERYTHING).to_string()).unwrap()[0], &mut of_print);
    let not_printed: Vec<&String> = of_schema.difference(&of_print).collect();
    assert_eq!(not_printed, [".routes[].timeouts.request"], "it is whenAbsent and ceiling");
    assert!(of_print.is_subset(&of_schema));
}
