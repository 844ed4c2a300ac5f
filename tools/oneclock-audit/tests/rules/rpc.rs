//! What `.proto` files say of repeating a call.

use crate::judged::{is_silent, says};
use oneclock_audit::graph::Graph;
use oneclock_audit::inventory::Effects;
use oneclock_audit::rules::judge;

const CARTS: &str = "\
package shop;
service Carts {
  rpc Add(Cart) returns (Cart);
  rpc Clear(Cart) returns (Cart) { option idempotency_level = IDEMPOTENT; }
  rpc Get(Cart) returns (Cart) { option idempotency_level = NO_SIDE_EFFECTS; }
}
";

/// A policy for these names, and one without retries for others.
fn config(names: &str, others: &str) -> String {
    let policy = r#""retryPolicy": {"maxAttempts": 3, "retryableStatusCodes": ["UNAVAILABLE"]}"#;
    format!(
        "{{\"methodConfig\": [{{\"name\": [{names}],\n{policy}}}, {{\"name\": [{others}], \"timeout\": \"1s\"}}]}}\n"
    )
}

fn one(method: &str) -> String {
    format!("{{\"service\": \"shop.Carts\", \"method\": \"{method}\"}}")
}

const SERVICE: &str = "{\"service\": \"shop.Carts\"}";

#[track_caller]
fn warns(proto: &str, config: &str, want: &[&str]) {
    says("unsafe-retry", &[("shop.proto", proto), ("client.json", config)], want);
}

#[test]
fn a_method_that_is_declared_may_be_repeated_and_one_beside_it_not() {
    warns(CARTS, &config(&one("Get"), ""), &[]);
    warns(CARTS, &config(&one("Clear"), ""), &[]);
    warns(
        CARTS,
        &config(&one("Add"), ""),
        &[
            "warning at client.json:2: client of client.json → shop.carts is tried up to 3 times, and shop.Carts declares that other \
           methods may be repeated, and not Add",
        ],
    );
}

#[test]
fn where_nobody_declares_anything_it_is_worth_knowing() {
    let proto = CARTS.replace("option", "// option");
    let proto = proto.replace("EFFECTS; }", "EFFECTS;\n}").replace("IDEMPOTENT; }", "IDEMPOTENT;\n}");
    warns(
        &proto,
        &config(&one("Get"), ""),
        &[
            "note at client.json:2: client of client.json → shop.carts is tried up to 3 times, and nothing declares that \
           shop.Carts/Get may be repeated",
        ],
    );
}

#[test]
fn a_policy_for_a_service_is_for_what_the_file_does_not_name() {
    let of_add = "and shop.Carts declares that other methods may be repeated, and not Add";
    let want = format!("warning at client.json:2: client of client.json → shop.carts is tried up to 3 times, {of_add}");
    warns(CARTS, &config(SERVICE, ""), &[&want]);
    warns(CARTS, &config(SERVICE, &one("Get")), &[&want]);
    warns(CARTS, &config(SERVICE, &one("Add")), &[]);
    // Of another client that says nothing.
    let other = ("other.json", config("{\"service\": \"x.Y\", \"method\": \"Z\"}", &one("Add")));
    let files = [("shop.proto", CARTS), ("client.json", &config(SERVICE, "")), (other.0, &other.1)];
    says(
        "unsafe-retry",
        &files,
        &[
            &want,
            "note at other.json:2: client of other.json → x.y is tried up to 3 times, and no file \
                                           says that its methods may be repeated",
        ],
    );
}

