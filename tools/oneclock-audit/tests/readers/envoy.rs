//! Envoy.

use oneclock_audit::inventory::Why;

use crate::told::{finds, finds_in};
use crate::written::inventory;

#[test]
fn a_front_proxy_with_defaults_that_nobody_wrote() {
    let text = "\
static_resources:
  listeners:
  - name: front
    address: { socket_address: { address: 0.0.0.0, port_value: 8080 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stream_idle_timeout: 30s
          route_config:
            virtual_hosts:
            - name: shop
              domains: [shop.example.com, '*']
              routes:
              - { match: { path: /old }, redirect: { path_redirect: /new } }
              - match: { prefix: /cart, headers: [{ name: ':method', string_match: { exact: POST } }] }
                route: { cluster: cart }
              - match: { prefix: / }
                route: { cluster: web, timeout: 0s }
  clusters:
  - name: cart
    type: STRICT_DNS
    connect_timeout: 0.250s
    load_assignment:
      endpoints:
      - lb_endpoints:
        - endpoint: { address: { socket_address: { address: cart.internal, port_value: 9000 } } }
";
    let want = "
    Gateway Envoy front [Envoy] answers to shop.example.com
    call Envoy front -> cart.internal:9000 (route /cart to cart) POST
    call Envoy front -> web (route / to web)
    Envoy front: envoy.stream_idle_timeout = 30s at envoy.yaml:10:32
    Envoy front: envoy.downstream.idle_timeout = 1h by default at envoy.yaml:9:11
    Envoy front -> cart.internal:9000 (route /cart to cart): envoy.route.timeout = 15s by default at envoy.yaml:18:24
    Envoy front -> cart.internal:9000 (route /cart to cart): envoy.cluster.connect_timeout = 250ms at envoy.yaml:24:22
    Envoy front -> cart.internal:9000 (route /cart to cart): envoy.cluster.idle_timeout = 1h by default at envoy.yaml:22:5
    Envoy front -> web (route / to web): envoy.route.timeout = none at envoy.yaml:20:49
    ";
    finds("envoy.yaml", text, want);
}

#[test]
fn a_sidecar_in_the_other_spelling_with_retries() {
    let text = r#"{"staticResources": {"listeners": [{
  "address": {"socketAddress": {"address": "127.0.0.1", "portValue": 9001}},
  "filterChains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typedConfig": {
    "routeConfig": {"virtualHosts": [{"domains": ["*"],
      "retryPolicy": {"retryOn": "5xx,connect-failure", "numRetries": 3, "perTryTimeout": "0.5s"},
      "routes": [
        {"match": {"prefix": "/"}, "route": {"cluster": "outbound|9080||reviews.prod.svc.cluster.local", "timeout": "2s"}},
        {"match": {"prefix": "/safe"}, "route": {"timeout": "1s", "weightedClusters": {"clusters": [{"name": "a", "weight": 1}]},
          "retryPolicy": {"retryOn": "connect-failure,refused-stream"}}},
        {"match": {"prefix": "/never"}, "route": {"cluster": "a", "timeout": "1s", "retryPolicy": {"numRetries": 9}}}
      ]}]}}}]}]}]}}"#;
    let want = "
    Between Envoy 127.0.0.1:9001 [Envoy] answers to 127.0.0.1:9001
    call Envoy 127.0.0.1:9001 -> reviews.prod:9080 (route / to outbound|9080||reviews.prod.svc.cluster.local), repeats unsafe
    call Envoy 127.0.0.1:9001 -> a (route /safe to a), spares unsafe
    call Envoy 127.0.0.1:9001 -> a (route /never to a)
    Envoy 127.0.0.1:9001: envoy.stream_idle_timeout = 5m by default at sidecar.json:3:106
    Envoy 127.0.0.1:9001: envoy.downstream.idle_timeout = 1h by default at sidecar.json:3:106
    Envoy 127.0.0.1:9001 -> reviews.prod:9080 (route / to outbound|9080||reviews.prod.svc.cluster.local): envoy.route.timeout = 2s at sidecar.json:7:117
    Envoy 127.0.0.1:9001 -> reviews.prod:9080 (route / to outbound|9080||reviews.prod.svc.cluster.local): envoy.retry.num_retries = 3 at sidecar.json:5:71
    Envoy 127.0.0.1:9001 -> reviews.prod:9080 (route / to outbound|9080||reviews.prod.svc.cluster.local): envoy.retry.base_interval = 25ms by default at sidecar.json:5:22
    Envoy 127.0.0.1:9001 -> reviews.prod:9080 (route / to outbound|9080||reviews.prod.svc.cluster.local): envoy.retry.per_try_timeout = 500ms at sidecar.json:5:91
    Envoy 127.0.0.1:9001 -> a (route /safe to a): envoy.route.timeout = 1s at sidecar.json:8:61
    Envoy 127.0.0.1:9001 -> a (route /safe to a): envoy.retry.num_retries = 1 by default at sidecar.json:9:26
    Envoy 127.0.0.1:9001 -> a (route /safe to a): envoy.retry.base_interval = 25ms by default at sidecar.json:9:26
    Envoy 127.0.0.1:9001 -> a (route /never to a): envoy.route.timeout = 1s at sidecar.json:10:78
    left out sidecar.json:10:99: NotUnderstood, retry_policy without retry_on: nothing is tried again, unless a request asks for it
    ";
    finds("sidecar.json", text, want);
}

