//! `proxy_next_upstream` of nginx, and the same under other names of what is built on it: after what the next server is
//! asked.
//!
//! It decides what an attempt is. `error` alone asks another server when there was no connection, or when it broke; a
//! server that is slow is asked once, so no time adds up. Only with `timeout`, or with answers that are named, does what
//! was slow begin again elsewhere.

/// After what the next server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    /// After nothing.
    pub(super) off: bool,
    /// After a connection that failed, and nothing that a server was slow at.
    pub(super) connects_only: bool,
    /// Whether that holds for POST, LOCK and PATCH too.
    pub(super) repeats_unsafe: bool,
}

// === Conditions ===

impl Conditions {
    /// As they are written; nginx takes `error timeout` where they are not.
    pub(super) fn of(written: Option<&str>) -> Self {
        let words = || written.unwrap_or("error timeout").split_ascii_whitespace();
        let again = |word: &str| word == "timeout" || word == "invalid_header" || word.starts_with("http_");
        // A variable of a template may be anything.
        let open = |word: &str| word.contains(['$', '{']);
        Self {
            off: words().any(|word| word == "off"),
            connects_only: !words().any(|word| again(word) || open(word)),
            repeats_unsafe: words().any(|word| word == "non_idempotent"),
        }
    }

    /// The setting that counts the attempts: one of its own where only connections are tried again.
    pub(super) fn row(self, tries: &str) -> String {
        if self.connects_only && !self.off { format!("{tries}.connects") } else { tries.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn are(written: Option<&str>, off: bool, connects_only: bool, repeats_unsafe: bool) {
        let found = Conditions::of(written);
        assert_eq!(
            (found.off, found.row("t") == "t.connects", found.repeats_unsafe),
            (off, connects_only, repeats_unsafe),
            "{written:?}"
        );
    }

    #[test]
    fn only_a_timeout_or_an_answer_begins_again_what_was_slow() {
        are(None, false, false, false);
        are(Some("error timeout"), false, false, false);
        are(Some("error"), false, true, false);
        are(Some("error non_idempotent"), false, true, true);
        are(Some("error http_502 non_idempotent"), false, false, true);
        are(Some("off"), true, false, false);
        are(Some("${CONDITIONS}"), false, false, false);
    }
}
