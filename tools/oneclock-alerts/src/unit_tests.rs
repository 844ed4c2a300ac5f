//! Unit tests for `promtool`, made from the same policy as the rules: each alert fires on series that are made for it, and
//! stays silent on healthy ones, below the minimum, and where nobody of this service is to blame.
//!
//! Decides the cases. Each says which alerts fire, and no others may; what those are is worked out from the shares and the
//! windows alone (`World::fires`), not from the rules' expressions.

use std::fmt;

use oneclock_core::BoundBy;
use oneclock_telemetry::names::OPERATION_SECONDS;
use serde::Serialize;

use crate::policy::{Layer, Policy};
use crate::written::{self, NotWritten};

mod world;

use world::{Phase, World};

/// The tests.
#[derive(Clone, Debug, Serialize)]
pub struct UnitTests {
    rule_files: Vec<String>,
    evaluation_interval: String,
    tests: Vec<Test>,
}

#[derive(Clone, Debug, Serialize)]
struct Test {
    name: &'static str,
    interval: String,
    input_series: Vec<InputSeries>,
    promql_expr_test: Vec<Asked>,
}

#[derive(Clone, Debug, Serialize)]
struct InputSeries {
    series: String,
    values: String,
}

#[derive(Clone, Debug, Serialize)]
struct Asked {
    expr: &'static str,
    eval_time: String,
    exp_samples: Vec<Sample>,
}

#[derive(Clone, Debug, Serialize)]
struct Sample {
    labels: String,
    value: u8,
}

const FIRING: &str = "group by (alertname) (ALERTS{alertstate=\"firing\"})";

/// Milliseconds, as Prometheus writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Millis(u64);

impl UnitTests {
    /// The tests of a policy's rules, which are in the file `rules`.
    ///
    /// ```
    /// use oneclock_alerts::{Policy, UnitTests};
    ///
    /// let tests = UnitTests::of(&Policy::default(), "oneclock.rules.yml").to_yaml().unwrap();
    /// assert!(tests.contains("healthy"));
    /// ```
    pub fn of(policy: &Policy, rules: &str) -> Self {
        let healthy = World::healthy(policy);
        let tests = cases(policy, &healthy).into_iter().map(|(name, world)| Test {
            name,
            interval: healthy.step().to_string(),
            input_series: world.series(),
            promql_expr_test: vec![Asked {
                expr: FIRING,
                eval_time: world.end().to_string(),
                exp_samples: world
                    .fires()
                    .iter()
                    .map(|alert| Sample { labels: format!("{{alertname=\"{}\"}}", alert.name()), value: 1 })
                    .collect(),
            }],
        });
        Self {
            rule_files: vec![rules.to_owned()],
            evaluation_interval: Millis(2 * healthy.step().0).to_string(),
            tests: tests.collect(),
        }
    }

    /// The names of the cases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.tests.iter().map(|test| test.name)
    }

    /// Only the case with this name.
    #[must_use]
    pub fn only(mut self, name: &str) -> Self {
        self.tests.retain(|test| test.name == name);
        self
    }

    /// As a file for `promtool test rules`.
    ///
    /// # Errors
    /// [`NotWritten`], if the YAML cannot be written.
    pub fn to_yaml(&self) -> Result<String, NotWritten> {
        let yaml = written::yaml(self)?;
        Ok(format!("# Written by `oneclock alerts --tests`. Run with `promtool test rules`.\n{yaml}"))
    }
}

