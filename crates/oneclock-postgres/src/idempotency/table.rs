//! Records as rows.
//!
//! Decides how a record is written and read, that each write is one statement which compares state and fence, and that a
//! row which cannot be read is an error and never an absent one. What a record may do is decided in
//! `oneclock_core::idempotency`.

use std::time::Duration;

use oneclock_core::Name;
use oneclock_core::idempotency::{Doubt, Fence, Fingerprint, Key, Owner, Record, Scope, State};
use oneclock_core::wire::Wall;
use oneclock_idempotency::{Answer, StoreError, Which};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use crate::session::Session;

/// States are words and times are nanoseconds since 1970, as in the SQLite store. Text is compared by its bytes, so that the
/// order of scopes is the same everywhere.
pub(super) const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS oneclock_idempotency (
    principal TEXT COLLATE \"C\" NOT NULL,
    method TEXT COLLATE \"C\" NOT NULL,
    route TEXT COLLATE \"C\" NOT NULL,
    key TEXT COLLATE \"C\" NOT NULL,
    fingerprint BYTEA NOT NULL,
    owner BYTEA NOT NULL,
    fence BIGINT NOT NULL,
    state TEXT NOT NULL,
    doubt TEXT,
    lease_until BIGINT,
    since BIGINT NOT NULL,
    first_seen BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    retention BIGINT NOT NULL,
    answer BYTEA,
    PRIMARY KEY (principal, method, route, key)
);
CREATE INDEX IF NOT EXISTS oneclock_idempotency_open ON oneclock_idempotency (principal, method, route, key)
    WHERE state IN ('in_progress', 'unknown');
-- As it was before work could be queued.
DROP INDEX IF EXISTS oneclock_idempotency_settled;
CREATE INDEX IF NOT EXISTS oneclock_idempotency_not_open ON oneclock_idempotency (expires)
    WHERE state IN ('completed', 'failed_retryable', 'queued');
CREATE TABLE IF NOT EXISTS oneclock_idempotency_floor (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    fence BIGINT NOT NULL
);
INSERT INTO oneclock_idempotency_floor VALUES (1, 0) ON CONFLICT DO NOTHING;
";

/// Two processes that make the tables at the same time would meet in the catalogue, so they take turns.
pub(super) const TAKE_TURNS: &str = "SELECT pg_advisory_xact_lock(hashtext('oneclock_idempotency'))";

/// The server's clock, unless a test gives another: nanoseconds since 1970.
const NOW: &str = "coalesce($1::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000)";

const COLUMNS: &str = "t.principal, t.method, t.route, t.key, t.fingerprint, t.owner, t.fence, t.state, t.doubt, \
                       t.lease_until, t.since, t.first_seen, t.expires, t.retention";

/// The column after [`COLUMNS`].
const ANSWER: usize = 14;

/// What one look at a scope shows.
pub(super) struct Seen {
    pub(super) found: Option<Record>,
    /// Of a completed record, if it was asked for.
    pub(super) answer: Option<Answer>,
    /// The highest fence of any record that is gone.
    pub(super) floor: Fence,
    pub(super) now: Wall,
    /// Whether this session's commits are on the disk when they are answered.
    pub(super) is_durable: bool,
}

/// Whether the answer is read along: it may be large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    Record,
    WithAnswer,
}

pub(super) async fn read(
    session: &mut Session,
    scope: &Scope,
    reads: Reads,
    clock: Option<Wall>,
) -> Result<Seen, StoreError> {
    let answer = match reads {
        Reads::Record => "NULL::bytea",
        Reads::WithAnswer => "t.answer",
    };
    // One row always: the floor and the clock are there also for a scope without a record. All of it from one snapshot.
    let sql = format!(
        "SELECT {COLUMNS}, {answer}, at.now, f.fence, current_setting('synchronous_commit') <> 'off'
         FROM (SELECT {NOW} AS now) AS at
         CROSS JOIN oneclock_idempotency_floor AS f
         LEFT JOIN oneclock_idempotency AS t ON t.principal = $2 AND t.method = $3 AND t.route = $4 AND t.key = $5"
    );
    let now = clock.map(nanos);
    let (principal, method, route, key) = parts(scope);
    let row = session.query_one(&sql, &[&now, &principal, &method, &route, &key]).await.map_err(StoreError::failed)?;
    let is_there: Option<&str> = get(&row, 0)?;
    let found = is_there.map(|_| record(&row)).transpose()?;
    let answer: Option<&[u8]> = get(&row, ANSWER)?;
    let answer = answer.map(|bytes| Answer::from_bytes(bytes).ok_or_else(|| unreadable("answer"))).transpose()?;
    Ok(Seen {
        found,
        answer,
        floor: Fence(unsigned(get(&row, ANSWER + 2)?)),
        now: Wall::from_nanos(unsigned(get(&row, ANSWER + 1)?)),
        is_durable: get(&row, ANSWER + 3)?,
    })
}

