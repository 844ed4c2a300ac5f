//! What was read, by whom, and what was not. In every report: a file that nobody read is no file without timeouts.

use std::collections::BTreeMap;

use super::words::{counted, plain};
use crate::audited::Audited;
use crate::inventory::{Inventory, LeftOut, Why};

/// The most of what was left out that is listed, unless all is asked for.
const MOST: usize = 5;

/// The reasons, in the order in which they are told.
pub(super) const WHYS: &[Why] = &[
    Why::Templated,
    Why::Unparsed,
    Why::Unreadable,
    Why::TooLarge,
    Why::NotRead,
    Why::NotUnderstood,
    Why::NotFollowed,
];

/// A reason, of so many.
pub(super) const fn word(why: Why) -> &'static str {
    match why {
        Why::Templated => "templated",
        Why::Unparsed => "not parsed",
        Why::NotUnderstood => "not understood",
        Why::NotRead => "known by name only",
        Why::TooLarge => "too large",
        Why::Unreadable => "not opened",
        Why::NotFollowed => "not followed",
    }
}

/// How many files each reader read.
pub(super) fn by_reader(inventory: &Inventory) -> BTreeMap<&'static str, usize> {
    let mut by_reader = BTreeMap::new();
    for reader in inventory.files.iter().flat_map(|file| &file.readers) {
        *by_reader.entry(*reader).or_insert(0) += 1;
    }
    by_reader
}

/// `read 3 files: nginx 2, topology 1`, and what was not: `not read: 2 templated, 1 not parsed`.
pub(super) fn line(audited: &Audited<'_>) -> String {
    let inventory = audited.inventory;
    let readers: Vec<String> = by_reader(inventory).iter().map(|(reader, files)| format!("{reader} {files}")).collect();
    let mut line = match inventory.files.len() {
        0 => "no file of a known format was found: this says nothing about timeouts".to_owned(),
        files => format!("read {}: {}", counted(files, "file"), readers.join(", ")),
    };
    let left = |why: Why| audited.left_out.iter().filter(|left| left.why == why).count();
    let files: Vec<String> = WHYS
        .iter()
        .filter(|why| !matches!(why, Why::NotUnderstood | Why::NotFollowed))
        .map(|why| (left(*why), word(*why)))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if !files.is_empty() {
        line.push_str(&format!("; not read: {}", files.join(", ")));
    }
    let values = left(Why::NotUnderstood);
    if values > 0 {
        line.push_str(&format!("; {} not understood", counted(values, "value")));
    }
    if left(Why::NotFollowed) > 0 {
        line.push_str("; not every way through the calls was judged");
    }
    line
}

/// What was left out, a line each: the first few of each reason, or all. The last number is how many are not listed.
pub(super) fn list(audited: &Audited<'_>, all: bool) -> (Vec<String>, usize) {
    let mut lines = Vec::new();
    let mut more = 0;
    for why in WHYS {
        let left: Vec<&LeftOut> = audited.left_out.iter().filter(|left| left.why == *why).collect();
        let shown = if all || left.len() <= MOST + 1 { left.len() } else { MOST };
        lines.extend(
            left.iter()
                .take(shown)
                .map(|left| format!("{}: {}: {}", plain(&left.place.to_string()), word(*why), plain(&left.says))),
        );
        more += left.len() - shown;
    }
    (lines, more)
}
