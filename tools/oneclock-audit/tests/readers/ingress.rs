//! Ingress objects of several controllers, and how their units differ.

use crate::told::{finds, lines};

/// An Ingress with annotations.
fn ingress(annotations: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\n  namespace: prod\n  annotations:\n{annotations}\nspec:\n  rules:\n  - host: shop.example.com\n    http:\n      paths:\n      - path: /cart\n        backend: {{service: {{name: cart, port: {{number: 80}}}}}}\n"
    )
}

#[test]
fn ingress_nginx_takes_seconds_without_a_unit() {
    let text = ingress("    nginx.ingress.kubernetes.io/proxy-read-timeout: \"600\"");
    let want = "
    Gateway ingress shop [ingress-nginx] answers to shop.example.com
    call ingress shop -> cart.prod:80 (path /cart), spares unsafe
    ingress shop -> cart.prod:80 (path /cart): ingress_nginx.proxy_connect_timeout = 5s by default at i.yaml:1:1
    ingress shop -> cart.prod:80 (path /cart): ingress_nginx.proxy_read_timeout = 10m at i.yaml:7:53
    ingress shop -> cart.prod:80 (path /cart): ingress_nginx.proxy_send_timeout = 1m by default at i.yaml:1:1
    ingress shop -> cart.prod:80 (path /cart): ingress_nginx.proxy_next_upstream_tries = 3 by default at i.yaml:1:1
    ";
    finds("i.yaml", &text, want);
}

#[test]
fn the_one_of_nginx_inc_takes_a_unit() {
    let text = ingress("    nginx.org/proxy-read-timeout: 20s\n    nginx.org/websocket-services: chat,cart");
    let want = "
    Gateway ingress shop [NGINX Ingress Controller] answers to shop.example.com
    call ingress shop -> cart.prod:80 (path /cart), spares unsafe, streaming
    ingress shop -> cart.prod:80 (path /cart): nginx_inc.proxy_connect_timeout = 1m by default at i.yaml:1:1
    ingress shop -> cart.prod:80 (path /cart): nginx_inc.proxy_read_timeout = 20s at i.yaml:7:35
    ingress shop -> cart.prod:80 (path /cart): nginx_inc.proxy_send_timeout = 1m by default at i.yaml:1:1
    ";
    finds("i.yaml", &text, want);
}

#[test]
fn a_class_named_nginx_tells_no_controller_and_no_default() {
    let text = ingress("    kubernetes.io/ingress.class: nginx");
    let want = "
    Gateway ingress shop [] answers to shop.example.com
    call ingress shop -> cart.prod:80 (path /cart)
    ";
    finds("i.yaml", &text, want);
}

#[test]
fn annotations_of_two_controllers_leave_no_default() {
    let text = ingress("    nginx.org/proxy-send-timeout: 7s\n    nginx.ingress.kubernetes.io/proxy-send-timeout: '8'");
    let found = lines(&[("i.yaml", &text)]);
    assert!(!found.iter().any(|line| line.contains("by default")), "{found:#?}");
    assert_eq!(found.iter().filter(|line| line.contains("proxy_send_timeout")).count(), 2);
}

#[test]
fn off_is_one_try_and_non_idempotent_repeats_what_is_unsafe() {
    let off = lines(&[("i.yaml", &ingress("    nginx.ingress.kubernetes.io/proxy-next-upstream: 'off'"))]);
    assert!(off.iter().any(|line| line.contains("proxy_next_upstream_tries = 1 at i.yaml:7")), "{off:#?}");
    assert!(off.iter().any(|line| line == "call ingress shop -> cart.prod:80 (path /cart)"), "{off:#?}");
    let more =
        lines(&[("i.yaml", &ingress("    nginx.ingress.kubernetes.io/proxy-next-upstream: error non_idempotent"))]);
    assert!(more.iter().any(|line| line.ends_with("repeats unsafe")), "{more:#?}");
}

#[test]
fn attributes_of_the_load_balancer_of_aws() {
    let text = ingress("    alb.ingress.kubernetes.io/load-balancer-attributes: a=b,idle_timeout.timeout_seconds=600");
    let want = "
    Gateway ingress shop [AWS Load Balancer Controller] answers to shop.example.com
    call ingress shop -> cart.prod:80 (path /cart)
    ingress shop: alb_ingress.idle_timeout = 10m at i.yaml:7:57
    ingress shop: alb_ingress.client_keep_alive = 1h by default at i.yaml:1:1
    ingress shop: alb_ingress.deregistration_delay = 5m by default at i.yaml:1:1
    ";
    finds("i.yaml", &text, want);
}

