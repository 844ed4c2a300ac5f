//! The overload controls that are compared, and what stands where for each.

use std::time::Duration;

use crate::caller::Tells;
use crate::pool::Speaks;
use crate::scenario::Scenario;

/// One control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum System {
    /// No deadline, and work that goes on when its caller leaves.
    None,
    /// A timeout of 100 ms at each hop.
    #[value(name = "hops-100ms")]
    HopsShort,
    /// A timeout of 1 s at each hop.
    #[value(name = "hops-1s")]
    HopsLong,
    /// `Timeout`, `LoadShed` and `ConcurrencyLimit` of tower.
    Tower,
    /// `AdaptiveLimiterLayer` of tower-resilience (Vegas) under tower's `LoadShed`.
    Resilience,
    /// tonic's server, told `grpc-timeout`.
    Tonic,
    /// grpcio's server in Python, told `grpc-timeout`.
    Grpcio,
    /// Envoy with a route timeout.
    EnvoyPlain,
    /// Envoy's adaptive concurrency with the settings of its documentation.
    EnvoyDocs,
    /// The same, tuned for these services as well as we could.
    EnvoyAdaptive,
    /// Envoy's admission control with the settings of its documentation.
    EnvoyAdmission,
    /// The library of this repository.
    Ours,
    /// The same, which is not told how many places there are.
    OursFinds,
    /// Envoy with a route timeout before the library.
    EnvoyOurs,
}

impl System {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::HopsShort => "hops-100ms",
            Self::HopsLong => "hops-1s",
            Self::Tower => "tower",
            Self::Resilience => "resilience",
            Self::Tonic => "tonic",
            Self::Grpcio => "grpcio",
            Self::EnvoyPlain => "envoy-plain",
            Self::EnvoyDocs => "envoy-docs",
            Self::EnvoyAdaptive => "envoy-adaptive",
            Self::EnvoyAdmission => "envoy-admission",
            Self::Ours => "ours",
            Self::OursFinds => "ours-finds",
            Self::EnvoyOurs => "envoy-ours",
        }
    }

    /// The template in bench/goodput/envoy that stands in front of each tier.
    pub(crate) const fn envoy(self) -> Option<&'static str> {
        match self {
            Self::EnvoyPlain | Self::EnvoyOurs => Some("plain"),
            Self::EnvoyDocs => Some("adaptive-docs"),
            Self::EnvoyAdaptive => Some("adaptive-tuned"),
            Self::EnvoyAdmission => Some("admission"),
            _ => None,
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursFinds | Self::EnvoyOurs)
    }

    pub(crate) const fn speaks(self) -> Speaks {
        match self {
            Self::Tonic | Self::Grpcio => Speaks::Grpc,
            _ => Speaks::Http,
        }
    }

    /// What its callers say of the time.
    pub(crate) const fn told(self) -> Tells {
        match self {
            Self::Ours | Self::OursFinds => Tells::Remaining,
            Self::EnvoyOurs => Tells::EnvoyAndRemaining,
            Self::EnvoyPlain | Self::EnvoyDocs | Self::EnvoyAdaptive | Self::EnvoyAdmission => Tells::Envoy,
            Self::Tonic | Self::Grpcio => Tells::Grpc,
            Self::None | Self::HopsShort | Self::HopsLong | Self::Tower | Self::Resilience => Tells::Nothing,
        }
    }

    /// After which time its callers give a try up, where that is part of the system; else they wait as long as they can.
    pub(crate) const fn per_try(self) -> Option<Duration> {
        match self {
            Self::HopsShort => Some(Duration::from_millis(100)),
            Self::HopsLong => Some(Duration::from_secs(1)),
            _ => None,
        }
    }

    /// Whether callers limit their retries. The plain systems come without; in a chain neither tower nor Envoy gets it
    /// either, since both let more through without it.
    pub(crate) const fn budgets_retries(self, scenario: Scenario) -> bool {
        match self {
            Self::None | Self::HopsShort | Self::HopsLong => false,
            Self::Ours | Self::OursFinds | Self::EnvoyOurs => !matches!(scenario, Scenario::Abandon),
            _ => !scenario.is_chain() && !matches!(scenario, Scenario::Abandon),
        }
    }
}
