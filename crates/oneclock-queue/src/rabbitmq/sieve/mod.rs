//! Stands between the socket and the client, and keeps from it what it cannot read.
//!
//! Decides that no message can stop a consumer. The client reads header fields by recursion, without a bound, and ends its
//! connection at a name that is not UTF-8: a few kilobytes of nested lists from anybody who may publish would end this process, and
//! again after every restart, since they are delivered again. Such a head is replaced by one that says so, with what it was as
//! bytes; its expiry is unreadable, which is never the same as none.

mod head;
mod reactor;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::io::{AsyncRead, AsyncWrite};
use lapin::AsyncTcpStream;

use self::head::Head;

pub(super) use self::reactor::runtime;

/// A connection, sifted.
pub(super) struct Sieve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> {
    inner: AsyncTcpStream<S>,
    sifting: Sifting,
}

/// What has come and was not handed on yet.
#[derive(Debug, Default)]
struct Sifting {
    held: Vec<u8>,
    /// Up to here it came; what follows is room.
    end: usize,
    /// Up to here it was handed on.
    given: usize,
    /// Up to here it may be.
    good: usize,
    /// How much of a frame that is looked at no further has yet to come.
    passing: usize,
}

/// How much is read at once, in bytes.
const READ: usize = 64 * 1024;
/// The frame of a message's head.
const HEAD: u8 = 2;
/// Kind, channel and length before a frame, one byte after it.
const BEFORE: usize = 7;
const AFTER: usize = 1;
/// A longer head was never agreed on with any broker: the client may refuse it.
const LONGEST: usize = 16 * 1024 * 1024;

// === Sieve ===

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Sieve<S> {
    pub(super) fn new(inner: AsyncTcpStream<S>) -> Self {
        Self { inner, sifting: Sifting::default() }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncRead for Sieve<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        loop {
            let given = this.sifting.give(to);
            if given > 0 || to.is_empty() {
                return Poll::Ready(Ok(given));
            }
            let read = ready!(Pin::new(&mut this.inner).poll_read(cx, this.sifting.room()))?;
            if read == 0 {
                return Poll::Ready(Ok(0)); // half a head is of no use to anybody
            }
            this.sifting.came(read);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncWrite for Sieve<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, from)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, from)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_close(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> fmt::Debug for Sieve<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sieve").finish_non_exhaustive()
    }
}

// === Sifting ===

impl Sifting {
    /// Hands on what may be.
    fn give(&mut self, to: &mut [u8]) -> usize {
        let Some(from) = self.held.get(self.given..self.good) else { return 0 };
        let many = from.len().min(to.len());
        if let (Some(to), Some(from)) = (to.get_mut(..many), from.get(..many)) {
            to.copy_from_slice(from);
        }
        self.given += many;
        many
    }

    /// Where what is read next goes to.
    fn room(&mut self) -> &mut [u8] {
        if self.given > 0 {
            self.held.copy_within(self.given..self.end, 0);
            self.end -= self.given;
            self.good -= self.given;
            self.given = 0;
        }
        if self.held.len() < self.end + READ {
            self.held.resize(self.end + READ, 0);
        }
        self.held.get_mut(self.end..).unwrap_or_default()
    }

    /// So much was read.
    fn came(&mut self, read: usize) {
        self.end = (self.end + read).min(self.held.len());
        while self.sift().is_some() {}
    }

    /// Looks at one frame. A head has to be here as a whole before any of it is handed on. `None`: more has to come first.
    fn sift(&mut self) -> Option<()> {
        let passed = self.passing.min(self.end - self.good);
        self.good += passed;
        self.passing -= passed;
        let came = self.held.get(self.good..self.end).filter(|_| self.passing == 0)?;
        let (kind, size) = frame(came)?;
        let whole = BEFORE + size + AFTER;
        if kind != HEAD || size > LONGEST {
            self.passing = whole;
            return Some(());
        }
        let payload = came.get(..whole)?.get(BEFORE..BEFORE + size)?;
        let Some(instead) = Head(payload).replacement() else {
            self.passing = whole;
            return Some(());
        };
        tracing::warn!(
            bytes = size,
            "a message's head cannot be read: it is delivered as one whose expiry is unreadable"
        );
        let length = u32::try_from(instead.len()).unwrap_or(u32::MAX).to_be_bytes();
        let (length_at, payload_at) = (self.good + BEFORE - length.len(), self.good + BEFORE);
        self.end = self.end - size + instead.len();
        self.passing = BEFORE + instead.len() + AFTER;
        self.held.splice(payload_at..payload_at + size, instead);
        self.held.splice(length_at..payload_at, length);
        Some(())
    }
}

/// The kind and the length of the frame that begins here.
fn frame(bytes: &[u8]) -> Option<(u8, usize)> {
    let [kind, _, _, a, b, c, d] = *bytes.first_chunk()?;
    Some((kind, u32::from_be_bytes([a, b, c, d]) as usize))
}

#[cfg(test)]
mod tests {
    use super::head::UNREADABLE;
    use super::*;
    use proptest::prelude::*;

    /// A frame of this kind.
    fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&[kind, 0, 1], &size[..], payload, &[0xce]].concat()
    }

    /// A head with nothing but these header fields.
    fn head(table: &[u8]) -> Vec<u8> {
        let size = u32::try_from(table.len()).unwrap().to_be_bytes();
        [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0], &size[..], table].concat()
    }

    /// What comes out when the bytes come in such pieces.
    fn sifted(bytes: &[u8], pieces: usize) -> Vec<u8> {
        let (mut sifting, mut out, mut to) = (Sifting::default(), Vec::new(), [0; 97]);
        for piece in bytes.chunks(pieces.max(1)) {
            sifting.room()[..piece.len()].copy_from_slice(piece);
            sifting.came(piece.len());
            loop {
                match sifting.give(&mut to) {
                    0 => break,
                    many => out.extend_from_slice(&to[..many]),
                }
            }
        }
        out
    }

    #[test]
    fn a_head_that_can_be_read_is_handed_on_as_it_is_and_another_is_replaced() {
        let good = framed(HEAD, &head(b"\x01aS\0\0\0\x01x"));
        let bad = framed(HEAD, &head(b"\x02\xff\xfeV"));
        let body = framed(3, b"\x02\xff\xfeV, and whatever a body is");
        let all = [&good[..], &bad, &body, &good].concat();
        for pieces in [1, 2, 7, 50, 1_000] {
            let out = sifted(&all, pieces);
            assert!(out.starts_with(&good) && out.ends_with(&[&body[..], &good].concat()), "{pieces}");
            assert!(out.windows(UNREADABLE.len()).any(|part| part == UNREADABLE.as_bytes()), "{pieces}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_no_head_is_handed_on_as_it_is(
            frames in proptest::collection::vec((prop_oneof![Just(1_u8), Just(3), Just(8)], proptest::collection::vec(any::<u8>(), 0..200)), 0..20),
            pieces in 1_usize..300,
        ) {
            let all: Vec<u8> = frames.iter().flat_map(|(kind, payload)| framed(*kind, payload)).collect();
            prop_assert_eq!(sifted(&all, pieces), all);
        }

        #[test]
        fn whatever_a_head_is_every_frame_after_it_is_found(payload in proptest::collection::vec(any::<u8>(), 0..400), pieces in 1_usize..300) {
            let after = framed(3, b"after");
            let out = sifted(&[framed(HEAD, &payload), after.clone()].concat(), pieces);
            prop_assert!(out.ends_with(&after));
            // And what comes out is nothing that would be replaced again.
            prop_assert_eq!(sifted(&out, pieces), out);
        }
    }
}
