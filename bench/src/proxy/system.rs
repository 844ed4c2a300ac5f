//! What is compared.

use serde::Serialize;

/// What the callers ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum System {
    /// The service itself.
    Direct,
    /// `oneclock proxy`.
    Ours,
    /// hyper, its client, a timeout.
    Bare,
    Envoy,
    Haproxy,
    Nginx,
}

/// What the callers speak. Every proxy asks the service in HTTP/1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Protocol {
    #[serde(rename = "http/1.1")]
    Http1,
    /// By prior knowledge.
    #[serde(rename = "h2c")]
    Http2,
}

impl System {
    pub(crate) const ALL: [Self; 6] = [Self::Direct, Self::Ours, Self::Bare, Self::Envoy, Self::Haproxy, Self::Nginx];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Ours => "ours",
            Self::Bare => "bare hyper",
            Self::Envoy => "Envoy",
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
        }
    }
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Http1, Self::Http2];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "h2c",
        }
    }
}
