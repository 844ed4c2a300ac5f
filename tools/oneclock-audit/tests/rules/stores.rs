//! Databases: what a statement and the wait for a connection take, alone and together.

use crate::judged::{TOPOLOGY, is_silent, says};

const RULE: &str = "store-outlasts-caller";
const PAGE: &str = "services:\n- name: page\n  calls: [{to: orders, timeout: 5s}]\n";

/// The settings of a service with its pool and the statements that it asks for.
fn orders(wait: &str, statement: &str) -> String {
    format!(
        "spring.application.name=orders\nspring.datasource.url=jdbc:postgresql://db/shop\n\
         spring.datasource.hikari.connection-timeout={wait}\nspring.jpa.properties.jakarta.persistence.query.timeout={statement}\n"
    )
}

#[test]
fn a_wait_and_a_statement_that_fit_alone_and_not_together() {
    says(
        RULE,
        &[(TOPOLOGY, PAGE), ("application.properties", &orders("3000", "4000"))],
        &[
            "warning at application.properties:3: orders → db:5432: waiting for a connection may take 3s, and a statement 4s: 7s together, and \
             page gives up after 5s",
        ],
    );
    is_silent(RULE, &[(TOPOLOGY, PAGE), ("application.properties", &orders("500", "4000"))]);
    // Nobody is known to wait for any of it.
    is_silent(RULE, &[("application.properties", &orders("3000", "4000"))]);
}

#[test]
fn a_statement_that_outlasts_the_wait_and_the_caller_is_told_with_both() {
    let files = [(TOPOLOGY, PAGE), ("application.properties", &*orders("500", "9000"))];
    says(
        RULE,
        &files,
        &[
            "warning at application.properties:4: orders → db:5432: a statement may run for 9s, and page gives up after 5s",
        ],
    );
    let inventory = crate::written::inventory(&files);
    let found = oneclock_audit::rules::judge(&oneclock_audit::graph::Graph::of(&inventory));
    let one = found.iter().find(|finding| finding.rule == RULE).expect("it is found");
    assert!(one.related.iter().any(|related| related.place.line == 3), "{one:#?}");
    assert!(one.consequence.ends_with("whoever waits for one gives up after 500ms"), "{}", one.consequence);
}
