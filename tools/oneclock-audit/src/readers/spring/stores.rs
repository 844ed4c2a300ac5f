//! Databases and their pools, Redis, `RabbitMQ`, Kafka: whom an application calls there, and how long it waits.

use super::super::jdbc;
use super::tree::Tree;
use super::{App, resolved};
use crate::inventory::{Inventory, On};
use crate::source::Place;

const POOL: &[(&str, &str)] = &[
    ("spring.hikari.max_lifetime", "hikari.max-lifetime"),
    ("spring.hikari.idle_timeout", "hikari.idle-timeout"),
    ("spring.hikari.validation_timeout", "hikari.validation-timeout"),
    ("spring.hikari.keepalive_time", "hikari.keepalive-time"),
    ("spring.datasource.max_wait", "tomcat.max-wait"),
    ("spring.datasource.max_wait", "dbcp2.max-wait-millis"),
    ("spring.datasource.max_wait", "druid.max-wait"),
];

const STATEMENTS: &[(&str, &str)] = &[
    ("spring.jdbc.query_timeout", "spring.jdbc.template.query-timeout"),
    ("spring.jpa.query_timeout", "spring.jpa.properties.jakarta.persistence.query.timeout"),
    ("spring.jpa.query_timeout", "spring.jpa.properties.javax.persistence.query.timeout"),
    ("spring.jpa.lock_timeout", "spring.jpa.properties.jakarta.persistence.lock.timeout"),
    ("spring.jpa.lock_timeout", "spring.jpa.properties.javax.persistence.lock.timeout"),
    ("spring.transaction.default_timeout", "spring.transaction.default-timeout"),
    ("spring.transaction.default_timeout", "spring.transaction.default.timeout"),
];

/// How a call to a database is labelled.
const DATABASE: &str = "database";

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    datasource(app, document, inventory);
    // They bound statements: what the application asks of others over HTTP has other limits.
    if STATEMENTS.iter().any(|(_, path)| document.written(path).is_some()) {
        for on in databases(app, inventory) {
            app.say_all(document, STATEMENTS, &on, inventory);
        }
    }
    redis(app, document, inventory);
    super::brokers::read(app, document, inventory);
    for (path, label) in [
        ("spring.data.mongodb.uri", "MongoDB"),
        ("spring.data.mongodb.host", "MongoDB"),
        ("spring.mongodb.uri", "MongoDB"),
    ] {
        if let Some((url, place)) = document.written(path) {
            let url = url.rsplit_once('@').map_or(url, |(_, hosts)| hosts);
            app.call(url.split(',').next().unwrap_or(url), label, place, inventory);
        }
    }
}

/// The calls of the application to its databases; one that stands for all of them where no file says which they are.
fn databases(app: &App<'_>, inventory: &mut Inventory) -> Vec<On> {
    let own = |edge: &crate::inventory::Edge| edge.from == app.component && edge.label == DATABASE;
    let known = inventory.edges.iter().enumerate().filter(|(_, edge)| own(edge));
    let known: Vec<On> = known.map(|(at, _)| On::Edge(crate::inventory::EdgeId(at))).collect();
    if known.is_empty() { vec![app.every(DATABASE, app.start.clone(), inventory)] } else { known }
}

fn datasource(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let Some(datasource) = document.at("spring.datasource") else { return };
    let url = ["url", "hikari.jdbc-url", "jdbc-url"].iter().find_map(|path| datasource.written(path));
    let block = url.as_ref().map_or_else(|| datasource.place(&app.start), |(_, place)| place.clone());
    let edge = url.as_ref().and_then(|(url, place)| database(app, datasource, url, place, inventory));
    let on = edge.map_or_else(|| app.itself(), On::Edge);
    app.say_all(datasource, POOL, &on, inventory);
    let wait = "spring.datasource.hikari.connection-timeout";
    let other_pool = ["tomcat", "dbcp2", "druid", "type"].iter().any(|pool| datasource.at(pool).is_some());
    match document.written(wait) {
        Some((text, place)) => inventory.say(on, "spring.hikari.connection_timeout", text, place),
        None if edge.is_some() && !other_pool => {
            app.default(&on, "spring.hikari.connection_timeout", &[wait, "spring.datasource.type"], &block, inventory);
        }
        None => {}
    }
}

