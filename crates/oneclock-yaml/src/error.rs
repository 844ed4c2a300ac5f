//! What is no YAML, and where; and what is too deep to be handed to the parser at all.

use serde_saphyr::Location;

use crate::Place;

/// Why a text was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {wrong}")]
pub struct Error {
    /// Where.
    pub place: Place,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// A key is in a mapping twice.
    #[error("the key{} is here a second time", key.as_deref().map(|key| format!(" `{key}`")).unwrap_or_default())]
    SecondTime {
        /// Which, where the parser says so.
        key: Option<String>,
    },
    /// Nothing stands before a colon.
    #[error("a key is missing before the colon")]
    NoKey,
    /// A key with a tag.
    #[error("a key with a tag that begins with !")]
    Tagged,
    /// More levels than are read.
    #[error("more than {0} levels")]
    TooDeep(usize),
    /// What a value should have been, in the words of whoever took it.
    #[error("{0}")]
    Message(String),
    /// All else, in the parser's words, without the place and without an excerpt.
    #[error("{0}")]
    NoYaml(String),
}

// === Error ===

impl Error {
    pub(crate) fn of(error: &serde_saphyr::Error) -> Self {
        use serde_saphyr::Error as E;
        let known = error.location().filter(|place| *place != Location::UNKNOWN);
        let place = known.map_or(Place::START, |place| Place { line: place.line(), column: place.column() });
        let wrong = match error.without_snippet() {
            E::DuplicateMappingKey { key, .. } => Wrong::SecondTime { key: key.clone() },
            E::NullIntoString { .. } => Wrong::NoKey,
            E::TaggedScalarCannotDeserializeIntoString { .. } => Wrong::Tagged,
            E::Message { msg, .. } => Wrong::Message(msg.clone()),
            other => {
                let text = other.to_string();
                Wrong::NoYaml(text.rsplit_once(" at line ").map_or(&*text, |(fact, _)| fact).to_owned())
            }
        };
        Self { place, wrong }
    }
}

/// Refuses what opens more than `deepest` levels, by indentation or on one line (`- - - …`): the parser takes each of them
/// by a call of its own, before it counts any, and would exhaust the stack. A text in a block scalar counts too: none
/// that somebody wrote is indented that often.
pub(crate) fn shallow(text: &str, deepest: usize) -> Result<(), Error> {
    let mut indents: Vec<usize> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let unindented = line.trim_start_matches(' ');
        if unindented.trim_end().is_empty() {
            continue;
        }
        let indent = line.len() - unindented.len();
        while indents.last().is_some_and(|last| *last > indent) {
            indents.pop();
        }
        if indents.last() != Some(&indent) {
            indents.push(indent);
        }
        let opened = unindented.split([' ', '\t']).take_while(|word| matches!(*word, "" | "-" | "?" | ":")).count();
        if indents.len() + opened > deepest {
            let place = Place { line: number as u64 + 1, column: indent as u64 + 1 };
            return Err(Error { place, wrong: Wrong::TooDeep(deepest) });
        }
    }
    Ok(())
}
