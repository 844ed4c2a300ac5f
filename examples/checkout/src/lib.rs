//! The demo shop: a phone app taps "buy", and gateway → order → pricing work for it, each a real service with its own
//! server and client on loopback sockets.
//!
//! The same shop runs in two ways. With **independent timeouts** every layer has a limit that looks reasonable alone.
//! With **one budget** every layer spends from the tap's. Pricing does its work on a blocking thread, as work with a
//! database driver, a compression or a rule engine usually is: dropping a future does not stop it.
//!
//! | module | is |
//! |---|---|
//! | [`story`] | the numbers: how slow, how patient, scaled |
//! | `independent` | the shop with independent timeouts: axum, hyper and tower-http as everybody uses them |
//! | `propagated` | the shop with one budget |
//! | `app` | the phone app: the seeded taps, and how long their users wait |
//! | `witness` | what really happened: every execution, and whether its caller was still there |
//! | [`report`] | the figures, as they are printed |

mod app;
mod independent;
mod propagated;
pub mod report;
pub mod story;
mod witness;

use std::sync::Arc;

use report::{Report, Scenario, Side};
use story::Story;
use witness::Witness;

/// What can go wrong before anything is shown: no loopback socket, mostly.
#[derive(Debug, thiserror::Error)]
#[error("the shop could not open: {what}")]
pub struct ShopClosed {
    what: &'static str,
    source: BoxError,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs the scenario both ways under the same seeded load, and reports what happened.
///
/// `progress` is told how much of the whole is done, from 0 to 1.
///
/// # Errors
/// [`ShopClosed`], if a service could not be started.
///
/// # Cancel safety
/// Dropping it closes the shop.
pub async fn run(seed: u64, progress: impl Fn(f64) + Send + Sync) -> Result<Report, ShopClosed> {
    let story = Story::slow_pricing();
    let taps = story.taps(seed);

    let witness = Arc::new(Witness::default());
    let shop = independent::open(&story, &witness).await?;
    let waits = app::with_independent_timeouts(&story, &taps, &shop, &witness, |done| progress(done / 2.0)).await;
    let independent = Side::from(&story, &waits, &witness);
    drop(shop);

    let witness = Arc::new(Witness::default());
    let shop = propagated::open(&story, &witness).await?;
    let waits = app::with_one_budget(&story, &taps, &shop, &witness, |done| progress(0.5 + done / 2.0)).await;
    let mut propagated = Side::from(&story, &waits, &witness);
    propagated.ledger = shop.typical_ledger(&story, &witness).await;
    shop.close().await;

    let scenario = Scenario { name: story.name, scale: story.scale, independent, propagated };
    Ok(Report { seed, scenarios: vec![scenario] })
}
