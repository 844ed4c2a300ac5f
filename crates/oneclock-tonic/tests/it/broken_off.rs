//! Streams that one side gives up: what broke off never looks whole, and whom nobody listens to any more stops.
//! Contract X3, invariant I6.

use std::sync::{Arc, Mutex};

use futures_util::{StreamExt as _, stream};
use oneclock::Operation;
use oneclock_tonic::{ClientLayer, ClientService, destination};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower::Layer as _;

use crate::support::{Caller, Net, Peer, ms, one_then_nothing, peer, serve_inside, serve_plain};

const SOON: std::time::Duration = std::time::Duration::from_secs(5);

type Said<T> = Arc<Mutex<Option<oneshot::Sender<T>>>>;

fn said<T>() -> (Said<T>, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    (Arc::new(Mutex::new(Some(sender))), receiver)
}

/// Reads all messages in a task, which its caller's leaving does not end, and says how they ended.
fn reads_on(said: Said<Result<usize, Status>>) -> Peer {
    peer(move |request| {
        let said = said.lock().unwrap().take();
        async move {
            let mut messages = request.into_inner();
            tokio::spawn(async move {
                let mut read = 0;
                let end = loop {
                    match messages.message().await {
                        Ok(Some(_)) => read += 1,
                        Ok(None) => break Ok(read),
                        Err(status) => break Err(status),
                    }
                };
                if let Some(said) = said {
                    let _ = said.send(end);
                }
            });
            Ok(one_then_nothing("first"))
        }
    })
}

/// Sends one message, keeps the stream open, and leaves after the first answer.
async fn leaves_midway<T>(channel: T)
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::ResponseBody: Send + 'static,
    <T::ResponseBody as http_body::Body>::Error: Into<oneclock_http::BoxError>,
{
    let op = Operation::begin("order", SOON * 20); // much longer than any test here waits
    let upload = stream::once(async { "item".into() }).chain(stream::pending());
    let mut answers = op.scope(Caller::new(channel).stream(Request::new(upload))).await.unwrap().into_inner();
    answers.next().await.unwrap().unwrap();
}

fn under_our_layer(net: &Net) -> ClientService<Channel> {
    ClientLayer::new(destination("peer").build().unwrap()).layer(net.channel())
}

#[tokio::test]
async fn x3_an_upload_that_broke_off_is_an_error_for_its_handler() {
    let (says, how) = said();
    let net = serve_inside(reads_on(says));
    leaves_midway(under_our_layer(&net)).await;
    let status = timeout(SOON, how).await.expect("told").unwrap().expect_err("broken off");
    assert_ne!(status.code(), Code::Cancelled, "tonic would take that for the end");
    assert_ne!(status.code(), Code::Ok);
}

/// What tonic makes of it: a whole upload of one message.
#[tokio::test]
async fn x3_naive_tonic_takes_what_broke_off_for_the_end() {
    let (says, how) = said();
    let net = serve_plain(reads_on(says));
    leaves_midway(under_our_layer(&net)).await;
    assert_eq!(timeout(SOON, how).await.expect("told").unwrap().expect("looks whole"), 1);
}

/// Says when it is dropped.
fn notices(said: Said<()>) -> Peer {
    struct Dropped(Option<oneshot::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            if let Some(said) = self.0.take() {
                let _ = said.send(());
            }
        }
    }
    peer(move |_| {
        let dropped = Dropped(said.lock().unwrap().take());
        async move {
            let answers = one_then_nothing("first").map(move |item| {
                let _here = &dropped;
                item
            });
            Ok(answers.boxed())
        }
    })
}

#[tokio::test]
async fn i6_who_gives_up_an_answer_gives_up_its_upload() {
    let (says, gone) = said();
    let net = serve_plain(notices(says));
    leaves_midway(under_our_layer(&net)).await;
    timeout(SOON, gone).await.expect("the far side is told").unwrap();
}

#[tokio::test]
async fn i6_naive_a_channel_goes_on_sending_for_nobody() {
    let (says, gone) = said();
    let net = serve_plain(notices(says));
    let channel = net.channel(); // held, so that the connection stays
    leaves_midway(channel.clone()).await;
    timeout(ms(500), gone).await.expect_err("the far side works on");
}
