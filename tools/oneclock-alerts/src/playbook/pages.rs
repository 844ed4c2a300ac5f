//! The entries of the playbook. Each is read by somebody who was woken up: the first step is something to look at, and
//! nothing is changed before it is known what for.

use super::{Page, Possible, Step, questions as ask};

pub(super) fn page(title: &'static str, when: &'static str, steps: Vec<Step>) -> Page {
    Page { name: "", title, when, alerts: Vec::new(), steps, causes: Vec::new() }
}

pub(super) fn look(action: &'static str, query: String) -> Step {
    Step { action, query: Some(query), ..Step::default() }
}

fn act(action: &'static str, rollback: &'static str) -> Step {
    Step { action, rollback: Some(rollback), ..Step::default() }
}

pub(super) fn timeouts() -> Page {
    let steps = vec![
        look(
            "See which routes run out of time, by what had made their deadline, and where they were then. `oneclock \
             dashboard` has the same over time.",
            ask::where_they_ran_out(),
        ),
        Step {
            action: "Change nothing yet. A restart and a longer timeout are what comes to mind first, and either makes \
                     some of the five causes below worse.",
            ..Step::default()
        },
        Step {
            action: "Find out which of the five it is. Ask all five: two at a time are common, and then the one that began \
                     first counts. Of a single request `oneclock explain` tells where its time went.",
            ..Step::default()
        },
        act(
            "Do what stands there under \"then\", one thing at a time, and wait for two windows of the alert between them.",
            "in the opposite order, one thing at a time.",
        ),
        look(
            "It is over when this is back to what it was yesterday, for half an hour. Then take back what was changed, and \
             write down which of the five it was.",
            ask::which_bound(),
        ),
    ];
    let causes = vec![
        Possible {
            cause: "A dependency is slower.",
            query: ask::a_dependency_is_slower(),
            it_is_this: "one dependency is far above 1 (its 90th percentile against yesterday's) and the others are not.",
            then: "go on there: it is that service's incident. Meanwhile keep its slowness from yours: switch retries to it \
                   off (`oneclock playbook retries-off`), and if the answer can do without it, break the circuit \
                   (`oneclock playbook breaker`).",
            rollback: "switch retries on again when it is near 1; the circuit last.",
        },
        Possible {
            cause: "Callers give less than they did.",
            query: ask::callers_give_less(),
            it_is_this: "a route is far below 1: the median of what its callers give, against yesterday's. Its own duration \
                         has not changed, and the bound in the first step is `caller`.",
            then: "tell the caller's team. Nothing here is broken: a longer ceiling changes nothing, since a caller can only \
                   shorten. Where callers are several hops away, look for the hop that spends more than it did: (a), asked \
                   there. Budgets below what a route usually takes are not in the alerts.",
            rollback: "nothing was changed here.",
        },
        Possible {
            cause: "It waits before the work: for a place in a queue, or for a connection.",
            query: ask::it_waits_before_the_work(),
            it_is_this: "a large part is near 1: what ran out of time was still waiting. The dependency's own time (a) has \
                         hardly changed.",
            then: "see who holds the places. Zombies (`oneclock playbook zombies`) or one slow statement: end those. Else \
                   there is more load than places: refuse sooner by a smaller `max_waiting` of the pool, and only then more \
                   connections, if the database has room.",
            rollback: "the old `max_waiting` and the old number of connections, once nothing waits.",
        },
        Possible {
            cause: "Retries feed it.",
            query: ask::retries_feed_it(),
            it_is_this: "a dependency is above 1.2: attempts per first attempt. It may have been something else that began \
                         it; it does not end while this lasts.",
            then: "switch them off for that destination (`oneclock playbook retries-off`). Look for retries that are not \
                   ours, too: of a mesh, of an SDK, of the callers.",
            rollback: "`switch_on()`, when requests have been in time for half an hour.",
        },
        Possible {
            cause: "A bound of our own is too low, or a hop says nothing and the clock starts anew behind it.",
            query: format!(
                "# which bound makes the deadlines that are missed\n{}\n\n# who comes without one\n{}",
                ask::which_bound(),
                ask::who_says_nothing()
            ),
            it_is_this: "`ceiling`, `cap` or `absent` is near 1 in the first, most likely since a deploy. With `absent` the \
                         second says it: requests come without a deadline, so the hop before forwards nothing.",
            then: "`ceiling` or `cap`: measure (`oneclock playbook calibration`), then raise the one, not all. `absent`: \
                   make the hop before forward its deadline (`oneclock playbook deadline-missing`); raising `when_absent` \
                   lets work go on for callers who have left.",
            rollback: "the old bound, or the deploy before.",
        },
    ];
    Page {
        causes,
        ..page(
            "Deadline errors rose: which of the five causes?",
            "More requests than usual run out of time. The count alone does not say why; these questions do.",
            steps,
        )
    }
}

