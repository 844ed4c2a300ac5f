//! Jobs as rows.
//!
//! Decides that each step is one statement on the server's clock, that who settles a job has to hold its fence, and that moving
//! one to another lane touches none of its header fields. What a job may do is decided in `oneclock_core::expiry`.
//!
//! A lease is a column beside `visible_at`, which stays as it is: a job that comes again has its old place in the order, and
//! taking one changes no column of the index.

use std::error::Error;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::{BufMut, BytesMut};
use oneclock_core::Outcome;
use oneclock_core::expiry::names;
use oneclock_core::wire::{Wall, utc};
use oneclock_queue::{Incoming, Lane, Message, Settle};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use super::counts::{Slot, slot};
use crate::error::PgError;
use crate::flight::Flight;
use crate::link::Facts;
use crate::session::Session;

/// Header fields are pairs, one after the other, as they came. What is deleted often is vacuumed often, and room is left in the
/// pages for leases.
pub(super) const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS oneclock_queue (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue TEXT COLLATE \"C\" NOT NULL,
    lane TEXT COLLATE \"C\" NOT NULL DEFAULT 'main' CHECK (lane IN ('main', 'late', 'dead')),
    headers TEXT[] NOT NULL DEFAULT '{}' CHECK (
        cardinality(headers) % 2 = 0 AND coalesce(array_ndims(headers), 1) = 1 AND array_position(headers, NULL) IS NULL
    ),
    body BYTEA NOT NULL DEFAULT '',
    visible_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    enqueued_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp() CHECK (isfinite(enqueued_at)),
    attempts INTEGER NOT NULL DEFAULT 0,
    vanished BOOLEAN NOT NULL DEFAULT false,
    fence BIGINT NOT NULL DEFAULT 0,
    lease_until TIMESTAMPTZ,
    leased_by TEXT,
    dead_reason TEXT,
    dead_detail TEXT,
    dead_at TIMESTAMPTZ CHECK (isfinite(dead_at)),
    dead_attempts INTEGER
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX IF NOT EXISTS oneclock_queue_next ON oneclock_queue (queue, lane, visible_at, id);
CREATE TABLE IF NOT EXISTS oneclock_queue_relay (
    queue TEXT COLLATE \"C\" PRIMARY KEY,
    relay TEXT NOT NULL,
    lease_until TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS oneclock_queue_drained (
    queue TEXT COLLATE \"C\" NOT NULL,
    slot BIGINT NOT NULL,
    process TEXT NOT NULL,
    gone BIGINT NOT NULL,
    came BIGINT NOT NULL,
    PRIMARY KEY (queue, slot, process)
) WITH (fillfactor = 50);
";

/// Two processes that make the tables at the same time would meet in the catalogue, so they take turns.
pub(super) const TAKE_TURNS: &str = "SELECT pg_advisory_xact_lock(hashtext('oneclock_queue'))";

/// Whether somebody who waits has to be told of what is published now: not if the newest job that could have been taken for a
/// while still waits, since then whoever takes jobs is behind, and comes by itself.
const WAKES: &str = "NOT coalesce((
    SELECT w.lease_until IS NULL OR w.lease_until <= statement_timestamp() FROM oneclock_queue AS w
    WHERE w.queue = $1 AND w.lane = 'main' AND w.visible_at <= statement_timestamp() - interval '100 milliseconds'
    ORDER BY w.visible_at DESC, w.id DESC LIMIT 1
), false)";

/// One job: its queue, its header fields, its body.
const INSERT: &str = "INSERT INTO oneclock_queue (queue, headers, body, visible_at, enqueued_at)
    SELECT $1::text, $2, $3, at.now, at.now FROM (SELECT clock_timestamp() AS now) AS at";

/// The channel of a queue.
pub(super) const CHANNEL: &str = "SELECT 'oneclock_queue_' || md5($1::text)";

/// In which order jobs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order<'a> {
    /// The first that is free, whoever has those before it.
    Any,
    /// One after the other, for this relay alone: another gets none as long as its lease holds.
    Strict(&'a str),
}

/// A job that is ours for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mine {
    pub(super) id: i64,
    pub(super) fence: i64,
}

/// The header fields of a message, as an array: written where they are sent, and nowhere before.
struct Headers<'a>(&'a Message);

