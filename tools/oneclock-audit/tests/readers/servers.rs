//! What starts servers, and their own files: Dockerfile, Procfile, supervisord, gunicorn, uvicorn, uWSGI, `.env`.

use crate::told::{finds, finds_in};

#[test]
fn the_last_stage_of_a_dockerfile_starts_the_server() {
    let text = "\
FROM python:3 AS build
CMD [\"gunicorn\", \"--timeout\", \"1\"]
FROM python:3
ENTRYPOINT [\"/usr/bin/tini\", \"--\"]
CMD [\"gunicorn\", \"-t\", \"60\", \"app:app\"]
";
    let want = "
    Service cart [] answers to cart
    cart: gunicorn.timeout = 1m at cart/Dockerfile:5:25
    cart: gunicorn.graceful_timeout = 30s by default at cart/Dockerfile:4:14
    ";
    finds("cart/Dockerfile", text, want);
}

#[test]
fn what_timeout_bounds_depends_on_the_workers() {
    let of = |args: &str| format!("web: gunicorn {args}\n");
    let graceful = "image web: gunicorn.graceful_timeout = 30s by default at Procfile:1:6\n";
    let keepalive = "image web: gunicorn.keepalive = 2s by default at Procfile:1:6\n";
    let head = "Service image web [] answers to\n";
    let timeout = "image web: gunicorn.timeout = 9s at Procfile:1:20\n";
    let heartbeat = "image web: gunicorn.heartbeat = 9s at Procfile:1:20\n";
    finds("Procfile", &of("a -t 9"), &format!("{head}image web: gunicorn.timeout = 9s at Procfile:1:20\n{graceful}"));
    finds("Procfile", &of("a -t 9 -k sync --threads 1"), &format!("{head}{timeout}{graceful}"));
    for other in
        ["-k gthread", "--worker-class=uvicorn.workers.UvicornWorker", "--threads 4", "-k shop.OurGeventWorker"]
    {
        finds("Procfile", &of(&format!("a -t 9 {other}")), &format!("{head}{heartbeat}{graceful}{keepalive}"));
    }
}

#[test]
fn of_workers_that_nobody_knows_only_what_all_have_in_common_is_read() {
    let of = |args: &str| format!("web: gunicorn {args}\n");
    let head = "Service image web [] answers to\n";
    let unknown = |why: &str| {
        format!(
            "image web: gunicorn.heartbeat = 9s at Procfile:1:20\nimage web: gunicorn.timeout = unknown ({why}) at Procfile:1:20\n"
        )
    };
    let left =
        |why: &str| format!("left out Procfile:1:20: NotUnderstood, {why}: whether it ends a request is not judged\n");
    let graceful = "image web: gunicorn.graceful_timeout = 30s by default at Procfile:1:6\n";
    for (class, shown) in [("shop.workers.Ours", "shop.workers.Ours"), ("$CLASS", "$CLASS")] {
        let why = format!("worker_class `{shown}` is not known here");
        let want = format!("{head}{}{graceful}{}", unknown(&why), left(&why));
        finds("Procfile", &of(&format!("a -t 9 -k {class}")), &want);
    }
    // Nothing is said of what nobody wrote.
    finds("Procfile", &of("a -k shop.workers.Ours"), &format!("{head}{graceful}"));
    // A file that nobody can see here may say anything.
    let why = "worker_class is not said here";
    finds("Procfile", &of("a -t 9 -c /etc/gunicorn.py"), &format!("{head}{}{}", unknown(why), left(why)));
}

#[test]
fn a_file_of_python_counts_as_its_literals() {
    let text = "\
import os
limit = os.getenv('WEB_TIMEOUT', 120)
timeout = int(limit)
graceful_timeout = compute()
keepalive = 65  # longer than the proxy
worker_class = \"gevent\"
if DEBUG:
    timeout = 1
";
    let want = "
    Service web [] answers to
    web: gunicorn.heartbeat = 2m at web/gunicorn.conf.py:3:11
    web: gunicorn.graceful_timeout = unknown ({{ compute() }}) at web/gunicorn.conf.py:4:20
    web: gunicorn.keepalive = 1m5s at web/gunicorn.conf.py:5:13
    ";
    finds("web/gunicorn.conf.py", text, want);
}

#[test]
fn asgi_servers_bound_no_request() {
    let text = "[program:api]\ncommand=python -m uvicorn api:app --timeout-keep-alive 75\n[program:other]\ncommand = hypercorn x --keep-alive=7\n";
    let want = "
    Service image api [] answers to
    Service image other [] answers to
    image api: uvicorn.keep_alive = 1m15s at supervisord.conf:2:56
    image api: uvicorn.graceful_shutdown = none by default at supervisord.conf:2:9
    image other: hypercorn.keep_alive = 7s at supervisord.conf:4:23
    image other: hypercorn.graceful = 3s by default at supervisord.conf:4:11
    image other: hypercorn.read_timeout = none by default at supervisord.conf:4:11
    ";
    finds("supervisord.conf", text, want);
}

#[test]
fn uwsgi_in_its_notations() {
    let want = "
    Service shop [] answers to
    shop: uwsgi.harakiri = 30s at shop/uwsgi.ini:3:12
    shop: uwsgi.socket_timeout = unknown ($(WAIT)) at shop/uwsgi.ini:4:18
    ";
    finds("shop/uwsgi.ini", "[uwsgi]\nmaster\nharakiri = 30\nsocket_timeout = $(WAIT)\n[other]\nharakiri = 1\n", want);
    let want = "
    Service shop [] answers to
    shop: uwsgi.http_timeout = 2m at shop/uwsgi.yaml:2:17
    ";
    finds("shop/uwsgi.yaml", "uwsgi:\n  http-timeout: 120\n", want);
}

#[test]
fn a_file_of_variables_says_only_what_products_read() {
    let text =
        "GUNICORN_TIMEOUT=120\nexport SHUTDOWN_TIMEOUT_SECS=\"25\"\nDRAIN_TIMEOUT=25\nCACHE_TIMEOUT=1\nURL=http://x\n";
    let want = "
    Service shop [] answers to
    shop: gunicorn.heartbeat = 2m at shop/.env.example:1:18
    shop: environment.grace = 25s at shop/.env.example:2:31
    shop: environment.grace = unknown (25, of which no unit is known) at shop/.env.example:3:15
    ";
    finds("shop/.env.example", text, want);
    finds("shop/.env", "HELLO=1\nCACHE_TIMEOUT=5\n", "");
}

#[test]
fn libpq_is_told_in_seconds_and_the_server_in_milliseconds() {
    let text = "PGCONNECT_TIMEOUT=5\nPGOPTIONS=-c statement_timeout=5000\n";
    let want = "
    Service db [] answers to
    db: libpq.connect = 5s at db/web.env:1:19
    db: libpq.statement_timeout = 5s at db/web.env:2:11
    ";
    finds("db/web.env", text, want);
}

#[test]
fn what_a_compose_file_builds_is_read_with_it() {
    let files = [
        ("compose.yaml", "services:\n  web: {build: ./app}\n"),
        ("app/Dockerfile", "FROM python\nCMD gunicorn -t 5 app\n"),
    ];
    let want = "
    Service web [] answers to web
    web: compose.stop_grace_period = 10s by default at compose.yaml:2:3
    web: gunicorn.timeout = 5s at app/Dockerfile:2:17
    web: gunicorn.graceful_timeout = 30s by default at compose.yaml:2:3
    ";
    finds_in(&files, want);
}

#[test]
fn installing_it_starts_nothing() {
    finds("web/Dockerfile", "FROM python\nCMD pip install gunicorn && ./run --server gunicorn\n", "");
}

#[test]
fn a_keepalive_of_one_turns_it_on() {
    let keepalive = |value: &str| {
        let found = crate::told::lines(&[("uwsgi.ini", &format!("[uwsgi]\nhttp-keepalive = {value}\nharakiri = 5\n"))]);
        found.iter().filter(|line| line.contains("uwsgi.http_keepalive")).count()
    };
    assert_eq!((keepalive("1"), keepalive("30")), (0, 1));
}
