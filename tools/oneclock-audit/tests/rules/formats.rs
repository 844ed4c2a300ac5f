//! The same rules on small files of the formats themselves: what nobody writes in a topology file.

use crate::judged::{TOPOLOGY, is_silent, says};

/// Ratings answers 7 s late, as a mesh's route has it.
const LATE: &str = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: ratings, namespace: books}
spec:
  hosts: [ratings]
  http:
  - fault: {delay: {percentage: {value: 100}, fixedDelay: 7s}}
    route: [{destination: {host: ratings}}]
";

fn books(attempt: &str) -> String {
    format!(
        "services:\n- name: page\n  calls: [{{to: reviews, attempt: {attempt}, attempts: 2}}]\n\
         - name: reviews\n  calls: [{{to: ratings, timeout: 10s}}]\n- name: ratings\n"
    )
}

#[test]
fn two_tries_of_three_seconds_and_an_answer_after_seven() {
    says(
        "answer-too-late",
        &[("ratings.yaml", LATE), (TOPOLOGY, &books("3s"))],
        &[
            "warning at ratings.yaml:7: mesh route ratings → ratings takes at least 7s, and page → reviews waits 6s (2 tries of 3s): \
         the call fails after 6s",
        ],
    );
    // Ten seconds of the call itself are enough, and so would eight of the outer one be.
    is_silent("answer-too-late", &[("ratings.yaml", LATE), (TOPOLOGY, &books("8s"))]);
}

#[test]
fn a_server_that_closes_connections_that_nginx_still_uses() {
    let nginx = "\
http {
  upstream app { server web:8000; keepalive 4; keepalive_timeout 30s; }
  server { server_name shop.example.com; location / { proxy_pass http://app; } }
}
";
    let compose = |seconds: &str| {
        format!("services:\n  web:\n    build: .\n    command: gunicorn -k gthread --keep-alive {seconds} shop:app\n")
    };
    says(
        "keep-alive-order",
        &[("nginx.conf", nginx), ("compose.yaml", &compose("5"))],
        &[
            "warning at compose.yaml:4: web closes idle connections after 5s, and nginx shop.example.com still uses them until 30s",
        ],
    );
    is_silent("keep-alive-order", &[("nginx.conf", nginx), ("compose.yaml", &compose("40"))]);
}

/// Also where the name of the server is one that several have, which are told apart call by call otherwise.
#[test]
fn two_defaults_that_do_not_fit_are_told_once_for_all_calls() {
    let nginx = "\
http {
  upstream app { server web:8000; keepalive 4; }
  server {
    server_name shop.example.com;
    location / { proxy_pass http://app; }
    location /cart { proxy_pass http://app; }
  }
}
";
    let web = "services:\n  web:\n    build: .\n    command: gunicorn -k gthread shop:app\n";
    let other = "services:\n  web:\n    build: .\n    command: ./develop\n";
    says(
        "keep-alive-order",
        &[("nginx.conf", nginx), ("compose.yaml", web), ("dev/compose.yaml", other)],
        &[
            "note at compose.yaml:2: web closes idle connections after 2s, and nginx shop.example.com still uses them until 1m",
        ],
    );
}

#[test]
fn a_server_that_closes_connections_that_ingress_nginx_still_uses() {
    let ingress = "\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
  annotations: {nginx.ingress.kubernetes.io/proxy-connect-timeout: '3'}
spec:
  rules:
  - http: {paths: [{path: /, backend: {service: {name: cart, port: {number: 80}}}}]}
";
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  upstream-keepalive-timeout: '60'\n  proxy-read-timeout: '20'\n"
        )
    };
    let cart = |seconds: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: cart}}\nspec:\n  template:\n    metadata: {{labels: {{app: cart}}}}\n    spec:\n      \
             containers:\n      - {{name: cart, image: cart, command: [gunicorn, -k, gthread, --keep-alive, '{seconds}', 'shop:app']}}\n"
        )
    };
    let controller = map("ingress-nginx-controller");
    let (short, long) = (cart("5"), cart("75"));
    let files = |cart| [("ingress.yaml", ingress), ("controller.yaml", &*controller), ("cart.yaml", cart)];
    says(
        "keep-alive-order",
        &files(&short),
        &["warning at cart.yaml:9: cart closes idle connections after 5s, and ingress shop still uses them until 1m"],
    );
    is_silent("keep-alive-order", &files(&long));
    // What the map says of all is no default that nobody sees, and of two maps nobody knows which is meant.
    says(
        "hidden-default",
        &files(&long),
        &["note at ingress.yaml:1: ingress shop → cart: proxy-next-upstream-tries 3 is in force, and nobody wrote it"],
    );
    let other = map("ingress-nginx-internal");
    let two = [files(&short).as_slice(), &[("internal.yaml", &other)]].concat();
    is_silent("keep-alive-order", &two);
}

