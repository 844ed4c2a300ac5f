//! What the playbook asks Prometheus.

use oneclock_core::retry::Stop;
use oneclock_core::{BoundBy, Stage};
use oneclock_telemetry::names::{
    ADMISSION_MODE, BUDGET_AT_ARRIVAL, CALL_DEADLINE_EXCEEDED, CALL_SECONDS, CALLS, CANCELLATIONS, CUT_OFF,
    DEADLINE_EXCEEDED, DETACHED, GAVE_UP, HELD, MISSING, Metric, NEEDED, NOT_ADMITTED, OPERATION_SECONDS, OPERATIONS,
    OVERFLOW, PLACES, PLACES_TAKEN, RAN_ON, REMAINING_AT_CALL, RETRIES, STANDING, WAITING, WOULD_REFUSE, ZOMBIES,
};

use crate::query::{Series, buckets, series};

/// Long enough for a rate, short enough for an incident.
const NOW: &str = "5m";
/// Yesterday at this time.
const BEFORE: &str = " offset 1d";

fn rate(by: &str, of: &Series<'_>) -> String {
    format!("sum by ({by}) ({})", of.rate(NOW))
}

fn quantile(rank: f64, by: &str, of: &Series<'_>, when: &str) -> String {
    format!("histogram_quantile({rank}, sum by ({by}, le) (rate({of}[{NOW}]{when})))")
}

/// Against yesterday: above one it rose, below one it fell.
fn against_yesterday(rank: f64, by: &str, of: &Series<'_>) -> String {
    format!("{}\n/\n{}", quantile(rank, by, of, ""), quantile(rank, by, of, BEFORE))
}

fn of_all(part: &str, whole: &str) -> String {
    format!("{part}\n/ ignoring (bound) group_left ()\n{whole}")
}

fn exceeded(by: &str, more: &str) -> String {
    let part = rate(&format!("{by}, {more}"), &series(&DEADLINE_EXCEEDED));
    of_all(&part, &rate(by, &series(&DEADLINE_EXCEEDED)))
}

const ROUTE: &str = "operation, route";

pub(super) fn where_they_ran_out() -> String {
    format!("topk(10, {})", rate("operation, route, bound, stage", &series(&DEADLINE_EXCEEDED)))
}

pub(super) fn a_dependency_is_slower() -> String {
    against_yesterday(0.9, "dependency", &buckets(&CALL_SECONDS))
}

pub(super) fn callers_give_less() -> String {
    let by_callers = buckets(&BUDGET_AT_ARRIVAL).with("bound", BoundBy::Caller.as_str());
    against_yesterday(0.5, ROUTE, &by_callers)
}

pub(super) fn it_waits_before_the_work() -> String {
    let waiting = [Stage::Queue, Stage::Pool].map(Stage::as_str);
    let waiting = rate("dependency", &series(&CALL_DEADLINE_EXCEEDED).with_any("stage", &waiting));
    let queued = series(&DEADLINE_EXCEEDED).with("stage", Stage::Queue.as_str());
    format!(
        "{waiting}\n/ {}\nor\n{}\n/ {}",
        rate("dependency", &series(&CALL_DEADLINE_EXCEEDED)),
        rate(ROUTE, &queued),
        rate(ROUTE, &series(&DEADLINE_EXCEEDED)),
    )
}

pub(super) fn retries_feed_it() -> String {
    let calls = rate("dependency", &series(&CALLS));
    format!("{calls}\n/\n({calls} - {})", rate("dependency", &series(&RETRIES)))
}

pub(super) fn which_bound() -> String {
    exceeded(ROUTE, "bound")
}

pub(super) fn who_says_nothing() -> String {
    format!("{}\n/\n{}", rate(ROUTE, &series(&MISSING)), rate(ROUTE, &series(&BUDGET_AT_ARRIVAL)))
}

/// By service, the lowest first: who is told of deadlines, and who is not.
pub(super) fn which_services_are_not_told() -> String {
    let requests = rate("job", &series(&BUDGET_AT_ARRIVAL));
    format!("sort(\n  ({} or 0 * {requests})\n  / {requests}\n)", rate("job", &series(&MISSING)))
}

/// What makes the deadlines of a service's requests: with a forwarding hop before, it is the caller.
pub(super) fn who_makes_the_deadlines() -> String {
    let part = rate("job, bound", &series(&BUDGET_AT_ARRIVAL));
    of_all(&part, &rate("job", &series(&BUDGET_AT_ARRIVAL)))
}

