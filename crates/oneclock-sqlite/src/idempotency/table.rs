//! Records as rows.
//!
//! Decides how a record is written, and that one which cannot be read is an error and never an absent one.

use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::idempotency::{Doubt, Fence, Fingerprint, Key, Owner, Record, Scope, State};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Answer, Kept, Which};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, named_params, params};

/// States are words and times are nanoseconds since 1970, so that the file can be read with any SQLite shell.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS oneclock_idempotency (
    principal TEXT NOT NULL,
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    owner BLOB NOT NULL,
    fence INTEGER NOT NULL,
    state TEXT NOT NULL,
    doubt TEXT,
    lease_until INTEGER,
    since INTEGER NOT NULL,
    first_seen INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    retention INTEGER NOT NULL,
    answer BLOB,
    PRIMARY KEY (principal, method, route, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS oneclock_idempotency_open ON oneclock_idempotency (principal, method, route, key)
    WHERE state IN ('in_progress', 'unknown');
-- As it was before work could be queued.
DROP INDEX IF EXISTS oneclock_idempotency_settled;
CREATE INDEX IF NOT EXISTS oneclock_idempotency_not_open ON oneclock_idempotency (expires)
    WHERE state IN ('completed', 'failed_retryable', 'queued');
CREATE TABLE IF NOT EXISTS oneclock_idempotency_floor (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    fence INTEGER NOT NULL
);
INSERT OR IGNORE INTO oneclock_idempotency_floor VALUES (1, 0);
";

const COLUMNS: &str = "principal, method, route, key, fingerprint, owner, fence, state, doubt, lease_until, since, \
                       first_seen, expires, retention";

pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    // In one transaction, since another process may be at the same.
    connection.execute_batch(&format!("BEGIN IMMEDIATE; {SCHEMA} COMMIT"))
}

pub(super) fn read(connection: &Connection, scope: &Scope) -> rusqlite::Result<Option<Kept>> {
    let sql = format!(
        "SELECT {COLUMNS}, answer FROM oneclock_idempotency WHERE principal = ?1 AND method = ?2 AND route = ?3 AND key = ?4"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let by = params![&*scope.principal, scope.method.as_str(), scope.route.as_str(), scope.key.as_str()];
    select
        .query_row(by, |row| {
            let answer: Option<Vec<u8>> = row.get(14)?;
            let answer = answer.map(|bytes| Answer::from_bytes(&bytes).ok_or_else(|| unreadable(14, Type::Blob)));
            Ok(Kept { record: record(row)?, answer: answer.transpose()? })
        })
        .optional()
}

pub(super) fn write(
    connection: &Connection,
    scope: &Scope,
    record: &Record,
    answer: Option<&Answer>,
) -> rusqlite::Result<()> {
    let (doubt, lease_until) = match record.state {
        State::InProgress { lease_until } => (None, Some(nanos(lease_until))),
        State::Unknown(doubt) => (Some(doubt.as_str()), None),
        _ => (None, None),
    };
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO oneclock_idempotency VALUES (:principal, :method, :route, :key, :fingerprint, :owner, \
         :fence, :state, :doubt, :lease_until, :since, :first_seen, :expires, :retention, :answer)",
    )?;
    insert.execute(named_params! {
        ":principal": &*scope.principal,
        ":method": scope.method.as_str(),
        ":route": scope.route.as_str(),
        ":key": scope.key.as_str(),
        ":fingerprint": record.fingerprint.0,
        ":owner": record.owner.0.to_be_bytes(),
        ":fence": clamped(record.fence.0),
        ":state": record.state.as_str(),
        ":doubt": doubt,
        ":lease_until": lease_until,
        ":since": nanos(record.since),
        ":first_seen": nanos(record.first_seen),
        ":expires": nanos(record.expires),
        ":retention": clamped(u64::try_from(record.retention.as_nanos()).unwrap_or(u64::MAX)),
        ":answer": answer.map(Answer::to_bytes),
    })?;
    Ok(())
}

