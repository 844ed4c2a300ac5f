//! Calls with keys over sockets, between tonic's own server and client.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use oneclock_core::idempotency::State;
use oneclock_http::Problem;
use oneclock_idempotency::{Idempotency, IdempotencyBuilder, MemoryStore, Store, Which};
use tokio::sync::Semaphore;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use super::server::*;
use crate::support::{Moody, ms};

fn layer<St: Store>(store: St, of: impl FnOnce(IdempotencyBuilder<St>) -> IdempotencyBuilder<St>) -> Idempotency<St> {
    of(Idempotency::builder("charge", store).one_principal()).build().expect("a layer")
}

fn plain() -> Idempotency<MemoryStore> {
    layer(MemoryStore::new(), |l| l)
}

/// A bank that says when it was begun, and answers when it may.
fn held() -> (Bank, Arc<Semaphore>, Arc<Semaphore>) {
    let (began, may) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let inside = (began.clone(), may.clone());
    let bank = Bank::new(move |n, _| {
        let (began, may) = inside.clone();
        async move {
            began.add_permits(1);
            let _may = may.acquire().await.unwrap();
            Ok(receipt(n))
        }
    });
    (bank, began, may)
}

async fn has(began: &Semaphore) {
    within(began.acquire()).await.unwrap().forget();
}

#[tokio::test]
async fn m10_32_duplicates_are_one_run_and_all_get_its_message_and_trailers() {
    let (bank, began, may) = held();
    let once = plain();
    let server = serve(once.grpc_layer(), &bank);
    let client = server.client();
    let calls = join_all((0..32).map(|_| client.charge(Some("tap-7"), "499")));
    let release = async {
        server.until(|traffic| traffic.arrived == 32).await;
        has(&began).await;
        may.add_permits(32);
    };
    let (answers, ()) = tokio::join!(calls, release);
    assert_eq!(bank.begun(), 1);
    for got in &answers {
        assert_eq!((got.code, got.text.as_str()), (Code::Ok, "receipt 0"), "{got:?}");
        assert!(got.metadata.contains(&("shop-run".into(), "1".into())), "a trailer: {got:?}");
        assert_eq!(got.same(), answers[0].same());
    }
    assert_eq!(answers.iter().filter(|got| got.replayed).count(), 31);
    let later = client.charge(Some("tap-7"), "499").await;
    assert_eq!((later.same(), later.replayed, bank.begun()), (answers[0].same(), true, 1));
}

#[tokio::test]
async fn m10_who_leaves_ends_its_wait_and_the_retry_gets_the_answer() {
    let (bank, began, may) = held();
    let once = plain();
    let server = serve(once.grpc_layer(), &bank);
    leaves(&server, &began).await;
    may.add_permits(9);
    let again = server.client().charge(Some("tap-7"), "499").await;
    assert_eq!((again.text.as_str(), again.replayed, bank.begun()), ("receipt 0", true, 1), "{again:?}");
}

/// The same without a layer: the work of the first is dropped midway, and a second is begun.
#[tokio::test]
async fn naive_a_plain_retry_runs_the_handler_twice() {
    let (bank, began, may) = held();
    let server = serve_plain(&bank);
    leaves(&server, &began).await;
    may.add_permits(9);
    let again = server.client().charge(Some("tap-7"), "499").await;
    assert_eq!((again.text.as_str(), bank.begun()), ("receipt 1", 2));
}

/// A caller that is gone when its charge was begun, as the server knows.
async fn leaves(server: &Running, began: &Semaphore) {
    let client = server.client();
    let call = tokio::spawn(async move { client.charge(Some("tap-7"), "499").await });
    has(began).await;
    call.abort();
    server.until(|traffic| traffic.over == 1).await;
}

