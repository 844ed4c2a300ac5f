//! The files of stores and brokers, by their names: `postgresql.conf`, PgBouncer's ini, `my.cnf`, `redis.conf`,
//! `rabbitmq.conf`. Read with whoever mounts them in a compose file, and by themselves otherwise.
//!
//! Defaults are only told where nothing else could set them: a session, a role or a client may say otherwise to all but
//! PgBouncer.

use super::lines::{Line, Parted, lines};
use super::started_by;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To, Why};
use crate::source::{Source, folder};
use crate::walk::Repository;

pub(super) const POSTGRESQL: &[(&str, &str)] = &[
    ("statement_timeout", "postgresql.statement_timeout"),
    ("lock_timeout", "postgresql.lock_timeout"),
    ("idle_in_transaction_session_timeout", "postgresql.idle_in_transaction_session_timeout"),
    ("idle_session_timeout", "postgresql.idle_session_timeout"),
    ("transaction_timeout", "postgresql.transaction_timeout"),
    ("tcp_user_timeout", "postgresql.tcp_user_timeout"),
    ("deadlock_timeout", "postgresql.deadlock_timeout"),
    ("authentication_timeout", "postgresql.authentication_timeout"),
];
pub(super) const MYSQL: &[(&str, &str)] = &[
    ("wait_timeout", "mysql.wait_timeout"),
    ("interactive_timeout", "mysql.interactive_timeout"),
    ("max_execution_time", "mysql.max_execution_time"),
    ("max_statement_time", "mysql.max_statement_time"),
    ("innodb_lock_wait_timeout", "mysql.innodb_lock_wait_timeout"),
    ("lock_wait_timeout", "mysql.lock_wait_timeout"),
    ("net_read_timeout", "mysql.net_read_timeout"),
    ("net_write_timeout", "mysql.net_write_timeout"),
    ("connect_timeout", "mysql.connect_timeout"),
];
pub(super) const REDIS: &[(&str, &str)] = &[
    ("timeout", "redis.timeout"),
    ("tcp-keepalive", "redis.tcp_keepalive"),
    ("busy-reply-threshold", "redis.busy_reply_threshold"),
    ("lua-time-limit", "redis.busy_reply_threshold"),
    ("shutdown-timeout", "redis.shutdown_timeout"),
];
const RABBITMQ: &[(&str, &str)] = &[
    ("consumer_timeout", "rabbitmq.consumer_timeout"),
    ("handshake_timeout", "rabbitmq.handshake_timeout"),
    ("heartbeat", "rabbitmq.heartbeat"),
];
const PGBOUNCER: &[(&str, &str)] = &[
    ("query_wait_timeout", "pgbouncer.query_wait_timeout"),
    ("query_timeout", "pgbouncer.query_timeout"),
    ("transaction_timeout", "pgbouncer.transaction_timeout"),
    ("server_connect_timeout", "pgbouncer.server_connect_timeout"),
    ("server_login_retry", "pgbouncer.server_login_retry"),
    ("client_login_timeout", "pgbouncer.client_login_timeout"),
    ("client_idle_timeout", "pgbouncer.client_idle_timeout"),
    ("server_idle_timeout", "pgbouncer.server_idle_timeout"),
    ("server_lifetime", "pgbouncer.server_lifetime"),
    ("idle_transaction_timeout", "pgbouncer.idle_transaction_timeout"),
];
/// Of PgBouncer, what holds if its file does not say it.
const PGBOUNCER_DEFAULTS: &[&str] =
    &["pgbouncer.query_wait_timeout", "pgbouncer.query_timeout", "pgbouncer.server_connect_timeout"];

/// A product's file.
struct Store {
    product: &'static str,
    role: Role,
    parted: Parted,
    keys: &'static [(&'static str, &'static str)],
    /// The sections that count; empty for all.
    sections: &'static [&'static str],
    is: fn(&str) -> bool,
}

const STORES: &[Store] = &[
    Store {
        product: "PostgreSQL",
        role: Role::Store,
        parted: Parted::EqualsOrBlank,
        keys: POSTGRESQL,
        sections: &[],
        is: |name| name.starts_with("postgres") && name.ends_with(".conf"),
    },
    Store {
        product: "PgBouncer",
        role: Role::Between,
        parted: Parted::Equals,
        keys: PGBOUNCER,
        sections: &["pgbouncer"],
        is: |name| name.contains("pgbouncer") && name.ends_with(".ini"),
    },
    Store {
        product: "MySQL",
        role: Role::Store,
        parted: Parted::Equals,
        keys: MYSQL,
        sections: &["mysqld", "mariadb", "mariadbd", "server"],
        is: |name| name.ends_with(".cnf") && !name.contains("ssl"),
    },
    Store {
        product: "Redis",
        role: Role::Store,
        parted: Parted::EqualsOrBlank,
        keys: REDIS,
        sections: &[],
        is: |name| (name.starts_with("redis") || name.starts_with("valkey")) && name.ends_with(".conf"),
    },
    Store {
        product: "RabbitMQ",
        role: Role::Broker,
        parted: Parted::Equals,
        keys: RABBITMQ,
        sections: &[],
        is: |name| name.starts_with("rabbitmq") && name.ends_with(".conf") && !name.contains("env"),
    },
];

/// What templates add to the names of the files that they become.
const TEMPLATES: &[&str] = &[".j2", ".jinja", ".jinja2", ".tpl", ".tmpl", ".template", ".erb"];

