//! The ledgers of one tap's operations, put together as a tree.
//!
//! Each service keeps its own account and tells it in one event when its operation ends. The handlers say here which try
//! an operation belongs to, so that the accounts of one tap can be told from those of the crowd.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use oneclock::Operation;
use oneclock::events::{Event, Observer};
use oneclock::operation::Kind;
use oneclock_core::ledger::Entry;
use oneclock_core::{Ledger, Name, Outcome, Tick};

use crate::purchase::Try;
use crate::report::Node;

/// Keeps the accounts of the tap that it watches.
#[derive(Default)]
pub(crate) struct Ledgers(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    watched: Option<usize>,
    operations: Vec<(Name, Tick)>,
    accounts: Vec<Account>,
    calls: Vec<Call>, // that gave no answer
}

/// What the calling side knows of a call.
struct Call {
    operation: Name,
    called: Name,
    took: Duration,
    ended: String,
    outcome: Outcome,
}

struct Account {
    operation: Name,
    ledger: Ledger,
    took: Duration,
    budget: Duration,
    ended: Option<String>,
    in_tree: bool,
}

// === Ledgers ===

impl Ledgers {
    /// From now on the accounts of this tap are kept.
    pub(crate) fn watch(&self, tap: usize) {
        *self.lock() = Kept { watched: Some(tap), ..Kept::default() };
    }

    /// This operation works for `of`.
    pub(crate) fn belongs(&self, operation: &Operation, of: Try) {
        let mut kept = self.lock();
        let known = (operation.name().clone(), operation.began());
        if kept.watched == Some(of.tap) && !kept.operations.contains(&known) {
            kept.operations.push(known);
        }
    }

    /// Whether every operation of the watched tap has told its end.
    pub(crate) fn are_complete(&self) -> bool {
        let kept = self.lock();
        !kept.operations.is_empty() && kept.accounts.len() >= kept.operations.len()
    }

    /// The account of `service`, with those of the services that it called in their places, and those that nobody's
    /// account mentions at the end: they were told nothing.
    pub(crate) fn add_to(&self, root: &mut Node, service: &str) {
        let mut kept = self.lock();
        root.parts.extend(kept.node_of(service));
        while let Some(name) = kept.accounts.iter().find(|account| !account.in_tree).map(|a| a.operation.clone()) {
            let Some(mut node) = kept.node_of(name.as_str()) else { break };
            node.name = format!("{name} (told nothing)");
            root.parts.push(node);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Ledgers {
    fn on(&self, event: &Event<'_>) {
        let mut kept = self.lock();
        if kept.watched.is_none() {
            return;
        }
        match event {
            Event::Called(called) => {
                if let Some(ending) = called.ending {
                    let call = Call {
                        operation: called.operation.clone(),
                        called: called.call.clone(),
                        took: called.elapsed,
                        ended: ending.to_string(),
                        outcome: called.outcome,
                    };
                    kept.calls.push(call);
                }
            }
            Event::Ended(ended) if ended.kind == Kind::Request => {
                let known = (ended.operation.clone(), ended.ledger.began());
                if kept.operations.contains(&known) {
                    kept.accounts.push(Account {
                        operation: ended.operation.clone(),
                        ledger: ended.ledger.clone(),
                        took: ended.elapsed,
                        budget: ended.bound.limit,
                        ended: ended.ending.map(|ending| ending.to_string()),
                        in_tree: false,
                    });
                }
            }
            _ => {}
        }
    }
}

// === Kept ===

impl Kept {
    fn node_of(&mut self, service: &str) -> Option<Node> {
        let account = self.accounts.iter_mut().find(|account| account.operation == *service && !account.in_tree)?;
        account.in_tree = true;
        let (ledger, took, budget) = (account.ledger.clone(), account.took, account.budget);
        let mut node = Node::new(service, took);
        node.budget = Some(budget);
        node.ended = account.ended.clone();
        let until = ledger.began() + took;
        for (id, entry) in ledger.parts_of(None) {
            let ended = entry.ended.unwrap_or(until);
            let name = entry.name.as_str();
            let called = self.node_of(name);
            let is_service = called.is_some();
            let mut part = called.unwrap_or_else(|| Node::new(name, Duration::ZERO));
            part.took = ended.since(entry.began);
            part.left = Some(budget.saturating_sub(ended.since(ledger.began())));
            if let Some(call) = self.call(service, name, part.took) {
                // Its own end, or that of the call that waited for it: whichever clock was first.
                part.ended.get_or_insert_with(|| call.ended.clone());
                part.outcome = Some(call.outcome.as_str().to_owned());
            }
            if !is_service {
                // The stages of a call to a service are in the account of that service.
                let stage = |(_, stage): (_, &Entry)| {
                    Node::new(stage.name.as_str(), stage.ended.unwrap_or(until).since(stage.began))
                };
                part.parts.extend(ledger.parts_of(Some(id)).map(stage));
            }
            node.parts.push(part);
        }
        Some(node)
    }

    /// What the calling side said of a call. The event does not tell one tap's from another's; how long it took does, to the
    /// nanosecond.
    fn call(&self, operation: &str, name: &str, took: Duration) -> Option<&Call> {
        self.calls.iter().find(|call| call.operation == *operation && call.called == *name && call.took == took)
    }
}
