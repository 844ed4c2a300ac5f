//! What is counted and kept of all that happens on a proxy: metrics, and the last operations that a deadline ended.
//!
//! Decides that a proxy has an observer of its own, which every operation of its routes tells, so that two proxies in one process
//! do not mix; that what its own probes have refused is not counted; and what is told of the proxy itself, beside its requests.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use oneclock::events::Observer;
use oneclock_telemetry::metrics::DEFAULT_NAMES;
use oneclock_telemetry::readiness::WithoutProbes;
use oneclock_telemetry::{Metrics, Readiness, Ring, Scrape, Several};

use crate::config::Config;
use crate::control::Control;
use crate::ledgers::{self, Heads};
use crate::table::Table;

/// Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    metrics: Metrics,
    scrape: Scrape,
    ring: Ring,
}

/// A gauge of the proxy's own: its name and what it means.
struct Gauge(&'static str, &'static str);

const BUILD: Gauge = Gauge("oneclock_proxy_build_info", "Which build this is: always 1.");
const CONFIG: Gauge = Gauge(
    "oneclock_proxy_config_info",
    "What holds, by the hash that /config shows: always 1. Two proxies with one hash run the same, passwords aside.",
);
const RELOADED: Gauge = Gauge(
    "oneclock_proxy_config_last_reload_successful",
    "Whether the latest configuration was taken: 1, or 0 while the one before it goes on.",
);
const RELOADED_AT: Gauge = Gauge(
    "oneclock_proxy_config_last_reload_success_timestamp_seconds",
    "When a configuration was taken last, in seconds since 1970; the start counts.",
);
const LIVE: Gauge =
    Gauge("oneclock_proxy_live_operations", "How many requests, streams and upgraded connections are under way.");
const DRAINING: Gauge = Gauge("oneclock_proxy_draining", "Whether it accepts nothing more: 1 or 0.");
const OVERRIDE: Gauge = Gauge(
    "oneclock_proxy_policy_override",
    "What an operator changed about a route for now, with PATCH /policy: always 1; absent where the configuration holds.",
);

/// All of them: the reference in the guide is compared with this.
#[cfg(test)]
const GAUGES: [Gauge; 7] = [BUILD, CONFIG, RELOADED, RELOADED_AT, LIVE, DRAINING, OVERRIDE];

// === Telemetry ===

impl Telemetry {
    /// For a proxy that begins with this. Its limits are edges of the histograms, as long as there are not too many.
    pub(crate) fn of(config: &Config) -> Self {
        let builder = || Metrics::builder().names(names(config));
        let limits: BTreeSet<_> = config.routes.iter().flat_map(|route| [route.when_absent, route.ceiling]).collect();
        let made = limits.into_iter().fold(builder(), oneclock_telemetry::MetricsBuilder::timeout).build();
        let made = made.or_else(|_| builder().build()); // too many for edges: the standard ones are left
        let (metrics, scrape) = match made {
            Ok(made) => made,
            Err(why) => unreachable!("the standard edges are edges: {why}"),
        };
        Self { metrics, scrape, ring: ledgers::ring() }
    }

    /// Who is told of the operations of its routes.
    pub(crate) fn observer(&self) -> Arc<dyn Observer> {
        let all = Several::new().and(Heads).and(self.metrics.clone()).and(self.ring.clone());
        Arc::new(WithoutProbes::new(all))
    }

    /// Tells of the places and the upstreams of this table, and of no others.
    pub(crate) fn watch(&self, table: &Table) {
        let (routes, upstreams) = (&table.config.routes, &table.config.upstreams);
        self.metrics.at_least_names(names(&table.config));
        self.metrics.keep_admissions(|name| routes.iter().any(|route| route.name == *name));
        self.metrics.keep_healths(|name| upstreams.contains_key(name));
        table.admissions().for_each(|admission| self.metrics.watch_admission(admission));
        table.healths().for_each(|health| self.metrics.watch_health(health));
    }

    /// Tells whether it is ready, too.
    pub(crate) fn tell_readiness(&self, readiness: &Readiness) {
        self.metrics.tell_readiness(readiness);
    }

    /// The last operations that a deadline ended.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// What Prometheus reads.
    pub(crate) fn text(&self, control: &Control) -> String {
        let mut text = self.scrape.render();
        let table = control.table().load();
        let reload = control.latest_reload();
        let mut tell = |gauge: &Gauge, series: &[(&[(&str, &str)], f64)]| write_gauge(&mut text, gauge, series);
        tell(&BUILD, &[(&[("version", env!("CARGO_PKG_VERSION"))], 1.0)]);
        tell(&CONFIG, &[(&[("hash", &table.hash)], 1.0)]);
        tell(&RELOADED, &[(&[], truth(reload.refused.is_none()))]);
        tell(&RELOADED_AT, &[(&[], seconds(reload.taken_at))]);
        tell(&LIVE, &[(&[], count(control.live().len()))]);
        tell(&DRAINING, &[(&[], truth(control.shutdown().is_signalled()))]);
        let mut held = Vec::new();
        for (route, one) in table.overrides.iter() {
            held.extend(one.no_retries.then(|| [("route", route.as_str()), ("policy", "retry"), ("value", "off")]));
            held.extend(one.mode.map(|mode| [("route", route.as_str()), ("policy", "mode"), ("value", mode.as_str())]));
        }
        let held: Vec<(&[(&str, &str)], f64)> = held.iter().map(|labels| (labels.as_slice(), 1.0)).collect();
        tell(&OVERRIDE, &held);
        text
    }
}

/// How many names there may be: those of the routes, and as many that a reload took the place of.
fn names(config: &Config) -> usize {
    DEFAULT_NAMES.max(config.routes.len().saturating_mul(4))
}

fn write_gauge(text: &mut String, Gauge(name, help): &Gauge, series: &[(&[(&str, &str)], f64)]) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge"); // a string takes everything
    for (labels, value) in series {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// As the text format of Prometheus writes a value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

const fn truth(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn seconds(nanos: u64) -> f64 {
    std::time::Duration::from_nanos(nanos).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_gauge_of_the_proxy() {
        let guide = include_str!("../../../docs/guide/proxy.md");
        for Gauge(name, _) in GAUGES {
            assert!(guide.contains(&format!("| `{name}`")), "docs/guide/proxy.md has no line for `{name}`");
        }
    }

    #[test]
    fn a_label_cannot_break_out_of_its_line() {
        let mut text = String::new();
        write_gauge(&mut text, &Gauge("g", "Help."), &[(&[("route", "a\"} 1\n\\")], 1.0)]);
        assert_eq!(text, "# HELP g Help.\n# TYPE g gauge\ng{route=\"a\\\"} 1\\n\\\\\"} 1\n");
    }

    #[test]
    fn more_limits_than_edges_leave_the_standard_ones() {
        let routes: String = (0..80)
            .map(|n| format!("- {{ name: r{n}, matches: [{{ path: {{ value: /{n} }} }}], upstream: app, timeouts: {{ request: {n}s }} }}\n"))
            .skip(11)
            .collect();
        let text = format!("upstreams: {{ app: {{ url: 'http://127.0.0.1:1' }} }}\nroutes:\n{routes}");
        let telemetry = Telemetry::of(&Config::parse(&text).expect("a configuration"));
        assert!(telemetry.scrape.render().contains("oneclock_zombie_work"));
    }
}
