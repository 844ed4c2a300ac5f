//! Tells what an audit came to: to people (text, Markdown, a picture) and to programs (JSON, [`sarif`]).
//!
//! All of them say what was read and what was not: a file that nobody read is no file without timeouts. What comes from
//! the files is anybody's text; it is escaped for wherever it goes.

mod coverage;
mod excerpts;
mod json;
mod layers;
mod markdown;
pub mod sarif;
mod svg;
mod text;
mod tree;
mod words;

use crate::audited::Audited;
use crate::graph::Graph;
use layers::Way;
pub(crate) use words::{arrow as waits, plain as one_line};

/// How much is told to people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What was found, and what was not read, in numbers.
    Quiet,
    /// With the drawing and the layers, as much of them as can be read.
    #[default]
    Usual,
    /// All of it.
    Verbose,
}

/// An audit, ready to be told.
pub struct Report<'a> {
    audited: &'a Audited<'a>,
    graph: &'a Graph<'a>,
    ways: Vec<Way<'a>>,
}

// === Report ===

impl<'a> Report<'a> {
    /// Prepares what all forms have in common.
    #[must_use]
    pub fn of(audited: &'a Audited<'a>) -> Self {
        let graph = audited.graph();
        let ways = layers::ways(audited, graph);
        Self { audited, graph, ways }
    }
}