pub(super) fn what_is_left_at_calls() -> String {
    quantile(0.1, "dependency", &buckets(&REMAINING_AT_CALL), "")
}

pub(super) fn zombies() -> String {
    format!("sum by (instance, layer) ({}) > 0", series(&ZOMBIES))
}

pub(super) fn whose_zombies() -> String {
    format!("topk(10, {})", rate("operation, layer", &series(&RAN_ON)))
}

pub(super) fn ends_by_layer() -> String {
    rate("layer", &series(&CANCELLATIONS))
}

pub(super) fn detached() -> String {
    rate("operation", &series(&DETACHED))
}

pub(super) fn why_it_gave_up() -> String {
    rate("dependency, why", &series(&GAVE_UP))
}

pub(super) fn switched_off() -> String {
    rate("dependency", &series(&GAVE_UP).with("why", Stop::SwitchedOff.as_str()))
}

pub(super) fn share_without_an_answer() -> String {
    let part = rate("dependency", &series(&CALL_DEADLINE_EXCEEDED));
    format!("{part}\n/\n{}", rate("dependency", &series(&CALLS)))
}

fn over_a_day(metric: &Metric, by: &str) -> String {
    format!("sum by ({by}, le) ({})", buckets(metric).increase("1d"))
}

pub(super) fn how_long_routes_take() -> String {
    format!("histogram_quantile(0.99, {})", over_a_day(&OPERATION_SECONDS, ROUTE))
}

pub(super) fn how_long_calls_take() -> String {
    format!("histogram_quantile(0.99, {})", over_a_day(&CALL_SECONDS, "dependency"))
}

pub(super) fn how_many_were_measured() -> String {
    format!("sum by (dependency) ({})", series(&CALL_SECONDS).increase("1d"))
}

pub(super) fn without_a_name() -> String {
    format!(
        "# operations\n{}\n\n# calls\n{}",
        rate("job", &series(&OPERATIONS).with("operation", OVERFLOW)),
        rate("job", &series(&CALLS).with("dependency", OVERFLOW))
    )
}

pub(super) fn how_many_names() -> String {
    format!(
        "# operations\ncount by (job) (count by (job, {ROUTE}) ({}))\n\n# dependencies\ncount by (job) (count by (job, dependency) ({}))",
        series(&OPERATIONS),
        series(&CALLS)
    )
}

pub(super) fn which_names() -> String {
    format!("topk(20, count by (job, {ROUTE}) ({}))", series(&OPERATIONS))
}

pub(super) fn who_is_refused() -> String {
    format!("topk(10, {})", rate("job, operation, route, why, stage", &series(&NOT_ADMITTED)))
}

/// All that come: those that were accepted, and those that were refused a place as they arrived.
pub(super) fn more_comes_than_yesterday() -> String {
    let all = |when: &str| {
        let sum = |of: &Series<'_>| format!("sum by (job) (rate({of}[{NOW}]{when}))");
        let accepted = sum(&series(&BUDGET_AT_ARRIVAL));
        let refused = sum(&series(&NOT_ADMITTED).with("stage", Stage::Arrival.as_str()));
        format!("({accepted} + ({refused} or 0 * {accepted}))")
    };
    format!("{}\n/\n{}", all(""), all(BEFORE))
}

fn at_places(of: &Metric, by: &str) -> String {
    format!("sum by ({by}) ({})", series(of))
}

pub(super) fn places_are_held_for_longer() -> String {
    let held = |when: &str| format!("max by (job, admission) ({}{when})", series(&HELD));
    format!("{}\n/\n({} > 0)", held(""), held(BEFORE))
}

pub(super) fn places_and_who_has_them() -> String {
    let by = "job, instance, admission";
    format!(
        "# places\n{}\n\n# taken\n{}\n\n# waiting\n{}\n\n# more comes than goes, if 1\n{}",
        at_places(&PLACES, by),
        at_places(&PLACES_TAKEN, by),
        at_places(&WAITING, by),
        at_places(&STANDING, by)
    )
}

pub(super) fn what_work_needs() -> String {
    let by = "job, admission, class";
    format!(
        "# seconds that it has to have left\ntopk(10, max by ({by}) ({}))\n\n# the share that was cut off\ntopk(10, max by ({by}) ({}))",
        series(&NEEDED),
        series(&CUT_OFF)
    )
}

pub(super) fn who_would_be_refused() -> String {
    format!("topk(10, {})", rate("job, operation, route, why", &series(&WOULD_REFUSE)))
}

pub(super) fn which_mode() -> String {
    format!("sum by (job, admission, mode) ({}) > 0", series(&ADMISSION_MODE))
}
