//! What a configuration may say.

use std::time::Duration;

use oneclock_sqlx::{BadPool, Pool};

use crate::support::ms;

#[test]
fn contradictions_show_when_a_pool_is_built() {
    let pool = || Pool::builder("postgres://postgres@127.0.0.1/postgres");
    assert!(matches!(pool().size(0).build(), Err(BadPool::NoConnections)));
    assert!(matches!(pool().size(usize::MAX).build(), Err(BadPool::TooManyConnections { .. })));
    assert!(matches!(pool().max_waiting(0).build(), Err(BadPool::NoPlaces)));
    assert!(matches!(pool().cap("lookup", ms(4)).build(), Err(BadPool::Cap { .. })), "less than is useful");
    assert!(matches!(pool().cap("lookup", Duration::ZERO).build(), Err(BadPool::Cap { .. })));
    assert!(matches!(Pool::builder("no address").build(), Err(BadPool::Address { .. })));
    assert!(pool().cap("lookup", ms(50)).cap("report", ms(5_000)).build().is_ok());
}