#[tokio::test]
async fn m4_a_definite_error_is_an_answer_and_is_replayed_as_it_was() {
    for code in [3, 5, 6, 7, 9, 11, 12, 16].map(Code::from_i32) {
        let bank = Bank::that_fails_first(move || {
            let mut metadata = MetadataMap::new();
            metadata.insert("shop-field", "cents".parse().unwrap());
            Status::with_details_and_metadata(code, "not 499 %", Bytes::from_static(b"\x08\x03"), metadata)
        });
        let once = plain();
        let server = serve(once.grpc_layer(), &bank);
        let client = server.client();
        let first = client.charge(Some("tap-7"), "499").await;
        assert_eq!((first.code, first.text.as_str(), first.replayed), (code, "not 499 %", false));
        assert_eq!(first.details, &b"\x08\x03"[..]);
        assert!(first.metadata.contains(&("shop-field".into(), "cents".into())), "{first:?}");
        let again = client.charge(Some("tap-7"), "499").await;
        assert_eq!((again.same(), again.replayed, bank.begun()), (first, true, 1));
    }
}

#[tokio::test]
async fn m4_what_proves_nothing_is_unknown_and_is_not_run_again() {
    for code in [1, 2, 4, 8, 10, 13, 14, 15].map(Code::from_i32) {
        let bank = Bank::that_fails_first(move || Status::new(code, "no bank"));
        let once = plain();
        let server = serve(once.grpc_layer(), &bank);
        let client = server.client();
        let first = client.charge(Some("tap-7"), "499").await;
        assert_eq!((first.code, first.text.as_str()), (code, "no bank"), "its own caller sees its own answer");
        let again = client.charge(Some("tap-7"), "499").await;
        assert_eq!(
            (again.code, again.replayed, again.pushback.as_deref()),
            (Code::Aborted, false, Some("-1")),
            "{again:?}"
        );
        assert_eq!(again.text, "its run failed in a way that proves nothing");
        assert_eq!(bank.begun(), 1, "{code:?}");
    }
}

#[tokio::test]
async fn m4_the_handlers_own_word_lets_it_run_again() {
    let of = |problem: fn(Problem) -> Problem| {
        Bank::that_fails_first(move || oneclock_tonic::status(problem(Problem::not_connected())))
    };
    let (proof, none) = (of(Problem::nothing_happened), of(|problem| problem));
    for (bank, want) in [(&proof, Code::Ok), (&none, Code::Aborted)] {
        let once = plain();
        let server = serve(once.grpc_layer(), bank);
        let client = server.client();
        assert_eq!(client.charge(Some("tap-7"), "499").await.code, Code::Unavailable);
        assert_eq!(client.charge(Some("tap-7"), "499").await.code, want);
    }
    assert_eq!((proof.begun(), none.begun()), (2, 1));
}

#[tokio::test]
async fn m7_another_message_or_method_under_the_same_key() {
    let bank = Bank::new(|n, _| async move { Ok(receipt(n)) });
    let once = plain();
    let server = serve(once.grpc_layer(), &bank);
    let client = server.client();
    assert_eq!(client.charge(Some("tap-7"), "499").await.text, "receipt 0");
    let other = client.charge(Some("tap-7"), "500").await;
    assert_eq!((other.code, other.pushback.as_deref()), (Code::FailedPrecondition, Some("-1")));
    assert_eq!(bank.begun(), 1);
    let (_, mut statement) = client.stream("tap-7").await.unwrap();
    assert_eq!(within(statement.message()).await.unwrap().unwrap(), "receipt 1", "a key is of its method");
}

#[tokio::test]
async fn m6_a_store_that_is_down_is_unavailable_and_nothing_runs() {
    let moody = Moody::new();
    moody.gone.store(true, Ordering::SeqCst);
    let bank = Bank::new(|n, _| async move { Ok(receipt(n)) });
    let once = layer(moody.clone(), |l| l);
    let server = serve(once.grpc_layer(), &bank);
    let client = server.client();
    let refused = client.charge(Some("tap-7"), "499").await;
    assert_eq!((refused.code, bank.begun()), (Code::Unavailable, 0), "{refused:?}");
    assert_eq!(refused.pushback.as_deref(), Some("1000"));
    moody.gone.store(false, Ordering::SeqCst);
    assert_eq!(client.charge(Some("tap-7"), "499").await.text, "receipt 0");
}

