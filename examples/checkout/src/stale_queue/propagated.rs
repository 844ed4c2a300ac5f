//! The order service and its consumer with work that lives by its own expiry.
//!
//! Decides what the shop says of its work: a confirmation is of no use once its price does not hold any more, and what became of a card
//! has to be found out however late, by somebody with a name. The tap's time bounds the answer to the user, and none of that.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::routing::post;
use oneclock::{Operation, Outcome, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem, successful};
use oneclock_core::expiry::Attempts;
use oneclock_core::idempotency::{Key, NotAKey};
use oneclock_core::{Policy, Trust};
use oneclock_http::Client;
use oneclock_queue::oncall::{self, Redrive};
use oneclock_queue::{Broker, Consumer, Job, JobError, Producer, Uncertainty, Work};

use super::books::{Books, Late};
use super::outside::Outside;
use super::place::Place;
use super::{Outage, Phone, Way};
use crate::{BoxError, ShopClosed};

/// The shop's side of it.
#[derive(Clone)]
pub(super) struct Propagated<P> {
    pub(super) outage: Outage,
    outside: Arc<str>,
    books: Arc<Books>,
    pub(super) place: P,
}

/// The order service.
struct Desk<B> {
    outage: Outage,
    payment: Client,
    later: Producer<B>,
    books: Arc<Books>,
}

/// What the consumer calls.
#[derive(Clone)]
struct Hands {
    payment: Client,
    mails: Client,
    books: Arc<Books>,
}

/// What the queue is called.
pub(super) const QUEUE: &str = "after-order";
/// The kinds of work.
pub(super) const CONFIRM: &str = "confirm-order";
pub(super) const SETTLE: &str = "settle-card";
/// Who answers for cards.
pub(super) const OWNER: &str = "payments@shop.example";

/// All clocks of the demo are that of this machine.
const CLOCKS: Duration = Duration::from_millis(10);

impl<P: Place> Propagated<P> {
    pub(super) fn new(outage: &Outage, outside: &Outside, books: &Arc<Books>, place: P) -> Self {
        Self { outage: *outage, outside: outside.url.as_str().into(), books: Arc::clone(books), place }
    }

    fn client(&self, name: &'static str) -> Result<Client, ShopClosed> {
        let client = Client::builder(name, &*self.outside).cap(self.outage.payment);
        client.build().map_err(ShopClosed::not_started)
    }

    fn attempts(&self) -> Attempts {
        Attempts { at_most: 2, first_wait: self.outage.hours(0.02), longest_wait: self.outage.hours(0.02) }
    }
}

impl<P: Place> Way for Propagated<P> {
    async fn service(&self) -> Result<Router, ShopClosed> {
        let (outage, patience) = (self.outage, self.outage.patience);
        let desk = Arc::new(Desk {
            outage,
            payment: self.client("payment")?,
            later: Producer::new("order", self.place.ours().await?).uncertainty(Uncertainty::assumed(CLOCKS)),
            books: Arc::clone(&self.books),
        });
        let policy = Policy::named("order").when_absent(patience).ceiling(patience).build();
        let policy = policy.map_err(ShopClosed::not_started)?;
        let routes = Router::new().route("/orders/{order}", post(order::<P::Ours>)).with_state(desk);
        Ok(routes.layer(policy.layer()))
    }

    fn phone(&self, url: &str) -> Result<Phone, ShopClosed> {
        let client = Client::builder("order", url).trust(Trust::Inside).build().map_err(ShopClosed::not_started)?;
        let patience = self.outage.patience;
        Ok(Box::new(move |order| {
            let client = client.clone();
            Box::pin(async move {
                let path = format!("/orders/{order}");
                let asked = client.ask(Method::POST, &path).send();
                matches!(Operation::begin("tap", patience).run(asked).await, Ok(Ok(answer)) if answer.status().is_success())
            })
        }))
    }

