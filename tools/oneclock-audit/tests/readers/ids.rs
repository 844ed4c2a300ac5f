//! Readers name the rows of the catalogue by their ids, which are text. Here all their sources are read: every id that they
//! name has a row, and every row is named by somebody.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use oneclock_audit::catalogue;

/// Keys, hosts and files of formats that look like ids. What fails the test is misspelled, or one more of these.
const NO_IDS: &[&str] = &[
    "compose.override.yaml",
    "compose.override.yml",
    "compose.yaml",
    "compose.yml",
    "dapr.io",
    "envoy.config.cluster",
    "gunicorn.conf.py",
    "linkerd.io",
    "nginx.conf",
    "oneclock.topology.yaml",
    "resilience4j.timelimiter",
    "resilience4j.{name}",
    "spring.application.name",
    "spring.cloud.config.discovery",
    "spring.cloud.config.uri",
    "spring.cloud.consul.config",
    "spring.cloud.gateway",
    "spring.cloud.gateway.mvc",
    "spring.cloud.gateway.server.webflux",
    "spring.cloud.gateway.server.webmvc",
    "spring.cloud.nacos.config",
    "spring.cloud.openfeign.client.config",
    "spring.config.import",
    "spring.data.mongodb.host",
    "spring.data.mongodb.uri",
    "spring.data.redis",
    "spring.datasource",
    "spring.datasource.type",
    "spring.datasource.{pool}",
    "spring.http.client",
    "spring.http.clients",
    "spring.jpa.properties.jakarta.persistence.lock.timeout",
    "spring.jpa.properties.jakarta.persistence.query.timeout",
    "spring.jpa.properties.javax.persistence.lock.timeout",
    "spring.jpa.properties.javax.persistence.query.timeout",
    "spring.kafka",
    "spring.mongodb.uri",
    "spring.rabbitmq",
    "spring.rabbitmq.{part}.{path}",
    "spring.redis",
    "spring.transaction.default.timeout",
    "traefik.http.middlewares.",
    "traefik.http.routers.",
    "traefik.http.routers.{router}.{part}",
];

/// What stands between quotes in the sources of a folder and of those below it.
fn literals(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            literals(&entry, found);
            continue;
        }
        let text = fs::read_to_string(&entry).expect("a source");
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            found.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
        }
    }
}

/// Whether a text is built like an id of one of these products; a hole of `format!` may stand for any part.
fn looks_like_an_id(text: &str, products: &BTreeSet<&str>) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '{' | '}');
    text.split_once('.').is_some_and(|(product, rest)| products.contains(product) && !rest.is_empty())
        && text.chars().all(plain)
}

/// Whether a text, with or without one hole, names an id.
fn names(text: &str, id: &str) -> bool {
    match text.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?.1))) {
        Some((before, behind)) => id.strip_prefix(before).is_some_and(|rest| rest.ends_with(behind)),
        None => text == id || id.strip_suffix(".connects") == Some(text),
    }
}

#[test]
fn every_id_has_a_row_and_every_row_is_named() {
    let ids: Vec<&str> = catalogue::all().iter().map(|row| row.id.as_str()).collect();
    let products: BTreeSet<&str> = ids.iter().filter_map(|id| id.split_once('.')).map(|(product, _)| product).collect();
    let mut found = BTreeSet::new();
    literals(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/readers"), &mut found);
    found.retain(|text| looks_like_an_id(text, &products) && !NO_IDS.contains(&text.as_str()));
    assert!(found.len() > 250, "only {} ids found: the readers are not looked at", found.len());
    let misspelled: Vec<&String> = found.iter().filter(|text| !ids.iter().any(|id| names(text, id))).collect();
    assert!(misspelled.is_empty(), "not in data/catalogue.yaml (or keys of a format: see NO_IDS): {misspelled:#?}");
    let unnamed: Vec<&&str> = ids.iter().filter(|id| !found.iter().any(|text| names(text, id))).collect();
    assert!(unnamed.is_empty(), "rows that no reader names: {unnamed:#?}");
}
