//! The invariants of the design, one module each. Every test is written once and run over every way in, on real sockets
//! of the loopback interface; where sockets are not the point it runs in memory with paused time.
//!
//! Over gRPC the handlers are the same, real tonic stands around them, and what HTTP says in a status and a document is
//! looked for in trailers and status details. Tests in a module `plain_tonic` are about what only tonic does.
//!
//! Over each of them there is a second run with a sidecar before every service (`sidecar_http1`, …).
//!
//! A failure reads `i04_waiting_spends_the_budget::http2::a_queued_call_…`. Tests that begin with `the_naive_way_` run
//! the same check against what one would write without us, and want it to fail there: so it is known that it can.
//!
//! Deliberately absent: times to the millisecond. Tests wait for events, with a bound, and assert order, cause and
//! count; where a time is part of the promise, ten times that time is allowed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::result_large_err, reason = "a call that failed is looked at, once")]

#[macro_use]
mod ways;
mod cover;
mod far_end;
mod grpc;
mod naive;
mod out;
mod shop;
mod sidecar;
mod witness;

mod i01_every_request_has_a_deadline;
mod i02_nobody_is_told_more_than_is_left;
mod i03_a_cap_shortens_never_extends;
mod i04_waiting_spends_the_budget;
mod i05_expired_work_costs_nothing;
mod i06_every_child_stops;
mod i07_long_work_notices;
mod i08_cut_off_is_unknown;
mod i09_retries_fit_the_budget;
mod i10_unsafe_calls_need_a_key;
mod i13_an_error_says_where_the_time_went;
mod i14_what_runs_on_is_counted;

mod mixed_chain;
