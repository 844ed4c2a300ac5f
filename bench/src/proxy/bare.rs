//! The least that a proxy of hyper's costs: its server, hyper-util's client, one timeout, the head rewritten. It keeps no
//! deadline, counts nothing and drains nothing.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response, Uri, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use oneclock_bench::Failed;
use tokio::net::TcpListener;

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(upstream: SocketAddr) -> Result<(), Failed> {
    // As `oneclock proxy --workers 1`.
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?.block_on(serve(upstream))
}

async fn serve(upstream: SocketAddr) -> Result<(), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let accepting = async move {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let client = client.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| forward(client.clone(), upstream, request));
                let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
            });
        }
    };
    tokio::spawn(accepting).await? // on the worker's thread
}

async fn forward(
    client: Client<HttpConnector, Incoming>,
    upstream: SocketAddr,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Failed> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = Uri::builder().scheme("http").authority(upstream.to_string()).path_and_query(path).build()?;
    *request.version_mut() = Version::HTTP_11;
    request.headers_mut().remove(header::CONNECTION);
    let mut answer = tokio::time::timeout(TIMEOUT, client.request(request)).await??;
    answer.headers_mut().remove(header::CONNECTION);
    Ok(answer)
}
