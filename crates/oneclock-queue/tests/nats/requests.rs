//! Request and reply with the caller's deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use oneclock::{Operation, Shutdown, Stopped};
use oneclock_core::{Outcome, Policy, Reason, Stage, Trust};
use oneclock_queue::nats::async_nats::{Client, HeaderMap};
use oneclock_queue::nats::{Answer, Declined, Question, RequestError, Requests, Responder, ResponderBuilder};
use tokio::sync::Semaphore;

use super::support::{Server, address, connect, ms, name, secs, within};

fn policy() -> Policy {
    Policy::named("pricing").when_absent(ms(800)).ceiling(secs(5)).min_useful(ms(20)).build().unwrap()
}

/// Somebody who answers, and who counts what he computes. Each waits until there is a permit.
struct Pricing {
    subject: String,
    computed: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
    left: Arc<std::sync::Mutex<Vec<Duration>>>, // of each that was computed
    task: tokio::task::JoinHandle<()>,
}

impl Pricing {
    async fn open(of: impl FnOnce(ResponderBuilder) -> ResponderBuilder) -> Self {
        Self::open_at(&address(), of).await
    }

    async fn open_at(address: &str, of: impl FnOnce(ResponderBuilder) -> ResponderBuilder) -> Self {
        let client = connect(address).await;
        let subject = name("pricing");
        let responder = Responder::builder(client, &*subject, policy()).trust(Trust::Inside);
        let responder = of(responder).build().await.unwrap();
        let (computed, permits) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let left = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (counted, allowed, noted) = (Arc::clone(&computed), Arc::clone(&permits), Arc::clone(&left));
        let task = tokio::spawn(responder.run(move |op, question| {
            let (counted, allowed, noted) = (Arc::clone(&counted), Arc::clone(&allowed), Arc::clone(&noted));
            async move {
                noted.lock().unwrap().push(op.remaining());
                assert_eq!(Operation::current().map(|op| op.remaining().is_zero()), Some(false));
                counted.fetch_add(1, Ordering::SeqCst);
                match &*question.body {
                    b"panics" => panic!("on purpose"),
                    b"empty" => return Err(Declined::new(400, "an empty cart has no price")),
                    _ => {}
                }
                allowed.acquire().await.unwrap().forget();
                Ok(Answer::from(question.body).field("x-price", "12.50"))
            }
        }));
        Self { subject, computed, permits, left, task }
    }

    fn computed(&self) -> usize {
        self.computed.load(Ordering::SeqCst)
    }
}

impl Drop for Pricing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn requests(trust: Trust) -> Requests {
    Requests::builder(connect(&address()).await).trust(trust).build().await.unwrap()
}

async fn ask(
    requests: &Requests,
    pricing: &Pricing,
    within: Duration,
    body: &'static str,
) -> Result<Vec<u8>, RequestError> {
    let op = Operation::begin("order", within);
    requests.ask_in(&op, "quote", &pricing.subject, body).await.map(|answer| answer.body.to_vec())
}

#[tokio::test]
async fn it_is_answered_within_the_budget_that_its_caller_has() {
    let (pricing, requests) = (Pricing::open(|pricing| pricing).await, requests(Trust::Inside).await);
    pricing.permits.add_permits(1);
    let op = Operation::begin("order", secs(2));
    tokio::time::sleep(ms(30)).await; // the order spends a little first
    let question = Question::from("cart 7").field("x-tenant", "a").field("X-Remaining-Ms", "40");
    let answer = within(requests.ask_in(&op, "quote", &pricing.subject, question)).await.unwrap();
    assert_eq!((&*answer.body, &*answer.fields[0].1), (&b"cart 7"[..], "12.50"));
    let left = pricing.left.lock().unwrap()[0];
    assert!(left <= secs(2) - ms(30) && left > secs(1), "a copy of what arrived would say 40 ms: {left:?}");
    assert_eq!(requests.waiting(), 0);
}

#[tokio::test]
async fn what_is_written_is_what_is_left() {
    let client = connect(&address()).await;
    let subject = name("wire");
    let mut wire = client.subscribe(subject.clone()).await.unwrap();
    client.flush().await.unwrap();
    let requests = Requests::builder(client).cap("quote", ms(300)).build().await.unwrap();
    let op = Operation::begin("order", secs(2));
    let mut written = Vec::new();
    for name in ["first", "second", "quote"] {
        tokio::time::sleep(ms(20)).await;
        let asked = requests.ask_in(&op, name, &subject, "cart 7");
        tokio::select! {
            _ = asked => panic!("nobody answers"),
            message = wire.next() => written.push(message.unwrap().headers.unwrap().get("x-remaining-ms").unwrap().as_str().parse::<u64>().unwrap()),
        }
    }
    assert!(written[0] <= 1_980 && written[1] <= written[0] - 20 && written[2] <= 300, "{written:?}");
    assert_eq!(requests.waiting(), 0, "whoever left waits no more");
}

