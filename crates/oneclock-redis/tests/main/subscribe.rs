//! Subscriptions: a connection of their own, for as long as their operation lives.

use oneclock_core::{Outcome, Reason, Stage};
use oneclock_redis::{RedisError, redis};

use crate::support::{BOUND, Keys, Recorder, ask, client, eventually, ms, operation};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_come_and_end_with_the_operation() {
    let (redis, keys) = (client(|redis| redis.cap("follow", ms(3_000))), Keys::new());
    let (news, others) = (keys.key("news"), keys.key("others"));
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    let pattern = format!("{}*", others);
    let mut followed = op.run(redis.subscribe("follow", &[&news, &pattern])).await.unwrap().unwrap();
    assert_eq!(redis.status().own, 1);

    assert_eq!(ask::<i64>(&redis, &format!("PUBLISH {news} one")).await, 1);
    assert_eq!(ask::<i64>(&redis, &format!("PUBLISH {others}:x two")).await, 1);
    let first = followed.next().await.unwrap().expect("open");
    assert_eq!((first.channel, first.pattern, first.payload), (news.clone(), None, b"one".to_vec()));
    let second = followed.next().await.unwrap().expect("open");
    assert_eq!(
        (second.channel, second.pattern, second.payload),
        (format!("{others}:x"), Some(pattern), b"two".to_vec())
    );

    let error = followed.next().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::Cap));
    assert!(error.to_string().contains("stage body"), "{error}");
    assert!(followed.next().await.unwrap().is_none());
    assert_eq!(recorder.call("follow").await.outcome, Outcome::Unknown { stage: Stage::Body });
    eventually("nobody subscribed", || (redis.status().own == 1).then_some(())).await;
    drop(followed);
    assert_eq!(redis.status().own, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn giving_one_up_closes_its_connection() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let news = keys.key("news");
    let recorder = Recorder::new();
    let op = operation(BOUND).observed_by(recorder.clone());
    drop(redis.subscribe_in(&op, "follow", &[&news]).await.unwrap());
    assert_eq!(recorder.call("follow").await.outcome, Outcome::Applied);
    let gone = async {
        while ask::<i64>(&redis, &format!("PUBLISH {news} one")).await > 0 {
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::time::timeout(BOUND, gone).await.expect("the server forgets it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_too_slow_is_told() {
    let (redis, keys) = (client(|redis| redis), Keys::new());
    let news = keys.key("news");
    let mut followed = redis.subscribe_in(&operation(BOUND), "follow", &[&news]).await.unwrap();
    let (mut published, mut taken) = (0, 0);
    let error = loop {
        let mut publish = redis::pipe();
        for _ in 0..3_000 {
            publish.cmd("PUBLISH").arg(&news).arg(published).ignore();
            published += 1;
        }
        redis.pipeline_in::<()>(&operation(BOUND), "publish", &publish).await.unwrap();
        tokio::time::sleep(ms(200)).await; // they arrive; should they not, there is another try
        let end = loop {
            match tokio::time::timeout(ms(500), followed.next()).await {
                Ok(Ok(Some(message))) => {
                    assert_eq!(message.payload, taken.to_string().into_bytes());
                    taken += 1;
                }
                Ok(Ok(None)) => panic!("it ended without a word after {taken}"),
                Ok(Err(error)) => break Some(error),
                Err(_) => break None,
            }
        };
        if let Some(error) = end {
            break error;
        }
        assert!(published < 60_000, "no holder is ever too slow");
    };
    assert!(matches!(error, RedisError::Overrun { limit: 1_024, .. }), "{error}");
    assert!((1_024..published).contains(&taken), "{taken} taken of {published}");
}
