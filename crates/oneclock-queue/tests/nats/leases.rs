//! For how long a delivery is somebody's, and what the server makes of words that come after that.

use oneclock::clock;
use oneclock_queue::{Broker as _, Delivery as _, Lane, NotSettled, Settle};

use super::support::{Queue, Server, ms, one_of, secs, within};

#[tokio::test]
async fn what_nobody_settles_comes_again_and_counts() {
    let queue = Queue::open("crash", |queue| queue.lease(secs(1))).await;
    queue.publish("order 7").await;
    let began = clock::now();
    drop(queue.one(Lane::Main).await); // its process died
    let again = queue.one(Lane::Main).await;
    assert!(clock::now().since(began) >= ms(900));
    assert_eq!((again.attempt(), again.may_have_run()), (2, true));
    within(again.settle(&Settle::Again { after: ms(0), counted: true })).await.unwrap();
    let third = queue.one(Lane::Main).await;
    assert_eq!((third.attempt(), third.may_have_run()), (3, true), "the crash is still counted, and not forgotten");
}

#[tokio::test]
async fn a_lease_that_is_renewed_goes_on() {
    let queue = Queue::open("renewed", |queue| queue.lease(secs(1))).await;
    queue.publish("order 7").await;
    let ours = queue.one(Lane::Main).await;
    let heartbeats = async {
        for _ in 0..8 {
            tokio::time::sleep(ms(300)).await;
            ours.renew().await.unwrap();
        }
    };
    let somebody_else = queue.again(|queue| queue.lease(secs(1))).await;
    tokio::select! {
        () = heartbeats => {}
        got = somebody_else.receive(Lane::Main, 1) => panic!("somebody else got it: {got:?}"),
    }
    within(ours.settle(&Settle::Gone)).await.unwrap();
}

/// What the documentation says of the server: it knows a message and no delivery of it.
async fn an_old_delivery_speaks_for_the_new_one(address: &str) {
    let queue = Queue::open_at(address, "old", |queue| queue.lease(secs(1))).await;
    queue.publish("order 7").await;
    let old = queue.one(Lane::Main).await;
    let new = queue.one(Lane::Main).await; // a second later
    assert_eq!(new.attempt(), 2);
    within(old.renew()).await.unwrap();
    within(old.settle(&Settle::Gone)).await.unwrap();
    assert_eq!(queue.stored("main").await, [], "the message that somebody else was working on is gone");
    within(new.renew()).await.unwrap();
    within(new.settle(&Settle::Gone)).await.unwrap();
}

#[tokio::test]
async fn an_old_delivery_speaks_for_the_new_one_on_2_9() {
    an_old_delivery_speaks_for_the_new_one(&super::support::address()).await;
}

#[tokio::test]
async fn an_old_delivery_speaks_for_the_new_one_on_newer_servers() {
    an_old_delivery_speaks_for_the_new_one(&Server::newer().address()).await;
}

#[tokio::test]
async fn a_delivery_of_a_queue_that_is_gone_is_lost() {
    let queue = Queue::open("gone", |queue| queue).await;
    queue.publish("order 7").await;
    let got = queue.one(Lane::Main).await;
    queue.context.delete_stream(queue.nats.stream()).await.unwrap();
    assert!(matches!(within(got.renew()).await, Err(NotSettled::Lost)));
    assert!(matches!(within(got.settle(&Settle::Gone)).await, Err(NotSettled::Lost)));
}

#[tokio::test]
async fn it_takes_no_more_than_it_was_asked_for_and_waits_for_one() {
    let queue = Queue::open("at-most", |queue| queue).await;
    for _ in 0..5 {
        queue.publish("order").await;
    }
    assert_eq!(within(queue.nats.receive(Lane::Main, 3)).await.unwrap().len(), 3);
    assert_eq!(within(queue.nats.receive(Lane::Main, 3)).await.unwrap().len(), 2, "those that there are");
    let (waits, publishes) = (queue.nats.receive(Lane::Main, 3), async {
        tokio::time::sleep(ms(50)).await; // so that it waits
        queue.publish("order").await;
    });
    let (got, ()) = within(futures_util::future::join(waits, publishes)).await;
    assert_eq!(got.unwrap().len(), 1);
}

/// Whoever leaves while asking leaves nothing behind that nobody gets: what comes for him is there for the next.
#[tokio::test]
async fn a_question_that_is_given_up_loses_nothing() {
    let queue = Queue::open("cancel", |queue| queue).await;
    for round in 0..20_u64 {
        let given_up = tokio::time::timeout(ms(round % 7), queue.nats.receive(Lane::Main, 4)).await;
        assert!(given_up.is_err(), "there is nothing");
        queue.publish("order").await;
        let began = clock::now();
        let got = one_of(&queue.nats, Lane::Main).await;
        assert_eq!(got.attempt(), 1);
        assert!(clock::now().since(began) < secs(5), "a lease would be thirty");
        within(got.settle(&Settle::Gone)).await.unwrap();
    }
}