#[test]
fn variables_are_unknown_and_a_host_in_a_variable_is_called_like_its_cluster() {
    let text = "\
static_resources:
  listeners:
  - address:
      socket_address:
        address: '${HOST}'
        port_value: ${PORT}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          stream_idle_timeout: 0s
          common_http_protocol_options: { idle_timeout: 0s }
          http_filters: [{ name: envoy.filters.http.router }]
          route_config:
            virtual_hosts:
            - routes:
              - match: { prefix: / }
                route:
                  cluster: frontend
                  timeout: ${ROUTE_TIMEOUT}
                  upgrade_configs: [{ upgrade_type: websocket }]
  clusters:
  - name: frontend
    connect_timeout: { seconds: 1 }
    load_assignment:
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: '${FRONTEND}', port_value: 80 } } } }] }]
";
    let want = "
    Gateway Envoy ${HOST}:${PORT} [Envoy] answers to
    call Envoy ${HOST}:${PORT} -> frontend (route / to frontend), streaming
    Envoy ${HOST}:${PORT}: envoy.stream_idle_timeout = none at envoy.tmpl.yaml:11:32
    Envoy ${HOST}:${PORT}: envoy.downstream.idle_timeout = none at envoy.tmpl.yaml:12:57
    Envoy ${HOST}:${PORT} -> frontend (route / to frontend): envoy.route.timeout = unknown (${ROUTE_TIMEOUT}) at envoy.tmpl.yaml:20:28
    Envoy ${HOST}:${PORT} -> frontend (route / to frontend): envoy.cluster.connect_timeout = unknown (a mapping) at envoy.tmpl.yaml:24:22
    Envoy ${HOST}:${PORT} -> frontend (route / to frontend): envoy.cluster.idle_timeout = 1h by default at envoy.tmpl.yaml:23:5
    ";
    finds("envoy.tmpl.yaml", text, want);
}

#[test]
fn the_routes_of_one_file_find_the_clusters_of_another() {
    let routes = "\
resources:
- '@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration
  name: all
  virtual_hosts:
  - domains: ['*']
    routes: [{ match: { prefix: /, grpc: {} }, route: { cluster: backend, timeout: 1s } }]
";
    let clusters = "\
resources:
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: backend
  type: EDS
- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: direct
  type: STATIC
  load_assignment: { endpoints: { lb_endpoints: { endpoint: { address: { socket_address: { address: direct, port_value: 1 } } } } } }
- '@type': type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: backend
  endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 10.0.0.1, port_value: 8080 } } } }] }]
";
    let want = "
    Service Envoy cluster backend [Envoy] answers to backend
    Service Envoy cluster direct [Envoy] answers to
    Gateway Envoy routes all [Envoy] answers to
    call Envoy cluster backend -> 10.0.0.1:8080 (cluster backend)
    call Envoy cluster direct -> direct:1 (cluster direct)
    call Envoy routes all -> backend (route / to backend)
    Envoy cluster backend -> 10.0.0.1:8080 (cluster backend): envoy.cluster.connect_timeout = 5s by default at cds.yaml:2:3
    Envoy cluster backend -> 10.0.0.1:8080 (cluster backend): envoy.cluster.idle_timeout = 1h by default at cds.yaml:2:3
    Envoy cluster direct -> direct:1 (cluster direct): envoy.cluster.connect_timeout = 5s by default at cds.yaml:5:3
    Envoy cluster direct -> direct:1 (cluster direct): envoy.cluster.idle_timeout = 1h by default at cds.yaml:5:3
    Envoy routes all -> backend (route / to backend): envoy.route.timeout = 1s at rds.yaml:6:84
    ";
    finds_in(&[("cds.yaml", clusters), ("rds.yaml", routes)], want);
}

