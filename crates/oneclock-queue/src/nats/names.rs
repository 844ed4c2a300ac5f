//! What a queue, its subjects and its stream are called.
//!
//! Decides which names can be one: a queue's is a part of subjects, of a stream's name and of consumers' names.

use super::error::BadNats;

/// The subjects of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subjects {
    /// What is to be done.
    pub main: String,
    /// What must be completed and has expired.
    pub late: String,
    /// What somebody has to look at.
    pub dead: String,
    /// What comes again later.
    pub wait: String,
}

// === Subjects ===

impl Subjects {
    /// Those of a queue that says nothing else.
    pub fn of(queue: &str) -> Self {
        let of = |lane: &str| format!("{queue}.{lane}");
        Self { main: of("main"), late: of("late"), dead: of("dead"), wait: of("wait") }
    }

    pub(super) fn all(&self) -> [&str; 4] {
        [&self.main, &self.late, &self.dead, &self.wait]
    }

    /// What a stream and its consumers may be called: a dot would part their names.
    pub(super) fn without_dots(queue: &str) -> String {
        queue.replace('.', "_")
    }
}

/// Whether it can be one.
pub(super) fn check_name(name: &str) -> Result<(), BadNats> {
    let is_one = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let why = if name.is_empty() {
        "it is empty"
    } else if name.split('.').any(str::is_empty) {
        "a dot stands between two words"
    } else if !name.chars().all(|c| c == '.' || is_one(c)) {
        "letters and digits of ASCII, dots, hyphens and underscores are what subjects and streams may have"
    } else {
        return Ok(());
    };
    Err(BadNats::Name { name: name.to_owned(), why })
}

/// Whether a pattern of a stream takes a subject.
pub(super) fn takes(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(one), Some(other)) if one == other => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_takes_what_the_server_would_let_it_take() {
        for (pattern, subject, is_taken) in [
            ("orders.main", "orders.main", true),
            ("orders.*", "orders.main", true),
            ("orders.>", "orders.eu.main", true),
            (">", "orders.main", true),
            ("orders.*", "orders.eu.main", false),
            ("orders.>", "orders", false),
            ("orders", "orders.main", false),
            ("orders.main.*", "orders.main", false),
        ] {
            assert_eq!(takes(pattern, subject), is_taken, "{pattern} {subject}");
        }
    }

    #[test]
    fn a_name_that_no_subject_could_have_is_refused_with_what_is_wrong() {
        assert!(["orders", "eu.orders", "a-b_c.7"].into_iter().all(|name| check_name(name).is_ok()));
        let wrong = |name: &str| check_name(name).unwrap_err().to_string();
        assert_eq!(wrong("eu..orders"), "\"eu..orders\" is no name for a queue: a dot stands between two words");
        for name in ["", ".", "a b", "a*", "a.>", "a/b", "straße", "a\r\nPUB x 0"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }
}
