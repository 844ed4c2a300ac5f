//! What a line costs that nobody wants. Alone in its process, since what subscribers want is remembered for all of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock::Operation;
use oneclock_telemetry::Logs;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Wants errors only, and counts how often it is asked for a line of ours, and given one.
#[derive(Clone, Default)]
struct Errors(Arc<[AtomicUsize; 2]>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let ours = metadata.target() == oneclock_telemetry::logs::TARGET;
        self.0[0].fetch_add(usize::from(ours), Ordering::Relaxed);
        *metadata.level() <= Level::ERROR
    }

    fn event(&self, _: &Event<'_>) {
        self.0[1].fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_line_that_nobody_wants_is_not_made() {
    let errors = Errors::default();
    let _guard = tracing::subscriber::set_default(errors.clone());
    let logs: Arc<dyn oneclock::events::Observer> = Arc::new(Logs::new());
    for n in 0..100 {
        let op = Operation::begin("order", Duration::from_millis(20)).observed_by(logs.clone());
        match n % 3 {
            0 => op.run(std::future::pending::<()>()).await.unwrap_err(), // a warning
            1 => {
                op.call_off();
                continue;
            }
            _ => continue, // done
        };
    }
    let [asked, given] = [0, 1].map(|n| errors.0[n].load(Ordering::Relaxed));
    assert_eq!(given, 0);
    assert!(asked <= 3, "asked {asked} times: once for each of the three levels, not for each line");
}
