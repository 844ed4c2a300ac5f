//! The body of what the layer answers: whole, handed on from a run piece by piece, or the service's own.
//!
//! Decides how much of a run's answer is held to be kept: what is larger goes on to whoever waits, and the record says that
//! it was given and cannot be given again. Trailers are few, and are held in any case.

use bytes::{Bytes, BytesMut};
use futures_util::future::{poll_fn, ready};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use oneclock_http::BoxError;
use std::pin::{Pin, pin};
use std::task::{self, Context, Poll};
use tokio::sync::mpsc;

/// The body of an answer of this layer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// How many pieces of a large answer wait for their reader.
const PIECES: usize = 4;

/// How a run's answer came in.
pub(crate) enum Collected {
    /// All of it, within the limit.
    Whole(Whole),
    /// It was larger, and was handed on; now it is at its end, which had these trailers.
    HandedOn(HeaderMap),
    /// It broke off.
    Broken(BoxError),
}

/// A body that is there, with its trailers; mostly there are none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) trailers: HeaderMap,
}

/// A body whose pieces come from a run.
struct Pieces {
    first: Option<Bytes>,
    rest: mpsc::Receiver<Option<Result<Frame<Bytes>, BoxError>>>, // `None` says that it was all
    over: bool,
}

/// A body that is there.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A service's own body.
pub(crate) fn own<A>(body: A) -> Body
where
    A: http_body::Body<Data = Bytes> + Send + 'static,
    A::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Takes in `body` up to `limit` bytes. A larger one is given to `hand_on`, and read to its end here: whether or not anybody
/// takes it, the run goes on.
pub(crate) async fn collect(body: Body, limit: usize, hand_on: impl FnOnce(Body)) -> Collected {
    use http_body::Body as _;
    let mut body = pin!(body);
    let mut held = BytesMut::new();
    let mut trailers = HeaderMap::new();
    let too_much = loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => return Collected::Whole(Whole { bytes: held.freeze(), trailers }),
            Some(Err(error)) => return Collected::Broken(error),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) if held.len() + data.len() <= limit => held.extend_from_slice(&data),
                Ok(data) => break data,
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            },
        }
    };
    let (sender, rest) = mpsc::channel(PIECES);
    hand_on(Pieces { first: Some(held.freeze()), rest, over: false }.boxed_unsync());
    let _ = sender.send(Some(Ok(Frame::data(too_much)))).await; // whoever waited may have left: then the rest is only read
    loop {
        match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => {
                let _ = sender.send(None).await;
                return Collected::HandedOn(trailers);
            }
            Some(Ok(frame)) => {
                if let Some(last) = frame.trailers_ref() {
                    trailers.extend(last.clone());
                }
                let _ = sender.send(Some(Ok(frame))).await;
            }
            Some(Err(error)) => {
                let told = error.to_string();
                let _ = sender.send(Some(Err(error))).await;
                return Collected::Broken(told.into());
            }
        }
    }
}

// === Whole ===

impl From<Whole> for Body {
    fn from(Whole { bytes, trailers }: Whole) -> Self {
        if trailers.is_empty() {
            return whole(bytes);
        }
        let body = Full::new(bytes).with_trailers(ready(Some(Ok(trailers))));
        body.map_err(|never: std::convert::Infallible| match never {}).boxed_unsync()
    }
}

// === Pieces ===

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take().filter(|first| !first.is_empty()) {
            Some(first) => Poll::Ready(Some(Ok(Frame::data(first)))),
            None if self.over => Poll::Ready(None),
            // Closed without its end: the run was cut off, and a truncated body never looks complete (contract X3).
            None => match task::ready!(self.rest.poll_recv(cx)) {
                Some(Some(frame)) => Poll::Ready(Some(frame)),
                end => {
                    self.over = true;
                    Poll::Ready(end.is_none().then(|| Err(h2::Error::from(h2::Reason::CANCEL).into())))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cut off after its limit was passed, whether by its bound or by a panic.
    #[tokio::test]
    async fn x3_what_was_handed_on_and_cut_off_does_not_look_complete() {
        for cut_off in [false, true] {
            let (pieces, source) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(8);
            let mut source = source;
            let body = http_body_util::StreamBody::new(futures_util::stream::poll_fn(move |cx| source.poll_recv(cx)));
            let (hand_on, handed) = tokio::sync::oneshot::channel();
            let run = tokio::spawn(collect(body.boxed_unsync(), 4, move |body| drop(hand_on.send(body))));
            pieces.send(Ok(Frame::data("more than four".into()))).await.expect("it is read");
            let body = handed.await.expect("handed on");
            if cut_off {
                run.abort();
            } else {
                drop(pieces);
            }
            assert_eq!(body.collect().await.is_err(), cut_off, "cut off: {cut_off}");
        }
    }
}
