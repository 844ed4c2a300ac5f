//! A service that answers nothing and writes down with which code its caller reset the stream.

use std::net::SocketAddr;
use std::time::Duration;

use h2::Reason;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a row waits for a reset.
const PATIENCE: Duration = Duration::from_secs(10);

/// The service, running until it is dropped.
pub(crate) struct Resets {
    pub(crate) address: SocketAddr,
    began: mpsc::Receiver<()>,
    codes: mpsc::Receiver<Option<Reason>>,
    _tasks: JoinSet<()>,
}

impl Resets {
    pub(crate) async fn start() -> Result<Self, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let (begins, began) = mpsc::channel(8);
        let (tells, codes) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((io, _)) = listener.accept().await {
                let (begins, tells) = (begins.clone(), tells.clone());
                connections.spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(io).await else { return };
                    let mut streams = JoinSet::new();
                    while let Some(Ok((_request, mut respond))) = connection.accept().await {
                        let _ = begins.send(()).await;
                        let tells = tells.clone();
                        streams.spawn(async move {
                            let code = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                            let _ = tells.send(code.ok()).await;
                        });
                    }
                });
            }
        });
        Ok(Self { address, began, codes, _tasks: tasks })
    }

    /// Once a request is there.
    pub(crate) async fn began(&mut self) {
        let _ = timeout(PATIENCE, self.began.recv()).await;
    }

    /// The code of the next reset.
    pub(crate) async fn code(&mut self) -> Result<Reason, String> {
        let code = timeout(PATIENCE, self.codes.recv()).await.map_err(|_| format!("no reset within {PATIENCE:?}"))?;
        code.flatten().ok_or_else(|| "the connection ended without a reset".to_owned())
    }
}
