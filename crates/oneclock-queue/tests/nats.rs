//! The binding of NATS, on real servers: the one at ONECLOCK_NATS_URL, and private ones that a test may kill.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod nats {
    mod lanes;
    mod large;
    mod leases;
    mod oncall;
    mod opening;
    mod publishing;
    mod requests;
    mod restart;
    mod stopped;
    mod strangers;
    pub(crate) mod support;
}

mod stopping;
