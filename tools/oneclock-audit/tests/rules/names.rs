//! Who is meant by a name, and what is said where that is not certain.

use std::fmt::Write;

use oneclock_audit::catalogue::Kind;
use oneclock_audit::graph::Graph;
use oneclock_audit::rules::judge;

use crate::judged::{TOPOLOGY, is_silent, says};
use crate::written::inventory;

#[test]
fn of_several_that_are_meant_one_is_told_and_the_others_are_beside_it() {
    let caller = "services:\n- name: a\n  calls: [{to: db, timeout: 1s, propagates: none}]\n";
    let db = "services:\n- name: db\n  calls: [{to: disk, timeout: 9s}]\n";
    let files = [
        (TOPOLOGY, caller),
        ("x/oneclock.topology.yaml", db),
        ("y/oneclock.topology.yaml", db),
        ("z/oneclock.topology.yaml", db),
    ];
    says(
        "outer-before-inner",
        &files,
        &["warning at x/oneclock.topology.yaml:3: db → disk may take 9s, and a → db gives up after 1s"],
    );
    let inventory = inventory(&files);
    let found = judge(&Graph::of(&inventory));
    let found: Vec<_> = found.iter().filter(|finding| finding.rule == "outer-before-inner").collect();
    let beside: Vec<&str> = found.iter().flat_map(|one| &one.related).map(|other| &*other.place.file).collect();
    for file in ["y/oneclock.topology.yaml", "z/oneclock.topology.yaml"] {
        assert!(beside.contains(&file), "{found:#?}");
    }
}

/// `stock.ai` is `stock` where something lies in a namespace `ai`, and else somebody's host.
#[test]
fn a_name_with_a_dot_is_of_a_namespace_only_where_there_is_one() {
    let text = "services:\n- name: page\n  calls: [{to: stock.ai, timeout: 2s}]\n- name: stock\n  calls: [{to: db, timeout: 9s}]\n- name: db\n";
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: ai}\nspec:\n  selector: {app: other}\n";
    let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: other, namespace: ai}\nspec:\n  template:\n    \
                      metadata: {labels: {app: other}}\n    spec:\n      containers: [{name: other, image: other}]\n";
    let cluster = format!("{deployment}---\n{service}");
    let want = "warning at oneclock.topology.yaml:5: stock → db may take 9s, and page → stock gives up after 2s";
    is_silent("outer-before-inner", &[(TOPOLOGY, text)]);
    says("outer-before-inner", &[(TOPOLOGY, text), ("k.yaml", &cluster)], &[want]);
    is_silent("outer-before-inner", &[(TOPOLOGY, &text.replace("stock.ai", "stock.open.ai")), ("k.yaml", &cluster)]);
}

#[test]
fn a_rule_with_many_subsets_is_one_place() {
    let of = |subsets: usize| {
        let mut rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: r}\nspec:\n  host: reviews\n  \
                        subsets:\n"
            .to_owned();
        for number in 0..subsets {
            let _ = writeln!(
                rule,
                "  - {{name: v{number}, trafficPolicy: {{connectionPool: {{tcp: {{connectTimeout: 3s}}, http: {{idleTimeout: 9s}}}}}}}}"
            );
        }
        let topology = "services:\n- name: page\n  calls: [{to: reviews}]\n- name: reviews\n";
        let inventory = inventory(&[(TOPOLOGY, topology), ("r.yaml", &rule)]);
        let graph = Graph::of(&inventory);
        graph.hops.iter().filter(|hop| hop.limits.get(Kind::Connect).is_some()).count()
    };
    assert_eq!([1, 17, 40].map(of), [1, 1, 1]);
}
