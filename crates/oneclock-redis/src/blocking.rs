//! One command that the server holds back: between whoever waits for it and the connection that it has to itself.
//!
//! Decides what becomes of it when its caller leaves. A task has the connection, so that it can go on for a moment: it asks the
//! server to let go, and reads what came of the command. So nothing is taken for nobody: what was popped at that moment is put
//! back, and the call's event says what is known (contract N1). What cannot be let go in time is closed, and unknown.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use oneclock::{Call, clock};
use oneclock_core::{Cause, Ending, Name, Outcome, Stage};
use redis::{Cmd, RedisResult, Value};
use tokio::sync::oneshot;

use crate::call::{Answered, Shared, settle, stopped};
use crate::error::{Access, RedisError, outcome_of};
use crate::line::Line;
use crate::own::Lent;
use crate::request::{Held, Orphan, Request};

/// How long letting go may take, and putting back. Beyond it the connection is closed.
const LETS_GO_WITHIN: Duration = Duration::from_secs(1);

/// How long the server may take to let go before it is asked again.
const ASKS_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// The wait for a held command. Dropped before its end, whoever waited has left.
pub(crate) struct Blocking {
    operation: Name,
    name: Name,
    access: Access,
    may_be_half_done: bool,
    told: oneshot::Receiver<Told>,
    back: Option<oneshot::Sender<Told>>,
}

/// What the task found out, on its way to the caller.
enum Told {
    /// The server answered. The call goes with it: whoever has both closes it.
    Answer { call: Box<Call>, result: RedisResult<Value>, never_written: bool },
    /// The call came to its end.
    Stopped(RedisError),
}

/// The task's side.
struct Task {
    shared: Arc<Shared>,
    request: Request<'static>,
    access: Access,
}

// === Blocking ===

impl Blocking {
    /// Sends the command. It is on its way when this returns.
    pub(crate) fn new(
        shared: Arc<Shared>,
        call: Call,
        lent: Lent,
        request: Request<'static>,
        held: Held,
        access: Access,
    ) -> Self {
        let (tell, told) = oneshot::channel();
        let (back, left) = oneshot::channel();
        let (operation, name) = (call.operation().name().clone(), call.name().clone());
        let shutdown = call.operation().shutdown().clone();
        let may_be_half_done = request.may_be_half_done();
        let task = Task { shared, request, access };
        shutdown.spawn(task.run(call, lent, held, tell, left));
        Self { operation, name, access, may_be_half_done, told, back: Some(back) }
    }

    pub(crate) async fn answer(mut self) -> Result<Answered, RedisError> {
        match (&mut self.told).await {
            Ok(Told::Answer { call, result, never_written }) => {
                self.back = None; // taken
                settle(*call, result, self.may_be_half_done, self.access, never_written)
            }
            Ok(Told::Stopped(error)) => Err(error),
            // Its runtime went away.
            Err(_) => Err(RedisError::Redis {
                operation: self.operation.clone(),
                call: self.name.clone(),
                outcome: Outcome::Unknown { stage: Stage::Wait },
                access: self.access,
                source: std::io::Error::other("the task that waited for the answer is gone").into(),
            }),
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let Some(back) = self.back.take() else { return };
        self.told.close();
        // An answer that was on its way at this moment goes back; without one the task learns that nobody waits.
        if let Ok(told) = self.told.try_recv() {
            let _ = back.send(told); // the task waits for it, unless its runtime is gone
        }
    }
}

// === Task ===

/// How the wait for the answer ended.
enum End {
    Answered {
        call: Call,
        result: RedisResult<Value>,
        never_written: bool,
        tell: oneshot::Sender<Told>,
    },
    /// Nobody waits any more. The call, unless its event was sent already, and what came once the server was asked to let go.
    Orphaned {
        call: Option<Call>,
        late: Option<RedisResult<Value>>,
    },
}

impl Task {
    async fn run(
        self,
        call: Call,
        lent: Lent,
        held: Held,
        tell: oneshot::Sender<Told>,
        mut left: oneshot::Receiver<Told>,
    ) {
        match self.wait(call, lent.line(), held, tell, &mut left).await {
            End::Answered { call, result, never_written, tell } => {
                lent.give_back(); // before anybody hears of it
                let unread = match tell.send(Told::Answer { call: Box::new(call), result, never_written }) {
                    Ok(()) => left.await.ok(), // whoever waits takes it, or gives it back
                    Err(told) => Some(told),
                };
                if let Some(Told::Answer { call, result, .. }) = unread {
                    let outcome = self.settle_orphan(result).await;
                    close_abandoned(*call, outcome);
                }
            }
            End::Orphaned { call, late } => {
                let outcome = match late {
                    Some(result) => {
                        lent.give_back();
                        self.settle_orphan(result).await
                    }
                    None => {
                        drop(lent); // closed: the server forgets the command when it notices
                        Outcome::Unknown { stage: Stage::Wait }
                    }
                };
                if let Some(call) = call {
                    close_abandoned(call, outcome);
                }
            }
        }
    }

