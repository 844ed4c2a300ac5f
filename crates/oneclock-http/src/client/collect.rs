//! Reading a body as a whole, up to a size. How long that may take is the body's own business: it has a deadline.

use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::body::{BodyCutOff, BoxError};

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
    #[error(transparent)]
    CutOff(Box<BodyCutOff>),
    /// The connection failed on the way.
    #[error("the body broke off")]
    Failed(#[source] BoxError),
    /// It is not the JSON that was asked for.
    #[error("the body is not the JSON that was expected")]
    NotJson(#[source] serde_json::Error),
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
    B: Body<Error = BoxError>,
{
    let collected = Limited::new(body, limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return NotCollected::TooLong { limit };
        }
        match error.downcast::<BodyCutOff>() {
            Ok(cut_off) => NotCollected::CutOff(cut_off),
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
    B: Body<Error = BoxError>,
{
    serde_json::from_slice(&collect(body, limit).await?).map_err(NotCollected::NotJson)
}
