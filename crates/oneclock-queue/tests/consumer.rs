//! What a consumer does with work, over the broker in memory and in virtual time: the rules that hold over every broker.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests: to panic is how a test fails

mod consumer {
    mod building;
    mod effects;
    mod ends;
    mod keys;
    mod leases;
    mod oncall;
    mod producers;
    mod support;
}