pub(super) fn zombies() -> Page {
    page(
        "Work goes on for nobody",
        "Statements and closures hold their connections and threads although their operation is over. When they hold all of \
         a pool, everything waits.",
        vec![
            look("See where, and what sort of work.", ask::zombies()),
            look("See whose it is.", ask::whose_zombies()),
            Step {
                action: "`statement`: ask the database what it is doing. On PostgreSQL, the longest first:",
                run: Some(
                    "SELECT pid, now() - query_start AS since, state, wait_event_type, left(query, 80)\n\
                     FROM pg_stat_activity WHERE state <> 'idle' ORDER BY since DESC NULLS LAST LIMIT 20;",
                ),
                ..Step::default()
            },
            Step {
                action: "End those that nobody waits for. What waits for a lock ends with the one that holds it, so begin \
                         there. A COMMIT under way is never cancelled.",
                run: Some("SELECT pg_cancel_backend(<pid>);"),
                rollback: Some(
                    "not possible, and not necessary: a cancelled statement is rolled back by the server. Whoever waited \
                     has left before.",
                ),
                ..Step::default()
            },
            Step {
                action: "`blocking`: a closure that does not reach a checkpoint. There is nothing to cancel: find it by the \
                         operation of the second step, and give its loop a checkpoint.",
                rollback: Some("the deploy before."),
                ..Step::default()
            },
            Step {
                action: "If the pool is full and none of this helps, stop feeding it: `oneclock playbook retries-off`, then \
                         restart one process, with its shutdown grace, and see whether its pool fills again before \
                         restarting another.",
                rollback: Some("retries on again; a restart cannot be taken back, which is why it is one."),
                ..Step::default()
            },
            look(
                "Ask why they were not ended. If a layer sees few of the ends that handlers see: `oneclock playbook \
                 propagation`.",
                ask::ends_by_layer(),
            ),
        ],
    )
}

pub(super) fn propagation() -> Page {
    page(
        "Ends are not passed on",
        "Handlers are told that their caller has left or that time is up, and a layer below is not: it works on for nobody. \
         Nothing fails yet; the next slow day it will.",
        vec![
            look(
                "See how many ends each layer sees. Below a layer that sees many, one sees next to none.",
                ask::ends_by_layer(),
            ),
            look(
                "See whether somebody detaches work on purpose. What is detached outlives its caller by design.",
                ask::detached(),
            ),
            Step {
                action: "Look for what came with the last deploy: `tokio::spawn` in a handler (the operation stays behind; \
                         use the operation's own `spawn`), a client without the egress layer, a closure on a blocking \
                         thread without a checkpoint, a driver that is used beside its adapter.",
                ..Step::default()
            },
            Step {
                action: "For a database: a pooler in transaction mode between the service and the server takes cancels to \
                         nobody. The adapter's self-test finds that when the service starts; see its log.",
                ..Step::default()
            },
            act("Deploy the mend, or take the deploy back that brought it.", "the deploy before."),
            look(
                "It is over when both layers see about as many ends, by the share of the time that is spent in each.",
                ask::ends_by_layer(),
            ),
        ],
    )
}

