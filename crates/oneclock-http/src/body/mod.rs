//! Bodies under a deadline, both ways: a response on its way out, an answer on its way in. Uploads are `upload`'s.
//!
//! Decides (contract X1, X3, X8): the frame that was looked at with the head is delivered, then the clock is asked before
//! each frame; no progress moves the deadline; a body that is cut off ends with an error and never looks complete. The
//! guarantee is a timer outside the body, since nobody polls a body that cannot be written: [`Exchange`] under our
//! accept loop, else a watcher that takes the producer away.

mod heard;
mod last_words;
mod producer;
mod stream;

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use oneclock::{Call, Driver, EndOf, Operation};
use oneclock_core::name::Hop;
use oneclock_core::{BoundBy, Cause, Ending, Name, Stage, Tick, Trust};
use tokio_util::task::AbortOnDropHandle;

use self::producer::{Producer, Seen, Slot, Watched};
use self::stream::Stream;
use crate::exchange::Exchange;
use crate::marks;

pub(crate) use self::heard::Heard;
pub(crate) use self::last_words::LastWords;

/// Any error, as bodies and services pass them on.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// A body was cut off. The source of a response's is an HTTP/2 `CANCEL`, so that hyper resets the stream with that code and
/// not with `INTERNAL_ERROR` (contract X3); that of an answer's is its [`Ending`].
#[derive(Debug)]
#[non_exhaustive]
pub struct BodyCutOff {
    /// Whose body.
    pub operation: Name,
    /// The call whose answer it was, if it was one.
    pub call: Option<Name>,
    /// Why.
    pub ending: Ending,
    /// What else the person on call needs to know: which clock of a stream it was, or that a stream was not declared.
    pub hint: Option<String>,
    cancel: h2::Error,
}

/// A body under its operation's deadline: a response of ours, or the answer to a call of ours.
///
/// Frames larger than 64 KiB come in several pieces. Trailers pass.
#[must_use = "bodies do nothing unless polled"]
pub struct BoundedBody<B> {
    source: Source<B>,
    owner: Option<Owner>,
    stream: Stream,
    last_words: Option<LastWords>,
    all_there: bool, // as much as was announced was handed over, though its producer has not said that it was all
}

enum Source<B> {
    /// Polled in place: whole already, or guarded by an exchange.
    Here(Producer<B>),
    /// A watcher takes it away at the deadline, polled or not.
    Watched { slot: Arc<Slot<B>>, _watcher: AbortOnDropHandle<()> },
}

/// Who is told when the body is over, from its drop if need be.
enum Owner {
    /// A response of ours; the operation's work is done when all of it is handed over.
    Response { driver: Driver, exchange: Option<(Exchange, u64)>, trust: Trust },
    /// An answer to a call of ours, and what it said of the far side.
    /// Boxed, so that a body that needs none of this is small: it is moved several times.
    Answer { call: Box<Call>, heard: Heard },
}

// === BoundedBody ===

