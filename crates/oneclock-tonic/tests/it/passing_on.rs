//! Whose words a status is: our own problems, written for the caller that asked; those of a part, which say nothing of the
//! whole. Contract section 5, R8, R9.

use oneclock::Operation;
use oneclock_core::breaker::BreakerPolicy;
use oneclock_core::throttle::Told;
use oneclock_core::{Outcome, Reason, Trust};
use oneclock_http::Problem;
use oneclock_tonic::{ClientLayer, ClientService, OrStatus as _, PolicyExt as _, destination, outcome, status};
use tokio::time::sleep;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Status};
use tower::Layer;

use futures_util::StreamExt as _;

use crate::support::{Caller, Net, Peer, inside, ms, one, peer, policy, serve, serve_inside, serve_plain, silent};

fn serve_outside(service: Peer) -> Net {
    let layer = policy().grpc_layer();
    serve(|incoming| Server::builder().layer(layer).add_service(service).serve_with_incoming(incoming))
}

/// What somebody gets on the wire who calls this, without a layer of ours.
async fn seen(net: &Net) -> Status {
    match Caller::new(net.wire().await).unary(Request::new("hello")).await {
        Ok(answer) => panic!("an answer: {answer:?}"),
        Err(status) => status,
    }
}

fn trusted(net: &Net) -> ClientService<Channel> {
    ClientLayer::new(destination("stock").trust(Trust::Inside).build().unwrap()).layer(net.channel())
}

/// `google.rpc.Status` with one detail of this kind.
fn detail(kind: &str) -> Vec<u8> {
    let kind = format!("type.googleapis.com/google.rpc.{kind}");
    let mut any = vec![0x0A, u8::try_from(kind.len()).unwrap()];
    any.extend(kind.bytes());
    let mut status = vec![0x08, 14, 0x1A, u8::try_from(any.len()).unwrap()];
    status.extend(any);
    status
}

/// A far side that was not begun, and says so in every way there is.
fn not_begun() -> Peer {
    peer(|_| async {
        let mut metadata = MetadataMap::new();
        for (name, value) in
            [("oneclock-reason", "shed"), ("grpc-retry-pushback-ms", "50"), ("oneclock-retried", "3"), ("cart", "7")]
        {
            metadata.insert(name, value.parse().unwrap());
        }
        let details = detail("RetryInfo").into();
        Err(Status::with_details_and_metadata(Code::Unavailable, "order → db: 9 ms of 10 ms", details, metadata))
    })
}

/// A handler that calls `far`, after it did something of its own, and passes on what it gets: before its head, or after it.
fn passes_on(far: ClientService<Channel>, after_the_head: bool) -> Peer {
    peer(move |_| {
        let mut far = Caller::new(far.clone());
        async move {
            let asked = async move { far.unary(Request::new("hello")).await.map(tonic::Response::into_inner) };
            if !after_the_head {
                return Ok(one(asked.await?));
            }
            Ok(one("first").chain(futures_util::stream::once(asked)).boxed())
        }
    })
}

fn says_nothing_of_the_whole(seen: &Status, what: &str) {
    for field in ["oneclock-reason", "grpc-retry-pushback-ms", "oneclock-retried", "oneclock-part"] {
        assert!(seen.metadata().get(field).is_none(), "{what}: {field} in {seen:?}");
    }
    assert!(!seen.message().contains("db"), "{what}: the insides of the far side in {seen:?}");
    let details = String::from_utf8_lossy(seen.details());
    assert!(!details.contains("RetryInfo") && !details.contains("SHED"), "{what}: {details}");
}

#[tokio::test(start_paused = true)]
async fn r8_a_status_that_is_passed_on_does_not_say_that_the_whole_was_not_begun() {
    let far = serve_plain(not_begun());
    for after_the_head in [false, true] {
        let net = serve_outside(passes_on(trusted(&far), after_the_head));
        let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
        assert_eq!(seen.code(), Code::Unavailable, "{seen:?}");
        says_nothing_of_the_whole(&seen, if after_the_head { "after the head" } else { "in the head" });
    }
}