#[test]
fn a_policy_for_everything_is_for_all_that_is_described_and_not_named() {
    let unsure = |says: &str| {
        format!(
            "note at client.json:2: client of client.json → every-grpc-service is tried up to 3 times, and {says} may be repeated"
        )
    };
    let of_add = unsure("nothing declares that shop.Carts/Add");
    warns(CARTS, &config("{}", ""), &[&of_add]);
    warns(CARTS, &config("{}", &one("Add")), &[]);
    warns(CARTS, &config("{}", SERVICE), &[&unsure("no file says that its methods")]);
    // What could not be read may have others.
    let files = [("shop.proto", CARTS), ("x.proto", "service X { rpc ("), ("client.json", &config("{}", &one("Add")))];
    let inventory = crate::written::inventory(&files);
    let found: Vec<_> = judge(&Graph::of(&inventory)).into_iter().filter(|one| one.rule == "unsafe-retry").collect();
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn of_a_service_that_is_not_described_nothing_is_known() {
    for (proto, names) in [
        (CARTS.replace("package shop", "package store"), one("Get")),
        (CARTS.to_owned(), one("get")),
        (CARTS.to_owned(), one("Gett")),
        (CARTS.replace("Get(Cart) returns (Cart)", "Get(Cart) returns"), one("Get")),
    ] {
        let files = [("shop.proto", proto.as_str()), ("client.json", &config(&names, ""))];
        let inventory = crate::written::inventory(&files);
        let graph = Graph::of(&inventory);
        let found = judge(&graph).into_iter().find(|one| one.rule == "unsafe-retry").expect("it is said");
        assert!(found.says.ends_with("no file says that its methods may be repeated"), "{}", found.says);
        assert!(graph.hops.iter().all(|hop| hop.effects == Effects::Unknown));
    }
}

#[test]
fn the_nearest_description_counts() {
    let said = CARTS.replace(
        "rpc Add(Cart) returns (Cart);",
        "rpc Add(Cart) returns (Cart) { option idempotency_level = IDEMPOTENT; }",
    );
    let config = config(&one("Add"), "");
    is_silent("unsafe-retry", &[("a/shop.proto", &said), ("b/shop.proto", CARTS), ("a/client.json", &config)]);
    // Of two that are equally near both have to say so.
    let files = [("a/shop.proto", said.as_str()), ("b/shop.proto", CARTS), ("c/client.json", &config)];
    let inventory = crate::written::inventory(&files);
    assert_eq!(Graph::of(&inventory).hops.iter().filter(|hop| hop.undeclared.is_some()).count(), 1);
}

#[test]
fn what_is_said_of_several_is_told_once() {
    let names = format!("{}, {}", one("Add"), SERVICE);
    warns(
        CARTS,
        &config(&names, ""),
        &[
            "warning at client.json:2: client of client.json → shop.carts is tried up to 3 times, and shop.Carts declares that other \
           methods may be repeated, and not Add",
        ],
    );
}

/// Whoever repeats it: a route of a proxy for a method, or for all whose names begin so.
#[test]
fn routes_for_methods() {
    let envoy = |prefix: &str| {
        format!(
            "static_resources:\n  listeners:\n  - address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}\n    filter_chains:\n    \
             - filters:\n      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n          route_config:\n            \
             virtual_hosts:\n            - domains: ['*']\n              routes:\n              - match: {{prefix: {prefix}, grpc: {{}}}}\n                \
             route: {{cluster: shop, timeout: 1s, retry_policy: {{num_retries: 2, retry_on: 'unavailable,cancelled'}}}}\n  clusters:\n  - name: \
             shop\n    load_assignment: {{endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: shop, \
             port_value: 80}}}}}}}}]}}]}}\n"
        )
    };
    let repeats = |proto: &str, prefix: &str| {
        let inventory = crate::written::inventory(&[("shop.proto", proto), ("envoy.yaml", &envoy(prefix))]);
        let graph = Graph::of(&inventory);
        assert_eq!(graph.hops.len(), 1);
        judge(&graph).iter().any(|one| one.rule == "unsafe-retry")
    };
    assert!(!repeats(CARTS, "/shop.Carts/Get"));
    assert!(repeats(CARTS, "/shop.Carts/Add"));
    assert!(repeats(CARTS, "/shop.Carts/"));
    assert!(repeats(CARTS, "/"));
    let more = CARTS.replace("rpc Add(", "rpc GetAndClear(");
    assert!(repeats(&more, "/shop.Carts/Get"));
    let said = CARTS.replace("  rpc Add(Cart) returns (Cart);\n", "");
    assert!(!repeats(&said, "/shop.Carts/"));
}

#[test]
fn what_a_call_says_of_itself_comes_first() {
    let topology = "services:\n- name: page\n  calls: [{to: carts, timeout: 1s, attempts: 3, path: /shop.Carts/Get, effects: once}]\n- \
                    name: carts\n";
    let files = [("shop.proto", CARTS), (crate::judged::TOPOLOGY, topology)];
    let inventory = crate::written::inventory(&files);
    assert_eq!(Graph::of(&inventory).hops[0].effects, Effects::Once);
    let inventory = crate::written::inventory(&[files[0], (files[1].0, &topology.replace(", effects: once", ""))]);
    assert_eq!(Graph::of(&inventory).hops[0].effects, Effects::ReadOnly);
}