/// One place, and a backlog behind it whose time runs out: none of it is computed.
#[tokio::test]
async fn i5_what_ran_out_of_time_in_the_backlog_is_not_computed() {
    let (pricing, requests) = (Pricing::open(|pricing| pricing.concurrency(1)).await, requests(Trust::Inside).await);
    let first = ask(&requests, &pricing, secs(4), "first");
    let backlog = async {
        within(async {
            while pricing.computed() == 0 {
                tokio::time::sleep(ms(1)).await
            }
        })
        .await;
        let many = (0..50).map(|_| ask(&requests, &pricing, ms(100), "backlog"));
        let ended = futures_util::future::join_all(many).await;
        assert!(ended.iter().all(|asked| matches!(asked, Err(RequestError::Stopped(Stopped::Ended(_))))));
        let one_more = ask(&requests, &pricing, secs(4), "one more");
        pricing.permits.add_permits(2);
        within(one_more).await.unwrap();
    };
    let (first, ()) = futures_util::future::join(first, backlog).await;
    assert_eq!(first.unwrap(), b"first");
    assert_eq!(pricing.computed(), 2, "the first, and the one that still has time");
}

#[tokio::test]
async fn c2_a_forged_longer_deadline_is_clamped_by_the_policy() {
    let client = connect(&address()).await;
    for (trust, at_most) in [(Trust::Outside, ms(800)), (Trust::Inside, secs(5))] {
        let pricing = Pricing::open(|pricing| pricing.trust(trust)).await;
        pricing.permits.add_permits(1);
        let mut headers = HeaderMap::new();
        headers.insert("X-Remaining-MS", "3600000");
        within(client.request_with_headers(pricing.subject.clone(), headers, "cart 7".into())).await.unwrap();
        let left = pricing.left.lock().unwrap()[0];
        assert!(left <= at_most && left > at_most / 2, "{trust:?}: {left:?}");
    }
}

/// What is on the wire, from somebody who is nobody of ours.
async fn raw(
    client: &Client,
    pricing: &Pricing,
    fields: &[(&'static str, &'static str)],
) -> (Option<String>, Option<String>) {
    let mut headers = HeaderMap::new();
    fields.iter().for_each(|(name, value)| headers.append(*name, *value));
    let answer = within(client.request_with_headers(pricing.subject.clone(), headers, "cart 7".into())).await.unwrap();
    let text = |name: &str| answer.headers.as_ref().and_then(|headers| headers.get(name)).map(ToString::to_string);
    (text("Nats-Service-Error-Code"), text("oneclock-reason"))
}

#[tokio::test]
async fn what_has_no_time_left_is_refused_before_anything_is_done_for_it() {
    let (client, pricing) = (connect(&address()).await, Pricing::open(|pricing| pricing).await);
    let says = |code: &str, reason: &str| (Some(code.to_owned()), Some(reason.to_owned()));
    assert_eq!(raw(&client, &pricing, &[("x-remaining-ms", "0")]).await, says("504", "expired_before_start"));
    assert_eq!(raw(&client, &pricing, &[("x-remaining-ms", "19")]).await, says("504", "insufficient_budget"));
    assert_eq!(
        raw(&client, &pricing, &[("grpc-timeout", "5S"), ("x-remaining-ms", "3")]).await,
        says("504", "insufficient_budget")
    );
    assert_eq!(raw(&client, &pricing, &[("x-remaining-ms", "soon")]).await, says("400", "malformed_deadline"));
    assert_eq!(pricing.computed(), 0);
    pricing.permits.add_permits(1);
    assert_eq!(raw(&client, &pricing, &[]).await, (None, None));
}

/// The same as its caller sees it: proof that nothing was done, if it comes from one of ours.
#[tokio::test]
async fn r8_a_refusal_proves_that_nothing_was_done_where_its_sender_is_believed() {
    let strict = |pricing: ResponderBuilder| pricing.concurrency(1).max_waiting(1);
    let pricing = Pricing::open(strict).await;
    let (ours, theirs) = (requests(Trust::Inside).await, requests(Trust::Outside).await);
    let busy = async {
        futures_util::future::join(ask(&ours, &pricing, secs(4), "a"), ask(&ours, &pricing, secs(4), "b")).await
    };
    let refused = async {
        within(async {
            while pricing.computed() == 0 {
                tokio::time::sleep(ms(1)).await
            }
        })
        .await;
        tokio::time::sleep(ms(50)).await; // until the second waits for a place
        let outcome = async |requests: &Requests| match ask(requests, &pricing, secs(4), "c").await {
            Err(RequestError::Declined { outcome, declined, .. }) => (outcome, declined.reason),
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome(&ours).await, (Outcome::Rejected, Some(Reason::Shed)));
        assert_eq!(outcome(&theirs).await, (Outcome::Unknown { stage: Stage::Wait }, Some(Reason::Shed)));
        pricing.permits.add_permits(2);
    };
    let ((a, b), ()) = within(futures_util::future::join(busy, refused)).await;
    assert!(a.is_ok() && b.is_ok());
    assert_eq!(pricing.computed(), 2);
}

