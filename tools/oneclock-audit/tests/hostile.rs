//! Nothing that lies in a repository makes the audit panic, run away or take anything for "no timeout" that it did not
//! read.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

use std::time::{Duration, Instant};

use oneclock_audit::graph::Graph;
use oneclock_audit::inventory::{Inventory, Why};
use oneclock_audit::report::{Detail, Report};
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
    "shop.proto",
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
    "service Shop {",
    "rpc Buy(B) returns (B)",
    "option idempotency_level =",
    "option (google.api.http) = {",
    "/*",
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
    "18000000000000000000s",
    "300000000000000m",
    "P99999999999D",
    "reserve",
    "order: serial",
    "services:\n- name: a\n  reserve: 18000000000000000000s\n  p99: 18000000000000000000s\n  calls: [{to: b, timeout: 18000000000000000000s}]\n",
    "entries:\n- {to: a, budget: 800ms}\n",
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

/// From end to end, with every form of a report.
fn told(files: &[(&str, &str)]) -> (oneclock_audit::Audited<'static>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, text) in files {
        let file = folder.path().join(path);
        std::fs::create_dir_all(file.parent().expect("a folder above")).expect("the folder");
        std::fs::write(file, text).expect("the file");
    }
    let repository = Repository::new(folder.path());
    // For as long as the tests run: what is audited borrows it.
    let inventory = Box::leak(Box::new(walk(&repository, |_| ())));
    let audited = oneclock_audit::audit(&repository, inventory);
    let json = {
        let report = Report::of(&audited);
        let _ = (report.markdown(), report.sarif(), report.svg());
        report.text(&mut std::io::sink(), Detail::Verbose).expect("a sink takes it");
        report.json().to_string()
    };
    (audited, json)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_two_files_make_it_panic(
        names in (prop::sample::select(NAMES), prop::sample::select(NAMES)),
        one in prop::collection::vec(prop::sample::select(WORDS), 0..60),
        other in prop::collection::vec(prop::sample::select(WORDS), 0..60),
    ) {
        told(&[(names.0, &one.concat()), (&format!("x/{}", names.1), &other.concat())]);
    }
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
            "service S { rpc A(B) returns (C) { option (x) = { ",
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
    std::fs::write(folder.path().join("latin.proto"), b"// M\xfcller\nservice S { rpc A(B) returns (C); }\n")
        .expect("written");
    std::fs::write(folder.path().join("data"), b"\xff\xfe\x00").expect("written");
    let inventory = walk(&Repository::new(folder.path()), |_| ());
    let whys: Vec<_> = inventory.left_out.iter().map(|left| (&*left.place.file, left.why)).collect();
    let want = [("large.yaml", Why::TooLarge), ("latin.proto", Why::Unreadable), ("latin.yaml", Why::Unreadable)];
    assert_eq!(whys, want);
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

#[test]
fn times_that_nobody_lives_to_see_add_up_to_something() {
    let long = "18000000000000000000s";
    let text = format!(
        "entries:\n- {{to: a, budget: 800ms, reserve: {long}}}\nservices:\n- name: a\n  order: serial\n  reserve: {long}\n  \
         p99: {long}\n  calls:\n  - {{to: b, attempt: {long}, attempts: 9, backoff: {long}}}\n  - {{to: b, timeout: {long}}}\n"
    );
    let (audited, _) = told(&[("oneclock.topology.yaml", &text)]);
    assert!(audited.findings.iter().any(|found| found.finding.rule == "budget-overdrawn"), "{:?}", audited.findings);
}

