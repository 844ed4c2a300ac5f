//! Every timeout in a repository, and whether they fit together.
//!
//! 1. [`walk`] finds the files, within bounds; what is templated or cannot be parsed is listed, never read as "no timeout".
//! 2. `readers` take the files apart, one module a format: an [`inventory`] of who calls whom, and of every setting that
//!    bears on time. What a setting means (its kind, its unit, what happens when it fires, what holds when it is not
//!    written) stands once, in the [`catalogue`], which is data.
//! 3. [`graph`] joins the names: who calls whom, layer by layer, and how long each may take.
//! 4. [`rules`] say what does not fit.
//! 5. [`report`] tells it.
//!
//! Nothing here calls out or runs anything: files in, findings out.

#![forbid(unsafe_code)]

mod amount;
mod audited;
pub mod baseline;
pub mod catalogue;
pub mod draft;
pub mod estimate;
mod fingerprint;
pub mod graph;
mod ignores;
pub mod inventory;
mod name;
mod readers;
pub mod report;
pub mod rules;
pub mod source;
pub mod walk;

pub use audited::{Audited, Found, audit, every_rule};
