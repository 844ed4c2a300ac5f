//! TOML as the tree that YAML becomes, with the same places.

use oneclock_yaml::{Key, Node, Place, Value};
use toml_edit::{Document, Item, TableLike};

/// Deeper than what people write.
const DEEPEST: usize = 32;

/// Where the lines of a text begin, so that a place is found without counting from its start.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// The document; `None` for what is no TOML.
pub(super) fn document(text: &str) -> Option<Node> {
    let parsed = Document::parse(text).ok()?;
    let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let lines = Lines { text, starts };
    Some(Node { place: Place::START, value: table(parsed.as_table(), &lines, 0) })
}

fn table(table: &dyn TableLike, lines: &Lines<'_>, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    let entries = table.iter().map(|(name, item)| {
        let span = table.key(name).and_then(toml_edit::Key::span);
        let key = Key { place: lines.place(span.map_or(0, |span| span.start)), text: name.to_owned() };
        let node = node(item, &key, lines, depth + 1);
        (key, node)
    });
    Value::Map(entries.collect())
}

fn node(item: &Item, key: &Key, lines: &Lines<'_>, depth: usize) -> Node {
    let place = item.span().map_or(key.place, |span| lines.place(span.start));
    let value = match item {
        Item::None => Value::Null,
        Item::Table(inner) => table(inner, lines, depth),
        Item::ArrayOfTables(tables) => {
            let items = tables.iter().map(|inner| {
                let place = inner.span().map_or(key.place, |span| lines.place(span.start));
                Node { place, value: table(inner, lines, depth) }
            });
            Value::List(items.collect())
        }
        Item::Value(value) => return scalar(value, key.place, lines, depth),
    };
    Node { place, value }
}

fn scalar(value: &toml_edit::Value, otherwise: Place, lines: &Lines<'_>, depth: usize) -> Node {
    let place = value.span().map_or(otherwise, |span| lines.place(span.start));
    let value = match value {
        toml_edit::Value::String(text) => Value::Scalar(text.value().clone()),
        toml_edit::Value::Integer(number) => Value::Scalar(number.value().to_string()),
        toml_edit::Value::Float(number) => Value::Scalar(number.value().to_string()),
        toml_edit::Value::Boolean(truth) => Value::Scalar(truth.value().to_string()),
        toml_edit::Value::Datetime(time) => Value::Scalar(time.value().to_string()),
        toml_edit::Value::InlineTable(inner) => table(inner, lines, depth),
        toml_edit::Value::Array(items) if depth <= DEEPEST => {
            Value::List(items.iter().map(|item| scalar(item, otherwise, lines, depth + 1)).collect())
        }
        toml_edit::Value::Array(_) => Value::Null,
    };
    Node { place, value }
}

impl Lines<'_> {
    fn place(&self, at: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= at);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or_default();
        let column = self.text.get(start..at).map_or(1, |before| before.chars().take(1024).count() + 1);
        Place { line: line.max(1) as u64, column: column as u64 }
    }
}
