//! What a service does for one request: statements on its own database. The same with independent timeouts and with one
//! budget; only who runs them differs. In SQLite; `postgres` says the same in PostgreSQL's words.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use oneclock::clock;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;

use crate::purchase::{Service, Try};
use crate::report::Charges;
use crate::trouble::{Control, Trouble};
use crate::witness::Witness;

/// One service, without its way of keeping time.
#[derive(Clone)]
pub(crate) struct Stand {
    pub(crate) service: Service,
    pub(crate) control: Control,
    pub(crate) witness: Arc<Witness>,
    /// How long its statement takes while all is well.
    pub(crate) usual: Duration,
    /// Whether it takes its time in one step.
    pub(crate) deaf: bool,
}

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS done (
        tap INTEGER NOT NULL, visit INTEGER NOT NULL, try INTEGER NOT NULL,
        article INTEGER NOT NULL, caller_there INTEGER NOT NULL
    )";

/// Steps until as many milliseconds have gone by as it was told to take: a long statement that can be interrupted between
/// two of its steps, as they all can.
const WORK: &str = "
    WITH RECURSIVE step(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM step WHERE elapsed_ms() < ?1)
    SELECT max(n) FROM step";

const RECORD: &str = "INSERT INTO done (tap, visit, try, article, caller_there) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Taps charged more than once count for every charge beyond the first.
const CHARGES: &str = "SELECT count(*) - count(DISTINCT tap), coalesce(sum(NOT caller_there), 0) FROM done";

// === Stand ===

impl Stand {
    /// What this service does for `of`: a statement that takes its time, and a record of what was done, and whether the
    /// caller was still there by then.
    pub(crate) fn statements(
        &self,
        of: Try,
        trouble: Trouble,
    ) -> impl FnOnce(&mut Connection) -> rusqlite::Result<()> + Send + 'static {
        let takes = self.takes(trouble);
        let (service, witness, deaf) = (self.service, Arc::clone(&self.witness), self.deaf);
        move |connection| {
            let working = witness.begins(service, of);
            work(connection, takes, if deaf { takes } else { STEP })?;
            let [tap, visit, number, article] = of.columns();
            let there = !witness.has_left(of);
            connection.execute(RECORD, (tap, visit, number, article, there))?;
            working.finished();
            Ok(())
        }
    }

    /// How long its statement takes.
    pub(crate) fn takes(&self, trouble: Trouble) -> Duration {
        trouble.slow_ms.map_or(self.usual, Duration::from_millis)
    }

    /// The answer, as its trouble lets it out.
    pub(crate) fn answer(&self, trouble: Trouble) -> Body {
        trouble.body(format!("{{\"{}\":\"done\"}}", self.service.name()))
    }
}

/// Makes the service's table.
pub(crate) fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)
}

/// What payment's records say.
pub(crate) fn charges(connection: &Connection) -> rusqlite::Result<Charges> {
    let count = |count: i64| usize::try_from(count).unwrap_or(0);
    connection.query_row(CHARGES, [], |row| Ok(Charges { double: count(row.get(0)?), for_nobody: count(row.get(1)?) }))
}

const STEP: Duration = Duration::from_millis(1);

fn work(connection: &Connection, takes: Duration, step: Duration) -> rusqlite::Result<()> {
    if takes.is_zero() {
        return Ok(());
    }
    let began = clock::now();
    connection.create_scalar_function("elapsed_ms", 0, FunctionFlags::SQLITE_UTF8, move |_| {
        std::thread::sleep(step);
        Ok(i64::try_from(clock::now().since(began).as_millis()).unwrap_or(i64::MAX))
    })?;
    let takes = i64::try_from(takes.as_millis()).unwrap_or(i64::MAX);
    connection.query_row(WORK, [takes], |_| Ok(()))
}
