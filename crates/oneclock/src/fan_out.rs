//! Parts of an operation at the same time: required ones and optional ones, with a reserve for putting them together.
//!
//! Decides what becomes of the others (invariant I6): when a required part fails, its siblings end at once; when an
//! optional one does, its place says why it is missing.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use oneclock_core::{Ask, Cause, Importance, Name, Outcome, Reason, Stage};

use crate::Operation;
use crate::chain::{reason_in, stopped_in};
use crate::grant::Stopped;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Parts to be run at the same time. Made by [`Operation::fan_out`]; awaiting it runs them.
///
/// The result is a tuple, in the order in which the parts were named: the value of a required part, a
/// `Result<_, Missing>` of an optional one.
///
/// ```
/// # use oneclock::Operation; use std::time::Duration; fn ms(n: u64) -> Duration { Duration::from_millis(n) }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), oneclock::PartFailed> {
/// # async fn stock(_: Operation) -> Result<u32, std::io::Error> { Ok(3) }
/// # async fn hints(_: Operation) -> Result<u32, std::io::Error> { tokio::time::sleep(ms(5_000)).await; Ok(1) }
/// let op = Operation::begin("order", ms(800));
/// let (in_stock, hints) = op
///     .fan_out()
///     .reserve(ms(150))
///     .required("inventory", stock)
///     .optional("recommendations", hints)
///     .await?;
/// assert_eq!(in_stock, 3);
/// assert!(hints.is_err(), "late, and its place says why");
/// assert!(op.remaining() >= ms(150), "the reserve is left");
/// # Ok(()) }
/// ```
#[must_use = "the parts do not run until this is awaited"]
#[derive(Debug)]
pub struct FanOut<'a, Parts> {
    operation: &'a Operation,
    ask: Ask,
    parts: Parts,
}

/// A required part failed; its siblings were ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct PartFailed {
    /// The operation.
    pub operation: Name,
    /// The part that failed first.
    pub part: Name,
    /// What it failed with: the part's own error, [`Stopped`] if it was not begun or cut off.
    pub source: BoxError,
}

/// An optional part is missing, and why.
#[derive(Debug)]
#[non_exhaustive]
pub struct Missing {
    /// The part.
    pub part: Name,
    /// What it failed with: the part's own error, or [`Stopped`].
    pub source: BoxError,
}

/// One part: what it is called, its work, and what came of it.
struct Part<'a, T> {
    name: Name,
    child: Option<Operation>,
    work: BoxFuture<'a, Result<T, BoxError>>,
    result: Option<Result<T, BoxError>>,
}

/// A part whose value the whole needs.
pub struct Required<'a, T>(Part<'a, T>);

/// A part that the whole can do without.
pub struct Optional<'a, T>(Part<'a, T>);

/// The future of a [`FanOut`].
#[must_use = "futures do nothing unless polled"]
pub struct Joined<'a, Parts> {
    operation: &'a Operation,
    parts: Option<Parts>,
}

impl Operation {
    /// Runs parts of this operation at the same time. See [`FanOut`].
    pub fn fan_out(&self) -> FanOut<'_, ()> {
        FanOut { operation: self, ask: Ask::new(), parts: () }
    }
}

// === FanOut ===

impl<'a, Parts> FanOut<'a, Parts> {
    /// Keeps `reserve` back from every part, for putting the results together and for the way home. Say it before the
    /// parts: it applies to those named after it.
    pub fn reserve(mut self, reserve: Duration) -> Self {
        self.ask = self.ask.reserve(reserve);
        self
    }

    /// At most `cap` for each of the parts named after it.
    pub fn cap(mut self, cap: Duration) -> Self {
        self.ask = self.ask.cap(cap);
        self
    }

