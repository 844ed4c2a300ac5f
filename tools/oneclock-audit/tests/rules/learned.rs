//! What public repositories taught: what was said wrongly of them once, in small files of the same shape, and is not any more.

use crate::judged::{TOPOLOGY, is_silent, says};

/// Two layers of a mesh that try again because Istio does so by default, in files beside each other.
const LAYERS: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: NAME, namespace: shop}
spec:
  hosts: [HOST]
  gateways: [NAME]
  http:
  - route: [{destination: {host: cart}}]
";

#[test]
fn a_gateway_does_not_call_another_gateway_of_its_kind() {
    let of = |name: &str, host: &str| LAYERS.replace("NAME", name).replace("HOST", host);
    let (edge, inner) = (of("edge", "shop.example.com"), of("inner", "cart"));
    is_silent("retry-amplification", &[("edge.yaml", &edge), ("inner.yaml", &inner)]);
    says(
        "no-limit",
        &[("edge.yaml", &edge), ("inner.yaml", &inner)],
        &[
            "warning at edge.yaml:8: gateway edge → cart.shop may wait for ever",
            "warning at inner.yaml:8: gateway inner → cart.shop may wait for ever",
        ],
    );
}

#[test]
fn one_policy_of_a_gateway_for_all_its_routes_is_told_once() {
    let gateway = "\
spring.application.name: edge
spring.cloud.gateway.server.webflux:
  default-filters:
  - {name: Retry, args: {retries: 1, statuses: SERVICE_UNAVAILABLE, methods: POST}}
  routes:
  - {id: carts, uri: 'lb://carts', predicates: ['Path=/carts/**']}
  - {id: orders, uri: 'lb://orders', predicates: ['Path=/orders/**']}
";
    says(
        "unsafe-retry",
        &[("application.yml", gateway)],
        &[
            "warning at application.yml:4: edge → carts and one more call are tried up to 2 times, and what must not be repeated (POST, \
         PATCH) is not left out",
        ],
    );
}

#[test]
fn nobody_waits_for_a_function_that_is_only_told_to_begin() {
    let of = |kind: &str| {
        format!(
            "Resources:\n  Shop: {{Type: AWS::ApiGateway::RestApi}}\n  Pack:\n    Type: AWS::Lambda::Function\n    Properties: {{Timeout: \
             300}}\n  Order:\n    Type: AWS::ApiGateway::Method\n    Properties:\n      RestApiId: !Ref Shop\n      HttpMethod: POST\n      \
             Integration:\n        Type: AWS\n        Uri: !Sub              'arn:aws:apigateway:eu:lambda:path/2015-03-31/functions/${{Pack.Arn}}/invocations'\n        RequestParameters:\n          \
             integration.request.header.X-Amz-Invocation-Type: \"'{kind}'\"\n"
        )
    };
    says(
        "server-outlives-caller",
        &[("template.yaml", &of("RequestResponse"))],
        &["warning at template.yaml:5: Pack works on a request for up to 5m, and Shop → Pack gives up after 29s"],
    );
    is_silent("server-outlives-caller", &[("template.yaml", &of("Event"))]);
}

#[test]
fn a_service_is_not_the_host_of_the_internet_that_begins_with_its_name() {
    let outside = "services:\n- name: page\n  calls: [{to: stock.example.com, timeout: 2s}]\n- name: stock\n  calls: [{to: db, timeout: 9s}]\n";
    is_silent("outer-before-inner", &[(TOPOLOGY, outside)]);
    says(
        "outer-before-inner",
        &[(TOPOLOGY, &format!("{}- name: db\n  answers_to: [db.shop]\n", outside.replace(".example.com", ".shop")))],
        &["warning at oneclock.topology.yaml:5: stock → db may take 9s, and page → stock gives up after 2s"],
    );
}

#[test]
fn what_the_topology_file_says_is_said_of_this_repository() {
    let pod = |name: &str| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: stock}}\nspec: {{selector: {{app: {name}}}}}\n---\napiVersion: \
             apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec: {{template: {{metadata: {{labels: {{app: {name}}}}}, spec: \
             {{containers: [{{name: a, image: a}}]}}}}}}\n"
        )
    };
    let route = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - timeouts: {request: 2s}
    backendRefs: [{name: stock}]
";
    let topology = "services:\n- name: stock\n  calls: [{to: db, timeout: 9s}]\n";
    let (one, other) = (pod("stock-v1"), pod("stock-v2"));
    let files = [("k/one.yaml", one.as_str()), ("k/two.yaml", &other), ("k/route.yaml", route), (TOPOLOGY, topology)];
    says(
        "outer-before-inner",
        &files,
        &["warning at oneclock.topology.yaml:3: stock → db may take 9s, and gateway edge → stock gives up after 2s"],
    );
}

#[test]
fn what_istio_repeats_by_default_is_not_what_is_slow() {
    let route = LAYERS.replace("NAME", "edge").replace("HOST", "shop.example.com");
    let shop = "services:\n- name: cart\n  calls: [{to: stock, timeout: 9s, attempts: 4}]\n- name: stock\n";
    is_silent("retry-amplification", &[("edge.yaml", &route), (TOPOLOGY, shop)]);
    let written = route.replace("  - route: [", "  - retries: {attempts: 2, perTryTimeout: 1s}\n    route: [");
    says(
        "retry-amplification",
        &[("edge.yaml", &written), (TOPOLOGY, shop)],
        &["warning at oneclock.topology.yaml:3: one request of gateway edge can become 12 requests to stock"],
    );
}

