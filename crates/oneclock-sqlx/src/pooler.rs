//! What stands in front of the server (contract D8).
//!
//! Behind a transaction pooler a backend belongs to somebody else as soon as a transaction is over: a bound set there is
//! somebody else's, and so is the statement that a cancel hits. It is looked for before anything is lent.

use oneclock_core::statement::{PoolerSign, SessionsSeen, pooler_sign};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::conn::backend;

/// Looks with two sessions, the second inside a transaction: a pooler must then give the first another backend.
pub(crate) async fn look(
    first: &mut PgConnection,
    options: &PgConnectOptions,
) -> Result<Option<PoolerSign>, sqlx::Error> {
    let mut second = options.connect().await?;
    let mut seen_by_first = vec![backend(first).await?];
    sqlx::raw_sql("BEGIN").execute(&mut second).await?;
    let seen_by_second = [backend(&mut second).await?];
    let sign = |first: &[i32]| pooler_sign(SessionsSeen { first, second: &seen_by_second, ..SessionsSeen::default() });
    if let Some(sign) = sign(&seen_by_first) {
        return Ok(Some(sign)); // asking on would wait for a pooler that has no other backend
    }
    seen_by_first.push(backend(first).await?);
    Ok(sign(&seen_by_first))
}