impl<B> BoundedBody<B>
where
    B: Body + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn of(source: Source<B>, owner: Option<Owner>) -> Self {
        Self { source, owner, stream: Stream::No, last_words: None, all_there: false }
    }

    /// A body that is there as a whole and belongs to nobody: a refusal.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        let seen = (!bytes.is_empty()).then_some(Seen::Data(bytes));
        Self::of(Source::Here(Producer { seen, rest: None, with_the_head: true }), None)
    }

    /// The body of a response whose head was ready at `now`. Its first frame is looked at, in the scope of the caller.
    pub(crate) fn response(body: B, driver: Driver, trust: Trust, now: Tick, cx: &mut Context<'_>) -> Self {
        let mut producer = Producer::new(body);
        producer.look(cx);
        if let Some(Seen::Trailers(trailers)) = &mut producer.seen {
            marks::strip_trailers(trailers, trust);
        }
        if producer.is_over() {
            driver.finish_at(now);
            return Self::of(Source::Here(producer), None);
        }
        driver.operation().set_stage(Stage::Body); // the head is out
        match Exchange::current() {
            Some(exchange) => {
                let turn = exchange.answering(driver.operation());
                let owner = Some(Owner::Response { driver, exchange: Some((exchange, turn)), trust });
                Self::of(Source::Here(producer), owner)
            }
            // Under an accept loop of somebody else's. What is small and whole cannot outlast anything.
            None if producer.is_small_and_whole() => {
                driver.finish_at(now);
                Self::of(Source::Here(producer), None)
            }
            None => {
                let end = EndOf::new(driver.operation().clone());
                let source = Source::watched(producer, end);
                Self::of(source, Some(Owner::Response { driver, exchange: None, trust }))
            }
        }
    }

    /// The same as a stream: it has this idle limit, and its operation the other one.
    pub(crate) fn declared_stream(mut self, idle: Duration, now: Tick) -> Self {
        self.stream = Stream::declared(idle, now);
        self
    }

    /// The same body; if it is cut off, the error says how to declare a stream.
    pub(crate) fn undeclared_stream(mut self, is_one: bool) -> Self {
        if is_one {
            self.stream = Stream::Undeclared;
        }
        self
    }

    /// The same body; cut off or broken off between two messages, it ends with these words and not with an error.
    pub(crate) fn ends_with(mut self, last_words: Option<LastWords>) -> Self {
        self.last_words = last_words;
        self
    }

    /// The body of an answer whose head came at `now`. Its first frame is looked at.
    ///
    /// `heard` is what the head said of the far side, whose trailers can say otherwise.
    pub(crate) fn answer(body: B, mut call: Call, mut heard: Heard, now: Tick, cx: &mut Context<'_>) -> Self {
        let mut producer = Producer::new(body);
        producer.look(cx);
        if producer.rest.is_none() && !matches!(producer.seen, Some(Seen::Failed(_))) {
            if let Some(Seen::Trailers(trailers)) = &mut producer.seen {
                heard.trailers(trailers);
            }
            heard.close_at(call, now);
            return Self::of(Source::Here(producer), None);
        }
        call.enter_at(Stage::Body, now);
        let end = EndOf::or_at(call.operation().clone(), call.deadline());
        let owner = Some(Owner::Answer { call: Box::new(call), heard });
        Self::of(Source::watched(producer, end), owner)
    }

    /// The body, if all of it is there now: nothing is missing, so a head that is late can be delivered (contract X1). It
    /// belongs to nobody. What is larger than one piece is not taken for that: it would still have to be written in time.
    pub(crate) fn whole_now(body: B, cx: &mut Context<'_>) -> Option<Self> {
        let mut producer = Producer::new(body);
        producer.look(cx);
        producer.with_the_head.then(|| Self::of(Source::Here(producer), None))
    }

    /// The trailers that were looked at with the head, if there is nothing before them.
    pub(crate) fn trailers(&self) -> Option<&HeaderMap> {
        match &self.source {
            Source::Here(Producer { seen: Some(Seen::Trailers(trailers)), .. }) => Some(trailers),
            _ => None,
        }
    }

    pub(crate) fn trailers_mut(&mut self) -> Option<&mut HeaderMap> {
        match &mut self.source {
            Source::Here(Producer { seen: Some(Seen::Trailers(trailers)), .. }) => Some(trailers),
            _ => None,
        }
    }

    /// The body of a response that has none on the wire (to HEAD, or by its status). Nobody reads it.
    pub(crate) fn unread(body: B) -> Self {
        Self::of(Source::Here(Producer::new(body)), None)
    }
}

impl<B> Source<B>
where
    B: Body + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn watched(producer: Producer<B>, end: EndOf) -> Self {
        let slot = Arc::new(Slot(Mutex::new(Watched { producer, waker: None, taken: false })));
        let watched = Arc::clone(&slot);
        let operation = end.operation().clone();
        let watcher = tokio::spawn(async move {
            end.await;
            operation.leave_places_if_over(); // whoever reads no further also drops nothing
            watched.take_away();
        });
        Self::Watched { slot, _watcher: AbortOnDropHandle::new(watcher) }
    }
}