/// Whether the name is that of such a file, or of a template of one.
pub(super) fn mine(source: &Source) -> bool {
    store(source.name()).is_some()
}

fn store(name: &str) -> Option<&'static Store> {
    let name = name.to_ascii_lowercase();
    let plain = TEMPLATES.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    STORES.iter().find(|store| (store.is)(plain))
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let Some(store) = store(source.name()) else { return };
    let folder = folder(&source.path);
    if !source.text.contains("{{") && started_by::mounted(repository, folder, source.name()) {
        return;
    }
    if TEMPLATES.iter().any(|end| source.name().ends_with(end)) || source.text.contains("{%") {
        inventory.leave_out(
            Why::Templated,
            source.place(1, 1, 1),
            "a template that is filled in elsewhere: audit what it becomes",
        );
        return;
    }
    let mut said = lines(source, store.parted).filter(|line| counts(store, line)).peekable();
    if said.peek().is_some() || store.product == "PgBouncer" {
        let name = started_by::called(folder, store.product);
        let component = inventory.component(name, store.product, store.role, source.place(1, 1, 1));
        read_into(source, component, inventory);
    }
}

/// Reads a store's file for the component that mounts it; nothing where it is none.
pub(super) fn read_into(source: &Source, component: ComponentId, inventory: &mut Inventory) {
    let Some(store) = store(source.name()) else { return };
    let mut said: Vec<&str> = Vec::new();
    for line in lines(source, store.parted) {
        if store.product == "PgBouncer" && line.section == "databases" {
            database(&line, component, inventory);
        }
        if let Some(id) = counts(store, &line).then(|| id(store, &line)).flatten() {
            said.push(id);
            if !line.value.is_empty() {
                inventory.say(On::Component(component), id, line.value, line.place);
            }
        }
    }
    let whole =
        store.product == "PgBouncer" && source.text.contains("[pgbouncer]") && !source.text.contains("%include");
    for id in PGBOUNCER_DEFAULTS.iter().filter(|id| whole && !said.contains(id)) {
        inventory.unsaid(On::Component(component), id, source.place(1, 1, 1));
    }
}

fn id(store: &Store, line: &Line<'_>) -> Option<&'static str> {
    let key = if store.product == "MySQL" { line.key.replace('-', "_") } else { line.key.to_owned() };
    let key = key.strip_prefix("loose_").unwrap_or(&key);
    store.keys.iter().find(|(known, _)| *known == key).map(|(_, id)| *id)
}

fn counts(store: &Store, line: &Line<'_>) -> bool {
    let section = line.section.split('-').next().unwrap_or_default();
    (store.sections.is_empty() || store.sections.contains(&section)) && id(store, line).is_some()
}

/// `shop = host=db port=5432`: whom PgBouncer calls.
fn database(line: &Line<'_>, component: ComponentId, inventory: &mut Inventory) {
    let of = |key: &str| line.value.split_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let name =
        of("host").and_then(Name::of).map(|name| Name { port: of("port").and_then(|port| port.parse().ok()), ..name });
    if let Some(name) = name {
        inventory.edge(Edge::new(component, To::Name(name), format!("database {}", line.key), line.place.clone()));
    }
}

/// `ALTER ROLE shop SET statement_timeout = '5s'`; what a script sets for its own session is not mentioned.
pub(super) mod sql {
    use super::{Inventory, On, POSTGRESQL, Repository, Role, Source};

    pub(in crate::readers) fn mine(source: &Source) -> bool {
        source.extension() == "sql" && statements(source).next().is_some()
    }

    pub(in crate::readers) fn read(source: &Source, _: &Repository, inventory: &mut Inventory) {
        let mut component = None;
        for (id, value, place) in statements(source) {
            let component = *component.get_or_insert_with(|| {
                inventory.component("PostgreSQL", "PostgreSQL", Role::Store, source.place(1, 1, 1))
            });
            inventory.say(On::Component(component), id, value, place);
        }
    }

    fn statements(source: &Source) -> impl Iterator<Item = (&'static str, &str, crate::source::Place)> {
        source.text.lines().enumerate().filter_map(|(at, line)| {
            let text = line.trim();
            let words: Vec<&str> = text.splitn(12, char::is_whitespace).filter(|word| !word.is_empty()).collect();
            let is = |at: usize, any: &[&str]| {
                words.get(at).is_some_and(|word| any.iter().any(|one| word.eq_ignore_ascii_case(one)))
            };
            if !is(0, &["ALTER"]) || !is(1, &["ROLE", "USER", "DATABASE", "SYSTEM"]) {
                return None;
            }
            let set = words.iter().position(|word| word.eq_ignore_ascii_case("SET"))?;
            let name = words.get(set + 1)?.split('=').next()?.to_ascii_lowercase();
            let (_, id) = POSTGRESQL.iter().find(|(key, _)| *key == name)?;
            let from = line.to_ascii_lowercase().find(&name)? + name.len();
            let behind = line.get(from..)?;
            let value = behind.trim_start_matches(|c: char| c == '=' || c.is_whitespace());
            let value = value.strip_prefix("TO ").or_else(|| value.strip_prefix("to ")).unwrap_or(value).trim_start();
            let column = line.chars().count() - value.chars().count() + 1;
            let value = value.split(';').next()?.trim();
            Some((*id, value, source.place(at + 1, column, value.chars().count())))
        })
    }
}
