//! The stories, and which alerts each of them should fire, by the service for which they do.
//!
//! Decided from what is told, not from what was seen: whose requests run out of time, what is retried, what goes on.

use std::collections::BTreeSet;
use std::time::Duration;

use oneclock_alerts::Alert;
use oneclock_checkout::purchase::Service;
use oneclock_checkout::story::{Mistake, Story, Within};
use oneclock_checkout::trouble::Trouble;

use crate::alerts::Fired;

/// The demo's story of this name.
pub(crate) fn of_the_demo(name: &str) -> Story {
    Story::all().into_iter().find(|story| story.name == name).expect("a story of the demo")
}

/// Nothing is wrong.
pub(crate) fn healthy() -> Story {
    Story { name: "healthy", ..Story::default() }
}

/// Inventory's statements take longer than anybody waits, and hear no interrupt.
pub(crate) fn deaf_statements() -> Story {
    Story {
        name: "deaf-statements",
        troubled: Service::Inventory,
        trouble: Trouble::slow(Duration::from_millis(1_500)).one_in(2),
        counted: Service::Inventory,
        mistake: Some(Mistake::DeafStatements),
        ..Story::default()
    }
}

/// Inventory's statements take longer than anybody waits, and nobody tells them.
pub(crate) fn database_not_told() -> Story {
    let within = Within { inventory_database: Duration::from_secs(10), ..Story::default().within };
    Story {
        name: "database-not-told",
        troubled: Service::Inventory,
        trouble: Trouble::slow(Duration::from_millis(1_000)).one_in(2),
        connections: 16,
        counted: Service::Inventory,
        within,
        mistake: Some(Mistake::DatabaseNotTold),
        ..Story::default()
    }
}

/// Payment takes a little longer than an attempt at it may, every other time.
pub(crate) fn retries() -> Story {
    let story = of_the_demo("double-charge");
    Story { name: "retries", trouble: story.trouble.one_in(2), ..story }
}

/// Everything that is alerted on when requests run out of time: the same share, over windows of different length.
const OUT_OF_TIME: [Alert; 5] =
    [Alert::Timeouts, Alert::TimeoutsHigh, Alert::CalibrationDue, Alert::ErrorBudgetFast, Alert::ErrorBudgetSlow];

/// The names of all stories, in the guide's order.
pub(crate) const ALL: [&str; 11] = [
    "slow-pricing",
    "stalled-body",
    "overloaded-pool",
    "caller-leaves",
    "silent-hop",
    "double-charge",
    "zombie-queries",
    "healthy",
    "deaf-statements",
    "database-not-told",
    "retries",
];

/// Alerts for which no story is made, so that here they only must not fire: two hundred names are more than a shop has, and the
/// stories' services have all the places that they need. The rules' own cases make them fire.
pub(crate) const WITHOUT_A_STORY: [Alert; 2] = [Alert::NamesOverflow, Alert::ShedsRequired];

/// What should fire in a story.
pub(crate) fn fires(name: &str) -> BTreeSet<Fired> {
    let out_of_time: &[&'static str] = match name {
        // Pricing is cut off, and the order that waits for it. The gateway and the app are told in time.
        "slow-pricing" => &["order", "pricing"],
        // It never ends its answers; an order is answered without them.
        "stalled-body" => &["recommendations"],
        // Its database has a limit of its own, and says so in time.
        "overloaded-pool" | "zombie-queries" => &["inventory"],
        "deaf-statements" => &["inventory"],
        // Nobody tells pricing, so it is its own limit.
        "silent-hop" => &["pricing"],
        // The first of two attempts is cut off.
        "double-charge" | "retries" => &["payment"],
        "database-not-told" => &["inventory", "order"],
        // Who leaves was not out of time.
        "caller-leaves" | "healthy" => &[],
        other => panic!("which alerts should fire in {other}?"),
    };
    let mut fires: BTreeSet<Fired> =
        out_of_time.iter().flat_map(|job| OUT_OF_TIME.map(|alert| (alert, *job))).collect();
    match name {
        // Those that the order service calls.
        "silent-hop" => {
            let told_nothing = ["inventory", "pricing", "recommendations", "payment"];
            fires.extend(told_nothing.map(|job| (Alert::DeadlineMissing, job)));
        }
        // The gauge is the process's, and here all parts are one process.
        "deaf-statements" => fires.extend(parts().map(|part| (Alert::Zombies, part))),
        "database-not-told" => fires.extend([(Alert::EndsNotPassedOn, "inventory")]),
        "retries" => fires.extend([(Alert::Amplification, "order")]),
        _ => {}
    }
    fires
}

fn parts() -> impl Iterator<Item = &'static str> {
    [crate::scraped::APP].into_iter().chain(Service::ALL.map(Service::name))
}

/// The matrix of the guide: who is in trouble where, by alert.
pub(crate) fn matrix() -> String {
    let mut table = format!(
        "| scenario |{}\n|---|",
        Alert::ALL.iter().map(|alert| format!(" `{}` |", alert.name())).collect::<String>()
    );
    table.push_str(&"---|".repeat(Alert::ALL.len()));
    for name in ALL {
        table.push_str(&format!("\n| {name} |"));
        let fires = fires(name);
        for alert in Alert::ALL {
            let jobs: Vec<&str> = fires.iter().filter(|(fired, _)| fired == alert).map(|(_, job)| *job).collect();
            let cell = match jobs.len() {
                7 => "all, one process".to_owned(),
                0 => "·".to_owned(),
                _ => jobs.join(", "),
            };
            table.push_str(&format!(" {cell} |"));
        }
    }
    table
}
