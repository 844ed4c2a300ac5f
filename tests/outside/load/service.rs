//! The chain: a gateway that calls an inventory. Both do at random what a handler can do, and tell the witness.

use std::convert::Infallible;
use std::future::{IntoFuture, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::{Extension, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use oneclock::{Ended, Operation, Shutdown};
use oneclock_axum::{Op, PolicyExt as _, Problem};
use oneclock_core::{Policy, Trust};
use oneclock_http::{Client, serve};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::SHUT;
use super::plan::{Hop, PLAN, Plan};
use super::witness::{Answer, Record, SERVICES, Witness};

/// The two services.
pub(super) struct Chain {
    pub(super) gateway: SocketAddr,
    shutdown: Shutdown,
    servers: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Clone)]
struct Service {
    name: &'static str,
    hop: Hop,
    witness: Arc<Witness>,
    next: Option<[Client; 2]>, // one for each protocol
}

/// The body of an answer, watched by the doorkeeper.
struct Watched {
    inner: Option<AxumBody>,
    over: Over,
}

/// Says that a request is over, when it is dropped. Declared before what it watches, so that it is dropped after that.
struct Over {
    record: Arc<Record>,
    answer: Answer,
    reason: Option<String>,
}

const CEILING: Duration = Duration::from_secs(1);
const WHEN_ABSENT: Duration = Duration::from_millis(250);
const LARGE: usize = 200 * 1024;

// === Chain ===

impl Chain {
    pub(super) async fn open(witness: &Arc<Witness>) -> io::Result<Self> {
        let shutdown = Shutdown::new();
        let mut servers = Vec::new();
        let mut open = async |name, hop, next, trust| {
            let service = Service { name, hop, witness: Arc::clone(witness), next };
            let policy =
                Policy::named(name).when_absent(WHEN_ABSENT).ceiling(CEILING).build().map_err(io::Error::other)?;
            let app = Router::new()
                .route("/work", any(work))
                .with_state(service.clone())
                .layer(policy.layer().observed_by(witness.clone()))
                .layer(from_fn_with_state(service, door));
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let addr = listener.local_addr()?;
            let signal = shutdown.clone();
            let server = serve(listener, app).trust(trust).with_shutdown(&shutdown);
            let server = server.shutdown(async move { signal.signalled().await }, SHUT);
            servers.push(tokio::spawn(server.into_future()));
            Ok::<_, io::Error>(addr)
        };
        let [gateway, inventory] = SERVICES;
        let addr = open(inventory, Hop::Inventory, None, Trust::Inside).await?;
        let client = || Client::builder(inventory, format!("http://{addr}")).trust(Trust::Inside);
        let h1 = client().max_connections(256).max_idle(64).build().map_err(io::Error::other)?;
        let h2 = client().http2_only().build().map_err(io::Error::other)?;
        let gateway = open(gateway, Hop::Gateway, Some([h1, h2]), Trust::Inside).await?;
        Ok(Self { gateway, shutdown, servers })
    }

    /// Shuts both down. Returns how many of their tasks are alive after that.
    pub(super) async fn close(self) -> io::Result<usize> {
        self.shutdown.signal();
        for server in self.servers {
            timeout(2 * SHUT, server)
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
                .map_err(io::Error::other)?;
        }
        Ok(self.shutdown.tasks())
    }
}

// === The door ===

async fn door(State(service): State<Service>, mut request: Request, next: Next) -> Response {
    let record = Record::new(service.name, &service.witness);
    request.extensions_mut().insert(Arc::clone(&record));
    let mut over = Over { record, answer: Answer::None, reason: None };
    let (head, body) = next.run(request).await.into_parts();
    over.answer = Answer::Dropped;
    let reason = head.headers.get("oneclock-reason").and_then(|reason| reason.to_str().ok());
    over.reason = reason.map(ToOwned::to_owned);
    if body.is_end_stream() {
        over.answer = Answer::Whole;
    }
    Response::from_parts(head, AxumBody::new(Watched { inner: Some(body), over }))
}

impl Drop for Over {
    fn drop(&mut self) {
        self.record.over(self.answer, self.reason.as_deref());
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        match &frame {
            Some(Ok(_)) if !inner.is_end_stream() => {}
            Some(Ok(_)) | None => this.over.answer = Answer::Whole,
            Some(Err(_)) => this.over.answer = Answer::Failed,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.inner = None; // before it is over
    }
}

// === The work ===

async fn work(
    Op(op): Op,
    State(service): State<Service>,
    Extension(record): Extension<Arc<Record>>,
    request: Request,
) -> Result<Response, Problem> {
    let handling = record.handling(&op);
    let answer = service.works(&op, &record, request).await;
    handling.finish();
    answer
}

impl Service {
    async fn works(&self, op: &Operation, record: &Record, request: Request) -> Result<Response, Problem> {
        let number = request.headers().get(PLAN).and_then(|plan| plan.to_str().ok()).and_then(|plan| plan.parse().ok());
        let mut plan = Plan::of(number.unwrap_or_default(), self.hop);
        sleep(plan.span(8)).await;
        if plan.chance(50) {
            let read = axum::body::to_bytes(request.into_body(), 1 << 20).await;
            if read.is_err() {
                return Err(Problem::new(oneclock_core::Reason::RequestBody));
            }
        }
        if plan.chance(25) {
            self.child(op, &mut plan).await?;
        }
        if plan.chance(8) {
            self.closure(op, &mut plan).await?;
        }
        if plan.chance(5) {
            self.step(op, &mut plan).await?;
        }
        let mut passed_on = None;
        if let Some(clients) = &self.next
            && plan.chance(75)
        {
            passed_on =
                self.call(&clients[usize::from(plan.chance(50))], &mut plan, number.unwrap_or_default()).await?;
        }
        if plan.chance(3) {
            pending::<()>().await;
        }
        if let Some(body) = passed_on {
            record.passes_on();
            return Ok(AxumBody::new(body).into_response());
        }
        Ok(match plan.up_to(9) {
            0 => vec![b'x'; LARGE].into_response(),
            1..4 => stream(plan).into_response(),
            _ => "done".into_response(),
        })
    }

    async fn child(&self, op: &Operation, plan: &mut Plan) -> Result<(), Problem> {
        let (witness, takes, is_awaited) = (Arc::clone(&self.witness), plan.span(25), plan.chance(50));
        witness.saw("begun", "child");
        let child = op.spawn("child", async move {
            let working = witness.working("child");
            sleep(takes).await;
            working.finish();
        });
        if is_awaited {
            child.await?;
        }
        Ok(())
    }

    async fn closure(&self, op: &Operation, plan: &mut Plan) -> Result<(), Problem> {
        let (witness, steps, is_awaited) = (Arc::clone(&self.witness), plan.up_to(4), plan.chance(50));
        witness.saw("begun", "closure");
        let closure = op.spawn_blocking("closure", move |op| {
            let working = witness.working("closure");
            for _ in 0..steps {
                op.checkpoint()?;
                std::thread::sleep(Duration::from_millis(1));
            }
            working.finish();
            Ok::<_, Ended>(())
        });
        if is_awaited {
            closure.await??;
        }
        Ok(())
    }

    async fn step(&self, op: &Operation, plan: &mut Plan) -> Result<(), Problem> {
        let (witness, takes) = (Arc::clone(&self.witness), plan.span(20));
        self.witness.saw("begun", "step");
        let step = async move {
            let working = witness.working("step");
            sleep(takes).await;
            working.finish();
            Ok::<_, Infallible>(())
        };
        Ok(op.must_finish("step", Duration::from_secs(5), step).await?)
    }

    async fn call(
        &self,
        client: &Client,
        plan: &mut Plan,
        number: u64,
    ) -> Result<Option<oneclock_http::BoundedBody<oneclock_http::Received>>, Problem> {
        let body = if plan.chance(10) { Bytes::from(vec![b'x'; plan.up_to(100_000)]) } else { Bytes::new() };
        let request =
            http::Request::post("/work").header(PLAN, number.to_string()).body(http_body_util::Full::new(body));
        let request = request.map_err(Problem::of)?;
        let (pass_on, forget) = (plan.chance(15), plan.chance(5));
        self.witness.saw("begun", "inventory");
        let answer = client.request(request).await?;
        if pass_on {
            return Ok(Some(answer.into_body()));
        }
        if !forget {
            let read = oneclock_http::collect(answer.into_body(), 1 << 20).await;
            read.map_err(Problem::of)?;
        }
        Ok(None)
    }
}

/// Some pieces with pauses between them; one in twenty never ends.
fn stream(mut plan: Plan) -> AxumBody {
    let (pieces, ends) = (plan.up_to(5), !plan.chance(5));
    AxumBody::from_stream(futures_util::stream::unfold((plan, pieces), move |(mut plan, left)| async move {
        if left == 0 {
            if !ends {
                pending::<()>().await;
            }
            return None;
        }
        sleep(plan.span(4)).await;
        Some((Ok::<_, Infallible>(Bytes::from(vec![b'x'; plan.up_to(4_000)])), (plan, left - 1)))
    }))
}
