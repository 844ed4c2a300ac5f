//! What holds for work that is accepted over HTTP, whatever store has its records and whatever queue its messages: over real sockets,
//! with axum. Each crate with a store includes this file by its path, and runs every rule with [`over!`].

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::routing::post;
use oneclock::{Shutdown, clock};
use oneclock_axum::{Policy, PolicyExt as _, Problem};
use oneclock_idempotency::{Body, Idempotency, Store};
use oneclock_queue::{Broker, Consumer, Job, JobError, Jobs, Producer, Uncertainty, Work};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Far beyond what anything here takes when it works.
const BOUND: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

/// Runs every rule as a test of its own. `$open` makes a [`Shop`].
macro_rules! over {
    ($open:path: $($rule:ident)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $rule() {
            $crate::jobs_rules::$rule($open().await).await;
        }
    )*};
    ($open:path) => { $crate::jobs_rules::over!($open:
        q6_what_was_accepted_is_done_and_its_monitor_says_so
        q6_a_short_deadline_ends_its_request_and_not_the_job
        who_prefers_to_wait_is_told_of_the_change
        n4_a_wait_ends_within_the_callers_own_time
        m8_somebody_elses_job_is_never_seen
        m7_the_same_key_twice_is_one_job
        m7_many_at_once_are_one_job
        q1_asked_again_it_lives_no_longer
        q5_what_expired_is_discarded_and_its_monitor_says_so
        q5_what_expired_is_put_aside_and_its_monitor_says_so
        what_its_handler_refused_says_so_and_runs_again_when_asked_again
    ); };
}
pub(crate) use over;

/// A service whose jobs are done by a consumer in the same process.
pub(crate) struct Shop {
    address: SocketAddr,
    shutdown: Shutdown,
    hands: Hands,
    consume: Box<dyn Fn(&Shutdown) + Send + Sync>,
    _keeps: Box<dyn Any + Send + Sync>,
}

/// What its consumer's handler does, and has done.
#[derive(Clone)]
struct Hands {
    begun: Arc<AtomicUsize>,
    effects: Arc<AtomicUsize>,
    go: Arc<Semaphore>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Value,
}

struct Jar<B, St>(Jobs<B, St>);

impl Shop {
    /// Its store and its queue; `keeps` lives as long as it does.
    pub(crate) async fn open<B, St>(broker: B, store: St, keeps: impl Any + Send + Sync) -> Self
    where
        B: Broker,
        St: Store + Clone,
    {
        Self::between(broker.clone(), broker, store, keeps).await
    }

