//! The shutdown of the process, and a server's: a binary of its own, since it is signalled once and for all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::{Debug, Write as _};
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use oneclock::{Operation, Shutdown};
use oneclock_core::Cause;
use oneclock_http::serve;
use tokio::net::TcpListener;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// Keeps the warnings.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Visit for Log {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0.lock().expect("not poisoned"), "{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn x10_a_job_outside_of_requests_is_ended_and_waited_for_by_the_server_that_shares_its_shutdown() {
    let job = Operation::begin("nightly", Duration::from_secs(60));
    let endless = job.spawn("copy", pending::<()>());

    // A server with a shutdown of its own leaves it alone, and says so.
    let log = Log::default();
    let logging = subscriber::set_default(log.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    serve(listener, Router::new()).shutdown(async {}, Duration::ZERO).await.unwrap();
    drop(logging);
    assert_eq!(job.ending(), None);
    let said = log.0.lock().unwrap().clone();
    assert!(said.contains("tasks=1") && said.contains("with_shutdown(Shutdown::process())"), "{said}");

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = serve(listener, Router::new()).with_shutdown(Shutdown::process());
    server.shutdown(async {}, Duration::from_millis(20)).await.unwrap();
    assert_eq!(job.ending().unwrap().cause, Cause::Shutdown);
    assert_eq!(Shutdown::process().tasks(), 0, "it was waited for");
    assert!(endless.await.is_err());
}
