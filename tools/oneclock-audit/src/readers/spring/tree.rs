//! Spring's properties as a tree, however they are written: nested or dotted, in YAML or `.properties`, `readTimeout`,
//! `read-timeout` or `read_timeout`. Every value keeps its place.

use std::collections::BTreeMap;

use java_properties::{LineContent, PropertiesIter};
use oneclock_yaml::{Node, Value};

use crate::source::{Place, Source};

/// Deeper than what any property is; what lies below is not kept.
const DEEPEST: usize = 48;

/// A property, and what lies below it.
#[derive(Default)]
pub(super) struct Tree {
    /// The last part of its name, as it is written.
    pub(super) name: String,
    value: Option<(String, Place)>,
    place: Option<Place>,
    below: BTreeMap<String, Self>,
}

/// What is no `.properties`.
pub(super) struct Wrong {
    /// The line, from one.
    pub(super) line: usize,
    /// In the parser's words.
    pub(super) says: String,
}

impl Tree {
    /// A document of YAML.
    pub(super) fn of_yaml(source: &Source, document: &Node) -> Self {
        let mut tree = Self::default();
        tree.take(source, document, 0);
        tree
    }

    /// The documents of a `.properties` file: `#---` and `!---` stand between two.
    pub(super) fn of_properties(source: &Source) -> (Vec<Self>, Option<Wrong>) {
        let mut trees = vec![Self::default()];
        let lines: Vec<&str> = source.text.lines().collect();
        // Keys and values that matter here are ASCII, which reads the same in every encoding of these files.
        for line in PropertiesIter::new(source.text.as_bytes()) {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    let wrong = Wrong { line: error.line_number().unwrap_or(1), says: error.to_string() };
                    return (trees, Some(wrong));
                }
            };
            let place = source.place(line.line_number(), 1, 1);
            match line.content() {
                LineContent::Comment(_) => {
                    // Only at the very beginning of the line; the parser has taken away what stood before it.
                    let written =
                        line.line_number().checked_sub(1).and_then(|at| lines.get(at)).map(|text| text.trim_end());
                    if matches!(written, Some("#---" | "!---")) {
                        trees.push(Self::default());
                    }
                }
                LineContent::KVPair(key, value) => {
                    let place = Place { width: u32::try_from(key.chars().count().max(1)).unwrap_or(1), ..place };
                    if let Some((tree, _)) = trees.last_mut().and_then(|tree| tree.reach(key, &place, 0)) {
                        tree.value = Some((value.trim().to_owned(), place));
                    }
                }
            }
        }
        (trees, None)
    }

    fn take(&mut self, source: &Source, node: &Node, depth: usize) {
        match &node.value {
            Value::Null => {}
            Value::Scalar(text) => self.value = Some((text.clone(), source.of(node))),
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Some((tree, depth)) = self.reach(&format!("[{index}]"), &source.of(item), depth) {
                        tree.take(source, item, depth);
                    }
                }
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    if let Some((tree, depth)) = self.reach(&key.text, &source.of_key(key), depth) {
                        tree.take(source, value, depth);
                    }
                }
            }
        }
    }

    /// The tree at a name below this one, made where it is not there yet; `None` where it would lie too deep.
    fn reach(&mut self, name: &str, place: &Place, depth: usize) -> Option<(&mut Self, usize)> {
        let (mut tree, mut depth) = (self, depth);
        for part in parts(name) {
            depth += 1;
            if depth > DEEPEST {
                return None;
            }
            tree =
                tree.below.entry(canonical(part)).or_insert_with(|| Self { name: part.to_owned(), ..Self::default() });
            tree.place.get_or_insert_with(|| place.clone());
        }
        Some((tree, depth))
    }

    /// What lies at `spring.datasource.url`, in any spelling.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        parts(path).try_fold(self, |tree, part| tree.below.get(&canonical(part)))
    }

    /// The value of a property.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.at(path)?.value.as_ref().map(|(text, _)| text.as_str())
    }

    /// The value of a property and its place.
    pub(super) fn written(&self, path: &str) -> Option<(&str, Place)> {
        self.at(path)?.own()
    }

    /// Its own value and place.
    pub(super) fn own(&self) -> Option<(&str, Place)> {
        self.value.as_ref().map(|(text, place)| (text.as_str(), place.clone()))
    }

    /// What lies directly below, lists in their order.
    pub(super) fn children(&self) -> impl Iterator<Item = &Self> {
        self.below.values()
    }

    /// Where it is first written; `otherwise` for what is not.
    pub(super) fn place(&self, otherwise: &Place) -> Place {
        self.place.clone().unwrap_or_else(|| otherwise.clone())
    }
}

/// `a.b[0].c` and `[a.b].c`, part by part.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let mut rest = name;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches('.');
        if rest.is_empty() {
            return None;
        }
        let (part, behind) = match rest.strip_prefix('[') {
            Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
            None => rest.split_at_checked(rest.find(['.', '[']).unwrap_or(rest.len()))?,
        };
        rest = behind;
        Some(part)
    })
}

/// One spelling for all that Spring takes for the same; numbers so that they stay in order.
pub(super) fn canonical(part: &str) -> String {
    if !part.is_empty() && part.len() < 8 && part.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("{part:0>8}");
    }
    part.chars().filter(|c| !matches!(c, '-' | '_')).map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, path: &str, want: Option<&str>) {
        let (trees, wrong) = Tree::of_properties(&Source::new("application.properties", text));
        assert!(wrong.is_none());
        assert_eq!(trees.last().and_then(|tree| tree.text(path)), want, "{text:?} {path}");
    }

    #[test]
    fn every_spelling_is_the_same_property() {
        for text in
            ["a.readTimeout=5", "a.read-timeout: 5", "a.read_timeout 5", "A.READTIMEOUT = 5", "a.read\\\n  Timeout=5"]
        {
            reads(text, "a.read-timeout", Some("5"));
        }
        reads("a.read-timeouts=5", "a.read-timeout", None);
    }

    #[test]
    fn lists_maps_and_documents() {
        reads("a[1].b=2\na[0].b=1", "a[0].b", Some("1"));
        reads("a[x.y].b=1", "a[x.y].b", Some("1"));
        reads("a=1\n#---\nb=2", "a", None);
        reads("a=1\n# ---\nb=2", "a", Some("1"));
        let deep = format!("{}x=1", "a.".repeat(100_000));
        reads(&deep, "x", None);
    }

    #[test]
    fn a_continued_line_has_the_place_of_its_beginning() {
        let (trees, _) = Tree::of_properties(&Source::new("a", "# x\n\nkey = 1\\\n  2\nlast=3\n"));
        let line = |path| {
            trees.first().and_then(|tree: &Tree| tree.written(path)).map(|(text, place)| (text.to_owned(), place.line))
        };
        assert_eq!(line("key"), Some(("12".to_owned(), 3)));
        assert_eq!(line("last"), Some(("3".to_owned(), 5)));
    }
}