pub(super) fn deadline_missing() -> Page {
    page(
        "Requests arrive without a deadline",
        "Somebody calls and does not say how much time is left, so the clock starts anew here: the work goes on for callers who \
         have left, and whatever is called from here is told a time that nobody has. Nothing fails yet.",
        vec![
            look(
                "See which routes. All of them near 1: the one hop before this service forwards nothing. Some of them, or \
                 a half: one caller of several.",
                ask::who_says_nothing(),
            ),
            Step {
                action: "Are these callers that never send one, such as browsers, webhooks or the probes of the platform? \
                         Then nothing is to be mended: this is an edge. Name it in the policy, by service, operation or \
                         route, and write the rules again.",
                run: Some("deadline_missing:\n  edges:\n  - { job: gateway }\n  - { job: order, operation: webhook }"),
                rollback: Some("take the entry out, once they send one."),
                ..Step::default()
            },
            look(
                "Find the hop. It is told itself and does not forward: of the services that call this one, it is the one \
                 near 0 here while those that it calls are near 1. If none is told, go on towards the edge: the hop is the \
                 first one that knows no deadline, or a proxy before it.",
                ask::which_services_are_not_told(),
            ),
            Step {
                action: "With traces: take one such request and read the bound of each hop. The last one above the first \
                         `bound absent` does not forward. A caller that is in no trace shows in the access log.",
                run: Some("oneclock explain trace.json"),
                ..Step::default()
            },
            Step {
                action: "Ask there what came with the last deploy: a client without the egress layer, or one that is built \
                         for each call beside the one that has it; `tokio::spawn` in a handler, which leaves the operation \
                         behind; an SDK that does not forward; a proxy that lets only known fields through, or that tells \
                         the time in a field which this service does not read.",
                ..Step::default()
            },
            act(
                "Mend the hop, not this service: one process of it first. Deadlines that were hidden hold from then on, so \
                 requests may run out of time that went on for nobody before. That is not the mend's fault.",
                "the deploy before, at the hop.",
            ),
            act(
                "If that takes days, bound what is done for nobody: a `when_absent` here that is no longer than what the \
                 hop's callers wait. Never raise it: it would only go on for longer.",
                "the old `when_absent`, once the hop forwards.",
            ),
            look(
                "It is over when `caller` makes nearly all of this service's deadlines.",
                ask::who_makes_the_deadlines(),
            ),
        ],
    )
}

pub(super) fn retries_off() -> Page {
    page(
        "Switching retries off for one class",
        "Attempts per first attempt are above 1.2, or a dependency is down and must not be fed. A class is what shares one \
         `Retries`: the calls to one destination, or those of one sort to it, if reads and writes have their own.",
        vec![
            look(
                "See which dependency: 1 is no retry at all, 3 is that everything is tried three times.",
                ask::retries_feed_it(),
            ),
            look(
                "See why calls end without a further attempt. `no_tokens` says that the bucket bounds it already; \
                 `hop_below` that a service further down tries again as well.",
                ask::why_it_gave_up(),
            ),
            Step {
                action: "Switch them off in every process, for that class alone. It holds from the next decision on; attempts \
                         that are under way go on. Have a handler for it on an inner port before it is needed:",
                run: Some(
                    "async fn switch(Path(class): Path<String>, State(shop): State<Shop>) -> StatusCode {\n\
                     \x20   match shop.client(&class).and_then(|client| client.destination().retries()) {\n\
                     \x20       Some(retries) => { retries.switch_off(); StatusCode::NO_CONTENT }\n\
                     \x20       None => StatusCode::NOT_FOUND,\n\
                     \x20   }\n\
                     }",
                ),
                rollback: Some("`switch_on()`. A restart does it, too."),
                ..Step::default()
            },
            look("See that it holds: this rises, and attempts per first attempt fall to 1.", ask::switched_off()),
            Step {
                action: "Retries that are not ours go on: Envoy's (`retry_on`), an SDK's, reqwest's own for what HTTP/2 \
                         refused. Switch off what multiplies with ours.",
                rollback: Some("the old route, the old setting."),
                ..Step::default()
            },
            act(
                "When requests have been in time for half an hour, switch them on again: one process first, all others ten \
                 minutes later.",
                "`switch_off()` again, if attempts per first attempt rise above 1.2.",
            ),
        ],
    )
}

