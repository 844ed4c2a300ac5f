//! The requests that are under way: what they are, and when the last of them will be over.
//!
//! Decides how long a drain takes: as long as the longest of them may still live, and no longer (contract X10). Others have
//! to guess; here every request has a deadline. Decides also which of them are shown first: those with the least left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::Method;
use oneclock_core::{Deadline, Name, Tick};

use crate::ledgers::PATH;
use crate::shortened::shortened;

/// What is under way. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    next: u64,
    entries: BTreeMap<u64, Weak<Inner>>,
}

/// What does not change about a request.
#[derive(Clone, Debug)]
pub(crate) struct What {
    /// When it arrived.
    pub(crate) since: Tick,
    /// The listener.
    pub(crate) listener: Name,
    /// The route, if there is one for it.
    pub(crate) route: Option<Name>,
    pub(crate) method: Method,
    /// Without its query, which may hold secrets.
    pub(crate) path: Box<str>,
}

/// What sort of a thing is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Waits for a place, or has only just come.
    Waiting,
    /// A request, up to the end of its answer.
    Call,
    /// A declared stream, which lives on behind its call.
    Stream,
    /// An upgraded connection.
    Tunnel,
}

/// One of those that are under way, as it was when somebody looked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: u64,
    pub(crate) what: What,
    pub(crate) kind: Kind,
    pub(crate) deadline: Option<Deadline>,
}

/// One request; over when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Entry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: u64,
    live: Live,
    what: What,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    kind: Kind,
    deadline: Option<Deadline>, // none: nobody has decided yet
}

// === Live ===

impl Live {
    /// A request has arrived.
    pub(crate) fn enter(&self, what: What) -> Entry {
        let mut known = self.lock();
        known.next += 1;
        let id = known.next;
        let state = Mutex::new(State { kind: Kind::Waiting, deadline: None });
        let entry = Arc::new(Inner { id, live: self.clone(), what, state });
        known.entries.insert(id, Arc::downgrade(&entry));
        Entry(entry)
    }

    /// How long what is under way may still take, at most `cap`. One of which nobody knows takes all of that.
    pub(crate) fn longest(&self, cap: Duration, now: Tick) -> Duration {
        let left = |one: &Entry| one.state().deadline.map_or(cap, |deadline| deadline.remaining(now));
        self.all().iter().map(left).max().unwrap_or_default().min(cap)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// How many there are, and the `most` that have the least left; those of which that is not known come last.
    pub(crate) fn most_urgent(&self, most: usize) -> (usize, Vec<Seen>) {
        let all = self.all();
        let mut order: Vec<(State, &Entry)> = all.iter().map(|entry| (entry.state(), entry)).collect();
        let by = |(state, entry): &(State, &Entry)| (state.deadline.is_none(), state.deadline, entry.0.id);
        if order.len() > most && most > 0 {
            order.select_nth_unstable_by_key(most - 1, by);
        }
        order.truncate(most);
        order.sort_unstable_by_key(by);
        let seen = order.into_iter().map(|(State { kind, deadline }, entry)| {
            let Inner { id, what, .. } = &*entry.0;
            Seen { id: *id, what: what.clone(), kind, deadline }
        });
        (all.len(), seen.collect())
    }

    /// To be dropped outside of the lock: each may be the last of its request.
    fn all(&self) -> Vec<Entry> {
        self.lock().entries.values().filter_map(Weak::upgrade).map(Entry).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        lock(&self.0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === What ===

impl What {
    /// A request that came in at `since`.
    pub(crate) fn of<B>(listener: &Name, route: Option<&Name>, request: &http::Request<B>, since: Tick) -> Self {
        Self {
            since,
            listener: listener.clone(),
            route: route.cloned(),
            method: request.method().clone(),
            path: shortened(request.uri().path(), PATH),
        }
    }
}

// === Kind ===

impl Kind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Call => "call",
            Self::Stream => "stream",
            Self::Tunnel => "tunnel",
        }
    }
}

// === Entry ===

impl Entry {
    /// It is this from now on, and over by then.
    pub(crate) fn is(&self, kind: Kind, deadline: Deadline) {
        *lock(&self.0.state) = State { kind, deadline: Some(deadline) };
    }

    fn state(&self) -> State {
        *lock(&self.0.state)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.live.lock().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn one(live: &Live, target: &str) -> Entry {
        let request = http::Request::get(target).body(()).expect("a request");
        live.enter(What::of(&Name::from("http"), None, &request, Tick::from_nanos(0)))
    }

    #[test]
    fn a_drain_takes_as_long_as_the_longest_of_what_lives() {
        let (live, now) = (Live::default(), Tick::from_nanos(0));
        assert_eq!(live.longest(ms(5_000), now), Duration::ZERO, "nothing lives");
        let (short, long) = (one(&live, "/"), one(&live, "/"));
        assert_eq!(live.longest(ms(5_000), now), ms(5_000), "nobody knows yet");
        short.is(Kind::Call, Deadline::after(now, ms(300)));
        long.is(Kind::Call, Deadline::after(now, ms(800)));
        assert_eq!(live.longest(ms(5_000), now), ms(800));
        assert_eq!(live.longest(ms(500), now), ms(500), "capped");
        assert_eq!(live.longest(ms(5_000), now + ms(600)), ms(200));
        let held = long.clone();
        drop(long);
        assert_eq!(live.longest(ms(5_000), now), ms(800), "its body is still on its way");
        drop(held);
        assert_eq!(live.longest(ms(5_000), now), ms(300));
    }

    #[test]
    fn those_with_the_least_left_come_first_and_the_rest_is_counted() {
        let (live, now) = (Live::default(), Tick::from_nanos(0));
        let unknown = one(&live, "/unknown");
        let entries = [800, 300, 500].map(|left| {
            let entry = one(&live, "/");
            entry.is(Kind::Call, Deadline::after(now, ms(left)));
            entry
        });
        let shown = |most| {
            let (all, seen) = live.most_urgent(most);
            (all, seen.iter().map(|seen| seen.deadline.map(|deadline| deadline.remaining(now))).collect::<Vec<_>>())
        };
        assert_eq!(shown(2), (4, vec![Some(ms(300)), Some(ms(500))]));
        assert_eq!(shown(9), (4, vec![Some(ms(300)), Some(ms(500)), Some(ms(800)), None]));
        assert_eq!(shown(0), (4, vec![]));
        drop((unknown, entries));
        assert_eq!(shown(9), (0, vec![]));
    }

    #[test]
    fn a_path_is_kept_without_its_query_and_not_at_any_length() {
        let live = Live::default();
        let (short, long) = (one(&live, "/pay?card=4111"), one(&live, &format!("/{}", "x".repeat(5_000))));
        let (_, seen) = live.most_urgent(9);
        assert_eq!((&*seen[0].what.path, seen[1].what.path.len()), ("/pay", PATH + "…".len()));
        drop((short, long));
    }
}