#[test]
fn haproxy_takes_milliseconds_or_a_unit() {
    let text = ingress("    haproxy.org/timeout-server: 50s\n    haproxy.org/timeout-connect: '5000'");
    let want = "
    Gateway ingress shop [HAProxy Kubernetes Ingress] answers to shop.example.com
    call ingress shop -> cart.prod:80 (path /cart)
    ingress shop -> cart.prod:80 (path /cart): haproxy.timeout_connect = 5s at i.yaml:8:34
    ingress shop -> cart.prod:80 (path /cart): haproxy.timeout_server = 50s at i.yaml:7:33
    ";
    finds("i.yaml", &text, want);
}

#[test]
fn a_config_map_is_for_the_controller_that_its_units_tell() {
    let map = |name: &str, data: &str| {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n{data}\n")
    };
    let plain = map("ingress-nginx-controller", "  proxy-read-timeout: \"120\"\n  keep-alive: \"10\"");
    let want = "
    Gateway ingress-nginx ingress-nginx-controller [ingress-nginx] answers to
    ingress-nginx ingress-nginx-controller: ingress_nginx.proxy_read_timeout = 2m at c.yaml:5:23
    ingress-nginx ingress-nginx-controller: ingress_nginx.keep_alive = 10s at c.yaml:6:15
    ";
    finds("c.yaml", &plain, want);
    let with_unit = map("nginx-config", "  proxy-read-timeout: 90s");
    let want = "
    Gateway NGINX Ingress Controller nginx-config [NGINX Ingress Controller] answers to
    NGINX Ingress Controller nginx-config: nginx_inc.proxy_read_timeout = 1m30s at c.yaml:5:23
    ";
    finds("c.yaml", &with_unit, want);
    finds("c.yaml", &map("settings", "  proxy-read-timeout: '5'"), "");
}

#[test]
fn a_virtual_server() {
    let text = "\
apiVersion: k8s.nginx.org/v1
kind: VirtualServer
metadata: {name: cafe, namespace: prod}
spec:
  host: cafe.example.com
  upstreams:
  - {name: tea, service: tea-svc, port: 80, read-timeout: 5s, next-upstream: error non_idempotent, next-upstream-tries: 2}
  routes:
  - {path: /tea, action: {pass: tea}}
  - {path: /none, action: {pass: gone}}
";
    let want = "
    Gateway virtual server cafe [NGINX Ingress Controller] answers to cafe.example.com
    call virtual server cafe -> tea-svc.prod:80 (path /tea), repeats unsafe
    virtual server cafe -> tea-svc.prod:80 (path /tea): nginx_inc.proxy_connect_timeout = 1m by default at v.yaml:7:5
    virtual server cafe -> tea-svc.prod:80 (path /tea): nginx_inc.proxy_read_timeout = 5s at v.yaml:7:59
    virtual server cafe -> tea-svc.prod:80 (path /tea): nginx_inc.proxy_send_timeout = 1m by default at v.yaml:7:5
    virtual server cafe -> tea-svc.prod:80 (path /tea): nginx_inc.proxy_next_upstream_tries.connects = 2 at v.yaml:7:121
    ";
    finds("v.yaml", text, want);
}

#[test]
fn what_the_next_endpoint_is_asked_after_decides_what_an_attempt_is() {
    let found = |annotations: &str| {
        let text = format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: shop\n  annotations: {{{annotations}}}\nspec:\n  rules:\n  - http: {{paths: [{{path: /, backend: {{service: {{name: cart, port: {{number: 80}}}}}}}}]}}\n"
        );
        lines(&[("ingress.yaml", &text)])
    };
    let has = |found: &[String], what: &str| found.iter().any(|line| line.contains(what));
    let connects = found("nginx.ingress.kubernetes.io/proxy-next-upstream: error");
    assert!(has(&connects, ": ingress_nginx.proxy_next_upstream_tries.connects = 3 by default"), "{connects:#?}");
    let unit = found("nginx.ingress.kubernetes.io/proxy-read-timeout: 30s");
    assert!(has(&unit, ": ingress_nginx.proxy_read_timeout = 1m by default"), "{unit:#?}");
    assert!(has(&unit, "NotUnderstood, proxy-read-timeout: `30s` is refused, and the default holds"), "{unit:#?}");
}