impl<B> Body for BoundedBody<B>
where
    B: Body + Unpin + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let comes_with_the_head = matches!(&this.source, Source::Here(producer) if producer.with_the_head);
        if !comes_with_the_head && let Some(ending) = this.owner.as_ref().and_then(Owner::ending) {
            return Poll::Ready(this.cut_off(ending));
        }
        let owner = this.owner.as_ref();
        let (polled, over) = match &mut this.source {
            Source::Here(producer) => {
                let polled = producer.poll_within(owner, cx);
                (polled, producer.is_over())
            }
            Source::Watched { slot, .. } => {
                let mut watched = slot.lock();
                let polled = watched.producer.poll_within(owner, cx);
                if polled.is_pending() {
                    watched.waker = Some(cx.waker().clone());
                }
                (polled, watched.producer.is_over())
            }
        };
        let Poll::Ready(frame) = polled else {
            ready!(this.stream.poll_quiet(cx));
            // Nothing came for too long: the end of the stream's operation, by a limit of ours whatever made its total one.
            let Some(Owner::Response { driver, .. }) = &this.owner else { return Poll::Pending };
            driver.operation().end_by(Cause::Deadline, BoundBy::Cap);
            return Poll::Ready(driver.operation().ending().and_then(|ending| this.cut_off(ending)));
        };
        this.stream.went_on();
        let mut frame = match frame {
            // Our own deadline is judged by our own clock, whatever the far side says (contract X2).
            Some(Err(error)) => match this.owner.as_ref().and_then(Owner::ending) {
                Some(ending) => return Poll::Ready(this.cut_off(ending)),
                None => return Poll::Ready(Some(this.fail(error))),
            },
            Some(Ok(frame)) => Some(frame),
            None => None,
        };
        if let Some(frame) = &mut frame {
            this.goes_by(frame);
        }
        match &frame {
            // A call that made this piece may have said otherwise. What follows is the peer's to take.
            Some(_) if !over => {
                if let Some(owner) = &this.owner {
                    owner.in_body();
                    this.all_there = this.size_hint().exact() == Some(0);
                }
            }
            Some(_) => this.finish(),
            None => match this.owner.as_ref().and_then(Owner::ending) {
                // A watcher was here: what looks like an end is none.
                Some(ending) => return Poll::Ready(this.cut_off(ending)),
                None => this.finish(),
            },
        }
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Here(producer) => producer.is_over(),
            // Whoever writes it may ask no further once all that was announced is there, and then it was whole.
            Source::Watched { slot, .. } => {
                let watched = slot.lock();
                watched.producer.is_over() && !watched.taken
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Here(producer) => producer.size_hint(),
            // Whoever writes its head goes by this: what was taken away is not as short as what is left of it.
            Source::Watched { slot, .. } => {
                let watched = slot.lock();
                if watched.taken { SizeHint::default() } else { watched.producer.size_hint() }
            }
        }
    }
}

impl<B> BoundedBody<B> {
    /// Notes what a frame says, and removes what it must not say.
    fn goes_by(&mut self, frame: &mut Frame<Bytes>) {
        if let Some(data) = frame.data_ref() {
            if let Some(words) = &mut self.last_words {
                words.messages.went_out(data);
            }
            return;
        }
        let Some(trailers) = frame.trailers_mut() else { return };
        match &mut self.owner {
            Some(Owner::Response { trust, .. }) => marks::strip_trailers(trailers, *trust),
            Some(Owner::Answer { heard, .. }) => heard.trailers(trailers),
            None => {}
        }
    }

    fn finish(&mut self) {
        if let Some(owner) = self.owner.take() {
            owner.finish();
        }
    }

    fn fail(&mut self, error: BoxError) -> Result<Frame<Bytes>, BoxError> {
        match self.owner.take() {
            // Our own producer failed: the work is over, and it was not done.
            Some(owner @ Owner::Response { .. }) => {
                if let Owner::Response { driver, .. } = &owner {
                    driver.operation().end(Cause::CalledOff);
                }
                owner.finish();
                self.last_words
                    .and_then(|words| words.broke_off(&error))
                    .ok_or_else(|| last_words::without_claims(error))
            }
            // Dropped unclosed, a call in stage body has an unknown outcome.
            Some(Owner::Answer { .. }) | None => Err(error),
        }
    }

