//! What an error proves of the work that gave it, and how that travels in an error of sqlx's.
//!
//! An error of the server takes back what its statement did, if that is done as a whole or not at all. A procedure, or a
//! text of several statements, may have committed a part before. sqlx's error cannot say so: it gets a mark, and is
//! otherwise what it was, for its readers too.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

use oneclock_core::{Outcome, Stage};
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::postgres::PgDatabaseError;

use crate::error::outcome_of;
use crate::work::Hand;

/// What is known of work that was sent, by its error.
pub(crate) fn proven(hand: &Hand, error: &sqlx::Error) -> Outcome {
    if hand.in_transaction && !hand.is_commit {
        return Outcome::Rejected; // without its COMMIT nothing of it stays
    }
    match outcome_of(error) {
        Outcome::Failed | Outcome::Rejected if !hand.is_atomic && !is_refused_unread(hand, error) => {
            Outcome::Unknown { stage: Stage::Wait }
        }
        outcome => outcome,
    }
}

/// Whether the server refused the text before it ran anything of it. All of a text is parsed first; what its names mean is
/// looked up statement by statement. An error from inside a procedure says where it was.
fn is_refused_unread(hand: &Hand, error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| {
        let is_its_own = error.code() == "42601" || hand.is_single && error.code().starts_with("42");
        is_its_own && error.r#where().is_none()
    })
}

/// The error as it was, with a mark if a part of its statement may be there.
pub(crate) fn marked(error: sqlx::Error, outcome: Outcome) -> sqlx::Error {
    let says_too_much = matches!(outcome, Outcome::Unknown { .. }) && outcome_of(&error) != outcome;
    match error {
        sqlx::Error::Database(inner) if says_too_much => {
            sqlx::Error::Database(Box::new(Marked { inner, partly: Partly }))
        }
        error => error,
    }
}

/// Whether it has the mark.
pub(crate) fn is_marked(error: &dyn DatabaseError) -> bool {
    error.source().is_some_and(<dyn StdError>::is::<Partly>)
}

/// An error of the server's, and what sqlx cannot say with it.
#[derive(Debug)]
struct Marked {
    inner: Box<dyn DatabaseError>,
    partly: Partly,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a part of it may have been committed before")]
struct Partly;

// === Marked ===

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl StdError for Marked {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.partly)
    }
}

/// Who looks for PostgreSQL's error finds it.
impl DatabaseError for Marked {
    fn message(&self) -> &str {
        self.inner.message()
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.inner.code()
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self.inner.as_error()
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self.inner.as_error_mut()
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self.inner.into_error()
    }

    fn is_transient_in_connect_phase(&self) -> bool {
        self.inner.is_transient_in_connect_phase()
    }

    fn constraint(&self) -> Option<&str> {
        self.inner.constraint()
    }

    fn table(&self) -> Option<&str> {
        self.inner.table()
    }

    fn kind(&self) -> ErrorKind {
        self.inner.kind()
    }
}
