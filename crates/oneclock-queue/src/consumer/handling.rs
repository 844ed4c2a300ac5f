//! Running the handler of one delivery.
//!
//! Decides that it runs in a task of its own, so that one which blocks its thread neither starves the heartbeat of its lease nor holds up
//! the end of its delivery: where it does not hear that its operation is over it is left behind, and may begin no step any more.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Cause, Ended, Operation, Shutdown, clock};
use oneclock_core::expiry::{Handled, Terms};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::Shared;
use super::job::{Inner, Job, JobError, known_of};
use super::tenure::Tenure;
use super::walk::Detailed;
use crate::broker::{Broker, Dead, Delivery};

/// How long a handler may take to hear that its operation is over. It takes that long only where it blocks its thread.
const HEARS_WITHIN: Duration = Duration::from_secs(1);

const BLOCKS: &str = "its handler blocks its thread, and did not hear that its operation was over";

/// What a handler's task came to.
type Came = Result<Result<Result<(), JobError>, Ended>, JoinError>;

/// Runs the handler, in an operation bounded by the work's expiry, the handler's limit and the lease.
pub(super) async fn run<B: Broker>(
    shared: &Arc<Shared<B>>,
    delivery: &B::Delivery,
    terms: &Terms,
    tenure: &Arc<Tenure>,
    fence: Option<oneclock_core::idempotency::Fence>,
    shutdown: &Shutdown,
) -> Detailed<Handled> {
    let message = delivery.message().clone();
    // Called after the queue: what a message says it is, strangers say.
    let left = terms.within.map(|within| within.saturating_sub(clock::now().since(tenure.judged())));
    let mut operation = Operation::begin(shared.broker.name().clone(), shared.limit).expires_in(left);
    if let Some(observer) = &shared.observer {
        operation = operation.observed_by(Arc::clone(observer));
    }
    let operation = operation.ended_by(shutdown);
    let (attempt, late) = (delivery.attempt(), terms.late);
    let job = Job(Arc::new(Inner {
        message,
        operation: operation.clone(),
        attempt,
        late,
        fence,
        tenure: Arc::clone(tenure),
    }));
    let handler = Arc::clone(shared);
    let mut task = AbortOnDropHandle::new(tokio::spawn(operation.run(async move { (handler.handler)(job).await })));
    let came: Option<Came> = tokio::select! {
        biased;
        came = &mut task => Some(came),
        () = tenure.keep(delivery) => {
            tenure.close();
            operation.end(Cause::CalledOff);
            task.abort();
            let _ = tokio::time::timeout(HEARS_WITHIN, &mut task).await; // gone, if it can be
            return (Handled::LeaseLost, None);
        }
        () = unheard(&operation) => None,
    };
    let known = known_of(tenure.close());
    if operation.ending().is_some_and(|ending| ending.cause == Cause::Shutdown) {
        tenure.cut_short();
    }
    // At the end of its work's life it ends as the contract of that says, and is not tried again first.
    let cut_off = || {
        tenure.still_begins(clock::now()).map_or_else(|stop| Handled::Stopped(stop, known), |()| Handled::CutOff(known))
    };
    match came {
        Some(Ok(Ok(Ok(())))) => (Handled::Done, None),
        Some(Ok(Ok(Err(error)))) => (error.handled(known), Some(Dead::detail_of(&error))),
        Some(Ok(Err(ended))) => (cut_off(), Some(Dead::detail_of(&ended))),
        Some(Err(_panic)) => (Handled::CutOff(known), Some("its handler panicked".to_owned())),
        None => {
            tracing::error!(queue = %shared.broker.name(), message = %delivery.message(), "{BLOCKS}");
            (cut_off(), Some(BLOCKS.to_owned()))
        }
    }
}

/// Returns when the operation has been over for as long as its handler may take to hear it.
async fn unheard(operation: &Operation) {
    operation.ended().await;
    tokio::time::sleep(HEARS_WITHIN).await;
}
