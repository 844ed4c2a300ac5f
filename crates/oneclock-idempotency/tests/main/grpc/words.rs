//! The words of each protocol, in memory with paused time: no socket between the layer and what is asserted.

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use oneclock_core::{Policy, Trust};
use oneclock_http::{IngressLayer, Problem};
use oneclock_idempotency::{Idempotency, MemoryStore, Store, Which, resolve};
use oneclock_tonic::PolicyExt as _;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{Layer as _, ServiceBuilder, ServiceExt as _};

use super::server::{Bank, receipt};
use crate::support::{Shop, layer, ms, names_told, paused_wall, send};

/// A head, a body and trailers.
#[derive(Debug, PartialEq, Eq)]
struct Raw {
    head: http::HeaderMap,
    status: u16,
    body: Bytes,
    trailers: Option<http::HeaderMap>,
}

async fn raw<B>(answer: Response<B>) -> Raw
where
    B: http_body::Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    let (head, body) = answer.into_parts();
    let collected = body.collect().await.expect("a whole body");
    let trailers = collected.trailers().cloned();
    Raw { head: head.headers, status: head.status.as_u16(), body: collected.to_bytes(), trailers }
}

fn call(content_type: &str, timeout: &str) -> Request<Body> {
    Request::post("/shop.Bank/Charge")
        .header("content-type", content_type)
        .header("idempotency-key", "tap-7")
        .header("grpc-timeout", timeout)
        .body(Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\x03499"))))
        .unwrap()
}

struct Service {
    once: Idempotency<MemoryStore>,
    bank: Bank,
}

impl Service {
    fn that_takes(takes: std::time::Duration) -> Self {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
        let bank = Bank::new(move |n, _| async move {
            tokio::time::sleep(takes).await;
            Ok(receipt(n))
        });
        Self { once, bank }
    }

    async fn asks(&self, timeout: &str, trust: Trust) -> Raw {
        self.asks_with(call("application/grpc", timeout), trust).await
    }

    async fn asks_with(&self, request: Request<Body>, trust: Trust) -> Raw {
        let policy = Policy::named("bank").when_absent(ms(10_000)).ceiling(ms(20_000)).build().unwrap();
        let service = ServiceBuilder::new()
            .layer(policy.grpc_layer().trust(trust))
            .layer(self.once.grpc_layer())
            .service(Routes::new(self.bank.clone()));
        raw(service.oneshot(request).await.unwrap()).await
    }
}

#[tokio::test(start_paused = true)]
async fn m10_the_deadline_ends_the_wait_and_says_where_to_ask() {
    let service = Service::that_takes(ms(2_000));
    for trust in [Trust::Outside, Trust::Inside] {
        let late = service.asks("300m", trust).await;
        let want = if trust == Trust::Outside { "4" } else { "10" }; // the second is a duplicate
        assert_eq!((late.status, &late.head["grpc-status"]), (200, &want.parse().unwrap()), "{late:?}");
        assert!(late.head["link"].to_str().unwrap().contains("rel=\"monitor\""), "{late:?}");
        let status = tonic::Status::from_header_map(&late.head).expect("a status");
        let says_more = status.details().windows(7).any(|part| part == b"outcome");
        assert_eq!(says_more, trust == Trust::Inside, "{status:?}");
        assert_eq!(late.head.contains_key("grpc-retry-pushback-ms"), want == "10", "in progress: come again");
        assert_eq!((&late.head["content-type"], late.body.len()), (&"application/grpc".parse().unwrap(), 0));
    }
    let again = service.asks("10S", Trust::Outside).await;
    assert_eq!(again.body, &b"\0\0\0\0\x09receipt 0"[..]);
    assert_eq!(again.head["idempotent-replayed"], "true");
    assert_eq!(again.trailers.as_ref().unwrap()["grpc-status"], "0");
    assert_eq!(service.bank.begun(), 1);
}

/// ABORTED three times: what an outsider reads of it over HTTP is the type of the problem, and over gRPC the reason of an
/// ErrorInfo. What asking again will not change says so, since gRPC's clients repeat by the status alone.
#[tokio::test(start_paused = true)]
async fn m7_outsiders_can_tell_refusals_apart_and_which_of_them_come_again() {
    let refused = async |service: &Service, timeout: &str, body: &'static [u8], trust| {
        let request = call("application/grpc", timeout).map(|_| Body::new(Full::new(Bytes::from_static(body))));
        let told = service.asks_with(request, trust).await;
        let status = tonic::Status::from_header_map(&told.head).expect("a status");
        let pushback = told.head.get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap().to_owned());
        (status, pushback)
    };
    let (one, other) = (&b"\0\0\0\0\x03499"[..], &b"\0\0\0\0\x03500"[..]);
    let slow = Service::that_takes(ms(2_000));
    slow.asks("300m", Trust::Outside).await; // begun
    let unknown = {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
        Service { once, bank: Bank::that_fails_first(|| tonic::Status::unknown("?")) }
    };
    unknown.asks("1S", Trust::Outside).await;
    let too_large = {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l.answer_bytes(1));
        Service { once, bank: Bank::new(|n, _| async move { Ok(receipt(n)) }) }
    };
    too_large.asks("1S", Trust::Outside).await;
    for (service, body, word, code, pushback) in [
        (&slow, one, "IN_PROGRESS", 10, "1000"),
        (&unknown, one, "OUTCOME_UNKNOWN", 10, "-1"),
        (&too_large, one, "ANSWER_NOT_KEPT", 10, "-1"),
        (&too_large, other, "KEY_REUSED", 9, "-1"),
    ] {
        for trust in [Trust::Outside, Trust::Inside] {
            let (status, told) = refused(service, "300m", body, trust).await;
            assert_eq!((status.code() as i32, told.as_deref()), (code, Some(pushback)), "{word} {trust:?}");
            let says = |text: &str| status.details().windows(text.len()).any(|part| part == text.as_bytes());
            assert!(says("google.rpc.ErrorInfo") && says(word), "{word} {trust:?}: {status:?}");
            assert_eq!(says("outcome"), trust == Trust::Inside, "{word} {trust:?}: {status:?}");
        }
    }
}