/// What was taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) mine: Mine,
    pub(super) attempt: u32,
    pub(super) may_have_run: bool,
    pub(super) message: Message,
}

/// What was settled.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// How many were still ours.
    pub(super) rows: usize,
    /// Of those of the main lane: in which slot each came, and in which it went.
    pub(super) slots: Vec<(Slot, Slot)>,
}

/// Publishes. `None`: it was refused, since a commit that is answered is not on the disk. `Some`: whether whoever waits is to be
/// told.
pub(super) async fn publish(
    session: &mut Session,
    queue: &str,
    message: &Message,
    wakes: bool,
) -> Result<Option<bool>, PgError> {
    static TEXTS: LazyLock<[String; 2]> = LazyLock::new(|| {
        ["false", WAKES]
            .map(|wakes| format!("{INSERT} WHERE current_setting('synchronous_commit') <> 'off' RETURNING {wakes}"))
    });
    let [quiet, asking] = &*TEXTS;
    let sql = if wakes { asking } else { quiet };
    let rows = query(session, sql, &[&queue, &Headers(message), &&*message.body]).await?;
    rows.first().map(|row| get(session, row, 0)).transpose()
}

/// Publishes with the caller's transaction, and tells whoever waits when that is committed.
pub(super) async fn publish_with(
    session: &mut Session,
    queue: &str,
    message: &Message,
    wakes: bool,
) -> Result<(), PgError> {
    static TEXTS: LazyLock<[String; 2]> = LazyLock::new(|| {
        let told = format!("CASE WHEN {WAKES} THEN pg_notify('oneclock_queue_' || md5($1), '') END");
        ["NULL", &told].map(|told| format!("{INSERT} RETURNING {told}"))
    });
    let [quiet, asking] = &*TEXTS;
    let sql = if wakes { asking } else { quiet };
    session.query_one(sql, &[&queue, &Headers(message), &&*message.body]).await.map(|_| ())
}

/// Tells whoever waits.
pub(super) async fn notify(session: &mut Session, queue: &str) -> Result<(), PgError> {
    let sql = "SELECT pg_notify('oneclock_queue_' || md5($1::text), '')";
    session.execute(sql, &[&queue]).await.map(|_| ())
}

/// Takes at most so many jobs of a lane that nobody has, in one statement: each is ours for `lease`, with the next fence.
#[expect(clippy::too_many_arguments, reason = "one statement, and all that it says")]
pub(super) async fn take(
    session: &mut Session,
    queue: &str,
    lane: Lane,
    at_most: usize,
    order: Order<'_>,
    lease: Duration,
    by: &str,
    ours: Duration,
) -> Result<Vec<Taken>, PgError> {
    const FREE: &str = "t.queue = $1::text AND t.lane = $2::text AND t.visible_at <= (SELECT now FROM at)
                        AND (t.lease_until IS NULL OR t.lease_until <= (SELECT now FROM at))";
    let (only, and) = match order {
        Order::Any => (String::new(), String::new()),
        Order::Strict(_) => (
            format!(
                "relay AS (
                     INSERT INTO oneclock_queue_relay AS r (queue, relay, lease_until)
                     SELECT $1::text, $5::text, at.now + $3::bigint * interval '1 microsecond' FROM at
                     WHERE EXISTS (SELECT FROM oneclock_queue AS t WHERE {FREE})
                     ON CONFLICT (queue) DO UPDATE SET relay = excluded.relay, lease_until = excluded.lease_until
                     WHERE r.relay = excluded.relay OR r.lease_until <= (SELECT now FROM at)
                     RETURNING 1
                 ),"
            ),
            // One that is still leased, by a relay that died or lost its way, holds up those after it.
            format!(
                "AND EXISTS (SELECT FROM relay) AND NOT coalesce((
                     SELECT bool_or(head.lease_until > (SELECT now FROM at)) FROM (
                         SELECT t.lease_until FROM oneclock_queue AS t
                         WHERE t.queue = $1::text AND t.lane = $2::text AND t.visible_at <= (SELECT now FROM at)
                         ORDER BY t.visible_at, t.id LIMIT {}
                     ) AS head
                 ), false)",
                at_most.saturating_mul(2)
            ),
        ),
    };
    // The limit stands in the text, so that the plan is made for it: the first of an index, and never a sort of all.
    let sql = format!(
        "WITH at AS MATERIALIZED (SELECT clock_timestamp() AS now), {only}
         taken AS (
             UPDATE oneclock_queue AS t
             SET fence = t.fence + 1, attempts = t.attempts + 1, vanished = t.vanished OR t.lease_until IS NOT NULL,
                 lease_until = (SELECT now FROM at) + $3::bigint * interval '1 microsecond', leased_by = $4::text
             WHERE t.id = ANY (ARRAY(
                 SELECT t.id FROM oneclock_queue AS t WHERE {FREE} {and}
                 ORDER BY t.visible_at, t.id LIMIT {at_most} FOR UPDATE SKIP LOCKED
             ))
             RETURNING t.*
         )
         SELECT {COLUMNS}, t.fence, t.vanished FROM taken AS t ORDER BY t.visible_at, t.id"
    );
    let (lane, lease) = (lane.as_str(), micros(lease));
    let rows = match order {
        Order::Any => query(session, &sql, &[&queue, &lane, &lease, &by]).await?,
        Order::Strict(relay) => query(session, &sql, &[&queue, &lane, &lease, &by, &relay]).await?,
    };
    let taken = rows.iter().map(|row| {
        Ok(Taken {
            mine: Mine { id: get(session, row, 0)?, fence: get(session, row, DEAD + 4)? },
            attempt: counted(get(session, row, 1)?),
            may_have_run: get(session, row, DEAD + 5)?,
            message: message(session, queue, row, ours)?,
        })
    });
    taken.collect()
}