/// The highest fence of any record that is gone.
pub(super) fn floor(connection: &Connection) -> rusqlite::Result<Fence> {
    let mut select = connection.prepare_cached("SELECT fence FROM oneclock_idempotency_floor WHERE one = 1")?;
    select.query_row([], |row| Ok(Fence(unsigned(row.get(0)?))))
}

pub(super) fn list(
    connection: &Connection,
    which: Which,
    after: Option<&Scope>,
    limit: usize,
    now: Wall,
) -> rusqlite::Result<Vec<(Scope, Record)>> {
    let which = match which {
        Which::All => "",
        // A row in progress is unknown from the end of its lease on, whether or not somebody wrote so.
        Which::Unknown => "AND state IN ('in_progress', 'unknown') AND (state = 'unknown' OR lease_until <= :now)",
    };
    let mut select = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM oneclock_idempotency
         WHERE (:first OR (principal, method, route, key) > (:principal, :method, :route, :key))
         AND :now IS NOT NULL {which} ORDER BY principal, method, route, key LIMIT :limit"
    ))?;
    let rows = select.query_map(
        named_params! {
            ":first": after.is_none(),
            ":principal": after.map_or("", |scope| &scope.principal),
            ":method": after.map_or("", |scope| scope.method.as_str()),
            ":route": after.map_or("", |scope| scope.route.as_str()),
            ":key": after.map_or("", |scope| scope.key.as_str()),
            ":now": nanos(now),
            ":limit": clamped(limit as u64),
        },
        |row| Ok((scope(row)?, record(row)?.at(now))),
    )?;
    rows.collect()
}

pub(super) fn reap(connection: &Connection, limit: usize, now: Wall) -> rusqlite::Result<usize> {
    let old = "SELECT principal, method, route, key FROM oneclock_idempotency
               WHERE state IN ('completed', 'failed_retryable', 'queued') AND expires <= ?1 ORDER BY expires LIMIT ?2";
    let by = params![nanos(now), clamped(limit as u64)];
    // The floor first, from the same rows: fences grow over what goes.
    let mut floor = connection.prepare_cached(&format!(
        "UPDATE oneclock_idempotency_floor SET fence = max(fence, coalesce((SELECT max(fence) FROM oneclock_idempotency
         WHERE (principal, method, route, key) IN ({old})), 0))"
    ))?;
    floor.execute(by)?;
    let mut delete = connection.prepare_cached(&format!(
        "DELETE FROM oneclock_idempotency WHERE (principal, method, route, key) IN ({old})"
    ))?;
    delete.execute(by)
}

fn scope(row: &Row<'_>) -> rusqlite::Result<Scope> {
    let text = |column| row.get::<_, String>(column);
    let key = Key::new(&text(3)?).map_err(|_| unreadable(3, Type::Text))?;
    Ok(Scope { principal: text(0)?.into(), method: Name::from(text(1)?), route: Name::from(text(2)?), key })
}

fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let wall = |column| row.get(column).map(|nanos: i64| Wall::from_nanos(unsigned(nanos)));
    let state = match row.get_ref(7)?.as_str()? {
        "queued" => State::Queued,
        "in_progress" => State::InProgress { lease_until: wall(9)? },
        "completed" => State::Completed,
        "failed_retryable" => State::FailedRetryable,
        "unknown" => {
            let doubt = row.get_ref(8)?.as_str().ok().and_then(Doubt::parse);
            State::Unknown(doubt.ok_or_else(|| unreadable(8, Type::Text))?)
        }
        _ => return Err(unreadable(7, Type::Text)),
    };
    Ok(Record {
        fingerprint: Fingerprint(row.get(4)?),
        owner: Owner(u128::from_be_bytes(row.get(5)?)),
        fence: Fence(unsigned(row.get(6)?)),
        state,
        since: wall(10)?,
        first_seen: wall(11)?,
        expires: wall(12)?,
        retention: Duration::from_nanos(unsigned(row.get(13)?)),
    })
}

fn unreadable(column: usize, of: Type) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, of, "no value of this version of the store".into())
}

/// SQLite's numbers have a sign. The year 2262 is late enough.
fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn nanos(wall: Wall) -> i64 {
    clamped(wall.as_nanos())
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
