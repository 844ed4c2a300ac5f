//! Reading a body as a whole, up to a size. How long that may take is the body's own business: it has a deadline.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use oneclock_core::Reason;
use serde::de::DeserializeOwned;

use crate::body::{BodyCutOff, BoxError};
use crate::names;

/// A body was not read as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCollected {
    /// It is longer than the limit.
    #[error("the body is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// It was cut off by its deadline, or by the end of its operation.
    #[error("the body was not read to its end")]
    CutOff(#[source] BodyCutOff),
    /// The connection failed on the way.
    #[error("the body broke off")]
    Failed(#[source] BoxError),
    /// It is not the JSON that was asked for.
    #[error("the body is not the JSON that was expected")]
    NotJson(#[source] serde_json::Error),
}

/// An answer that is no success.
#[derive(Clone, Debug, thiserror::Error)]
#[error("answered {status}{}", reason.map(|reason| format!(" ({reason})")).unwrap_or_default())]
#[non_exhaustive]
pub struct NotSuccessful {
    /// Its status.
    pub status: StatusCode,
    /// The reason that it gave, if it is one of ours. Believe it only from a destination that is trusted.
    pub reason: Option<Reason>,
}

impl NotSuccessful {
    /// Whether one of ours says that it refused for load. What a 503 without a reason means is anybody's guess.
    pub(crate) fn is_shed(&self) -> bool {
        self.reason == Some(Reason::Shed) && self.status == StatusCode::SERVICE_UNAVAILABLE
    }
}

/// The answer, if its status says success. Every answer with a status is an `Ok` of a call, so ask before reading it.
///
/// # Errors
/// [`NotSuccessful`]. The body is dropped.
///
/// # Example
/// ```no_run
/// # use oneclock_http::{BoxError, Client, collect, successful};
/// # async fn f(inventory: Client) -> Result<(), BoxError> {
/// let answer = successful(inventory.get("/stock/7").await?)?;
/// let bytes = collect(answer.into_body(), 64 * 1024).await?;
/// # Ok(()) }
/// ```
pub fn successful<B>(answer: Response<B>) -> Result<Response<B>, NotSuccessful> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let reason = answer.headers().get(names::REASON).and_then(|reason| reason.to_str().ok());
    Err(NotSuccessful { status: answer.status(), reason: reason.and_then(Reason::from_word) })
}

/// Reads `body` to its end, at most `limit` bytes of it.
///
/// It ends in time if the body does, which a [`BoundedBody`](crate::BoundedBody) of an answer or a request makes sure of.
///
/// # Errors
/// [`NotCollected`].
///
/// # Cancel safety
/// Dropping it drops the body, which cuts the exchange off.
///
/// # Example
/// ```no_run
/// # async fn f(inventory: oneclock_http::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let answer = inventory.get("/stock/7").await?;
/// let bytes = oneclock_http::collect(answer.into_body(), 64 * 1024).await?;
/// # Ok(()) }
/// ```
pub async fn collect<B>(body: B, limit: usize) -> Result<Bytes, NotCollected>
where
    B: Body<Error: Into<BoxError>>,
{
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return NotCollected::TooLong { limit };
        }
        match error.downcast::<BodyCutOff>() {
            Ok(cut_off) => NotCollected::CutOff(*cut_off),
            Err(error) => NotCollected::Failed(error),
        }
    })?;
    Ok(collected.to_bytes())
}

/// Reads `body` to its end, at most `limit` bytes of it, as JSON.
///
/// # Errors
/// [`NotCollected`].
///
/// # Cancel safety
/// Dropping it drops the body, which cuts the exchange off.
///
/// # Example
/// ```no_run
/// # async fn f(inventory: oneclock_http::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let answer = inventory.get("/stock/7").await?;
/// let stock: Vec<u32> = oneclock_http::collect_json(answer.into_body(), 64 * 1024).await?;
/// # Ok(()) }
/// ```
pub async fn collect_json<T, B>(body: B, limit: usize) -> Result<T, NotCollected>
where
    T: DeserializeOwned,
    B: Body<Error: Into<BoxError>>,
{
    serde_json::from_slice(&collect(body, limit).await?).map_err(NotCollected::NotJson)
}
