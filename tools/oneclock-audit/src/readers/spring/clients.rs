//! Clients: Feign, Boot's own HTTP clients, and what Netflix left behind (Ribbon, Hystrix, Zuul).

use super::tree::Tree;
use super::{App, resolved};
use crate::inventory::{Inventory, Name, On};

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    for path in ["spring.cloud.openfeign.client.config", "feign.client.config"] {
        if let Some(config) = document.at(path) {
            feign(app, config, inventory);
        }
    }
    for path in ["spring.http.client", "spring.http.clients"] {
        let Some(client) = document.at(path) else { continue };
        let rows = [("spring.http.connect_timeout", "connect-timeout"), ("spring.http.read_timeout", "read-timeout")];
        if rows.iter().any(|(_, path)| client.at(path).is_some()) {
            let every = app.every("HTTP client", client.place(&app.start), inventory);
            app.say_all(client, &rows, &every, inventory);
        }
    }
    ribbon(app, document, inventory);
    hystrix(app, document, inventory);
    zuul(app, document, inventory);
}

/// `default` holds for every client that does not say otherwise.
fn feign(app: &App<'_>, config: &Tree, inventory: &mut Inventory) {
    let rows = [
        ("spring.feign.connect_timeout", "connect-timeout", "default.connect-timeout"),
        ("spring.feign.read_timeout", "read-timeout", "default.read-timeout"),
    ];
    let clients: Vec<&Tree> = config.children().filter(|client| client.name != "default").collect();
    for client in &clients {
        let block = client.place(&app.start);
        let to = client.text("url").unwrap_or(&client.name);
        let label = format!("Feign client {}", client.name);
        let Some(edge) = app.call(to, &label, block.clone(), inventory) else { continue };
        let on = On::Edge(edge);
        for (id, path, general) in rows {
            match client.written(path).or_else(|| config.written(general)) {
                Some((text, place)) => inventory.say(on.clone(), id, text, place),
                None => app.default(&on, id, &[general], &block, inventory),
            }
        }
        retryer(client.written("retryer").or_else(|| config.written("default.retryer")), &on, inventory);
        if let (Some(edge), Some(_)) =
            (inventory.edges.get_mut(edge.0), client.at("retryer").or_else(|| config.at("default.retryer")))
        {
            edge.spares_unsafe = Some(false);
        }
    }
    if let Some(general) = config.at("default") {
        let every = app.every("Feign client", general.place(&app.start), inventory);
        for (id, _, path) in rows {
            app.say(&every, id, config.written(path), inventory);
        }
        retryer(config.written("default.retryer"), &every, inventory);
    }
}

/// `feign.Retryer.Default` is five attempts; any other is a class that nobody here can read.
fn retryer(written: Option<(&str, crate::source::Place)>, on: &On, inventory: &mut Inventory) {
    let Some((class, place)) = written else { return };
    if class.ends_with("Retryer.Default") || class.ends_with("Retryer$Default") {
        inventory.say(on.clone(), "spring.feign.retryer", "5", place);
    } else if !class.ends_with("NEVER_RETRY") {
        inventory.unknown(on.clone(), "spring.feign.retryer", class, place);
    }
}

/// `ribbon.*` for all clients, `orders.ribbon.*` for one. Its defaults held only where Ribbon was, which no file says.
fn ribbon(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let rows = [
        ("spring.ribbon.connect_timeout", "ribbon.ConnectTimeout"),
        ("spring.ribbon.read_timeout", "ribbon.ReadTimeout"),
        ("spring.ribbon.max_auto_retries", "ribbon.MaxAutoRetries"),
        ("spring.ribbon.max_auto_retries_next_server", "ribbon.MaxAutoRetriesNextServer"),
    ];
    if rows.iter().any(|(_, path)| document.at(path).is_some()) {
        let place = document.at("ribbon").map_or_else(|| app.start.clone(), |all| all.place(&app.start));
        let every = app.every("Ribbon client", place, inventory);
        app.say_all(document, &rows, &every, inventory);
    }
    for client in document.children() {
        if client.name.eq_ignore_ascii_case("ribbon") || !rows.iter().any(|(_, path)| client.at(path).is_some()) {
            continue;
        }
        let Some(edge) = app.call(&client.name, "Ribbon client", client.place(&app.start), inventory) else { continue };
        app.say_all(client, &rows, &On::Edge(edge), inventory);
        if let Some(edge) = inventory.edges.get_mut(edge.0) {
            edge.spares_unsafe = Some(client.text("ribbon.OkToRetryOnAllOperations").map(resolved) != Some("true"));
        }
    }
}

/// `default` for every command; another key is a command, which may be called as a service is.
fn hystrix(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let Some(commands) = document.at("hystrix.command") else { return };
    for command in commands.children() {
        let on = match Name::of(&command.name) {
            _ if command.name == "default" => app.every("Hystrix command", command.place(&app.start), inventory),
            Some(_) => match app.call(&command.name, "Hystrix command", command.place(&app.start), inventory) {
                Some(edge) => On::Edge(edge),
                None => continue,
            },
            None => continue,
        };
        let off = command.written("execution.timeout.enabled").filter(|(text, _)| resolved(text) == "false");
        let written = off.or_else(|| command.written("execution.isolation.thread.timeoutInMilliseconds"));
        app.say(&on, "spring.hystrix.thread_timeout", written, inventory);
    }
}

fn zuul(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let Some(routes) = document.at("zuul.routes") else { return };
    let rows = [
        ("spring.zuul.connect_timeout", "zuul.host.connect-timeout-millis"),
        ("spring.zuul.socket_timeout", "zuul.host.socket-timeout-millis"),
    ];
    for route in routes.children() {
        let place = route.place(&app.start);
        let url = route.text("url").filter(|url| url.contains("://"));
        let to = url.or_else(|| route.text("service-id")).unwrap_or(&route.name);
        let Some(edge) = app.call(to, &format!("route {}", route.name), place, inventory) else { continue };
        if let (Some(edge), Some(path)) =
            (inventory.edges.get_mut(edge.0), route.text("path").or_else(|| route.own().map(|(text, _)| text)))
        {
            edge.path = Some(path.to_owned());
        }
        // `host` is for routes with an address; those with a name are Ribbon's.
        if url.is_some() {
            for (id, path) in rows {
                app.say_or_default(&On::Edge(edge), id, document, path, &route.place(&app.start), inventory);
            }
        }
    }
}