/// Three describe one service, under two names: whoever is joined first, it comes to the same.
#[test]
fn the_same_files_say_the_same() {
    let files = [
        (
            "compose.yaml",
            "services:\n  yy:\n    image: own\n  zz:\n    image: own\n    environment:\n      URL: http://yy:80\n",
        ),
        (
            "app/application.yml",
            "spring:\n  application:\n    name: xx\nserver:\n  tomcat:\n    connection-timeout: 5s\n",
        ),
        (
            "oneclock.topology.yaml",
            "entries:\n- {name: e, to: zz, budget: 1s}\nservices:\n- name: xx\n  answers_to: [yy]\n  order: serial\n  calls: [{to: zz, timeout: 3s}]\n",
        ),
    ];
    let (audited, first) = told(&files);
    let describe = |host: &str| host == "xx" || host == "yy";
    let three = audited.inventory.components.iter().filter(|one| one.names.iter().any(|name| describe(&name.host)));
    assert_eq!(three.map(|one| one.reader).collect::<Vec<_>>(), ["Spring Boot", "compose", "topology"]);
    let graph = Graph::of(audited.inventory);
    let standing = |name: &str| {
        let ids = graph.hops.iter().flat_map(|hop| [Some(hop.from), hop.to]).flatten();
        let mut ids: Vec<_> = ids
            .filter(|id| graph.component(*id).is_some_and(|one| one.names.iter().any(|own| own.host == name)))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    assert_eq!(standing("xx").len(), 1);
    assert_eq!(standing("xx"), standing("yy"));
    for _ in 0..50 {
        assert_eq!(told(&files).1, first);
    }
}

#[test]
fn a_name_that_everybody_has_is_told_once() {
    let files: Vec<(String, &str)> =
        (0..17).map(|number| (format!("x{number}/oneclock.topology.yaml"), "services:\n- name: db\n")).collect();
    let caller =
        ("oneclock.topology.yaml", "services:\n- name: a\n  calls: [{to: db, timeout: 1s}, {to: db, timeout: 2s}]\n");
    let with = |count: usize| {
        let others = files.iter().take(count).map(|(path, text)| (path.as_str(), *text));
        let (audited, _) = told(&others.chain([caller]).collect::<Vec<_>>());
        audited.left_out.iter().map(|left| left.says.clone()).collect::<Vec<_>>()
    };
    assert_eq!(with(17), ["17 answer to db: nobody is taken"]);
    assert!(with(16).is_empty());
}

#[cfg(unix)]
#[test]
fn a_linked_folder_leads_nowhere() {
    let outside = tempfile::tempdir().expect("a folder");
    std::fs::write(outside.path().join("x.conf"), "proxy_read_timeout 7s;\n").expect("written");
    std::fs::write(outside.path().join("x.env"), "UPSTREAM_URL=http://hidden:80\n").expect("written");
    std::fs::write(outside.path().join("X.java"), "druid").expect("written");
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(outside.path(), folder.path().join("linked")).expect("a link");
    std::fs::create_dir(folder.path().join("own")).expect("a folder");
    let nginx = "events {}\nhttp { include linked/*.conf; include linked/x.conf;\nserver { location / { proxy_pass http://a; } } }\n";
    std::fs::write(folder.path().join("nginx.conf"), nginx).expect("written");
    let compose = "services:\n  a:\n    image: own\n    env_file: linked/x.env\n";
    std::fs::write(folder.path().join("compose.yaml"), compose).expect("written");
    let repository = Repository::new(folder.path());
    let inventory = walk(&repository, |_| ());
    assert!(inventory.edges.iter().all(|edge| !format!("{:?}", edge.to).contains("hidden")));
    assert!(
        inventory.settings.iter().all(|setting| !setting.place.file.starts_with("linked")),
        "{:?}",
        inventory.settings
    );
    assert!(repository.open("linked/x.conf").is_err() && repository.open("own/../linked/x.conf").is_err());
    assert!(repository.open("own").is_err());
    assert!(repository.folder("linked").is_empty());
    assert!(!repository.mentions("linked", &["java"], &["druid"]));
    // The same files in a folder that is none: all of that is found.
    std::fs::remove_file(folder.path().join("linked")).expect("removed");
    std::fs::create_dir(folder.path().join("linked")).expect("a folder");
    for name in ["x.conf", "x.env", "X.java"] {
        std::fs::copy(outside.path().join(name), folder.path().join("linked").join(name)).expect("copied");
    }
    assert!(repository.open("linked/x.conf").is_ok());
    assert_eq!(repository.folder("linked").len(), 3);
    assert!(repository.mentions("linked", &["java"], &["druid"]));
}

/// A pipe would block whoever opens it.
#[cfg(unix)]
#[test]
fn what_is_no_file_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("x.conf")).expect("a socket");
    let repository = Repository::new(folder.path());
    assert_eq!(repository.open("x.conf").expect_err("no file").kind(), std::io::ErrorKind::InvalidInput);
    assert!(repository.folder("").is_empty());
}

#[test]
fn what_cannot_be_walked_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = ["here", "missing"].map(|name| folder.path().join(name));
    std::fs::create_dir(folder.path().join("here")).expect("a folder");
    let inventory = walk(&Repository::within(folder.path(), paths), |_| ());
    let whys: Vec<_> = inventory.left_out.iter().map(|left| (&*left.place.file, left.why)).collect();
    assert_eq!(whys, [("missing", Why::Unreadable)]);
}

/// What the folder above ignores is of another repository.
#[test]
fn what_lies_above_ignores_nothing() {
    let above = tempfile::tempdir().expect("a folder");
    std::fs::write(above.path().join(".gitignore"), "*.yaml\n").expect("written");
    let folder = above.path().join("own");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("oneclock.topology.yaml"), "services: []\n").expect("written");
    assert_eq!(walk(&Repository::new(&folder), |_| ()).files.len(), 1);
}

#[test]
fn what_somebody_else_wrote_hides_no_code() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["node_modules", "target", "src"] {
        std::fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    for number in 0..4_100 {
        std::fs::write(folder.path().join(format!("node_modules/{number}.java")), "").expect("written");
    }
    std::fs::write(folder.path().join("target/Y.java"), "druid").expect("written");
    let repository = Repository::new(folder.path());
    assert!(!repository.mentions("", &["java"], &["druid"]));
    std::fs::write(folder.path().join("src/X.java"), "druid").expect("written");
    assert!(repository.mentions("", &["java"], &["druid"]));
}
