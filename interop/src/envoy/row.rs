//! One row of the table: what it claims, and how that is measured. A claim that is not true is an error which says what was
//! seen instead.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::world::{Told, World};

/// One row. Its words stand in docs/guide/envoy.md as they stand here.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    /// What is sent.
    pub(crate) case: &'static str,
    /// What Envoy makes of it as it comes, or as it is often set.
    pub(crate) by_default: &'static str,
    /// What it makes of it with the settings.
    pub(crate) kept: &'static str,
    pub(crate) measure: fn(&World) -> Measuring<'_>,
}

/// A measurement under way.
pub(crate) type Measuring<'w> = Pin<Box<dyn Future<Output = Result<Measured, String>> + Send + 'w>>;

/// What was seen where the claims hold.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) by_default: Vec<String>,
    pub(crate) kept: Vec<String>,
}

impl Measured {
    pub(crate) fn by_default(mut self, told: &Told) -> Self {
        self.by_default.extend(told.lines());
        self
    }

    pub(crate) fn kept(mut self, told: &Told) -> Self {
        self.kept.extend(told.lines());
        self
    }
}

/// `seen` must be `wanted`.
pub(crate) fn same<S: Debug + PartialEq<W>, W: Debug>(what: &str, seen: S, wanted: W) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what}: {seen:?} instead of {wanted:?}")) }
}

/// `seen` must not be longer than `most`.
pub(crate) fn at_most(what: &str, seen: Duration, most: Duration) -> Result<(), String> {
    if seen <= most { Ok(()) } else { Err(format!("{what}: {seen:?}, more than {most:?}")) }
}

/// `seen` must not be shorter than `least`.
pub(crate) fn at_least(what: &str, seen: Duration, least: Duration) -> Result<(), String> {
    if seen >= least { Ok(()) } else { Err(format!("{what}: {seen:?}, less than {least:?}")) }
}

/// It must hold.
pub(crate) fn holds(what: &str, it: bool) -> Result<(), String> {
    if it { Ok(()) } else { Err(format!("not so: {what}")) }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// How soon the work must be over after its caller left: a few milliseconds, and some hundred under load.
pub(crate) const SOON: Duration = ms(1500);
