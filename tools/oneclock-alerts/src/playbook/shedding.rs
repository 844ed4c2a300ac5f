//! Requests that are needed get no place: is it load, something slow, or a wrong number of places?

use super::pages::{look, page as begin};
use super::{Page, Possible, Step, questions as ask};

pub(super) fn page() -> Page {
    let steps = vec![
        look(
            "See who is refused, and why. `full`: more comes than goes, for longer than a moment. `doomed`: what it had left was \
             less than the wait and what such work needs. `optional` is no incident. In the stage `queue` it had waited.",
            ask::who_is_refused(),
        ),
        look(
            "See the places. All taken and some waiting is a service that does what it can. Free places beside refusals are \
             another process's: look at each instance.",
            ask::places_and_who_has_them(),
        ),
        Step {
            action: "Change nothing yet. What is refused was not started and its caller was told so: the rest is answered in \
                     time because of it. More places than the resource has would end that.",
            ..Step::default()
        },
        Step {
            action: "Find out which of the four it is. Ask all of them: slow work looks like load, since it holds its place \
                     for longer.",
            ..Step::default()
        },
        Step {
            action: "If you do not trust the refusals themselves, take them back: everything starts, as without admission, and \
                     what would be refused is only counted. While there is in truth too much, that makes it worse.",
            run: Some("admission.set_mode(Mode::Shadow); // at run time, from whatever your service has for operators"),
            rollback: Some(
                "`Mode::Enforce`, once the last query on this page finds nothing that it should not. In shadow this alert \
                 cannot fire.",
            ),
            ..Step::default()
        },
        look("See what is in force where: nothing is forgotten in shadow.", ask::which_mode()),
        look("In shadow: who would be refused.", ask::who_would_be_refused()),
    ];
    let causes = vec![
        Possible {
            cause: "More comes than yesterday.",
            query: ask::more_comes_than_yesterday(),
            it_is_this: "a service is far above 1, and its places are held for as long as ever (b).",
            then: "find out who sends it: a caller's retries (`oneclock playbook retries-off`, there), a job, a crowd. More \
                   processes help if what stands behind them has room. Say of calls that can be done without that they are \
                   `optional`: those go first.",
            rollback: "the old number of processes, when it is near 1.",
        },
        Possible {
            cause: "Something that the work waits for is slower, so that each place is held for longer.",
            query: format!(
                "# places, against yesterday\n{}\n\n# dependencies, against yesterday\n{}",
                ask::places_are_held_for_longer(),
                ask::a_dependency_is_slower()
            ),
            it_is_this: "a place is held for far longer than yesterday, and one dependency is far above 1, too.",
            then: "go on there: it is that service's incident. If the handler holds a place of a pool of ours while it waits for \
                   another service, it should give it back before (`vacate`).",
            rollback: "the deploy before, if you changed the handler.",
        },
        Possible {
            cause: "The number of places is wrong.",
            query: ask::places_and_who_has_them(),
            it_is_this: "all places are taken and the resource itself is not busy: the pool has connections that nobody uses, \
                         the processor has nothing to do. Or there are more places than the pool has connections, and requests \
                         wait once more behind them.",
            then: "make the number that of the resource: a pool's size where there is one (`Settings::fixed`). Where nobody \
                   knows it, let it be found (`Settings::adaptive`).",
            rollback: "the old number.",
        },
        Possible {
            cause: "The estimate is off: one sort of work is refused that would have been done.",
            query: ask::what_work_needs(),
            it_is_this: "the refusals are `doomed`, of one route, and what it is said to need is far above what it takes. Much \
                         that was cut off makes it a lower bound; work of two sorts under one route makes it that of the slower.",
            then: "give the two sorts routes of their own. If callers in truth give less than it takes, tell them: no admission \
                   helps those.",
            rollback: "the deploy before.",
        },
    ];
    Page {
        causes,
        ..begin(
            "Requests that are needed get no place",
            "More than one request in twenty is refused: no place would have been free in time, or more comes than goes. The \
             service protects itself, and its callers feel it.",
            steps,
        )
    }
}
