//! The names under which things are called, as files write them; who answers to one is decided by [`crate::graph`].

use serde::Serialize;

/// The name under which something is called: `reviews`, `reviews.prod.svc.cluster.local:9080`, `127.0.0.1:3000`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Name {
    /// In lower case, without what every name of a cluster ends in (`.svc.cluster.local`).
    pub host: String,
    /// The port, where it is written.
    pub port: Option<u16>,
}

// === Name ===

impl Name {
    /// A name as it is written, with or without a port, with or without a scheme: `http://reviews:9080/x` is
    /// `reviews` at 9080. `None` for what is no name: a variable, a wildcard, nothing.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").map_or(("", text), |(scheme, rest)| (scheme, rest));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']')?;
                (host, behind.strip_prefix(':'))
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => Some(port.parse().ok()?),
            None => default_port(scheme),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(plain) {
            return None;
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let host = host.strip_suffix(".svc.cluster.local").or_else(|| host.strip_suffix(".svc")).unwrap_or(&host);
        Some(Self { host: host.to_owned(), port })
    }

    /// Whether it is the machine itself, which is another one in every file.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self.host.as_str(), "localhost" | "::1") || self.host.starts_with("127.")
    }

    /// Whether it is every address of the machine: for who listens any name, for who calls the machine itself.
    pub(crate) fn is_everywhere(&self) -> bool {
        matches!(self.host.as_str(), "0.0.0.0" | "::")
    }

    /// The name inside a namespace: `reviews` becomes `reviews.prod`; one that has dots already stays.
    #[must_use]
    pub(crate) fn within(self, namespace: Option<&str>) -> Self {
        match namespace {
            Some(namespace) if !self.host.contains('.') && !namespace.is_empty() => {
                Self { host: format!("{}.{}", self.host, namespace.to_ascii_lowercase()), port: self.port }
            }
            _ => self,
        }
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        "postgres" | "postgresql" | "jdbc:postgresql" => Some(5432),
        "mysql" | "jdbc:mysql" => Some(3306),
        "redis" | "rediss" => Some(6379),
        "amqp" => Some(5672),
        _ => None,
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn named(text: &str, want: Option<&str>) {
        assert_eq!(Name::of(text).map(|name| name.to_string()).as_deref(), want, "{text:?}");
    }

    #[test]
    fn names_lose_what_every_name_of_a_cluster_has() {
        named("http://reviews:9080/api", Some("reviews:9080"));
        named("reviews.prod.svc.cluster.local", Some("reviews.prod"));
        named("Reviews.prod.svc:80", Some("reviews.prod:80"));
        named("https://api.example.com", Some("api.example.com:443"));
        named("postgres://user:pass@db/shop", Some("db:5432"));
        named("jdbc:mysql://db:3306/shop", Some("db:3306"));
        named("[::1]:80", Some("::1:80"));
        named("${HOST}:80", None);
        named("*", None);
        named("", None);
    }

    #[test]
    fn a_namespace_is_added_once() {
        let within = |text: &str| Name::of(text).map(|name| name.within(Some("prod")).to_string());
        assert_eq!(within("reviews").as_deref(), Some("reviews.prod"));
        assert_eq!(within("reviews.test").as_deref(), Some("reviews.test"));
    }
}
