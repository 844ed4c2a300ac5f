//! Numbers that look as if they were meant in another unit.

use crate::judged::{is_silent, says};

const RULE: &str = "suspicious-unit";

/// A backend and what it says of its times.
fn haproxy(times: &str) -> String {
    format!(
        "global\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\nfrontend web\n  bind *:80\n  default_backend \
         app\nbackend app\n  {times}\n  server one app-1:8080\n  server two app-2:8080\n"
    )
}

#[track_caller]
fn of_haproxy(times: &str, want: &[&str]) {
    let want: Vec<String> = want.iter().map(|one| one.replace(" at ", " at haproxy.cfg:11: ")).collect();
    says(RULE, &[("haproxy.cfg", &haproxy(times))], &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn haproxy_counts_milliseconds() {
    of_haproxy("timeout server 30", &["warning at timeout server 30 is 30ms: HAProxy counts milliseconds"]);
    of_haproxy("timeout connect 5", &["warning at timeout connect 5 is 5ms: HAProxy counts milliseconds"]);
    of_haproxy("timeout server 80", &["note at timeout server 80 is 80ms: HAProxy counts milliseconds"]);
    of_haproxy("timeout queue 60", &["note at timeout queue 60 is 60ms: HAProxy counts milliseconds"]);
    for meant in
        ["timeout server 30ms", "timeout server 30s", "timeout server 30000", "timeout connect 500", "timeout queue 20"]
    {
        of_haproxy(meant, &[]);
    }
}

/// A location and what it says of its times.
#[track_caller]
fn of_nginx(times: &str, want: &[&str]) {
    let text = format!("http {{ server {{ server_name shop; location / {{ proxy_pass http://app;\n{times}\n}} }} }}\n");
    let want: Vec<String> = want.iter().map(|one| one.replace(" at ", " at nginx.conf:2: ")).collect();
    says(RULE, &[("nginx.conf", &text)], &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn nginx_counts_seconds() {
    of_nginx("proxy_read_timeout 5000;", &["note at proxy_read_timeout 5000 is 1h23m20s: nginx counts seconds"]);
    of_nginx("proxy_read_timeout 60000;", &["warning at proxy_read_timeout 60000 is 16h40m: nginx counts seconds"]);
    of_nginx("proxy_connect_timeout 2500;", &["warning at proxy_connect_timeout 2500 is 41m40s: nginx counts seconds"]);
    for meant in ["300", "1800", "3600", "7200", "86400", "604800", "5000ms", "5000s", "999999"] {
        of_nginx(&format!("proxy_read_timeout {meant};"), &[]);
    }
    // A stream may rest for as long as it likes.
    of_nginx("proxy_set_header Upgrade $http_upgrade; proxy_read_timeout 5000;", &[]);
}

#[test]
fn a_grace_of_hours_and_a_job_that_may_take_them() {
    let pod = |kind: &str, key: &str, number: &str| {
        format!(
            "apiVersion: VERSION\nkind: {kind}\nmetadata: {{name: cart}}\nspec:\n  template:\n    metadata: {{labels: {{app: cart}}}}\n    spec:\n      \
             {key}: {number}\n      containers: [{{name: cart, image: cart}}]\n"
        )
        .replace("VERSION", if kind == "Job" { "batch/v1" } else { "apps/v1" })
    };
    let grace = pod("Deployment", "terminationGracePeriodSeconds", "30000");
    says(
        RULE,
        &[("cart.yaml", &grace)],
        &["warning at cart.yaml:8: terminationGracePeriodSeconds 30000 is 8h20m: Kubernetes counts seconds"],
    );
    is_silent(RULE, &[("cart.yaml", &grace.replace("30000", "300"))]);
    is_silent(RULE, &[("cart.yaml", &pod("Job", "activeDeadlineSeconds", "5000"))]);
}

#[test]
fn what_is_the_default_in_the_other_unit() {
    let kong = |number: &str| {
        format!("_format_version: '3.0'\nservices:\n- {{name: cart, host: cart, read_timeout: {number}}}\n")
    };
    says(
        RULE,
        &[("kong.yaml", &kong("60"))],
        &["warning at kong.yaml:3: read_timeout 60 is 60ms: Kong counts milliseconds"],
    );
    is_silent(RULE, &[("kong.yaml", &kong("60000"))]);
}

#[test]
fn statements_transactions_and_connections() {
    says(
        RULE,
        &[(
            "postgresql.conf",
            "statement_timeout = 30\nidle_in_transaction_session_timeout = 600\nlock_timeout = 50\n",
        )],
        &[
            "warning at postgresql.conf:1: statement_timeout 30 is 30ms: PostgreSQL counts milliseconds",
            "note at postgresql.conf:2: idle_in_transaction_session_timeout 600 is 600ms: PostgreSQL counts milliseconds",
        ],
    );
    is_silent(RULE, &[("postgresql.conf", "statement_timeout = 30s\nlock_timeout = 500\nidle_session_timeout = 0\n")]);
}
