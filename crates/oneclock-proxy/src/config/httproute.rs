//! An HTTPRoute of Gateway API, as it is.
//!
//! Decides what of one can be kept here. The rest is refused where it stands: a filter that is left out or a header
//! that is not looked at would send requests where nobody wants them. `metadata`, `status` and `parentRefs` say which
//! gateway it is for, which is this one.

use oneclock_core::Name;

use super::check::{Draft, Placed, RouteDraft};
use super::node::{Node, Refuse};
use super::redact::shown;
use super::shape::Is::{Anything, Count, List, Map, Text, Word};
use super::shape::{Fields, Key, Shape};
use super::{Match, Refused, Upstream, route, route_keys, values};

const VERSION: &str = "gateway.networking.k8s.io/v1";
const KIND: &str = "HTTPRoute";

pub(super) static HTTP_ROUTE: Shape = Shape {
    what: "an HTTPRoute",
    keys: &[
        Key::required("apiVersion", Word(&[VERSION]), "the version"),
        Key::required("kind", Word(&[KIND]), "the kind"),
        Key::optional("metadata", Anything, "none", "its name; the rest is not looked at"),
        Key::required("spec", Map(&SPEC), "the rules"),
        Key::optional("status", Anything, "none", "not looked at"),
    ],
    unsupported: &[],
};

pub(super) static SPEC: Shape = Shape {
    what: "the spec of an HTTPRoute",
    keys: &[
        Key::optional("parentRefs", List(&Map(&PARENT)), "none", "the gateway, which is this proxy"),
        Key::required("rules", List(&Map(&RULE)), "which request goes where"),
    ],
    unsupported: &[
        (
            "hostnames",
            "requests are told apart by path and method, so a route for one host would be one for every host",
        ),
        ("useDefaultGateways", "every document of the file is for this proxy; delete the line"),
    ],
};

pub(super) static PARENT: Shape = Shape {
    what: "a parent of an HTTPRoute",
    keys: &[
        Key::optional("group", Anything, "none", "not looked at"),
        Key::optional("kind", Anything, "none", "not looked at"),
        Key::optional("name", Anything, "none", "not looked at"),
        Key::optional("namespace", Anything, "none", "not looked at"),
    ],
    unsupported: &[
        ("sectionName", "a route is for every listener here; delete the line"),
        ("port", "a route is for every listener here; delete the line"),
    ],
};

pub(super) static RULE: Shape = Shape {
    what: "a rule of an HTTPRoute",
    keys: &[
        Key::optional("name", Text("orders"), "its first match", "what it is called, after the name of the HTTPRoute"),
        Key::optional("matches", List(&Map(&route_keys::MATCH)), "every request", "as `matches` of a route"),
        Key::required("backendRefs", List(&Map(&BACKEND)), "one backend"),
        Key::optional("timeouts", Map(&route_keys::TIMEOUTS), "2s, at most 10s", "as `timeouts` of a route"),
        Key::optional("retry", Map(&route_keys::RETRY), "one attempt", "as `retry` of a route"),
    ],
    unsupported: &[
        ("filters", "requests are passed on as they are; leave it to the gateway before this proxy, or delete it"),
        ("sessionPersistence", "there is one backend; delete it"),
    ],
};

pub(super) static BACKEND: Shape = Shape {
    what: "a backend of an HTTPRoute",
    keys: &[
        Key::required("name", Text("orders"), "the host"),
        Key::required("port", Count(1, 65_535), "the port"),
        Key::optional("group", Word(&[""]), "the core group", "that of a Service"),
        Key::optional("kind", Word(&["Service"]), "Service", "a Service"),
        Key::optional("weight", Count(1, 1_000_000), "1", "says nothing with one backend"),
    ],
    unsupported: &[
        ("namespace", "write an upstream of that name and port, with a URL that has the namespace"),
        ("filters", "requests are passed on as they are; leave it to the gateway before this proxy, or delete it"),
    ],
};

/// Whether a document says that it is some object of Kubernetes.
pub(super) fn is_an_object(node: &Node) -> bool {
    node.find("kind").is_some() || node.find("apiVersion").is_some()
}

/// Reads the document into a draft.
pub(super) fn read(node: &Node, draft: &mut Draft) -> Result<(), Refused> {
    for (key, right) in [("kind", KIND), ("apiVersion", VERSION)] {
        if let Some(node) = node.find(key) {
            let written = values::text(node)?;
            if written != right {
                let written = shown(written);
                return Err(node.refused(format!(
                    "`{written}` is not read here: of the objects of Kubernetes only {KIND} of {VERSION} is"
                )));
            }
        }
    }
    let fields = Fields::of(node, &HTTP_ROUTE)?;
    let name = fields.get("metadata").and_then(|metadata| metadata.find("name"));
    let name = name.map(values::name).transpose()?;
    let spec = Fields::of(fields.need("spec")?, &SPEC)?;
    spec.read("parentRefs", |node| {
        values::items(node)?.iter().try_for_each(|node| Fields::of(node, &PARENT).map(drop))
    })?;
    for node in values::items(spec.need("rules")?)? {
        let (at, upstream) = rule(node, name.as_ref())?;
        draft.routes.push(at);
        // What the file's own document says of it holds.
        draft.upstreams.entry(upstream.0).or_insert(upstream.1);
    }
    Ok(())
}

fn rule(node: &Node, object: Option<&Name>) -> Result<(RouteDraft, (Name, Placed<Upstream>)), Refused> {
    let fields = Fields::of(node, &RULE)?;
    let matches = match fields.get("matches") {
        Some(node) => values::items(node)?.iter().map(route::a_match).collect::<Result<_, _>>()?,
        None => vec![Placed { at: node.place, value: Match::everything() }],
    };
    let (name, upstream) = backend(fields.need("backendRefs")?)?;
    let mut draft = RouteDraft::new(matches, Placed { at: upstream.at, value: name.clone() });
    let rule = fields.read("name", values::name)?.unwrap_or_else(|| draft.route.name.clone());
    draft.route.name = object.map_or(rule.clone(), |object| Name::from(format!("{object}: {rule}")));
    let limits = fields.read("timeouts", route::timeouts)?.unwrap_or_default();
    limits.into(&mut draft.route, node.place)?;
    draft.route.retry = fields.read("retry", route::retry)?;
    Ok((draft, (name, upstream)))
}

fn backend(node: &Node) -> Result<(Name, Placed<Upstream>), Refused> {
    let backends = values::items(node)?;
    if let Some(second) = backends.get(1) {
        return Err(second.refused(
            "several backends are not supported, and are not ignored: write one Service that stands for all of them",
        ));
    }
    let Some(first) = backends.first() else { return Err(node.refused("one backend is expected here")) };
    let fields = Fields::of(first, &BACKEND)?;
    fields.read("group", |node| values::word(node, &[("", ())]))?;
    fields.read("kind", |node| values::word(node, &[("Service", ())]))?;
    fields.read("weight", |node| values::count(node, 1, 1_000_000))?;
    let (host, port) = (fields.need("name")?, fields.need("port")?);
    let (written, port) = (values::text(host)?, values::count(port, 1, 65_535)?);
    let is_a_label =
        !written.is_empty() && written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if !is_a_label {
        return Err(host.refused(format!("`{}` is not the name of a Service", shown(written))));
    }
    let name = format!("{written}:{port}");
    let url = values::upstream_url(&format!("http://{name}")).map_err(|why| host.refused(why))?;
    Ok((Name::from(name), Placed { at: first.place, value: Upstream::new(url) }))
}
