//! What is written is read again, and nothing else is taken for it.

use super::*;
use crate::Stage;
use crate::wire::account_properties as properties;
use proptest::prelude::*;

const fn at(ms: u64) -> Tick {
    Tick::from_nanos(ms * 1_000_000)
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn read(field: &str) -> Option<Account> {
    Account::parse(field.as_bytes())
}

#[test]
fn an_account_is_found_among_the_entries_of_others() {
    let ours = "oneclock;desc=order;dur=812.4, queue;dur=180, unaccounted;dur=12.4, left;dur=70";
    let account = read(ours).unwrap();
    assert_eq!(account.to_string(), "order 812.4ms: queue 180ms, unaccounted 12.4ms, left 70ms");
    for around in [
        format!("db;dur=53, {ours}"),
        format!("cache;desc=\"a, oneclock;dur=1, \\\" left\";dur=2.5,{ours},app;dur=47.2"),
        format!("miss,,{ours}, oneclock;dur=9, left;dur=1"),
        ours.replace("queue;dur=180,", "queue;dur=180, no dur, (;dur=1, empty;dur=,"),
    ] {
        assert_eq!(read(&around), Some(account.clone()), "{around}");
    }
}

#[test]
fn what_is_no_account_is_none() {
    for none in [
        "",
        "db;dur=53, left;dur=1",
        "oneclock;dur=5",
        "oneclock;dur=5, queue;dur=2",
        "oneclock, left;dur=1",
        "oneclock;dur=-5, left;dur=1",
        "oneclock;dur=1e3, left;dur=1",
        "oneclock;dur=inf, left;dur=1",
        "oneclock;dur=12345678901, left;dur=1",
        "Oneclock;dur=5, left;dur=1",
        "oneclock;dur=5, left;dur=1\u{e9}",
    ] {
        assert_eq!(read(none), None, "{none}");
    }
    let long = format!("{}oneclock;dur=5, left;dur=1", " ".repeat(LONGEST_FIELD));
    assert_eq!(read(&long), None);
    let many = format!("oneclock;dur=5{}, left;dur=1", ", a;dur=1".repeat(MAX_ENTRIES));
    assert_eq!(read(&many), None, "more entries than an account has");
}

#[test]
fn names_cannot_break_the_field_or_be_taken_for_ours() {
    let mut ledger = Ledger::new(at(0));
    for name in ["left", "a, oneclock;dur=1", "/shop.Pricing/Price", "\r\nset-cookie: a=b", ""] {
        let entry = ledger.open(name, Stage::Wait, None, at(0));
        ledger.close(entry, at(1));
    }
    let account = Account::of(&"ordér\"".into(), &ledger, Deadline::after(at(0), ms(5)), at(2));
    assert_eq!(
        account.to_field(),
        "oneclock;desc=ord__r_;dur=2, left_;dur=1, a__oneclock_dur_1;dur=1, _shop.Pricing_Price;dur=1, \
         __set-cookie__a_b;dur=1, _;dur=1, unaccounted;dur=1, left;dur=3"
    );
    properties::account(&account);
}

#[test]
fn a_ledger_that_is_too_long_is_folded_and_adds_up() {
    let mut ledger = Ledger::new(at(0));
    for n in 0..200 {
        let entry = ledger.open(format!("call-{n}"), Stage::Wait, None, at(n));
        ledger.close(entry, at(n + 1));
    }
    let account = Account::of(&"order".into(), &ledger, Deadline::after(at(0), ms(500)), at(210));
    assert_eq!(account.spent.len() + 3, MAX_ENTRIES);
    assert_eq!(account.spent.iter().map(|spent| spent.took).sum::<Duration>() + account.unaccounted, account.took);
    assert_eq!((account.unaccounted, account.left), (ms(10), ms(290)));
    properties::account(&account);
}

#[test]
fn taking_it_out_leaves_what_others_said() {
    let ours = "oneclock;desc=order;dur=8, queue;dur=1, unaccounted;dur=7, left;dur=70";
    for (field, rest) in [
        ("db;dur=53", None),
        (ours, Some("")),
        ("oneclock;dur=5, cut;dur=1", Some("")),
        (&format!("db;desc=\"a, b\";dur=53,{ours}, app"), Some("db;desc=\"a, b\";dur=53, app")),
    ] {
        assert_eq!(Account::taken_out(field.as_bytes()).as_deref(), rest, "{field}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_within_bounds(field: Vec<u8>) {
        properties::field(&field);
    }

    #[test]
    fn nearly_accounts_are_read_within_bounds(
        pieces in prop::collection::vec(
            prop_oneof![
                Just("oneclock"), Just(";dur="), Just(";desc="), Just("12.5"), Just(", "), Just("left"), Just("\""),
                Just("unaccounted"), Just("\\"), Just("queue;dur=1"), Just("left;dur=2"), Just("é"),
            ],
            0..40,
        ),
    ) {
        properties::field(pieces.concat().as_bytes());
    }

    #[test]
    fn what_is_written_is_read_again(
        entries in prop::collection::vec(("\\PC{0,80}", 0u64..500, 0u64..5_000_000_000), 0..80),
        until in 0u64..10_000_000_000,
    ) {
        let mut ledger = Ledger::new(at(0));
        for (name, began, took) in entries {
            let entry = ledger.open(name, Stage::Wait, None, at(began));
            ledger.close(entry, at(began) + Duration::from_nanos(took));
        }
        let now = at(6_000) + Duration::from_nanos(until);
        properties::account(&Account::of(&"order".into(), &ledger, Deadline::after(at(0), ms(9_000)), now));
    }
}
