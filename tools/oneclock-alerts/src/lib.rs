//! Being warned before the cascade: rules, a dashboard and a playbook for the metrics of `oneclock-telemetry`.
//!
//! A policy comes in, text goes out. Decides nothing about deadlines, and asks nothing of a network: whether an expression
//! holds is asked of a real Prometheus, in the tests.

pub mod dashboard;
pub mod playbook;
pub mod policy;
pub mod rules;
pub mod unit_tests;

mod query;
mod written;

pub use dashboard::Dashboard;
pub use playbook::Entry;
pub use policy::{Policy, PolicyRefused};
pub use rules::{Alert, Rules};
pub use unit_tests::UnitTests;
pub use written::NotWritten;
