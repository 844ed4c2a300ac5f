//! The client's side and the handler's: a key made once for each logical operation, and the key that a request came with.
//!
//! Decides where keys are made: outside of whatever repeats. A key made for each attempt protects nothing, and one that
//! leaks into the next operation makes that one a replay.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, HeaderValue, Method, Request};
use oneclock_core::Effect;
use oneclock_core::idempotency::{Key, NotAKey, Scope};
use sha2::{Digest as _, Sha256};
use tower_layer::Layer;
use tower_service::Service;

use crate::names;

/// The methods whose requests have keys, unless said otherwise.
pub(crate) const HAVE_KEYS: [Method; 2] = [Method::POST, Method::PATCH];

/// The key of one logical operation. It cannot be cloned: an operation has one, and every attempt borrows it.
///
/// In a handler below an [`Idempotency`](crate::Idempotency) layer it is the key that the request came with, **of that caller,
/// method and route** (contract M8). Two customers may send the same text, also on purpose, so the text alone is nothing to
/// give to a provider: what the handler calls in turn gets keys [`for_step`](Self::for_step), which are made from all of it,
/// and which a second run of the handler makes again. Two are equal if the keys for their steps are.
///
/// ```
/// use oneclock_idempotency::IdempotencyKey;
/// let key = IdempotencyKey::new(); // when the user presses the button, not when a request is sent
/// let mut attempt = http::Request::post("/charges").body(()).unwrap();
/// key.write(attempt.headers_mut());
/// let mut again = http::Request::post("/charges").body(()).unwrap();
/// key.write(again.headers_mut());
/// assert_eq!(attempt.headers()["idempotency-key"], again.headers()["idempotency-key"]);
/// assert_ne!(IdempotencyKey::new(), key);
/// ```
#[derive(PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Whose);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Whose {
    /// Made here, for what we call.
    Ours(Key),
    /// Came with a request.
    Callers(Arc<Scope>),
}

/// Gives every request with an effect that has no key a new one: a [`Layer`] for clients.
///
/// ```text
/// KeyLayer → retries, hedges → client
/// ```
/// It stands outside of what repeats, so that all attempts of one call have one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyLayer;

/// The service of a [`KeyLayer`].
#[derive(Clone, Debug)]
pub struct Keyed<S>(S);

/// In the extensions of a request with a key: whose, and for what.
#[derive(Clone)]
pub(crate) struct Incoming(pub(crate) Arc<Scope>);

/// In the extensions of a request that came through a layer under which it could have had a key.
#[derive(Clone, Copy)]
pub(crate) struct Covered;

// === IdempotencyKey ===

impl IdempotencyKey {
    /// A new key: a UUID of version 7, which says when it was made, so that one that outlived its record is refused and not
    /// run again (contract M7).
    #[expect(clippy::new_without_default, reason = "each is another: nobody should get one by the way")]
    pub fn new() -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        let text = uuid::Uuid::now_v7().hyphenated().encode_lower(&mut text);
        match Key::new(text) {
            Ok(key) => Self(Whose::Ours(key)),
            Err(_) => unreachable!("a UUID is 36 printable characters"),
        }
    }

    /// A key of somebody else's making: an order number, a key kept in an outbox.
    ///
    /// Nothing is known of whose it is. For one that came from a caller, and for its steps: [`of_scope`](Self::of_scope).
    ///
    /// # Errors
    /// [`NotAKey`].
    pub fn from_text(text: &str) -> Result<Self, NotAKey> {
        Key::new(text).map(|key| Self(Whose::Ours(key)))
    }

    /// The key of this scope, as a handler gets it: for a record that was claimed without the layer, or is looked at later.
    pub fn of_scope(scope: Scope) -> Self {
        Self(Whose::Callers(Arc::new(scope)))
    }

    /// The key that this request came with.
    pub fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Incoming>().map(|Incoming(scope)| Self(Whose::Callers(Arc::clone(scope))))
    }

    /// The key of one step of this operation: the same each time it is asked for, another for each step, and another for each
    /// principal, method, route and key (contract M8).
    ///
    /// Its text is made from a hash and stays the same from release to release. It has 45 characters, since some providers
    /// take few, and the time of the key stands in front if the key has one, so that whoever gets it can refuse it when it
    /// outlived its record (contract M7, M9).
    ///
    /// ```
    /// # use oneclock_idempotency::IdempotencyKey;
    /// let key = IdempotencyKey::new();
    /// assert_eq!(key.for_step("charge"), key.for_step("charge"));
    /// assert_ne!(key.for_step("charge"), key.for_step("mail"));
    /// ```
    pub fn for_step(&self, step: &str) -> Self {
        let key = self.key();
        let hash = match &self.0 {
            Whose::Ours(key) => hash(&[key.as_str(), step]),
            Whose::Callers(scope) => {
                hash(&[&scope.principal, scope.method.as_str(), scope.route.as_str(), key.as_str(), step])
            }
        };
        let number = |from: usize, bytes: usize| {
            hash.iter().skip(from).take(bytes).fold(0, |number: u128, byte| number << 8 | u128::from(*byte))
        };
        // 74 or 122 bits of the hash in the UUID and 32 behind it: whoever picks keys finds none that makes another's.
        let (uuid, version) = match key.made() {
            Some(made) => (u128::from(made.as_nanos() / 1_000_000) << 80 | number(0, 10), uuid::Version::SortRand),
            None => (number(0, 16), uuid::Version::Custom),
        };
        let uuid =
            uuid::Builder::from_u128(uuid).with_variant(uuid::Variant::RFC4122).with_version(version).into_uuid();
        match Key::new(&format!("{uuid}/{:08x}", number(16, 4))) {
            Ok(key) => Self(Whose::Ours(key)),
            Err(_) => unreachable!("45 printable characters"),
        }
    }

    /// Writes it into an attempt's headers, over what stands there: its text, so in a handler use
    /// [`for_step`](Self::for_step) first.
    pub fn write(&self, headers: &mut HeaderMap) {
        // Printable ASCII is a header value.
        if let Ok(value) = HeaderValue::try_from(self.key().to_field()) {
            headers.insert(names::KEY, value);
        }
    }

    /// What repeating a call with it would do: for a retry policy (contract R7).
    pub fn effect(&self) -> Effect {
        Effect::Keyed(self.as_str().to_owned().into())
    }

    /// The text, without quotes.
    pub fn as_str(&self) -> &str {
        self.key().as_str()
    }

    fn key(&self) -> &Key {
        match &self.0 {
            Whose::Ours(key) => key,
            Whose::Callers(scope) => &scope.key,
        }
    }
}

