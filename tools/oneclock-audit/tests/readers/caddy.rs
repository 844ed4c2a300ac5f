//! Caddyfiles.

use crate::told::{finds, lines};

#[test]
fn a_site_calls_what_it_passes_requests_to() {
    let text = "\
{
    grace_period 10s
    servers {
        timeouts {
            read_header 5s
            write {$WRITE:30s}
        }
    }
}
(slow) {
    lb_try_duration 5s
}
shop.example.com, :8080 {
    @writes {
        path /cart/*
        method POST
    }
    handle_path /api/* {
        reverse_proxy api:3000 {
            import slow
            transport http {
                response_header_timeout 2s
            }
        }
    }
    reverse_proxy @writes http://cart:8080 # a comment
}
";
    let want = "
    Gateway caddy shop.example.com [Caddy] answers to shop.example.com
    call caddy shop.example.com -> api:3000 (path /api/*), spares unsafe
    call caddy shop.example.com -> cart:8080 (path /cart/*) POST
    caddy shop.example.com: caddy.read_header = 5s at Caddyfile:5:25
    caddy shop.example.com: caddy.write = 30s at Caddyfile:6:19
    caddy shop.example.com: caddy.idle = 5m by default at Caddyfile:13:1
    caddy shop.example.com: caddy.grace_period = 10s at Caddyfile:2:18
    caddy shop.example.com -> api:3000 (path /api/*): caddy.dial_timeout = 3s by default at Caddyfile:19:23
    caddy shop.example.com -> api:3000 (path /api/*): caddy.response_header_timeout = 2s at Caddyfile:22:41
    caddy shop.example.com -> api:3000 (path /api/*): caddy.lb_try_duration = 5s at Caddyfile:11:21
    caddy shop.example.com -> api:3000 (path /api/*): caddy.lb_try_interval = 250ms by default at Caddyfile:11:21
    caddy shop.example.com -> api:3000 (path /api/*): caddy.lb_retries = none by default at Caddyfile:11:21
    caddy shop.example.com -> cart:8080 (path /cart/*): caddy.dial_timeout = 3s by default at Caddyfile:26:27
    caddy shop.example.com -> cart:8080 (path /cart/*): caddy.response_header_timeout = none by default at Caddyfile:26:27
    ";
    finds("Caddyfile", text, want);
}

#[test]
fn a_single_site_needs_no_braces() {
    let found = lines(&[(
        "Caddyfile",
        "example.com\n\nreverse_proxy localhost:5000 unix//run/app.sock {env.UP}\nencode gzip\n",
    )]);
    for line in [
        "call caddy example.com -> localhost:5000 ()",
        "call caddy example.com -> unix:/run/app.sock ()",
        "left out Caddyfile:3:49: NotUnderstood, {env.UP}: whom it calls is not known here",
    ] {
        assert!(found.iter().any(|one| one == line), "{line}\n{found:#?}");
    }
}

/// What the retries of a proxy are, and what they leave out.
#[track_caller]
fn retries(inside: &str, want: &str) {
    let found = lines(&[("Caddyfile", &format!("a.example {{\n reverse_proxy b:1 {{\n{inside}\n }}\n}}\n"))]);
    let call = found.iter().find_map(|line| line.strip_prefix("call caddy a.example -> b:1 ()"));
    let retries = found
        .iter()
        .find_map(|line| line.split_once("caddy.lb_retries = "))
        .map(|(_, rest)| rest.split(" at ").next().unwrap_or_default());
    assert_eq!(format!("{}{}", retries.unwrap_or("no"), call.unwrap_or_default()), want, "{inside}");
}

#[test]
fn only_gets_are_sent_twice_unless_a_matcher_says_otherwise() {
    retries("", "no");
    retries("lb_retries 2", "2, spares unsafe");
    retries("lb_retries 2\nlb_retry_match {\n method POST\n}", "2, repeats unsafe");
    retries("lb_retries 2\nlb_retry_match {\n method PUT\n}", "2, spares unsafe");
    retries("lb_try_duration 3s", "none by default, spares unsafe");
}

#[test]
fn what_a_file_imports_may_say_otherwise() {
    let found = lines(&[("Caddyfile", "a.example {\n reverse_proxy b:1 {\n  import common\n }\n}\n")]);
    assert!(!found.iter().any(|line| line.contains("dial_timeout")), "{found:#?}");
}

#[test]
fn what_is_broken_is_listed() {
    finds("Caddyfile", "a {\n reverse_proxy b\n", "left out Caddyfile:1:1: Unparsed, a block that is never closed");
    finds("Caddyfile", "a\n}\n", "left out Caddyfile:2:1: Unparsed, a `}` too many");
    finds("Caddyfile", "a {\n respond hello\n}\n", "");
}

#[test]
fn connections_that_are_not_kept_are_kept_for_no_time() {
    let text =
        "a.example {\n  reverse_proxy http://api:80 {\n    transport http {\n      keepalive off\n    }\n  }\n}\n";
    let found = lines(&[("Caddyfile", text)]);
    assert!(found.iter().any(|line| line.starts_with("call ")), "{found:#?}");
    assert!(!found.iter().any(|line| line.contains("caddy.keepalive")), "{found:#?}");
}