#[tokio::test]
async fn work_ends_at_the_deadline_that_came_with_it() {
    let (pricing, requests) = (Pricing::open(|pricing| pricing).await, requests(Trust::Inside).await);
    let before = oneclock::live_operations();
    let error = within(ask(&requests, &pricing, ms(150), "for ever")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown { stage: Stage::Wait });
    assert_eq!((error.reason(), pricing.computed()), (Some(Reason::Cap), 1)); // nobody had given the order its time
    within(async {
        while oneclock::live_operations() > before {
            tokio::time::sleep(ms(1)).await
        }
    })
    .await;
    assert_eq!(requests.waiting(), 0);
}

#[tokio::test]
async fn every_way_of_getting_no_answer_says_what_is_known() {
    let (pricing, requests) = (Pricing::open(|pricing| pricing).await, requests(Trust::Inside).await);
    let declined = |asked: Result<Vec<u8>, RequestError>| match asked {
        Err(RequestError::Declined { outcome, declined, .. }) => (outcome, declined.status),
        other => panic!("{other:?}"),
    };
    let unknown = Outcome::Unknown { stage: Stage::Wait };
    assert_eq!(declined(within(ask(&requests, &pricing, secs(2), "empty")).await), (Outcome::Failed, 400));
    assert_eq!(declined(within(ask(&requests, &pricing, secs(2), "panics")).await), (unknown, 500));

    let op = Operation::begin("order", secs(2));
    let nobody = within(requests.ask_in(&op, "quote", name("nobody"), "cart 7")).await.unwrap_err();
    assert!(matches!(nobody, RequestError::NoResponders { .. }) && nobody.outcome() == Outcome::Rejected, "{nobody:?}");
    let field = Question::from("cart 7").field("x-a", "1\r\nx-remaining-ms: 60000");
    let not_one = within(requests.ask_in(&op, "quote", &pricing.subject, field)).await.unwrap_err();
    assert!(
        matches!(not_one, RequestError::NotARequest { .. }) && not_one.outcome() == Outcome::NotSent,
        "{not_one:?}"
    );
    let too_large = within(requests.ask_in(&op, "quote", &pricing.subject, vec![0; 2 << 20])).await.unwrap_err();
    assert!(matches!(too_large, RequestError::NotARequest { .. }), "{too_large:?}");
    let little = Operation::begin("order", ms(3));
    let not_begun = within(requests.ask_in(&little, "quote", &pricing.subject, "cart 7")).await.unwrap_err();
    assert!(matches!(not_begun, RequestError::Stopped(Stopped::NotBegun(_))), "{not_begun:?}");
    assert_eq!(pricing.computed(), 2);
}

/// The client keeps what it is given while its connection is gone: sent later, its time would be over.
#[tokio::test]
async fn nothing_is_asked_while_there_is_no_connection() {
    let mut server = Server::start();
    let client = connect(&server.address()).await;
    let requests = Requests::builder(client).build().await.unwrap();
    server.kill();
    let error = within(async {
        loop {
            let op = Operation::begin("order", ms(50)); // until the client has noticed nothing comes
            match requests.ask_in(&op, "quote", "pricing", "cart 7").await {
                Err(error @ RequestError::NotConnected { .. }) => return error,
                other => assert_eq!(other.unwrap_err().outcome(), Outcome::Unknown { stage: Stage::Wait }),
            }
        }
    })
    .await;
    assert_eq!(error.outcome(), Outcome::NotSent);
}

#[tokio::test]
async fn a_shutdown_takes_nothing_new_and_answers_what_came() {
    let shutdown = Shutdown::new();
    let (pricing, requests) =
        (Pricing::open(|pricing| pricing.ended_by(&shutdown)).await, requests(Trust::Inside).await);
    let under_way = ask(&requests, &pricing, secs(4), "under way");
    let signalled = async {
        within(async {
            while pricing.computed() == 0 {
                tokio::time::sleep(ms(1)).await
            }
        })
        .await;
        shutdown.signal();
        let refused = within(async {
            loop {
                match ask(&requests, &pricing, ms(200), "new").await {
                    Err(RequestError::NoResponders { .. }) => break,
                    _ => tokio::time::sleep(ms(5)).await,
                }
            }
        });
        refused.await;
        pricing.permits.add_permits(1_000);
    };
    let (under_way, ()) = futures_util::future::join(under_way, signalled).await;
    assert_eq!(under_way.unwrap(), b"under way");
    within(async {
        while !pricing.task.is_finished() {
            tokio::time::sleep(ms(1)).await
        }
    })
    .await;
}
