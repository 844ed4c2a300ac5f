//! What whoever is on call asks of a queue: how much waits, how fast it comes and goes, and what it is.
//!
//! Decides how long until it is empty, from what is there and what was counted. Reads only: no lease is taken, nothing is locked.

use std::time::Duration;

use oneclock_core::wire::Wall;
use oneclock_queue::{BrokerError, Depth, Inspect, Lane, Message};

use super::PgQueue;
use super::counts::{SLOT, Slot};
use super::table::{COLUMNS, DEAD, counted, get, message, wall};
use crate::error::PgError;
use crate::session::Session;

/// How a queue stands at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct QueueStats {
    /// What is to be done.
    pub main: LaneStats,
    /// What is to be done late.
    pub late: LaneStats,
    /// What somebody has to look at.
    pub dead: LaneStats,
    /// Why, most frequent first; at most 64 reasons.
    pub dead_reasons: Vec<(String, u64)>,
    /// How fast the main lane is filled and emptied.
    pub rates: Rates,
}

/// How one lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStats {
    /// May be taken now.
    pub ready: u64,
    /// Comes later: given back for a while.
    pub delayed: u64,
    /// Being worked on.
    pub leased: u64,
    /// For how long the oldest of those that are ready has been in this lane.
    pub oldest: Option<Duration>,
}

/// How fast the main lane is filled and emptied, over the last minute.
///
/// What left it in the last two seconds may not be counted yet, nor what a process had counted that was killed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Rates {
    /// How many jobs came in `over`.
    pub came: u64,
    /// How many left in `over`, whatever became of them.
    pub gone: u64,
    /// What time that is.
    pub over: Duration,
}

/// A job as it stands there.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// The number of its row.
    pub row: i64,
    /// The message.
    pub message: Message,
    /// How often it was delivered.
    pub attempts: u32,
    /// When it came into this lane.
    pub enqueued: Wall,
    /// Who works on it, if somebody does.
    pub leased_by: Option<String>,
    /// In how long it can be taken, or comes again if nobody says otherwise; zero if now.
    pub free_in: Duration,
}

/// How many slots before the one that runs are looked at.
const WINDOW: Slot = 5;

// === PgQueue ===

impl PgQueue {
    /// How the queue stands. Counts every row of it: for people and for a scrape now and then.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn stats(&self) -> Result<QueueStats, BrokerError> {
        let asked = async {
            let mut client = self.client("stats").await?;
            self.flush_if_due(&mut client).await;
            read(&mut client, self.0.name.as_str()).await
        };
        asked.await.map_err(self.failed("ask how it stands"))
    }

    /// The first `limit` jobs of a lane, in the order in which they are taken, whoever has them.
    ///
    /// # Errors
    /// [`BrokerError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn list(&self, lane: Lane, limit: usize) -> Result<Vec<Listed>, BrokerError> {
        let asked = async {
            let mut client = self.client("list").await?;
            let sql = format!(
                "SELECT {COLUMNS}, (extract(epoch FROM t.enqueued_at) * 1000000)::bigint,
                     CASE WHEN t.lease_until > at.now THEN t.leased_by END,
                     CASE WHEN greatest(t.visible_at, t.lease_until) > at.now THEN least(
                         extract(epoch FROM greatest(t.visible_at, t.lease_until) - at.now) * 1000000, 1e17
                     )::bigint ELSE 0 END
                 FROM (SELECT clock_timestamp() AS now) AS at CROSS JOIN oneclock_queue AS t
                 WHERE t.queue = $1 AND t.lane = $2 ORDER BY t.visible_at, t.id LIMIT $3"
            );
            let (name, ours) = (self.0.name.as_str(), self.0.uncertainty.get());
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = client.query(&sql, &[&name, &lane.as_str(), &limit]).await?;
            let listed = rows.iter().map(|row| {
                Ok(Listed {
                    row: get(&client, row, 0)?,
                    message: message(&client, name, row, ours)?,
                    attempts: counted(get(&client, row, 1)?),
                    enqueued: wall(get(&client, row, DEAD + 4)?),
                    leased_by: get(&client, row, DEAD + 5)?,
                    free_in: Duration::from_micros(unsigned(get(&client, row, DEAD + 6)?)),
                })
            });
            listed.collect::<Result<_, PgError>>()
        };
        asked.await.map_err(self.failed("look into a lane"))
    }
}

impl Inspect for PgQueue {
    /// What ever left the main lane is known two seconds later; until then what came is told as so much less.
    async fn depth(&self, lane: Lane) -> Result<Depth, BrokerError> {
        let asked = async {
            let mut client = self.client("depth").await?;
            self.flush_if_due(&mut client).await;
            let sql = "SELECT count(*) FILTER (WHERE t.lease_until > statement_timestamp()), count(*),
                           (SELECT coalesce(sum(d.gone), 0)::bigint FROM oneclock_queue_drained AS d WHERE d.queue = $1::text)
                       FROM oneclock_queue AS t WHERE t.queue = $1::text AND t.lane = $2::text";
            let row = client.query_one(sql, &[&self.0.name.as_str(), &lane.as_str()]).await?;
            let number = |column| get::<i64>(&client, &row, column).map(unsigned);
            let (in_flight, all, went) = (number(0)?, number(1)?, number(2)?);
            let mut depth = Depth::default();
            (depth.waiting, depth.in_flight) = (Some(all - in_flight), Some(in_flight));
            if lane == Lane::Main {
                (depth.came, depth.went) = (Some(went + all), Some(went));
            }
            Ok(depth)
        };
        asked.await.map_err(self.failed("ask how much is in a lane"))
    }

