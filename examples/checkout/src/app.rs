//! The phone app: taps come when they come, whether or not earlier ones were answered (an open loop), and each user
//! waits as long as the app makes them.

use std::sync::Arc;
use std::time::Duration;

use oneclock::{Operation, clock};
use oneclock_core::Tick;
use tokio::task::JoinSet;

use crate::independent::{self, plain_client};
use crate::propagated;
use crate::story::{Story, Tap};
use crate::witness::{Try, Witness};

/// How one tap went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waited {
    pub(crate) tap: usize,
    pub(crate) began: Tick,
    pub(crate) answered: bool,
    pub(crate) waited: Duration,
}

/// Every layer has its own limit: the app gives each try its patience, and tries again.
pub(crate) async fn with_independent_timeouts(
    story: &Story,
    taps: &[Tap],
    shop: &independent::Shop,
    witness: &Arc<Witness>,
    progress: impl Fn(f64),
) -> Vec<Waited> {
    let client = plain_client();
    let tap = |tap: usize, slow_article: bool| {
        let (client, url, witness) = (client.clone(), shop.gateway.clone(), Arc::clone(witness));
        let (patience, tries) = (story.patience, story.tries);
        async move {
            for number in 1..=tries {
                let of = Try { tap, number, slow_article };
                let answer = tokio::time::timeout(patience, independent::ask(&client, &url, of)).await;
                if let Ok(Some(_)) = answer {
                    return true;
                }
                witness.left(of);
            }
            false
        }
    };
    drive(story, taps, witness, progress, tap).await
}

/// The tap has one budget, and everything below spends from it.
pub(crate) async fn with_one_budget(
    story: &Story,
    taps: &[Tap],
    shop: &propagated::Shop,
    witness: &Arc<Witness>,
    progress: impl Fn(f64),
) -> Vec<Waited> {
    let tap = |tap: usize, slow_article: bool| {
        let (client, witness, patience) = (shop.app.clone(), Arc::clone(witness), story.patience);
        async move {
            let of = Try { tap, number: 1, slow_article };
            let operation = Operation::begin("tap", patience);
            let answer = operation.run(propagated::ask(&client, "/checkout", of)).await;
            let answered = matches!(answer, Ok(Ok(_)));
            if !answered {
                witness.left(of);
            }
            answered
        }
    };
    drive(story, taps, witness, progress, tap).await
}

/// One tap for its ledger's sake, long after the load, at a shop whose pricing is slow.
pub(crate) async fn one_typical_tap(story: &Story, shop: &propagated::Shop) {
    let operation = Operation::begin("tap", story.patience);
    let of = Try { tap: 0, number: 1, slow_article: true };
    let _ = operation.run(propagated::ask(&shop.app, "/checkout", of)).await;
}

async fn drive<F>(
    story: &Story,
    taps: &[Tap],
    witness: &Arc<Witness>,
    progress: impl Fn(f64),
    run: impl Fn(usize, bool) -> F,
) -> Vec<Waited>
where
    F: Future<Output = bool> + Send + 'static,
{
    witness.load_begins(Duration::ZERO);
    let began = clock::now();
    let mut running = JoinSet::new();
    for (index, tap) in taps.iter().enumerate() {
        tokio::time::sleep(tap.at.saturating_sub(clock::now().since(began))).await;
        progress(tap.at.div_duration_f64(story.lasts) * 0.9);
        let work = run(index, tap.slow_article);
        running.spawn(async move {
            let began = clock::now();
            let answered = work.await;
            Waited { tap: index, began, answered, waited: clock::now().since(began) }
        });
    }
    let mut waits = Vec::new();
    while let Some(waited) = running.join_next().await {
        waits.extend(waited);
    }
    // What goes on after everybody has left is part of the story: see it to its end, bounded by the longest work.
    let patience = clock::now() + story.slow * (story.tries + 1);
    while witness.still_at_work() > 0 && clock::now() < patience {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    progress(1.0);
    waits.sort_by_key(|waited| waited.tap);
    waits
}