#[tokio::test]
async fn m7_a_key_that_is_missing_or_malformed() {
    let bank = Bank::new(|n, _| async move { Ok(receipt(n)) });
    let required = layer(MemoryStore::new(), IdempotencyBuilder::required);
    let server = serve(required.grpc_layer(), &bank);
    for key in [None, Some("\"open")] {
        assert_eq!(server.client().charge(key, "499").await.code, Code::InvalidArgument, "{key:?}");
    }
    assert_eq!(bank.begun(), 0);
    let optional = plain();
    let server = serve(optional.grpc_layer(), &bank);
    for n in 0..2 {
        assert_eq!(server.client().charge(None, "499").await.text, format!("receipt {n}"));
    }
}

#[tokio::test]
async fn m7_a_stream_within_the_limit_is_replayed_and_a_larger_one_is_given_once() {
    for (answer_bytes, want) in [(256 * 1024, Code::Ok), (1_000, Code::Aborted)] {
        let bank = Bank::new(|_, _| async { Ok(messages((0..300).map(|n| format!("{n:03}")))) });
        let once = layer(MemoryStore::new(), |l| l.answer_bytes(answer_bytes));
        let server = serve(once.grpc_layer(), &bank);
        let client = server.client();
        let first = client.charge(Some("tap-7"), "499").await;
        assert_eq!((first.code, first.text.len(), first.replayed), (Code::Ok, 900, false), "given whole");
        let again = client.charge(Some("tap-7"), "499").await;
        assert_eq!((again.code, again.replayed, bank.begun()), (want, want == Code::Ok, 1), "{again:?}");
        if want == Code::Ok {
            assert_eq!(again.same(), first);
        }
    }
}

#[tokio::test]
async fn m4_a_stream_is_judged_by_its_end() {
    for answer_bytes in [256 * 1024, 10] {
        for (code, again) in [(Code::NotFound, Code::NotFound), (Code::Unavailable, Code::Aborted)] {
            let bank = Bank::new(move |_, _| async move {
                let end = futures_util::stream::iter([Err(Status::new(code, "no more"))]);
                Ok(messages(["a message".to_owned(), "and another".to_owned()]).chain(end).boxed())
            });
            let once = layer(MemoryStore::new(), |l| l.answer_bytes(answer_bytes));
            let server = serve(once.grpc_layer(), &bank);
            let client = server.client();
            assert_eq!(client.charge(Some("tap-7"), "499").await.code, code);
            let got = client.charge(Some("tap-7"), "499").await;
            // Of what was too large it is known how it ended, and there is nothing to give again.
            let (want, replays) = if answer_bytes == 10 { (Code::Aborted, false) } else { (again, again == code) };
            assert_eq!((got.code, got.replayed, bank.begun()), (want, replays, 1), "{got:?}");
            let (_, record) = once.store().list(Which::All, None, 1).await.unwrap().remove(0);
            assert_eq!(record.state == State::Completed, again == code, "{record:?}");
        }
    }
}

#[tokio::test]
async fn m10_the_bound_of_a_run_is_its_own() {
    let bank = Bank::new(|_, _| std::future::pending());
    let once = layer(MemoryStore::new(), |l| l.execution(ms(300)));
    let server = serve(once.grpc_layer(), &bank);
    let client = server.client();
    assert_eq!(client.charge(Some("tap-7"), "499").await.code, Code::DeadlineExceeded);
    assert_eq!(client.charge(Some("tap-7"), "499").await.code, Code::Aborted);
    assert_eq!(bank.begun(), 1);
}