pub(super) fn breaker() -> Page {
    page(
        "Breaking the circuit to a dependency",
        "A dependency answers next to nothing, and every call to it costs its callers their time. oneclock has no circuit \
         breaker of its own yet: tokens bound its retries, and calls that could not be useful are not made. The rest is done \
         by hand, in this order.",
        vec![
            look(
                "See that it is worth it: the share of attempts that ran out of time. Below a half, leave it closed.",
                ask::share_without_an_answer(),
            ),
            Step {
                action: "Switch retries to it off first: `oneclock playbook retries-off`. Often that is enough.",
                rollback: Some("`switch_on()`."),
                ..Step::default()
            },
            act(
                "If an answer can do without it, make it cost little: an optional part of a fan-out (`.optional(..)`) with a \
                 small cap on its destination. Callers then get an answer without it, and in time.",
                "the old cap.",
            ),
            act(
                "If it is required, refuse at your own edge what needs it, with 503 and `retry-after`, before any work. A \
                 proxy in front does that for one route without a deploy. Eject no host because its requests ran out of \
                 their own time: it may be the healthy one.",
                "take the refusal out for one process or for a hundredth of the callers first, and look at the query above. \
                 Under a fifth for five minutes: all of them. Else back, and wait twice as long.",
            ),
            look(
                "See what that leaves to its callers: the least that a tenth of the calls have.",
                ask::what_is_left_at_calls(),
            ),
            act("Close the circuit before you switch retries on.", "the other way round is a storm."),
        ],
    )
}

pub(super) fn calibration() -> Page {
    page(
        "Measuring the limits again",
        "More than one request in two hundred has run out of time over a day, or something changed that the limits rest on. \
         A limit is a measurement with a date.",
        vec![
            look(
                "See how long the calls take that a limit is for: the 99th percentile of a day.",
                ask::how_long_calls_take(),
            ),
            look("The same of routes.", ask::how_long_routes_take()),
            look(
                "See how many that rests on. Below 299 it has no upper bound: take a longer time.",
                ask::how_many_were_measured(),
            ),
            look(
                "See how many were cut off. What is cut off is not in the percentile: from one in a hundred on, the 99th is \
                 not known, only that it is longer than the limit. Raise the limit for one process first, and measure there.",
                ask::share_without_an_answer(),
            ),
            act(
                "Choose. Two customs, and they differ: three to five times the 99th percentile; or the percentile that leaves \
                 as many false timeouts as you accept, 99.9 for one in a thousand. Write down both, the number of \
                 measurements, the date, the old limit and the new one.",
                "the old limit, which is written down.",
            ),
            Step {
                action: "The limits of the hops must still fit into each other: what a service gives its calls, with its \
                         reserve, into what its callers give it. No hop is helped by more than its caller has.",
                ..Step::default()
            },
            act("One process for an hour, then all.", "the old limit."),
        ],
    )
}

pub(super) fn overflow() -> Page {
    page(
        "What happens is counted without its name",
        "A metric takes 200 names of operations, routes or dependencies in each process, unless told otherwise; what comes \
         after is counted under `overflow`. Nothing fails and no sum is wrong, but nobody sees any more which of them is in \
         trouble. The log has a warning, once for each metric.",
        vec![
            look("See how much has no name: operations, and calls.", ask::without_a_name()),
            look(
                "See who has how many names. A service has about as many as it has routes and jobs.",
                ask::how_many_names(),
            ),
            look(
                "See what they look like. An id, a date or an address in a name makes one for each customer, day or host.",
                ask::which_names(),
            ),
            Step {
                action: "Take what varies out of the name, in the code that begins the operation or names the destination: \
                         `export`, not `export-4711`. Routes are the router's patterns and cannot grow by themselves; names of \
                         jobs, pools and destinations are what somebody wrote with `format!`.",
                rollback: Some("the deploy before."),
                ..Step::default()
            },
            act(
                "If all of the names are meant, give the metrics more room: `MetricsBuilder::names`. Each name costs a series \
                 for every word that occurs with it, and a histogram one more for every edge.",
                "the old number.",
            ),
            look(
                "It is over when this is gone. Names are kept as long as the process lives, so it takes the restart that comes \
                 with the deploy.",
                ask::without_a_name(),
            ),
        ],
    )
}