    async fn peek(&self, lane: Lane, at_most: usize) -> Result<Vec<Message>, BrokerError> {
        Ok(self.list(lane, at_most).await?.into_iter().map(|listed| listed.message).collect())
    }
}

async fn read(session: &mut Session, queue: &str) -> Result<QueueStats, PgError> {
    let sql = format!(
        "WITH at AS MATERIALIZED (
             SELECT clock_timestamp() AS now, floor(extract(epoch FROM clock_timestamp()) / {SLOT})::bigint - {WINDOW} AS slot
         ),
         jobs AS (
             SELECT t.lane, t.enqueued_at, t.dead_reason, coalesce(t.lease_until > at.now, false) AS is_leased,
                 t.visible_at > at.now AS is_delayed, t.enqueued_at >= to_timestamp(at.slot * {SLOT}) AS is_new
             FROM oneclock_queue AS t CROSS JOIN at WHERE t.queue = $1::text
         ),
         drained AS (
             SELECT coalesce(sum(d.gone), 0)::bigint AS gone, coalesce(sum(d.came), 0)::bigint AS came
             FROM oneclock_queue_drained AS d CROSS JOIN at WHERE d.queue = $1::text AND d.slot >= at.slot
         )
         SELECT 0, j.lane, count(*) FILTER (WHERE NOT is_leased AND NOT is_delayed), count(*) FILTER (WHERE NOT is_leased AND is_delayed),
             count(*) FILTER (WHERE is_leased),
             (extract(epoch FROM (SELECT now FROM at) - min(j.enqueued_at) FILTER (WHERE NOT is_leased AND NOT is_delayed))
                 * 1000000)::bigint,
             count(*) FILTER (WHERE is_new)
         FROM jobs AS j GROUP BY j.lane
         UNION ALL (
             SELECT 1, coalesce(j.dead_reason, ''), count(*), 0, 0, NULL, 0 FROM jobs AS j WHERE j.lane = 'dead'
             GROUP BY j.dead_reason ORDER BY count(*) DESC LIMIT 64
         )
         UNION ALL SELECT 2, '', d.gone, d.came, (extract(epoch FROM at.now - to_timestamp(at.slot * {SLOT})) * 1000000)::bigint,
             NULL, 0 FROM drained AS d CROSS JOIN at"
    );
    let mut stats = QueueStats::default();
    for row in session.query(&sql, &[&queue]).await? {
        let number = |column| get::<i64>(session, &row, column).map(unsigned);
        let (part, word): (i32, &str) = (get(session, &row, 0)?, get(session, &row, 1)?);
        match part {
            0 => {
                let lane = LaneStats {
                    ready: number(2)?,
                    delayed: number(3)?,
                    leased: number(4)?,
                    oldest: get::<Option<i64>>(session, &row, 5)?.map(|micros| Duration::from_micros(unsigned(micros))),
                };
                match word {
                    "late" => stats.late = lane,
                    "dead" => stats.dead = lane,
                    _ => {
                        stats.main = lane;
                        stats.rates.came += number(6)?;
                    }
                }
            }
            1 => stats.dead_reasons.push((word.to_owned(), number(2)?)),
            _ => {
                stats.rates.gone = number(2)?;
                stats.rates.came += number(3)?;
                stats.rates.over = Duration::from_micros(number(4)?);
            }
        }
    }
    Ok(stats)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

// === QueueStats ===

impl QueueStats {
    /// How long until the main lane is empty if it goes on like this. `None`: never, since it grows or stands.
    pub fn time_to_empty(&self) -> Option<Duration> {
        self.rates.time_to_empty(self.main.len())
    }
}

// === LaneStats ===

impl LaneStats {
    /// How many jobs it has.
    pub const fn len(&self) -> u64 {
        self.ready + self.delayed + self.leased
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === Rates ===

impl Rates {
    /// How many jobs come in a second.
    pub fn inflow(&self) -> f64 {
        self.per_second(self.came)
    }

    /// How many leave in a second.
    pub fn drain(&self) -> f64 {
        self.per_second(self.gone)
    }

    fn per_second(&self, jobs: u64) -> f64 {
        if self.over.is_zero() { 0.0 } else { jobs as f64 / self.over.as_secs_f64() }
    }

    fn time_to_empty(&self, jobs: u64) -> Option<Duration> {
        if jobs == 0 {
            return Some(Duration::ZERO);
        }
        let net = self.gone.checked_sub(self.came).filter(|net| *net > 0)?;
        Duration::try_from_secs_f64(self.over.as_secs_f64() * (jobs as f64 / net as f64)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_empty_when_more_leaves_than_comes_for_long_enough() {
        let rates = |came, gone| Rates { came, gone, over: Duration::from_secs(50) };
        assert_eq!(rates(0, 100).time_to_empty(200), Some(Duration::from_secs(100)));
        assert_eq!(rates(50, 100).time_to_empty(200), Some(Duration::from_secs(200)));
        assert_eq!(rates(100, 100).time_to_empty(200), None, "it stands");
        assert_eq!(rates(101, 100).time_to_empty(200), None, "it grows");
        assert_eq!(rates(101, 100).time_to_empty(0), Some(Duration::ZERO));
        assert_eq!(Rates::default().drain(), 0.0);
    }
}
