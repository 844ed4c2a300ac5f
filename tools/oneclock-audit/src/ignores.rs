//! What somebody chose to leave as it is: a comment `oneclock-audit: ignore[rule-id] why` on the line of a finding, or of
//! the other side that it shows, or on a line of its own above.
//!
//! It says why, or it counts for nothing. One that names no rule that there is, and one under which nothing is found any
//! more, are findings themselves: nobody would notice them otherwise.

use crate::rules::{Finding, Rule, Severity, first};
use crate::source::{Place, Source};

/// An ignore that cannot be read, names no rule, or gives no reason.
pub(crate) const MALFORMED: Rule = Rule {
    id: "ignore-malformed",
    says: "an ignore does not say what it ignores, or why",
    page: include_str!("../rules/ignore-malformed.md"),
    look: |_, _| (),
};

/// An ignore under which nothing is found.
pub(crate) const UNUSED: Rule = Rule {
    id: "ignore-unused",
    says: "an ignore is in force and ignores nothing",
    page: include_str!("../rules/ignore-unused.md"),
    look: |_, _| (),
};

/// The rules about ignores; nobody can ignore what they find.
pub(crate) const RULES: &[&Rule] = &[&MALFORMED, &UNUSED];

const MARK: &str = "oneclock-audit:";
const HOW: &str = "write `oneclock-audit: ignore[rule-id] why`; `oneclock audit --rules` has the ids";

/// A comment that ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ignore {
    /// Which rules.
    pub rules: Vec<String>,
    /// Why.
    pub reason: String,
    /// Where it stands.
    pub place: Place,
    /// For which line.
    pub line: u32,
}

/// A finding that is ignored.
#[derive(Clone, Debug)]
pub struct Ignored {
    /// What was found.
    pub finding: Finding,
    /// Why it is ignored.
    pub reason: String,
    /// Where that is said.
    pub place: Place,
}

/// What a file has: ignores, and what is meant to be one and is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    ignores: Vec<Ignore>,
    wrong: Vec<Finding>,
}

/// The ignores of a file.
#[must_use]
pub(crate) fn written(source: &Source) -> Written {
    let mut written = Written::default();
    if !source.text.contains(MARK) {
        return written;
    }
    let lines: Vec<&str> = source.text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        let Some((before, comment)) = comment(line) else { continue };
        let column = line.get(..line.len() - comment.len()).unwrap_or_default().chars().count() + 1 - MARK.len();
        let place = source.place(number + 1, column, MARK.len() + comment.trim_end().chars().count());
        // Alone on its line it is about the next one; several of them are about what follows the last.
        let mut about = number;
        if before.is_empty() {
            about += 1;
            while lines.get(about).is_some_and(|line| self::comment(line).is_some_and(|(before, _)| before.is_empty()))
            {
                about += 1;
            }
        }
        match rules_and_reason(comment) {
            Ok((rules, reason)) => {
                let line = u32::try_from(about + 1).unwrap_or(u32::MAX);
                written.ignores.push(Ignore { rules, reason, place, line });
            }
            Err(says) => written.wrong.push(Finding::new(&MALFORMED, Severity::Warning, &place, says).help(HOW)),
        }
    }
    written
}

/// What stands before a comment that speaks to us, and what it says; in any notation of comments.
fn comment(line: &str) -> Option<(&str, &str)> {
    let (before, comment) = line.split_once(MARK)?;
    let before = before.trim();
    let mark = ["#", "//", "<!--", ";", "--", "/*", "*", "\"//\": \"", "\"//\":\"", "\"_comment\": \""];
    let before = mark.iter().find_map(|mark| before.strip_suffix(mark))?;
    // `///` and `##` are comments too.
    Some((before.trim_end_matches(['#', '/', ';']).trim(), comment))
}

fn rules_and_reason(comment: &str) -> Result<(Vec<String>, String), String> {
    let words = comment.trim();
    let wanted = || format!("`{}` is no ignore", crate::amount::shortened(words));
    let (names, reason) = words.strip_prefix("ignore[").and_then(|rest| rest.split_once(']')).ok_or_else(wanted)?;
    let rules: Vec<String> =
        names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
    if rules.is_empty() {
        return Err(wanted());
    }
    if let Some(unknown) = rules.iter().find(|id| crate::rules::rule(id).is_none()) {
        let near = crate::rules::RULES.iter().map(|rule| rule.id);
        let near = near
            .min_by_key(|id| strsim::damerau_levenshtein(id, unknown))
            .filter(|id| strsim::damerau_levenshtein(id, unknown) <= 3);
        let hint = near.map(|id| format!("; did you mean `{id}`?")).unwrap_or_default();
        return Err(format!("there is no rule `{}`{hint}", crate::amount::shortened(unknown)));
    }
    let reason = reason.trim_start_matches(':').trim();
    let reason = ["-->", "*/", "\",", "\""]
        .iter()
        .fold(reason, |reason, end| reason.strip_suffix(end).unwrap_or(reason).trim_end());
    if reason.is_empty() {
        return Err(format!("`ignore[{names}]` gives no reason, so it counts for nothing"));
    }
    Ok((rules, reason.to_owned()))
}