#[test]
fn three_servers_of_one_deployment_are_joined_by_the_files_that_are_put_into_them() {
    let haproxy = |server: &str| {
        format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 50000\n  timeout server {server}\nfrontend web\n  bind \
             *:80\n  default_backend app\nbackend app\n  server one front:8080\n"
        )
    };
    let nginx = "http { server { listen 8080; location / { uwsgi_pass app:8050; uwsgi_read_timeout 120s; } } }\n";
    let uwsgi = "[uwsgi]\nharakiri = LIMIT\n";
    let compose = "\
services:
  edge: {image: 'haproxy:3', volumes: ['./haproxy.cfg:/usr/local/etc/haproxy/haproxy.cfg:ro']}
  front: {image: 'nginx:1.29', volumes: ['./conf/nginx.conf:/etc/nginx/nginx.conf']}
  app: {build: app, volumes: ['./uwsgi.ini:/etc/uwsgi.ini']}
";
    let (quick, slow) = (haproxy("50000"), haproxy("150s"));
    let ended = |limit: &str| uwsgi.replace("LIMIT", limit);
    let all = |haproxy: &str, uwsgi: &str, rule: &str, want: &[&str]| {
        let files =
            [("compose.yaml", compose), ("conf/nginx.conf", nginx), ("haproxy.cfg", haproxy), ("uwsgi.ini", uwsgi)];
        says(rule, &files, want);
    };
    all(
        &quick,
        &ended("115"),
        "outer-before-inner",
        &["warning at conf/nginx.conf:1: front → app may take 2m, and edge → front gives up after 50s"],
    );
    all(&slow, &ended("115"), "outer-before-inner", &[]);
    all(&slow, &ended("115"), "server-outlives-caller", &[]);
    all(
        &slow,
        &ended("300"),
        "server-outlives-caller",
        &["warning at uwsgi.ini:2: app works on a request for up to 5m, and front → app gives up after 2m"],
    );
}

#[test]
fn sending_a_request_bounds_nothing_of_the_answer() {
    let of = |key: &str| {
        format!(
            "http {{ server {{ server_name shop; location / {{ proxy_pass http://app; {key} 5s; proxy_read_timeout 90s; }} }} }}\n"
        )
    };
    let topology = "services:\n- name: app\n  calls: [{to: stock, timeout: 30s}]\n";
    is_silent("outer-before-inner", &[("nginx.conf", &of("proxy_send_timeout")), (TOPOLOGY, topology)]);
    let quick = of("proxy_send_timeout").replace("90s", "20s");
    says(
        "outer-before-inner",
        &[("nginx.conf", &quick), (TOPOLOGY, topology)],
        &["warning at oneclock.topology.yaml:3: app → stock may take 30s, and nginx shop → app gives up after 20s"],
    );
}

#[test]
fn how_long_another_try_may_begin_ends_none_that_runs() {
    let nginx = "\
http {
  upstream app { server a:80; server b:80; server c:80; }
  server { server_name shop; location / { proxy_pass http://app; proxy_read_timeout 60s; proxy_next_upstream_timeout 10s; } }
}
";
    let inventory = crate::written::inventory(&[("nginx.conf", nginx)]);
    let graph = oneclock_audit::graph::Graph::of(&inventory);
    // Another try begins within 10 s or not at all, and takes its own minute.
    let silence = oneclock_audit::graph::limits::Patience::Silence(std::time::Duration::from_secs(70));
    assert!(
        graph.hops.iter().all(|hop| hop.limits.patience() == silence),
        "{:?}",
        graph.hops.first().map(|hop| &hop.limits)
    );
    is_silent("sync-too-long", &[("nginx.conf", nginx)]);
}

#[test]
fn what_runs_in_a_cluster_does_not_call_a_service_of_compose() {
    let compose = "services:\n  whoami: {image: whoami}\n";
    let route = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - timeouts: {request: 60s}
    backendRefs: [{name: whoami}]
";
    is_silent("grace-too-short", &[("docs/compose.yaml", compose), ("k/route.yaml", route)]);
}

#[test]
fn one_nginx_may_stand_in_front_of_another() {
    let outer =
        "http { server { server_name shop; location / { proxy_pass http://pages; proxy_read_timeout 20s; } } }\n";
    let inner = "http { server { listen 80; location / { proxy_pass http://app; proxy_read_timeout 30s; } } }\n";
    let compose = "\
services:
  edge: {image: 'nginx:1.29', volumes: ['./edge.conf:/etc/nginx/nginx.conf']}
  pages: {image: 'nginx:1.29', volumes: ['./pages.conf:/etc/nginx/nginx.conf']}
";
    says(
        "outer-before-inner",
        &[("compose.yaml", compose), ("edge.conf", outer), ("pages.conf", inner)],
        &["warning at pages.conf:1: pages → app:80 may take 30s, and edge → pages gives up after 20s"],
    );
}
