//! I2: no downstream call is given more time than its operation has left. Contract E4, E5, E7.
//!
//! Three services in a row, and at the far end a peer that says what it was told. Every service copies all deadline
//! fields of its caller into its own call, as a careless proxy would: what arrives must not be those.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method};
use oneclock::{Operation, clock};
use oneclock_axum::Op;
use oneclock_core::wire::{Conventions, Read, names};
use serde_json::Value;

use crate::out::{Out, Terms};
use crate::shop::{Shop, ample, ms};
use crate::ways::Way;

const RESERVE: Duration = ms(50);
const AT_FIRST: Duration = ms(5_000);

/// What one service was told, got, and had left right before its own call.
#[derive(Clone, Copy, Debug)]
struct Hop {
    told: Duration,
    limit: Duration,
    left: Duration,
}

type Hops = Arc<Mutex<Vec<Hop>>>;

/// A service that calls the next one.
fn hop(way: Way, next: Out, hops: &Hops) -> Router {
    let hops = hops.clone();
    let pass_on = move |Op(op): Op, fields: HeaderMap| async move {
        let told = way.told(&fields);
        tokio::time::sleep(ms(20)).await; // its own work
        hops.lock().unwrap().push(Hop { told, limit: op.bound().limit, left: op.remaining() });
        next.send(Method::GET, "/", deadlines(&fields), Bytes::new()).await.expect("an answer")
    };
    Router::new().route("/", get(pass_on))
}

/// Every deadline field among these, with some that are stale.
fn deadlines(fields: &HeaderMap) -> HeaderMap {
    let mut copied: HeaderMap = names::ALL
        .iter()
        .filter_map(|name| Some((HeaderName::from_static(name), fields.get(*name)?.clone())))
        .collect();
    copied.insert(names::GRPC_TIMEOUT, "99S".parse().unwrap());
    copied.insert(names::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS, "99000".parse().unwrap());
    copied
}

/// The fields that the peer at the far end was told, by its own account.
fn told_at_the_far_end(body: &[u8]) -> Vec<(String, Vec<String>)> {
    let json: Value = serde_json::from_slice(body).expect("the peer's JSON");
    let fields = json["headers"].as_object().expect("fields");
    let texts =
        |values: &Value| values.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    names::ALL.iter().filter_map(|name| Some(((*name).to_owned(), texts(fields.get(*name)?)))).collect()
}