#[test]
fn what_bounds_a_cluster_and_what_asks_others_on_the_way() {
    let text = "\
listeners:
- name: in
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        stream_idle_timeout: 1m
        request_timeout: 20s
        request_headers_timeout: 10s
        common_http_protocol_options: { idle_timeout: 60s, max_stream_duration: 90s }
        http_filters:
        - name: envoy.filters.http.fault
          typed_config: { delay: { fixed_delay: 3s } }
        - name: authz
          typed_config: { '@type': type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz, grpc_service: { envoy_grpc: { cluster_name: authz } } }
        - name: envoy.filters.http.ratelimit
          typed_config: { timeout: 0.1s, rate_limit_service: { grpc_service: { envoy_grpc: { cluster_name: limits } } } }
        rds: { route_config_name: local }
  - filters:
    - name: envoy.filters.network.tcp_proxy
      typed_config: { cluster: db }
route_configs:
- name: local
  virtual_hosts:
  - routes:
    - match: { prefix: / }
      route:
        cluster: app
        timeout: 5s
        idle_timeout: 7s
        max_stream_duration: { max_stream_duration: 60s, grpc_timeout_header_max: 0s }
        hedge_policy: { hedge_on_per_try_timeout: true }
        retry_policy: { retry_on: reset, per_try_timeout: 1s, retry_back_off: { base_interval: 0.1s } }
    - { match: { prefix: /x }, route: { cluster_header: x-where } }
clusters:
- name: app
  type: STATIC
  connect_timeout: 1s
  health_checks: [{ timeout: 2s }]
  circuit_breakers: { thresholds: [{ max_retries: 5 }] }
  outlier_detection: {}
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions: { common_http_protocol_options: { idle_timeout: 45s } }
";
    let want = "
    Gateway Envoy in [Envoy] answers to
    Gateway Envoy in, chain 2 [Envoy] answers to
    call Envoy in -> authz (ext_authz)
    call Envoy in -> limits (ratelimit)
    call Envoy in -> app (route / to app), repeats unsafe
    call Envoy in, chain 2 -> db (connections to db), streaming
    Envoy in: envoy.stream_idle_timeout = 1m at envoy.yaml:7:30
    Envoy in: envoy.downstream.idle_timeout = 1m at envoy.yaml:10:55
    Envoy in: envoy.request_timeout = 20s at envoy.yaml:8:26
    Envoy in: envoy.request_headers_timeout = 10s at envoy.yaml:9:34
    Envoy in: envoy.max_stream_duration = 1m30s at envoy.yaml:10:81
    Envoy in: envoy.fault.fixed_delay = 3s at envoy.yaml:13:49
    Envoy in -> authz (ext_authz): envoy.ext_authz.timeout = 200ms by default at envoy.yaml:15:25
    Envoy in -> limits (ratelimit): envoy.ratelimit.timeout = 100ms at envoy.yaml:17:36
    Envoy in -> app (route / to app): envoy.route.timeout = 5s at envoy.yaml:29:18
    Envoy in -> app (route / to app): envoy.route.idle_timeout = 7s at envoy.yaml:30:23
    Envoy in -> app (route / to app): envoy.route.max_stream_duration = 1m at envoy.yaml:31:53
    Envoy in -> app (route / to app): envoy.route.grpc_timeout_header_max = none at envoy.yaml:31:83
    Envoy in -> app (route / to app): envoy.retry.num_retries = 1 by default at envoy.yaml:33:23
    Envoy in -> app (route / to app): envoy.retry.base_interval = 100ms at envoy.yaml:33:96
    Envoy in -> app (route / to app): envoy.retry.per_try_timeout.hedged = 1s at envoy.yaml:33:59
    Envoy in -> app (route / to app): envoy.cluster.connect_timeout = 1s at envoy.yaml:38:20
    Envoy in -> app (route / to app): envoy.cluster.health_check.timeout = 2s at envoy.yaml:39:30
    Envoy in -> app (route / to app): envoy.cluster.max_retries = 5 at envoy.yaml:40:51
    Envoy in -> app (route / to app): envoy.cluster.ejection = 30s by default at envoy.yaml:41:22
    Envoy in -> app (route / to app): envoy.cluster.idle_timeout = 45s at envoy.yaml:43:109
    Envoy in, chain 2: envoy.tcp.idle_timeout = 1h by default at envoy.yaml:21:21
    left out envoy.yaml:34:39: NotRead, a route whose cluster the request or a plug-in chooses
    ";
    finds("envoy.yaml", text, want);
}

