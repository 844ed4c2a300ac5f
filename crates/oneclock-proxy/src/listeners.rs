//! The servers of the listeners, and their exchange while the proxy runs.
//!
//! Decides what a reload does to a listener (by its address, since that is what callers know):
//!
//! | the new configuration | what happens |
//! |---|---|
//! | says the same, but for `reads` and the routes | its server goes on; the next request is under the new table |
//! | names another certificate, or its file says another | the next handshake shows that; its server and connections go on |
//! | says something else of the same address | another server takes over its socket, so nobody is refused in between |
//! | has an address that is not listened on | it is bound before anything changes |
//! | has no listener on an address any more | its socket is closed |
//!
//! What becomes of a server that another one takes over from, or that has lost its socket, is `leaving`'s decision. If its
//! listener is gone, what is under way on it has the grace of a shutdown.

use std::future::IntoFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oneclock::Shutdown;
use oneclock_core::Name;
use oneclock_http::{Serve, serve};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::StartFailed;
use crate::config::Listener;
use crate::leaving::{Closing, Ends, Leaving, run};
use crate::route::Dispatch;
use crate::table::Table;
use crate::tls::Secured;

/// How many connections may wait to be accepted. The system has a bound of its own.
const BACKLOG: u32 = 4_096;

/// The listeners of a proxy. Dropped, they end at once.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    serving: Vec<Serving>,
    servers: JoinSet<io::Result<()>>,
}

/// One server, and its socket.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<Secured>,
    socket: Arc<TcpListener>,
    leaving: Leaving,
}

/// The listeners that there are to be, in their order. Nothing has changed yet.
#[derive(Debug)]
pub(crate) struct Plan(Vec<Next>);

#[derive(Debug)]
struct Next {
    listener: Listener,
    tls: Option<Secured>,
    how: How,
}

#[derive(Debug)]
enum How {
    /// The server at this place goes on.
    GoesOn(usize),
    /// Another one takes over the socket of that.
    TakesOver(usize),
    /// It has a socket of its own.
    Begins(Arc<TcpListener>, SocketAddr),
}

// === Listeners ===

impl Listeners {
    /// Those that serve now, in the order of the configuration.
    pub(crate) fn serving(&self) -> &[Serving] {
        &self.serving
    }

    pub(crate) fn addresses(&self) -> Vec<(Name, SocketAddr)> {
        self.serving.iter().map(|serving| (serving.listener.name.clone(), serving.address)).collect()
    }

    /// What is to be done so that these are served; binds what has to be bound.
    ///
    /// # Errors
    /// [`StartFailed::Bind`], and nothing has changed.
    ///
    /// # Cancel safety
    /// Dropped, nothing has changed.
    pub(crate) async fn plan(&self, wanted: Vec<(Listener, Option<Secured>)>) -> Result<Plan, StartFailed> {
        let mut next = Vec::new();
        let mut left: Vec<bool> = vec![true; self.serving.len()];
        for (listener, tls) in wanted {
            let known = self.serving.iter().zip(&mut left).enumerate();
            let mut known = known.filter(|(_, (serving, left))| **left && serving.is_on_the_socket_of(&listener));
            let how = match known.next() {
                Some((at, (serving, left))) => {
                    *left = false;
                    if serving.is_served_like(&listener, tls.as_ref()) { How::GoesOn(at) } else { How::TakesOver(at) }
                }
                None => {
                    let failed = |source| StartFailed::Bind {
                        listener: listener.name.clone(),
                        address: listener.address,
                        source,
                    };
                    let socket = bind(listener.address).map_err(failed)?;
                    let address = socket.local_addr().map_err(failed)?;
                    How::Begins(Arc::new(socket), address)
                }
            };
            next.push(Next { listener, tls, how });
        }
        Ok(Plan(next))
    }

    /// What listeners that are gone still get is under `before`. Said of all, right before there is another table; and taken back
    /// with `None` if there is none after all, since a table that is kept keeps all that it holds.
    pub(crate) fn keep_for_who_leaves(&self, before: Option<&Arc<Table>>) {
        for serving in &self.serving {
            serving.leaving.keep(before.map(Arc::clone));
        }
    }

