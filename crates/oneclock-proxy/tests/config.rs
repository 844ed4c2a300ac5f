//! The configuration from outside: the guide's files are read and fit the schema; no text makes reading panic, and what is
//! read holds what it promises.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use oneclock_proxy::config::{Config, schema};
use serde_json::Value;

const GUIDE: &str = include_str!("../../../docs/guide/proxy-config.md");
const KEYS: &str = include_str!("../../../docs/guide/proxy-idempotency.md");

/// The YAML blocks of the guides.
fn files() -> Vec<&'static str> {
    let blocks = [GUIDE, KEYS].into_iter().flat_map(|guide| guide.split("```yaml\n").skip(1));
    blocks.map(|block| block.split("```").next().unwrap()).collect()
}

// === Schema ===

/// What in a value a schema does not allow. Knows the words that ours uses, and no others.
fn wrong(schema: &Value, value: &Value, root: &Value) -> Option<String> {
    schema.as_object().unwrap().iter().find_map(|(word, says)| wrong_by(word, says, schema, value, root))
}

/// What one word of a schema does not allow.
fn wrong_by(word: &str, says: &Value, schema: &Value, value: &Value, root: &Value) -> Option<String> {
    match word {
        "$ref" => {
            let pointer = says.as_str().unwrap().strip_prefix('#').unwrap();
            wrong(root.pointer(pointer).unwrap(), value, root)
        }
        "type" => {
            let is = match says.as_str().unwrap() {
                "object" => value.is_object(),
                "array" => value.is_array(),
                "string" => value.is_string(),
                "integer" => value.is_u64(),
                "number" => value.is_number(),
                "boolean" => value.is_boolean(),
                other => panic!("{other}"),
            };
            (!is).then(|| format!("{value} is no {says}"))
        }
        "properties" => says.as_object().unwrap().iter().find_map(|(key, schema)| {
            let wrong = wrong(schema, value.get(key)?, root)?;
            Some(format!("{key}: {wrong}"))
        }),
        "required" => {
            let missing = says.as_array().unwrap().iter().find(|key| value.get(key.as_str().unwrap()).is_none());
            missing.map(|key| format!("{key} is missing"))
        }
        "additionalProperties" => value.as_object()?.iter().find_map(|(key, value)| {
            if schema.get("properties").is_some_and(|known| known.get(key).is_some()) {
                return None;
            }
            if *says == Value::Bool(false) { Some(format!("{key} is not known")) } else { wrong(says, value, root) }
        }),
        "items" => value.as_array()?.iter().find_map(|value| wrong(says, value, root)),
        "minItems" => value.as_array()?.is_empty().then(|| "it is empty".to_owned()),
        "enum" => (!says.as_array().unwrap().contains(value)).then(|| format!("{value} is none of {says}")),
        "minimum" => (value.as_u64()? < says.as_u64().unwrap()).then(|| format!("{value} is too little")),
        "maximum" => (value.as_u64()? > says.as_u64().unwrap()).then(|| format!("{value} is too much")),
        "anyOf" => {
            let mut all = says.as_array().unwrap().iter().map(|schema| wrong(schema, value, root));
            all.all(|wrong| wrong.is_some()).then(|| format!("{value} is none of what it may be"))
        }
        "pattern" => (!is_duration(value.as_str()?)).then(|| format!("{value} is no duration")),
        "if" => {
            let then = if wrong(says, value, root).is_none() { "then" } else { "else" };
            wrong(&schema[then], value, root)
        }
        "then" | "else" | "$schema" | "$defs" | "title" | "description" | "examples" => None,
        other => panic!("{other} is not known here"),
    }
}

/// The only pattern that there is: GEP-2257.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    for _ in 0..4 {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = rest.len() - after.len();
        let unit = ["ms", "h", "m", "s"].into_iter().find_map(|unit| after.strip_prefix(unit));
        match unit {
            Some(next) if (1..=5).contains(&digits) => rest = next,
            _ => return false,
        }
        if rest.is_empty() {
            return true;
        }
    }
    false
}

/// What in a file its schema does not allow.
#[track_caller]
fn fits(file: &str) -> Option<String> {
    let schema = schema();
    let documents: Vec<Value> = serde_saphyr::from_multiple(file).unwrap();
    documents.iter().find_map(|document| wrong(&schema, document, &schema))
}

#[test]
fn the_files_of_the_guide_fit_the_schema_and_are_read() {
    let files = files();
    assert_eq!(files.len(), 4);
    for file in files {
        assert_eq!(fits(file), None, "{file}");
        match Config::parse(file) {
            Ok(config) => assert_eq!(fits(&config.to_string()), None, "{config}"),
            Err(refused) => panic!("{refused}\n{file}"),
        }
    }
}