/// Makes the leases of these as long as they were, from now. How many are still ours.
pub(super) async fn renew(session: &mut Session, mine: &[Mine], lease: Duration) -> Result<usize, PgError> {
    let sql = format!(
        "UPDATE oneclock_queue AS t SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
         {MINE} AND t.lease_until IS NOT NULL"
    );
    let (ids, fences) = apart(mine);
    let renewed = session.execute(&sql, &[&ids, &fences, &micros(lease)]).await?;
    Ok(usize::try_from(renewed).unwrap_or(usize::MAX))
}

/// The same for the lease of a relay itself. False if it is another's by now.
pub(super) async fn renew_relay(
    session: &mut Session,
    queue: &str,
    relay: &str,
    lease: Duration,
) -> Result<bool, PgError> {
    let sql = "UPDATE oneclock_queue_relay SET lease_until = clock_timestamp() + $3::bigint * interval '1 microsecond'
               WHERE queue = $1 AND relay = $2";
    session.execute(sql, &[&queue, &relay, &micros(lease)]).await.map(|rows| rows == 1)
}

/// Another relay may begin at once.
pub(super) async fn leave_relay(session: &mut Session, queue: &str, relay: &str) -> Result<(), PgError> {
    let sql = "DELETE FROM oneclock_queue_relay WHERE queue = $1 AND relay = $2";
    session.execute(sql, &[&queue, &relay]).await.map(|_| ())
}