fn queue(visibility: &str) -> String {
    format!(
        "Transform: AWS::Serverless-2016-10-31\nResources:\n  Orders:\n    Type: AWS::SQS::Queue\n    Properties: {{VisibilityTimeout: \
         {visibility}}}\n  Pack:\n    Type: AWS::Serverless::Function\n    Properties:\n      Timeout: 60\n      Events:\n        \
         Order: {{Type: SQS, Properties: {{Queue: !GetAtt Orders.Arn}}}}\n"
    )
}

#[test]
fn a_message_comes_back_while_a_function_works_on_it() {
    says(
        "redelivered-while-running",
        &[("template.yaml", &queue("30"))],
        &[
            "warning at template.yaml:5: a message of Orders is given out again after 30s, and Pack may work on it for 1m",
        ],
    );
    says(
        "redelivered-while-running",
        &[("template.yaml", &queue("60"))],
        &[
            "note at template.yaml:5: a message of Orders is given out again after 1m, just the limit of Pack (1m); AWS advises 6 times",
        ],
    );
    is_silent("redelivered-while-running", &[("template.yaml", &queue("360"))]);
}

#[test]
fn a_pod_is_killed_before_its_longest_request_is_over() {
    let deployment = |grace: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: cart}}\nspec:\n  template:\n    metadata: {{labels: {{app: \
             cart}}}}\n    spec:\n      terminationGracePeriodSeconds: {grace}\n      containers: [{{name: cart, image: \
             cart}}]\n---\napiVersion: v1\nkind: Service\nmetadata: {{name: cart}}\nspec: {{selector: {{app: cart}}}}\n"
        )
    };
    let route = "\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - timeouts: {request: 60s}
    backendRefs: [{name: cart}]
";
    says(
        "grace-too-short",
        &[("cart.yaml", &deployment("20")), ("route.yaml", route)],
        &[
            "warning at cart.yaml:8: cart is killed 20s after it was told to stop, and a request of gateway edge may take 1m",
        ],
    );
    is_silent("grace-too-short", &[("cart.yaml", &deployment("90")), ("route.yaml", route)]);
}

#[test]
fn the_wait_for_a_connection_lasts_longer_than_the_caller() {
    let topology = "services:\n- name: page\n  calls: [{to: orders, timeout: 2s}]\n";
    let orders = |wait: &str| {
        format!(
            "spring.application.name=orders\nspring.datasource.url=jdbc:postgresql://db/shop\n\
             spring.datasource.hikari.connection-timeout={wait}\n"
        )
    };
    says(
        "store-outlasts-caller",
        &[(TOPOLOGY, topology), ("application.properties", &orders("5000"))],
        &[
            "warning at application.properties:3: orders → db:5432: waiting for a connection may take 5s, and page gives up after 2s",
        ],
    );
    is_silent("store-outlasts-caller", &[(TOPOLOGY, topology), ("application.properties", &orders("500"))]);
}

#[test]
fn a_lock_is_waited_for_as_long_as_the_statement_may_run() {
    let of = |lock: &str| format!("statement_timeout = 5s\nlock_timeout = {lock}\n");
    says(
        "lock-limit-without-effect",
        &[("postgresql.conf", &of("30s"))],
        &["warning at postgresql.conf:2: PostgreSQL: lock_timeout 30s is no shorter than statement_timeout 5s"],
    );
    is_silent("lock-limit-without-effect", &[("postgresql.conf", &of("1s"))]);
}