    /// Serves what was planned, with what `dispatch` makes. What is under way on a listener that is gone has `grace`. Returns
    /// the sockets that nobody needs any more.
    pub(crate) fn carry_out(
        &mut self,
        Plan(next): Plan,
        dispatch: impl Fn(&Name, &Shutdown, &Leaving) -> Dispatch,
        root: &Shutdown,
        grace: Duration,
    ) -> Vec<Closing> {
        let mut old: Vec<Option<Serving>> = self.serving.drain(..).map(Some).collect();
        let mut take = |at: usize| old.get_mut(at).and_then(Option::take);
        for Next { listener, tls, how } in next {
            let (socket, address) = match how {
                How::GoesOn(at) => {
                    let Some(mut serving) = take(at) else { continue }; // each place is in one plan once
                    serving.leaving.keep(None);
                    if let (Some(now), Some(renewed)) = (&serving.tls, &tls) {
                        now.renew(renewed);
                    }
                    serving.listener = listener;
                    self.serving.push(serving);
                    continue;
                }
                How::TakesOver(at) => {
                    let Some(serving) = take(at) else { continue };
                    serving.leaving.leave(None);
                    (serving.socket, serving.address)
                }
                How::Begins(socket, address) => (socket, address),
            };
            let (leaving, work) = (Leaving::default(), Shutdown::new());
            let dispatch = dispatch(&listener.name, &work, &leaving);
            let gate = leaving.gate(&socket);
            let ends = Ends { connections: Shutdown::new(), work };
            match &tls {
                Some(tls) => {
                    let server = serve(oneclock_http::tls(gate, Arc::clone(&tls.config)), dispatch);
                    let server = under(server, &listener, &ends.connections).into_future();
                    self.servers.spawn(run(server, ends, leaving.clone(), root.clone()));
                }
                None => {
                    let server = under(serve(gate, dispatch), &listener, &ends.connections).into_future();
                    self.servers.spawn(run(server, ends, leaving.clone(), root.clone()));
                }
            }
            self.serving.push(Serving { listener, address, tls, socket, leaving });
        }
        let gone = old.into_iter().flatten().map(|serving| {
            serving.leaving.leave(Some(grace));
            serving.leaving.closing(&serving.socket)
        });
        gone.collect()
    }

    /// Returns once one of them is broken for good, and why; never while all of them work, or were told to end.
    pub(crate) async fn broken(&mut self) -> io::Error {
        crate::proxy::broken(&mut self.servers).await
    }

    /// Lets go of the sockets: once the servers have been told to end, who comes now is refused, and not left waiting.
    pub(crate) fn close(&mut self) {
        self.serving.clear(); // servers hold their sockets only while they accept
    }

    /// Returns once all have ended, as the shutdown tells them to.
    pub(crate) async fn ended(&mut self) {
        while let Some(ended) = self.servers.join_next().await {
            if let Ok(Err(error)) = ended {
                tracing::warn!(%error, "a listener had broken");
            }
        }
    }
}

/// As tokio binds, but for the connections that may wait to be accepted: 128 are too few for a rush of callers, of whom those beyond
/// are only let in when their system knocks again, a second later.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn under<L, S>(server: Serve<L, S>, listener: &Listener, connections: &Shutdown) -> Serve<L, S> {
    server.trust(listener.trust).max_connections(listener.max_connections).with_shutdown(connections)
}

// === Serving ===

impl Serving {
    fn is_on_the_socket_of(&self, listener: &Listener) -> bool {
        // Port 0 is another port for each.
        let address = listener.address;
        self.listener.address == address && (address.port() != 0 || self.listener.name == listener.name)
    }

    /// Whether its server would be made the same way, but for its certificate.
    fn is_served_like(&self, listener: &Listener, tls: Option<&Secured>) -> bool {
        // `reads` is the table's.
        let Listener { name, address: _, tls: _, trust, reads: _, max_connections } = listener;
        let is_secured_alike = match (&self.tls, tls) {
            (None, None) => true,
            (Some(now), Some(then)) => now.peers == then.peers,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let now = &self.listener;
        now.name == *name && now.trust == *trust && now.max_connections == *max_connections && is_secured_alike
    }
}