/// What becomes of these, in one statement. Those that are somebody else's by now are left alone.
pub(super) async fn settle(session: &mut Session, mine: &[Mine], settle: &Settle) -> Result<Left, PgError> {
    const GIVEN_BACK: &str = "lease_until = NULL, leased_by = NULL";
    let (ids, fences) = apart(mine);
    // What came from another lane is no arrival of the main one.
    let left = |what: &str| format!("{what} RETURNING t.lane = 'main', t.enqueued_at, clock_timestamp()");
    let moved = |to: &str, dead: &str| {
        // The old row is locked and looked at first: RETURNING shows the new one.
        format!(
            "WITH t AS (SELECT t.id, t.lane, t.enqueued_at FROM oneclock_queue AS t, \
             unnest($1::bigint[], $2::bigint[]) AS mine (id, fence) WHERE t.id = mine.id AND t.fence = mine.fence FOR UPDATE OF t) \
             {}",
            left(&format!(
                "UPDATE oneclock_queue AS moved SET lane = '{to}', visible_at = clock_timestamp(), \
                 enqueued_at = clock_timestamp(), {GIVEN_BACK}{dead} FROM t WHERE moved.id = t.id"
            ))
        )
    };
    let rows = match settle {
        Settle::Gone => match mine {
            [mine] => {
                let sql = left("DELETE FROM oneclock_queue AS t WHERE t.id = $1 AND t.fence = $2");
                query(session, &sql, &[&mine.id, &mine.fence]).await?
            }
            _ => {
                let sql = left(&format!("DELETE FROM oneclock_queue AS t {}", MINE.replacen("FROM", "USING", 1)));
                query(session, &sql, &[&ids, &fences]).await?
            }
        },
        Settle::Again { after, counted } => {
            let sql = format!(
                "UPDATE oneclock_queue AS t SET {GIVEN_BACK}, visible_at = \
                 CASE WHEN $3::bigint = 0 THEN t.visible_at ELSE clock_timestamp() + $3::bigint * interval '1 microsecond' END, \
                 attempts = CASE WHEN $4::boolean OR t.lease_until IS NULL THEN t.attempts ELSE greatest(t.attempts - 1, 0) END {MINE}"
            );
            let rows = session.execute(&sql, &[&ids, &fences, &micros(*after), counted]).await?;
            return Ok(Left { rows: usize::try_from(rows).unwrap_or(usize::MAX), slots: Vec::new() });
        }
        // With fields of its own: `put_back`.
        Settle::Redrive(_) => return Ok(Left::default()),
        Settle::Late => session.query(&moved("late", ""), &[&ids, &fences]).await?,
        Settle::Dead(dead) => {
            let set = ", dead_reason = $3, dead_detail = $4, dead_attempts = $5, \
                       dead_at = timestamptz 'epoch' + $6::bigint * interval '1 microsecond'";
            let attempts = i32::try_from(dead.attempts).unwrap_or(i32::MAX);
            let at = i64::try_from(dead.at.as_nanos() / 1_000).unwrap_or(i64::MAX);
            let why = dead.why.as_str();
            session.query(&moved("dead", set), &[&ids, &fences, &why, &dead.detail, &attempts, &at]).await?
        }
    };
    let mut left = Left { rows: rows.len(), slots: Vec::new() };
    for row in &rows {
        if get(session, row, 0)? {
            left.slots.push((slot(get(session, row, 1)?), slot(get(session, row, 2)?)));
        }
    }
    Ok(left)
}

/// The header fields of a dead letter, as they came. `None` if it is somebody else's by now.
pub(super) async fn headers(session: &mut Session, mine: Mine) -> Result<Option<Vec<String>>, PgError> {
    let sql = "SELECT headers FROM oneclock_queue WHERE id = $1 AND fence = $2 AND lane = 'dead'";
    let row = session.query_opt(sql, &[&mine.id, &mine.fence]).await?;
    row.map(|row| get(session, &row, 0)).transpose()
}

/// Puts a dead letter back, as new work with these header fields. None is put back if it is somebody else's by now.
pub(super) async fn put_back(session: &mut Session, mine: Mine, headers: &[String]) -> Result<usize, PgError> {
    let sql = "UPDATE oneclock_queue SET lane = 'main', headers = $3, visible_at = clock_timestamp(), \
               enqueued_at = clock_timestamp(), attempts = 0, vanished = false, fence = fence + 1, lease_until = NULL, \
               leased_by = NULL, dead_reason = NULL, dead_detail = NULL, dead_at = NULL, dead_attempts = NULL \
               WHERE id = $1 AND fence = $2 AND lane = 'dead'";
    session
        .execute(sql, &[&mine.id, &mine.fence, &headers])
        .await
        .map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
}

/// One statement of ours, whose text is not read for what it might do.
async fn query(session: &mut Session, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, PgError> {
    const FACTS: Facts = Facts { is_read: false, ..Facts::CONTROL };
    let flight = Flight::begin(session, FACTS)?;
    let conn = flight.conn();
    let work = async {
        let statement = conn.prepared(sql.into()).await?;
        match conn.client.query(&statement, params).await {
            // Its table has changed since it was prepared. Nothing ran.
            Err(error) if conn.forgets(sql.into(), &error) => {
                let statement = conn.prepared(sql.into()).await?;
                conn.client.query(&statement, params).await
            }
            result => result,
        }
    };
    flight.land(work).await
}

/// The server's clock.
pub(super) async fn now(session: &mut Session) -> Result<Wall, PgError> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let row = session.query_one(sql, &[]).await?;
    Ok(wall(get(session, &row, 0)?))
}

/// What [`message`] reads, and [`attempts`](counted) after the id.
pub(super) const COLUMNS: &str = "t.id, t.attempts, t.headers, t.body, t.dead_reason, t.dead_detail, t.dead_attempts, \
                                  (extract(epoch FROM t.dead_at) * 1000000)::bigint";

