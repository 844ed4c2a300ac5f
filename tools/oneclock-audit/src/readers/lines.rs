//! Files of lines `key = value`, with or without `[sections]`: the one grammar that the stores' files are close to.

use crate::source::{Place, Source};

/// A line that says something.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    /// The section that it is in; empty before the first.
    pub(super) section: &'a str,
    /// The key, as it is written.
    pub(super) key: &'a str,
    /// The value, without quotes; empty where the key stands alone.
    pub(super) value: &'a str,
    /// Where the value is.
    pub(super) place: Place,
}

/// What parts a key from its value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parted {
    /// The first `=`.
    Equals,
    /// The first `=`, `:` or blank.
    Any,
    /// The first `=`, or else the first blank.
    EqualsOrBlank,
}

/// The lines of a file. Comments begin with `#`, `;` or `!`, and with a `#` after a blank behind a value.
pub(super) fn lines(source: &Source, parted: Parted) -> impl Iterator<Item = Line<'_>> {
    let mut section = "";
    source.text.lines().enumerate().filter_map(move |(at, line)| {
        let text = line.trim();
        if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            section = name.trim();
            return None;
        }
        if text.is_empty() || text.starts_with(['#', ';', '!']) {
            return None;
        }
        let comment = text.match_indices('#').map(|(at, _)| at);
        let comment =
            comment.into_iter().find(|at| text.get(..*at).is_some_and(|before| before.ends_with(char::is_whitespace)));
        let text = text.get(..comment.unwrap_or(text.len()))?.trim_end();
        let end = match parted {
            Parted::Equals => text.find('='),
            Parted::Any => text.find(|c: char| matches!(c, '=' | ':') || c.is_whitespace()),
            Parted::EqualsOrBlank => text.find('=').or_else(|| text.find(char::is_whitespace)),
        };
        let (key, behind) = text.split_at_checked(end.unwrap_or(text.len()))?;
        let value = behind.trim_start_matches(|c: char| matches!(c, '=' | ':') || c.is_whitespace());
        let before = line.chars().count() - line.trim_start().chars().count();
        let column = before + text.chars().count() - value.chars().count() + 1;
        let place = source.place(at + 1, column, value.chars().count());
        Some(Line { section, key: key.trim_end(), value: value.trim_matches(['"', '\'']), place })
    })
}