/// For `Client::ask(..).key(&key)` of `oneclock-http`: its text, so in a handler use [`for_step`](IdempotencyKey::for_step)
/// first.
///
/// ```no_run
/// # use {http::Method, oneclock_http::{CallError, Client}, oneclock_idempotency::IdempotencyKey};
/// # async fn f(payment: Client, key: IdempotencyKey) -> Result<(), CallError> {
/// payment.ask(Method::POST, "/charges").json(&499).key(&key.for_step("charge")).send().await?;
/// # Ok(()) }
/// ```
impl AsRef<Key> for IdempotencyKey {
    fn as_ref(&self) -> &Key {
        self.key()
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.key(), f)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.key(), f)
    }
}

/// SHA-256 over these parts, each with its length before it, so that nothing can move from one into the other.
fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

// === KeyLayer ===

impl<S> Layer<S> for KeyLayer {
    type Service = Keyed<S>;

    fn layer(&self, inner: S) -> Keyed<S> {
        Keyed(inner)
    }
}

impl<S, B> Service<Request<B>> for Keyed<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if HAVE_KEYS.contains(request.method()) && !request.headers().contains_key(names::KEY) {
            IdempotencyKey::new().write(request.headers_mut());
        }
        self.0.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m7_a_key_says_when_it_was_made_and_so_do_its_steps() {
        let key = IdempotencyKey::new();
        let made = key.key().made().expect("version 7");
        assert!(oneclock::clock::wall().since(made) < std::time::Duration::from_secs(60));
        assert_eq!(key.for_step("charge").key().made(), Some(made));
        assert_eq!(key.for_step("für").for_step("mail").key().made(), Some(made));
        let mine = IdempotencyKey::from_text("order-7").expect("a key").for_step("charge");
        assert_eq!(mine.key().made(), None);
    }

    fn scoped([principal, method, route, key]: [&str; 4]) -> IdempotencyKey {
        let (method, route) = (method.to_owned().into(), route.to_owned().into());
        let key = Key::new(key).expect("a key");
        IdempotencyKey::of_scope(Scope { principal: principal.into(), method, route, key })
    }

    #[test]
    fn m8_a_step_belongs_to_principal_method_route_and_key_and_nothing_flows_into_the_next() {
        let made: std::collections::HashSet<_> = [
            ["a1", "POST", "/charges", "tap-7"],
            ["a2", "POST", "/charges", "tap-7"],
            ["a1", "PATCH", "/charges", "tap-7"],
            ["a1", "POST", "/refunds", "tap-7"],
            ["a1", "POST", "/charges", "tap-8"],
            ["a", "1POST", "/charges", "tap-7"],
            ["a1", "POST/", "charges", "tap-7"],
            ["a1", "POST", "/charge", "stap-7"],
            ["a1", "POST", "/chargestap-", "7"],
        ]
        .into_iter()
        .flat_map(|scope| ["charge", "mail", ""].map(|step| scoped(scope).for_step(step).to_string()))
        .collect();
        assert_eq!(made.len(), 9 * 3);
        assert!(made.iter().all(|key| key.len() == 45), "{made:?}");
    }

    /// A provider remembers them: another text after an upgrade is another charge.
    #[test]
    fn the_text_of_a_step_stays_as_it_is() {
        let text = |key: IdempotencyKey| key.for_step("charge").to_string();
        let uuid = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F";
        assert_eq!(
            text(scoped(["shop-7", "POST", "/charges", "tap-7"])),
            "6f09de9d-f84d-8c7c-8d0e-043137647605/f043577c"
        );
        assert_eq!(text(scoped(["shop-7", "POST", "/charges", uuid])), "017f22e2-79b0-772a-886f-bd9b6ffd8ced/28862ce8");
        assert_eq!(
            text(IdempotencyKey::from_text("tap-7").expect("a key")),
            "f7951c7d-d6b3-863d-9318-6855b6cd81ac/6c965c63"
        );
    }

    #[test]
    fn one_key_for_each_call_and_none_over_another() {
        let mut service = KeyLayer.layer(tower::service_fn(|request: Request<()>| {
            std::future::ready(Ok::<_, ()>(request.headers().get(names::KEY).cloned()))
        }));
        let mut send = |request: Request<()>| {
            let answer = service.call(request);
            futures_util::FutureExt::now_or_never(answer).expect("ready").expect("an answer")
        };
        let post = || Request::post("/").body(()).expect("a request");
        assert_ne!(send(post()), send(post()));
        let mut with_key = post();
        with_key.headers_mut().insert(names::KEY, HeaderValue::from_static("mine"));
        assert_eq!(send(with_key).expect("a key"), "mine");
        assert_eq!(send(Request::get("/").body(()).expect("a request")), None);
    }
}
