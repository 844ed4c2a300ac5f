//! YAML that people read: expressions as blocks of lines.

use serde::{Serialize, Serializer};
use serde_saphyr::LitStr;

/// A file could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("could not be written as YAML")]
pub struct NotWritten(#[from] serde_saphyr::ser::Error);

pub(crate) fn yaml(value: &impl Serialize) -> Result<String, NotWritten> {
    Ok(serde_saphyr::to_string(value)?)
}

pub(crate) fn as_block<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    if text.contains('\n') { LitStr(text).serialize(serializer) } else { text.serialize(serializer) }
}
