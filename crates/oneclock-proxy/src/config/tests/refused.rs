//! What is refused: each with its place, what is wrong, and what to write instead.

use super::{refused, with_route};

const APP: &str = "upstreams: { app: { url: http://127.0.0.1:3000 } }\n";

/// A route with these lines is refused: the first stands on line 5, and begins in column 3.
#[track_caller]
fn route(lines: &str, says: &str) {
    refused(&with_route(lines), says);
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_the_nearest_known_one() {
    refused(
        "upstreams:\n  app:\n    ulr: http://127.0.0.1:3000\n",
        "3:5: there is no key `ulr` here; did you mean `url`? Known: url, protocol, tls, tells, trust, cap, maxConnections",
    );
    route(
        "timeouts: { backendrequest: 1s }",
        "5:15: there is no key `backendrequest` here; did you mean `backendRequest`? Known: request, backendRequest",
    );
    route("timeouts: { xyz: 1s }", "5:15: there is no key `xyz` here. Known: request, backendRequest");
    route(
        "kind: { streaming: { idle: 1s } }",
        "5:22: `total` is missing in `streaming`: the longest life of the stream, from its head",
    );
    route("timeouts:", "5:3: `timeouts` has no value: write one, or delete the line");
    route(
        "timeouts: 3s",
        "5:13: `timeouts` is expected here, with keys of request, backendRequest; this is a single value",
    );
    refused("upstreams: {}\nroutes: []\n", "2:9: this list is empty: write what belongs in it, or delete the line");
    refused(
        "upstreams: [a]\n",
        "1:12: a mapping is expected here, such as `app: { url: http://127.0.0.1:3000 }`; this is a list",
    );
}

#[test]
fn a_word_is_told_with_the_nearest_known_one() {
    route("trust: insde", "5:10: `insde` is not known here; did you mean `inside`? Known: inside, outside");
    route("mode: off", "5:9: `off` is not known here. Known: observe, shadow, enforce");
    route("onMalformed: ignore", "5:16: `ignore` is not known here. Known: reject, clamp");
    route(
        "matches: [{ method: get }]",
        "5:23: `get` is not known here; did you mean `GET`? Known: GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, \
         PATCH",
    );
    route("kind: streaming", "5:9: a stream needs its clocks: write { streaming: { idle: 30s, total: 1h } }");
    refused(
        "accessLog: stdotu\n",
        "1:12: `stdotu` is not known here; did you mean `stdout`? Known: none, stdout, or the path of a file, which begins with a slash",
    );
    refused(
        "accessLog: { to: none }\n",
        "1:18: `none` is not known here. Known: stdout, or the path of a file, which begins with a slash",
    );
    for wrong in ["1.1", "-1", "2", "50%", "0.0000001", "."] {
        refused(
            &format!("accessLog: {{ to: stdout, sample: '{wrong}' }}\n"),
            &format!(
                "1:34: `{wrong}` is not a share: write a number from 0 to 1 with at most six decimals, such as 0.01"
            ),
        );
    }
}

#[test]
fn nothing_means_unlimited() {
    let finite = "and a finite one is required here: write a duration such as 30s, or delete the line for the default";
    for key in ["whenAbsent", "ceiling"] {
        let column = key.len() + 5;
        route(&format!("{key}: none"), &format!("5:{column}: `none` means no limit, {finite}"));
    }
    route("timeouts: { request: none }", &format!("5:24: `none` means no limit, {finite}"));
    route(
        "timeouts: { request: 0s }",
        "5:24: `0s` would refuse every request: zero means expired here, not unlimited (Gateway API: disabled), and a finite \
         limit is required; write a duration such as 30s, or delete the line for the default",
    );
    route(
        "timeouts: { backendRequest: 0s }",
        "5:31: `0s` would refuse every call: zero means expired here, not unlimited (Gateway API: disabled); write `none`, or \
         delete the line, for all that the request has left",
    );
    route("minUseful: none", "5:14: `none` is no duration: write 0s where nothing is meant");
    route("queue: none", "5:10: `none` is not a whole number from 0 to 4096");
    route("concurrency: none", "5:16: `none` is not a whole number from 1 to 1000000, and not `adaptive` either");
    route("concurrency: 0", "5:16: `0` is not a whole number from 1 to 1000000, and not `adaptive` either");
    route(
        "kind: { streaming: { idle: 0s, total: 1h } }",
        "5:30: `0s` would refuse every request: zero means expired here, not unlimited (Gateway API: disabled), and a finite \
         limit is required; write a duration such as 30s, or delete the line for the default",
    );
}

#[test]
fn a_value_that_is_none_is_told_with_what_one_looks_like() {
    let duration =
        "is not a duration: write one to four whole numbers, each with its unit h, m, s or ms, such as 1m30s or 250ms";
    for bare in ["3", "1500", "0"] {
        route(
            &format!("ceiling: {bare}"),
            &format!("5:12: `{bare}` has no unit, so it is not a duration; did you mean `{bare}s`, or `{bare}ms`?"),
        );
    }
    for wrong in ["1.5s", "-1s", "+1s", "1d", "3sec", "123456s", "1s 2s", "1s1s1s1s1s", "s", "10us", "\"\"", "1S"] {
        let shown = wrong.trim_matches('"');
        route(&format!("ceiling: {wrong}"), &format!("5:12: `{shown}` {duration}"));
    }
    let url = "write http:// or https://, a host and a port, such as http://127.0.0.1:3000";
    for (wrong, why) in [
        ("app:3000", "has no scheme or no host"),
        ("ftp://app", "is neither http nor https"),
        ("http://app/v1", "has a path, and requests keep the path they come with"),
        ("http://app:99999", "has no host, or a port that is none"),
        ("/app", "has no scheme or no host"),
        ("http://", "is not the URL of an upstream"),
    ] {
        refused(&format!("upstreams: {{ app: {{ url: \"{wrong}\" }} }}\n"), &format!("1:26: `{wrong}` {why}; {url}"));
    }
    for wrong in ["8080", ":8080", "localhost:8080", "0.0.0.0"] {
        refused(
            &format!("admin: \"{wrong}\"\n"),
            &format!(
                "1:8: `{wrong}` is not an address and a port: write 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every address"
            ),
        );
    }
    let store = "write sqlite: and the path of a file, such as sqlite:/var/lib/oneclock/keys.db, or \
                 postgres://user:password@host/database";
    for (wrong, why) in [
        ("redis://cache", "is neither"),
        ("sqlite:", "has no path"),
        ("sqlite::memory:", "is gone after a restart, and with it what was done already"),
        ("postgres:///keys", "has no host, or a port that is none"),
        ("postgres://db:0/keys", "has no host, or a port that is none"),
    ] {
        let keys = format!("idempotency: {{ store: \"{wrong}\", principal: everybody }}");
        route(&keys, &format!("5:25: `{wrong}` {why}; {store}"));
    }
    route(
        "retry: { codes: [500, 404] }",
        "5:25: `404` is not a whole number from 408 to 599: lower statuses are no failure that another attempt could change",
    );
    route("retry: { attempts: 0 }", "5:22: `0` is not a whole number from 1 to 9");
    for (path, why) in [
        ("orders", "write it with a slash before it"),
        (
            "/a//b",
            "empty parts, dots and escaped slashes are made away with on the way, or are not, and so match by chance",
        ),
        (
            "/a/../b",
            "empty parts, dots and escaped slashes are made away with on the way, or are not, and so match by chance",
        ),
        (
            "/a%2fb",
            "empty parts, dots and escaped slashes are made away with on the way, or are not, and so match by chance",
        ),
        ("/a%2", "after % there have to be two hexadecimal digits"),
        ("/a?b", "it holds a character that is written as % and two digits there, or that ends the path (? and #)"),
    ] {
        route(
            &format!("matches: [{{ path: {{ value: \"{path}\" }} }}]"),
            &format!("5:30: `{path}` is no path that a request has: {why}"),
        );
    }
    for (path, prefix) in [("/slow/*", "/slow"), ("/*", "/"), ("/a/b*c", "/a"), ("/a/*/b", "/a")] {
        route(
            &format!("matches: [{{ path: {{ value: {path} }} }}]"),
            &format!(
                "5:30: `{path}` has a star, which stands for a star here and for nothing else, so that hardly any request would \
                 match: for a path and all below it write `type: PathPrefix` and `value: {prefix}`; for a star itself write %2A"
            ),
        );
    }
    refused(
        "listeners: [{ address: 127.0.0.1:1, reads: [x-request-timeout] }]\n",
        "1:45: x-request-timeout is in milliseconds for some senders and in seconds for others: write { field: \
         x-request-timeout, is: remaining-ms } or { field: x-request-timeout, is: remaining-seconds }",
    );
}

#[test]
fn limits_that_contradict_one_another_are_told_with_both_values() {
    route(
        "timeouts: { request: 2s, backendRequest: 3s }",
        "5:44: timeouts.backendRequest is 3s, and timeouts.request is 2s: one attempt cannot take longer than its request; \
         write at most 2s",
    );
    route(
        "timeouts: { backendRequest: 11s }",
        "5:31: timeouts.backendRequest is 11s, and ceiling is 10s: one attempt cannot take longer than its request; write at \
         most 10s",
    );
    route(
        "minUseful: 3s\nwhenAbsent: 2s",
        "5:14: minUseful is 3s, and whenAbsent is 2s: requests without a deadline would all be refused",
    );
    route(
        "whenAbsent: 4ms",
        "5:15: minUseful is 5ms, and whenAbsent is 4ms: requests without a deadline would all be refused",
    );
    route(
        "whenAbsent: 3s\nceiling: 2s",
        "5:15: whenAbsent is 3s, and ceiling is 2s: nobody may get more than the ceiling",
    );
    route(
        "whenAbsent: 3s\ntimeouts: { request: 2s }",
        "5:15: whenAbsent is 3s, and timeouts.request is 2s: nobody may get more than that; write less, or a ceiling",
    );
    route(
        "ceiling: 1s\ntimeouts: { request: 2s }",
        "5:12: ceiling is 1s, and timeouts.request is 2s: nobody may get more than the ceiling",
    );
    route(
        "whenAbsent: 1s\nceiling: 3s\ntimeouts: { request: 2s }",
        "7:24: timeouts.request sets whenAbsent and ceiling, and both are written: delete one of the three",
    );
    route(
        "reserve: 2s",
        "5:12: reserve is 2s, and with minUseful 5ms that is more than whenAbsent 2s: for a request without a deadline no call \
         would ever be made",
    );
    route(
        "timeouts: { backendRequest: 3ms }",
        "5:31: timeouts.backendRequest is 3ms, and minUseful is 5ms: no attempt would ever be made",
    );
    route(
        "kind: { streaming: { idle: 2h, total: 1h } }",
        "5:30: idle is 2h, and total is 1h: a stream would end before it could be idle for so long; write less, or more for \
         total",
    );
    route(
        "kind: { streaming: { idle: 1s, total: 1h } }\ntimeouts: { backendRequest: 1s }",
        "6:31: timeouts.backendRequest covers head and body of an attempt, so that it would cut the stream, which has idle and \
         total of its own: delete it",
    );
    refused(
        "upstreams: { app: { url: http://app, cap: 3ms } }\nroutes:\n- upstream: app\n",
        "3:13: the cap of upstream app is 3ms, and minUseful here is 5ms: no call would ever be made",
    );
    refused(
        "upstreams: { app: { url: https://app, protocol: h2c } }\n",
        "1:49: h2c is HTTP/2 without TLS, and the URL begins with https: delete the line",
    );
    refused(
        "upstreams: { app: { url: http://app, tls: { ca: /ca.crt } } }\n",
        "1:43: the URL begins with http, so there is no TLS: write https, or delete the line",
    );
    refused(
        "upstreams: { app: { url: https://app, tls: { clientKey: /client.key } } }\n",
        "1:44: `clientKey` is of no use without its `clientCertificate`: write both",
    );
    refused(
        "upstreams: { app: { url: https://app, tls: { serverName: a b } } }\n",
        "1:58: `a b` is neither a DNS name nor an address, so no certificate can be for it; write a name such as payment.internal",
    );
}

#[test]
fn what_the_whole_contradicts_is_told_where_it_stands() {
    refused(
        &format!("{APP}routes:\n- upstream: ap\n"),
        "3:13: there is no upstream `ap`; did you mean `app`? Known: app",
    );
    refused("routes:\n- upstream: app\n", "2:13: there is no upstream `app`: there are none");
    refused(
        &format!(
            "{APP}routes:\n- upstream: app\n  matches: [{{ path: {{ value: /a }} }}]\n- upstream: app\n  name: b\n  matches:\n  - path: {{ value: /a/ }}\n"
        ),
        "8:5: /a/* goes to route /a/* already (line 4), so that this match would never be taken: delete one of them, or add a \
         method or a longer path",
    );
    refused(
        &format!(
            "{APP}routes:\n- {{ name: a, upstream: app }}\n- {{ name: a, upstream: app, matches: [{{ method: GET }}] }}\n"
        ),
        "4:11: there is a route a already (line 3): write another name",
    );
    let listeners = |one: &str, other: &str| {
        format!("{APP}routes: [{{ upstream: app }}]\nlisteners:\n- address: {one}\n- address: {other}\n")
    };
    for (one, other) in
        [("127.0.0.1:80", "127.0.0.1:80"), ("0.0.0.0:80", "127.0.0.1:80"), ("127.0.0.1:80", "'[::]:80'")]
    {
        let shown = other.trim_matches('\'');
        refused(
            &listeners(one, other),
            &format!(
                "5:12: listener http-2 is on {shown}, where listener http is already (line 4): write another address"
            ),
        );
    }
    for (one, other) in
        [("127.0.0.1:80", "127.0.0.2:80"), ("127.0.0.1:0", "127.0.0.1:0"), ("127.0.0.1:80", "127.0.0.1:81")]
    {
        super::read(&listeners(one, other));
    }
    refused(
        &listeners("0.0.0.0:80", "0.0.0.0:9902"),
        "5:12: listener http-2 is on 0.0.0.0:9902, where the admin pages are unless something else is written: write another \
         address here, or for admin",
    );
    refused(
        &format!("{}admin: 0.0.0.0:80\n", listeners("127.0.0.1:80", "127.0.0.1:81")),
        "6:8: admin is on 0.0.0.0:80, where listener http is already (line 4): write another address",
    );
    refused(
        &format!("{}admin: {{ probes: 0.0.0.0:81 }}\n", listeners("127.0.0.1:80", "127.0.0.1:81")),
        "6:18: admin.probes is on 0.0.0.0:81, where listener http-2 is already (line 5): write another address",
    );
    refused(
        &format!("{}admin: {{ probes: 0.0.0.0:9902 }}\n", listeners("127.0.0.1:80", "127.0.0.1:81")),
        "6:18: admin.probes is on 0.0.0.0:9902, where the admin pages are unless something else is written: write another \
         address here, or for admin",
    );
    refused(
        &format!("{}admin: {{ page: none }}\n", listeners("127.0.0.1:80", "127.0.0.1:81")),
        "6:10: there is no key `page` here; did you mean `pages`? Known: pages, probes",
    );
    route(
        "trust: inside",
        "5:10: listener http is outside, and a path cannot make its callers ours: write `trust: inside` at the listener, or \
         delete this line",
    );
    for empty in ["", "---\n", "# nothing\n", "{}", "admin: none\n"] {
        refused(
            empty,
            "1:1: there is no route, so that every request would be answered with 404: write `upstreams` and `routes`, or add \
             an HTTPRoute",
        );
    }
    refused(
        &format!("{APP}---\n{APP}"),
        "3:1: there is a document without a `kind` already (line 1): write both as one",
    );
}

#[test]
fn what_is_no_yaml_is_told_with_its_place() {
    for wrong in
        ["admin: [", "a: b: c", "- a", "admin: none\nadmin: none\n", "\tadmin: none", "{{{", "*nobody", "!!int x"]
    {
        let refused = super::Config::parse(wrong).unwrap_err();
        assert!(refused.line.is_some_and(|line| line >= 1) && refused.column.is_some(), "{wrong:?}: {refused}");
        assert!(!refused.why.is_empty());
    }
    refused("admin: none\nadmin: none\n", "2:1: the key `admin` is here a second time: delete one of them");
    refused("admin: [", "1:8: this is no YAML: unclosed bracket '['");
    refused("a: b: c", "1:5: this is no YAML: mapping values are not allowed in this context");
    refused("!!int x", "1:7: a tag that begins with ! says nothing here: delete it");
    refused("~: x", "1:1: a key is missing before the colon");
    refused(
        "admin: .inf",
        "1:8: `.inf` is not an address and a port: write 127.0.0.1:8080, [::1]:8080, or 0.0.0.0:8080 for every address",
    );
    let deep = "[".repeat(100_000);
    assert!(super::Config::parse(&deep).is_err());
    assert!(super::Config::parse(&"{a: ".repeat(100_000)).is_err());
}
