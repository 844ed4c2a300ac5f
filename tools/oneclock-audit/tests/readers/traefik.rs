//! Traefik: static and dynamic files in both notations, and labels.

use crate::told::{finds, lines};

const TOML: &str = "\
[entryPoints.web]
address = \":80\"
[entryPoints.web.transport.respondingTimeouts]
readTimeout = 10
[serversTransport.forwardingTimeouts]
dialTimeout = \"300ms\"
";

const STATIC: &str = "\
entryPoints:
  web:
    address: ':80'
    transport: {respondingTimeouts: {readTimeout: 10}}
serversTransport:
  forwardingTimeouts: {dialTimeout: 300ms}
";

/// What both notations say, but for the places.
fn without_places(found: &[String]) -> Vec<String> {
    found.iter().map(|line| line.split(" at ").next().unwrap_or_default().replace("t.toml", "t.yml")).collect()
}

#[test]
fn a_static_file_has_its_defaults() {
    let want = "
    Gateway traefik t.yml [Traefik] answers to
    traefik t.yml: traefik.read_timeout = 10s at t.yml:4:51
    traefik t.yml: traefik.write_timeout = none by default at t.yml:2:3
    traefik t.yml: traefik.idle_timeout = 3m by default at t.yml:2:3
    traefik t.yml: traefik.grace_timeout = 10s by default at t.yml:2:3
    traefik t.yml: traefik.dial_timeout = 300ms at t.yml:6:37
    traefik t.yml: traefik.response_header_timeout = none by default at t.yml:2:3
    traefik t.yml: traefik.idle_conn_timeout = 1m30s by default at t.yml:2:3
    ";
    finds("t.yml", STATIC, want);
}

#[test]
fn toml_says_the_same_and_knows_its_places() {
    let toml = lines(&[("t.toml", TOML)]);
    assert_eq!(without_places(&toml), without_places(&lines(&[("t.yml", STATIC)])));
    assert!(toml.iter().any(|line| line.ends_with("dial_timeout = 300ms at t.toml:6:15")), "{toml:#?}");
}

#[test]
fn a_router_calls_the_servers_of_its_service() {
    let text = "\
http:
  routers:
    shop:
      rule: Host(`shop.example.com`) && PathPrefix(`/cart`) && Method(`POST`)
      middlewares: [again@file]
      service: cart
  middlewares:
    again: {retry: {attempts: 4, initialInterval: 100ms}}
  services:
    cart:
      loadBalancer:
        serversTransport: quick
        servers: [{url: 'http://cart:8080'}]
  serversTransports:
    quick: {forwardingTimeouts: {responseHeaderTimeout: 2s}}
tcp:
  routers: {db: {rule: 'HostSNI(`*`)', service: db}}
  services: {db: {loadBalancer: {servers: [{address: 'db:5432'}]}}}
";
    let want = "
    Gateway traefik dynamic.yml [Traefik] answers to shop.example.com
    call traefik dynamic.yml -> cart:8080 (router shop) POST, spares unsafe
    call traefik dynamic.yml -> db:5432 (router db), streaming
    traefik dynamic.yml -> cart:8080 (router shop): traefik.dial_timeout = 30s by default at dynamic.yml:15:12
    traefik dynamic.yml -> cart:8080 (router shop): traefik.response_header_timeout = 2s at dynamic.yml:15:57
    traefik dynamic.yml -> cart:8080 (router shop): traefik.idle_conn_timeout = 1m30s by default at dynamic.yml:15:12
    traefik dynamic.yml -> cart:8080 (router shop): traefik.retry_attempts.connects = 4 at dynamic.yml:8:31
    traefik dynamic.yml -> cart:8080 (router shop): traefik.retry_initial_interval = 100ms at dynamic.yml:8:51
    ";
    finds("dynamic.yml", text, want);
}

#[test]
fn labels_of_compose_say_whom_it_calls() {
    let text = "\
services:
  shop:
    image: shop
    labels:
    - traefik.http.routers.shop.rule=Host(`shop.example.com`)
    - traefik.http.routers.shop.middlewares=again
    - traefik.http.middlewares.again.retry.attempts=3
    - traefik.http.services.shop.loadbalancer.server.port=8080
  other: {image: other}
";
    let found = lines(&[("compose.yaml", text)]);
    for line in [
        "Gateway traefik labels [Traefik] answers to shop.example.com",
        "call traefik labels -> shop:8080 (router shop), spares unsafe",
        "traefik labels -> shop:8080 (router shop): traefik.retry_attempts.connects = 3 at compose.yaml:7:7",
    ] {
        assert!(found.iter().any(|one| one == line), "{line}\n{found:#?}");
    }
}

#[test]
fn templates_are_listed_and_other_files_are_none() {
    let want = "left out t.toml:1:1: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("t.toml", "[http.routers]\n{{ range .Hosts }}\n", want);
    finds("Cargo.toml", "[package]\nname = \"routers\"\n", "");
    finds("openapi.yaml", "http: {routers: {a: {b: c}}}\n", "");
}

#[test]
fn only_a_listed_status_repeats_what_was_sent() {
    let text = "\
http:
  routers: {shop: {rule: Host(`a`), middlewares: [again], service: cart}}
  middlewares: {again: {retry: {attempts: 4, status: ['502']}}}
  services: {cart: {loadBalancer: {servers: [{url: 'http://cart:8080'}]}}}
";
    let found = lines(&[("dynamic.yml", text)]);
    assert!(found.iter().any(|line| line.contains(": traefik.retry_attempts = 4")), "{found:#?}");
}
