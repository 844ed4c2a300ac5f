//! The document of the file's own: listeners, upstreams, and what holds for all of the proxy.
//!
//! Decides what each of them is, alone. What several of them contradict is found by `check`.

use std::net::SocketAddr;
use std::path::PathBuf;

use oneclock_core::wire::{Convention, Conventions, Declared, names};
use oneclock_core::{Name, Trust};

use super::check::{Draft, Placed};
use super::keys::{ADMIN, CONVENTION, FILE_SHAPE, LISTENER, TLS, UPSTREAM, UPSTREAM_TLS};
use super::node::{Node, Refuse, Value};
use super::redact::shown;
use super::refused::known;
use super::shape::Fields;
use super::{Listener, Refused, Tls, Upstream, UpstreamProtocol, UpstreamTls, log, route, values};

/// An address, or the word for none.
type Where = Placed<Option<SocketAddr>>;

/// The words of a trust.
pub(super) const TRUST: [(&str, Trust); 2] = [("inside", Trust::Inside), ("outside", Trust::Outside)];

/// Reads the document into a draft.
pub(super) fn file(node: &Node, draft: &mut Draft) -> Result<(), Refused> {
    let fields = Fields::of(node, &FILE_SHAPE)?;
    if let Some(listeners) = fields.get("listeners") {
        for (index, node) in values::items(listeners)?.iter().enumerate() {
            draft.listeners.push(listener(node, index)?);
        }
    }
    if let Some(upstreams) = fields.get("upstreams") {
        let Value::Map(entries) = &upstreams.value else {
            let what = upstreams.what();
            return Err(upstreams.refused(format!(
                "a mapping is expected here, such as `app: {{ url: http://127.0.0.1:3000 }}`; this is {what}"
            )));
        };
        for (key, node) in entries {
            let name = values::name_of(&key.text).map_err(|why| key.place.refused(why))?;
            draft.upstreams.insert(name, Placed { at: node.place, value: upstream(node)? });
        }
    }
    if let Some(routes) = fields.get("routes") {
        for node in values::items(routes)? {
            draft.routes.push(route::read(node)?);
        }
    }
    if let Some(node) = fields.get("admin") {
        (draft.admin, draft.probes) = admin(node)?;
    }
    draft.access_log = fields.read("accessLog", log::read)?.unwrap_or_default();
    draft.shutdown_grace = fields.read("shutdownGrace", values::span)?.unwrap_or(draft.shutdown_grace);
    Ok(())
}

/// Where the admin pages are, and where probes are answered, as far as that is said.
fn admin(node: &Node) -> Result<(Option<Where>, Option<Where>), Refused> {
    let Value::Map(_) = &node.value else { return Ok((Some(somewhere(node)?), None)) };
    let fields = Fields::of(node, &ADMIN)?;
    Ok((fields.read("pages", somewhere)?, fields.read("probes", somewhere)?))
}

fn somewhere(node: &Node) -> Result<Where, Refused> {
    let value = values::parsed(node, |text| if text == "none" { Ok(None) } else { values::address(text).map(Some) })?;
    Ok(Placed { at: node.place, value })
}

fn listener(node: &Node, index: usize) -> Result<Placed<Listener>, Refused> {
    let fields = Fields::of(node, &LISTENER)?;
    let at = fields.need("address")?;
    let name = match fields.read("name", values::name)? {
        Some(name) => name,
        None if index == 0 => Name::from("http"),
        None => Name::from(format!("http-{}", index + 1)),
    };
    let mut listener = Listener::new(name, values::parsed(at, values::address)?);
    fields.read("protocol", |node| values::word(node, &[("http", ())]))?;
    listener.tls = fields.read("tls", tls)?;
    listener.trust = fields.read("trust", |node| values::word(node, &TRUST))?.unwrap_or(listener.trust);
    listener.reads = fields.read("reads", conventions)?.unwrap_or(listener.reads);
    listener.max_connections = fields.read("maxConnections", connections)?.unwrap_or(listener.max_connections);
    Ok(Placed { at: at.place, value: listener })
}

