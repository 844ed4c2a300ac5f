//! What an application serves with: its server and its end. None of it bounds the work of a request, but for
//! asynchronous ones.

use super::App;
use super::tree::Tree;
use crate::inventory::{Inventory, On};

const ROWS: &[(&str, &str)] = &[
    ("spring.tomcat.connection_timeout", "server.tomcat.connection-timeout"),
    ("spring.tomcat.keep_alive_timeout", "server.tomcat.keep-alive-timeout"),
    ("spring.server.connection_timeout", "server.connection-timeout"),
    ("spring.jetty.connection_idle_timeout", "server.jetty.connection-idle-timeout"),
    ("spring.undertow.no_request_timeout", "server.undertow.no-request-timeout"),
    ("spring.netty.connection_timeout", "server.netty.connection-timeout"),
    ("spring.netty.idle_timeout", "server.netty.idle-timeout"),
    ("spring.eureka.lease_expiration", "eureka.instance.lease-expiration-duration-in-seconds"),
    ("spring.eureka.lease_renewal", "eureka.instance.lease-renewal-interval-in-seconds"),
    ("spring.eureka.fetch_interval", "eureka.client.registry-fetch-interval-seconds"),
];

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    app.say_all(document, ROWS, &app.itself(), inventory);
    // Which handlers hand their answer to another thread stands in code; all others it does not bound.
    if let Some((text, place)) = document.written("spring.mvc.async.request-timeout") {
        let why = format!("{text}, for handlers that answer from another thread only");
        inventory.unknown(app.itself(), "spring.mvc.async.request_timeout", &why, place);
    }
    let path = "spring.lifecycle.timeout-per-shutdown-phase";
    match document.written("server.shutdown") {
        Some((how, place)) if how.eq_ignore_ascii_case("graceful") => {
            app.say_or_default(&app.itself(), "spring.lifecycle.shutdown_phase", document, path, &place, inventory);
        }
        // Without a graceful end the phase bounds beans, not requests; it is told where somebody wrote it.
        _ => app.say(&app.itself(), "spring.lifecycle.shutdown_phase", document.written(path), inventory),
    }
    registry(app, document, inventory);
}

/// Eureka, and the configuration server itself.
fn registry(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    if let Some(zones) = document.at("eureka.client.service-url") {
        for zone in zones.children() {
            let Some((text, place)) = zone.own() else { continue };
            for url in text.split(',').map(str::trim) {
                let Some(edge) = app.call(url, "Eureka", place.clone(), inventory) else { continue };
                let rows = [
                    ("spring.eureka.connect_timeout", "eureka.client.eureka-server-connect-timeout-seconds"),
                    ("spring.eureka.read_timeout", "eureka.client.eureka-server-read-timeout-seconds"),
                ];
                app.say_all(document, &rows, &On::Edge(edge), inventory);
            }
        }
    }
    let server = document.written("spring.cloud.config.uri");
    if let Some(edge) = server.and_then(|(url, place)| app.call(url, "configuration server", place, inventory)) {
        let rows = [
            ("spring.config.connect_timeout", "spring.cloud.config.request-connect-timeout"),
            ("spring.config.read_timeout", "spring.cloud.config.request-read-timeout"),
        ];
        app.say_all(document, &rows, &On::Edge(edge), inventory);
    }
}
