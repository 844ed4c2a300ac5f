//! D9: a late interrupt never hits the next statement.
//!
//! A statement's natural end and its cut-off are made to coincide: its length follows the outcomes, longer after an end
//! and shorter after a cut-off, so that it hovers where the two meet. An innocent statement is next on the connection.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::Operation;
use oneclock_sqlite::rusqlite::{Connection, InterruptHandle};
use tokio::sync::oneshot;

use crate::support::{Folder, count_to, ms, operation};

const TRIES: usize = 600;
const BUDGET: Duration = ms(6);
/// Some milliseconds of counting: long enough to be hit.
const INNOCENT: i64 = 8_000;

/// How far to count so that it takes about as long as the budget.
struct Length(f64);

#[derive(Debug, Default)]
struct Seen {
    ended: usize,
    cut_off: usize,
    harmed: usize,
}

impl Length {
    fn measured(connection: &Connection) -> Self {
        let began = oneclock::clock::now();
        count_to(connection, 200_000).unwrap();
        let each = oneclock::clock::now().since(began).as_secs_f64() / 200_000.0;
        Self(BUDGET.as_secs_f64() / each)
    }

    fn now(&self) -> i64 {
        self.0 as i64
    }

    fn follow(&mut self, was_cut_off: bool, seen: &mut Seen) {
        if was_cut_off {
            seen.cut_off += 1;
            self.0 *= 0.97;
        } else {
            seen.ended += 1;
            self.0 *= 1.03;
        }
    }
}

impl Seen {
    /// Otherwise the two did not coincide, and nothing was tested.
    fn assert_coincided(&self) {
        assert!(self.ended > TRIES / 10 && self.cut_off > TRIES / 10, "{self:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_a_late_interrupt_never_hits_the_next_statement() {
    let folder = Folder::new();
    let pool = folder.pool(|pool| pool.size(1).min_useful(ms(1)));
    let mut length = Length::measured(&folder.outside());
    let mut seen = Seen::default();
    let innocents = operation(Duration::from_secs(600));
    for _ in 0..TRIES {
        let op = Operation::begin("op", BUDGET);
        let n = length.now();
        let cut = pool.run_in(&op, "cut", move |conn| count_to(conn, n));
        let innocent = pool.run_in(&innocents, "innocent", |conn| count_to(conn, INNOCENT)); // waits for its turn
        let (cut, innocent) = tokio::join!(biased; cut, innocent);
        length.follow(cut.is_err(), &mut seen);
        seen.harmed += usize::from(!matches!(innocent, Ok(INNOCENT)));
    }
    seen.assert_coincided();
    assert_eq!(seen.harmed, 0, "{seen:?}");
    assert_eq!(pool.status().discarded, 0);
}

/// The usual way: whoever waited interrupts when the answer did not come in time.
async fn naive(connection: &Arc<Mutex<Connection>>, stops: &InterruptHandle, n: i64) -> (bool, bool) {
    let (answers, answer) = oneshot::channel();
    let (has, had) = std::sync::mpsc::channel();
    let on = Arc::clone(connection);
    let cut = tokio::task::spawn_blocking(move || {
        let counted = {
            let connection = on.lock().unwrap();
            has.send(()).unwrap();
            count_to(&connection, n)
        };
        let cut_off = counted.is_err();
        let _ = answers.send(counted);
        cut_off
    });
    let on = Arc::clone(connection);
    let innocent = tokio::task::spawn_blocking(move || {
        had.recv().unwrap();
        count_to(&on.lock().unwrap(), INNOCENT).is_err() // waits for its turn
    });
    if tokio::time::timeout(BUDGET, answer).await.is_err() {
        stops.interrupt();
    }
    (cut.await.unwrap(), innocent.await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d9_without_the_fence_it_hits_some() {
    let folder = Folder::new();
    drop(folder.pool(|pool| pool));
    let connection = folder.outside();
    let mut length = Length::measured(&connection);
    let stops = connection.get_interrupt_handle();
    let connection = Arc::new(Mutex::new(connection));
    let mut seen = Seen::default();
    // It may take more tries on another machine; that one is hit is the point.
    for _ in 0..TRIES * 5 {
        let (cut_off, harmed) = naive(&connection, &stops, length.now()).await;
        length.follow(cut_off, &mut seen);
        seen.harmed += usize::from(harmed);
        if seen.harmed > 0 && seen.ended + seen.cut_off >= TRIES {
            break;
        }
    }
    seen.assert_coincided();
    assert!(seen.harmed > 0, "then the fence would not be needed: {seen:?}");
    eprintln!("without the fence: {seen:?}");
}