/// Messages are taken in before anything is claimed. Who waits for answers between its own gets none.
#[tokio::test(start_paused = true)]
async fn m1_messages_that_do_not_end_claim_nothing() {
    let service = Service::that_takes(ms(1));
    let first = Ok::<_, tonic::Status>(http_body::Frame::data(Bytes::from_static(b"\0\0\0\0\x03499")));
    let endless = futures_util::stream::iter([first]).chain(futures_util::stream::pending());
    let body = Body::new(http_body_util::StreamBody::new(endless));
    let late = service.asks_with(call("application/grpc", "300m").map(|_| body), Trust::Outside).await;
    assert_eq!((late.status, &late.head["grpc-status"]), (200, &"4".parse().unwrap()), "{late:?}");
    assert_eq!((service.bank.begun(), service.once.store().len()), (0, 0));
}

/// What a part knows is not said of the whole: the charge was not sent, and something before it may have happened.
#[tokio::test(start_paused = true)]
async fn m4_an_answer_says_unknown_where_the_record_does() {
    let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let bank = Bank::that_fails_first(|| oneclock_tonic::status(Problem::not_connected()));
    let service = Service { once, bank };
    let answer = service.asks("1S", Trust::Inside).await;
    let status = tonic::Status::from_header_map(&answer.head).expect("a status");
    let says = |word: &str| status.details().windows(word.len()).any(|part| part == word.as_bytes());
    assert!(says("outcome") && says("unknown") && !says("not_sent"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn m7_without_a_clock_above_a_refusal_is_in_grpcs_words_all_the_same() {
    let service = Service::that_takes(ms(1));
    let alone = || service.once.grpc_layer().layer(service.bank.clone());
    let first = raw(alone().oneshot(call("application/grpc", "1S")).await.unwrap()).await;
    assert_eq!(first.trailers.unwrap()["grpc-status"], "0");
    let mut other = call("application/grpc", "1S");
    *other.body_mut() = Body::new(Full::new(Bytes::from_static(b"\0\0\0\0\x03500")));
    let refused = raw(alone().oneshot(other).await.unwrap()).await;
    assert_eq!((refused.status, &refused.head["grpc-status"]), (200, &"9".parse().unwrap()), "{refused:?}");
    let mut large = call("application/grpc", "1S");
    *large.body_mut() = Body::new(Full::new(Bytes::from(vec![0; 257 * 1024])));
    assert_eq!(raw(alone().oneshot(large).await.unwrap()).await.head["grpc-status"], "8");
}

/// What a browser sends reaches the layer as gRPC if what translates it stands outside, and gets no key if it does not.
#[tokio::test(start_paused = true)]
async fn m7_grpc_web_is_translated_outside() {
    let service = Service::that_takes(ms(1));
    let web = tonic_web::GrpcWebLayer::new();
    let of_a_browser = || {
        let mut request = call("application/grpc-web+proto", "1S");
        *request.version_mut() = http::Version::HTTP_11;
        request
    };
    let covered =
        ServiceBuilder::new().layer(web.clone()).layer(service.once.grpc_layer()).service(service.bank.clone());
    let first = raw(covered.clone().oneshot(of_a_browser()).await.unwrap()).await;
    let again = raw(covered.oneshot(of_a_browser()).await.unwrap()).await;
    assert_eq!((&again.head["idempotent-replayed"], &again.body), (&"true".parse().unwrap(), &first.body));
    assert!(again.body.windows(13).any(|part| part == b"grpc-status:0"), "{again:?}");
    assert_eq!(service.bank.begun(), 1);

    let inside_out = ServiceBuilder::new().layer(service.once.grpc_layer()).layer(web).service(service.bank.clone());
    let refused = raw(inside_out.oneshot(of_a_browser()).await.unwrap()).await;
    assert_eq!(refused.head["grpc-status"], "12", "{refused:?}");
    assert_eq!(service.bank.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn m7_what_was_settled_by_hand_in_words_of_http_is_no_answer_to_grpc() {
    use oneclock_idempotency::{Answer, Resolution};
    for (answer, want) in
        [(Answer::new(http::StatusCode::CREATED, "receipt 7"), "10"), (Answer::grpc(b"receipt 7"), "0")]
    {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
        let bank = Bank::that_fails_first(|| tonic::Status::unknown("?"));
        let asks = async || {
            let answer = once.grpc_layer().layer(bank.clone()).oneshot(call("application/grpc", "1S")).await.unwrap();
            raw(answer).await
        };
        let first = asks().await;
        assert_eq!(first.head["grpc-status"], "2");
        assert!(first.head["link"].to_str().unwrap().contains("/operations/"), "it leaves something open: {first:?}");
        let (scope, _) = once.store().list(Which::Unknown, None, 1).await.unwrap().remove(0);
        assert_eq!(scope.route.as_str(), "/shop.Bank/Charge");
        resolve(once.store(), &scope, None, Resolution::Completed(answer)).await.unwrap();
        let told = asks().await;
        let status = told.trailers.as_ref().unwrap_or(&told.head).get("grpc-status");
        assert_eq!(status.unwrap(), want, "{told:?}");
        assert_eq!(bank.begun(), 1);
    }
}

/// A key is of its method, whatever a call claims to speak; the names in events are those of the routes.
#[tokio::test(start_paused = true)]
async fn m8_a_method_has_one_scope_and_a_service_one_name() {
    let (observer, told) = names_told();
    let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| {
        let l = l.observed_by(observer);
        #[cfg(feature = "axum")]
        let l = l.axum_routes();
        l
    });
    let bank = Bank::new(|n, _| async move { Ok(receipt(n)) });
    let in_a_router = Routes::new(bank.clone()).into_axum_router().layer(once.clone());
    let around_one = Routes::new(once.grpc_layer().layer(bank.clone()));
    let around_all = once.grpc_layer().layer(Routes::new(bank));
    for content_type in ["application/grpc", "application/json"] {
        for method in ["Charge", "Made/Up"] {
            let path = format!("/shop.Bank/{method}");
            let of = || {
                let (mut head, body) = call(content_type, "1S").into_parts();
                head.uri = path.parse().unwrap();
                Request::from_parts(head, body)
            };
            if cfg!(feature = "axum") {
                in_a_router.clone().oneshot(of().map(axum::body::Body::new)).await.unwrap();
            }
            around_one.clone().oneshot(of()).await.unwrap();
            around_all.clone().oneshot(of()).await.unwrap();
        }
    }
    let records = once.store().list(Which::All, None, 99).await.unwrap();
    let routes: Vec<_> = records.iter().map(|(scope, _)| scope.route.to_string()).collect();
    assert_eq!(routes, ["/shop.Bank/Charge", "/shop.Bank/Made/Up"]);
    // Who stands around all services does not see which one was matched.
    let names = if cfg!(feature = "axum") { &["/shop.Bank/{*rest}", "charge"][..] } else { &["charge"] };
    assert_eq!(told.lock().unwrap().iter().map(String::as_str).collect::<Vec<_>>(), names);
}

// === Connect, whose unary calls are requests of HTTP ===

fn connect(body: &str) -> Request<Full<Bytes>> {
    Request::post("/shop.Bank/Charge")
        .header("content-type", "application/json")
        .header("connect-protocol-version", "1")
        .header("idempotency-key", "tap-7")
        .body(Full::from(body.to_owned()))
        .unwrap()
}

fn connect_shop(status: u16, body: &'static str) -> Shop {
    Shop::new(move |_, _| async move {
        let answer = Response::builder().status(status).header("content-type", "application/json");
        answer.header("trailer-shop-run", "1").header("x-hop", "1").body(Full::from(body)).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn m4_connect_is_judged_by_its_code_and_not_by_its_status() {
    for (status, body, kept) in [
        (200, r#"{"receipt":7}"#, true),
        (409, r#"{"code":"already_exists"}"#, true),
        (409, r#"{"code":"aborted"}"#, false),
        (501, r#"{"code":"unimplemented"}"#, true),
        (503, r#"{"code":"unavailable"}"#, false),
    ] {
        let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
        let shop = connect_shop(status, body);
        assert_eq!(send(&once, &shop, connect("{}")).await.body, body);
        let again = send(&once, &shop, connect("{}")).await;
        if kept {
            assert_eq!((again.status, again.body.as_str(), again.replayed), (status, body, true));
            assert!(again.headers.contains_key("trailer-shop-run") && !again.headers.contains_key("x-hop"));
        } else {
            assert!(again.status == 409 && again.body.contains(r#""code":"aborted""#), "{again:?}");
            assert!(!again.replayed && again.link.is_some(), "{again:?}");
        }
        assert_eq!(shop.begun(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn m7_a_refusal_in_connects_words_also_below_a_clock() {
    let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = connect_shop(200, "{}");
    send(&once, &shop, connect("{}")).await;
    let alone = send(&once, &shop, connect(r#"{"cents":1}"#)).await;
    let policy = Policy::named("bank").when_absent(ms(10_000)).ceiling(ms(20_000)).build().unwrap();
    let clocked = ServiceBuilder::new()
        .layer(IngressLayer::new(policy))
        .map_request(|request: Request<oneclock_http::Upload<Full<Bytes>>>| {
            drop(request);
            connect(r#"{"cents":1}"#)
        })
        .layer(once)
        .service(shop);
    let below = raw(clocked.oneshot(connect(r#"{"cents":1}"#)).await.unwrap()).await;
    for (status, body) in [(alone.status, alone.body), (below.status, String::from_utf8(below.body.to_vec()).unwrap())]
    {
        assert_eq!(status, 400);
        assert!(body.contains(r#""code":"failed_precondition""#), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn m7_a_stream_of_connects_gets_no_key() {
    let (once, _) = layer(MemoryStore::with_clock(paused_wall), |l| l);
    let shop = connect_shop(200, "");
    let mut stream = connect("");
    stream.headers_mut().insert("content-type", "application/connect+proto".parse().unwrap());
    let refused = send(&once, &shop, stream).await;
    assert!(refused.body.contains(r#""code":"unimplemented""#), "{refused:?}");
    assert_eq!(shop.begun(), 0);
}