fn cases<'a>(policy: &'a Policy, healthy: &World<'a>) -> Vec<(&'static str, World<'a>)> {
    let mut cases = vec![("healthy", healthy.clone())];
    let mut case = |name, change: &dyn Fn(&mut World<'a>)| {
        let mut world = healthy.clone();
        change(&mut world);
        cases.push((name, world));
    };

    // Shares of requests that run out of time, each a little above one threshold, all the time.
    let (warn, page) = (policy.timeouts.warn.fraction(), policy.timeouts.page.fraction());
    let rest = policy.objective.in_time.rest();
    let slowest = |burns: &[crate::policy::Burn]| {
        burns.iter().map(|burn| burn.times.of(rest)).min_by(f64::total_cmp).unwrap_or(page)
    };
    case("timeouts above warn", &|world| world.late(warn));
    case("timeouts above page", &|world| world.late(page));
    case("calibration is due", &|world| world.late(policy.calibration.due.fraction()));
    case("the error budget is used up fast", &|world| world.late(slowest(&policy.objective.page)));
    case("the error budget is used up slowly", &|world| world.late(slowest(&policy.objective.ticket)));
    case("everything runs out of time, and next to nothing comes", &|world| {
        world.late(1.0);
        world.sparse();
    });
    case("handlers whose calls ran out say so, and end in time", &|world| {
        world.late(page);
        world.says_so = true;
    });

    // An end that is nobody's fault here, and what looks like it.
    case("half of the callers give less than it usually takes", &|world| {
        world.late(0.5);
        world.late_budget = world::SHORT;
    });
    if OPERATION_SECONDS.labels.contains(&"cause") {
        case("most of the callers give less than it usually takes", &|world| {
            world.late(0.8); // without the cause the usual would be what they give
            world.late_budget = world::SHORT;
        });
    }
    case("as many are refused when they arrive as are not", &|world| world.refused = true);
    case("streams end at their own limits", &|world| world.streams = true);
    case("a limit of our own is less than it usually takes", &|world| {
        world.late(0.5);
        (world.late_budget, world.bound) = (world::SHORT, BoundBy::Ceiling);
    });
    let third = healthy.steps() / 3;
    case("an incident does not become the usual, and forgives nothing", &|world| {
        let calm = Phase { steps: world.steps() - third, ..world.phases[0] };
        world.phases = vec![calm, Phase { steps: third, late: 1.0, ..calm }];
    });
    case("an incident that is over pages nobody", &|world| {
        let calm = Phase { steps: world.steps() - third, late: 0.0, ..world.phases[0] };
        world.phases = vec![Phase { steps: third, late: 1.0, ..calm }, calm];
    });

    for (layer, size) in &policy.zombies.pools {
        let allowed = (f64::from(*size) * policy.zombies.page.fraction()).floor() as u32;
        case("zombies fill a pool", &|world| {
            world.zombies = Some((*layer, (allowed + 1).max(policy.zombies.minimum)));
        });
        case("as many zombies as are allowed", &|world| world.zombies = Some((*layer, allowed)));
        case("fewer zombies than the minimum", &|world| {
            world.zombies = Some((*layer, policy.zombies.minimum - 1));
        });
    }
    if !policy.zombies.pools.contains_key(&Layer::MustFinish) {
        case("steps that must finish go on", &|world| world.zombies = Some((Layer::MustFinish, 1_000)));
    }

    case("retries amplify", &|world| world.attempts = world.attempts_above());
    case("retries amplify, and next to nothing is called", &|world| {
        world.attempts = world.attempts_above();
        world.sparse();
    });

    case("a database is not told of any end, and another service is", &|world| {
        world.ends = world.enough_ends();
        (world.seen, world.seen_elsewhere) = (0.0, 1.0);
    });
    case("a database is told of every end", &|world| world.ends = world.enough_ends());
    case("hardly any end, and a database that is not told", &|world| {
        world.ends = world.enough_ends() / 10.0;
        world.seen = 0.0;
    });
    case("a database that is hardly asked sees hardly any end", &|world| {
        world.ends = world.enough_ends();
        let hardly = 2.0 * policy.propagation.seen.tenth();
        (world.seen, world.share) = (hardly, hardly);
    });
    case("a hop calls around its adapters", &|world| {
        world.ends = world.enough_ends();
        (world.seen, world.share) = (0.0, 0.001);
    });
    case("a service that calls nothing has nobody to tell", &|world| {
        world.ends = world.enough_ends();
        (world.seen, world.share, world.attempts) = (0.0, 0.0, 0.0);
    });
    case("nearly all ends come in the body, when nobody below has anything left to do", &|world| {
        (world.ends, world.seen) = (3.0 * world.enough_ends(), 0.0);
        (world.in_body, world.left_in_body) = (0.5, 0.45);
    });
    case("nearly all ends find a step that must finish", &|world| {
        (world.ends, world.seen) = (3.0 * world.enough_ends(), 0.0);
        world.must_finish = 0.95;
    });
    case("two steps that must finish in each request, and no end is left", &|world| {
        (world.ends, world.seen) = (3.0 * world.enough_ends(), 0.0);
        world.must_finish = 2.0;
    });
    case("some ends come in the body, and of the others a database is not told", &|world| {
        (world.ends, world.seen) = (3.0 * world.enough_ends(), 0.0);
        (world.in_body, world.left_in_body, world.must_finish) = (0.1, 0.1, 0.1);
    });

    case("most requests come without a deadline", &|world| world.missing = world.missing_above());
    case("no request has a deadline, and next to nothing comes", &|world| {
        world.missing = 1.0;
        world.sparse();
    });
    if policy.overflow.watched {
        case("what happens is counted without its name", &|world| world.unnamed = Some(1.0));
    }
    case("some was counted without its name, and no more is", &|world| world.unnamed = Some(0.0));

    case("more than some requests are refused as they arrive", &|world| world.shed_at_arrival = world.shed_above());
    case("more than some requests are dropped from the queue", &|world| {
        world.shed_in_queue = (policy.shedding.warn.fraction() * 1.37).min(0.95);
    });
    case("some are refused as they arrive, and hardly any that is needed", &|world| {
        (world.shed_at_arrival, world.shed_required) = (world.shed_above(), 0.1);
    });
    case("many are refused as they arrive, and no more of them than is allowed", &|world| {
        let share = policy.shedding.warn.fraction() * 0.99; // of all: of those that are accepted it would be too many
        (world.shed_at_arrival, world.shed_required) = (share / (1.0 - share), 1.0);
    });
    case("everything that comes is refused, and next to nothing comes", &|world| {
        world.shed_at_arrival = 1.0;
        world.sparse();
    });

    let edges = policy.deadline_missing.edges.iter();
    for edge in edges.filter(|edge| !healthy.is_at(edge)) {
        case("an edge whose callers never send a deadline", &|world| world.edge = Some(edge));
        case("most of what comes beside an edge has no deadline", &|world| {
            (world.edge, world.missing) = (Some(edge), world.missing_above());
        });
    }
    cases
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
