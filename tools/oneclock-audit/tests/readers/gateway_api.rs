//! Gateway API routes.

use oneclock_audit::inventory::Propagates;

use crate::told::finds;
use crate::written::inventory;

#[test]
fn a_route_of_a_gateway_and_one_of_a_mesh() {
    let text = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: prod}
spec:
  parentRefs: [{name: edge}]
  hostnames: [shop.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /cart}, method: POST}]
    timeouts: {request: 2s, backendRequest: 500ms}
    retry: {attempts: 3, backoff: 100ms}
    backendRefs: [{name: cart, port: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: reviews}
spec:
  parentRefs: [{kind: Service, name: reviews}]
  rules:
  - timeouts: {request: 10}
    backendRefs: [{name: reviews-v2}]
";
    let want = "
    Gateway gateway edge [Gateway API] answers to shop.example.com
    Between mesh route reviews [Gateway API] answers to reviews
    call gateway edge -> cart.prod:8080 (route shop /cart) POST
    call mesh route reviews -> reviews-v2 (route reviews)
    gateway edge -> cart.prod:8080 (route shop /cart): gateway_api.request = 2s at routes.yaml:9:25
    gateway edge -> cart.prod:8080 (route shop /cart): gateway_api.backend_request = 500ms at routes.yaml:9:45
    gateway edge -> cart.prod:8080 (route shop /cart): gateway_api.retry.attempts = 3 at routes.yaml:10:23
    gateway edge -> cart.prod:8080 (route shop /cart): gateway_api.retry.backoff = 100ms at routes.yaml:10:35
    mesh route reviews -> reviews-v2 (route reviews): gateway_api.request = unknown (10) at routes.yaml:19:25
    left out routes.yaml:19:25: NotUnderstood, timeouts.request: `10` is not understood as a time
    ";
    finds("routes.yaml", text, want);
}

#[test]
fn a_template_is_listed_and_not_read_as_no_timeout() {
    let text = "kind: HTTPRoute\nspec:\n  rules:\n  - timeouts: {{ toYaml .Values.timeouts }}\n";
    let want =
        "left out templates/route.yaml:4:16: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("templates/route.yaml", text, want);
}

#[test]
fn several_matches_mirrors_redirects_and_what_gets_nothing() {
    let text = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { name: shop }
spec:
  parentRefs: [{ name: edge }]
  rules:
  - matches: [{ path: { value: /a }, method: GET }, { path: { value: /a }, method: HEAD }, { path: { value: /b } }]
    timeouts: { request: 0s }
    filters: [{ type: RequestMirror, requestMirror: { backendRef: { name: shadow } } }]
    backendRefs: [{ name: cart, weight: 9 }, { name: next, weight: 0 }]
  - filters: [{ type: RequestRedirect }]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: { name: through }
spec: { parentRefs: [{ name: edge }], rules: [{ backendRefs: [{ name: db, port: 5432 }] }] }
";
    let want = "
    Gateway gateway edge [Gateway API] answers to
    Gateway gateway edge [Gateway API] answers to
    call gateway edge -> cart (route shop /a) GET,HEAD
    call gateway edge -> cart (route shop /b)
    call gateway edge -> db:5432 (route through), streaming
    gateway edge -> cart (route shop /a): gateway_api.request = none at routes.yaml:8:26
    gateway edge -> cart (route shop /b): gateway_api.request = none at routes.yaml:8:26
    ";
    finds("routes.yaml", text, want);
}

#[test]
fn the_methods_of_grpc_are_paths_and_the_deadline_goes_along() {
    let text = "\
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: { name: pay }
spec:
  parentRefs: [{ kind: Service, name: pay }]
  rules:
  - matches: [{ method: { service: shop.Pay, method: Charge } }, { method: { service: shop.Pay } }, { headers: [] }]
    backendRefs: [{ name: pay-v2 }]
";
    let want = "
    Between mesh route pay [Gateway API] answers to pay
    call mesh route pay -> pay-v2 (route pay /shop.Pay/Charge)
    call mesh route pay -> pay-v2 (route pay /shop.Pay/)
    call mesh route pay -> pay-v2 (route pay)
    ";
    finds("routes.yaml", text, want);
    let found = inventory(&[("routes.yaml", text)]);
    assert!(found.edges.iter().all(|edge| edge.propagates == Propagates::Deadline));
}
