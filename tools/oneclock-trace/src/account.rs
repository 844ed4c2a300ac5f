//! Whom each moment of an operation is charged to, kept twice: as charges that divide the time down the tree, and by the
//! core's ledger, which knows no tree. Both must say the same (invariant I13).

use std::time::Duration;

use oneclock_core::ledger::{Ledger, charges};
use oneclock_core::{Stage, Tick};

use crate::tree::Tree;

/// The division of one trace's time. Lists have one entry per span.
pub(crate) struct Account {
    /// What of its time its operation waited for.
    pub(crate) charged: Vec<(Tick, Tick)>,
    /// What of that no child covers.
    pub(crate) unaccounted: Vec<Duration>,
    /// The span at the top of its operation.
    pub(crate) operation: Vec<usize>,
    /// The operation of the trace itself: from its first root to its last one, since a trace may lack its root.
    pub(crate) whole: (Tick, Tick),
    /// What of that no root covers.
    pub(crate) between: Duration,
    /// What did not add up: a defect of ours. Empty.
    pub(crate) wrong: Vec<String>,
}

impl Account {
    /// Divides the time. `times` are on one clock.
    pub(crate) fn of(tree: &Tree, times: &[(Tick, Tick)]) -> Self {
        let began = tree.roots.iter().map(|root| times[*root].0).min().unwrap_or_default();
        let ended = tree.roots.iter().map(|root| times[*root].1).max().unwrap_or_default();
        let whole = (began, ended);
        let mut account = Self {
            charged: times.iter().map(|(began, _)| (*began, *began)).collect(),
            unaccounted: vec![Duration::ZERO; times.len()],
            operation: (0..times.len()).collect(),
            whole,
            between: Duration::ZERO,
            wrong: Vec::new(),
        };
        account.between = account.divide(whole, whole, &tree.roots, times);
        for index in &tree.order {
            let node = &tree.spans[*index];
            if node.own.is_some() {
                account.charged[*index] = times[*index];
            } else if let Some(parent) = node.parent {
                account.operation[*index] = account.operation[parent];
            }
            let waited_for: Vec<usize> =
                node.children.iter().copied().filter(|child| tree.spans[*child].own.is_none()).collect();
            account.unaccounted[*index] = account.divide(account.charged[*index], times[*index], &waited_for, times);
        }
        account.check(tree, times);
        account
    }

    /// Charges what of `charged` they cover to the children of one that took `all`. What is left is returned.
    fn divide(
        &mut self,
        charged: (Tick, Tick),
        all: (Tick, Tick),
        children: &[usize],
        times: &[(Tick, Tick)],
    ) -> Duration {
        let entries: Vec<_> = children.iter().map(|child| times[*child]).collect();
        let mut left = long(charged);
        for (child, charge) in children.iter().zip(charges(charged, &entries)) {
            self.charged[*child] = charge;
            left = left.saturating_sub(long(charge));
        }
        // The second book: the whole of it, charged or not.
        let sum = charges(all, &entries).into_iter().map(long).fold(Duration::ZERO, Duration::saturating_add);
        let covered = covered(all, &entries);
        if sum != covered {
            self.wrong.push(format!("children are charged {sum:?}, and cover {covered:?}"));
        }
        left
    }

    /// What is charged and unaccounted must be the elapsed time, for each operation.
    fn check(&mut self, tree: &Tree, times: &[(Tick, Tick)]) {
        let mut sums = vec![Duration::ZERO; times.len()];
        let mut main = self.between;
        for (index, operation) in self.operation.iter().enumerate() {
            let sum = if tree.spans[*operation].own.is_some() { &mut sums[*operation] } else { &mut main };
            *sum = sum.saturating_add(self.unaccounted[index]);
        }
        if main != long(self.whole) {
            self.wrong.push(format!("{main:?} is accounted for, of {:?}", long(self.whole)));
        }
        for (index, sum) in sums.iter().enumerate() {
            if tree.spans[index].own.is_some() && *sum != long(times[index]) {
                self.wrong
                    .push(format!("{sum:?} is accounted for, of {:?}, in an operation of its own", long(times[index])));
            }
        }
    }
}

fn long((began, ended): (Tick, Tick)) -> Duration {
    ended.since(began)
}

/// What the core's ledger says, told in the order of the clock.
fn covered(all: (Tick, Tick), entries: &[(Tick, Tick)]) -> Duration {
    let clip = |at: Tick| at.max(all.0).min(all.1);
    let mut moments: Vec<(Tick, bool, usize)> = Vec::with_capacity(entries.len() * 2);
    for (index, (began, ended)) in entries.iter().enumerate() {
        if clip(*began) < clip(*ended) {
            moments.push((clip(*began), true, index));
            moments.push((clip(*ended), false, index));
        }
    }
    moments.sort_unstable();
    let mut ledger = Ledger::new(all.0);
    let mut open = vec![None; entries.len()];
    for (at, begins, index) in moments {
        if begins {
            open[index] = Some(ledger.open("child", Stage::Wait, None, at));
        } else if let Some(id) = open[index].take() {
            ledger.close(id, at);
        }
    }
    ledger.accounted(all.1)
}