/// By its reason alone it would be something that was called off: `CANCELLED`, 500 over HTTP, and a failure to whoever counts
/// those. It is load, here as there.
#[tokio::test(start_paused = true)]
async fn what_is_held_back_or_refused_for_load_below_is_load_here_in_the_head_and_after_it() {
    assert_eq!(Problem::new(Reason::Shed.of_a_part()).grpc_status(), 1, "the naive way");
    let far = serve_plain(not_begun());
    let broken = destination("stock").breaker(BreakerPolicy::default()).build().unwrap();
    (0..20).filter_map(|_| broken.health().ask(ms(300)).ok()).for_each(|watch| watch.told(Told::Broken));
    let held_back = || ClientLayer::new(broken.clone()).layer(far.channel());
    for after_the_head in [false, true] {
        for calls in [held_back(), trusted(&far)] {
            let net = serve_outside(passes_on(calls, after_the_head));
            let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
            assert_eq!(seen.code(), Code::Unavailable, "{seen:?}");
            assert!(seen.message().ends_with("refused for load"), "{seen:?}");
            says_nothing_of_the_whole(&seen, if after_the_head { "after the head" } else { "in the head" });
        }
    }
    for calls in [held_back(), trusted(&far)] {
        let op = Operation::begin("order", ms(5_000));
        let status = op.scope(Caller::new(calls).unary(Request::new("hello"))).await.unwrap_err();
        let problem = oneclock_tonic::problem(&status);
        assert_eq!((problem.status(), problem.reason()), (503, None), "{status:?}");
    }
}