#[test]
fn what_does_not_fit_the_schema_is_not_read_either() {
    let file = files()[0];
    for (line, to) in [
        ("url:", "ulr:"),
        ("request: 2s", "request: 2"),
        ("attempts: 2", "attempts: 10"),
        ("attempts: 2", "codes: [200]"),
        ("attempts: 2", "codes: []"),
        ("- upstream: app", "- name: app"),
        ("- upstream: app", "- upstream: app\n  mode: off"),
        ("- upstream: app", "- upstream: app\n  kind: { streaming: { idle: 1s } }"),
        ("- upstream: app", "- upstream: app\n  concurrency: none"),
    ] {
        assert!(file.contains(line), "{line}");
        let changed = file.replacen(line, to, 1);
        assert!(fits(&changed).is_some(), "{changed}");
        assert!(Config::parse(&changed).is_err(), "{changed}");
    }
}

// === Any text ===

/// Numbers that are the same in every run: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(most.max(1)).unwrap()).unwrap()
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// What YAML and this file's values are made of.
const BITS: &[&str] = &[
    " ",
    "\n",
    "\n  ",
    "\n- ",
    ": ",
    ":",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    ">\n",
    "---\n",
    "...\n",
    "!!str ",
    "!x ",
    "? ",
    "%YAML 1.2\n",
    "\t",
    "\r",
    "\0",
    "\u{feff}",
    "é",
    "𝄞",
    "~",
    "null",
    "none",
    "0s",
    "99999h",
    "1ms",
    "-1",
    "18446744073709551616",
    "1e999",
    ".nan",
    "0x",
    "true",
    "/",
    "//",
    "%2",
    "@",
    "://",
    "listeners",
    "upstreams",
    "routes",
    "upstream",
    "url",
    "http://",
    "timeouts",
    "request",
    "matches",
    "path",
    "kind",
    "HTTPRoute",
    "apiVersion",
    "gateway.networking.k8s.io/v1",
    "spec",
    "rules",
    "backendRefs",
    "retry",
    "codes",
    "app",
];

/// What holds of every configuration that was read.
#[track_caller]
fn sound(text: &str) -> bool {
    let config = match Config::parse(text) {
        Ok(config) => config,
        Err(refused) => {
            assert!(refused.line.is_some() && refused.column.is_some() && !refused.why.is_empty(), "{refused}\n{text}");
            return false;
        }
    };
    assert!(!config.listeners.is_empty() && !config.routes.is_empty(), "{text}");
    for route in &config.routes {
        assert!(config.upstreams.contains_key(&route.upstream), "{text}");
        assert!(route.limits().check().is_ok() && route.admission(2).check().is_ok(), "{text}");
        assert!(route.retry_policy().is_ok(), "{text}");
        assert!(
            route.ceiling > Duration::ZERO && route.backend_request.is_none_or(|one| one <= route.ceiling),
            "{text}"
        );
        let first = &route.matches[0];
        assert!(!first.matches("relative", &http::Method::GET) || first.matches("/", &http::Method::GET));
    }
    assert_eq!(fits(text), None, "it was read, and the schema does not allow it:\n{text}");
    let printed = config.to_string();
    assert_eq!(Config::parse(&printed).map(|config| config.to_string()), Ok(printed.clone()), "{text}");
    true
}

#[test]
fn no_text_makes_reading_panic() {
    let mut numbers = Numbers(1);
    for _ in 0..4_000 {
        let length = numbers.below(40);
        let text: String = (0..length).map(|_| numbers.pick(BITS)).collect();
        sound(&text);
        let any: String =
            (0..length).filter_map(|_| char::from_u32(u32::try_from(numbers.next() % 0x11_0000).unwrap())).collect();
        sound(&any);
    }
}

#[test]
fn a_file_that_was_damaged_is_refused_or_sound() {
    let mut numbers = Numbers(2);
    let (mut read, mut refused) = (0, 0);
    for file in files() {
        for end in (0..file.len()).filter(|end| file.is_char_boundary(*end)).step_by(7) {
            sound(&file[..end]);
        }
        for _ in 0..700 {
            let mut text = file.to_owned();
            for _ in 0..=numbers.below(3) {
                let mut at = numbers.below(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                match numbers.below(4) {
                    0 => text.insert_str(at, numbers.pick(BITS)),
                    1 => drop(text.remove(at)),
                    2 => {
                        let lines: Vec<&str> = text.lines().collect();
                        let (from, to) = (numbers.below(lines.len()), numbers.below(lines.len()));
                        let mut moved = lines.clone();
                        moved.insert(to, lines[from]);
                        text = moved.join("\n");
                    }
                    _ => {
                        let mut lines: Vec<&str> = text.lines().collect();
                        lines.remove(numbers.below(lines.len()));
                        text = lines.join("\n");
                        text.push('\n');
                    }
                }
            }
            if sound(&text) { read += 1 } else { refused += 1 }
        }
    }
    assert!(read > 100 && refused > 100, "{read} were read, {refused} refused: the changes are too small or too large");
}
