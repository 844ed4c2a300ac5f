//! The same check for both ways: ours passes it, and a queue's own time to live does not; in memory and on a real broker.

use std::time::Duration;

use oneclock::Operation;

use super::propagated::{OWNER, Propagated};
use super::*;

/// Far beyond what anything here takes.
const BOUND: Duration = Duration::from_secs(30);

async fn soon<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(BOUND, work).await.expect("it takes too long")
}

/// What a shop owes its customers.
fn is_right(behind: &Behind) -> Result<(), String> {
    let Behind { confirmations, cards, .. } = behind;
    let ended: usize = confirmations.ended.values().sum();
    let holds = |holds: bool, sentence: &str| if holds { Ok(()) } else { Err(format!("{sentence}: {behind:?}")) };
    holds(confirmations.late == 0, "a price was sent that did not hold any more")?;
    holds(confirmations.again == 0, "somebody got two mails for one order")?;
    holds(confirmations.lost == 0, "nobody knows what became of a confirmation")?;
    holds(cards.lost == 0, "nobody found out what became of a card")?;
    holds(cards.flagged == cards.late, "who settled a card late was not told")?;
    holds(cards.late == 0 || cards.owner.as_deref() == Some(OWNER), "nobody answers for what was late")?;
    holds(confirmations.accepted == confirmations.in_time + ended, "ends are not as many as what was accepted")?;
    holds(cards.unknown == cards.in_time + cards.late, "cards are not as many as what was accepted")
}

async fn told(queues: &Queues) -> StaleQueue {
    let told = Outage::default().run(queues, 5, |_| ()).await;
    told.unwrap_or_else(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

#[track_caller]
fn check(told: &StaleQueue) {
    println!("{}", serde_json::to_string_pretty(told).unwrap());
    is_right(&told.propagated).unwrap();
    is_right(&told.independent).unwrap_err();
    let (plain, ours) = (&told.independent, &told.propagated);
    // There was an outage to show something.
    assert!(plain.confirmations.late > 10 && plain.confirmations.latest_hours > 2.0, "{plain:?}");
    assert!(plain.confirmations.again >= 1, "the consumer died with a mail just sent: {plain:?}");
    assert!(plain.cards.lost_and_charged > 0 && plain.cards.in_time > 0, "{plain:?}");
    assert!(plain.redriven > 10, "{plain:?}");
    assert!(ours.confirmations.in_time > 10 && ours.cards.late > 0, "{ours:?}");
    assert!(ours.confirmations.ended.get("discarded expired").is_some_and(|count| *count > 10), "{ours:?}");
    assert!(ours.redriven > 0, "cards of which nothing could be found out at first: {ours:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_lives_by_its_own_expiry_and_a_time_to_live_sends_twice_late_or_not_at_all() {
    check(&told(&Queues::in_memory()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_lives_by_its_own_expiry_and_a_time_to_live_sends_twice_late_or_not_at_all_on_a_real_broker() {
    let url =
        std::env::var("ONECLOCK_RABBITMQ_URL").unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672/%2f".to_owned());
    check(&told(&Queues::on_rabbitmq(&url)).await);
}

/// One order, behind a shop with one budget.
async fn shop(card: Card) -> (Propagated<Here>, Arc<Books>, Outside, Phone, JoinSet<()>) {
    let outage = Outage { hour: Duration::from_secs(5), deaths: [0; 2], ..Outage::default() };
    let taps = Arc::from([Tap { at: Duration::ZERO, card, refused: false }]);
    let books = Arc::new(Books::default());
    let outside = Outside::open(&outage, &taps, &books).await.unwrap();
    outside.recovers();
    let way = Propagated::new(&outage, &outside, &books, Here::new(&outage));
    let mut servers = JoinSet::new();
    let url = outside::serve(&mut servers, way.service().await.unwrap()).await.unwrap();
    let phone = way.phone(&url).unwrap();
    (way, books, outside, phone, servers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q6_an_order_that_was_accepted_outlives_the_800_ms_of_its_tap() {
    let (way, books, _outside, phone, _servers) = shop(Card::Charged).await;
    let tap = Operation::begin("tap", way.outage.patience);
    assert!(tap.run(phone(0)).await.unwrap(), "it is taken in time");
    // Nobody reads the queue until the tap's time is over.
    tap.run(std::future::pending::<()>()).await.unwrap_err();
    assert!(books.read().mails.is_empty());
    let consumer = Process::begin(way.consume()).unwrap();
    soon(books.until(|kept| kept.mails.len() == 1 && kept.ends.values().any(|end| end.said == "done"))).await;
    consumer.kill().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_may_have_been_charged_is_settled_although_its_user_has_left() {
    let (way, books, _outside, phone, _servers) = shop(Card::Unknown { charged: true }).await;
    let tapping = tokio::spawn(phone(0));
    soon(books.until(|kept| kept.charged.contains(&0))).await;
    tapping.abort(); // who leaves closes the connection
    assert!(tapping.await.unwrap_err().is_cancelled());
    soon(books.until(|kept| kept.owed.contains_key(&0))).await;
    let consumer = Process::begin(way.consume()).unwrap();
    soon(books.until(|kept| kept.settled.len() == 1)).await;
    consumer.kill().unwrap();
}