    /// The same, whose jobs are accepted into one queue, and done from another.
    pub(crate) async fn between<A, B, St>(accepts: A, does: B, store: St, keeps: impl Any + Send + Sync) -> Self
    where
        A: Broker,
        B: Broker,
        St: Store + Clone,
    {
        let account =
            |head: &Parts| head.headers.get("x-account").and_then(|name| name.to_str().ok()).map(str::to_owned);
        let once =
            Idempotency::builder("jobs", store.clone()).principal(account).monitor_at("/operations").build().unwrap();
        let exact = || Uncertainty::assumed(Duration::from_millis(10));
        let producer = Producer::new("shop", accepts).uncertainty(exact());
        let jobs = Arc::new(Jar(Jobs::new(producer, once.clone()).unwrap()));
        let clock = Policy::named("shop").when_absent(BOUND).ceiling(BOUND).build().unwrap();
        let app = Router::new()
            .route("/jobs", post(place::<A, St>))
            .with_state(jobs)
            .route_service("/operations/{handle}", once.monitor())
            .layer(clock.layer());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), Shutdown::new());
        shutdown.spawn(async move { axum::serve(listener, app).await });
        let hands = Hands { begun: Arc::default(), effects: Arc::default(), go: Arc::new(Semaphore::new(0)) };
        let of_consumer = hands.clone();
        let consume = Box::new(move |shutdown: &Shutdown| {
            let hands = of_consumer.clone();
            let consumer = Consumer::builder(does.clone()).once(store.clone(), HOUR * 24).uncertainty(exact());
            let consumer = consumer.limit(Duration::from_secs(15)).build(move |job| hands.clone().works(job)).unwrap();
            let stop = shutdown.clone();
            shutdown.spawn(async move { consumer.run(&stop).await });
        });
        Self { address, shutdown, hands, consume, _keeps: Box::new(keeps) }
    }

    pub(crate) fn consume(&self) {
        (self.consume)(&self.shutdown);
    }

    pub(crate) fn effects(&self) -> usize {
        self.hands.effects.load(Ordering::SeqCst)
    }

    /// Lets the handlers that wait go on.
    fn go(&self) {
        self.hands.go.add_permits(100);
    }

    pub(crate) async fn post(&self, key: &str, body: &str, fields: &str) -> Told {
        let fields = format!("x-account: shop-7\r\nidempotency-key: {key}\r\n{fields}");
        send(self.address, "POST", "/jobs", &fields, body).await
    }

    pub(crate) async fn get(&self, path: &str, fields: &str) -> Told {
        send(self.address, "GET", path, &format!("x-account: shop-7\r\n{fields}"), "").await
    }

    /// Its state when it is one of these.
    pub(crate) async fn until(&self, path: &str, states: &[&str]) -> Value {
        let begun = clock::now();
        loop {
            let told = self.get(path, "prefer: wait=2\r\n").await;
            assert_eq!(told.status, 200, "{told:?}");
            if states.iter().any(|state| told.body["state"] == *state) {
                return told.body;
            }
            assert!(clock::now().since(begun) < BOUND, "{path} is not {states:?}: {told:?}");
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.shutdown.signal();
        self.shutdown.end_grace();
    }
}

/// Accepts one job: its body is what its handler does, its fields how long it lives and what then.
async fn place<B: Broker, St: Store>(
    State(jobs): State<Arc<Jar<B, St>>>,
    head: Parts,
    body: String,
) -> Result<http::Response<Body>, Problem> {
    let field = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let life = field("x-life-ms").map_or(HOUR, |ms| Duration::from_millis(ms.parse().unwrap()));
    let work = Work::new("job", body).expires_in(life);
    let work = if field("x-policy") == Some("dead-letter") { work.dead_letter() } else { work.discard() };
    Ok(jobs.0.accept(&head, work.principal("nobody asks for this")).await?)
}