/// Writes `record` in one statement, if the row still stands as in `before`: with its state and its fence, or not there.
/// False if it does not: somebody else was in between, and nothing was written.
///
/// Where somebody else's transaction has the row, it waits for the end of that.
pub(super) async fn write(
    session: &mut Session,
    scope: &Scope,
    before: Option<&Record>,
    record: &Record,
    answer: Option<&Answer>,
) -> Result<bool, StoreError> {
    let (doubt, lease_until) = match record.state {
        State::InProgress { lease_until } => (None, Some(nanos(lease_until))),
        State::Unknown(doubt) => (Some(doubt.as_str()), None),
        _ => (None, None),
    };
    let (principal, method, route, key) = parts(scope);
    let owner = record.owner.0.to_be_bytes();
    let (fingerprint, owner): (&[u8], &[u8]) = (&record.fingerprint.0, &owner);
    let (fence, state) = (clamped(record.fence.0), record.state.as_str());
    let (since, first_seen, expires) = (nanos(record.since), nanos(record.first_seen), nanos(record.expires));
    let retention = clamped(u64::try_from(record.retention.as_nanos()).unwrap_or(u64::MAX));
    let answer = answer.map(Answer::to_bytes);
    let values: [&(dyn ToSql + Sync); 15] = [
        &principal,
        &method,
        &route,
        &key,
        &fingerprint,
        &owner,
        &fence,
        &state,
        &doubt,
        &lease_until,
        &since,
        &first_seen,
        &expires,
        &retention,
        &answer,
    ];
    let written = match before {
        None => {
            let sql = "INSERT INTO oneclock_idempotency VALUES \
                       ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING";
            session.execute(sql, &values).await
        }
        Some(before) => {
            let sql = "UPDATE oneclock_idempotency SET fingerprint = $5, owner = $6, fence = $7, state = $8, doubt = $9, \
                       lease_until = $10, since = $11, first_seen = $12, expires = $13, retention = $14, answer = $15 \
                       WHERE principal = $1 AND method = $2 AND route = $3 AND key = $4 AND fence = $16 AND state = $17";
            let (fence, state) = (clamped(before.fence.0), before.state.as_str());
            let mut all: Vec<&(dyn ToSql + Sync)> = values.to_vec();
            all.extend([&fence as &(dyn ToSql + Sync), &state]);
            session.execute(sql, &all).await
        }
    };
    written.map(|rows| rows == 1).map_err(StoreError::failed)
}

/// The server's clock.
pub(super) async fn now(session: &mut Session, clock: Option<Wall>) -> Result<Wall, StoreError> {
    let sql = format!("SELECT {NOW}");
    let row = session.query_one(&sql, &[&clock.map(nanos)]).await.map_err(StoreError::failed)?;
    Ok(Wall::from_nanos(unsigned(get(&row, 0)?)))
}

pub(super) async fn list(
    session: &mut Session,
    which: Which,
    after: Option<&Scope>,
    limit: usize,
    clock: Option<Wall>,
) -> Result<Vec<(Scope, Record)>, StoreError> {
    let which = match which {
        Which::All => "",
        // A row in progress is unknown from the end of its lease on, whether or not somebody wrote so.
        Which::Unknown => {
            "AND t.state IN ('in_progress', 'unknown') AND (t.state = 'unknown' OR t.lease_until <= at.now)"
        }
    };
    let (now, limit) = (clock.map(nanos), clamped(limit as u64));
    let (principal, method, route, key) = after.map(parts).unwrap_or_default();
    let mut by: Vec<&(dyn ToSql + Sync)> = vec![&now, &limit];
    let from = if after.is_some() {
        by.extend([&principal as &(dyn ToSql + Sync), &method, &route, &key]);
        "AND (t.principal, t.method, t.route, t.key) > ($3, $4, $5, $6)"
    } else {
        ""
    };
    let sql = format!(
        "SELECT {COLUMNS}, at.now FROM (SELECT {NOW} AS now) AS at CROSS JOIN oneclock_idempotency AS t
         WHERE true {which} {from} ORDER BY t.principal, t.method, t.route, t.key LIMIT $2"
    );
    let rows = session.query(&sql, &by).await.map_err(StoreError::failed)?;
    rows.iter()
        .map(|row| {
            let now = Wall::from_nanos(unsigned(get(row, ANSWER)?));
            Ok((scope(row)?, record(row)?.at(now)))
        })
        .collect()
}

