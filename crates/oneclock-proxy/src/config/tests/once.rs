//! `idempotency` of a route: what is read, what holds without it, and what contradicts itself.

use std::time::Duration;

use super::{EVERYTHING, read, refused, with_route};
use crate::config::{Idempotency, IdempotencyStore, Principal};

const STORE: &str = "store: sqlite:/var/lib/oneclock/keys.db";

/// On line 5 of a file, where its first value begins in column 18.
fn route(says: &str) -> String {
    with_route(&format!("idempotency: {{ {says}, {STORE}, principal: everybody }}"))
}

fn of(file: &str, nth: usize) -> Idempotency {
    read(file).routes[nth].idempotency.clone().unwrap()
}

#[test]
fn every_key_is_read() {
    let once = of(EVERYTHING, 2);
    assert!(matches!(&once.store, IdempotencyStore::Postgres { url, ca: Some(_) } if url.contains("secret")));
    assert_eq!(once.principal, Principal::Field(http::header::AUTHORIZATION));
    let spans = [once.execution, once.lease.unwrap(), once.retention].map(|span| span.as_secs());
    assert_eq!((spans, once.require), ([12, 40, 48 * 3_600], true));
    assert_eq!((once.max_request, once.max_answer), (65_536, 131_072));
    assert_eq!(once.replays, ["x-order-id"]);
    assert_eq!(once.monitor.as_deref(), Some("/pay/operations"));
}

#[test]
fn a_run_may_take_what_a_request_without_a_key_may() {
    let lines = format!("idempotency: {{ {STORE}, principal: x-account }}");
    let once = of(&with_route(&lines), 0);
    assert_eq!((once.execution, once.lease), (Duration::from_secs(10), None));
    assert_eq!((once.retention, once.require, once.max_answer), (Duration::from_secs(86_400), false, 262_144));
    let longer = of(&with_route(&format!("timeouts: {{ request: 1m }}\n{lines}")), 0);
    assert_eq!(longer.execution, Duration::from_secs(60));
}

#[test]
fn whose_a_key_is_has_to_be_said() {
    refused(
        &with_route(&format!("idempotency: {{ {STORE} }}")),
        "5:16: `principal` is missing in `idempotency`: whose key it is: the header field that tells callers apart, of \
         which a hash is kept; or `everybody`, where callers may see each other's answers",
    );
    for wrong in ["X-Account", "x account", "ä"] {
        refused(
            &with_route(&format!("idempotency: {{ principal: \"{wrong}\", {STORE} }}")),
            &format!(
                "5:29: `{wrong}` is not the name of a header field in lower case; write one that tells callers apart, such \
                 as x-account or authorization, or everybody where they are all the same"
            ),
        );
    }
}

#[test]
fn what_contradicts_itself_is_refused_where_it_stands() {
    refused(
        &route("execution: 9s"),
        "5:29: execution is 9s, and ceiling is 10s: a request with a key would be cut off sooner than one without, and what \
         was cut off is unknown; write at least 10s",
    );
    refused(
        &route("lease: 16s"),
        "5:25: lease is 16s, and a run may take 17s (its claim, execution, and its record): it would count as lost while it \
         works; write more, or delete the line",
    );
    read(&route("lease: 17s"));
    refused(
        &route("retention: 19s"),
        "5:29: retention is 19s, and 20s is the least (twice execution): a record would be gone before the last retry \
         comes, which then would run again",
    );
    refused(
        &route("execution: 13h"),
        "5:29: retention is 24h, and 26h is the least (twice execution): a record would be gone before the last retry \
         comes, which then would run again",
    );
    let ca =
        "5:22: ca is for a database that is reached over TLS: write postgres://…?sslmode=require, or delete the line";
    refused(&route("ca: /x.pem"), ca);
    refused(&with_route("idempotency: { ca: /x.pem, store: \"postgres://db/keys\", principal: everybody }"), ca);
    refused(&route("maxAnswer: 0"), "5:29: `0` is not a whole number from 1 to 16777216");
    refused(&route("replays: [X-Id]"), "5:28: `X-Id` is not the name of a header field in lower case");
    refused(&route("replays: [set-cookie]"), "5:27: the header set-cookie belongs to one exchange and is not replayed");
    refused(&route("require: yes"), "5:27: `yes` is not known here. Known: true, false");
    refused(
        &with_route(&format!(
            "kind: {{ streaming: {{ idle: 1s, total: 1m }} }}\nidempotency: {{ {STORE}, principal: everybody }}"
        )),
        "6:16: a stream has no answer that could be kept and given again: delete it, or make the route unary, with a \
         ceiling that covers the stream",
    );
}

#[test]
fn who_asks_at_a_monitor_comes_to_its_route() {
    let says = "does not take this route, so that nobody could ask there: write a path below one that it matches for GET, or \
                add a match";
    let file = |matches: &str, monitor: &str| {
        let lines = format!("idempotency: {{ monitor: {monitor}, {STORE}, principal: everybody }}");
        with_route(&format!("matches: [{matches}]\n{lines}"))
    };
    let pay = "{ path: { value: /pay } }";
    assert_eq!(of(&file(pay, "/pay/operations/"), 0).monitor.as_deref(), Some("/pay/operations"));
    refused(&file(pay, "/operations"), &format!("6:27: GET /operations/… {says}"));
    refused(
        &file("{ path: { value: /pay }, method: POST }", "/pay/operations"),
        &format!("6:27: GET /pay/operations/… {says}"),
    );
    let both = "{ path: { value: /pay }, method: POST }, { path: { value: /pay/operations }, method: GET }";
    read(&file(both, "/pay/operations"));
    refused(&file("{}", "/"), "6:27: `/` would be asked instead of the upstream: write a path of its own");
}
