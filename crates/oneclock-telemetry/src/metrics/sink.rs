//! Where metrics are written to: a recorder of our own, or that of the process.
//!
//! Decides when samples are folded into buckets. The exporter keeps each sample of a histogram until somebody reads or says
//! so; a process that nobody scrapes must not grow for that.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use metrics::{Level, Metadata, Recorder, Unit};
use metrics_exporter_prometheus::{PrometheusHandle, PrometheusRecorder};

use crate::names::{Kind, METRICS};

pub(super) const METADATA: Metadata<'static> = Metadata::new("oneclock", Level::INFO, Some(module_path!()));

/// So many samples are kept before they are folded: 16 bytes each, and some tens of microseconds to fold.
const FOLDED_EVERY: u32 = 4096;

pub(super) enum Sink {
    Own(Box<Own>),
    /// The facade's: whoever installed it folds and renders.
    Global,
}

pub(super) struct Own {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    samples: AtomicU32,
    folding: Mutex<()>,
}

impl Sink {
    pub(super) fn own(recorder: PrometheusRecorder) -> Self {
        let handle = recorder.handle();
        Self::Own(Box::new(Own { recorder, handle, samples: AtomicU32::new(0), folding: Mutex::default() }))
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&dyn Recorder) -> R) -> R {
        match self {
            Self::Own(own) => f(&own.recorder),
            Self::Global => metrics::with_recorder(f),
        }
    }

    /// Help and type of every metric.
    pub(super) fn describe(&self) {
        self.with(|recorder| {
            for metric in METRICS {
                let (name, help) = (metric.name.into(), metric.help.into());
                match metric.kind {
                    Kind::Counter => recorder.describe_counter(name, Some(Unit::Count), help),
                    Kind::Gauge if metric.name.ends_with("_seconds") => {
                        recorder.describe_gauge(name, Some(Unit::Seconds), help);
                    }
                    Kind::Gauge => recorder.describe_gauge(name, Some(Unit::Count), help),
                    Kind::Histogram => recorder.describe_histogram(name, Some(Unit::Seconds), help),
                }
            }
        });
    }

    /// A sample was written. Every so many of them, one of those who write folds, and nobody waits for it.
    pub(super) fn sampled(&self) {
        if let Self::Own(own) = self
            && own.samples.fetch_add(1, Ordering::Relaxed) % FOLDED_EVERY == FOLDED_EVERY - 1
            && let Ok(_folding) = own.folding.try_lock()
        {
            own.handle.run_upkeep();
        }
    }
}
