//! The files of stores and brokers, and their traps of units.

use crate::told::finds;

#[test]
fn postgresql_counts_in_milliseconds() {
    let text = "port = 5432\nstatement_timeout = 30000\t\t# ms\nlock_timeout '5s'\nidle_in_transaction_session_timeout = 1min\n#deadlock_timeout = 9\ntcp_user_timeout=0\ntransaction_timeout = 0\n";
    let want = "
    Store db [PostgreSQL] answers to
    db: postgresql.statement_timeout = 30s at db/postgresql.conf:2:21
    db: postgresql.lock_timeout = 5s at db/postgresql.conf:3:14
    db: postgresql.idle_in_transaction_session_timeout = 1m at db/postgresql.conf:4:39
    db: postgresql.tcp_user_timeout = unknown (0, for which the product takes its default) at db/postgresql.conf:6:18
    db: postgresql.transaction_timeout = none at db/postgresql.conf:7:23
    ";
    finds("db/postgresql.conf", text, want);
}

#[test]
fn mysql_has_both_units_and_idle_connections_are_no_query() {
    let text = "[client]\nconnect_timeout=1\n[mysqld]\nwait_timeout = 600\nmax_execution_time = 2000\nmax-statement-time = 2.5\ninnodb_lock_wait_timeout=50\n";
    let want = "
    Store MySQL [MySQL] answers to
    MySQL: mysql.wait_timeout = 10m at my.cnf:4:16
    MySQL: mysql.max_execution_time = 2s at my.cnf:5:22
    MySQL: mysql.max_statement_time = 2.5s at my.cnf:6:22
    MySQL: mysql.innodb_lock_wait_timeout = 50s at my.cnf:7:26
    ";
    finds("my.cnf", text, want);
}

#[test]
fn pgbouncer_says_whom_it_calls_and_waits_two_minutes_by_default() {
    let text = "[databases]\nshop = host=db.internal port=5433 dbname=shop\n* = host=other\n[pgbouncer]\nquery_timeout = 30\nquery_wait_timeout = 0\n";
    let want = "
    Between pool [PgBouncer] answers to
    call pool -> db.internal:5433 (database shop)
    call pool -> other (database *)
    pool: pgbouncer.query_timeout = 30s at pool/pgbouncer.ini:5:17
    pool: pgbouncer.query_wait_timeout = none at pool/pgbouncer.ini:6:22
    pool: pgbouncer.server_connect_timeout = 15s by default at pool/pgbouncer.ini:1:1
    ";
    finds("pool/pgbouncer.ini", text, want);
}

#[test]
fn redis_and_rabbitmq() {
    let want = "
    Store Redis [Redis] answers to
    Redis: redis.timeout = none at redis.conf:1:9
    Redis: redis.busy_reply_threshold = 5s at redis.conf:2:16
    ";
    finds("redis.conf", "timeout 0\nlua-time-limit 5000\n", want);
    let want = "
    Broker RabbitMQ [RabbitMQ] answers to
    RabbitMQ: rabbitmq.consumer_timeout = 1h at rabbitmq.conf:1:20
    RabbitMQ: rabbitmq.heartbeat = 1m at rabbitmq.conf:2:13
    ";
    finds("rabbitmq.conf", "consumer_timeout = 3600000\nheartbeat = 60\n", want);
}

#[test]
fn kafka_clients_and_brokers() {
    let text = "bootstrap.servers=PLAINTEXT://kafka:9092,other:9092\ndelivery.timeout.ms=120000\nretries: 5\nconsumer.max.poll.interval.ms = 300000\n";
    let want = "
    Service orders producer [] answers to
    call orders producer -> kafka:9092 (bootstrap.servers), streaming
    orders producer: kafka.delivery_timeout = 2m at orders/producer.properties:2:21
    orders producer: kafka.retries = 5 at orders/producer.properties:3:10
    orders producer: kafka.max_poll_interval = 5m at orders/producer.properties:4:33
    ";
    finds("orders/producer.properties", text, want);
    let want = "
    Broker Kafka [Kafka] answers to
    Kafka: kafka.broker_request_timeout = 30s at server.properties:2:20
    ";
    finds("server.properties", "broker.id=0\nrequest.timeout.ms=30000\n", want);
    finds("log4j.properties", "request.timeout.ms=30000\n", "");
}

#[test]
fn a_role_has_its_limit_and_a_dump_has_none() {
    let text = "SET statement_timeout = 0;\nALTER ROLE shop SET statement_timeout = '5s';\nalter database shop set lock_timeout to 2000;\n";
    let want = "
    Store PostgreSQL [PostgreSQL] answers to
    PostgreSQL: postgresql.statement_timeout = 5s at roles.sql:2:41
    PostgreSQL: postgresql.lock_timeout = 2s at roles.sql:3:41
    ";
    finds("roles.sql", text, want);
    finds("dump.sql", "SET statement_timeout = 0;\n", "");
}

#[test]
fn a_template_of_a_file_is_listed() {
    let want =
        "left out postgresql.conf.j2:1:1: Templated, a template that is filled in elsewhere: audit what it becomes";
    finds("postgresql.conf.j2", "statement_timeout = {{ statement_timeout }}\n", want);
}

#[test]
fn formats_that_are_known_and_not_read_are_listed() {
    finds(
        "web.service",
        "[Service]\nTimeoutStopSec=5\n",
        "left out web.service:1:1: NotRead, systemd unit: known, and not read",
    );
    finds("a/httpd.conf", "ProxyTimeout 5\n", "left out a/httpd.conf:1:1: NotRead, Apache httpd: known, and not read");
    finds("notes.conf", "hello\n", "");
}
