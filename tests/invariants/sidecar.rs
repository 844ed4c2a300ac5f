//! The sidecar as one more hop: `oneclock-proxy` before a service of a shop, under the same limits, so that what holds for the
//! service holds through it.
//!
//! It asks its service in the protocol of the shop, trusts it, and ends at once when the shop is closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use oneclock_core::ingress::Limits;
use oneclock_core::{Name, Policy, Trust};
use oneclock_proxy::Proxy;
use oneclock_proxy::config::{Config, Match, PathMatch, Route, UpstreamProtocol};
use tokio::sync::oneshot;

use crate::shop::{Shop, ample};
use crate::ways::Way;

impl Shop {
    /// Puts a sidecar before what listens at `upstream`, with the limits of this policy, or ample ones. `change` has the last word.
    pub(crate) async fn sidecar(
        &self,
        upstream: SocketAddr,
        trust: Trust,
        limits: Option<&Policy>,
        change: impl FnOnce(&mut Route),
    ) -> SocketAddr {
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = Config::simple(here, &format!("http://{upstream}")).unwrap();
        config.admin = None;
        config.shutdown_grace = Duration::ZERO;
        config.listeners[0].trust = trust;
        for upstream in config.upstreams.values_mut() {
            upstream.trust = Trust::Inside;
            upstream.protocol = match self.way() {
                Way::Http1 => UpstreamProtocol::Http1,
                Way::Http2 | Way::Grpc => UpstreamProtocol::H2c,
            };
        }
        let ample = ample("sidecar").build().unwrap();
        let limits = limits.unwrap_or(&ample);
        let everything = &mut config.routes[0];
        bounded(everything, limits.limits(None));
        change(everything);
        let of_routes: Vec<Route> =
            limits.routes().map(|(pattern, limits)| route(self.way(), pattern, limits)).collect();
        config.routes.extend(of_routes);

        let sidecar = Proxy::start(config).await.unwrap();
        let addr = sidecar.addresses()[0].1;
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _ = stopped.await;
            sidecar.shutdown().await;
            Ok(())
        });
        self.keep(stop, task);
        addr
    }
}

fn route(way: Way, pattern: &str, limits: &Limits) -> Route {
    let path = match pattern.split_once("/{") {
        Some((fixed, _)) => PathMatch::Prefix(fixed.to_owned()),
        // A service of gRPC stands for all of its methods.
        None if way == Way::Grpc && !pattern[1..].contains('/') => PathMatch::Prefix(pattern.to_owned()),
        None => PathMatch::Exact(pattern.to_owned()),
    };
    let matches = vec![Match { path, method: None }];
    let mut route = Route::new(Name::from(pattern.to_owned()), matches, Name::from("app"));
    bounded(&mut route, limits);
    route
}

fn bounded(route: &mut Route, limits: &Limits) {
    route.when_absent = limits.when_absent_value();
    route.ceiling = limits.ceiling_value();
    route.min_useful = limits.min_useful_value();
}
