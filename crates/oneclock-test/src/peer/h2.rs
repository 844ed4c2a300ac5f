//! The fixtures over HTTP/2, on the `h2` crate; over gRPC, which is that with messages in frames and a status behind.
//!
//! A connection and its streams are polled by one task, streams first. So what a stream has queued is on the wire before
//! that stream is polled again, which is what lets it reset itself *after* its head and not instead of it.

use std::future::{Future, pending, poll_fn};
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::TcpStream;

use super::{Arrived, Leaving, Script, Seen, Speaks, StreamResetAt, leaving_by};
use crate::bound::patiently;
use crate::grpc;

pub(super) async fn serve(socket: TcpStream, script: Script, speaks: Speaks, seen: &Seen) -> Result<(), h2::Error> {
    socket.set_nodelay(true).map_err(|_| Reason::CONNECT_ERROR)?;
    let mut connection = h2::server::handshake(socket).await?;
    let mut streams = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = streams.next(), if !streams.is_empty() => {}
            accepted = connection.accept() => match accepted {
                Some(Ok((request, respond))) => streams.push(stream(request, respond, script, speaks, seen)),
                Some(Err(_)) | None => break,
            },
        }
    }
    // The connection is over: each stream gets to see that its caller is gone.
    drop(connection);
    patiently(async { while streams.next().await.is_some() {} }).await;
    Ok(())
}

/// One request, until it is answered, reset, or its caller has left.
async fn stream(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    script: Script,
    speaks: Speaks,
    seen: &Seen,
) {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let arrived = Arrived::new(head.method, target, head.headers);
    seen.requests.add(arrived.clone());
    if let Err(how) = answer(script, speaks, &arrived, body, respond, seen).await {
        seen.leaving(how);
    }
}

async fn answer(
    script: Script,
    speaks: Speaks,
    arrived: &Arrived,
    mut body: RecvStream,
    mut respond: SendResponse<Bytes>,
    seen: &Seen,
) -> Result<(), Leaving> {
    let before_head = async {
        match script {
            Script::Stall => drained(&mut body).await,
            Script::StopsReading => {
                seen.reading().await;
                drained(&mut body).await;
            }
            Script::Echo => drain(&mut body).await,
            Script::Slow(delay) => {
                drain(&mut body).await;
                tokio::time::sleep(delay).await;
            }
            _ => {}
        }
    };
    unless_left(|cx| respond.poll_reset(cx), before_head).await?;

    let response = Response::builder().status(200);
    let response = match script {
        _ if speaks == Speaks::Grpc => response.header("content-type", "application/grpc"),
        Script::StallAfterHead => response.header("content-length", 1024),
        Script::Echo => response.header("content-type", "application/json"),
        _ => response,
    };
    // Nothing in this head can be invalid; if it were, the stream would be reset, and the fixture's own test would fail.
    let Ok(response) = response.body(()) else { return Ok(()) };
    if let Script::ResetStream(StreamResetAt::BeforeHead, reason) = script {
        respond.send_reset(reason);
        return Ok(());
    }
    let mut stream = respond.send_response(response, false).map_err(left_by)?;
    let send = |stream: &mut SendStream<Bytes>, data: String, last| match speaks {
        Speaks::Grpc => send_message(stream, &data, last),
        Speaks::Http1 | Speaks::Http2 => stream.send_data(data.into(), last).map_err(left_by),
    };

    match script {
        Script::StallAfterHead => unless_left(|cx| stream.poll_reset(cx), drained(&mut body)).await,
        Script::StallMidBody => {
            send(&mut stream, "first".to_owned(), false)?;
            unless_left(|cx| stream.poll_reset(cx), drained(&mut body)).await
        }
        Script::Trickle(byte_every) => loop {
            let pause = async {
                tokio::select! {
                    () = tokio::time::sleep(byte_every) => {}
                    () = drained(&mut body) => {}
                }
            };
            unless_left(|cx| stream.poll_reset(cx), pause).await?;
            // Queueing one byte (or message) only once there is room for it keeps the queue bounded when the caller does not read.
            stream.reserve_capacity(1);
            if let Some(Ok(_)) = poll_fn(|cx| stream.poll_capacity(cx)).await {
                send(&mut stream, ".".to_owned(), false)?;
            }
        },
        Script::Slow(_) => send(&mut stream, "late".to_owned(), true),
        Script::Echo => send(&mut stream, arrived.to_json(), true),
        Script::ResetStream(at, reason) => {
            if at == StreamResetAt::MidBody {
                send(&mut stream, "first".to_owned(), false)?;
            }
            // A reset throws away what the stream has queued: first let the connection write it.
            tokio::task::yield_now().await;
            stream.send_reset(reason);
            Ok(())
        }
        // Those end before the head, or are HTTP/1.1 only.
        Script::Stall | Script::StopsReading | Script::HalfClose | Script::Reset(_) => Ok(()),
    }
}

fn send_message(stream: &mut SendStream<Bytes>, message: &str, last: bool) -> Result<(), Leaving> {
    stream.send_data(grpc::framed(message), false).map_err(left_by)?;
    if last {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        stream.send_trailers(trailers).map_err(left_by)?;
    }
    Ok(())
}

/// Runs `work`, unless the caller leaves first.
async fn unless_left<T>(
    poll_reset: impl FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Result<Reason, h2::Error>>,
    work: impl Future<Output = T>,
) -> Result<T, Leaving> {
    tokio::select! {
        biased;
        reset = poll_fn(poll_reset) => Err(match reset {
            Ok(reason) => Leaving::StreamReset(reason),
            Err(error) => left_by(error),
        }),
        done = work => Ok(done),
    }
}

fn left_by(error: h2::Error) -> Leaving {
    match error.reason() {
        Some(reason) if error.is_reset() => Leaving::StreamReset(reason),
        _ => leaving_by(error.get_io().map_or(io::ErrorKind::BrokenPipe, io::Error::kind)),
    }
}

/// Reads the body to its end, or to its failure, which the stream then tells as well.
async fn drain(body: &mut RecvStream) {
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
    }
}

/// Reads the body, and goes on waiting after it.
async fn drained(body: &mut RecvStream) {
    drain(body).await;
    pending().await
}
