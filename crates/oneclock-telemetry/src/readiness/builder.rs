//! What is looked at, and how often.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use oneclock::Shutdown;
use oneclock_core::Name;
use oneclock_core::readiness::{Marks, NotMarks, Sort, spent};
use oneclock_core::wire::{Conventions, Wall};
use oneclock_http::BoxError;
use tokio::runtime::Handle;
use tower_service::Service;

use super::failure::Failure;
use super::run::{self, Found, Planned};
use super::state::Shared;
use super::{Readiness, stack};

/// Builds a [`Readiness`].
#[must_use = "nothing is looked at before `start`"]
pub struct ReadinessBuilder {
    checks: Vec<Planned>,
    without_stack: bool,
    unreadable: Option<Name>,
    pub(super) interval: Duration,
    pub(super) retry: Duration,
    pub(super) bound: Duration,
    pub(super) look: Duration,
    pub(super) marks: Option<Marks>,
    pub(super) can_spare: Option<CanSpare>,
}

pub(super) type CanSpare = Arc<dyn Fn() -> bool + Send + Sync>;

/// What is to be looked at makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadiness {
    /// Readiness that says nothing of budgets.
    #[error(
        "readiness is given no stack, so nothing would show that a spent budget is refused: add the service with `stack`, or \
         say `without_stack` if this process serves nobody"
    )]
    NoStack,
    /// Not one field of a stack can say that nothing is left.
    #[error(
        "no field that stack {name} reads can say that nothing is left: name those of its layer, at least one of which counts \
         what remains"
    )]
    NoField {
        /// Which stack.
        name: Name,
    },
    /// Two checks that could not be told apart.
    #[error("two checks are called {name}: give each a name of its own")]
    SameName {
        /// Which name.
        name: Name,
    },
    /// A time that is none.
    #[error("{what} is zero: nothing can be done in no time, or all the time")]
    Zero {
        /// Which.
        what: &'static str,
    },
    /// A guard over nothing.
    #[error("a fleet guard was given and no zombie marks, so there is nothing for it to guard: add `zombies`")]
    GuardWithoutMarks,
    /// The marks for zombies contradict one another.
    #[error("the marks for zombies contradict one another")]
    Marks(#[from] NotMarks),
    /// The checks need tokio.
    #[error("readiness was started outside of a tokio runtime, which has to run its checks")]
    NoRuntime,
}

// === ReadinessBuilder ===

impl ReadinessBuilder {
    pub(super) fn new() -> Self {
        Self {
            checks: Vec::new(),
            without_stack: false,
            unreadable: None,
            interval: Duration::from_secs(30),
            retry: Duration::from_secs(1),
            bound: Duration::from_secs(15),
            look: Duration::from_secs(1),
            marks: None,
            can_spare: None,
        }
    }

    /// Sends this request through `service` with a budget that is spent, in this process: once for each field of the default
    /// set, as a caller inside the trust boundary would. It must be refused as the contract says (`expired_before_start`, 504
    /// or gRPC's status 4), else the process is not ready.
    ///
    /// Give it the very service that is served, layers and all: an axum `Router`, tonic's `Routes`, anything of tower's. Give it
    /// a route that is real and whose work does no harm: while the layers are as they should be its handler never runs, but where
    /// they are not, it does. The request's body is left out; for gRPC it says `content-type: application/grpc`.
    ///
    /// When all of them were refused, one more request, with time but from a listener that is shutting down, shows that the
    /// layer is of this process: a gateway without one could pass on what a service behind it says.
    ///
    /// A path that no route matches is refused by a layer over the fallback as well, so a misspelled one proves little.
    pub fn stack<S, B, A>(self, service: S, request: Request<B>) -> Self
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Default + Send + 'static,
        A: Send + 'static,
    {
        self.stack_reading(service, request, Conventions::default_set())
    }

    /// The same for a service whose layer reads these fields.
    pub fn stack_reading<S, B, A>(mut self, service: S, request: Request<B>, conventions: Conventions) -> Self
    where
        S: Service<Request<B>, Response = Response<A>> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: Default + Send + 'static,
        A: Send + 'static,
    {
        let name = Name::from(format!("{} {}", request.method(), request.uri().path()));
        if !conventions.iter().any(|convention| spent(convention.codec(), Wall::default()).is_some()) {
            self.unreadable = Some(name.clone());
        }
        let run = stack::check(service, request, conventions);
        self.checks.push(Planned { name, sort: Sort::Own, bound: None, run });
        self
    }

