//! Opening a connection, and making it whole again after a borrow.
//!
//! Decides the settings every borrower finds, and whether a connection may be lent again (contract D7).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::fence::Fence;

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(PathBuf),
    /// In memory, under a name that this pool's connections share and no other pool has.
    Memory(String),
}

/// What every connection is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) synchronous: Synchronous,
    pub(crate) foreign_keys: bool,
    pub(crate) write_ahead_log: bool,
    pub(crate) statements_kept: usize,
}

/// How far SQLite waits for the disk (`PRAGMA synchronous`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Synchronous {
    /// Never. A crash of the machine may corrupt the database.
    Off,
    /// At checkpoints. With a write-ahead log a crash of the machine may lose the last commits, and corrupts nothing.
    #[default]
    Normal,
    /// At each commit: what was committed is on the disk.
    Full,
}

/// A connection with its fence.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) connection: Connection,
    pub(crate) fence: Arc<Fence>,
}

// === Place ===

impl Place {
    /// A new database in memory.
    pub(crate) fn memory() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let n = MADE.fetch_add(1, Ordering::Relaxed);
        // Of the `memdb` file system and not a shared cache: there a taken lock is an error at once, which no handler waits
        // for.
        Self::Memory(format!("file:/oneclock-{}-{n}?vfs=memdb", std::process::id()))
    }

    pub(crate) fn open(&self) -> rusqlite::Result<Slot> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match self {
            Self::File(path) => Connection::open_with_flags(path, flags)?,
            Self::Memory(uri) => Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?,
        };
        let fence = Fence::new(&connection);
        Ok(Slot { connection, fence })
    }
}

// === Settings ===

impl Settings {
    /// Sets what stays for the life of the connection.
    pub(crate) fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.write_ahead_log {
            // Answers with the mode in force; a database in memory keeps its own.
            connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        }
        connection.set_prepared_statement_cache_capacity(self.statements_kept);
        self.restore(connection)
    }

    /// Sets what a borrower may have changed for itself.
    fn restore(&self, connection: &Connection) -> rusqlite::Result<()> {
        // First what waits for nobody: the other may have to read the database, which somebody else can hold.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, self.foreign_keys)?;
        connection.pragma_update(None, "synchronous", self.synchronous.as_str())
    }

    /// Makes a connection whole after a borrow that is over, so that no interrupt can hit what this runs. False if it
    /// must not be lent again.
    pub(crate) fn heal(&self, connection: &Connection, disturbed: bool) -> bool {
        // Also not if a lock was in the way: then it may have the settings of the borrower.
        self.reset(connection).unwrap_or(false)
            && (!disturbed || answers(connection))
            && connection.is_autocommit()
            && !connection.is_busy()
    }

    /// False if something of the borrower's stays.
    fn reset(&self, connection: &Connection) -> rusqlite::Result<bool> {
        // What the borrow put there goes with it; the next one brings its own.
        connection.progress_handler(0, None::<fn() -> bool>)?;
        connection.commit_hook(None::<fn() -> bool>)?;
        connection.rollback_hook(None::<fn()>)?;
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        self.restore(connection)?;
        if connection.pragma_query_value(None, "query_only", |row| row.get(0))? {
            connection.pragma_update(None, "query_only", false)?;
        }
        has_nothing_attached(connection)
    }
}

/// Whether it has the pool's database alone: nothing attached, and nothing temporary. Asks the connection, not the disk.
fn has_nothing_attached(connection: &Connection) -> rusqlite::Result<bool> {
    let mut uses_temporary = false;
    let mut others = 0;
    connection.pragma_query(None, "database_list", |row| {
        match row.get_ref("name")?.as_str()? {
            "main" => {}
            "temp" => uses_temporary = true, // from its first use on, also when it is empty again
            _ => others += 1,
        }
        Ok(())
    })?;
    let is_empty = |connection: &Connection| {
        connection.query_row("SELECT count(*) = 0 FROM temp.sqlite_schema", [], |row| row.get(0))
    };
    Ok(others == 0 && (!uses_temporary || is_empty(connection)?))
}

/// Whether it still answers, with a read of the database itself.
fn answers(connection: &Connection) -> bool {
    match connection.query_row("SELECT count(*) FROM sqlite_schema LIMIT 1", [], |_| Ok(())) {
        Ok(()) => true,
        // Somebody else holds the database, and this one can tell: it works.
        Err(error) => error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy),
    }
}

impl Synchronous {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Normal => "normal",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Memory(_) => f.write_str("in memory"),
        }
    }
}
