//! Spring Boot applications.

use crate::told::{finds, finds_in};
use crate::written::inventory;
use oneclock_audit::inventory::Why;

const APPLICATION: &str = "shop/src/main/resources/application.yml";

#[test]
fn a_server_bounds_connections_and_its_end_but_no_request() {
    let text = "\
spring:
  application.name: orders
  mvc.async.request-timeout: 45s
  lifecycle:
    timeout-per-shutdown-phase: ${GRACE:20s}
server:
  shutdown: graceful
  tomcat:
    connectionTimeout: 5000
    keep_alive_timeout: 15s
  servlet.session.timeout: 30m
";
    let want = "
    Service orders [Spring Boot] answers to orders
    orders: spring.tomcat.connection_timeout = 5s at shop/src/main/resources/application.yml:9:24
    orders: spring.tomcat.keep_alive_timeout = 15s at shop/src/main/resources/application.yml:10:25
    orders: spring.mvc.async.request_timeout = unknown (45s, for handlers that answer from another thread only) at shop/src/main/resources/application.yml:3:30
    orders: spring.lifecycle.shutdown_phase = 20s at shop/src/main/resources/application.yml:5:33
    ";
    finds(APPLICATION, text, want);
}

#[test]
fn properties_say_the_same_as_yaml_and_profiles_are_told_with_it() {
    let text = "\
# graceful
spring.application.name=orders
server.shutdown=graceful
spring.datasource.url=jdbc:postgresql://db/shop?socketTimeout=5&connectTimeout=2
spring.datasource.hikari.connectionTimeout=250
#---
spring.config.activate.on-profile=prod
spring.datasource.url=jdbc:mysql://db:3306/shop?socketTimeout=5000
";
    let want = "
    Service orders [Spring Boot] answers to orders
    call orders -> db:5432 (database)
    call orders -> db:3306 (database)
    orders: spring.lifecycle.shutdown_phase = 30s by default at application.properties:3:1
    orders -> db:5432 (database): jdbc.postgresql.socket_timeout = 5s at application.properties:4:1
    orders -> db:5432 (database): jdbc.postgresql.connect_timeout = 2s at application.properties:4:1
    orders -> db:5432 (database): spring.hikari.connection_timeout = 250ms at application.properties:5:1
    orders -> db:3306 (database): jdbc.mysql.socket_timeout = 5s at application.properties:8:1
    orders -> db:3306 (database): jdbc.mysql.connect_timeout = none by default at application.properties:8:1
    ";
    finds("application.properties", text, want);
}

#[test]
fn a_default_is_not_told_where_a_file_beside_says_otherwise() {
    let url = "spring.datasource.url: jdbc:mysql://db/shop\n";
    let found = |beside: &str| {
        let files = [(APPLICATION, url), ("shop/src/main/resources/application-prod.yml", beside)];
        let settings = inventory(&files).settings;
        settings
            .iter()
            .filter(|one| one.known.id == "spring.hikari.connection_timeout")
            .map(|one| one.amount.to_string())
            .collect()
    };
    let none: Vec<String> = found("server.port: 1\n");
    assert_eq!(none, ["30s"]);
    let said: Vec<String> = found("spring.datasource.hikari.connection-timeout: 1000\n");
    assert_eq!(said, ["1s"]);
    let remote: Vec<String> = found("spring.config.import: 'configserver:http://config:8888'\n");
    assert_eq!(remote, ["unknown (another file of the application may set it)"]);
}