    async fn wait(
        &self,
        mut call: Call,
        line: &Line,
        held: Held,
        tell: oneshot::Sender<Told>,
        left: &mut oneshot::Receiver<Told>,
    ) -> End {
        let written = line.watch().written();
        let mut answer = pin!(self.shared.woken(line.send(&self.request), held));
        let ended = tokio::select! {
            biased; // the work first, then the clock (contract X1)
            ended = call.run(answer.as_mut()) => Some(ended),
            _ = left => None,
        };
        match ended {
            Some(Ok(result)) => {
                let never_written = line.watch().is_closed() && line.watch().written() == written;
                End::Answered { call, result, never_written, tell }
            }
            Some(Err(ended)) => {
                drop(call); // its event is sent before anybody hears of it
                if ended.ending.cause == Cause::Deadline {
                    self.shared.own.drop_idle(); // it should have answered before: what waits there may be as dead
                }
                let _ = tell.send(Told::Stopped(stopped(ended, self.access))); // nobody may be there any more
                End::Orphaned { call: None, late: self.let_go(line, answer).await }
            }
            None => End::Orphaned { call: Some(call), late: self.let_go(line, answer).await },
        }
    }

    /// Asks the server to let go, until the command's answer is there. Each question is answered before the next is sent, and the
    /// connection is not lent meanwhile, so that none can hit another command on it.
    async fn let_go<A: Future<Output = RedisResult<Value>>>(
        &self,
        line: &Line,
        mut answer: Pin<&mut A>,
    ) -> Option<RedisResult<Value>> {
        let id = line.id().filter(|_| self.request.can_be_let_go())?;
        let unblock = redis::cmd("CLIENT").arg("UNBLOCK").arg(id).take();
        let letting_go = async {
            loop {
                self.send_beside(&unblock).await.ok()?;
                // It may not have been there yet.
                if let Ok(answer) = tokio::time::timeout(ASKS_AGAIN_AFTER, answer.as_mut()).await {
                    return Some(answer);
                }
            }
        };
        tokio::time::timeout(LETS_GO_WITHIN, letting_go).await.ok().flatten()
    }

    /// What is known after an answer that nobody took, once what can be undone was undone.
    async fn settle_orphan(&self, answer: RedisResult<Value>) -> Outcome {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return outcome_of(&error, self.request.may_be_half_done(), false),
        };
        let undo = match self.request.orphan(&answer) {
            Orphan::Nothing => return Outcome::Rejected,
            Orphan::Done => return Outcome::Applied,
            Orphan::PutBack(undo) => undo,
        };
        match tokio::time::timeout(LETS_GO_WITHIN, self.send_beside(&undo)).await {
            Ok(Ok(_)) => Outcome::Rejected, // it is as it was
            Ok(Err(_)) | Err(_) => {
                tracing::warn!("what was popped for a caller who had left could not be put back, and is lost");
                Outcome::Unknown { stage: Stage::Work }
            }
        }
    }

    /// Sends a command over the shared connection: finishing, under a bound of its own (contract X6).
    async fn send_beside(&self, command: &Cmd) -> RedisResult<Value> {
        let line = self.shared.common.opened().await?;
        let in_flight = self.shared.common.begins(line);
        let result = in_flight.line().send(&Request::one(command)).await;
        in_flight.answered();
        result
    }
}

/// Closes a call whose caller has left, with what was found out.
fn close_abandoned(mut call: Call, outcome: Outcome) {
    let ending = call.ending().unwrap_or_else(|| Ending {
        cause: Cause::CalledOff,
        bound: call.budget().bound.by,
        stage: call.stage(),
        at: clock::now(),
    });
    call.cut_off(ending);
    call.close(outcome);
}
