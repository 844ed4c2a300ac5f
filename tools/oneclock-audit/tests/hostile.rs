//! Nothing that lies in a repository makes the audit panic, run away or take anything for "no timeout" that it did not
//! read.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

use std::time::{Duration, Instant};

use oneclock_audit::graph::Graph;
use oneclock_audit::inventory::{Inventory, Why};
use oneclock_audit::rules::judge;
use oneclock_audit::source::Source;
use oneclock_audit::walk::{LARGEST, Repository, read, walk};
use proptest::prelude::*;

/// Names by which files are told.
const NAMES: &[&str] = &[
    "envoy.yaml",
    "envoy.json",
    "virtual-service.yaml",
    "values.yaml",
    "nginx.conf",
    "conf.d/site.conf",
    "haproxy.cfg",
    "compose.yaml",
    "docker-compose.yml",
    "deployment.yaml",
    "application.yml",
    "application.properties",
    "template.yaml",
    "serverless.yml",
    "main.tf",
    "service_config.json",
    "gunicorn.conf.py",
    "uwsgi.ini",
    "postgresql.conf",
    "pgbouncer.ini",
    "my.cnf",
    "redis.conf",
    "rabbitmq.conf",
    "server.properties",
    ".env",
    "Dockerfile",
    "Procfile",
    "Caddyfile",
    "kong.yml",
    "traefik.yml",
    "traefik.toml",
    "oneclock.topology.yaml",
    "oneclock.yaml",
    "resiliency.yaml",
    "ingress.yaml",
    "start.sh",
];

/// Words of all formats, and what breaks them.
const WORDS: &[&str] = &[
    "static_resources",
    "virtual_hosts",
    "routes",
    "route",
    "cluster",
    "timeout",
    "retry_policy",
    "num_retries",
    "apiVersion",
    "networking.istio.io/v1",
    "gateway.networking.k8s.io/v1",
    "kind",
    "VirtualService",
    "DestinationRule",
    "HTTPRoute",
    "Deployment",
    "Service",
    "Ingress",
    "ConfigMap",
    "metadata",
    "annotations",
    "nginx.ingress.kubernetes.io/proxy-read-timeout",
    "spec",
    "http",
    "server",
    "location",
    "/",
    "proxy_pass",
    "proxy_read_timeout",
    "upstream",
    "include",
    "*.conf",
    "../x",
    "defaults",
    "backend",
    "frontend",
    "timeout server",
    "services",
    "image",
    "environment",
    "healthcheck",
    "command",
    "postgres",
    "spring",
    "application",
    "name",
    "resilience4j.timelimiter",
    "instances",
    "timeoutDuration",
    "Resources",
    "Type",
    "AWS::Lambda::Function",
    "Properties",
    "Timeout",
    "!Ref",
    "!Sub",
    "Fn::GetAtt",
    "resource",
    "\"aws_lambda_function\"",
    "methodConfig",
    "retryPolicy",
    "maxAttempts",
    "harakiri",
    "bind",
    "statement_timeout",
    "DATABASE_URL",
    "postgres://u:p@db/x?connect_timeout=1",
    "reverse_proxy",
    "entryPoints",
    "entries",
    "calls",
    "to",
    "budget",
    "p99",
    ":",
    "=",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    "#",
    "//",
    "\"",
    "'",
    "\\",
    "|",
    ">",
    "&a",
    "*a",
    "<<",
    "---",
    "- ",
    "\n",
    "\n  ",
    "\n    ",
    "\n\t",
    "\r\n",
    " ",
    "0",
    "-1",
    "15s",
    "250ms",
    "1h30m",
    "PT2M",
    "99999999999999999999",
    "1e999",
    "0.0000001s",
    "${X}",
    "${X:-60}",
    "{{ x }}",
    "{% if %}",
    "null",
    "true",
    "\u{0}",
    "\u{feff}",
    "ä",
    "🦀",
    "$host",
];

fn judged(name: &str, text: &str) -> Inventory {
    let folder = tempfile::tempdir().expect("a folder");
    let mut inventory = Inventory::default();
    read(&Repository::new(folder.path()), &Source::new(name, text), &mut inventory);
    let _ = judge(&Graph::of(&inventory));
    inventory
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(name in prop::sample::select(NAMES), words in prop::collection::vec(prop::sample::select(WORDS), 0..60)) {
        judged(name, &words.concat());
    }

    #[test]
    fn no_lines_make_it_panic(
        name in prop::sample::select(NAMES),
        lines in prop::collection::vec((0_usize..6, prop::sample::select(WORDS), prop::sample::select(WORDS), "[ :={]{1,2}"), 0..40),
    ) {
        let text: String = lines
            .iter()
            .map(|(indent, key, value, between)| format!("{}{key}{between}{value}\n", "  ".repeat(*indent)))
            .collect();
        judged(name, &text);
    }
}

#[test]
fn what_is_repeated_without_end_is_bounded() {
    #[allow(clippy::disallowed_methods, reason = "how long it really took")]
    let began = Instant::now();
    for name in NAMES {
        for opens in [
            "{",
            "[",
            "(",
            "a {\n",
            "- ",
            "a:\n ",
            "\"",
            "${",
            "a = [",
            "resource \"a\" \"b\" {\n",
            "include x;\n",
            "((((",
            "\\",
            "!a ",
        ] {
            judged(name, &opens.repeat(60_000));
        }
    }
    // A minute for five hundred files of a megabyte or less: ten times what is needed.
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
}

#[test]
fn aliases_that_explode_are_listed() {
    let mut text = "services: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")));
    }
    let inventory = judged("compose.yaml", &text);
    assert_eq!(inventory.left_out.iter().map(|left| left.why).collect::<Vec<_>>(), [Why::Unparsed]);
}

#[test]
fn what_is_too_large_or_no_text_is_listed_where_its_name_says_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let size = usize::try_from(LARGEST).expect("small") + 1;
    std::fs::write(folder.path().join("large.yaml"), vec![b'#'; size]).expect("written");
    std::fs::write(folder.path().join("latin.yaml"), b"name: M\xfcller\n").expect("written");
    std::fs::write(folder.path().join("data"), b"\xff\xfe\x00").expect("written");
    let inventory = walk(&Repository::new(folder.path()), |_| ());
    let whys: Vec<_> = inventory.left_out.iter().map(|left| (&*left.place.file, left.why)).collect();
    assert_eq!(whys, [("large.yaml", Why::TooLarge), ("latin.yaml", Why::Unreadable)]);
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/etc", folder.path().join("etc")).expect("a link");
    std::os::unix::fs::symlink("/etc/hostname", folder.path().join("nginx.conf")).expect("a link");
    std::fs::write(folder.path().join("oneclock.topology.yaml"), "services: []\n").expect("written");
    let inventory = walk(&Repository::new(folder.path()), |_| ());
    assert_eq!(inventory.files.len(), 1);
    assert!(Repository::new(folder.path()).open("nginx.conf").is_err());
    assert!(Repository::new(folder.path()).open("../etc/hostname").is_err());
}