#[test]
fn a_gateway_of_istio_waits_for_ever_unless_somebody_says_otherwise() {
    let route = |timeout: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: shop, namespace: shop}}\nspec:\n  hosts: \
             ['*']\n  gateways: [edge]\n  http:\n  - route: [{{destination: {{host: cart}}}}]\n{timeout}"
        )
    };
    says(
        "no-limit",
        &[("shop.yaml", &route(""))],
        &["warning at shop.yaml:8: gateway edge → cart.shop may wait for ever"],
    );
    is_silent("no-limit", &[("shop.yaml", &route("    timeout: 5s\n"))]);
}

#[test]
fn what_the_driver_ends_does_not_wait_for_ever() {
    let of = |more: &str| format!("spring.application.name=shop\nspring.datasource.url=jdbc:mysql://db/shop\n{more}");
    says(
        "no-limit",
        &[("application.properties", &of(""))],
        &["warning at application.properties:2: shop → db:3306 may wait for ever"],
    );
    // Druid 1.2.12 to 1.2.21 gives the driver 10 s by itself.
    is_silent("no-limit", &[("application.properties", &of("spring.datasource.druid.max-active=9\n"))]);
    let statements = of("spring.jpa.properties.jakarta.persistence.query.timeout=2000\n");
    is_silent("no-limit", &[("application.properties", &statements)]);
}

/// A listener of Envoy with one route.
fn envoy(timeout: &str) -> String {
    format!(
        "static_resources:\n  listeners:\n  - address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}\n    filter_chains:\n    \
         - filters:\n      - name: http\n        typed_config:\n          '@type': \
         type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n          \
         route_config:\n            virtual_hosts:\n            - name: all\n              domains: ['*']\n              routes:\n              \
         - match: {{prefix: /}}\n                route: {{cluster: cart{timeout}}}\n"
    )
}

#[test]
fn fifteen_seconds_that_nobody_wrote() {
    let of = |timeout: &str| {
        let inventory = crate::written::inventory(&[("envoy.yaml", &envoy(timeout))]);
        let findings = oneclock_audit::rules::judge(&oneclock_audit::graph::Graph::of(&inventory));
        let hidden = findings.iter().filter(|one| one.rule == "hidden-default" && one.says.contains("route.timeout"));
        hidden.map(|one| (one.place.line, one.says.clone())).collect::<Vec<_>>()
    };
    let says = "Envoy 0.0.0.0:80 → cart: route.timeout 15s is in force, and nobody wrote it".to_owned();
    assert_eq!(of(""), [(15, says)]);
    assert_eq!(of(", timeout: 3s"), []);
}

#[test]
fn a_breaker_waits_for_slow_calls_that_never_come() {
    let of = |slow: &str| {
        format!(
            "spring.application.name: shop\nresilience4j:\n  timelimiter.instances.bank.timeoutDuration: 2s\n  \
             circuitbreaker.instances.bank.slowCallDurationThreshold: {slow}\n"
        )
    };
    says(
        "breaker-and-timeout",
        &[("application.yml", &of("5s"))],
        &["warning at application.yml:4: shop → bank: a call counts as slow from 5s on, and is over after 2s"],
    );
    is_silent("breaker-and-timeout", &[("application.yml", &of("1s"))]);
}

#[test]
fn a_sidecar_of_dapr_that_repeats_without_end() {
    let of = |more: &str| {
        format!(
            "apiVersion: dapr.io/v1alpha1\nkind: Resiliency\nmetadata: {{name: all}}\nspec:\n  policies:\n    retries:\n      \
             again: {{policy: constant, duration: 5s{more}}}\n  targets:\n    apps:\n      bank: {{retry: again}}\n"
        )
    };
    says(
        "unsafe-retry",
        &[("resiliency.yaml", &of(", maxRetries: -1"))],
        &[
            "warning at resiliency.yaml:7: Dapr sidecar → bank is tried without end, and what must not be repeated (POST, PATCH) is not \
         left out",
        ],
    );
    is_silent("unsafe-retry", &[("resiliency.yaml", &of(", maxRetries: 0"))]);
}