    /// Joins in a proof of your own that a spent budget is refused, for what is met elsewhere than in a stack of this process: a
    /// request to the socket of a listener, say. Say [`without_stack`](Self::without_stack), too, if there is none beside it.
    ///
    /// It holds the process back as a [`stack`](Self::stack) does: a [`Failure::broken_promise`] at once, any other failure before
    /// the first proof, and later once the latest proof is too old. What it returns is shown in `/status`.
    ///
    /// The listener works on the request in another task: let it do that by [`as_probe`](super::as_probe), if observers are not
    /// to be told.
    pub fn proof<F, E>(mut self, name: impl Into<Name>, proof: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<Failure>,
    {
        let run: run::Run = Arc::new(move || {
            let proof = proof();
            Box::pin(async move {
                match proof.await {
                    Ok(shown) => Found::kept(shown),
                    Err(error) => Found::failed(&error.into()),
                }
            })
        });
        self.checks.push(Planned { name: name.into(), sort: Sort::Own, bound: None, run });
        self
    }

    /// This process serves nobody, or what it serves is proven by [`proof`](Self::proof) alone: a consumer of a queue, a job. The
    /// other checks decide.
    pub fn without_stack(mut self) -> Self {
        self.without_stack = true;
        self
    }

    /// Joins in a self-test: `oneclock_postgres::Pool::self_test`, say, in a closure. It runs when readiness starts and then at
    /// an interval, beside everything else. Until its first pass the process is not ready. A failure after that is shown in
    /// `/status` and no more, unless it is a [`Failure::broken_promise`].
    ///
    /// What it returns is shown in `/status`, too, as `Debug` prints it.
    pub fn self_test<F, T, E>(self, name: impl Into<Name>, test: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: fmt::Debug,
        E: Into<Failure>,
    {
        self.add_self_test(name.into(), None, test)
    }

    /// The same with a bound of its own in place of [`bound`](Self::bound).
    pub fn self_test_within<F, T, E>(
        self,
        name: impl Into<Name>,
        bound: Duration,
        test: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: fmt::Debug,
        E: Into<Failure>,
    {
        self.add_self_test(name.into(), Some(bound), test)
    }

    fn add_self_test<F, T, E>(
        mut self,
        name: Name,
        bound: Option<Duration>,
        test: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: fmt::Debug,
        E: Into<Failure>,
    {
        let run: run::Run = Arc::new(move || {
            let test = test();
            Box::pin(async move {
                match test.await {
                    Ok(shown) => Found::kept(format!("{shown:?}")),
                    Err(error) => Found::failed(&error.into()),
                }
            })
        });
        self.checks.push(Planned { name, sort: Sort::Shared, bound, run });
        self
    }

    /// How much lies between two runs of a check, give or take a quarter; 30 s unless said otherwise. What was shown counts for
    /// three of these and the bound.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// The same until a check has its first clear result; 1 s unless said otherwise.
    pub fn retry(mut self, retry: Duration) -> Self {
        self.retry = retry;
        self
    }

    /// The most that one run of a check may take; 15 s unless said otherwise. A run that takes longer is dropped.
    pub fn bound(mut self, bound: Duration) -> Self {
        self.bound = bound;
        self
    }

    /// Looks at the work that nobody waits for ([`oneclock::zombies`]) once a second and shows in `/status` whether there is
    /// too much of it. Readiness follows only under a [`fleet_guard`](Self::fleet_guard).
    pub fn zombies(mut self, marks: Marks) -> Self {
        self.marks = Some(marks);
        self
    }

    /// How much lies between two looks at the zombies, give or take a quarter; 1 s unless said otherwise.
    pub fn look_every(mut self, look: Duration) -> Self {
        self.look = look;
        self
    }

    /// Lets zombies take the process out of service, while this says that the others can spare it: true if enough of them are
    /// ready. Whoever cannot know says false. It is asked at each look, on a task of the runtime: it must not block, so let it
    /// read what something else keeps.
    ///
    /// It is no lock: two processes that ask at the same moment may both go. Leave room for that.
    pub fn fleet_guard(mut self, can_spare: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.can_spare = Some(Arc::new(can_spare));
        self
    }

    /// Starts to look. The checks belong to `shutdown`: they end when it is signalled, and the process is not ready from then on.
    ///
    /// # Errors
    /// [`NotReadiness`], the first that is found.
    pub fn start(self, shutdown: &Shutdown) -> Result<Readiness, NotReadiness> {
        self.check()?;
        if Handle::try_current().is_err() {
            return Err(NotReadiness::NoRuntime);
        }
        let (shared, checks) = Shared::new(self, shutdown.clone());
        shutdown.spawn(run::owner(Arc::clone(&shared), checks));
        Ok(Readiness(shared))
    }

    fn check(&self) -> Result<(), NotReadiness> {
        if !self.without_stack && !self.checks.iter().any(|check| check.sort == Sort::Own) {
            return Err(NotReadiness::NoStack);
        }
        if let Some(name) = self.unreadable.clone() {
            return Err(NotReadiness::NoField { name });
        }
        for (n, check) in self.checks.iter().enumerate() {
            if self.checks.iter().take(n).any(|other| other.name == check.name) {
                return Err(NotReadiness::SameName { name: check.name.clone() });
            }
        }
        let bounds = self.checks.iter().filter_map(|check| check.bound);
        let times = [(self.interval, "the interval"), (self.retry, "the retry"), (self.look, "the time between looks")];
        let times = times.into_iter().chain([(self.bound, "the bound")]).chain(bounds.map(|bound| (bound, "a bound")));
        for (time, what) in times {
            if time.is_zero() {
                return Err(NotReadiness::Zero { what });
            }
        }
        match self.marks {
            Some(marks) => Ok(marks.check()?),
            None if self.can_spare.is_some() => Err(NotReadiness::GuardWithoutMarks),
            None => Ok(()),
        }
    }

    pub(super) fn take_checks(&mut self) -> Vec<Planned> {
        std::mem::take(&mut self.checks)
    }
}

impl fmt::Debug for ReadinessBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.checks.iter().map(|check| check.name.as_str()).collect();
        f.debug_struct("ReadinessBuilder")
            .field("checks", &names)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}
