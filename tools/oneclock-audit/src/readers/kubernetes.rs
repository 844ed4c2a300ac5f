//! What every document of Kubernetes has, and the workloads.

use oneclock_yaml::Node;

/// What a document of Kubernetes is.
pub(super) struct Head<'a> {
    /// The group of `apiVersion`; empty for the core.
    pub(super) group: &'a str,
    /// The kind.
    pub(super) kind: &'a str,
    /// Its name; empty where it has none.
    pub(super) name: &'a str,
    /// Its namespace, where it says so.
    pub(super) namespace: Option<&'a str>,
}

/// `apiVersion`, `kind` and the name; `None` where the document is none of Kubernetes.
pub(super) fn head(document: &Node) -> Option<Head<'_>> {
    let version = document.text_at(&["apiVersion"])?;
    Some(Head {
        group: version.split_once('/').map_or("", |(group, _)| group),
        kind: document.text_at(&["kind"])?,
        name: document.text_at(&["metadata", "name"]).unwrap_or_default(),
        namespace: document.text_at(&["metadata", "namespace"]),
    })
}
