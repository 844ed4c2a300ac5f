//! The proxy of this project.

use crate::told::finds;

#[test]
fn what_each_route_grants() {
    let text = "\
listeners: [{ address: 127.0.0.1:8081, trust: inside }, { address: 0.0.0.0:8080 }]
upstreams:
  app: { url: http://127.0.0.1:3000, cap: 5s }
  pay: { url: https://pay.internal:8443, cap: 300ms }
routes:
- name: reports
  upstream: app
  matches: [{ path: { value: /reports }, method: GET }]
  timeouts: { request: 30s, backendRequest: 10s }
  retry: { attempts: 3 }
- name: plain
  upstream: app
- name: outsiders
  upstream: pay
  trust: outside
  ceiling: 1s
  idempotency: { store: 'sqlite:/k', principal: everybody, execution: 12s }
- name: events
  upstream: app
  kind: { streaming: { idle: 30s, total: 1h30m } }
  timeouts: { request: 0s }
shutdownGrace: 0s
";
    let want = "
    Gateway oneclock proxy [oneclock] answers to 127.0.0.1:8081
    call oneclock proxy -> 127.0.0.1:3000 (route reports) GET, spares unsafe
    call oneclock proxy -> 127.0.0.1:3000 (route plain)
    call oneclock proxy -> pay.internal:8443 (route outsiders)
    call oneclock proxy -> 127.0.0.1:3000 (route events), streaming
    oneclock proxy: oneclock.shutdown_grace = 0s at proxy.yaml:22:16
    oneclock proxy -> 127.0.0.1:3000 (route reports): oneclock.request = 30s at proxy.yaml:9:24
    oneclock proxy -> 127.0.0.1:3000 (route reports): oneclock.cap = 5s at proxy.yaml:3:43
    oneclock proxy -> 127.0.0.1:3000 (route reports): oneclock.backend_request = 10s at proxy.yaml:9:45
    oneclock proxy -> 127.0.0.1:3000 (route reports): oneclock.retry.attempts = 3 at proxy.yaml:10:22
    oneclock proxy -> 127.0.0.1:3000 (route reports): oneclock.retry.backoff = 25ms by default at proxy.yaml:10:10
    oneclock proxy -> 127.0.0.1:3000 (route plain): oneclock.ceiling = 10s by default at proxy.yaml:11:3
    oneclock proxy -> 127.0.0.1:3000 (route plain): oneclock.cap = 5s at proxy.yaml:3:43
    oneclock proxy -> pay.internal:8443 (route outsiders): oneclock.when_absent = 1s at proxy.yaml:16:12
    oneclock proxy -> pay.internal:8443 (route outsiders): oneclock.cap = 300ms at proxy.yaml:4:47
    oneclock proxy -> pay.internal:8443 (route outsiders): oneclock.idempotency.execution = 12s at proxy.yaml:17:71
    oneclock proxy -> pay.internal:8443 (route outsiders): oneclock.idempotency.retention = 24h by default at proxy.yaml:17:16
    oneclock proxy -> 127.0.0.1:3000 (route events): oneclock.stream.idle = 30s at proxy.yaml:20:30
    oneclock proxy -> 127.0.0.1:3000 (route events): oneclock.stream.total = 1h30m at proxy.yaml:20:42
    oneclock proxy -> 127.0.0.1:3000 (route events): oneclock.stream.head = unknown (0s) at proxy.yaml:21:24
    left out proxy.yaml:21:24: NotUnderstood, timeouts.request of a streaming route: `0s` is not understood as a time above zero
    ";
    finds("proxy.yaml", text, want);
}

#[test]
fn for_outsiders_two_seconds_and_beside_a_service_it_stands_between() {
    let text = "listeners: [{ address: 127.0.0.1:8080 }]\nupstreams: { app: { url: 'http://app:3000', cap: 5s } }\nroutes: [{ upstream: app }]\n";
    let want = "
    Between oneclock proxy [oneclock] answers to 127.0.0.1:8080
    call oneclock proxy -> app:3000 (route of every request)
    oneclock proxy: oneclock.shutdown_grace = 10s by default at proxy.yaml:1:1
    oneclock proxy -> app:3000 (route of every request): oneclock.when_absent = 2s by default at proxy.yaml:3:10
    ";
    finds("proxy.yaml", text, want);
}

#[test]
fn upstreams_of_others_are_left_alone() {
    // Kong's are a list.
    finds("kong.yaml", "upstreams: [{ name: a }]\nroutes: []\n", "");
    finds("other.yaml", "upstreams: { a: { host: b } }\nroutes: []\n", "");
}
