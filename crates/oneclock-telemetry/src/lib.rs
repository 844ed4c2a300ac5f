//! Where the budget went, told to the tools that people have: metrics, spans, log lines, readiness.
//!
//! Decides nothing about deadlines: it subscribes to the runtime's events, which come from guards, so that cancelled work is
//! counted too (contract N1).

pub mod logs;
pub mod metrics;
pub mod names;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod readiness;
pub mod ring;
mod several;
pub mod trace;

pub use logs::Logs;
pub use metrics::{Metrics, MetricsBuilder, MetricsError, Scrape};
pub use readiness::Readiness;
pub use ring::Ring;
pub use several::Several;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/metrics.md")]
struct MetricsGuide;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/tracing.md")]
struct TracingGuide;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/readiness.md")]
struct ReadinessGuide;

/// The guide's examples, so that they compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/overload.md")]
struct OverloadGuide;