impl Hands {
    async fn works(self, job: Job) -> Result<(), JobError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        match &job.body()[..] {
            b"two seconds" => tokio::time::sleep(Duration::from_secs(2)).await,
            b"wait" => self.go.acquire().await?.forget(),
            b"refuse" if self.begun.load(Ordering::SeqCst) == 1 => return Err(JobError::rejected("no such order")),
            _ => {}
        }
        job.before_effect()?;
        self.effects.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// One request over a connection of its own.
async fn send(to: SocketAddr, method: &str, path: &str, fields: &str, body: &str) -> Told {
    let talking = async {
        let mut socket = TcpStream::connect(to).await.unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: {length}\r\n");
        socket.write_all(format!("{head}{fields}\r\n{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(BOUND * 2, talking).await.expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    Told { status, head: head.to_owned(), body }
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> &str {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    #[track_caller]
    pub(crate) fn location(&self) -> String {
        assert_eq!(self.status, 202, "{self:?}");
        self.header("location").to_owned()
    }
}

// === The rules ===

pub(crate) async fn q6_what_was_accepted_is_done_and_its_monitor_says_so(shop: Shop) {
    let told = shop.post("tap-7", "do", "").await;
    let location = told.location();
    assert!(location.starts_with("/operations/"), "{told:?}");
    assert_eq!(told.header("link"), format!("<{location}>; rel=\"monitor\""));
    assert_eq!((told.header("retry-after"), &told.body["state"]), ("1", &"queued".into()));
    assert!(told.body["expires"].as_str().is_some_and(|at| at.ends_with('Z')), "{told:?}");
    assert_eq!(shop.get(&location, "").await.body["state"], "queued", "before anybody has begun");
    assert_eq!(shop.effects(), 0);
    shop.consume();
    let done = shop.until(&location, &["completed"]).await;
    assert_eq!((&done["status"], shop.effects()), (&200.into(), 1));
}

pub(crate) async fn q6_a_short_deadline_ends_its_request_and_not_the_job(shop: Shop) {
    shop.consume();
    let asked = clock::now();
    let location = shop.post("tap-7", "two seconds", "x-remaining-ms: 300\r\n").await.location();
    assert!(clock::now().since(asked) < Duration::from_secs(2), "its request does not wait for it");
    let done = shop.until(&location, &["completed", "unknown", "failed_retryable"]).await;
    assert_eq!((&done["state"], shop.effects()), (&"completed".into(), 1), "{done}");
    assert!(clock::now().since(asked) >= Duration::from_secs(2));
}

pub(crate) async fn who_prefers_to_wait_is_told_of_the_change(shop: Shop) {
    let location = shop.post("tap-7", "wait", "").await.location();
    shop.consume();
    shop.until(&location, &["in_progress"]).await;
    let (waited, released) = tokio::join!(shop.get(&location, "prefer: wait=15\r\n"), async {
        tokio::time::sleep(Duration::from_millis(300)).await; // so that it waits
        shop.go();
        clock::now()
    });
    assert!(
        clock::now().since(released) < Duration::from_secs(5),
        "{:?} after the change",
        clock::now().since(released)
    );
    assert_eq!((&waited.body["state"], waited.header("preference-applied")), (&"completed".into(), "wait"));
    let at_once = clock::now();
    shop.get(&location, "prefer: wait=15\r\n").await;
    assert!(clock::now().since(at_once) < Duration::from_secs(5), "what is completed stays so");
}

pub(crate) async fn n4_a_wait_ends_within_the_callers_own_time(shop: Shop) {
    let location = shop.post("tap-7", "do", "").await.location();
    let told = shop.get(&location, "prefer: wait=15\r\nx-remaining-ms: 500\r\n").await;
    assert_eq!((told.status, told.header("preference-applied")), (200, "wait"), "not 504: {told:?}");
    assert_eq!(told.body["state"], "queued");
}

pub(crate) async fn m8_somebody_elses_job_is_never_seen(shop: Shop) {
    let location = shop.post("tap-7", "do", "").await.location();
    let other = send(shop.address, "GET", &location, "x-account: shop-8\r\n", "").await;
    assert_eq!(other.status, 404, "{other:?}");
    let nobody = send(shop.address, "GET", &location, "", "").await;
    assert_eq!(nobody.status, 404, "{nobody:?}");
    assert_eq!(send(shop.address, "POST", "/jobs", "", "do").await.status, 401);
    // The same key of another is another job.
    let theirs = send(shop.address, "POST", "/jobs", "x-account: shop-8\r\nidempotency-key: tap-7\r\n", "do").await;
    shop.consume();
    shop.until(&location, &["completed"]).await;
    let seen =
        async || send(shop.address, "GET", &theirs.location(), "x-account: shop-8\r\nprefer: wait=2\r\n", "").await;
    let begun = clock::now();
    while seen().await.body["state"] != "completed" {
        assert!(clock::now().since(begun) < BOUND);
    }
    assert_eq!(shop.effects(), 2);
}

pub(crate) async fn m7_the_same_key_twice_is_one_job(shop: Shop) {
    let first = shop.post("tap-7", "do", "").await;
    let again = shop.post("tap-7", "do", "").await;
    assert_eq!((first.location(), &first.body), (again.location(), &again.body));
    let other = shop.post("tap-7", "do something else", "").await;
    assert_eq!(other.status, 422, "{other:?}");
    shop.consume();
    shop.until(&first.location(), &["completed"]).await;
    let afterwards = shop.post("tap-7", "do", "").await;
    assert_eq!((afterwards.location(), &afterwards.body["state"]), (first.location(), &"completed".into()));
    // One after it, which is done after whatever the others left in the queue.
    shop.until(&shop.post("tap-8", "do", "").await.location(), &["completed"]).await;
    assert_eq!(shop.effects(), 2);
}

pub(crate) async fn m7_many_at_once_are_one_job(shop: Shop) {
    shop.consume();
    let many: Vec<_> = (0..16).map(|_| shop.post("tap-7", "do", "")).collect();
    let told = futures_util::future::join_all(many).await;
    let locations: std::collections::HashSet<_> = told.iter().map(Told::location).collect();
    assert_eq!(locations.len(), 1);
    shop.until(&told[0].location(), &["completed"]).await;
    shop.until(&shop.post("tap-8", "do", "").await.location(), &["completed"]).await;
    assert_eq!(shop.effects(), 2);
}

pub(crate) async fn q1_asked_again_it_lives_no_longer(shop: Shop) {
    let first = shop.post("tap-7", "do", "x-life-ms: 900\r\nx-remaining-ms: 500\r\n").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let again = shop.post("tap-7", "do", "x-life-ms: 900\r\nx-remaining-ms: 500\r\n").await;
    assert_eq!((first.status, &first.body), (202, &again.body));
    tokio::time::sleep(Duration::from_millis(900)).await; // it expires
    let late = shop.post("tap-7", "do", "x-life-ms: 900\r\nx-remaining-ms: 500\r\n").await;
    assert_eq!((late.location(), &late.body["expires"]), (first.location(), &first.body["expires"]));
    shop.consume();
    let told = shop.until(&first.location(), &["failed_retryable"]).await;
    assert_eq!((&told["problem"]["status"], shop.effects()), (&410.into(), 0), "{told}");
}

pub(crate) async fn q5_what_expired_is_discarded_and_its_monitor_says_so(shop: Shop) {
    let location = shop.post("tap-7", "do", "x-life-ms: 700\r\nx-remaining-ms: 400\r\n").await.location();
    tokio::time::sleep(Duration::from_millis(800)).await; // it expires
    shop.consume();
    let told = shop.until(&location, &["failed_retryable"]).await;
    let problem = &told["problem"];
    assert_eq!((&problem["status"], &problem["type"]), (&410.into(), &"urn:oneclock:expired".into()), "{told}");
    // Not done: asked for again it is no younger, and says so.
    let again = shop.post("tap-7", "do", "x-life-ms: 700\r\nx-remaining-ms: 400\r\n").await;
    assert_eq!((again.location(), &again.body["state"]), (location, &"failed_retryable".into()));
    assert_eq!(shop.effects(), 0);
}

pub(crate) async fn q5_what_expired_is_put_aside_and_its_monitor_says_so(shop: Shop) {
    let fields = "x-life-ms: 700\r\nx-remaining-ms: 400\r\nx-policy: dead-letter\r\n";
    let location = shop.post("tap-7", "do", fields).await.location();
    tokio::time::sleep(Duration::from_millis(800)).await; // it expires
    shop.consume();
    let told = shop.until(&location, &["failed_retryable"]).await;
    assert_eq!((told.get("status"), &told["problem"]["type"]), (None, &"urn:oneclock:expired".into()), "{told}");
    // Asked for again it is no younger: it says so, and is put nowhere.
    let again = shop.post("tap-7", "do", fields).await;
    assert_eq!((again.location(), &again.body["state"]), (location.clone(), &"failed_retryable".into()));
    assert_eq!(shop.get(&location, "").await.body["problem"]["type"], "urn:oneclock:expired");
    assert_eq!(shop.effects(), 0);
}

pub(crate) async fn what_its_handler_refused_says_so_and_runs_again_when_asked_again(shop: Shop) {
    shop.consume();
    let location = shop.post("tap-7", "refuse", "").await.location();
    let begun = clock::now();
    let told = loop {
        let told = shop.until(&location, &["failed_retryable"]).await;
        if told.get("problem").is_some() {
            break told; // its run had said only that nothing happened
        }
        assert!(clock::now().since(begun) < BOUND, "{told}");
    };
    assert_eq!(told["problem"]["type"], "urn:oneclock:rejected", "{told}");
    assert_eq!(shop.post("tap-7", "refuse", "").await.location(), location);
    shop.until(&location, &["completed"]).await;
    assert_eq!(shop.effects(), 1);
}