#[test]
fn what_only_looks_like_it_is_left_alone() {
    // A patch of Istio's, which is no configuration by itself, and a chart of Kubernetes that talks about listeners.
    let patch = "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: patch}\nspec:\n  configPatches:\n  - patch: { value: { virtual_hosts: [{ routes: [{ route: { cluster: a } }] }] } }\n";
    finds("patch.yaml", patch, "left out patch.yaml:1:1: NotRead, EnvoyFilter patch: known, and not read");
    finds("other.yaml", "static_resources: everywhere\nclusters: [{ name: blue, type: kind }]\n", "");
}

#[test]
fn a_template_and_a_listener_of_another_protocol_are_listed() {
    let template = "static_resources:\n  listeners: {{ .Listeners }}\n";
    finds("envoy.yaml.j2", template, "left out envoy.yaml.j2:1:1: NotRead, Envoy, as a template: known, and not read");
    let other =
        "listeners: [{ name: a, filter_chains: [{ filters: [{ name: envoy.filters.network.mongo_proxy }] }] }]\n";
    finds("envoy.yaml", other, "left out envoy.yaml:1:13: NotRead, a listener without a filter that is read");
}

#[test]
fn a_large_file_is_read_in_its_own_time() {
    // Many routes to one cluster of many hosts and keys: each alone is linear, multiplied they would not be.
    let routes: String =
        (0..6_000).map(|n| format!("    - {{ match: {{ path: /{n} }}, route: {{ cluster: a }} }}\n")).collect();
    let hosts: String = (0..500)
        .map(|n| format!("      - endpoint: {{ address: {{ socket_address: {{ address: h{n}, port_value: 1 }} }} }}\n"))
        .collect();
    let junk: String = (0..2_000).map(|n| format!("  junk{n}: 1\n")).collect();
    let text = format!(
        "routes:\n- name: all\n  virtual_hosts:\n  - routes:\n{routes}clusters:\n- name: a\n{junk}  load_assignment:\n    endpoints:\n    - lb_endpoints:\n{hosts}"
    );
    let found = inventory(&[("envoy.yaml", &text)]);
    assert_eq!(found.edges.len(), 20_000, "6000 routes to four hosts each, as far as calls of one file are kept");
    assert!(found.left_out.iter().any(|left| left.why == Why::TooLarge), "{:?}", found.left_out);
}

#[test]
fn a_deadline_goes_along_only_where_the_route_takes_it() {
    let propagates = |route: &str| {
        let text = format!(
            "resources:\n- '@type': type.googleapis.com/envoy.config.route.v3.RouteConfiguration\n  name: all\n  virtual_hosts:\n  - domains: ['*']\n    routes: [{{ match: {{ prefix: /, grpc: {{}} }}, route: {{ cluster: b, timeout: 1s{route} }} }}]\n"
        );
        let inventory = inventory(&[("rds.yaml", &text)]);
        inventory.edges.first().map(|edge| edge.propagates)
    };
    assert_eq!(propagates(""), Some(oneclock_audit::inventory::Propagates::Unknown));
    let max = ", max_stream_duration: { grpc_timeout_header_max: 0s }";
    assert_eq!(propagates(max), Some(oneclock_audit::inventory::Propagates::Deadline));
}

#[test]
fn silence_that_ends_the_stream_is_no_time_of_each_attempt() {
    let text = "\
static_resources:
  listeners:
  - name: front
    address: { socket_address: { address: 0.0.0.0, port_value: 80 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          stream_idle_timeout: 30s
          route_config:
            virtual_hosts:
            - domains: ['*']
              routes: [{ match: { prefix: / }, route: { cluster: cart, timeout: 0s, retry_policy: { retry_on: 5xx, num_retries: 3 } } }]
  clusters:
  - name: cart
    load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: cart, port_value: 1 } } } }] }] }
";
    let inventory = inventory(&[("envoy.yaml", text)]);
    let graph = oneclock_audit::graph::Graph::of(&inventory);
    let silence = oneclock_audit::graph::limits::Patience::Silence(std::time::Duration::from_secs(30));
    let found: Vec<_> = graph.hops.iter().map(|hop| hop.limits.patience()).collect();
    assert_eq!(found, [silence]);
}