/// The first of the columns of a dead letter, of which there are four.
pub(super) const DEAD: usize = 4;

/// Only what is ours: nobody was given it since.
const MINE: &str =
    "FROM unnest($1::bigint[], $2::bigint[]) AS mine (id, fence) WHERE t.id = mine.id AND t.fence = mine.fence";

/// The message of a row that begins with [`COLUMNS`]. What somebody else wrote there is read as what somebody else sent.
pub(super) fn message(session: &Session, queue: &str, row: &Row, ours: Duration) -> Result<Message, PgError> {
    let id: i64 = get(session, row, 0)?;
    let headers: Vec<&str> = get(session, row, 2)?;
    let body: &[u8] = get(session, row, 3)?;
    let reason: Option<&str> = get(session, row, DEAD)?;
    let mut incoming = Incoming::new();
    for pair in headers.chunks(2) {
        let [name, value] = pair else { continue };
        if reason.is_none() || !is_of_a_dead_letter(name) {
            incoming.field(name, value.as_bytes());
        }
    }
    if let Some(reason) = reason {
        incoming.field(names::DEAD_REASON, reason.as_bytes());
        if let Some(detail) = get::<Option<&str>>(session, row, DEAD + 1)? {
            incoming.field(names::DEAD_DETAIL, detail.as_bytes());
        }
        if let Some(attempts) = get::<Option<i32>>(session, row, DEAD + 2)? {
            incoming.field(names::DEAD_ATTEMPTS, counted(attempts).to_string().as_bytes());
        }
        if let Some(at) = get::<Option<i64>>(session, row, DEAD + 3)? {
            incoming.field(names::DEAD_AT, utc(wall(at).as_nanos() / 1_000_000).as_str().as_bytes());
        }
    }
    Ok(incoming.finish(format_args!("{queue}-{id}"), body.to_vec().into(), ours))
}

/// Whether this is a field that a dead letter has beside those it came with.
pub(super) fn is_of_a_dead_letter(name: &str) -> bool {
    name.get(..names::DEAD.len()).is_some_and(|start| start.eq_ignore_ascii_case(names::DEAD))
}

pub(super) fn get<'a, T: FromSql<'a>>(session: &Session, row: &'a Row, column: usize) -> Result<T, PgError> {
    row.try_get(column).map_err(|error| session.database_error(Outcome::Applied, error))
}

/// PostgreSQL's numbers have a sign.
pub(super) fn counted(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

/// Of microseconds since 1970.
pub(super) fn wall(micros: i64) -> Wall {
    Wall::from_nanos(u64::try_from(micros).unwrap_or(0).saturating_mul(1_000))
}

/// A hundred years are for ever.
fn micros(span: Duration) -> i64 {
    const FOR_EVER: i64 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(span.as_micros()).unwrap_or(FOR_EVER).min(FOR_EVER)
}

fn apart(mine: &[Mine]) -> (Vec<i64>, Vec<i64>) {
    mine.iter().map(|mine| (mine.id, mine.fence)).unzip()
}

// === Headers ===

impl ToSql for Headers<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        const DIMENSIONS: i32 = 1;
        const HAS_NULLS: i32 = 0;
        const FIRST: i32 = 1;
        out.put_i32(DIMENSIONS);
        out.put_i32(HAS_NULLS);
        out.put_u32(Type::TEXT.oid());
        let length_at = out.len();
        out.put_i32(0);
        out.put_i32(FIRST);
        let (mut texts, mut too_long) = (0_i32, None);
        self.0.write("ce-", |name, value| {
            for text in [name, value] {
                match i32::try_from(text.len()) {
                    Ok(bytes) => out.put_i32(bytes),
                    Err(error) => too_long = Some(error),
                }
                out.put_slice(text.as_bytes());
                texts += 1;
            }
        });
        if let Some(error) = too_long {
            return Err(error.into());
        }
        if let Some(length) = out.get_mut(length_at..length_at + 4) {
            length.copy_from_slice(&texts.to_be_bytes());
        }
        Ok(IsNull::No)
    }

    fn accepts(of: &Type) -> bool {
        *of == Type::TEXT_ARRAY
    }

    to_sql_checked!();
}

impl fmt::Debug for Headers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the header fields of {}", self.0)
    }
}
