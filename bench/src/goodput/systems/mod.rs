//! What answers: for each system the tiers that it stands in front of or within.

pub(crate) mod envoy;
pub(crate) mod grpcio;
pub(crate) mod ours;
mod plain;
mod tonic;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::Failed;
use crate::caller::{Caller, Manners};
use crate::meter::Meter;
use crate::pool::Pool;
use crate::system::System;
use crate::tier::{Model, Tier};

/// What an origin has to know.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) system: System,
    pub(crate) tiers: usize,
    pub(crate) slots: usize,
    pub(crate) model: Model,
    /// The longest budget of the scenario, for timeouts that are set by hand.
    pub(crate) longest: Duration,
    /// Where each tier is reached, if something stands in front of it.
    pub(crate) via: Vec<SocketAddr>,
    /// How a tier calls the one below it.
    pub(crate) manners: Manners,
}

/// Serves all tiers; their addresses, the first one first.
pub(crate) async fn serve(setting: &Setting, meter: &Meter) -> Result<Vec<SocketAddr>, Failed> {
    let mut addresses = Vec::new();
    let mut below = None;
    // From the last one, so that each knows the one below it.
    for number in (0..setting.tiers).rev() {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        let next: Option<SocketAddr> = below;
        below = setting.via.get(number).copied().or(addresses.last().copied());
        if setting.system.is_ours() {
            ours::serve(setting, number, meter, next, listener)?;
            continue;
        }
        let next = next.map(|next| Caller::new(Pool::new(next, setting.system.speaks()), setting.manners));
        let tier = Tier::new(number, setting.slots, setting.model, meter.clone(), next);
        match setting.system {
            System::Tonic => tonic::serve(tier, listener),
            _ => plain::serve(setting, tier, listener),
        }
    }
    addresses.reverse();
    Ok(addresses)
}

/// The time after which nobody wants an answer, for a tier that was told how much is left.
fn told_until(field: Option<&str>, otherwise: Duration) -> tokio::time::Instant {
    let told = field.and_then(|field| field.trim_end_matches('m').parse().ok()).map(Duration::from_millis);
    crate::clock::now() + told.unwrap_or(otherwise)
}

/// A tier whose work is done asks the next one.
async fn ask_next(tier: &Arc<Tier>, tag: crate::tag::Tag, until: tokio::time::Instant) -> crate::caller::Came {
    let Some(next) = &tier.next else { return crate::caller::Came::InTime };
    next.call("/work", tag, until, || tier.meter.asked(tier.number + 1, tag.id)).await.came
}
