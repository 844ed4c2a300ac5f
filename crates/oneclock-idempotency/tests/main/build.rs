//! What contradicts itself shows when a service is put together.

use oneclock_core::idempotency::Horizons;
use oneclock_idempotency::{BadIdempotency, Idempotency, IdempotencyBuilder, MemoryStore};

use crate::support::ms;

type Of = fn(IdempotencyBuilder<MemoryStore>) -> IdempotencyBuilder<MemoryStore>;

#[track_caller]
fn refuses(of: Of, sentence: &str) {
    let error =
        of(Idempotency::builder("charge", MemoryStore::new()).one_principal()).build().expect_err("contradicts itself");
    assert!(error.to_string().contains(sentence), "{error}");
}

#[test]
fn m8_somebody_has_to_say_whose_keys_they_are() {
    let error = Idempotency::builder("charge", MemoryStore::new()).build().unwrap_err();
    assert!(matches!(error, BadIdempotency::NoPrincipal), "{error}");
}

#[test]
fn m9_retention_outlives_what_may_come_back() {
    refuses(|l| l.retention(ms(1_000)), "20s is the least");
    let days: Of = |l| l.horizons(Horizons { redelivery: ms(3 * 86_400_000), ..Horizons::default() });
    refuses(days, "records kept for 86400s would be gone");
}

#[test]
fn m3_a_lease_outlasts_its_run() {
    refuses(|l| l.lease(ms(16_999)), "a lease of 16.999s would lapse under its run, which may take 17s");
    assert!(Idempotency::builder("c", MemoryStore::new()).one_principal().lease(ms(17_000)).build().is_ok());
}

#[test]
fn m7_what_belongs_to_one_exchange_is_not_replayed() {
    refuses(|l| l.replays(http::header::SET_COOKIE), "set-cookie");
    refuses(|l| l.max_runs(0), "0 runs");
}
