//! Fields of a protobuf message in YAML or JSON, as Envoy and Istio read them: in either spelling, a list of one also
//! without its brackets. And [`Sayings`], for settings that bear on many calls.

use std::slice;

use oneclock_yaml::{Node, Value};

use crate::inventory::{Inventory, On};
use crate::source::{Place, Source};

/// A field by its name in the schema, if it has a value.
pub(super) fn get<'a>(node: &'a Node, field: &str) -> Option<&'a Node> {
    let found = node.find(field).or_else(|| if field.contains('_') { node.find(&camel(field)) } else { None });
    found.filter(|node| node.value != Value::Null)
}

/// The field at the end of a path.
pub(super) fn at<'a>(node: &'a Node, path: &[&str]) -> Option<&'a Node> {
    path.iter().try_fold(node, |node, field| get(node, field))
}

/// The text of the field at the end of a path.
pub(super) fn text<'a>(node: &'a Node, path: &[&str]) -> Option<&'a str> {
    at(node, path).and_then(Node::text)
}

/// The values of a repeated field; none where it is not there.
pub(super) fn list<'a>(node: &'a Node, field: &str) -> &'a [Node] {
    match get(node, field) {
        Some(Node { value: Value::List(items), .. }) => items,
        Some(one @ Node { value: Value::Map(_), .. }) => slice::from_ref(one),
        _ => &[],
    }
}

/// What a filter or an extension is configured with, out of its wrappers.
pub(super) fn configuration(node: &Node) -> Option<&Node> {
    let config = get(node, "typed_config").or_else(|| get(node, "config"))?;
    let is_wrapper = get(config, "@type").and_then(Node::text).is_some_and(|text| text.ends_with("TypedStruct"));
    if is_wrapper { get(config, "value") } else { Some(config) }
}

/// Whether the name or the type of a filter says that it is `snake` (`tcp_proxy`), or `Camel` (`TcpProxy`).
pub(super) fn is(node: &Node, snake: &str, camel: &str) -> bool {
    let kind = get(node, "typed_config").and_then(|config| get(config, "type_url").or_else(|| get(config, "@type")));
    let says = |node: Option<&Node>, end: &str| node.and_then(Node::text).is_some_and(|text| text.ends_with(end));
    says(kind, &format!(".{camel}")) || says(get(node, "name"), &format!(".{snake}"))
}

/// Settings as they are written in one place of a file, to be said of every call that they bear on. They are looked up
/// once, however many calls these are.
#[derive(Default)]
pub(super) struct Sayings(Vec<Saying>);

struct Saying {
    id: &'static str,
    says: Says,
}

enum Says {
    Text(String, Place),
    /// Nobody wrote it; what would have it stands there.
    Nothing(Place),
    /// A mapping or a list, where a single value is wanted.
    NoValue(&'static str, Place),
}

// === Sayings ===

impl Sayings {
    /// Adds what is written, each at the end of its path.
    pub(super) fn add(&mut self, source: &Source, node: &Node, rows: &[(&'static str, &[&str])]) {
        for (id, path) in rows {
            if at(node, path).is_some() {
                self.or_default(source, node, id, path);
            }
        }
    }

    /// Adds what is written, or what holds without it.
    pub(super) fn or_default(&mut self, source: &Source, node: &Node, id: &'static str, path: &[&str]) {
        let says = match at(node, path) {
            None => Says::Nothing(source.of(node)),
            Some(node) => match node.text() {
                Some(text) => Says::Text(text.to_owned(), source.of(node)),
                None => Says::NoValue(node.what(), source.of(node)),
            },
        };
        self.0.push(Saying { id, says });
    }

    /// Adds a text that stands there, or comes to that.
    pub(super) fn text(&mut self, id: &'static str, text: &str, place: Place) {
        self.0.push(Saying { id, says: Says::Text(text.to_owned(), place) });
    }

    /// Adds what holds because nobody wrote it.
    pub(super) fn unsaid(&mut self, id: &'static str, block: Place) {
        self.0.push(Saying { id, says: Says::Nothing(block) });
    }

    /// Whether there are any.
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Says all of it.
    pub(super) fn of(&self, on: &On, inventory: &mut Inventory) {
        for Saying { id, says } in &self.0 {
            match says {
                Says::Text(text, place) => inventory.say(on.clone(), id, text, place.clone()),
                Says::Nothing(block) => inventory.unsaid(on.clone(), id, block.clone()),
                Says::NoValue(what, place) => inventory.unknown(on.clone(), id, what, place.clone()),
            }
        }
    }
}

/// `virtual_hosts` as `virtualHosts`.
fn camel(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut all, word| {
        let mut letters = word.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

#[cfg(test)]
mod tests {
    use super::camel;

    #[test]
    fn the_other_spelling() {
        assert_eq!(camel("per_try_timeout"), "perTryTimeout");
        assert_eq!(camel("name"), "name");
        assert_eq!(camel("a__b_"), "aB");
    }
}