/// What the far end was told, in the only field that it was told it in.
#[track_caller]
fn only_told(way: Way, body: &[u8]) -> Duration {
    let told = told_at_the_far_end(body);
    let [(name, values)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((name.as_str(), values.len()), (way.tells_in(), 1), "{told:?}");
    way.read(values[0].as_bytes())
}

over_every_way_in! {
    async fn e5_along_a_chain_of_three_every_hop_is_told_less(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.echoes();
            let hops = Hops::default();
            let terms = Terms { reserve: RESERVE, ..Terms::default() };
            let mut next = far_end.addr();
            for name in ["pricing", "order", "gateway"] {
                let out = shop.out(way_out, next, terms.clone());
                next = shop.open(ample(name), hop(shop.way(), out, &hops)).await;
            }
            let answer = shop.get(next, "/").within(AT_FIRST).header("connect-timeout-ms", "9000").answer().await;
            let at_the_far_end = only_told(shop.way(), &answer.body);

            let hops = hops.lock().unwrap().clone();
            assert_eq!(hops.len(), 3);
            if shop.is_behind_a_sidecar() {
                assert!(hops[0].told < AT_FIRST, "{hops:?}");
            } else {
                assert_eq!(hops[0].told, AT_FIRST);
            }
            for (hop, told_next) in hops.iter().zip([hops[1].told, hops[2].told, at_the_far_end]) {
                // To gRPC a sidecar says it in two fields, one of whole milliseconds: the smaller counts.
                let counts = if shop.is_behind_a_sidecar() { hop.limit <= hop.told } else { hop.limit == hop.told };
                assert!(counts, "{way_out:?}: what is told is what counts: {hops:?}");
                assert!(told_next <= hop.left - RESERVE, "{way_out:?}: {told_next:?} of {hop:?}");
                assert!(told_next > ms(1_000), "{way_out:?}: it is told what is left, not some small number: {hops:?}");
            }
        }
    }

    without_a_sidecar:

    async fn e4_every_call_is_told_anew(shop: Shop) {
        for &way_out in shop.ways_out() {
            let far_end = shop.echoes();
            let out = shop.out(way_out, far_end.addr(), Terms::default());
            let op = Operation::begin("order", AT_FIRST);
            let told = op.run(two_calls(shop.way(), |fields| out.send(Method::GET, "/", fields, Bytes::new()))).await;
            let (told, left) = told.expect("in time");
            assert!(told[0] <= left[0] && told[1] <= left[1], "{way_out:?}: told {told:?}, left {left:?}");
            assert!(told[1] < told[0], "{way_out:?}: told {told:?}");
        }
    }

    async fn e7_every_convention_of_a_destination_is_told_the_same_deadline(shop: Shop) {
        let everything = Conventions::default_set();
        for &way_out in shop.ways_out() {
            let far_end = shop.echoes();
            let out = shop.out(way_out, far_end.addr(), Terms { tells: Some(everything.clone()), ..Terms::default() });
            let op = Operation::begin("order", AT_FIRST);
            let answer = op.run(out.send(Method::GET, "/", deadlines(&HeaderMap::new()), Bytes::new())).await;
            let told = told_at_the_far_end(&answer.expect("in time").expect("an answer"));
            let fields: Vec<_> = told.iter().map(|(name, _)| name.as_str()).collect();
            let mut wanted: Vec<_> = everything.iter().map(|convention| convention.name().as_str()).collect();
            wanted.sort_by_key(|name| names::ALL.iter().position(|other| other == name));
            assert_eq!(fields, wanted, "{way_out:?}");
            for convention in &everything {
                let values = &told.iter().find(|(name, _)| *convention.name() == **name).expect("told").1;
                let [value] = &values[..] else { panic!("{way_out:?}: {} {values:?}", convention.name()) };
                let read = convention.codec().parse(value.as_bytes(), clock::wall());
                let Read::Valid(left) = read else { panic!("{way_out:?}: {} {value}", convention.name()) };
                assert!(left <= AT_FIRST && left > ms(1_000), "{way_out:?}: {} {value}", convention.name());
            }
        }
    }

    async fn e5_a_reserve_is_kept_for_the_way_home(shop: Shop) {
        // The far end never answers. The call ends early enough for the service to say so in time.
        for &way_out in shop.ways_out() {
            let far_end = shop.stalls();
            let out = shop.out(way_out, far_end.addr(), Terms { reserve: ms(600), ..Terms::default() });
            let op = Operation::begin("order", ms(800));
            let fault = op.run(out.get("/")).await.expect("the operation has its reserve left").expect_err("no answer");
            assert!(fault.ended().elapsed >= ms(190), "{fault:?}");
            assert!(op.remaining() > ms(0), "{way_out:?}");
            far_end.caller_left().await.unwrap();
        }
    }

    async fn the_naive_way_of_passing_fields_on_tells_too_much(shop: Shop) {
        let far_end = shop.echoes();
        let client = shop.plain(far_end.addr());
        let op = Operation::begin("order", AT_FIRST);
        let call = |mut fields: HeaderMap| {
            fields.remove(names::GRPC_TIMEOUT);
            fields.remove(names::X_ENVOY_EXPECTED_RQ_TIMEOUT_MS);
            let at_first = if shop.way() == Way::Grpc { "5S" } else { "5000" };
            fields.insert(shop.way().tells_in(), at_first.parse().unwrap());
            client.send(Method::GET, "/", fields, "", None)
        };
        let (told, left) = op.run(two_calls(shop.way(), call)).await.expect("in time");
        assert!(told[1] > left[1] && told[1] == told[0], "told {told:?}, left {left:?}");
    }

    only_behind_a_sidecar:

    /// Whatever came in, in whichever field.
    async fn a_service_that_knows_of_no_deadline_is_told_what_is_left(shop: Shop) {
        let far_end = shop.echoes();
        let addr = shop.sidecar(far_end.addr(), oneclock_core::Trust::Inside, None, |_| {}).await;
        let ask = shop.get(addr, "/").within(AT_FIRST).header("connect-timeout-ms", "9000");
        let answer = ask.header("x-envoy-expected-rq-timeout-ms", "99000").answer().await;
        let told = told_at_the_far_end(&answer.body);
        assert!(told.iter().any(|(name, _)| name == shop.way().tells_in()), "{told:?}");
        for (name, values) in &told {
            let [value] = &values[..] else { panic!("{told:?}") };
            // gRPC is told in plain HTTP's field, too.
            let way = if name == names::X_REMAINING_MS { Way::Http1 } else { shop.way() };
            assert_eq!(name, way.tells_in(), "{told:?}");
            let left = way.read(value.as_bytes());
            assert!(left < AT_FIRST && left > ms(1_000), "{told:?}");
        }
    }
}

over_plain_tonic! {
    async fn the_naive_way_of_forwarding_metadata_tells_what_was_left_at_first(shop: Shop) {
        let far_end = shop.echoes();
        let client = shop.plain(far_end.addr());
        let passes_on = move |fields: HeaderMap| async move {
            let copied = HeaderMap::from_iter(fields.into_iter().filter(|(name, _)| {
                name.as_ref().is_some_and(|name| name == names::GRPC_TIMEOUT)
            }).map(|(name, value)| (name.expect("a name"), value)));
            tokio::time::sleep(ms(50)).await; // its own work
            client.send(Method::GET, "/", copied, "", None).await.expect("an answer")
        };
        let addr = shop.open_plain_tonic(Router::new().route("/", get(passes_on)), |server| server).await;
        let answer = shop.get(addr, "/").within(AT_FIRST).answer().await;
        assert_eq!(only_told(shop.way(), &answer.body), AT_FIRST, "50 ms of it were spent");
    }
}

/// Two calls with some work in between: what each was told, and what was left right before it.
async fn two_calls<F, E>(way: Way, call: impl Fn(HeaderMap) -> F) -> ([Duration; 2], [Duration; 2])
where
    F: Future<Output = Result<Bytes, E>>,
    E: std::fmt::Debug,
{
    let mut told = [Duration::ZERO; 2];
    let mut left = [Duration::ZERO; 2];
    for n in 0..2 {
        left[n] = oneclock::remaining().expect("an operation is current");
        let answer = call(deadlines(&HeaderMap::new())).await.expect("an answer");
        told[n] = only_told(way, &answer);
        tokio::time::sleep(ms(50)).await;
    }
    (told, left)
}
