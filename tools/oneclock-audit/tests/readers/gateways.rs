//! What holds for every reader of gateways and proxies: no input makes one panic, and none makes one find without end.

use proptest::prelude::*;

use crate::written::inventory;

/// What their files are called, so that each reader takes what it is given.
const NAMES: &[&str] =
    &["nginx.conf", "site.conf", "haproxy.cfg", "Caddyfile", "traefik.toml", "traefik.yml", "kong.yml", "ingress.yaml"];

/// Pieces of which their files are made, and of which broken ones are.
const PIECES: &[&str] = &[
    "http",
    "server",
    "location /a",
    "upstream u",
    "events",
    "include *.conf",
    "include site.conf",
    "set $a $a$b",
    "proxy_pass http://$a",
    "proxy_pass http://u",
    "proxy_read_timeout 5",
    "server_name é",
    "{",
    "}",
    ";",
    "\n",
    " ",
    "\"",
    "'",
    "\\",
    "#",
    "$",
    "${",
    "{{",
    "<%",
    "`",
    "(",
    ")",
    "global\n",
    "defaults x from y\n",
    "frontend f\n",
    "backend b from x\n",
    "listen l\n",
    "use_backend b if x\n",
    "default_backend b\n",
    "server s a:1 check inter\n",
    "timeout server",
    "timeout",
    "retry-on 503\n",
    "acl x path_beg\n",
    "option",
    "no option",
    "import s",
    "(s)",
    "reverse_proxy",
    "a:1",
    "unix//",
    "to",
    "lb_retries",
    "transport http",
    "@m path",
    "[http.routers.r]\n",
    "rule = \"Host(`\"\n",
    "service = \"s\"\n",
    "[[a.b]]\n",
    "http:\n",
    "  routers:\n",
    "    r: {rule: \"Host(`\", service: s}\n",
    "  services:\n",
    "    s: {weighted: {services: [{name: s}]}}\n",
    "_format_version: '3'\n",
    "services:\n",
    "- {name: a, url: \"\", routes: [{}]}\n",
    "apiVersion: networking.k8s.io/v1\n",
    "kind: Ingress\n",
    "spec: {rules: [{http: {paths: [{backend: {service: {name: a}}}]}}]}\n",
    "metadata: {annotations: {nginx.org/x: y}}\n",
    "-",
    "0",
    "\u{0}",
    "€",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn nothing_that_is_written_makes_a_reader_panic(
        name in prop::sample::select(NAMES),
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60),
        other in ".{0,40}",
    ) {
        let text = format!("{}\nserver_name a;\n{other}", pieces.concat());
        inventory(&[(name, &text), ("other.conf", &pieces.concat())]);
    }
}

#[test]
fn however_much_is_written_so_many_calls_are_taken() {
    // What differs in numbers only is one program.
    let servers: String = ('a'..='z').map(|name| format!("server {name}:80;")).collect();
    let locations: String = (0..1_000).map(|at| format!("location /{at} {{ proxy_pass http://u; }}\n")).collect();
    let nginx = format!("events {{}}\nhttp {{ upstream u {{ {servers} }}\nserver {{ server_name a;\n{locations} }} }}");
    let found = inventory(&[("nginx.conf", &nginx)]);
    assert_eq!((found.edges.len(), found.left_out.len()), (4_096, 1));

    let targets: String = (0..1_000).map(|at| format!("  server s{at} s{at}:80\n")).collect();
    let found =
        inventory(&[("haproxy.cfg", &format!("defaults\nfrontend f\n default_backend b\nbackend b\n{targets}"))]);
    assert_eq!(found.edges.len(), 16);
}

#[test]
fn includes_that_grow_end() {
    let mut files: Vec<(String, String)> = (0..8)
        .map(|at| {
            (
                format!("{at}.conf"),
                format!("include {0}.conf; include {0}.conf; include {0}.conf; include {0}.conf;", at + 1),
            )
        })
        .collect();
    files.push(("8.conf".to_owned(), "location / { proxy_pass http://a; }".to_owned()));
    files.push(("nginx.conf".to_owned(), "events {}\nhttp { server { server_name a; include 0.conf; } }".to_owned()));
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    assert!(inventory(&files).edges.len() <= 4_096);
}

#[test]
fn braces_without_end_are_refused_and_not_followed() {
    for (name, piece) in [("nginx.conf", "http {\n"), ("Caddyfile", "a {\n"), ("traefik.toml", "a = [")] {
        let text = format!("[http.routers]\nserver_name a;\n{}", piece.repeat(50_000));
        assert!(!inventory(&[(name, &text)]).left_out.is_empty(), "{name}");
    }
}
