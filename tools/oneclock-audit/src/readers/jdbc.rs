//! What the drivers of JDBC take in their URL, and as properties that a pool hands them: one table for the files of an
//! application and for its environment.
//!
//! Not read: what code hands a driver, and drivers that nobody listed here.

/// A parameter of a driver.
#[derive(Debug)]
pub(super) struct Parameter {
    /// As the driver calls it.
    pub(super) name: &'static str,
    /// The setting.
    pub(super) id: &'static str,
    /// Whether what holds where nobody wrote it is told.
    pub(super) told: bool,
}

const fn parameter(name: &'static str, id: &'static str, told: bool) -> Parameter {
    Parameter { name, id, told }
}

/// By the scheme that follows `jdbc:`, with the port that the driver takes where none is written.
const DRIVERS: &[(&str, u16, &[Parameter])] = &[
    (
        "postgresql",
        5432,
        &[
            parameter("socketTimeout", "jdbc.postgresql.socket_timeout", true),
            parameter("connectTimeout", "jdbc.postgresql.connect_timeout", true),
            parameter("loginTimeout", "jdbc.postgresql.login_timeout", false),
        ],
    ),
    (
        "mysql",
        3306,
        &[
            parameter("socketTimeout", "jdbc.mysql.socket_timeout", true),
            parameter("connectTimeout", "jdbc.mysql.connect_timeout", true),
        ],
    ),
    (
        "mariadb",
        3306,
        &[
            parameter("socketTimeout", "jdbc.mariadb.socket_timeout", true),
            parameter("connectTimeout", "jdbc.mariadb.connect_timeout", true),
        ],
    ),
    (
        "sqlserver",
        1433,
        &[
            parameter("queryTimeout", "jdbc.sqlserver.query_timeout", false),
            parameter("socketTimeout", "jdbc.sqlserver.socket_timeout", false),
            parameter("loginTimeout", "jdbc.sqlserver.login_timeout", false),
        ],
    ),
];

/// What a driver takes.
pub(super) fn parameters(driver: &str) -> &'static [Parameter] {
    DRIVERS.iter().find(|(known, ..)| *known == driver).map_or(&[], |(.., parameters)| parameters)
}

/// The port of a driver.
pub(super) fn port(driver: &str) -> Option<u16> {
    DRIVERS.iter().find(|(known, ..)| *known == driver).map(|(_, port, _)| *port)
}

/// What a URL says of a parameter, however it is cased: `…?socketTimeout=5&…`, or `…;socketTimeout=5;…`.
pub(super) fn written<'a>(url: &'a str, driver: &str, name: &str) -> Option<&'a str> {
    let separators: &[char] = if driver == "sqlserver" { &[';'] } else { &['?', '&'] };
    let value = |part: &'a str| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then_some(value)
    };
    url.split(separators).find_map(value)
}
