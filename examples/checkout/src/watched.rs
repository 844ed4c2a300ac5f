//! The shop with one budget, watched by whoever asks: an observer beside its own in each of its parts, and what really
//! happened, for the two to be compared.
//!
//! Decides who is a part: each service, as if it were a process of its own, and the phone app. Counts nothing itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use oneclock::events::Observer;
use oneclock_telemetry::Several;

use crate::app::{Visit, VisitEnd};
use crate::purchase::Service;
use crate::report::Side;
use crate::story::Story;
use crate::witness::Witness;
use crate::{Shop, ShopClosed};

/// Who is told of what happens, part by part. Without any nobody is, but the shop itself.
#[derive(Clone, Default)]
pub struct Observers {
    services: BTreeMap<Service, Arc<dyn Observer>>,
    app: Option<Arc<dyn Observer>>,
}

/// What really happened so far, as the witness and the app saw it.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// How often somebody tapped: a user who left and came back has tapped twice.
    pub visits: usize,
    /// Visits that were answered.
    pub answered: usize,
    /// Visits whose user left before there was an answer.
    pub left: usize,
    /// Visits that were refused, or that nobody answered before the app gave up.
    pub unanswered: usize,
    /// How long each of them waited, ascending.
    pub waits: Vec<Duration>,
    /// How often each service went to work at its database.
    pub executions: BTreeMap<Service, usize>,
    /// How often that work was finished, and written down.
    pub finished: BTreeMap<Service, usize>,
}

/// A moment at which the shop stands still and can be asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Moment<'a> {
    /// The load is over, everything that it caused as well.
    AfterLoad(&'a Side, &'a Truth),
    /// The one tap after it, with its crowd, is over as well. The visits are those of the load and that one's own.
    AfterTypical(&'a Side, &'a Truth),
}

// === Observers ===

impl Observers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With `observer` in the service's process.
    #[must_use]
    pub fn service(mut self, service: Service, observer: Arc<dyn Observer>) -> Self {
        self.services.insert(service, observer);
        self
    }

    /// With `observer` in the app.
    #[must_use]
    pub fn app(mut self, observer: Arc<dyn Observer>) -> Self {
        self.app = Some(observer);
        self
    }

    /// Whoever is told of a service's events: the shop's own observer, and the one that was added.
    pub(crate) fn of_service(&self, service: Service, own: Arc<dyn Observer>) -> Arc<dyn Observer> {
        match self.services.get(&service) {
            Some(added) => Arc::new(Several::new().and_shared(own).and_shared(Arc::clone(added))),
            None => own,
        }
    }

    pub(crate) fn of_app(&self) -> Option<Arc<dyn Observer>> {
        self.app.clone()
    }
}

// === Truth ===

impl Truth {
    pub(crate) fn of(visits: &[Visit], witness: &Witness) -> Self {
        let ended = |end: VisitEnd| visits.iter().filter(|visit| visit.end == end).count();
        let at_each = |count: &dyn Fn(Service) -> usize| Service::ALL.into_iter().map(|at| (at, count(at))).collect();
        let mut waits: Vec<Duration> = visits.iter().map(|visit| visit.waited).collect();
        waits.sort_unstable();
        Self {
            visits: visits.len(),
            answered: ended(VisitEnd::Answered),
            left: ended(VisitEnd::Left),
            unanswered: ended(VisitEnd::Unanswered),
            waits,
            executions: at_each(&|service| witness.executions_at(service)),
            finished: at_each(&|service| witness.finished_at(service)),
        }
    }
}

// === Shop ===

impl Shop {
    /// Runs the half of a scenario that has one budget, with `observers` in its parts, and asks `at` to look at it when the
    /// load is over, and once more after the one tap that follows.
    ///
    /// # Errors
    /// [`ShopClosed`], if a service could not be started.
    ///
    /// # Cancel safety
    /// Dropping it closes the shop; what it has on a PostgreSQL server is left to [`sweep`](Self::sweep).
    pub async fn run_watched(
        &self,
        story: &Story,
        seed: u64,
        observers: Observers,
        at: impl AsyncFn(Moment<'_>),
    ) -> Result<Side, ShopClosed> {
        self.within_one_budget(story, &story.taps(seed), |_| (), observers, at).await
    }
}