    async fn consume(self) -> Result<(), BoxError> {
        let hands =
            Hands { payment: self.client("payment")?, mails: self.client("mails")?, books: Arc::clone(&self.books) };
        let consumer = Consumer::builder(self.place.ours().await?)
            .limit(self.outage.payment)
            .min_useful(self.outage.hours(0.05))
            .attempts(self.attempts())
            .enforces_keys() // the mail server sends one mail for a key, and who settles a card may do so again
            .places(2)
            .uncertainty(Uncertainty::assumed(CLOCKS))
            .observed_by(self.books)
            .build(move |job: Job| {
                let hands = hands.clone();
                async move { hands.does(job).await }
            })?;
        consumer.run(&Shutdown::new()).await; // until the process is killed
        Ok(())
    }

    async fn redrive(&self) -> Result<usize, BoxError> {
        let (queue, all) = (self.place.ours().await?, Redrive { at_most: 1_000, ..Redrive::default() });
        let clocks = Uncertainty::assumed(CLOCKS);
        let told = oncall::redrive(&queue, &clocks, &all, Duration::from_millis(200)).await?;
        Ok(told.iter().filter(|(_, stamp)| stamp.is_ok()).count())
    }
}

/// Takes the order to its end, whoever leaves: the card may have been charged by then, and somebody has to find out.
async fn order<B: Broker>(
    Op(op): Op,
    State(desk): State<Arc<Desk<B>>>,
    Path(order): Path<usize>,
) -> Result<StatusCode, Problem> {
    let within = desk.outage.patience;
    op.must_finish("take the order", within, async move { desk.take(order).await }).await.map_err(Problem::of)
}

// === Desk ===

impl<B: Broker> Desk<B> {
    /// Takes the money. The confirmation is sent later; if the provider says nothing, somebody finds out later.
    async fn take(&self, order: usize) -> Result<StatusCode, Problem> {
        match self.payment.ask(Method::POST, &format!("/charges/{order}")).send().await {
            Ok(answer) => {
                successful(answer).map_err(Problem::of)?; // refused: nothing was charged
                let mail = self.work(CONFIRM, order).map_err(Problem::of)?.discard();
                self.later.accept(mail).await.map_err(Problem::of)?;
                self.books.promised(order);
            }
            Err(error) if matches!(error.outcome(), Outcome::Unknown { .. }) => {
                let card = self.work(SETTLE, order).map_err(Problem::of)?.must_complete(OWNER);
                self.later.accept(card).await.map_err(Problem::of)?;
                self.books.owed(order);
            }
            Err(error) => return Err(Problem::of(error)), // it did nothing
        }
        Ok(StatusCode::ACCEPTED)
    }

    /// Under a key, so that it has one effect for each order, and is the same work when it is accepted again.
    fn work(&self, kind: &'static str, order: usize) -> Result<Work, NotAKey> {
        let name = format!("{kind}-{order}");
        let key = Key::new(&name)?;
        let useful = self.outage.hours(self.outage.useful);
        Ok(Work::new(kind, order.to_string()).id(name).key(key).expires_in(useful))
    }
}

// === Hands ===

impl Hands {
    async fn does(&self, job: Job) -> Result<(), JobError> {
        let order = std::str::from_utf8(job.body())?.parse().map_err(JobError::rejected)?;
        if job.message().kind == *SETTLE { self.settle(&job, order).await } else { self.confirm(&job, order).await }
    }

    async fn confirm(&self, job: &Job, order: usize) -> Result<(), JobError> {
        let key = job.key().ok_or_else(|| JobError::rejected("no key"))?;
        job.before_effect()?;
        let sent = self.mails.ask(Method::POST, &format!("/mails/{order}")).key(key).send().await?;
        if sent.status() == StatusCode::UNPROCESSABLE_ENTITY {
            return Err(JobError::rejected("the mail server refuses the address"));
        }
        successful(sent)?;
        Ok(())
    }

    /// Asks the provider, by the order's key, what became of the charge.
    async fn settle(&self, job: &Job, order: usize) -> Result<(), JobError> {
        let found = self.payment.get(&format!("/charges/{order}")).await?;
        if found.status() != StatusCode::NOT_FOUND {
            successful(found)?;
        }
        job.before_effect()?;
        self.books.settled(order, if job.is_late() { Late::Flagged } else { Late::No });
        Ok(())
    }
}
