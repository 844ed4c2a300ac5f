//! Compose files: services, their environments and commands, and what compose bounds.

use crate::told::{finds, finds_in};

#[test]
fn services_call_whom_their_environment_names() {
    let text = "\
x-common: &common
  restart: always
  environment: &shared
    PAYMENT_URL: http://payment:8080/v1
services:
  web:
    <<: *common
    image: shop/web
    container_name: shop-web
    environment:
      <<: *shared
      DATABASE_URL: postgresql+psycopg://shop:secret@db/shop?connect_timeout=3&options=-c%20statement_timeout%3D1500
      CACHE_HOST: cache
      PAYMENT_TIMEOUT_MS: 2000
      OTEL_EXPORTER_OTLP_ENDPOINT: http://collector:4317
      PUBLIC_URL: https://shop.example.org
      STRIPE_URL: https://api.stripe.com/v1
    healthcheck: {test: [CMD, 'true'], timeout: 5s}
    stop_grace_period: 1m30s
    depends_on: [payment]
  payment:
    build: ./payment
    hostname: pay
    networks: {back: {aliases: [payments]}}
    environment:
    - DB_HOST=db
    - SELF_URL=http://payment:8080
  db:
    image: docker.io/library/postgres:16
    command: -c statement_timeout=5s -c shared_buffers=1GB
    environment: [WEB_URL=http://web]
  cache: {image: 'redis:7', command: redis-server --timeout 300}
";
    let want = "
    Service web [] answers to web, shop-web
    Service payment [] answers to payment, pay, payments
    Store db [PostgreSQL] answers to db
    Store cache [Redis] answers to cache
    call web -> db (DATABASE_URL)
    call web -> cache (CACHE_HOST)
    call web -> api.stripe.com:443 (STRIPE_URL)
    call web -> payment (PAYMENT_URL)
    call payment -> db (DB_HOST)
    web: compose.stop_grace_period = 1m30s at compose.yaml:19:24
    web: compose.healthcheck.timeout = 5s at compose.yaml:18:49
    web: compose.healthcheck.interval = 30s by default at compose.yaml:18:18
    web -> db (DATABASE_URL): libpq.connect = 3s at compose.yaml:12:21
    web -> db (DATABASE_URL): libpq.statement_timeout = 1.5s at compose.yaml:12:21
    web -> payment (PAYMENT_URL): environment.attempt = 2s at compose.yaml:14:27
    payment: compose.stop_grace_period = 10s by default at compose.yaml:21:3
    db: compose.stop_grace_period = 10s by default at compose.yaml:28:3
    db: postgresql.statement_timeout = 5s at compose.yaml:30:17
    cache: compose.stop_grace_period = 10s by default at compose.yaml:32:3
    cache: redis.timeout = 5m at compose.yaml:32:61
    ";
    finds("compose.yaml", text, want);
}

#[test]
fn variables_come_from_the_file_beside_it_and_from_env_files() {
    let compose = "\
services:
  web:
    image: shop/web
    env_file: [web.env]
    environment:
    - CART_ADDR
    - USERS_URL=http://${USERS_HOST:-users}:9000
    - NOBODY_URL=http://${NOBODY}:1
    command: gunicorn shop:app --timeout ${GUNICORN_TIMEOUT:-60} -k gevent
  cart: {image: shop/cart}
  users: {image: shop/users}
";
    let files = [
        ("docker-compose.yml", compose),
        (".env", "CART_PORT=7070\nCART_ADDR=cart:${CART_PORT}\nGUNICORN_TIMEOUT=90\n"),
        (
            "web.env",
            "USERS_CONNECT_TIMEOUT=250ms\nUSERS_READ_TIMEOUT=5\nCART_ADDR=elsewhere:1\nUPLOAD_TIMEOUT=30\nSESSION_TIMEOUT=3600\n",
        ),
    ];
    let want = "
    Service web [] answers to web
    Service cart [] answers to cart
    Service users [] answers to users
    call web -> cart (CART_ADDR)
    call web -> users (USERS_URL)
    web: compose.stop_grace_period = 10s by default at docker-compose.yml:2:3
    web: gunicorn.heartbeat = 1m30s at docker-compose.yml:9:42
    web -> users (USERS_URL): environment.connect = 250ms at web.env:1:23
    web -> users (USERS_URL): environment.idle = unknown (5, of which no unit is known) at web.env:2:20
    cart: compose.stop_grace_period = 10s by default at docker-compose.yml:10:3
    users: compose.stop_grace_period = 10s by default at docker-compose.yml:11:3
    left out web.env:4:16: NotUnderstood, UPLOAD_TIMEOUT: which call it bounds is not known; declare the call in the topology file
    ";
    finds_in(&files, want);
}

#[test]
fn a_service_is_what_it_extends_and_what_it_is_built_of() {
    let compose = "\
services:
  web:
    extends: {file: common.yml, service: base}
    build: ./web
  proxy: {build: {context: ., dockerfile: proxy.Dockerfile}}
";
    let files = [
        ("compose.yml", compose),
        (
            "common.yml",
            "services:\n  base:\n    stop_grace_period: 45s\n    environment: {GUNICORN_CMD_ARGS: '--graceful-timeout 40'}\n",
        ),
        ("proxy.Dockerfile", "FROM envoyproxy/envoy:v1.30\nCMD [\"sh\", \"-c\", \"render && envoy\"]\n"),
        (
            "web/Dockerfile",
            "FROM python:3 AS build\nCMD uvicorn x\nFROM python:3\nENV A=1\nCMD [\"gunicorn\", \"-c\", \"conf/gunicorn.conf.py\", \"app\"]\n",
        ),
        ("web/conf/gunicorn.conf.py", "import os\n\ntimeout = int(os.environ.get(\"T\", \"75\"))\nworkers = 4\n"),
    ];
    let want = "
    Service web [] answers to web
    Gateway proxy [Envoy] answers to proxy
    web: compose.stop_grace_period = 45s at common.yml:3:24
    web: gunicorn.timeout = 1m15s at web/conf/gunicorn.conf.py:3:11
    web: gunicorn.graceful_timeout = 40s at common.yml:4:57
    proxy: compose.stop_grace_period = 10s by default at compose.yml:5:3
    ";
    finds_in(&files, want);
}

#[test]
fn an_addition_to_another_file_tells_only_what_it_adds() {
    let text = "services:\n  web:\n    environment: {CART_URL: 'http://cart:1'}\n  cart:\n    stop_grace_period: 2\n";
    let want = "
    Service web [] answers to web
    Service cart [] answers to cart
    call web -> cart:1 (CART_URL)
    cart: compose.stop_grace_period = unknown (2) at compose.override.yaml:5:24
    left out compose.override.yaml:5:24: NotUnderstood, stop_grace_period: `2` is not understood as a time
    ";
    finds("compose.override.yaml", text, want);
}

#[test]
fn what_a_service_mounts_is_its_own() {
    let files = [
        (
            "compose.yaml",
            "services:\n  store:\n    image: redis\n    volumes: ['./redis.conf:/etc/redis.conf:ro', data:/data]\n",
        ),
        ("redis.conf", "port 6379\n# timeout 5\ntimeout 120\n"),
    ];
    let want = "
    Store store [Redis] answers to store
    store: compose.stop_grace_period = 10s by default at compose.yaml:2:3
    store: redis.timeout = 2m at redis.conf:3:9
    ";
    finds_in(&files, want);
}

#[test]
fn files_that_only_look_like_it() {
    finds(".gitlab-ci.yml", "services:\n  - postgres:16\ntest:\n  image: rust\n", "");
    finds("roles.yml", "services:\n  - name: web\n    image: x\n", "");
    finds("compose.yaml", "services: [a, b]\n", "");
    let want = "left out compose.yml:3:20: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("compose.yml", "services:\n  web:\n    image: x{{ y }}: {\n", want);
}

#[test]
fn what_is_laid_over_a_file_beside_it_is_read_with_it() {
    let base = "services:\n  web:\n    image: web\n    stop_grace_period: 5s\n    environment: {CART_URL: 'http://cart:1', CART_TIMEOUT: 2s}\n  cart: {image: cart}\n";
    let over =
        "services:\n  web:\n    stop_grace_period: 30s\n    environment: {CART_TIMEOUT: 9s}\n  extra: {image: extra}\n";
    let want = "
    Service web [] answers to web
    Service cart [] answers to cart
    Service extra [] answers to extra
    call web -> cart (CART_URL)
    web: compose.stop_grace_period = 30s at d/docker-compose.override.yml:3:24
    web -> cart (CART_URL): environment.attempt = 9s at d/docker-compose.override.yml:4:33
    cart: compose.stop_grace_period = 10s by default at d/docker-compose.yml:6:3
    extra: compose.stop_grace_period = 10s by default at d/docker-compose.override.yml:5:3
    ";
    finds_in(&[("d/docker-compose.yml", base), ("d/docker-compose.override.yml", over)], want);
}

#[test]
fn what_is_laid_over_replaces_commands_joins_what_has_keys_and_appends_files() {
    let base = "\
services:
  web:
    image: web
    command: [gunicorn, -t, '30', 'shop:app']
    environment: ['CART_URL=http://cart:1', CART_TIMEOUT=2s]
    env_file: base.env
    healthcheck: {test: [CMD, 'true'], timeout: 5s, interval: 7s}
  cart: {image: cart}
  store:
    image: redis
    volumes: ['./slow/redis.conf:/etc/redis.conf']
  keys:
    image: redis
    volumes: ['./keys/redis.conf:/etc/redis.conf']
";
    let over = "\
services:
  web:
    command: gunicorn -t 90 shop:app
    environment: {CART_TIMEOUT: 9s}
    env_file: [over.env]
    healthcheck: {timeout: 6s}
  store:
    volumes: [{type: bind, source: ./quick/redis.conf, target: /etc/redis.conf}]
  keys:
    volumes: ['./keys/data:/data']
";
    let files = [
        ("compose.yaml", base),
        ("compose.override.yaml", over),
        ("base.env", "CART_RETRIES=1\nUSERS_URL=http://users:1\n"),
        ("over.env", "CART_RETRIES=4\n"),
        ("slow/redis.conf", "timeout 120\n"),
        ("quick/redis.conf", "timeout 5\n"),
        ("keys/redis.conf", "timeout 60\n"),
    ];
    let found = crate::told::lines(&files);
    for line in [
        "call web -> cart (CART_URL)",
        "web: compose.healthcheck.timeout = 6s at compose.override.yaml:6:28",
        "web: compose.healthcheck.interval = 7s at compose.yaml:7:63",
        "web -> cart (CART_URL): environment.attempt = 9s at compose.override.yaml:4:33",
        "web -> cart (CART_URL): environment.retries = 4 at over.env:1:14",
        "call web -> users:1 (USERS_URL)",
        "store: redis.timeout = 5s at quick/redis.conf:1:9",
        "keys: redis.timeout = 1m at keys/redis.conf:1:9",
    ] {
        assert!(found.iter().any(|one| one == line), "{line}\n{found:#?}");
    }
    let timeouts: Vec<&String> = found.iter().filter(|line| line.contains("gunicorn.heartbeat")).collect();
    assert_eq!(timeouts, ["web: gunicorn.heartbeat = 1m30s at compose.override.yaml:3:26"]);
    assert!(!found.iter().any(|line| line.starts_with("store: redis.timeout = 2m")), "{found:#?}");
}
