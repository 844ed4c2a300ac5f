//! What is part of a call, and the whole of it.

use crate::judged::{is_silent, says, says_of};

/// A rule of a route with its timeouts.
fn route(timeouts: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: shop}}\nspec:\n  parentRefs: [{{name: edge}}]\n  rules:\n  - \
         backendRefs: [{{name: cart}}]\n    timeouts: {timeouts}\n"
    )
}

#[test]
fn a_backend_request_longer_than_the_request_is_refused_and_no_matter_of_attempts() {
    let invalid = route("{request: 2s, backendRequest: 5s}");
    says(
        "invalid-together",
        &[("r.yaml", &invalid)],
        &[
            "error at r.yaml:8: gateway edge → cart: timeouts.backendRequest 5s is longer than timeouts.request 2s, which the Gateway API \
             calls invalid",
        ],
    );
    is_silent("attempts-exceed-total", &[("r.yaml", &invalid)]);
    for valid in
        ["{request: 5s, backendRequest: 2s}", "{request: 2s, backendRequest: 2s}", "{request: 0s, backendRequest: 5s}"]
    {
        is_silent("invalid-together", &[("r.yaml", &route(valid))]);
    }
    // What fits once and not three times is valid, and a matter of attempts.
    let thrice = format!("{}    retry: {{attempts: 2}}\n", route("{request: 3s, backendRequest: 2s}"));
    is_silent("invalid-together", &[("r.yaml", &thrice)]);
    says(
        "attempts-exceed-total",
        &[("r.yaml", &thrice)],
        &["warning at r.yaml:8: gateway edge → cart: 3 attempts of 2s need 6s, and all of them together have 3s"],
    );
}

#[test]
fn the_whole_call_is_over_before_connecting_has_failed() {
    let rule = "connect-limit-without-effect";
    let calls = |call: &str| format!("- name: page\n  calls: [{{to: api, {call}}}]\n- name: api\n");
    says_of(
        rule,
        &calls("timeout: 3s, connect: 10s"),
        &["warning at oneclock.topology.yaml:3: page → api: connecting may take 10s, and the whole call has 3s"],
    );
    says_of(
        rule,
        &calls("timeout: 9s, attempt: 2s, attempts: 3, connect: 2s"),
        &["warning at oneclock.topology.yaml:3: page → api: connecting may take 2s, and the whole call has 2s"],
    );
    says_of(rule, &calls("timeout: 3s, connect: 500ms"), &[]);
    // Silence begins when something is sent.
    says_of(rule, &calls("idle: 3s, connect: 10s"), &[]);
}

#[test]
fn what_nobody_wrote_is_no_limit_for_connecting_that_somebody_meant() {
    let mesh = |connect: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: cart, namespace: shop}}\nspec:\n  hosts: [cart]\n  http:\n  - \
             timeout: 2s\n    route: [{{destination: {{host: cart}}}}]\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: \
             {{name: cart, namespace: shop}}\nspec:\n  host: cart\n  trafficPolicy: {{connectionPool: {{{connect}}}}}\n"
        )
    };
    let rule = "connect-limit-without-effect";
    says(
        rule,
        &[("mesh.yaml", &mesh("tcp: {connectTimeout: 5s}"))],
        &["warning at mesh.yaml:15: mesh route cart → cart.shop: connecting may take 5s, and the whole call has 2s"],
    );
    is_silent(rule, &[("mesh.yaml", &mesh("http: {maxRetries: 3}"))]);
}

#[test]
fn a_limit_of_a_command_holds_no_connecting() {
    let redis = "spring.application.name=shop\nspring.data.redis.host=cache\nspring.data.redis.timeout=500ms\nspring.data.redis.connect-timeout=2s\n";
    is_silent("connect-limit-without-effect", &[("application.properties", redis)]);
}
