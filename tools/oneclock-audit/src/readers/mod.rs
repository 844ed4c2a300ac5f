//! The formats, one module each. A reader takes a document (YAML and JSON are parsed once for all of them) or a whole
//! text, and says what it found; it never judges.
//!
//! To add one: write the module, add it to [`READERS`], add its settings to `data/catalogue.yaml`, and files of its shape
//! to `tests/data`.

mod aws;
mod caddy;
mod command;
mod compose;
mod dapr;
mod dockerfile;
mod env_file;
mod environment;
mod envoy;
mod gateway_api;
mod grpc;
mod gunicorn;
mod haproxy;
mod images;
mod ingress;
mod istio;
mod jdbc;
mod kafka;
mod known;
mod kong;
mod kubernetes;
mod lines;
mod linkerd;
mod matched;
mod next_upstream;
mod nginx;
mod oneclock;
mod proto;
mod proto_file;
mod serverless;
mod spring;
mod started_by;
mod stores;
mod terraform;
pub(crate) mod topology;
mod traefik;
mod uwsgi;

pub(crate) use nginx::Roots;
use oneclock_yaml::Node;

use crate::inventory::Inventory;
use crate::source::Source;
use crate::walk::Repository;

/// A format that is read.
pub(crate) struct Reader {
    /// As reports name it.
    pub name: &'static str,
    /// How it reads.
    pub how: How,
}

/// How a reader reads.
pub(crate) enum How {
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
pub(crate) struct KnownByName {
    /// As reports name it.
    pub name: &'static str,
    /// Whether a file is one.
    pub is: fn(&Source) -> bool,
}

/// The name of the reader of our own topology file.
pub(crate) const TOPOLOGY: &str = "topology";

/// All of them, in the order in which a file is offered.
pub(crate) const READERS: &[Reader] = &[
    Reader { name: "Kong", how: How::Document { words: &["_format_version"], read: kong::read } },
    Reader { name: "Caddyfile", how: How::Text { mine: caddy::is_mine, read: caddy::read } },
    Reader { name: "Traefik", how: How::Document { words: traefik::WORDS, read: traefik::read } },
    Reader { name: "Traefik in TOML", how: How::Text { mine: traefik::is_mine, read: traefik::read_text } },
    Reader {
        name: "Traefik labels",
        how: How::Document { words: &["traefik.http.routers."], read: traefik::read_labels },
    },
    Reader { name: "ingress controllers", how: How::Document { words: ingress::WORDS, read: ingress::read } },
    Reader { name: "HAProxy", how: How::Text { mine: haproxy::is_mine, read: haproxy::read } },
    Reader { name: "nginx", how: How::Text { mine: nginx::is_mine, read: nginx::read } },
    Reader { name: "Envoy", how: How::Documents { words: envoy::WORDS, read: envoy::read } },
    Reader { name: "Gateway API", how: How::Document { words: gateway_api::WORDS, read: gateway_api::read } },
    Reader { name: "Istio", how: How::Document { words: istio::WORDS, read: istio::read } },
    Reader { name: "Linkerd", how: How::Document { words: linkerd::WORDS, read: linkerd::read } },
    Reader { name: "oneclock proxy", how: How::Document { words: oneclock::WORDS, read: oneclock::read } },
    Reader { name: "AWS template", how: How::Document { words: aws::WORDS, read: aws::read } },
    Reader {
        name: "Serverless Framework",
        how: How::Document { words: &["functions:", "provider:"], read: serverless::read },
    },
    Reader { name: "gRPC service config", how: How::Document { words: &["methodConfig"], read: grpc::read } },
    Reader { name: "protobuf", how: How::Text { mine: proto_file::mine, read: proto_file::read } },
    Reader { name: "Dapr", how: How::Document { words: &["dapr.io/"], read: dapr::read } },
    Reader { name: terraform::NAME, how: How::Text { mine: terraform::mine, read: terraform::read } },
    Reader { name: "Spring Boot", how: How::Text { mine: spring::mine, read: spring::read } },
    Reader { name: "compose", how: How::Text { mine: compose::mine, read: compose::read } },
    Reader { name: "Kubernetes", how: How::Documents { words: kubernetes::WORDS, read: kubernetes::read } },
    Reader { name: "what starts a server", how: How::Text { mine: dockerfile::mine, read: dockerfile::read } },
    Reader { name: "environment", how: How::Text { mine: env_file::mine, read: env_file::read } },
    Reader { name: "gunicorn", how: How::Text { mine: gunicorn::mine, read: gunicorn::read } },
    Reader { name: "uWSGI", how: How::Text { mine: uwsgi::mine, read: uwsgi::read } },
    Reader { name: "uWSGI (YAML)", how: How::Document { words: &["uwsgi:"], read: uwsgi::read_yaml } },
    Reader { name: "store", how: How::Text { mine: stores::mine, read: stores::read } },
    Reader { name: "SQL", how: How::Text { mine: stores::sql::mine, read: stores::sql::read } },
    Reader { name: "Kafka", how: How::Text { mine: kafka::mine, read: kafka::read } },
    Reader { name: TOPOLOGY, how: How::Text { mine: topology::mine, read: topology::read } },
];

/// Formats that are recognised and not read: how a report names them, and how a file is told.
pub(crate) const KNOWN_BY_NAME: &[KnownByName] = known::KNOWN;
