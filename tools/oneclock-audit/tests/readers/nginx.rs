//! nginx: whole configurations, parts, includes, and what they do not say.

use crate::told::{finds, finds_in};

const WHOLE: &str = "\
events {}
http {
  proxy_read_timeout 90;            # seconds, without a unit
  keepalive_timeout 65 60;
  upstream shop {
    server cart-1:8080 fail_timeout=5s;
    server 'cart-2:8080';
    server gone:8080 down;
    keepalive 16;
  }
  server {
    listen 443 ssl;
    server_name shop.example.com *.shop.example.com;
    location /cart { proxy_pass http://shop/v1; proxy_connect_timeout 500ms; }
    location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; fastcgi_read_timeout \"2m 30s\"; }
  }
  server { listen 80; return 301 https://$host$request_uri; }
}
";

#[test]
fn a_whole_configuration_says_what_holds_everywhere() {
    let want = "
    Gateway nginx shop.example.com [nginx] answers to shop.example.com
    call nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop), spares unsafe
    call nginx shop.example.com -> unix:/run/php.sock (location ~ \\.php$)
    nginx shop.example.com: nginx.client_header_timeout = 1m by default at nginx.conf:11:3
    nginx shop.example.com: nginx.client_body_timeout = 1m by default at nginx.conf:11:3
    nginx shop.example.com: nginx.send_timeout = 1m by default at nginx.conf:11:3
    nginx shop.example.com: nginx.keepalive_timeout = 1m5s at nginx.conf:4:21
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.proxy_connect_timeout = 500ms at nginx.conf:14:71
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.proxy_read_timeout = 1m30s at nginx.conf:3:22
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.proxy_send_timeout = 1m by default at nginx.conf:14:33
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.proxy_next_upstream_tries = 2 by default at nginx.conf:14:33
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.fail_timeout = 5s at nginx.conf:6:24
    nginx shop.example.com -> cart-1:8080 (location /cart to the 2 servers of shop): nginx.upstream_keepalive_timeout = 1m by default at nginx.conf:14:33
    nginx shop.example.com -> unix:/run/php.sock (location ~ \\.php$): nginx.fastcgi_connect_timeout = 1m by default at nginx.conf:15:38
    nginx shop.example.com -> unix:/run/php.sock (location ~ \\.php$): nginx.fastcgi_read_timeout = 2m30s at nginx.conf:15:79
    nginx shop.example.com -> unix:/run/php.sock (location ~ \\.php$): nginx.fastcgi_send_timeout = 1m by default at nginx.conf:15:38
    ";
    finds("nginx.conf", WHOLE, want);
}

/// A configuration with two servers behind one location, and what is written there.
#[track_caller]
fn tries(written: &str, want: &str) {
    let text = format!(
        "events {{}} http {{ upstream u {{ server a; server b; }} server {{ server_name s; location / {{ {written} proxy_pass http://u;\n}} }} }}"
    );
    let found: Vec<String> = crate::told::lines(&[("nginx.conf", &text)]);
    let found: Vec<&str> = found
        .iter()
        .filter(|line| line.contains("-> a (") && (line.contains("_tries") || line.starts_with("call")))
        .map(|line| {
            line.split_once("location /)").map_or("", |(_, rest)| rest.split(" at ").next().unwrap_or_default())
        })
        .collect();
    assert_eq!(found.join("|"), want, "{written}");
}

#[test]
fn the_next_server_is_tried_once_each() {
    tries("", ", spares unsafe|: nginx.proxy_next_upstream_tries = 2 by default");
    tries(
        "proxy_next_upstream error timeout non_idempotent;",
        ", repeats unsafe|: nginx.proxy_next_upstream_tries = 2 by default",
    );
    let long = "proxy_next_upstream error timeout invalid_header http_500 http_502 http_503 http_504 non_idempotent;";
    tries(long, ", repeats unsafe|: nginx.proxy_next_upstream_tries = 2 by default");
    tries("proxy_next_upstream_tries 0;", ", spares unsafe|: nginx.proxy_next_upstream_tries = 2");
    tries("proxy_next_upstream_tries 1;", ", spares unsafe|: nginx.proxy_next_upstream_tries = 1");
    tries("proxy_next_upstream_tries 9;", ", spares unsafe|: nginx.proxy_next_upstream_tries = 2");
    tries("proxy_next_upstream off;", "|: nginx.proxy_next_upstream_tries = 1");
}

#[test]
fn includes_stand_where_they_are_and_are_no_roots() {
    let main = "events {}\nhttp {\n  include mime.types;\n  include /etc/nginx/conf.d/*.conf;\n}\n";
    let site = "server {\n  server_name a.example;\n  location / { include snippets/slow.conf; proxy_pass http://api:3000; }\n}\n";
    let slow = "proxy_read_timeout 10m;\nproxy_set_header Upgrade $http_upgrade;\n";
    let files = [("web/conf.d/a.conf", site), ("web/nginx.conf", main), ("web/snippets/slow.conf", slow)];
    let want = "
    Gateway nginx a.example [nginx] answers to a.example
    call nginx a.example -> api:3000 (location /), streaming
    nginx a.example: nginx.client_header_timeout = 1m by default at web/conf.d/a.conf:1:1
    nginx a.example: nginx.client_body_timeout = 1m by default at web/conf.d/a.conf:1:1
    nginx a.example: nginx.send_timeout = 1m by default at web/conf.d/a.conf:1:1
    nginx a.example: nginx.keepalive_timeout = 1m15s by default at web/conf.d/a.conf:1:1
    nginx a.example -> api:3000 (location /): nginx.proxy_connect_timeout = 1m by default at web/conf.d/a.conf:3:55
    nginx a.example -> api:3000 (location /): nginx.proxy_read_timeout = 10m at web/snippets/slow.conf:1:20
    nginx a.example -> api:3000 (location /): nginx.proxy_send_timeout = 1m by default at web/conf.d/a.conf:3:55
    ";
    finds_in(&files, want);
}

#[test]
fn a_file_that_an_image_takes_elsewhere_lies_beside_the_one_that_includes_it() {
    let server = "server {\n  listen 80;\n  include /etc/nginx/conf.d/locations;\n}\n";
    let locations = "proxy_read_timeout 30m;\nlocation / {\n  proxy_pass http://web:8000;\n}\n";
    let found = crate::told::lines(&[("nginx/locations", locations), ("nginx/site.conf", server)]);
    let calls: Vec<&String> = found.iter().filter(|line| line.starts_with("call")).collect();
    assert_eq!(calls, ["call nginx :80 -> web:8000 (location /)"]);
    assert!(found.iter().any(|line| line.ends_with("proxy_read_timeout = 30m at nginx/locations:1:20")), "{found:#?}");
}

#[test]
fn what_is_not_here_may_say_otherwise() {
    let text =
        "server {\n  location / { include /config/proxy.conf; proxy_pass http://api; proxy_send_timeout 5s; }\n}\n";
    let want = "
    Gateway nginx site.conf [nginx] answers to
    call nginx site.conf -> api:80 (location /)
    nginx site.conf -> api:80 (location /): nginx.proxy_send_timeout = 5s at site.conf:2:86
    left out site.conf:2:16: NotRead, 1 includes of what is not here: defaults are not taken for granted behind them
    ";
    finds("site.conf", text, want);
}

#[test]
fn files_that_include_themselves_and_each_other_end() {
    let files = [
        ("a.conf", "server { include b.conf; location / { proxy_pass http://a; } }"),
        ("b.conf", "include a.conf; include b.conf; include b.conf; location /b { proxy_pass http://b; }"),
    ];
    let found = crate::told::lines(&files);
    let calls: Vec<&String> = found.iter().filter(|line| line.starts_with("call")).collect();
    assert_eq!(calls, ["call nginx a.conf -> b:80 (location /b)", "call nginx a.conf -> a:80 (location /)"]);
}

#[test]
fn a_part_that_stands_alone_has_the_defaults_of_calls_only() {
    let text = "server {\n  listen 80;\n  location /api { proxy_pass http://api:8000/; }\n}\n";
    let want = "
    Gateway nginx :80 [nginx] answers to
    call nginx :80 -> api:8000 (location /api)
    nginx :80 -> api:8000 (location /api): nginx.proxy_connect_timeout = 1m by default at default.conf:3:30
    nginx :80 -> api:8000 (location /api): nginx.proxy_read_timeout = 1m by default at default.conf:3:30
    nginx :80 -> api:8000 (location /api): nginx.proxy_send_timeout = 1m by default at default.conf:3:30
    ";
    finds("default.conf", text, want);
}

#[test]
fn variables_are_unknown_unless_they_have_a_fixed_value() {
    let text = "server {
  server_name _;
  set $port 3000;
  location /a { set $up web; proxy_pass http://$up:${port}; proxy_read_timeout ${READ_TIMEOUT}; }
  location /b { proxy_pass http://$backend; proxy_read_timeout 7s; }
}
";
    let want = "
    Gateway nginx t.conf.template [nginx] answers to
    call nginx t.conf.template -> web:3000 (location /a)
    nginx t.conf.template -> web:3000 (location /a): nginx.proxy_connect_timeout = 1m by default at t.conf.template:4:41
    nginx t.conf.template -> web:3000 (location /a): nginx.proxy_read_timeout = unknown (${READ_TIMEOUT}) at t.conf.template:4:80
    nginx t.conf.template -> web:3000 (location /a): nginx.proxy_send_timeout = 1m by default at t.conf.template:4:41
    nginx t.conf.template: nginx.proxy_read_timeout = 7s at t.conf.template:5:64
    left out t.conf.template:5:28: NotUnderstood, proxy_pass http://$backend: whom it calls is not known here
    ";
    finds("t.conf.template", text, want);
}

#[test]
fn headers_of_a_location_replace_those_around_it() {
    let text = "server {
  proxy_set_header Upgrade $http_upgrade;
  location /ws { proxy_pass http://ws; }
  location /api { proxy_set_header Host $host; proxy_pass http://api; }
}
";
    let found = crate::told::lines(&[("site.conf", text)]);
    let calls: Vec<&String> = found.iter().filter(|line| line.starts_with("call")).collect();
    assert_eq!(
        calls,
        ["call nginx site.conf -> ws:80 (location /ws), streaming", "call nginx site.conf -> api:80 (location /api)"]
    );
}

#[test]
fn a_stream_is_passed_through() {
    let text = "events {}\nstream {\n  server { listen 5432; proxy_timeout 1h; proxy_pass db:5432; }\n}\n";
    let want = "
    Gateway nginx stream :5432 [nginx] answers to
    call nginx stream :5432 -> db:5432 (), streaming
    nginx stream :5432 -> db:5432 (): nginx.proxy_connect_timeout = 1m by default at nginx.conf:3:54
    nginx stream :5432 -> db:5432 (): nginx.proxy_timeout = 1h at nginx.conf:3:39
    ";
    finds("nginx.conf", text, want);
}

#[test]
fn lua_is_skipped_and_templates_are_listed() {
    let lua = "server { location / { content_by_lua_block { local t = { a = \"}\" } -- }\n } proxy_pass http://a; } }";
    let found = crate::told::lines(&[("lua.conf", lua)]);
    assert!(found.iter().any(|line| line == "call nginx lua.conf -> a:80 (location /)"), "{found:#?}");
    let template = "server {\n  proxy_read_timeout {{ timeout }};\n  proxy_pass http://a;\n}\n";
    let want = "left out nginx.conf.j2:2:23: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("nginx.conf.j2", template, want);
    let broken = "server {\n  server_name a;\n  location / { proxy_pass http://a }\n}\n";
    finds("broken.conf", broken, "left out broken.conf:3:36: Unparsed, a directive that does not end in `;`");
}

#[test]
fn other_configurations_are_none_of_nginx() {
    for (path, text) in [
        ("httpd.conf", "<VirtualHost *:80>\n  ProxyPass / http://app:3000/\n  ServerName a\n</VirtualHost>\n"),
        ("postgresql.conf", "statement_timeout = 5000\n"),
        ("redis.conf", "timeout 300\n"),
        ("notes.conf", "# proxy_pass http://a;\n"),
        ("nginx.md", "proxy_pass http://a;\n"),
    ] {
        let found = crate::told::lines(&[(path, text)]);
        assert!(!found.iter().any(|line| line.contains("nginx")), "{path}: {found:#?}");
    }
}

#[test]
fn without_timeout_a_slow_server_is_not_left_for_another() {
    tries("proxy_next_upstream error;", ", spares unsafe|: nginx.proxy_next_upstream_tries.connects = 2 by default");
    let written = "proxy_next_upstream error http_502; proxy_next_upstream_tries 2;";
    tries(written, ", spares unsafe|: nginx.proxy_next_upstream_tries = 2");
}

#[test]
fn servers_that_differ_in_numbers_are_one_program_and_asked_once_each() {
    let text = "events {} http { upstream u { server app1:80; server app2:80; server app3:80; server other:80; }
server { server_name s; location / { proxy_pass http://u; } } }";
    let found = crate::told::lines(&[("nginx.conf", text)]);
    let calls: Vec<&String> = found.iter().filter(|line| line.starts_with("call")).collect();
    let want = ["app1:80", "other:80"];
    let want = want.map(|to| format!("call nginx s -> {to} (location / to the 4 servers of u), spares unsafe"));
    assert_eq!(calls, want.iter().collect::<Vec<_>>());
}

#[test]
fn what_lies_above_many_parts_is_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("the file");
    write("nginx.conf", "events {}\nhttp {\n  include a.conf;\n}\n");
    let server = "server { location / { proxy_pass http://x; } }\n";
    write("a.conf", server);
    let repository = oneclock_audit::walk::Repository::new(folder.path());
    let mut inventory = oneclock_audit::inventory::Inventory::default();
    let mut read = |name: &str| {
        let source = oneclock_audit::source::Source::new(name, server);
        oneclock_audit::walk::read(&repository, &source, &mut inventory);
        inventory.components.len()
    };
    assert_eq!(read("a.conf"), 0, "it is read where it is included");
    // Were it read again, nothing would lie above any more.
    std::fs::remove_file(folder.path().join("nginx.conf")).expect("the file");
    assert_eq!(read("a.conf"), 0, "what includes it was read again");
    assert_eq!(read("b.conf"), 1);
}

#[test]
fn parts_of_a_unit_are_refused_as_nginx_does_it() {
    for (text, want) in [
        ("1.5s", "`1.5s` is not understood as a time in whole numbers"),
        ("0.5", "`0.5` is not understood as a time in whole numbers"),
    ] {
        let conf = format!("server {{\n  location / {{ proxy_pass http://api; proxy_read_timeout {text}; }}\n}}\n");
        let found = crate::told::lines(&[("site.conf", &conf)]);
        let left = format!("left out site.conf:2:58: NotUnderstood, proxy_read_timeout: {want}");
        assert!(found.contains(&left), "{found:#?}");
        assert!(
            found.iter().any(|line| line.contains(&format!("proxy_read_timeout = unknown ({text})"))),
            "{found:#?}"
        );
    }
    // Its own way to say one and a half.
    let conf = "server {\n  location / { proxy_pass http://api; proxy_read_timeout 1s500ms; }\n}\n";
    let found = crate::told::lines(&[("site.conf", conf)]);
    assert!(found.iter().any(|line| line.contains("proxy_read_timeout = 1.5s at")), "{found:#?}");
}
