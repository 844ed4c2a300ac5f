//! The order service and its consumer as most have them: what is to be done later is a message with a time to live, so that the queue
//! does not grow for ever; what cannot be done is rejected into a queue for the dead, where there is one; and somebody puts that back.
//!
//! Nothing here is badly written. What is missing is that a message knows how long it is of use, and that anybody counts those that the
//! broker dropped.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{Method, Request, StatusCode};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::Full;
use tokio::time::timeout;

use super::books::{Books, Late};
use super::outside::Outside;
use super::place::{Place, Plain, PlainDelivery as _, PlainQueue, Said};
use super::{Outage, Phone, Way};
use crate::independent::{PlainClient, plain_client};
use crate::{BoxError, ShopClosed};

/// The shop's side of it.
#[derive(Clone)]
pub(super) struct Independent<P> {
    outage: Outage,
    outside: Arc<str>,
    books: Arc<Books>,
    place: P,
}

/// The order service.
struct Desk<Q> {
    outage: Outage,
    outside: Arc<str>,
    books: Arc<Books>,
    client: PlainClient,
    confirmations: Q,
    cards: Q,
}

impl<P: Place> Independent<P> {
    pub(super) fn new(outage: &Outage, outside: &Outside, books: &Arc<Books>, place: P) -> Self {
        Self { outage: *outage, outside: outside.url.as_str().into(), books: Arc::clone(books), place }
    }

    /// Takes messages, one at a time.
    async fn work<F>(queue: P::Plain, each: impl Fn(usize) -> F + Send + Sync) -> Result<(), BoxError>
    where
        F: Future<Output = Result<StatusCode, BoxError>> + Send,
    {
        loop {
            let delivery = queue.take().await?;
            let said = match each(delivery.order()).await {
                Ok(status) if status.is_success() || status == StatusCode::NOT_FOUND => Said::Ack,
                Ok(status) if status.is_client_error() => Said::Reject,
                // Once more, and no further.
                _ if delivery.is_again() => Said::Reject,
                _ => Said::Requeue,
            };
            delivery.settle(said).await?;
        }
    }
}

impl<P: Place> Way for Independent<P> {
    async fn service(&self) -> Result<Router, ShopClosed> {
        let desk = Arc::new(Desk {
            outage: self.outage,
            outside: Arc::clone(&self.outside),
            books: Arc::clone(&self.books),
            client: plain_client(),
            confirmations: self.place.plain(Plain::Confirmations).await?,
            cards: self.place.plain(Plain::Cards).await?,
        });
        Ok(Router::new().route("/orders/{order}", post(order::<P::Plain>)).with_state(desk))
    }

    fn phone(&self, url: &str) -> Result<Phone, ShopClosed> {
        let (client, url, patience) = (plain_client(), url.to_owned(), self.outage.patience);
        Ok(Box::new(move |order| {
            let (client, url) = (client.clone(), format!("{url}/orders/{order}"));
            Box::pin(async move {
                let asked = timeout(patience, ask(&client, Method::POST, &url)).await;
                matches!(asked, Ok(Ok(status)) if status.is_success())
            })
        }))
    }

    async fn consume(self) -> Result<(), BoxError> {
        let (confirmations, cards) =
            (self.place.plain(Plain::Confirmations).await?, self.place.plain(Plain::Cards).await?);
        let (client, outside) = (&plain_client(), &*self.outside);
        let mail = |order| async move { ask(client, Method::POST, &format!("{outside}/mails/{order}")).await };
        let settle = |order| {
            let books = Arc::clone(&self.books);
            async move {
                let found = ask(client, Method::GET, &format!("{outside}/charges/{order}")).await?;
                if !found.is_server_error() {
                    books.settled(order, Late::No); // nobody tells it
                }
                Ok(found)
            }
        };
        tokio::try_join!(
            Self::work(confirmations.clone(), mail),
            Self::work(confirmations, mail),
            Self::work(cards, settle)
        )?;
        Ok(())
    }

    async fn redrive(&self) -> Result<usize, BoxError> {
        self.place.plain(Plain::Confirmations).await?.redrive().await
    }
}

/// Takes the money. The confirmation is sent later; if the provider says nothing, somebody finds out later.
async fn order<Q: PlainQueue>(State(desk): State<Arc<Desk<Q>>>, Path(order): Path<usize>) -> StatusCode {
    let charging = desk.charge(order);
    let published = match timeout(desk.outage.payment, charging).await {
        Ok(Ok(status)) if status.is_success() => {
            let published = desk.confirmations.publish(order).await;
            published.map(|()| desk.books.promised(order))
        }
        Ok(Ok(refused)) => return refused,
        Ok(Err(_)) | Err(_) => {
            let published = desk.cards.publish(order).await;
            published.map(|()| desk.books.owed(order))
        }
    };
    published.map_or(StatusCode::INTERNAL_SERVER_ERROR, |()| StatusCode::ACCEPTED)
}

impl<Q> Desk<Q> {
    async fn charge(&self, order: usize) -> Result<StatusCode, BoxError> {
        ask(&self.client, Method::POST, &format!("{}/charges/{order}", self.outside)).await
    }
}

/// One plain call; no limit of its own.
async fn ask(client: &PlainClient, method: Method, url: &str) -> Result<StatusCode, BoxError> {
    let request = Request::builder().method(method).uri(url).body(Full::<Bytes>::default())?;
    Ok(client.request(request).await?.status())
}
