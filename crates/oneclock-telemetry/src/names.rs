//! Every name that leaves the process: metrics, their labels, attributes of spans.
//!
//! Decides the spelling once. Prometheus names begin with `oneclock_`, with base units and `_total`; OpenTelemetry names use
//! dots, without unit and without `_total`.

/// A metric: declared once, with what it means and by what it is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As Prometheus spells it.
    pub name: &'static str,
    /// What sort.
    pub kind: Kind,
    /// What it means: the help text.
    pub help: &'static str,
    /// By what it is split. Each label's values come from a bounded set.
    pub labels: &'static [&'static str],
}

/// What sort of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Seconds, in buckets.
    Histogram,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric = Metric {
                name: concat!("oneclock_", $name),
                kind: Kind::$kind,
                help: $help,
                labels: &[$($label),*],
            };
        )*
        /// All of them, in the order of the documentation.
        pub const METRICS: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    // Operations: requests, streams, and what our own code begins.
    OPERATIONS = Counter "operations_total" ["operation", "route", "cause"]
        "Operations that are over, by why they ended; cause is `none` where the work was done.";
    ANSWERED = Counter "answered_total" ["operation", "route", "reason"]
        "Requests whose answer gave a reason of the contract's, refusals included.";
    OPERATION_SECONDS = Histogram "operation_duration_seconds" ["operation", "route", "cause"]
        "How long operations took, by why they ended; a stream counts until its head.";
    BUDGET_AT_ARRIVAL = Histogram "budget_at_arrival_seconds" ["operation", "route", "bound"]
        "What was left of the time budget when a request was accepted.";
    MISSING = Counter "deadline_missing_total" ["operation", "route"]
        "Requests that came without a deadline and got the value for that.";
    CLAMPED = Counter "deadline_clamped_total" ["operation", "route"]
        "Requests that asked for more time than they got.";
    MALFORMED = Counter "deadline_malformed_total" ["operation", "route"]
        "Requests with a deadline field that could not be read.";
    SKEW_SUSPECTED = Counter "clock_skew_suspected_total" ["operation", "route"]
        "Requests with an absolute deadline so far off that the clocks probably differ.";
    EXPIRED = Counter "expired_before_processing_total" ["operation", "route", "stage"]
        "Work that was not begun because its time was up or too little was left, by where that was found.";
    DEADLINE_EXCEEDED = Counter "deadline_exceeded_total" ["operation", "route", "bound", "stage"]
        "Operations that ran out of time, by what had made their deadline and where they were.";
    CANCELLED = Counter "cancelled_total" ["operation", "route", "cause", "stage"]
        "Operations that ended early for another cause than time.";
    CANCELLATIONS = Counter "cancellations_seen_total" ["layer"]
        "Early ends as each layer saw them: handler, service, database, queue. A layer below that sees far fewer than the \
         handler is not told.";
    LATE = Counter "late_answers_total" ["operation", "route"]
        "Answers to requests that were complete at or after their deadline and were delivered all the same.";

    // Waiting for a place, where there are only so many.
    NOT_ADMITTED = Counter "not_admitted_total" ["operation", "route", "why", "stage"]
        "Requests that got no place and never started, by why: expired, doomed, full, optional; refused at arrival, or in the queue.";
    WOULD_REFUSE = Counter "would_refuse_total" ["operation", "route", "why"]
        "Requests that started although they would have been refused, since admission is in shadow, by why.";
    QUEUE_WAIT = Histogram "queue_wait_seconds" ["operation", "route"]
        "How long those operations waited in queues that waited at all, those that were refused there included.";
    PLACES = Gauge "places" ["admission"]
        "How many places there are: what was said, or what was found so far.";
    PLACES_TAKEN = Gauge "places_taken" ["admission"]
        "How many places are taken.";
    WAITING = Gauge "waiting" ["admission"]
        "How many requests wait for a place.";
    STANDING = Gauge "queue_standing" ["admission"]
        "Whether more comes than goes, so that the newest are served first: 1 or 0.";
    HELD = Gauge "place_held_seconds" ["admission"]
        "For how long a place is held, of late, on average; 0 while that is not known.";
    NEEDED = Gauge "needed_seconds" ["admission", "class"]
        "What work of this sort has to have left to be started, once it would have to wait; absent while too little is known.";
    CUT_OFF = Gauge "estimate_cut_off_ratio" ["admission", "class"]
        "The share of the measured work that was cut off before it was done, so that it would have needed more.";
    ADMISSION_MODE = Gauge "admission_mode" ["admission", "mode"]
        "What is in force: 1 for one of observe, shadow and enforce, 0 for the others.";

    // Calls to dependencies.
    CALLS = Counter "dependency_calls_total" ["dependency", "layer", "outcome"]
        "Attempts at dependencies that are over, by what is known of the far side.";
    CALL_SECONDS = Histogram "dependency_call_duration_seconds" ["dependency", "layer"]
        "How long attempts at dependencies took, those that were cut off included.";
    REMAINING_AT_CALL = Histogram "remaining_budget_at_dependency_call_seconds" ["dependency"]
        "What the operation had left when it called a dependency.";
    CALL_DEADLINE_EXCEEDED = Counter "dependency_deadline_exceeded_total" ["dependency", "layer", "bound", "stage"]
        "Attempts at dependencies that ran out of time, by what had made their deadline and where they were.";
    NOT_CALLED = Counter "dependency_not_called_total" ["dependency", "reason"]
        "Calls that were not made, because they could not have been useful.";
    RETRIES = Counter "retries_total" ["dependency", "kind"]
        "Further attempts: retries, and hedges beside a slow first one. Attempts per first attempt are the amplification.";
    RETRY_SKIPPED = Counter "retry_skipped_due_to_deadline_total" ["dependency"]
        "Failed calls that were not tried again because no attempt would have fitted into the time that was left.";
    GAVE_UP = Counter "gave_up_total" ["dependency", "why"]
        "Calls without success that were not tried again, by why.";
    BREAKER_CHANGES = Counter "breaker_changes_total" ["destination", "change"]
        "Changes of breakers: opened, half_open for each probe that is let through, closed.";
    THROTTLED = Gauge "throttled_ratio" ["destination"]
        "The share of the calls to it that the throttle holds back now, from 0 to 1.";
    BREAKER_OPEN = Gauge "breaker_open" ["destination"]
        "Whether its breaker is not closed, so that at most a probe gets through: 1 or 0; 0 where it has none.";

    // The process.
    READY = Gauge "ready" []
        "Whether this process says that it is ready for work, as its readiness probe would: 1 or 0.";

    // Work for nobody.
    ZOMBIES = Gauge "zombie_work" ["layer"]
        "Work that runs now although its operation is over: must_finish, blocking, statement.";
    RAN_ON = Counter "work_completed_after_caller_cancelled_total" ["operation", "layer"]
        "Work that went on after its operation had ended, and is over now.";
    RAN_ON_SECONDS = Counter "work_completed_after_caller_cancelled_seconds_total" ["operation", "layer"]
        "For how long such work went on after the end, in whole seconds of the sum.";
    DETACHED = Counter "detached_total" ["operation"]
        "Operations that were begun to outlive their parent, by the parent.";
    PANICKED = Counter "panicked_total" ["operation"]
        "Tasks that panicked.";
    KEYED = Counter "idempotency_outcomes_total" ["route", "outcome"]
        "What became of requests with an idempotency key, and of their records.";
    DELIVERIES = Counter "message_deliveries_total" ["queue", "policy", "end", "reason"]
        "Deliveries of durable work by what became of them; the reason of those that ended without being done.";
    MESSAGE_WAIT = Histogram "message_queue_wait_seconds" ["queue"]
        "How long work had been in queues when it was delivered, by the clocks of its producer and its consumer.";
    MESSAGE_FAULTS = Counter "message_faults_total" ["queue", "fault"]
        "What is wrong with how messages say when they expire.";
}

