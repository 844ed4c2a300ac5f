//! Which product an image is, and the part it plays; `None` for somebody's own program.

use crate::inventory::Role;

/// The last part of an image's name, the product, its part.
const IMAGES: &[(&str, &str, Role)] = &[
    ("postgres", "PostgreSQL", Role::Store),
    ("postgresql", "PostgreSQL", Role::Store),
    ("postgis", "PostgreSQL", Role::Store),
    ("timescaledb", "PostgreSQL", Role::Store),
    ("timescaledb-ha", "PostgreSQL", Role::Store),
    ("pgvector", "PostgreSQL", Role::Store),
    ("pgbouncer", "PgBouncer", Role::Between),
    ("mysql", "MySQL", Role::Store),
    ("mysql-server", "MySQL", Role::Store),
    ("percona", "MySQL", Role::Store),
    ("mariadb", "MariaDB", Role::Store),
    ("redis", "Redis", Role::Store),
    ("redis-stack", "Redis", Role::Store),
    ("redis-stack-server", "Redis", Role::Store),
    ("valkey", "Valkey", Role::Store),
    ("keydb", "KeyDB", Role::Store),
    ("dragonfly", "Dragonfly", Role::Store),
    ("memcached", "memcached", Role::Store),
    ("mongo", "MongoDB", Role::Store),
    ("mongodb", "MongoDB", Role::Store),
    ("elasticsearch", "Elasticsearch", Role::Store),
    ("opensearch", "OpenSearch", Role::Store),
    ("cassandra", "Cassandra", Role::Store),
    ("clickhouse", "ClickHouse", Role::Store),
    ("clickhouse-server", "ClickHouse", Role::Store),
    ("etcd", "etcd", Role::Store),
    ("minio", "MinIO", Role::Store),
    ("couchdb", "CouchDB", Role::Store),
    ("neo4j", "Neo4j", Role::Store),
    ("zookeeper", "ZooKeeper", Role::Store),
    ("cp-zookeeper", "ZooKeeper", Role::Store),
    ("rabbitmq", "RabbitMQ", Role::Broker),
    ("kafka", "Kafka", Role::Broker),
    ("cp-kafka", "Kafka", Role::Broker),
    ("cp-server", "Kafka", Role::Broker),
    ("redpanda", "Redpanda", Role::Broker),
    ("nats", "NATS", Role::Broker),
    ("pulsar", "Pulsar", Role::Broker),
    ("activemq", "ActiveMQ", Role::Broker),
    ("activemq-artemis", "ActiveMQ", Role::Broker),
    ("eclipse-mosquitto", "Mosquitto", Role::Broker),
    ("nginx", "nginx", Role::Gateway),
    ("nginx-unprivileged", "nginx", Role::Gateway),
    ("openresty", "nginx", Role::Gateway),
    ("nginx-proxy", "nginx", Role::Gateway),
    ("traefik", "Traefik", Role::Gateway),
    ("haproxy", "HAProxy", Role::Gateway),
    ("caddy", "Caddy", Role::Gateway),
    ("envoy", "Envoy", Role::Gateway),
    ("envoy-alpine", "Envoy", Role::Gateway),
    ("envoy-dev", "Envoy", Role::Gateway),
    ("kong", "Kong", Role::Gateway),
    ("kong-gateway", "Kong", Role::Gateway),
    ("apisix", "APISIX", Role::Gateway),
    ("httpd", "Apache httpd", Role::Gateway),
    ("oauth2-proxy", "OAuth2 Proxy", Role::Gateway),
];

/// `docker.io/library/postgres:16` is PostgreSQL, a store.
pub(super) fn product(image: &str) -> Option<(&'static str, Role)> {
    let name = image.trim().rsplit('/').next().unwrap_or_default();
    let name = name.split(['@', ':']).next().unwrap_or_default();
    IMAGES.iter().find(|(known, ..)| *known == name).map(|(_, product, role)| (*product, *role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(image: &str, want: Option<&str>) {
        assert_eq!(product(image).map(|(product, _)| product), want, "{image}");
    }

    #[test]
    fn the_last_part_of_the_name_says_it() {
        is("postgres:16-alpine", Some("PostgreSQL"));
        is("docker.io/bitnami/postgresql@sha256:abc", Some("PostgreSQL"));
        is("registry:5000/team/redis", Some("Redis"));
        is("oliver006/redis_exporter:v1", None);
        is("phpmyadmin/phpmyadmin", None);
        is("${IMAGE_NAME}:1-cart", None);
        is("", None);
    }
}
