//! The row on overload: who gets no place, how long the others wait, whether what is decided by can be true, and what is not even
//! sent to those that have too much to do themselves.

use oneclock_telemetry::names::{
    ADMISSION_MODE, BREAKER_CHANGES, BREAKER_OPEN, CUT_OFF, HELD, Metric, NEEDED, NOT_ADMITTED, PLACES, PLACES_TAKEN,
    QUEUE_WAIT, STANDING, THROTTLED, WAITING, WOULD_REFUSE,
};

use super::panels::{Unit, counted, line, panel, quantile};
use super::{CHOSEN, Row};
use crate::query::series;

const PLACE: &str = "job, instance, admission";
const CLASS: &str = "job, admission, class";
const DESTINATION: &str = "job, instance, destination";

pub(super) fn row() -> Row {
    let now = |how: &str, by: &str, of: &Metric| format!("{how} by ({by}) ({})", series(of).chosen_by(CHOSEN));
    Row {
        title: "Overload",
        panels: vec![
            counted(
                "No place, by why",
                "full: more comes than goes. doomed: it would not have been done in time. optional: its caller can do without.",
                &NOT_ADMITTED,
                "job, operation, why, stage",
                "{{job}} {{operation}} {{why}} ({{stage}})",
            ),
            counted(
                "Would be refused, in shadow",
                "What runs although admission would have refused it.",
                &WOULD_REFUSE,
                "job, route, why",
                "{{job}} {{route}} {{why}}",
            ),
            panel(
                "Places: taken, and who waits",
                Unit::Count,
                "All taken and nobody waiting is a service that is well used. A number that is found moves.",
                vec![
                    line(now("sum", PLACE, &PLACES), "{{instance}} {{admission}}: places"),
                    line(now("sum", PLACE, &PLACES_TAKEN), "{{instance}} {{admission}}: taken"),
                    line(now("sum", PLACE, &WAITING), "{{instance}} {{admission}}: waiting"),
                ],
            ),
            panel(
                "More comes than goes",
                Unit::Count,
                "1: the queue stands, the newest are served first, and what is optional is refused.",
                vec![line(now("max", PLACE, &STANDING), "{{instance}} {{admission}}")],
            ),
            panel(
                "How long those wait that do",
                Unit::Seconds,
                "The 99th percentile, of operations that waited in a queue at all.",
                vec![line(quantile(0.99, "job, operation", &QUEUE_WAIT), "{{job}} {{operation}}")],
            ),
            panel(
                "How long a place is held",
                Unit::Seconds,
                "On average, of late. If it grows, something that the work waits for is slower.",
                vec![line(now("max", PLACE, &HELD), "{{instance}} {{admission}}")],
            ),
            panel(
                "What work is thought to need",
                Unit::Seconds,
                "At the quantile of the settings, what it calls included. Who has less does not start, once it would have to wait.",
                vec![line(now("max", CLASS, &NEEDED), "{{job}} {{admission}} {{class}}")],
            ),
            panel(
                "Work that was cut off before it was done",
                Unit::Share,
                "Above a tenth the estimate is a lower bound, no more.",
                vec![line(now("max", CLASS, &CUT_OFF), "{{job}} {{admission}} {{class}}")],
            ),
            panel(
                "What is in force",
                Unit::Count,
                "How many processes observe, shadow or enforce.",
                vec![line(now("sum", "job, admission, mode", &ADMISSION_MODE), "{{job}} {{admission}}: {{mode}}")],
            ),
            panel(
                "Held back here: throttled, breaker open",
                Unit::Share,
                "The share of calls that is not sent, since what is called refuses or fails. 1 where a breaker is open.",
                vec![
                    line(now("max", DESTINATION, &THROTTLED), "{{instance}} → {{destination}}: throttled"),
                    line(now("max", DESTINATION, &BREAKER_OPEN), "{{instance}} → {{destination}}: breaker open"),
                ],
            ),
            counted(
                "Breakers, by change",
                "opened: too many calls failed. half_open: a probe was let through. closed: enough of them went well.",
                &BREAKER_CHANGES,
                "job, destination, change",
                "{{job}} → {{destination}} {{change}}",
            ),
        ],
    }
}
