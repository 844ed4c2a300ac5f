//! Three services in a row, A → B → C: what is told only gets smaller, the end reaches all, and its error says whose bound it
//! was. I2, I6, V10.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http::Request as HttpRequest;
use oneclock::{Operation, clock};
use oneclock_core::{Policy, Reason, Trust};
use oneclock_tonic::{ClientLayer, ClientService, PolicyExt as _, answered, call_error, destination};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Server};
use tonic::{Code, Request};
use tower::{Layer, Service, ServiceBuilder};

use crate::support::{Caller, Net, Peer, ms, one, peer, serve, silent};

/// Notes the `grpc-timeout` of what arrives, outside of our layer: as it came over the wire.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u128>>>);

#[derive(Clone)]
struct Noting<S>(S, Notes);

impl<S> Layer<S> for Notes {
    type Service = Noting<S>;

    fn layer(&self, inner: S) -> Noting<S> {
        Noting(inner, self.clone())
    }
}

impl<S, B> Service<HttpRequest<B>> for Noting<S>
where
    S: Service<HttpRequest<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: HttpRequest<B>) -> S::Future {
        let values: Vec<_> = request.headers().get_all("grpc-timeout").iter().collect();
        assert_eq!(values.len(), 1, "one, and no stale copy");
        let micros = values[0].to_str().unwrap().strip_suffix('u').expect("microseconds");
        self.1.0.lock().unwrap().push(micros.parse::<u128>().unwrap());
        self.0.call(request)
    }
}

/// What a handler's calls ended with.
type Errors = Arc<Mutex<Vec<String>>>;

fn hop(name: &'static str, notes: &Notes, service: Peer) -> Net {
    let policy = Policy::named(name).when_absent(ms(3_000)).ceiling(ms(3_000)).build().unwrap();
    let layers =
        ServiceBuilder::new().layer(notes.clone()).layer(policy.grpc_layer().trust(Trust::Inside)).into_inner();
    serve(|incoming| Server::builder().layer(layers).add_service(service).serve_with_incoming(incoming))
}

fn client(name: &'static str, net: &Net) -> ClientService<Channel> {
    let far = destination(name).trust(Trust::Inside).cap(ms(3_000)).build().unwrap();
    ClientLayer::new(far).layer(net.channel())
}

/// Calls `next` after 200 ms of its own, with all the metadata that it got itself, as careless code does.
fn calls(next: ClientService<Channel>, errors: &Errors) -> Peer {
    let errors = Arc::clone(errors);
    peer(move |request| {
        let (mut next, errors) = (Caller::new(next.clone()), Arc::clone(&errors));
        async move {
            sleep(ms(200)).await;
            let mut on = Request::new("hello");
            *on.metadata_mut() = request.metadata().clone();
            match next.unary(on).await {
                Ok(answer) => Ok(one(answer.into_inner())),
                Err(status) => {
                    errors.lock().unwrap().push(status.message().to_owned());
                    Err(status)
                }
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn i2_each_hop_is_told_less_and_all_of_them_end_together() {
    let (at_b, at_c) = (Notes::default(), Notes::default());
    let c = hop("c", &at_c, silent());
    let b = hop("b", &at_b, calls(client("c", &c), &Errors::default()));
    let op = Operation::begin("a", ms(1_500));
    let began = clock::now();
    let status = op.scope(Caller::new(client("b", &b)).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(1_500)));
    // Each cap of 3 s was above what was left.
    assert_eq!((&*at_b.0.lock().unwrap(), &*at_c.0.lock().unwrap()), (&vec![1_500_000], &vec![1_300_000]));
    assert!(status.message().starts_with("a → b") && status.message().contains("1.5s"), "{}", status.message());
    assert!(call_error(&status).is_some());
}

/// B keeps 100 ms for itself, so that it is there to see its call end.
#[tokio::test(start_paused = true)]
async fn v10_the_error_at_b_names_what_a_gave_and_not_its_own_cap() {
    let c = hop("c", &Notes::default(), silent());
    let far = destination("c").cap(ms(3_000)).reserve(ms(100)).build().unwrap();
    let errors = Errors::default();
    let b = hop("b", &Notes::default(), calls(ClientLayer::new(far).layer(c.channel()), &errors));
    let op = Operation::begin("a", ms(1_500));
    let began = clock::now();
    let status = op.scope(Caller::new(client("b", &b)).unary(Request::new("hello"))).await.unwrap_err();
    assert_eq!((status.code(), clock::now().since(began)), (Code::DeadlineExceeded, ms(1_400)));
    let at_b = errors.lock().unwrap().pop().expect("B's call failed");
    assert!(at_b.starts_with("b → c: out of time") && at_b.contains("bound: caller"), "{at_b}");
    assert!(answered(&status).is_some_and(|answered| answered.reason == Some(Reason::Deadline)), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn i6_when_the_caller_leaves_everything_below_it_ends() {
    let (sender, mut gone) = mpsc::unbounded_channel();
    let last = peer(move |request| {
        let op = oneclock_tonic::operation(&request);
        let sender = sender.clone();
        async move {
            let _hook = op?.on_end(move |ending| {
                let _ = sender.send(ending.cause);
            });
            std::future::pending().await
        }
    });
    let c = hop("c", &Notes::default(), last);
    let b = hop("b", &Notes::default(), calls(client("c", &c), &Errors::default()));
    let op = Operation::begin("a", ms(2_500));
    let mut caller = Caller::new(client("b", &b));
    let began = clock::now();
    timeout(ms(500), op.scope(caller.unary(Request::new("hello")))).await.expect_err("A is waiting");
    let cause = timeout(ms(100), gone.recv()).await.expect("C is over").unwrap();
    assert_eq!(cause, oneclock_core::Cause::CallerGone);
    assert!(clock::now().since(began) < ms(600), "long before the deadline");
}