/// Takes out what is ignored, and adds what is wrong with ignores.
pub(crate) fn apply(written: Vec<Written>, findings: &mut Vec<Finding>) -> Vec<Ignored> {
    let mut ignored = Vec::new();
    let mut told = Vec::new();
    for Written { ignores, wrong } in written {
        for ignore in ignores {
            for rule in &ignore.rules {
                let here = |place: &Place| place.line == ignore.line && place.file == ignore.place.file;
                let meant = |finding: &mut Finding| finding.rule == rule && finding.places().any(here);
                let all: Vec<Finding> = findings.extract_if(.., meant).collect();
                if all.is_empty() {
                    told.push(unused(&ignore, rule, findings));
                }
                // One of which several ways lead to the same is one.
                let (reason, place) = (&ignore.reason, &ignore.place);
                ignored.extend(first(all).map(|finding| Ignored {
                    finding,
                    reason: reason.clone(),
                    place: place.clone(),
                }));
            }
        }
        told.extend(wrong);
    }
    findings.extend(told);
    ignored
}

/// With the nearest line that it could be meant for.
fn unused(ignore: &Ignore, rule: &str, findings: &[Finding]) -> Finding {
    let says = format!("`{rule}` finds nothing on line {}, so nothing is ignored", ignore.line);
    let of_rule = findings.iter().filter(|finding| finding.rule == rule);
    let lines =
        of_rule.flat_map(Finding::places).filter(|place| place.file == ignore.place.file).map(|place| place.line);
    let help = match lines.min_by_key(|line| (line.abs_diff(ignore.line), *line)) {
        Some(line) => format!("delete the comment, or move it to line {line}: there `{rule}` finds something"),
        None => format!("delete the comment: `{rule}` finds nothing in this file, or it is ignored already"),
    };
    Finding::new(&UNUSED, Severity::Warning, &ignore.place, says).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, want: &[(&str, &str, u32)]) {
        let found = written(&Source::new("a", text));
        let found: Vec<_> =
            found.ignores.iter().map(|one| (one.rules.join(","), one.reason.as_str(), one.line)).collect();
        let want: Vec<_> = want.iter().map(|(rules, reason, line)| ((*rules).to_owned(), *reason, *line)).collect();
        assert_eq!(found, want, "{text:?}");
    }

    #[track_caller]
    fn is_wrong(text: &str, says: &str, at: &str) {
        let found = written(&Source::new("a", text));
        assert_eq!(found.ignores, []);
        assert_eq!(found.wrong.len(), 1, "{text:?}");
        assert_eq!((found.wrong[0].says.as_str(), found.wrong[0].place.to_string().as_str()), (says, at));
    }

    #[test]
    fn on_the_line_or_above_in_every_notation() {
        reads("t: 5s # oneclock-audit: ignore[no-limit] bounded outside", &[("no-limit", "bounded outside", 1)]);
        reads("  # oneclock-audit: ignore[no-limit] so\nt: 5s", &[("no-limit", "so", 2)]);
        reads("## oneclock-audit: ignore[no-limit] so\nt: 5s", &[("no-limit", "so", 2)]);
        reads("<!-- oneclock-audit: ignore[no-limit] so -->", &[("no-limit", "so", 2)]);
        reads("/* oneclock-audit: ignore[no-limit] so */ x", &[("no-limit", "so */ x", 2)]);
        reads("x 5s; // oneclock-audit: ignore[no-limit]: so", &[("no-limit", "so", 1)]);
        reads("; oneclock-audit: ignore[no-limit] so\n[x]", &[("no-limit", "so", 2)]);
        reads("\"//\": \"oneclock-audit: ignore[no-limit] so\",\n1", &[("no-limit", "so", 2)]);
        reads("t # oneclock-audit: ignore[no-limit, flat-timeouts] so", &[("no-limit,flat-timeouts", "so", 1)]);
    }

    #[test]
    fn several_above_are_about_what_follows() {
        let text = "# oneclock-audit: ignore[no-limit] a\n# oneclock-audit: ignore[flat-timeouts] b\nx";
        reads(text, &[("no-limit", "a", 3), ("flat-timeouts", "b", 3)]);
    }

    #[test]
    fn what_only_speaks_of_it_is_none() {
        reads("see oneclock-audit: ignore[no-limit] so", &[]);
        reads("name: oneclock-audit: x", &[]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        is_wrong(
            "x # oneclock-audit: ignore[no-limit]",
            "`ignore[no-limit]` gives no reason, so it counts for nothing",
            "a:1:5",
        );
        is_wrong(
            "# oneclock-audit: ignore[no-limits] so",
            "there is no rule `no-limits`; did you mean `no-limit`?",
            "a:1:3",
        );
        is_wrong("# oneclock-audit: ignore[] so", "`ignore[] so` is no ignore", "a:1:3");
        is_wrong("# oneclock-audit: ignroe[no-limit] so", "`ignroe[no-limit] so` is no ignore", "a:1:3");
    }
}
