//! uWSGI: `[uwsgi]` of an ini file, and the same under `uwsgi:` in YAML. What its command line and its environment say is
//! read where they stand.

use oneclock_yaml::Node;

use super::lines::{Parted, lines};
use super::started_by;
use crate::inventory::{Inventory, On, Role};
use crate::source::{Source, folder};
use crate::walk::Repository;

pub(super) const KEYS: &[(&str, &str)] = &[
    ("harakiri", "uwsgi.harakiri"),
    ("http-timeout", "uwsgi.http_timeout"),
    ("socket-timeout", "uwsgi.socket_timeout"),
    ("http-connect-timeout", "uwsgi.http_connect_timeout"),
    ("http-headers-timeout", "uwsgi.http_headers_timeout"),
    ("http-keepalive", "uwsgi.http_keepalive"),
    ("worker-reload-mercy", "uwsgi.worker_reload_mercy"),
    ("reload-mercy", "uwsgi.reload_mercy"),
];

/// An ini file with a section of that name.
pub(super) fn mine(source: &Source) -> bool {
    source.extension() == "ini" && source.text.lines().any(|line| line.trim() == "[uwsgi]")
}

pub(super) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
    let name = started_by::called(folder(&source.path), "uWSGI");
    let component = inventory.component(name, "", Role::Service, source.place(1, 1, 1));
    for line in lines(source, Parted::Equals).filter(|line| line.section == "uwsgi") {
        let said = |id: &&str| !line.value.is_empty() && line.value != "true" && is_time(id, line.value);
        if let Some(id) = id(line.key).filter(said) {
            inventory.say(On::Component(component), id, line.value, line.place);
        }
    }
}

pub(super) fn read_yaml(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(section) = document.find("uwsgi").filter(|section| !section.entries().is_empty()) else { return false };
    let said: Vec<_> =
        section.entries().iter().filter_map(|(key, node)| Some((id(&key.text)?, node.text()?, node))).collect();
    if said.is_empty() {
        return false;
    }
    let name = started_by::called(folder(&source.path), "uWSGI");
    let component = inventory.component(name, "", Role::Service, source.of(section));
    for (id, text, node) in said.into_iter().filter(|(id, text, _)| is_time(id, text)) {
        inventory.say(On::Component(component), id, text, source.of(node));
    }
    true
}

/// Options are written with `-` or `_`.
fn id(key: &str) -> Option<&'static str> {
    let key = key.replace('_', "-");
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, id)| *id)
}

/// `http-keepalive = 1` turns it on, and says no time.
pub(super) fn is_time(id: &str, text: &str) -> bool {
    id != "uwsgi.http_keepalive" || text.trim() != "1"
}
