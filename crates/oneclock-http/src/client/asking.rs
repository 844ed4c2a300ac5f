//! A call put together piece by piece: JSON, fields, a key.
//!
//! Decides nothing but what cannot be sent, which is told when the call is made: so that there is one place where a call
//! fails.

use std::fmt;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::Full;
use oneclock::Operation;
use oneclock_core::Effect;
use oneclock_core::idempotency::{FIELD, Key};
use serde::Serialize;

use super::{Answer, Client, NotARequest};
use crate::error::CallError;

/// A call that is being put together. Made by [`Client::ask`], and sent by [`send`](Self::send).
#[must_use = "a call is made by `send`"]
pub struct Asking<'c> {
    client: &'c Client,
    request: Result<Request<Full<Bytes>>, NotARequest>,
}

impl Client {
    /// Begins a call to `path`, a path under the base URI.
    ///
    /// ```no_run
    /// # use {http::Method, oneclock_http::{BoxError, Client, collect_json, successful}, oneclock_core::Effect};
    /// # #[derive(serde::Serialize)] struct Search<'a> { text: &'a str }
    /// # async fn f(catalogue: Client) -> Result<(), BoxError> {
    /// let search = Search { text: "lamp" };
    /// let answer = catalogue.ask(Method::POST, "/searches").json(&search).effect(Effect::ReadOnly).send().await?;
    /// let found: Vec<u32> = collect_json(successful(answer)?.into_body(), 64 * 1024).await?;
    /// # Ok(()) }
    /// ```
    pub fn ask(&self, method: Method, path: &str) -> Asking<'_> {
        let request = self.0.base.target(path).map(|target| {
            let mut request = Request::new(Full::default());
            *request.method_mut() = method;
            *request.uri_mut() = target;
            request
        });
        Asking { client: self, request }
    }
}

impl Asking<'_> {
    /// Its body is `value` as JSON, and says so.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.and(|request| {
            *request.body_mut() = Full::from(serde_json::to_vec(value).map_err(NotARequest::NotJson)?);
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(())
        })
    }

    /// Its body. It says nothing of the body's type: that is a [`header`](Self::header).
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        self.and(|request| {
            *request.body_mut() = Full::from(body.into());
            Ok(())
        })
    }

    /// Sets this header field.
    pub fn header<N, V>(self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.and(|request| {
            let name = name.try_into().map_err(|error| NotARequest::NotAField(error.into()))?;
            let value = value.try_into().map_err(|error| NotARequest::NotAField(error.into()))?;
            request.headers_mut().insert(name, value);
            Ok(())
        })
    }

    /// Its idempotency key: the same for each attempt. A destination that
    /// [enforces keys](super::ClientBuilder::enforces_keys) is asked again under it, by its policy (contract R7).
    ///
    /// That of `oneclock-idempotency`: `.key(&IdempotencyKey::new())`. In a handler it is a step's,
    /// `.key(&key.for_step("charge"))`, and never the one that the request came with.
    pub fn key(self, key: &(impl AsRef<Key> + ?Sized)) -> Self {
        self.header(FIELD, key.as_ref().to_field())
    }

    /// What repeating it would do, where its method and its key do not say it.
    pub fn effect(self, effect: Effect) -> Self {
        self.and(|request| {
            request.extensions_mut().insert(effect);
            Ok(())
        })
    }

    /// Makes the call, which spends from the current operation.
    ///
    /// # Errors
    /// As [`Client::request`]; and what could not be put together, which is not sent ([`NotARequest`]).
    ///
    /// # Cancel safety
    /// As [`Client::request`].
    pub async fn send(self) -> Result<Answer, CallError> {
        let Self { client, request } = self;
        client.0.call(None, request).await
    }

    /// The same, spending from `operation`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Cancel safety
    /// As [`Client::request`].
    pub async fn send_in(self, operation: &Operation) -> Result<Answer, CallError> {
        let Self { client, request } = self;
        client.0.call(Some(operation.clone()), request).await
    }

    /// The first mistake stays.
    fn and(self, change: impl FnOnce(&mut Request<Full<Bytes>>) -> Result<(), NotARequest>) -> Self {
        let request = self.request.and_then(|mut request| change(&mut request).map(|()| request));
        Self { request, ..self }
    }
}

impl fmt::Debug for Asking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Asking");
        debug.field("client", self.client.0.destination.name());
        match &self.request {
            Ok(request) => debug.field("method", request.method()).field("target", request.uri()),
            Err(error) => debug.field("error", error),
        };
        debug.finish_non_exhaustive()
    }
}
