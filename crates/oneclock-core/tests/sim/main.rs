//! Overload, simulated: what stands before a tier's slots, in worlds where the figures can be worked out or are known.
//!
//! The harness knows nothing of the core but its time and its tokens: whatever implements `Control` can stand there. The
//! baselines are what others do, and their figures are checked first: a harness in which they do well shows nothing.
//! `cargo test --release -p oneclock-core --test sim -- --ignored --nocapture table` prints everything; with `TOLD=1` also why
//! ours refused.

mod baselines;
mod chance;
mod control;
mod engine;
mod harness;
mod ours;
mod report;
mod scenarios;
mod state;
mod table;
mod targets;
mod world;
