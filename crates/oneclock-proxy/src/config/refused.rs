//! A configuration that is refused: where, and what to write instead.

use std::fmt;

use oneclock_yaml::{Error, Wrong};

use super::redact::shown;

/// What is wrong with a configuration: the place, the fact, the way out. Printed, the place comes first, so that a
/// file's name goes in front.
///
/// ```
/// # use oneclock_proxy::config::Config;
/// let refused = Config::parse("shutdownGraec: 5s\n").unwrap_err();
/// let says = "1:1: there is no key `shutdownGraec` here; did you mean `shutdownGrace`?";
/// assert!(refused.to_string().starts_with(says));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct Refused {
    /// The line, counted from one; `None` where there is no file.
    pub line: Option<u64>,
    /// The column, counted from one.
    pub column: Option<u64>,
    /// What is wrong, without any password.
    pub why: String,
}

impl Refused {
    pub(super) fn nowhere(why: impl Into<String>) -> Self {
        Self { line: None, column: None, why: why.into() }
    }

    /// What the text says that is not even YAML.
    pub(super) fn of(error: &Error) -> Self {
        let why = match &error.wrong {
            Wrong::SecondTime { key } => {
                let key = key.as_deref().map(|key| format!(" `{}`", shown(key))).unwrap_or_default();
                format!("the key{key} is here a second time: delete one of them")
            }
            Wrong::NoKey => "a key is missing before the colon".to_owned(),
            Wrong::Tagged => "a tag that begins with ! says nothing here: delete it".to_owned(),
            Wrong::Message(says) => says.clone(),
            other => format!("this is no YAML: {other}"),
        };
        Self { line: Some(error.place.line), column: Some(error.place.column), why }
    }
}

/// `did you mean` and what is known, as the end of a sentence about an unknown word.
pub(crate) fn known(written: &str, known: &[&str]) -> String {
    let near = nearest(written, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    let stop = if near.is_empty() { "." } else { "" };
    format!("{near}{stop} Known: {}", known.join(", "))
}

/// As far from what was written as a slip of the fingers.
fn nearest<'a>(written: &str, known: &[&'a str]) -> Option<&'a str> {
    let written = written.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let swapped = written.len() > 2 && strsim::osa_distance(&written, &known) == 1; // which short words are unlike by
        strsim::jaro_winkler(&written, &known).max(if swapped { 0.9 } else { 0.0 })
    };
    let near = known.iter().map(|known| (likeness(known), *known));
    near.filter(|(likeness, _)| *likeness > 0.75).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}: ")?;
        }
        f.write_str(&self.why)
    }
}