    fn part<F, T, E>(
        &self,
        name: Name,
        importance: Importance,
        work: impl FnOnce(Operation) -> F + Send + 'a,
    ) -> Part<'a, T>
    where
        F: Future<Output = Result<T, E>> + Send + 'a,
        T: Send + 'a,
        E: Into<BoxError>,
    {
        match self.operation.grant(name.clone()).ask(self.ask).driven() {
            Ok(driver) => {
                let driver = driver.of_importance(importance);
                let child = driver.operation().clone();
                let spending = self.operation.spend(name.clone(), Stage::Work);
                let running = child.clone();
                let work = Box::pin(async move {
                    let child = running.clone();
                    let result = running.run(async move { work(child).await }).await; // made in its scope, too
                    drop(spending);
                    match result {
                        Ok(done) => {
                            driver.finish();
                            done.map_err(Into::into)
                        }
                        Err(ended) => Err(Stopped::from(ended).into()),
                    }
                });
                Part { name, child: Some(child), work, result: None }
            }
            Err(not_begun) => {
                let refused = Some(Err(Stopped::from(not_begun).into()));
                Part { name, child: None, work: Box::pin(std::future::pending()), result: refused }
            }
        }
    }
}

impl<T> Part<'_, T> {
    /// Whether it is done now.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.result.is_none()
            && let Poll::Ready(result) = self.work.as_mut().poll(cx)
        {
            self.result = Some(result);
        }
        self.result.is_some()
    }

    /// Its siblings' failure ends it.
    fn end(&self) {
        if let Some(child) = &self.child {
            child.end(Cause::SiblingFailed);
        }
    }
}

// === Joined ===

// The parts' futures are pinned in boxes of their own; the results that are kept here never are.
impl<Parts> Unpin for Joined<'_, Parts> {}

/// What [`Joined`] needs of a part, whichever sort it is. Sealed: it cannot be named outside this module.
#[allow(unreachable_pub)]
pub trait Branch {
    type Output;
    /// Whether it is done.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool;
    /// Its failure, if that fails the whole.
    fn failure(&mut self) -> Option<(Name, BoxError)>;
    fn end(&self);
    /// Its place in the result; asked once, when it is done and nothing failed.
    fn output(self) -> Option<Self::Output>;
}

impl<T> Branch for Required<'_, T> {
    type Output = T;

    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.0.poll(cx)
    }

    fn failure(&mut self) -> Option<(Name, BoxError)> {
        match self.0.result.take() {
            Some(Err(source)) => Some((self.0.name.clone(), source)),
            other => {
                self.0.result = other;
                None
            }
        }
    }

    fn end(&self) {
        self.0.end();
    }

    fn output(self) -> Option<T> {
        self.0.result?.ok()
    }
}

impl<T> Branch for Optional<'_, T> {
    type Output = Result<T, Missing>;

    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.0.poll(cx)
    }

    fn failure(&mut self) -> Option<(Name, BoxError)> {
        None
    }

    fn end(&self) {
        self.0.end();
    }

    fn output(self) -> Option<Result<T, Missing>> {
        let part = self.0.name;
        Some(self.0.result?.map_err(|source| Missing { part, source }))
    }
}

macro_rules! fan_out_of {
    ($($part:ident),*) => {
        impl<'a, $($part),*> FanOut<'a, ($($part,)*)> {
            /// A part whose value is needed. When it fails, the others end and the whole fails.
            pub fn required<F, T, E>(
                self,
                name: impl Into<Name>,
                work: impl FnOnce(Operation) -> F + Send + 'a,
            ) -> FanOut<'a, ($($part,)* Required<'a, T>,)>
            where
                F: Future<Output = Result<T, E>> + Send + 'a,
                T: Send + 'a,
                E: Into<BoxError>,
            {
                let part = Required(self.part(name.into(), Importance::Required, work));
                #[allow(non_snake_case)]
                let ($($part,)*) = self.parts;
                FanOut { operation: self.operation, ask: self.ask, parts: ($($part,)* part,) }
            }

            /// A part that can be missing: late, failed, or not begun. Its place in the result says why.
            pub fn optional<F, T, E>(
                self,
                name: impl Into<Name>,
                work: impl FnOnce(Operation) -> F + Send + 'a,
            ) -> FanOut<'a, ($($part,)* Optional<'a, T>,)>
            where
                F: Future<Output = Result<T, E>> + Send + 'a,
                T: Send + 'a,
                E: Into<BoxError>,
            {
                let part = Optional(self.part(name.into(), Importance::Optional, work));
                #[allow(non_snake_case)]
                let ($($part,)*) = self.parts;
                FanOut { operation: self.operation, ask: self.ask, parts: ($($part,)* part,) }
            }
        }
    };
}

