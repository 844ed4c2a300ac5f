//! Each fixture against plain hyper, or against a bare socket where the point is what hyper would hide.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this is tests, helpers included")]

mod callers;
mod leaks;
mod peers;
mod stops;

use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use oneclock_test::PATIENCE;

/// Long enough for anything that a loopback socket was going to do.
const A_WHILE: Duration = Duration::from_millis(60);

/// The future is not ready within [`A_WHILE`]. A negative: it can only be wrong by passing.
async fn stays_silent<T>(future: impl Future<Output = T>) -> bool {
    tokio::time::timeout(A_WHILE, future).await.is_err()
}

/// The first error of this type in the chain.
fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    find::<io::Error>(error).map(io::Error::kind)
}

/// A body of `left` bytes in pieces of 16 KiB that counts what was taken of it. The handle tells the count.
struct Counting {
    left: usize,
    taken: Taken,
}

#[derive(Clone, Default)]
struct Taken(Arc<AtomicUsize>);

impl Counting {
    fn new(length: usize) -> (Self, Taken) {
        let taken = Taken::default();
        (Self { left: length, taken: taken.clone() }, taken)
    }
}

impl Taken {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// The count once something was taken and it has not changed for [`A_WHILE`].
    async fn settled(&self) -> usize {
        let settles = async {
            loop {
                let before = self.count();
                tokio::time::sleep(A_WHILE).await;
                if before > 0 && before == self.count() {
                    return before;
                }
            }
        };
        tokio::time::timeout(PATIENCE, settles).await.unwrap_or_else(|_| panic!("still at it: {}", self.count()))
    }
}

impl Body for Counting {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let length = self.left.min(16 * 1024);
        self.left -= length;
        self.taken.0.fetch_add(length, Ordering::SeqCst);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; length])))))
    }
}

type AnyBody = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

fn answer(body: impl Body<Data = Bytes, Error = io::Error> + Send + 'static) -> Response<AnyBody> {
    Response::new(http_body_util::combinators::UnsyncBoxBody::new(body))
}

fn text(body: &'static str) -> AnyBody {
    use http_body_util::BodyExt;
    http_body_util::combinators::UnsyncBoxBody::new(
        http_body_util::Full::new(Bytes::from_static(body.as_bytes())).map_err(|never| match never {}),
    )
}
