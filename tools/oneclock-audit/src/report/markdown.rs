//! For the comment of a pull request: a table of what was found, and what was not read, folded away.

use super::words::{is_turning, severity, sum};
use super::{Report, coverage};
use crate::audited::Found;

/// A comment holds 65 536 characters.
const LONGEST: usize = 60_000;

impl Report<'_> {
    /// As much of it as a comment holds; what is left out is said.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut text = format!("### oneclock audit: {}\n\n", escaped(&sum(self.audited)));
        let findings: Vec<&Found> = self.audited.new_findings().collect();
        let end = self.end();
        if !findings.is_empty() {
            text.push_str("| | where | what | way out |\n|---|---|---|---|\n");
        }
        for (at, found) in findings.iter().enumerate() {
            let row = row(found);
            if text.len() + row.len() + end.len() > LONGEST {
                text.push_str(&format!("\nand {} more.\n", findings.len() - at));
                break;
            }
            text.push_str(&row);
        }
        text.push_str(&end);
        text
    }

    fn end(&self) -> String {
        let (lines, more) = coverage::list(self.audited, false);
        let mut text = format!("\n{}.\n", escaped(&coverage::line(self.audited)));
        if !lines.is_empty() {
            text.push_str("\n<details><summary>Not read, so nothing is known of them</summary>\n\n");
            for line in lines {
                text.push_str(&format!("- {}\n", escaped(&line)));
            }
            if more > 0 {
                text.push_str(&format!("- and {more} more\n"));
            }
            text.push_str("\n</details>\n");
        }
        text
    }
}

fn row(found: &Found) -> String {
    let finding = &found.finding;
    let places: Vec<String> = std::iter::once(&finding.place)
        .chain(finding.related.iter().map(|related| &related.place).take(3))
        .map(|place| code(&format!("{}:{}", place.file, place.line)))
        .collect();
    let consequence =
        if finding.consequence.is_empty() { String::new() } else { format!("<br>{}", escaped(&finding.consequence)) };
    format!(
        "| **{}** {} | {} | {}{consequence} | {} |\n",
        severity(finding.severity),
        code(finding.rule),
        places.join("<br>"),
        escaped(&finding.says),
        escaped(&finding.help),
    )
}

/// As it is, whatever Markdown or HTML would make of it; on one line.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            // Nobody is called by a name that stands in a file.
            '@' => escaped.push_str("@\u{200b}"),
            c if c.is_control() || is_turning(c) => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// In the type of code. Backticks cannot be escaped in it, and a cell ends at a bar.
fn code(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c == '`' || c == '|' || c.is_control() || is_turning(c) { '\u{fffd}' } else { c })
        .collect();
    format!("`{text}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_file_is_markup() {
        assert_eq!(
            escaped("a|b <img src=x> `c`\n# [d](e) @team"),
            "a\\|b &lt;img src=x&gt; \\`c\\` \\# \\[d\\](e) @\u{200b}team"
        );
        assert_eq!(code("a`|b"), "`a\u{fffd}\u{fffd}b`");
    }
}