macro_rules! join_of {
    ($($part:ident),+) => {
        impl<'a, $($part: Branch),+> IntoFuture for FanOut<'a, ($($part,)+)> {
            type Output = Result<($($part::Output,)+), PartFailed>;
            type IntoFuture = Joined<'a, ($($part,)+)>;

            fn into_future(self) -> Self::IntoFuture {
                Joined { operation: self.operation, parts: Some(self.parts) }
            }
        }

        impl<$($part: Branch),+> Future for Joined<'_, ($($part,)+)> {
            type Output = Result<($($part::Output,)+), PartFailed>;

            #[allow(non_snake_case)]
            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                let operation = self.operation;
                let Some(($($part,)+)) = &mut self.parts else {
                    return Poll::Pending; // polled after it was done
                };
                let mut done = true;
                let mut failure = None;
                $(
                    // One that was refused fails the whole before another has cost anything (invariant I5).
                    if failure.is_none() {
                        failure = $part.failure();
                    }
                )+
                $(
                    // In the order in which they were named; after a failure nobody is polled again.
                    if failure.is_none() {
                        done &= $part.poll(cx);
                        failure = $part.failure();
                    }
                )+
                if let Some((part, source)) = failure {
                    $($part.end();)+
                    self.parts = None;
                    return Poll::Ready(Err(PartFailed { operation: operation.name().clone(), part, source }));
                }
                if !done {
                    return Poll::Pending;
                }
                let Some(($($part,)+)) = self.parts.take() else { return Poll::Pending };
                match ($($part.output(),)+) {
                    ($(Some($part),)+) => Poll::Ready(Ok(($($part,)+))),
                    _ => Poll::Pending, // each is done, so each has its output
                }
            }
        }
    };
}

fan_out_of!();
fan_out_of!(A);
fan_out_of!(A, B);
fan_out_of!(A, B, C);
fan_out_of!(A, B, C, D);
fan_out_of!(A, B, C, D, E1);
fan_out_of!(A, B, C, D, E1, F1);
fan_out_of!(A, B, C, D, E1, F1, G);
join_of!(A);
join_of!(A, B);
join_of!(A, B, C);
join_of!(A, B, C, D);
join_of!(A, B, C, D, E1);
join_of!(A, B, C, D, E1, F1);
join_of!(A, B, C, D, E1, F1, G);
join_of!(A, B, C, D, E1, F1, G, H);

// === PartFailed ===

impl PartFailed {
    /// What a caller is told (contract section 5): why the part was stopped, if it was.
    pub fn reason(&self) -> Reason {
        reason_in(&*self.source).unwrap_or(Reason::CalledOff)
    }

    /// Why the part was stopped, if it was; `None` if it failed with an error of its own.
    pub fn stopped(&self) -> Option<&Stopped> {
        stopped_in(&*self.source)
    }
}

impl fmt::Display for PartFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: required part {} failed", self.operation, self.part)
    }
}

impl std::error::Error for PartFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

// === Missing ===

impl Missing {
    /// Why the part was stopped, if it was; `None` if it failed with an error of its own.
    pub fn stopped(&self) -> Option<&Stopped> {
        stopped_in(&*self.source)
    }

    /// What is known of what it did.
    pub fn outcome(&self) -> Option<Outcome> {
        self.stopped().map(Stopped::outcome)
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "optional part {} is missing", self.part)
    }
}

impl std::error::Error for Missing {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
