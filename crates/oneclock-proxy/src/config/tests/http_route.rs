//! HTTPRoutes of Gateway API: what is kept as it is, and what is refused rather than left out.

use std::time::Duration;

use http::Method;
use oneclock_core::Name;

use super::{read, refused};

/// As its users write one.
const ORDERS: &str = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: orders
  namespace: shop
  creationTimestamp: null
spec:
  parentRefs:
  - name: example-gateway
  rules:
  - matches:
    - path: { type: PathPrefix, value: /orders }
      method: GET
    - path: { type: Exact, value: /cart }
    backendRefs:
    - name: orders
      port: 8080
      weight: 1
    timeouts: { request: 10s, backendRequest: 2s }
    retry: { codes: [500, 502], attempts: 3, backoff: 100ms }
  - backendRefs:
    - { group: \"\", kind: Service, name: shop, port: 80 }
status:
  parents: []
";

#[test]
fn one_is_kept_as_it_is() {
    let config = read(ORDERS);
    let route = config.route_for("/orders/7", &Method::GET).unwrap();
    assert_eq!(route.name, "orders: GET /orders/*");
    assert_eq!((route.when_absent, route.ceiling), (Duration::from_secs(10), Duration::from_secs(10)));
    assert_eq!(route.backend_request, Some(Duration::from_secs(2)));
    let retry = route.retry_policy().unwrap().unwrap();
    assert_eq!((retry.attempts(), retry.backoff().at_most(1)), (4, Duration::from_millis(100)));
    assert!(retry.retries_status(500) && !retry.retries_status(503));
    assert_eq!(config.upstreams[&route.upstream].url, "http://orders:8080");
    assert_eq!(config.route_for("/cart", &Method::POST).unwrap().name, "orders: GET /orders/*");
    assert_eq!(config.route_for("/orders/7", &Method::POST).unwrap().upstream, "shop:80");
}

#[test]
fn the_files_own_document_says_the_rest_and_what_it_says_of_an_upstream_holds() {
    let own = "listeners: [{ address: 0.0.0.0:80, trust: inside }]\nupstreams:\n  orders:8080: { url: http://orders.shop:8080, cap: 1s }\n";
    for file in [format!("{own}---\n{ORDERS}"), format!("{ORDERS}---\n{own}")] {
        let config = read(&file);
        assert_eq!(config.listeners.len(), 1);
        let orders = &config.upstreams[&Name::from("orders:8080")];
        assert_eq!(
            (&orders.url.to_string()[..], orders.cap),
            ("http://orders.shop:8080/", Some(Duration::from_secs(1)))
        );
        assert_eq!(config.upstreams.len(), 2);
    }
    refused(
        &format!("{ORDERS}---\n{ORDERS}"),
        "37:7: there is a route orders: GET /orders/* already (line 12): write another name",
    );
    refused(
        &format!("{ORDERS}---\n{}", ORDERS.replace("name: orders\n  namespace", "name: other\n  namespace")),
        "37:7: GET /orders/* goes to route orders: GET /orders/* already (line 12), so that this match would never be taken: \
         delete one of them, or add a method or a longer path",
    );
}

/// One with a line in place of another is refused.
#[track_caller]
fn changed(line: &str, to: &str, says: &str) {
    assert!(ORDERS.contains(line), "{line}");
    refused(&ORDERS.replacen(line, to, 1), says);
}

#[test]
fn what_cannot_be_kept_is_refused_and_not_left_out() {
    changed(
        "  rules:\n",
        "  hostnames: [shop.example]\n  rules:\n",
        "10:3: `hostnames` is not supported, and is not ignored: requests are told apart by path and method, so a route for one \
         host would be one for every host",
    );
    changed(
        "    timeouts:",
        "    filters: [{ type: RequestMirror }]\n    timeouts:",
        "19:5: `filters` is not supported, and is not ignored: requests are passed on as they are; leave it to the gateway \
         before this proxy, or delete it",
    );
    changed(
        "method: GET",
        "headers: [{ name: version, value: two }]",
        "13:7: `headers` is not supported, and is not ignored: requests are told apart by path and method; leave such a match \
         out, or keep it in the gateway",
    );
    changed(
        "type: PathPrefix",
        "type: RegularExpression",
        "12:21: RegularExpression is not supported, and is not ignored: write PathPrefix or Exact",
    );
    changed(
        "      weight: 1\n",
        "      weight: 9\n    - { name: canary, port: 8080, weight: 1 }\n",
        "19:7: several backends are not supported, and are not ignored: write one Service that stands for all of them",
    );
    changed(
        "- name: example-gateway",
        "- { name: example-gateway, sectionName: https }",
        "9:30: `sectionName` is not supported, and is not ignored: a route is for every listener here; delete the line",
    );
    changed(
        "      weight: 1",
        "      namespace: billing",
        "18:7: `namespace` is not supported, and is not ignored: write an upstream of that name and port, with a URL that has \
         the namespace",
    );
    changed(
        "kind: HTTPRoute",
        "kind: GRPCRoute",
        "2:7: `GRPCRoute` is not read here: of the objects of Kubernetes only HTTPRoute of gateway.networking.k8s.io/v1 is",
    );
    changed(
        "k8s.io/v1",
        "k8s.io/v1beta1",
        "1:13: `gateway.networking.k8s.io/v1beta1` is not read here: of the objects of Kubernetes only HTTPRoute of gateway.networking.k8s.io/v1 is",
    );
    changed("      port: 8080\n", "", "16:7: `port` is missing in a backend of an HTTPRoute: the port");
    changed(
        "request: 10s",
        "request: 0s",
        "19:26: `0s` would refuse every request: zero means expired here, not unlimited (Gateway API: disabled), and a finite limit is required; write a duration such as 30s, or delete the line for the default",
    );
    changed(
        "request: 10s",
        "request: 1s",
        "19:46: timeouts.backendRequest is 2s, and timeouts.request is 1s: one attempt cannot take longer than its request; write at most 1s",
    );
    changed(
        "retry: {",
        "retrys: {",
        "20:5: there is no key `retrys` here; did you mean `retry`? Known: name, matches, backendRefs, timeouts, retry",
    );
}