    fn cut_off(&mut self, ending: Ending) -> Option<Result<Frame<Bytes>, BoxError>> {
        let owner = self.owner.take()?;
        self.empty(); // first, so that the guards of what produced it have closed what they opened
        let last = match &owner {
            Owner::Response { driver, .. } => {
                self.last_words.and_then(|words| words.ended(driver.operation(), ending, &self.stream))
            }
            Owner::Answer { .. } => None,
        };
        let cut_off = owner.cut_off(ending, self.stream.hint(ending.bound));
        Some(last.map_or_else(|| Err(cut_off.into()), Ok))
    }

    fn empty(&mut self) {
        match &mut self.source {
            Source::Here(producer) => {
                producer.seen = None;
                producer.rest = None;
            }
            Source::Watched { slot, .. } => slot.take_away(),
        }
    }
}

impl<B> Drop for BoundedBody<B> {
    fn drop(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        // Over HTTP/1 nobody asks for more than was announced.
        if self.all_there && owner.ending().is_none() {
            self.empty();
            return owner.finish();
        }
        // The operation ends before what produces the body is dropped, so that everything below learns the cause, and its
        // event is sent after that, so that its ledger is complete.
        if let Owner::Response { driver, .. } = &owner {
            driver.abandon();
        }
        self.empty();
        owner.abandon();
    }
}

impl<B> fmt::Debug for BoundedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedBody").finish_non_exhaustive()
    }
}

// === Owner ===

impl Owner {
    fn ending(&self) -> Option<Ending> {
        match self {
            Self::Response { driver, .. } => driver.operation().ending(),
            Self::Answer { call, .. } => call.ending(),
        }
    }

    /// A piece was handed over, and more follows.
    fn in_body(&self) {
        if let Self::Response { driver, .. } = self {
            driver.operation().set_stage(Stage::Body);
        }
    }

    fn finish(self) {
        match self {
            Self::Response { driver, exchange, .. } => {
                if let Some((exchange, turn)) = exchange {
                    exchange.answered(turn);
                }
                driver.finish();
            }
            Self::Answer { call, heard } => heard.close(*call),
        }
    }

    /// Nobody reads the rest.
    fn abandon(self) {
        match self {
            Self::Response { driver, exchange, .. } => {
                drop(driver);
                if let Some((exchange, turn)) = exchange {
                    exchange.answered(turn);
                }
            }
            // Left unread by choice, the head's word stands. Cut off, nothing is certain.
            Self::Answer { call, heard } => match call.ending() {
                None => heard.close(*call),
                Some(_) => drop(call),
            },
        }
    }

    fn cut_off(self, ending: Ending, hint: Option<String>) -> BodyCutOff {
        let cancel = h2::Error::from(h2::Reason::CANCEL);
        match self {
            Self::Response { driver, exchange, .. } => {
                if let Some((exchange, turn)) = exchange {
                    exchange.answered(turn); // hyper sees the error below and ends the exchange itself
                }
                BodyCutOff { operation: driver.operation().name().clone(), call: None, ending, hint, cancel }
            }
            Self::Answer { mut call, .. } => {
                call.cut_off(ending);
                let operation = call.operation().name().clone();
                BodyCutOff { operation, call: Some(call.name().clone()), ending, hint, cancel }
            }
        }
    }
}

// === BodyCutOff ===

impl BodyCutOff {
    /// The upload of a request whose operation ended.
    pub(crate) fn of_upload(operation: &Operation, ending: Ending) -> Self {
        let cancel = h2::Error::from(h2::Reason::CANCEL);
        Self { operation: operation.name().clone(), call: None, ending, hint: None, cancel }
    }
}

impl fmt::Display for BodyCutOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => {
                let hop = Hop(&self.operation, Some(call));
                write!(f, "{hop}: the answer's body was cut off: {}", self.ending)?;
            }
            None => write!(f, "{}: the body was cut off: {}", self.operation, self.ending)?,
        }
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl StdError for BodyCutOff {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.call {
            Some(_) => Some(&self.ending), // for whoever asks why the answer broke off (`oneclock::reason_in`)
            None => Some(&self.cancel),    // for hyper, which writes the response
        }
    }
}
