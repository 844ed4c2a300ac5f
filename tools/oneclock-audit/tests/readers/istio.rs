//! Istio.

use crate::told::finds;

#[test]
fn a_route_inside_the_mesh_and_its_two_retries_that_nobody_wrote() {
    let text = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: reviews, namespace: prod }
spec:
  hosts: [reviews]
  http:
  - match: [{ uri: { prefix: /slow }, method: { exact: GET } }, { uri: { exact: /other } }]
    timeout: 3s
    fault: { delay: { percentage: { value: 10 }, fixedDelay: 7s } }
    route:
    - { destination: { host: reviews, subset: v1 }, weight: 90 }
    - { destination: { host: reviews, subset: v2 }, weight: 10 }
  - redirect: { uri: / }
    match: [{ uri: { exact: /old } }]
  - retries: { attempts: 3, perTryTimeout: 500ms, retryOn: 'connect-failure,503', backoff: 50ms }
    route: [{ destination: { host: ratings.other.svc.cluster.local, port: { number: 9080 } } }]
";
    let want = "
    Between mesh route reviews [Istio] answers to reviews.prod
    call mesh route reviews -> reviews.prod (route reviews /slow) GET
    call mesh route reviews -> reviews.prod (route reviews /other)
    call mesh route reviews -> ratings.other:9080 (route reviews), repeats unsafe
    mesh route reviews -> reviews.prod (route reviews /slow): istio.timeout = 3s at vs.yaml:8:14
    mesh route reviews -> reviews.prod (route reviews /slow): istio.retries.attempts = 2 by default at vs.yaml:7:5
    mesh route reviews -> reviews.prod (route reviews /slow): istio.fault.fixed_delay = 7s at vs.yaml:9:62
    mesh route reviews -> reviews.prod (route reviews /other): istio.timeout = 3s at vs.yaml:8:14
    mesh route reviews -> reviews.prod (route reviews /other): istio.retries.attempts = 2 by default at vs.yaml:7:5
    mesh route reviews -> reviews.prod (route reviews /other): istio.fault.fixed_delay = 7s at vs.yaml:9:62
    mesh route reviews -> ratings.other:9080 (route reviews): istio.timeout = none by default at vs.yaml:15:5
    mesh route reviews -> ratings.other:9080 (route reviews): istio.retries.attempts = 3 at vs.yaml:15:26
    mesh route reviews -> ratings.other:9080 (route reviews): istio.retries.per_try_timeout = 500ms at vs.yaml:15:44
    mesh route reviews -> ratings.other:9080 (route reviews): istio.retries.backoff = 50ms at vs.yaml:15:92
    ";
    finds("vs.yaml", text, want);
}

#[test]
fn a_gateway_the_mesh_and_connections() {
    let text = "\
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: { name: shop }
spec:
  hosts: [shop.example.com, '*.shop.example.com']
  gateways: [edge, mesh]
  http:
  - match: [{ gateways: [edge], uri: { prefix: / } }]
    timeout: 0s
    retries: { attempts: 0 }
    route: [{ destination: { host: web } }]
  - timeout: 5
    retries: { retryOn: 5xx }
    route: [{ destination: { host: app } }]
  tcp:
  - route: [{ destination: { host: db, port: { number: 5432 } } }]
";
    let want = "
    Gateway gateway edge [Istio] answers to shop.example.com
    Between mesh route shop [Istio] answers to shop.example.com
    call gateway edge -> web (route shop /)
    call gateway edge -> app (route shop)
    call mesh route shop -> app (route shop)
    call gateway edge -> db:5432 (connections of shop), streaming
    call mesh route shop -> db:5432 (connections of shop), streaming
    gateway edge -> web (route shop /): istio.timeout = none at vs.yaml:9:14
    gateway edge -> web (route shop /): istio.retries.attempts = 0 at vs.yaml:10:26
    gateway edge -> app (route shop): istio.timeout = unknown (5) at vs.yaml:12:14
    gateway edge -> app (route shop): istio.retries.attempts = 0 at vs.yaml:13:14
    mesh route shop -> app (route shop): istio.timeout = unknown (5) at vs.yaml:12:14
    mesh route shop -> app (route shop): istio.retries.attempts = 0 at vs.yaml:13:14
    left out vs.yaml:12:14: NotUnderstood, http.timeout: `5` is not understood as a time
    left out vs.yaml:12:14: NotUnderstood, http.timeout: `5` is not understood as a time
    ";
    finds("vs.yaml", text, want);
}

#[test]
fn what_is_said_of_everybodys_calls_to_a_host() {
    let text = "\
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: ratings, namespace: prod }
spec:
  host: ratings
  trafficPolicy:
    connectionPool: { tcp: { connectTimeout: 30ms }, http: { idleTimeout: 30s, maxRetries: 2 } }
    outlierDetection: { consecutive5xxErrors: 3 }
    portLevelSettings: [{ port: { number: 81 }, connectionPool: { tcp: { connectTimeout: 1s } } }]
  subsets: [{ name: v1, trafficPolicy: { outlierDetection: { baseEjectionTime: 3m } } }]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: plain }
spec: { host: plain.prod.svc.cluster.local }
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: { name: everybody }
spec: { host: '*.local' }
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: outside }
spec: { hosts: [api.example.com] }
---
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
spec: { meshConfig: { connectTimeout: 1s, defaultHttpRetryPolicy: { attempts: 0 } } }
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: { name: narrow }
";
    let want = "
    Service api.example.com [] answers to api.example.com
    Between Istio mesh [Istio] answers to
    calls to ratings.prod: istio.connect_timeout = 30ms at dr.yaml:7:46
    calls to ratings.prod: istio.idle_timeout = 30s at dr.yaml:7:75
    calls to ratings.prod: istio.max_retries = 2 at dr.yaml:7:92
    calls to ratings.prod: istio.ejection = 30s by default at dr.yaml:8:23
    calls to ratings.prod: istio.ejection = 3m at dr.yaml:10:80
    calls to ratings.prod:81: istio.connect_timeout = 1s at dr.yaml:9:90
    calls to plain.prod: istio.connect_timeout = 10s by default at dr.yaml:15:7
    Istio mesh: istio.mesh.connect_timeout = 1s at dr.yaml:29:39
    Istio mesh: istio.mesh.retries.attempts = 0 at dr.yaml:29:79
    left out dr.yaml:20:15: NotUnderstood, DestinationRule everybody: whose calls it is about is no name that could be looked for
    left out dr.yaml:31:1: NotRead, Sidecar narrow: known, and not read
    ";
    finds("dr.yaml", text, want);
}

#[test]
fn nothing_of_a_template_and_nothing_of_others() {
    let template = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec:\n  http:\n  - timeout: {{ .Values.timeout }}\n";
    let want = "left out t.yaml:5:15: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("t.yaml", template, want);
    finds("gateway.yaml", "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: { name: edge }\n", "");
}
