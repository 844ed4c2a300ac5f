//! The formats, one module each. A reader takes a document (YAML and JSON are parsed once for all of them) or a whole
//! text, and says what it found; it never judges.
//!
//! To add one: write the module, add it to [`READERS`], add its settings to `data/catalogue.yaml`, and files of its shape
//! to `tests/data`.

mod gateway_api;
mod kubernetes;
pub mod topology;

use oneclock_yaml::Node;

use crate::inventory::Inventory;
use crate::source::Source;
use crate::walk::Repository;

/// A format that is read.
pub struct Reader {
    /// As reports name it.
    pub name: &'static str,
    /// How it reads.
    pub how: How,
}

/// How a reader reads.
pub enum How {
    /// Document by document.
    Document {
        /// A file without any of these words is not even parsed: it can hold nothing for this reader.
        words: &'static [&'static str],
        /// Reads a document if it is one of its own, and says whether it is.
        read: fn(&Source, &Node, &mut Inventory) -> bool,
    },
    /// All documents of a file together: what one of them says bears on the others.
    Documents {
        /// As above.
        words: &'static [&'static str],
        /// As above.
        read: fn(&Source, &[Node], &mut Inventory) -> bool,
    },
    /// The text of a file.
    Text {
        /// Whether the file is one of its own, by its name or how it looks.
        mine: fn(&Source) -> bool,
        /// Reads it. Other files of the repository may be asked for (`include`).
        read: fn(&Source, &Repository, &mut Inventory),
    },
}

/// A format that is recognised, and not read.
pub struct KnownByName {
    /// As reports name it.
    pub name: &'static str,
    /// Whether a file is one.
    pub is: fn(&Source) -> bool,
}

/// All of them, in the order in which a file is offered.
pub const READERS: &[Reader] =
    &[
    Reader { name: "Gateway API", how: How::Document { words: &["HTTPRoute", "GRPCRoute"], read: gateway_api::read } },
    Reader { name: "topology", how: How::Document { words: &["services", "entries"], read: topology::read } },
];

/// Formats that are recognised and not read: how a report names them, and how a file is told.
pub const KNOWN_BY_NAME: &[KnownByName] = &[];
