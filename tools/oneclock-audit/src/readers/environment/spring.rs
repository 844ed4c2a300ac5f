//! Properties of Spring Boot, which takes any of them from the environment: without `.`, `-` and `_`, in capitals.
//!
//! Only those about the calls to databases are read. They are said of the call that the environment names itself, or of
//! the program: joined with what its own files say, a variable is as near as they are.

use super::{Call, Variable};
use crate::inventory::{ComponentId, Inventory, On};

const PROPERTIES: &[(&str, &str)] = &[
    ("SPRINGDATASOURCEHIKARICONNECTIONTIMEOUT", "spring.hikari.connection_timeout"),
    ("SPRINGDATASOURCEHIKARIMAXLIFETIME", "spring.hikari.max_lifetime"),
    ("SPRINGDATASOURCEHIKARIIDLETIMEOUT", "spring.hikari.idle_timeout"),
    ("SPRINGDATASOURCEHIKARIVALIDATIONTIMEOUT", "spring.hikari.validation_timeout"),
    ("SPRINGDATASOURCETOMCATMAXWAIT", "spring.datasource.max_wait"),
    ("SPRINGJDBCTEMPLATEQUERYTIMEOUT", "spring.jdbc.query_timeout"),
    ("SPRINGJPAPROPERTIESJAKARTAPERSISTENCEQUERYTIMEOUT", "spring.jpa.query_timeout"),
    ("SPRINGJPAPROPERTIESJAVAXPERSISTENCEQUERYTIMEOUT", "spring.jpa.query_timeout"),
    ("SPRINGTRANSACTIONDEFAULTTIMEOUT", "spring.transaction.default_timeout"),
];

/// Reads a variable if it is one of them, and says whether it is.
pub(super) fn read(
    variable: &Variable,
    key: &[String],
    component: ComponentId,
    calls: &[Call],
    inventory: &mut Inventory,
) -> bool {
    let joined = key.concat();
    let Some((_, id)) = PROPERTIES.iter().find(|(known, _)| *known == joined) else { return false };
    let value = variable.value.trim();
    let databases = calls.iter().filter(|call| call.words.iter().any(|word| word == "DATASOURCE"));
    let mut on: Vec<On> = databases.map(|call| On::Edge(call.edge)).collect();
    if on.is_empty() {
        on.push(On::Component(component));
    }
    for on in on.into_iter().filter(|_| !value.is_empty()) {
        inventory.say(on, id, value, variable.place.clone());
    }
    true
}
