//! What the probe remembers of its calls. Decides when a call counts as cancelled: its record was dropped before its handler
//! said that it is finished.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oneclock::{Operation, clock};
use oneclock_core::Tick;
use tonic::metadata::MetadataMap;

use crate::message::{Entry, LogTold, Told};

/// As many calls as are remembered; the oldest are forgotten first.
const REMEMBERED: usize = 4_096;

/// The calls of one service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<VecDeque<Line>>>);

#[derive(Debug)]
struct Line {
    number: u64,
    began: Tick,
    entry: Entry,
}

/// A call under way. Dropped unfinished, it was cancelled.
#[derive(Debug)]
pub(crate) struct Record {
    log: Log,
    number: u64,
    told: Told,
    finished: bool,
}

// === Log ===

impl Log {
    /// A call arrived with these fields. What is left is asked of the current operation, if a layer began one.
    pub(crate) fn begin(&self, method: &str, id: &str, metadata: &MetadataMap) -> Record {
        let field = |name| metadata.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let operation = Operation::current();
        let told = Told {
            id: id.to_owned(),
            grpc_timeout: field("grpc-timeout"),
            connect_timeout_ms: field("connect-timeout-ms"),
            left_ms: operation.as_ref().map_or(0, left_ms),
            has_deadline: operation.is_some(),
            ..Told::default()
        };
        let entry = Entry {
            id: told.id.clone(),
            method: method.to_owned(),
            grpc_timeout: told.grpc_timeout.clone(),
            connect_timeout_ms: told.connect_timeout_ms.clone(),
            left_ms: told.left_ms,
            has_deadline: told.has_deadline,
            ..Entry::default()
        };
        let mut lines = self.lines();
        let number = lines.back().map_or(0, |line| line.number + 1);
        if lines.len() == REMEMBERED {
            lines.pop_front();
        }
        lines.push_back(Line { number, began: clock::now(), entry });
        Record { log: self.clone(), number, told, finished: false }
    }

    /// What is known of the calls with this id.
    pub(crate) fn of(&self, id: &str) -> LogTold {
        let now = clock::now();
        let lines = self.lines();
        let entries = lines.iter().filter(|line| line.entry.id == id).map(|line| {
            let mut entry = line.entry.clone();
            if entry.ended.is_empty() {
                entry.after_ms = whole_ms(now, line.began);
            }
            entry
        });
        LogTold { entries: entries.collect() }
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === Record ===

impl Record {
    /// What the call was told of time.
    pub(crate) const fn told(&self) -> &Told {
        &self.told
    }

    /// An item is handed on.
    pub(crate) fn sent(&self) {
        self.change(|line| line.entry.items += 1);
    }

    /// A message was read.
    pub(crate) fn read(&self) {
        self.change(|line| line.entry.read += 1);
    }

    /// The handler came to an end of its own.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
        self.end("finished");
    }

    fn end(&self, how: &str) {
        let now = clock::now();
        self.change(|line| {
            line.entry.ended = how.to_owned();
            line.entry.after_ms = whole_ms(now, line.began);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        let mut lines = self.log.lines();
        if let Some(line) = lines.iter_mut().rev().find(|line| line.number == self.number) {
            change(line);
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.finished {
            self.end("cancelled");
        }
    }
}

/// Rounded up, as proto/probe.proto says.
pub(crate) fn left_ms(operation: &Operation) -> u32 {
    u32::try_from(operation.remaining().as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}

fn whole_ms(now: Tick, began: Tick) -> u32 {
    u32::try_from(now.since(began).as_millis()).unwrap_or(u32::MAX)
}