/// `jdbc:postgresql://db:5432/shop?socketTimeout=5`.
fn database(
    app: &App<'_>,
    datasource: &Tree,
    url: &str,
    place: &Place,
    inventory: &mut Inventory,
) -> Option<crate::inventory::EdgeId> {
    let url = resolved(url);
    let jdbc = url.strip_prefix("jdbc:")?;
    let (scheme, rest) = jdbc.split_once(':')?;
    // `jdbc:tc:`, `jdbc:p6spy:`, `jdbc:aws-wrapper:` stand in front of another driver.
    let (scheme, rest) = match scheme {
        "p6spy" | "aws-wrapper" | "otel" => rest.split_once(':')?,
        _ => (scheme, rest),
    };
    let authority = rest.strip_prefix("//")?;
    let host = authority.split(['/', '?', ';', ',']).next().unwrap_or(authority);
    let edge = app.call(&with_port(host, scheme), DATABASE, place.clone(), inventory)?;
    let on = On::Edge(edge);
    for jdbc::Parameter { name, id, told } in jdbc::parameters(scheme) {
        let written = jdbc::written(authority, scheme, name);
        let pool = format!("hikari.data-source-properties.{name}");
        match (written, datasource.written(&pool)) {
            (Some(text), _) => inventory.say(on.clone(), id, text, place.clone()),
            (None, Some((text, place))) => inventory.say(on.clone(), id, text, place),
            (None, None) if *told && app.has_druid() => {
                inventory.unknown(on.clone(), id, "Druid, the pool, may set it by itself", place.clone());
            }
            // The URL is all that a driver has, but for what the pool hands it.
            (None, None) if *told && !app.elsewhere(&[&format!("spring.datasource.{pool}")]) => {
                inventory.unsaid(on.clone(), id, place.clone());
            }
            (None, None) => {}
        }
    }
    if let Some((_, behind)) =
        authority.split_once("statement_timeout=").or_else(|| authority.split_once("statement_timeout%3D"))
    {
        let value = behind.split(['&', '%', ' ', '+']).next().unwrap_or_default();
        inventory.say(on, "jdbc.postgresql.statement_timeout", value, place.clone());
    }
    Some(edge)
}

/// The port that a driver takes where none is written.
fn with_port(host: &str, scheme: &str) -> String {
    let Some(port) = jdbc::port(scheme) else { return host.to_owned() };
    if host.rsplit(']').next().unwrap_or(host).contains(':') { host.to_owned() } else { format!("{host}:{port}") }
}

fn redis(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    for prefix in ["spring.data.redis", "spring.redis"] {
        let Some(redis) = document.at(prefix) else { continue };
        let block = redis.place(&app.start);
        let port = redis.text("port").map(resolved).filter(|port| port.parse::<u16>().is_ok()).unwrap_or("6379");
        let edge = match (redis.written("url"), redis.written("host")) {
            (Some((url, place)), _) => app.call(url, "Redis", place, inventory),
            (None, Some((host, place))) => app.call(&format!("{}:{port}", resolved(host)), "Redis", place, inventory),
            (None, None) => None,
        };
        let on = edge.map_or_else(|| app.itself(), On::Edge);
        for pool in ["lettuce.pool.max-wait", "jedis.pool.max-wait"] {
            app.say(&on, "spring.redis.pool_max_wait", redis.written(pool), inventory);
        }
        for (id, path) in [("spring.redis.timeout", "timeout"), ("spring.redis.connect_timeout", "connect-timeout")] {
            match redis.written(path) {
                Some((text, place)) => inventory.say(on.clone(), id, text, place),
                // The default is that of Lettuce; Jedis is asked for by name, or by its part of the properties.
                None if edge.is_some() && redis.at("jedis").is_none() && redis.at("client-type").is_none() => {
                    app.default(&on, id, &[&format!("{prefix}.{path}")], &block, inventory);
                }
                None => {}
            }
        }
    }
}