async fn end_of_stream(net: &Net) -> Status {
    let requests = Request::new(crate::support::nothing());
    let mut messages = Caller::new(net.wire().await).stream(requests).await.unwrap().into_inner();
    assert_eq!(messages.message().await.unwrap().unwrap(), "first");
    messages.message().await.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn r8_naive_tonic_passes_all_of_it_on() {
    let far = serve_plain(not_begun());
    let net = serve_plain(peer(move |_| {
        let mut far = Caller::new(far.channel());
        async move { Ok(one(far.unary(Request::new("hello")).await?.into_inner())) }
    }));
    let seen = seen(&net).await;
    assert_eq!(seen.metadata().get("oneclock-reason").unwrap(), "shed");
    assert_eq!(seen.metadata().get("grpc-retry-pushback-ms").unwrap(), "50");
    assert!(!seen.details().is_empty());
}

/// Who is not trusted has no reasons, and its words are its own. That it wants to be left alone for a while is no less about
/// that one call.
#[tokio::test(start_paused = true)]
async fn r9_when_an_untrusted_far_side_wants_to_be_asked_again_is_not_passed_on() {
    let far = serve_plain(not_begun());
    for after_the_head in [false, true] {
        let untrusted = ClientLayer::new(destination("stock").build().unwrap()).layer(far.channel());
        let net = serve_inside(passes_on(untrusted, after_the_head));
        let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
        assert_eq!(seen.code(), Code::Unavailable, "{seen:?}");
        assert_eq!(seen.metadata().get("cart").unwrap(), "7");
        for field in ["oneclock-reason", "grpc-retry-pushback-ms", "oneclock-retried"] {
            assert!(seen.metadata().get(field).is_none(), "{field} in {seen:?}");
        }
        assert!(!String::from_utf8_lossy(seen.details()).contains("RetryInfo"), "{seen:?}");
    }
}

/// The mark between our two layers is only ours: a far side that is called without them could say with it what it likes, of a
/// deadline of ours for example.
#[tokio::test(start_paused = true)]
async fn x2_a_far_side_behind_a_plain_channel_cannot_say_that_our_deadline_has_passed() {
    let far = serve_plain(peer(|_| async {
        let mut status = Status::unavailable("no pens left");
        status.metadata_mut().insert("oneclock-part", "deadline".parse().unwrap());
        Err(status)
    }));
    for after_the_head in [false, true] {
        let far = far.channel();
        let net = serve_outside(peer(move |_| {
            let mut far = Caller::new(far.clone());
            async move {
                let asked = async move { far.unary(Request::new("hello")).await.map(tonic::Response::into_inner) };
                if !after_the_head {
                    return Ok(one(asked.await?));
                }
                Ok(one("first").chain(futures_util::stream::once(asked)).boxed())
            }
        }));
        let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
        assert_eq!(
            (seen.code(), seen.message()),
            (Code::Unavailable, "no pens left"),
            "after the head: {after_the_head}"
        );
        assert!(seen.metadata().get("oneclock-part").is_none());
    }
}

/// One status, however it is written: what we find of a call and what tonic hands on agree.
#[tokio::test(start_paused = true)]
async fn a_status_with_a_leading_zero_is_read_alike_by_everybody() {
    for (written, want) in [("00", None), ("05", Some((Code::NotFound, Outcome::Failed)))] {
        let channel = tower::service_fn(move |_: http::Request<tonic::body::Body>| async move {
            let status = http::HeaderMap::from_iter([(oneclock_http::grpc::STATUS, written.parse().unwrap())]);
            let message = http_body_util::Full::new(bytes::Bytes::from_static(b"\0\0\0\0\x03one"));
            let body = http_body_util::BodyExt::with_trailers(message, async { Some(Ok(status)) });
            let answer = http::Response::builder().header("content-type", "application/grpc");
            Ok::<_, std::convert::Infallible>(answer.body(tonic::body::Body::new(body)).unwrap())
        });
        let channel = ClientLayer::new(destination("stock").build().unwrap()).layer(channel);
        let op = Operation::begin("order", ms(5_000));
        let answer = op.scope(Caller::new(channel).unary(Request::new("hello"))).await;
        let failed = answer.err().map(|status| (status.code(), outcome(&status).unwrap()));
        assert_eq!(failed, want, "{written}");
    }
}

/// The caller above takes it for what it is: it may have happened.
#[tokio::test(start_paused = true)]
async fn r8_whoever_called_the_whole_knows_no_more_than_that_it_may_have_happened() {
    let far = serve_plain(not_begun());
    let net = serve_inside(passes_on(trusted(&far), false));
    let op = Operation::begin("gateway", ms(5_000));
    let status = op.scope(Caller::new(trusted(&net)).unary(Request::new("hello"))).await.unwrap_err();
    assert!(matches!(outcome(&status), Some(Outcome::Unknown { .. })), "{status:?}");
    // The far side itself was known to have refused.
    let status = op.scope(Caller::new(trusted(&far)).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!(outcome(&status), Some(Outcome::Rejected));
}

/// What a layer of ours told us in full, since it trusts us, is not for our own callers.
#[tokio::test(start_paused = true)]
async fn the_insides_of_a_far_side_that_trusts_us_are_not_passed_on() {
    let far = serve_inside(peer(|_| async { Err(std::io::Error::other("db-7: disk full")).or_status() }));
    let op = Operation::begin("gateway", ms(5_000));
    let told = op.scope(Caller::new(trusted(&far)).unary(Request::new("hello"))).await.unwrap_err();
    assert!(told.message().contains("disk full"), "{told:?}");
    for after_the_head in [false, true] {
        let net = serve_outside(passes_on(trusted(&far), after_the_head));
        let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
        assert_eq!(seen.code(), Code::Unavailable, "{seen:?}");
        assert!(!format!("{seen:?}").contains("disk"), "{seen:?}");
    }
}

/// A limit of the channel's own, not ours: told as what it is.
#[tokio::test(start_paused = true)]
async fn x5_a_call_that_timed_out_below_is_never_unavailable() {
    let far = serve_plain(silent());
    let endpoint = tonic::transport::Endpoint::from_static("http://peer.test").timeout(ms(100));
    let channel = far.of_endpoint(&endpoint, std::time::Duration::ZERO);
    let service = passes_on(ClientLayer::new(destination("stock").build().unwrap()).layer(channel), false);
    assert_eq!(seen(&serve_outside(service)).await.code(), Code::DeadlineExceeded);
}

#[tokio::test(start_paused = true)]
async fn the_applications_own_words_are_passed_on() {
    let far = serve_plain(peer(|_| async {
        let mut status = Status::with_details(Code::NotFound, "no such cart", detail("BadRequest").into());
        status.metadata_mut().insert("cart", "7".parse().unwrap());
        Err(status)
    }));
    let seen = seen(&serve_outside(passes_on(trusted(&far), false))).await;
    assert_eq!((seen.code(), seen.message()), (Code::NotFound, "no such cart"));
    assert_eq!(seen.metadata().get("cart").unwrap(), "7");
    assert_eq!(seen.details(), detail("BadRequest"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_cut_off_is_a_deadline_of_the_whole_told_briefly_to_outsiders() {
    let far = serve_plain(silent());
    for (trust, after_the_head) in [(Trust::Outside, false), (Trust::Outside, true), (Trust::Inside, false)] {
        let capped = destination("stock").cap(ms(200)).build().unwrap();
        let service = passes_on(ClientLayer::new(capped).layer(far.channel()), after_the_head);
        let layer = policy().grpc_layer().trust(trust);
        let net = serve(|incoming| Server::builder().layer(layer).add_service(service).serve_with_incoming(incoming));
        let seen = if after_the_head { end_of_stream(&net).await } else { seen(&net).await };
        assert_eq!(seen.code(), Code::DeadlineExceeded, "{seen:?}");
        assert_eq!(seen.message().contains("stock"), trust == Trust::Inside, "{seen:?}");
        if !after_the_head {
            assert_eq!(seen.metadata().get("oneclock-reason").unwrap(), "cap");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_handlers_becomes_the_answer_for_who_asks() {
    let service = || peer(|_| async { Err(std::io::Error::other("disk full")).or_status() });
    let (outside, inside) = (seen(&serve_outside(service())).await, seen(&serve_inside(service())).await);
    assert_eq!((outside.code(), inside.code()), (Code::Internal, Code::Internal));
    assert!(!outside.message().contains("disk"), "{outside:?}");
    assert!(inside.message().contains("disk full"), "{inside:?}");
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_refused_in_a_handler_is_a_deadline_of_the_whole() {
    let net = serve_inside(peer(|request| async move {
        let op = oneclock_tonic::operation(&request)?;
        let left = op.grant("report").min_useful(ms(60_000)).remaining().or_status()?;
        Ok(one(format!("{left:?}")))
    }));
    let seen = seen(&net).await;
    assert_eq!(seen.code(), Code::DeadlineExceeded);
    assert_eq!(seen.metadata().get("oneclock-reason").unwrap(), "deadline", "not that nothing was begun");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_decides_for_itself_what_a_failed_call_means_is_not_overruled() {
    let far = serve_plain(silent());
    let net = serve_inside(peer(move |_| {
        let capped = destination("stock").cap(ms(200)).build().unwrap();
        let mut far = Caller::new(ClientLayer::new(capped).layer(far.channel()));
        async move {
            let failed = far.unary(Request::new("hello")).await.unwrap_err();
            let mut status = Status::not_found("not in stock");
            status.set_source(std::sync::Arc::new(failed));
            Err(status)
        }
    }));
    let seen = seen(&net).await;
    assert_eq!((seen.code(), seen.message()), (Code::NotFound, "not in stock"));
}

#[test]
fn a_status_keeps_its_problem_and_a_problem_its_status() {
    let made = status(Problem::new(Reason::Shed));
    assert_eq!(made.code(), Code::Unavailable);
    let again = status(made);
    assert_eq!(again.code(), Code::Unavailable);
    assert!(std::error::Error::source(&again).unwrap().is::<Problem>());
}

/// tonic takes it for granted that these are base64, and panics.
#[tokio::test(start_paused = true)]
async fn a_peer_whose_details_cannot_be_read_ends_nothing_but_its_call() {
    for in_trailers in [false, true] {
        let channel = tower::service_fn(move |_: http::Request<tonic::body::Body>| async move {
            let mut fields = http::HeaderMap::new();
            fields.insert("grpc-status", 5.into());
            fields.insert("grpc-status-details-bin", http::HeaderValue::from_static("no base64!"));
            let mut response = http::Response::new(tonic::body::Body::empty());
            if in_trailers {
                let body = http_body_util::Empty::new();
                let body = http_body_util::BodyExt::with_trailers(body, async { Some(Ok(fields)) });
                *response.body_mut() = tonic::body::Body::new(body);
            } else {
                *response.headers_mut() = fields;
            }
            Ok::<_, std::convert::Infallible>(response)
        });
        let channel = ClientLayer::new(destination("stock").build().unwrap()).layer(channel);
        let op = Operation::begin("order", ms(5_000));
        let status = op.scope(Caller::new(channel).unary(Request::new("hello"))).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    }
}

/// Without a layer there is no operation, and the handler must not run without a deadline.
#[tokio::test(start_paused = true)]
async fn a_service_that_no_layer_covers_answers_that_this_service_failed() {
    let service = || {
        peer(|request| async move {
            let op = oneclock_tonic::operation(&request)?;
            sleep(ms(100)).await;
            Ok(one(format!("{}", op.remaining().as_millis())))
        })
    };
    let uncovered = seen(&serve_plain(service())).await;
    assert_eq!(uncovered.code(), Code::Internal);
    let net = serve(|incoming| Server::builder().layer(inside()).add_service(service()).serve_with_incoming(incoming));
    let answer = Caller::new(net.wire().await).unary(Request::new("hello")).await.unwrap();
    assert_eq!(answer.into_inner(), "9900");
}

/// What an HTTP handler answers for the status of its call.
#[tokio::test(start_paused = true)]
async fn an_http_handler_answers_for_its_call_in_https_words() {
    let net = serve_inside(peer(|_| async { Err(Status::not_found("no such article")) }));
    let op = Operation::begin("order", ms(800));
    let client = ClientLayer::new(destination("pricing").trust(Trust::Inside).build().unwrap()).layer(net.channel());
    let status = op.scope(Caller::new(client).unary(Request::new("hello"))).await.unwrap_err();
    let problem = oneclock_tonic::problem(&status);
    assert_eq!((problem.status(), problem.outcome()), (502, Some(Outcome::Failed)));
    assert!(problem.to_string().contains("no such article"), "{problem}");

    let net = serve_plain(silent());
    let client = ClientLayer::new(destination("pricing").build().unwrap()).layer(net.channel());
    let status = op.scope(Caller::new(client).unary(Request::new("hello"))).await.unwrap_err();
    let problem = oneclock_tonic::problem(&status);
    assert_eq!((problem.status(), problem.reason()), (504, Some(Reason::Cap)), "{problem}"); // that of `begin`
    assert!(problem.to_string().contains("order → pricing") && !problem.to_string().contains("Ledger"), "{problem}");
}
