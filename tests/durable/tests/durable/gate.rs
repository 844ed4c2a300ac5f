//! Stands between a client and its broker. Cut, it closes every connection and takes none, until it is mended.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub(crate) struct Gate {
    address: SocketAddr,
    is_cut: watch::Sender<bool>,
    accepts: JoinHandle<()>,
}

impl Gate {
    /// To the broker at this host and port.
    pub(crate) async fn to(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, is_cut) = watch::channel(false);
        let broker = broker.to_owned();
        let accepts = tokio::spawn(async move {
            let mut through = JoinSet::new();
            while let Ok((mut ours, _)) = listener.accept().await {
                let mut is_cut = is_cut.clone();
                if *is_cut.borrow() {
                    continue;
                }
                let broker = broker.clone();
                through.spawn(async move {
                    let mut theirs = TcpStream::connect(broker).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs) => {}
                        _ = is_cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { address, is_cut: cut, accepts }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepts.abort(); // and with it whatever goes through
    }
}
