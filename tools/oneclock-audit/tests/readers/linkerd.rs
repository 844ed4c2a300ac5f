//! Linkerd.

use crate::told::finds;

#[test]
fn annotations_of_a_service_and_of_a_route() {
    let text = "\
apiVersion: v1
kind: Service
metadata:
  name: cart
  namespace: prod
  annotations: { timeout.linkerd.io/request: 2s, timeout.linkerd.io/idle: '5', retry.linkerd.io/http: 5xx }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: cart-pay
  namespace: prod
  annotations: { timeout.linkerd.io/response: 1s, retry.linkerd.io/limit: '3', retry.linkerd.io/timeout: 300ms }
spec:
  parentRefs: [{ kind: Service, group: core, name: cart, port: 80 }]
  rules: [{ matches: [{ path: { value: /pay } }] }]
---
apiVersion: policy.linkerd.io/v1beta3
kind: HTTPRoute
metadata: { name: who, annotations: { retry.linkerd.io/limit: '0' } }
spec:
  parentRefs: [{ kind: Service, name: who }, { kind: Server, name: who-http }]
  rules: [{ timeouts: { request: 10s } }]
";
    let want = "
    Between mesh route cart-pay [Gateway API] answers to cart.prod:80
    Between mesh route who [Gateway API] answers to who
    call mesh route cart-pay -> cart.prod:80 (route cart-pay /pay), repeats unsafe
    call mesh route who -> who (route who), repeats unsafe
    mesh route cart-pay -> cart.prod:80 (route cart-pay /pay): linkerd.response = 1s at mesh.yaml:13:47
    mesh route cart-pay -> cart.prod:80 (route cart-pay /pay): linkerd.retry.limit = 3 at mesh.yaml:13:75
    mesh route cart-pay -> cart.prod:80 (route cart-pay /pay): linkerd.retry.timeout = 300ms at mesh.yaml:13:106
    mesh route who -> who (route who): gateway_api.request = 10s at mesh.yaml:23:34
    mesh route who -> who (route who): linkerd.retry.limit = 1 by default at mesh.yaml:20:37
    calls to cart.prod: linkerd.request = 2s at mesh.yaml:6:46
    calls to cart.prod: linkerd.idle = unknown (5) at mesh.yaml:6:75
    calls to cart.prod: linkerd.retry.limit = 1 by default at mesh.yaml:6:103
    left out mesh.yaml:6:75: NotUnderstood, timeout.linkerd.io/idle: `5` is not understood as a time
    ";
    finds("mesh.yaml", text, want);
}

#[test]
fn a_profile_whose_routes_have_no_limit_but_the_one_that_is_written() {
    let text = "\
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: { name: web.prod.svc.cluster.local, namespace: prod }
spec:
  routes:
  - { name: GET /books, condition: { method: GET, pathRegex: /books }, isRetryable: true }
  - { name: POST /books, condition: { all: [{ method: POST }, { pathRegex: /books }] }, timeout: 300ms, isRetryable: false }
";
    let want = "
    Between profile web.prod [Linkerd] answers to web.prod
    call profile web.prod -> web.prod (route GET /books) GET, repeats unsafe
    call profile web.prod -> web.prod (route POST /books) POST
    profile web.prod -> web.prod (route GET /books): linkerd.profile.timeout = none by default at profile.yaml:6:5
    profile web.prod -> web.prod (route GET /books): linkerd.profile.is_retryable = none at profile.yaml:6:85
    profile web.prod -> web.prod (route POST /books): linkerd.profile.timeout = 300ms at profile.yaml:7:98
    ";
    finds("profile.yaml", text, want);
}

#[test]
fn a_service_without_annotations_of_linkerd_is_none_of_its() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\ndata: { note: 'see retry.linkerd.io/http' }\n";
    finds("a.yaml", text, "");
}
