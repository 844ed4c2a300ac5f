//! One clock: monotonic, and paused with tokio's.

use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::{Deadline, Tick};

use crate::support::ms;

#[tokio::test(start_paused = true)]
async fn k1_a_paused_clock_stands_still_and_moves_as_told() {
    let before = clock::now();
    std::thread::sleep(ms(5)); // the wall clock goes on; ours does not
    assert_eq!(clock::now(), before);
    tokio::time::advance(ms(250)).await;
    assert_eq!(clock::now().since(before), ms(250));
}

/// V8 cannot set the machine's clock here. What can be shown: an hour of our clock passes while the wall clock stands
/// nearly still, and only ours decides.
#[tokio::test(start_paused = true)]
async fn v8_what_is_left_follows_our_clock_whatever_the_wall_clock_says() {
    let wall = std::time::SystemTime::now();
    let op = Operation::begin("nightly", Duration::from_secs(3_600));
    tokio::time::advance(Duration::from_secs(3_599)).await;
    assert_eq!(op.remaining(), Duration::from_secs(1));
    assert!(op.checkpoint().is_ok());
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(op.checkpoint().is_err());
    assert!(wall.elapsed().is_ok_and(|passed| passed < Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn k1_instants_and_ticks_are_the_same_moments() {
    let deadline = Deadline::after(clock::now(), ms(123));
    assert_eq!(clock::tick(clock::instant(deadline)), deadline.tick());
    tokio::time::sleep_until(clock::instant(deadline)).await;
    assert!(deadline.is_past(clock::now()), "a timer for it does not fire before it");
}

#[test]
fn p6_the_end_of_the_clock_is_an_instant_and_no_panic() {
    let last = clock::instant(Deadline::at(Tick::MAX));
    assert!(clock::tick(last) > clock::now());
    assert!(clock::tick(clock::instant(Deadline::at(Tick::default()))) <= clock::now());
}