/// Labels whose values are names that code makes up: past a metric's limit they become [`OVERFLOW`]. All others have the
/// few values of an enum, or are split by what was registered: each `admission` with at most 65 of `class`.
pub const UNBOUNDED: &[&str] = &["operation", "route", "dependency", "destination", "queue"];

/// The value of a label once a metric has as many names as it may.
pub const OVERFLOW: &str = "overflow";

/// The value of a label where there is none: a request that matched no route, for example.
pub const NONE: &str = "none";

/// Attributes of spans, as OpenTelemetry spells them.
pub mod attributes {
    /// What was left when the span began, in milliseconds; absent where there is no deadline, and never negative.
    pub const REMAINING_AT_START: &str = "oneclock.deadline.remaining_ms.start";
    /// What was left when it ended.
    pub const REMAINING_AT_END: &str = "oneclock.deadline.remaining_ms.end";
    /// What had made the deadline.
    pub const BOUND: &str = "oneclock.bound";
    /// Why it ended early.
    pub const CAUSE: &str = "oneclock.cause";
    /// Where it was then.
    pub const STAGE: &str = "oneclock.stage";
    /// How long it waited in queues, in milliseconds.
    pub const QUEUE_WAIT: &str = "oneclock.queue_wait_ms";
    /// Which attempt it was.
    pub const ATTEMPT: &str = "oneclock.attempt";
    /// What is known of the far side.
    pub const OUTCOME: &str = "oneclock.outcome";
    /// True where the work was declared to outlive its parent.
    pub const DETACHED: &str = "oneclock.detached";
    /// Where the time went, as text.
    pub const LEDGER: &str = "oneclock.ledger";
}