fn tls(node: &Node) -> Result<Tls, Refused> {
    let fields = Fields::of(node, &TLS)?;
    Ok(Tls {
        certificate: file_path(fields.need("certificate")?)?.into(),
        key: file_path(fields.need("key")?)?.into(),
        client_ca: fields.read("clientCa", file_path)?.map(Into::into),
    })
}

fn upstream(node: &Node) -> Result<Upstream, Refused> {
    let fields = Fields::of(node, &UPSTREAM)?;
    let mut upstream = Upstream::new(values::parsed(fields.need("url")?, values::upstream_url)?);
    let words = UpstreamProtocol::ALL.map(|protocol| (protocol.as_str(), protocol));
    if let Some(node) = fields.get("protocol") {
        upstream.protocol = values::word(node, &words)?;
        if upstream.protocol == UpstreamProtocol::H2c && upstream.url.scheme_str() == Some("https") {
            return Err(node.refused("h2c is HTTP/2 without TLS, and the URL begins with https: delete the line"));
        }
    }
    if let Some(node) = fields.get("tls") {
        if upstream.url.scheme_str() != Some("https") {
            return Err(node.refused("the URL begins with http, so there is no TLS: write https, or delete the line"));
        }
        upstream.tls = Some(upstream_tls(node)?);
    }
    upstream.tells = fields.read("tells", conventions)?;
    upstream.trust = fields.read("trust", |node| values::word(node, &TRUST))?.unwrap_or(upstream.trust);
    upstream.cap = fields.read("cap", values::bound_or_none)?.flatten();
    upstream.max_connections = fields.read("maxConnections", connections)?.unwrap_or(upstream.max_connections);
    Ok(upstream)
}

fn upstream_tls(node: &Node) -> Result<UpstreamTls, Refused> {
    let fields = Fields::of(node, &UPSTREAM_TLS)?;
    let path = |key| fields.read(key, |node| file_path(node).map(PathBuf::from));
    let client = match (path("clientCertificate")?, path("clientKey")?) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            return Err(node.refused("`clientCertificate` is of no use without its `clientKey`: write both"));
        }
        (None, Some(_)) => {
            return Err(node.refused("`clientKey` is of no use without its `clientCertificate`: write both"));
        }
    };
    let server_name = fields.read("serverName", |node| values::parsed(node, values::server_name))?;
    Ok(UpstreamTls { ca: path("ca")?, server_name, client })
}

fn connections(node: &Node) -> Result<usize, Refused> {
    Ok(usize::try_from(values::count(node, 1, 1_000_000)?).unwrap_or(usize::MAX))
}

fn file_path(node: &Node) -> Result<&str, Refused> {
    match values::text(node)? {
        "" => Err(node.refused("the path of a file is expected here")),
        path => Ok(path),
    }
}

/// A list of deadline fields.
fn conventions(node: &Node) -> Result<Conventions, Refused> {
    let mut all = Conventions::none();
    for item in values::items(node)? {
        let one = convention(item)?;
        all = all.with(one).map_err(|error| item.refused(error.to_string()))?;
    }
    Ok(all)
}

fn convention(node: &Node) -> Result<Convention, Refused> {
    if let Value::Map(_) = &node.value {
        let fields = Fields::of(node, &CONVENTION)?;
        let field = fields.need("field")?;
        let kinds = Declared::ALL.map(|kind| (kind.as_str(), kind));
        let kind = values::word(fields.need("is")?, &kinds)?;
        return values::parsed(field, |name| {
            Convention::declared(name.to_owned(), kind).map_err(|error| error.to_string().replace(name, &shown(name)))
        });
    }
    values::parsed(node, |written| {
        if let Some(fixed) = Convention::ALL.into_iter().find(|fixed| *fixed.name() == *written) {
            return Ok(fixed);
        }
        if written == names::X_REQUEST_TIMEOUT {
            return Err(format!(
                "{written} is in milliseconds for some senders and in seconds for others: write \
                 {{ field: {written}, is: remaining-ms }} or {{ field: {written}, is: remaining-seconds }}"
            ));
        }
        let known = known(written, &names::ALL);
        Err(format!(
            "`{}` is not known here{known}; for a field of your own write {{ field: …, is: remaining-ms }}",
            shown(written)
        ))
    })
}