/// In one statement, so that the floor rises with what goes: fences grow over it.
pub(super) async fn reap(session: &mut Session, limit: usize, clock: Option<Wall>) -> Result<usize, StoreError> {
    let sql = format!(
        "WITH at AS MATERIALIZED (SELECT {NOW} AS now),
         old AS (
             SELECT t.principal, t.method, t.route, t.key FROM oneclock_idempotency AS t
             WHERE t.state IN ('completed', 'failed_retryable', 'queued') AND t.expires <= (SELECT now FROM at)
             ORDER BY t.expires LIMIT $2 FOR UPDATE SKIP LOCKED
         ),
         gone AS (
             DELETE FROM oneclock_idempotency AS t USING old
             WHERE t.principal = old.principal AND t.method = old.method AND t.route = old.route AND t.key = old.key
             RETURNING t.fence
         ),
         floor AS (
             UPDATE oneclock_idempotency_floor SET fence = greatest(fence, (SELECT max(fence) FROM gone))
             WHERE EXISTS (SELECT FROM gone)
         )
         SELECT count(*) FROM gone"
    );
    let limit = clamped(limit as u64);
    let row = session.query_one(&sql, &[&clock.map(nanos), &limit]).await.map_err(StoreError::failed)?;
    let gone: i64 = get(&row, 0)?;
    Ok(usize::try_from(gone).unwrap_or(0))
}

fn parts(scope: &Scope) -> (&str, &str, &str, &str) {
    (&scope.principal, scope.method.as_str(), scope.route.as_str(), scope.key.as_str())
}

fn scope(row: &Row) -> Result<Scope, StoreError> {
    let text = |column| get::<String>(row, column);
    let key = Key::new(&text(3)?).map_err(|_| unreadable("key"))?;
    Ok(Scope { principal: text(0)?.into(), method: Name::from(text(1)?), route: Name::from(text(2)?), key })
}

fn record(row: &Row) -> Result<Record, StoreError> {
    let wall = |column| get::<i64>(row, column).map(|nanos| Wall::from_nanos(unsigned(nanos)));
    let state = match get::<&str>(row, 7)? {
        "queued" => State::Queued,
        "in_progress" => State::InProgress { lease_until: wall(9)? },
        "completed" => State::Completed,
        "failed_retryable" => State::FailedRetryable,
        "unknown" => {
            let doubt: Option<&str> = get(row, 8)?;
            State::Unknown(doubt.and_then(Doubt::parse).ok_or_else(|| unreadable("doubt"))?)
        }
        _ => return Err(unreadable("state")),
    };
    let fingerprint = get::<&[u8]>(row, 4)?.try_into().map_err(|_| unreadable("fingerprint"))?;
    let owner = get::<&[u8]>(row, 5)?.try_into().map_err(|_| unreadable("owner"))?;
    Ok(Record {
        fingerprint: Fingerprint(fingerprint),
        owner: Owner(u128::from_be_bytes(owner)),
        fence: Fence(unsigned(get(row, 6)?)),
        state,
        since: wall(10)?,
        first_seen: wall(11)?,
        expires: wall(12)?,
        retention: Duration::from_nanos(unsigned(get(row, 13)?)),
    })
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(StoreError::failed)
}

fn unreadable(column: &str) -> StoreError {
    StoreError::failed(format!("the column {column} has no value of this version of the store"))
}

/// PostgreSQL's numbers have a sign. The year 2262 is late enough.
fn clamped(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn nanos(wall: Wall) -> i64 {
    clamped(wall.as_nanos())
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