const GATEWAY: &str = "\
spring:
  application:
    name: edge
  cloud:
    gateway:
      httpclient:
        connect-timeout: 1000
        response-timeout: 5s
      default-filters:
      - name: CircuitBreaker
        args: {name: all, fallbackUri: forward:/sorry}
      - name: Retry
        args:
          retries: 1
          methods: GET,POST
          backoff: {firstBackoff: 10ms}
      routes:
      - id: carts
        uri: lb://CARTS
        predicates:
        - Path=/cart/**
        - Method=GET,POST
        metadata:
          response-timeout: 200
      - id: feed
        uri: lb:ws://feed
        filters:
        - CircuitBreaker=name=slow
        - Retry=2
        metadata: {response-timeout: -1}
resilience4j.timelimiter.instances.slow.timeout-duration: 3s
";

#[test]
fn a_gateway_repeats_and_limits_as_its_filters_say() {
    let want = "
    Gateway edge [Spring Boot] answers to edge
    call edge -> carts (route carts) GET,POST, repeats unsafe
    call edge -> feed (route feed), repeats unsafe, streaming
    call edge -> slow (resilience4j slow)
    edge -> carts (route carts): spring.gateway.connect_timeout = 1s at application.yml:7:26
    edge -> carts (route carts): spring.gateway.route.response_timeout = 200ms at application.yml:24:29
    edge -> carts (route carts): spring.circuitbreaker.time_limit = 1s by default at application.yml:10:15
    edge -> carts (route carts): spring.gateway.retry.retries = 1 at application.yml:14:20
    edge -> carts (route carts): spring.gateway.retry.first_backoff = 10ms at application.yml:16:35
    edge -> feed (route feed): spring.gateway.connect_timeout = 1s at application.yml:7:26
    edge -> feed (route feed): spring.gateway.route.response_timeout = none at application.yml:30:38
    edge -> feed (route feed): spring.circuitbreaker.time_limit = 1s by default at application.yml:10:15
    edge -> feed (route feed): spring.gateway.retry.retries = 1 at application.yml:14:20
    edge -> feed (route feed): spring.gateway.retry.first_backoff = 10ms at application.yml:16:35
    edge -> feed (route feed): spring.circuitbreaker.attempt_limit = 3s at application.yml:31:59
    edge -> feed (route feed): spring.gateway.retry.retries = 2 at application.yml:29:11
    edge -> slow (resilience4j slow): resilience4j.timelimiter.timeout = 3s at application.yml:31:59
    ";
    finds("application.yml", GATEWAY, want);
}

#[test]
fn the_hidden_second_is_not_told_where_code_may_set_it() {
    let code = "class Edge { Object a = TimeLimiterConfig.custom(); }\n";
    let limit = |code: &str| {
        let gateway = GATEWAY.split("resilience4j").next().unwrap_or_default();
        let files = [("edge/src/main/resources/application.yml", gateway), ("edge/src/main/java/Edge.java", code)];
        let settings = inventory(&files).settings;
        settings.iter().find(|one| one.known.id == "spring.circuitbreaker.time_limit").map(|one| one.amount.to_string())
    };
    assert_eq!(limit("class Edge {}\n").as_deref(), Some("1s"));
    assert_eq!(limit(code).as_deref(), Some("unknown (set in code: TimeLimiterConfig)"));
}

#[test]
fn instances_take_over_what_their_base_says() {
    let text = "\
resilience4j:
  retry:
    configs:
      default: {maxAttempts: 4}
      patient: {baseConfig: default, waitDuration: 2000}
    instances:
      stock: {base-config: patient}
  timelimiter:
    instances:
      stock: {}
      prices: {timeoutDuration: 800ms}
  bulkhead.instances.prices.maxWaitDuration: 10ms
  ratelimiter.instances.prices.limitForPeriod: 6
";
    let want = "
    Service application [Spring Boot] answers to
    call application -> prices (resilience4j prices)
    call application -> stock (resilience4j stock)
    application -> prices (resilience4j prices): resilience4j.timelimiter.timeout = 800ms at application.yml:11:33
    application -> stock (resilience4j stock): resilience4j.timelimiter.timeout = 1s by default at application.yml:10:7
    application -> stock (resilience4j stock): resilience4j.retry.max_attempts = 4 at application.yml:4:30
    application -> stock (resilience4j stock): resilience4j.retry.wait_duration = 2s at application.yml:5:52
    application -> prices (resilience4j prices): resilience4j.bulkhead.max_wait = 10ms at application.yml:12:46
    application -> prices (resilience4j prices): resilience4j.ratelimiter.timeout = 5s by default at application.yml:13:3
    ";
    finds("application.yml", text, want);
}

#[test]
fn clients_old_and_new() {
    let text = "\
spring:
  application.name: cart
  cloud.openfeign.client.config:
    default: {connectTimeout: 1000, retryer: feign.Retryer.Default}
    stock: {read-timeout: 3000}
stock:
  ribbon: {ReadTimeout: 2000, MaxAutoRetries: 1, OkToRetryOnAllOperations: true}
hystrix:
  command:
    default:
      execution.isolation.thread.timeoutInMilliseconds: 10000
zuul:
  host: {connect-timeout-millis: 20000}
  routes:
    auth: {path: /uaa/**, url: 'http://auth-service:5000'}
    stock: {path: /stock/**, serviceId: stock-service}
";
    let want = "
    Gateway cart [Spring Boot] answers to cart
    call cart -> stock (Feign client stock), repeats unsafe
    call cart -> every-feign-client (every Feign client)
    call cart -> stock (Ribbon client), repeats unsafe
    call cart -> every-hystrix-command (every Hystrix command)
    call cart -> auth-service:5000 (route auth)
    call cart -> stock-service (route stock)
    cart -> stock (Feign client stock): spring.feign.connect_timeout = 1s at application.yml:4:31
    cart -> stock (Feign client stock): spring.feign.read_timeout = 3s at application.yml:5:27
    cart -> stock (Feign client stock): spring.feign.retryer = 5 at application.yml:4:46
    cart -> every-feign-client (every Feign client): spring.feign.connect_timeout = 1s at application.yml:4:31
    cart -> every-feign-client (every Feign client): spring.feign.retryer = 5 at application.yml:4:46
    cart -> stock (Ribbon client): spring.ribbon.read_timeout = 2s at application.yml:7:25
    cart -> stock (Ribbon client): spring.ribbon.max_auto_retries = 1 at application.yml:7:47
    cart -> every-hystrix-command (every Hystrix command): spring.hystrix.thread_timeout = 10s at application.yml:11:57
    cart -> auth-service:5000 (route auth): spring.zuul.connect_timeout = 20s at application.yml:13:34
    cart -> auth-service:5000 (route auth): spring.zuul.socket_timeout = 10s by default at application.yml:15:5
    ";
    finds("application.yml", text, want);
}

#[test]
fn brokers_and_caches() {
    let text = "\
spring:
  application.name: mail
  data.redis: {host: cache, timeout: 2s}
  rabbitmq:
    host: ${RABBIT:queue}
    connection-timeout: 5s
    listener.simple.retry: {enabled: true, max-attempts: 5}
  kafka:
    bootstrap-servers: kafka:9092,other:9092
    consumer.properties: {max.poll.interval.ms: 60000}
    producer.properties: {delivery.timeout.ms: 30000}
";
    let want = "
    Service mail [Spring Boot] answers to mail
    call mail -> cache:6379 (Redis)
    call mail -> queue:5672 (RabbitMQ)
    call mail -> kafka:9092 (Kafka)
    mail -> cache:6379 (Redis): spring.redis.timeout = 2s at application.yml:3:38
    mail -> cache:6379 (Redis): spring.redis.connect_timeout = 10s by default at application.yml:3:3
    mail -> queue:5672 (RabbitMQ): spring.rabbitmq.connection_timeout = 5s at application.yml:6:25
    mail: spring.rabbitmq.listener.max_attempts = 5 at application.yml:7:58
    mail: spring.rabbitmq.listener.initial_interval = 1s by default at application.yml:7:5
    mail: spring.kafka.max_poll_interval = 1m at application.yml:10:49
    mail -> kafka:9092 (Kafka): spring.kafka.delivery_timeout = 30s at application.yml:11:48
    ";
    finds("application.yml", text, want);
}

#[test]
fn what_a_configuration_server_keeps_is_known_by_its_name() {
    let files = [
        ("config/orders-prod.yml", "spring.rabbitmq.host: rabbit\nserver.tomcat.connection-timeout: 3s\n"),
        ("orders/src/main/resources/bootstrap.yml", "spring.application.name: orders\n"),
        ("orders/src/test/resources/application.yml", "server.tomcat.connection-timeout: 1s\n"),
    ];
    let want = "
    Service orders [Spring Boot] answers to orders
    call orders -> rabbit:5672 (RabbitMQ)
    orders: spring.tomcat.connection_timeout = 3s at config/orders-prod.yml:2:35
    ";
    finds_in(&files, want);
}

#[test]
fn what_is_no_file_of_spring_is_left_alone_and_what_is_wrong_is_listed() {
    for (path, text) in [
        ("messages.properties", "spring.mvc.async.request-timeout=1s\n"),
        ("values.yaml", "orders:\n  spring:\n    timeout: 1s\n"),
        ("applications.yml", "server.tomcat.connection-timeout: 1s\n"),
    ] {
        assert!(inventory(&[(path, text)]).settings.is_empty(), "{path}");
    }
    let found = inventory(&[
        ("application.yml", "spring:\n  kafka: {{ .Values.kafka }}\n"),
        ("application.properties", "a=\\u00zz\n"),
    ]);
    let why: Vec<Why> = found.left_out.iter().map(|left| left.why).collect();
    assert_eq!(why, [Why::Unparsed, Why::Templated]);
}

#[test]
fn what_bounds_statements_bounds_no_other_call() {
    let text = "\
spring:
  application.name: orders
  datasource.url: jdbc:postgresql://db/shop
  jpa.properties.jakarta.persistence.query.timeout: 2000
  transaction.default-timeout: 5
  http.client.read-timeout: 1s
";
    let found = crate::told::lines(&[("application.yml", text)]);
    let on_database =
        |id: &str| found.iter().any(|line| line.starts_with(&format!("orders -> db:5432 (database): {id} = ")));
    for id in ["spring.jpa.query_timeout", "spring.transaction.default_timeout"] {
        assert!(on_database(id), "{id}: {found:#?}");
        assert!(!found.iter().any(|line| line.starts_with(&format!("orders: {id}"))), "{id}: {found:#?}");
    }
    let alone = crate::told::lines(&[("application.yml", "spring.jdbc.template.query-timeout: 3s\n")]);
    assert!(
        alone
            .iter()
            .any(|line| line
                .starts_with("application -> every-database (every database): spring.jdbc.query_timeout = 3s")),
        "{alone:#?}"
    );
}

#[test]
fn a_time_limiter_ends_one_attempt() {
    let known = oneclock_audit::catalogue::known("resilience4j.timelimiter.timeout").expect("a row");
    assert_eq!(known.kind, oneclock_audit::catalogue::Kind::Attempt, "the retry stands around it");
}

#[test]
fn a_pool_takes_milliseconds_without_a_unit() {
    let found = inventory(&[(
        "application.properties",
        "spring.datasource.url=jdbc:mysql://db/x\nspring.datasource.hikari.connection-timeout=45s\n",
    )]);
    let why: Vec<Why> = found.left_out.iter().map(|left| left.why).collect();
    assert_eq!(why, [Why::NotUnderstood]);
}

#[test]
fn the_environment_says_it_in_capitals() {
    let compose = "\
services:
  orders:
    image: shop/orders
    environment:
      SPRING_DATASOURCE_URL: jdbc:postgresql://db:5432/shop?socketTimeout=5
      SPRING_DATASOURCE_HIKARI_CONNECTION_TIMEOUT: 2000
      SPRING_DATASOURCE_HIKARI_CONNECTIONTIMEOUT: 2500
      SPRING_JDBC_TEMPLATE_QUERY_TIMEOUT: 3s
  db: {image: 'postgres:17'}
";
    let found = crate::told::lines(&[("compose.yaml", compose)]);
    for want in [
        "jdbc.postgresql.socket_timeout = 5s at compose.yaml:5:30",
        "spring.hikari.connection_timeout = 2s at compose.yaml:6:52",
        "spring.hikari.connection_timeout = 2.5s at compose.yaml:7:51",
        "spring.jdbc.query_timeout = 3s at compose.yaml:8:43",
    ] {
        let want = format!("orders -> db (SPRING_DATASOURCE_URL): {want}");
        assert!(found.contains(&want), "{want}: {found:#?}");
    }
}
