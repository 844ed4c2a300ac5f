//! The phone app and its users: taps come when they come, whether or not earlier ones were answered (an open loop), and
//! each user waits as long as the app makes them.

use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Observer;
use oneclock::{Operation, clock};
use oneclock_core::Tick;
use oneclock_http::Client;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::independent::{self, PlainClient};
use crate::propagated;
use crate::purchase::{Service, Try};
use crate::story::{Story, Tap};
use crate::witness::Witness;

/// How one visit went: a user tapped, and waited.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) tap: usize,
    pub(crate) visit: u32,
    pub(crate) began: Tick,
    pub(crate) waited: Duration,
    pub(crate) end: VisitEnd,
    /// What the user was told instead of an answer.
    pub(crate) said: Option<String>,
}

/// How a visit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisitEnd {
    Answered,
    /// The user left before there was an answer, and will be back.
    Left,
    /// The app gave up, or was refused.
    Unanswered,
}

/// How the app asks.
#[derive(Clone)]
pub(crate) enum App {
    /// Its own limit for each try, and so many tries.
    Independent { client: Box<PlainClient>, url: String, tries: u32 },
    /// One budget for the tap, and one try.
    OneBudget { client: Client, observer: Option<Arc<dyn Observer>> },
}

// === App ===

impl App {
    /// One visit of a user who waits for `patience` for each try, or leaves earlier.
    async fn visit(&self, first: Try, patience: Duration, leaves_after: Option<Duration>, witness: &Witness) -> Visit {
        let began = clock::now();
        let asking = async {
            match self {
                Self::Independent { client, url, tries } => {
                    for number in 1..=*tries {
                        let of = Try { number, ..first };
                        let waits = Waits { witness, of: Some(of) };
                        if let Ok(Some(_)) = timeout(patience, independent::ask(client, url, of)).await {
                            waits.got_it();
                            return (VisitEnd::Answered, None);
                        }
                    }
                    (VisitEnd::Unanswered, Some("no answer".to_owned()))
                }
                Self::OneBudget { client, observer } => {
                    let waits = Waits { witness, of: Some(first) };
                    let answer = propagated::ask(client, Service::Gateway, first);
                    let mut tap = Operation::begin("tap", patience);
                    if let Some(observer) = observer {
                        tap = tap.observed_by(Arc::clone(observer));
                    }
                    match tap.run(answer).await {
                        Ok(Ok(_)) => {
                            waits.got_it();
                            (VisitEnd::Answered, None)
                        }
                        Ok(Err(error)) => (VisitEnd::Unanswered, Some(error.to_string())),
                        Err(ended) => (VisitEnd::Unanswered, Some(ended.to_string())),
                    }
                }
            }
        };
        let left = || (VisitEnd::Left, Some("the user left".to_owned()));
        let (end, said) = match leaves_after {
            Some(leaves_after) => timeout(leaves_after, asking).await.unwrap_or_else(|_| left()),
            None => asking.await,
        };
        Visit { tap: first.tap, visit: first.visit, began, waited: clock::now().since(began), end, said }
    }

    /// Everything that one user does for one purchase.
    async fn purchase(&self, story: &Story, index: usize, tap: Tap, witness: &Witness) -> Vec<Visit> {
        let first = Try { tap: index, visit: 1, number: 1, article: tap.article };
        let visit = self.visit(first, story.patience, tap.leaves_after, witness).await;
        if visit.end != VisitEnd::Left {
            return vec![visit];
        }
        sleep(story.away).await;
        let again = self.visit(Try { visit: 2, ..first }, story.patience, None, witness).await;
        vec![visit, again]
    }

    /// One tap for an article in trouble, with its crowd around it.
    pub(crate) async fn typical(&self, story: &Story, index: usize, witness: &Arc<Witness>) -> Visit {
        let mut crowd = JoinSet::new();
        for other in 1..=story.crowd {
            let (app, witness, patience) = (self.clone(), Arc::clone(witness), story.patience);
            let of = Try { tap: index + other, visit: 1, number: 1, article: 0 };
            crowd.spawn(async move { app.visit(of, patience, None, &witness).await });
        }
        if story.crowd > 0 {
            // They are on their way before this one is.
            sleep(Duration::from_millis(10)).await;
        }
        let of = Try { tap: index, visit: 1, number: 1, article: 0 };
        let leaves_after = (story.leaves_one_in > 0).then(|| story.patience / 4);
        let visit = self.visit(of, story.patience, leaves_after, witness).await;
        while crowd.join_next().await.is_some() {}
        visit
    }
}

/// Somebody waits for this try; when they stop without an answer, the witness sees them leave.
struct Waits<'a> {
    witness: &'a Witness,
    of: Option<Try>,
}

impl Waits<'_> {
    fn got_it(mut self) {
        self.of = None;
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(of) = self.of {
            self.witness.left(of);
        }
    }
}

/// The load.
pub(crate) async fn load(
    app: &App,
    story: &Story,
    taps: &[Tap],
    witness: &Arc<Witness>,
    progress: impl Fn(f64),
) -> Vec<Visit> {
    let began = clock::now();
    let mut running = JoinSet::new();
    for (index, tap) in taps.iter().copied().enumerate() {
        sleep(tap.at.saturating_sub(clock::now().since(began))).await;
        progress(tap.at.div_duration_f64(story.lasts));
        let (app, story, witness) = (app.clone(), story.clone(), Arc::clone(witness));
        running.spawn(async move { app.purchase(&story, index, tap, &witness).await });
    }
    let mut visits: Vec<Visit> = running.join_all().await.into_iter().flatten().collect();
    visits.sort_by_key(|visit| (visit.tap, visit.visit));
    visits
}

/// What goes on after everybody has left is part of the story: see it to its end, bounded.
pub(crate) async fn see_the_end(story: &Story, witness: &Witness) {
    let longest = story.trouble.slow_ms.map_or(story.patience, Duration::from_millis);
    let bound = clock::now() + longest * (story.tries + 1);
    let mut quiet_since = clock::now();
    // Between two services nobody is at work for a moment.
    while clock::now().since(quiet_since) < Duration::from_millis(100) && clock::now() < bound {
        if witness.still_at_work() > 0 {
            quiet_since = clock::now();
        }
        sleep(Duration::from_millis(5)).await;
    }
}
