//! HAProxy: what sections take over, units, and what is without a limit because nobody said so.

use crate::told::{finds, lines};

#[test]
fn a_frontend_calls_the_servers_of_the_backends_that_it_may_choose() {
    let text = "\
global
    maxconn 100
defaults
    mode http
    timeout connect 5000   # milliseconds, without a unit
    timeout client 50s
frontend web
    bind *:80
    acl is_api path_beg -i /api
    use_backend api if is_api
backend api
    timeout server 1m
    server one 10.0.0.1:8080 check inter 3s
";
    let want = "
    Gateway haproxy frontend web [HAProxy] answers to
    call haproxy frontend web -> 10.0.0.1:8080 (backend api)
    haproxy frontend web: haproxy.timeout_client = 50s at haproxy.cfg:6:20
    haproxy frontend web -> 10.0.0.1:8080 (backend api): haproxy.timeout_connect = 5s at haproxy.cfg:5:21
    haproxy frontend web -> 10.0.0.1:8080 (backend api): haproxy.timeout_server = 1m at haproxy.cfg:12:20
    haproxy frontend web -> 10.0.0.1:8080 (backend api): haproxy.timeout_queue = 5s by default at haproxy.cfg:5:21
    haproxy frontend web -> 10.0.0.1:8080 (backend api): haproxy.connect_retries = 3 by default at haproxy.cfg:11:1
    haproxy frontend web -> 10.0.0.1:8080 (backend api): haproxy.inter = 3s at haproxy.cfg:13:42
    ";
    finds("haproxy.cfg", text, want);
}

#[test]
fn what_is_unset_is_without_a_limit_and_passes_connections_on() {
    let text = "global\nlisten db\n    bind :5432\n    server one db:5432\n";
    let want = "
    Gateway haproxy listen db [HAProxy] answers to
    call haproxy listen db -> db:5432 (), streaming
    haproxy listen db: haproxy.timeout_client = none by default at haproxy.cfg:2:1
    haproxy listen db -> db:5432 (): haproxy.timeout_connect = none by default at haproxy.cfg:2:1
    haproxy listen db -> db:5432 (): haproxy.timeout_server = none by default at haproxy.cfg:2:1
    haproxy listen db -> db:5432 (): haproxy.timeout_queue = none by default at haproxy.cfg:2:1
    haproxy listen db -> db:5432 (): haproxy.connect_retries = 3 by default at haproxy.cfg:2:1
    ";
    finds("haproxy.cfg", text, want);
}

#[test]
fn in_a_part_of_several_files_nobody_knows_what_is_unset() {
    let text = "backend api\n    timeout server 10s\n    server one api:80\n";
    let want = "
    Gateway haproxy backend api [HAProxy] answers to
    call haproxy backend api -> api:80 (backend api), streaming
    haproxy backend api -> api:80 (backend api): haproxy.timeout_server = 10s at conf.d/api.cfg:2:20
    ";
    finds("conf.d/api.cfg", text, want);
}

/// The retries of a backend, and what they leave out.
#[track_caller]
fn retries(lines_of_it: &str, want: &str) {
    let text = format!("defaults\n mode http\nbackend b\n{lines_of_it}\n server s s:1\n");
    let found = lines(&[("haproxy.cfg", &text)]);
    let call = found.iter().find_map(|line| line.strip_prefix("call haproxy backend b -> s:1 (backend b)"));
    let retries = found.iter().find(|line| line.contains("retries"));
    let retries = retries
        .and_then(|line| line.split_once("): "))
        .and_then(|(_, line)| line.split_once(" at "))
        .map(|(line, _)| line);
    assert_eq!(format!("{}{}", retries.unwrap_or("none"), call.unwrap_or_default()), want, "{lines_of_it}");
}

#[test]
fn only_what_retry_on_names_is_sent_twice() {
    retries(" retries 2", "haproxy.connect_retries = 2");
    retries(" retry-on conn-failure 0rtt-rejected", "haproxy.connect_retries = 3 by default");
    retries(" retry-on none", "none");
    retries(" retries 2\n retry-on all-retryable-errors", "haproxy.retries = 2, repeats unsafe");
    retries(
        " retry-on 503\n http-request disable-l7-retry if METH_POST",
        "haproxy.retries = 3 by default, spares unsafe",
    );
    retries(" mode tcp\n retry-on 503", "haproxy.connect_retries = 3 by default, streaming");
}

#[test]
fn defaults_are_those_above_or_those_named() {
    let text = "\
defaults slow
    timeout server 60s
defaults
    timeout server 5s
backend a
    server s a:1
backend b from slow
    server s b:1
";
    let found = lines(&[("haproxy.cfg", text)]);
    let servers: Vec<&str> =
        found.iter().filter_map(|line| line.split_once("timeout_server = ")).map(|(_, rest)| rest).collect();
    assert_eq!(servers, ["5s at haproxy.cfg:4:20", "1m at haproxy.cfg:2:20"]);
}

#[test]
fn quotes_variables_sockets_and_what_cannot_be_known() {
    let text = "\
defaults
frontend f
    use_backend %[req.hdr(host)]
    default_backend b
backend b
    server a \"unix@/run/a.sock\"
    server b \"${HOST}:80\"
    server-template c 1-3 ipv4@c.local:80
    timeout server \"${LIMIT-3s}\"
";
    let found = lines(&[("haproxy.cfg", text)]);
    let wanted = [
        "call haproxy frontend f -> unix:/run/a.sock (backend b), streaming",
        "call haproxy frontend f -> c.local:80 (backend b), streaming",
        "haproxy frontend f -> c.local:80 (backend b): haproxy.timeout_server = 3s at haproxy.cfg:9:20",
        "left out haproxy.cfg:3:17: NotUnderstood, use_backend %[req.hdr(host)]: which backend that is, is not known here",
        "left out haproxy.cfg:7:14: NotUnderstood, server ${HOST}:80: whom it calls is not known here",
    ];
    for line in wanted {
        assert!(found.iter().any(|one| one == line), "{line}\n{found:#?}");
    }
}

#[test]
fn templates_are_listed_and_other_files_are_none() {
    let want = "left out haproxy.cfg.j2:1:1: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("haproxy.cfg.j2", "defaults\n  timeout server {{ t }}\n", want);
    finds("setup.cfg", "[metadata]\nname = defaults\n[flake8]\nmax-line-length = 80\n", "");
}

#[test]
fn parts_of_a_unit_are_refused_as_haproxy_does_it() {
    let found = lines(&[("haproxy.cfg", "defaults\n  timeout server 1.5s\nbackend b\n  server s s:1\n")]);
    let left =
        "left out haproxy.cfg:2:18: NotUnderstood, timeout server: `1.5s` is not understood as a time in whole numbers";
    assert!(found.iter().any(|line| line == left), "{found:#?}");
}
