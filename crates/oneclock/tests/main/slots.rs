//! What an observer keeps beside operations and calls, and what of it goes out with a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use oneclock::events::{CallBegan, Downstream, Event, Fields, Late, Observer, RanOn, Slot};
use oneclock::{MayRunOn, Operation, clock, zombies};
use oneclock_core::{BoundBy, Budget, Name, Outcome};

use crate::support::{Recorder, begun, ms};

/// Numbers the calls, as a tracer would give them spans.
#[derive(Default)]
struct Numbers {
    begun: Mutex<Vec<(String, Downstream, Duration, u32)>>,
    over: Mutex<Vec<(String, Option<usize>)>>,
}

impl Observer for Numbers {
    fn on(&self, event: &Event<'_>) {
        let (what, slot) = match event {
            Event::Called(called) => (&called.call, &called.slot),
            Event::Ended(ended) => (ended.operation, ended.slot),
            _ => return,
        };
        self.over.lock().unwrap().push((what.to_string(), slot.get::<usize>().copied()));
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        let mut begun = self.begun.lock().unwrap();
        begun.push((call.call.to_string(), call.downstream, call.remaining, call.attempt));
        Slot::of(begun.len())
    }

    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        if let Some(number) = slot.get::<usize>()
            && fields.get("x-number") != Some("mine")
        {
            fields.set("x-number", &number.to_string());
            fields.remove("x-stale");
        }
    }
}

#[derive(Default)]
struct Sent(std::collections::BTreeMap<String, String>);

impl Fields for Sent {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn set(&mut self, name: &'static str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    fn remove(&mut self, name: &'static str) {
        self.0.remove(name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_comes_back_with_the_end_of_its_call_and_of_its_operation() {
    let numbers = Arc::new(Numbers::default());
    let op = Operation::begin("order", ms(800)).observed_by(numbers.clone());
    op.keep(Slot::of(7_usize));
    op.keep(Slot::of(8_usize)); // the first one stays
    let stock = op.grant("stock").cap(ms(300)).call().unwrap();
    let rows = op.grant("rows").to(Downstream::Database).call().unwrap();
    let mut sent = Sent::default();
    sent.set("x-stale", "yes");
    rows.carry(&mut sent);
    assert_eq!(sent.0, [("x-number".to_owned(), "2".to_owned())].into());
    sent.set("x-number", "mine");
    rows.carry(&mut sent);
    assert_eq!(sent.get("x-number"), Some("mine"), "what the application put there is seen");
    rows.close(Outcome::Applied);
    drop(stock); // abandoned: its slot comes back all the same
    drop(op);
    let began =
        [("stock".to_owned(), Downstream::Service, ms(800), 1), ("rows".to_owned(), Downstream::Database, ms(800), 1)];
    assert_eq!(*numbers.begun.lock().unwrap(), began);
    let over = [("rows".to_owned(), Some(2)), ("stock".to_owned(), Some(1)), ("order".to_owned(), Some(7))];
    assert_eq!(*numbers.over.lock().unwrap(), over);
}

#[tokio::test(start_paused = true)]
async fn what_is_begun_for_an_operation_knows_its_slot_and_has_none_of_its_own() {
    let op = Operation::begin("order", ms(800));
    op.keep(Slot::of(7_usize));
    let number = |op: &Operation| op.nearest_slot().get::<usize>().copied();
    let part = op.grant("pricing").operation().unwrap();
    let mail = part.detach("mail", ms(100), "the mail may be slow");
    let attachment = mail.grant("attachment").operation().unwrap();
    assert_eq!([number(&part), number(&mail), number(&attachment)], [Some(7); 3]);
    assert!(mail.slot().is_none() && attachment.slot().is_none(), "theirs to fill");
    attachment.keep(Slot::of(8_usize));
    assert_eq!(number(&attachment), Some(8));
    assert_eq!(number(&Operation::begin("nightly", ms(100))), None);
}

/// Events are sent from destructors: unguarded, the second panic would abort the process.
#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_takes_nobody_along() {
    let op = Operation::begin("order", ms(800)).observed_by(Arc::new(|_: &Event<'_>| panic!("of the observer")));
    let unwound = tokio::spawn(async move {
        let _call = op.grant("stock").call().unwrap();
        panic!("of the handler");
    });
    let panic = unwound.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"of the handler"));
}

#[tokio::test(start_paused = true)]
async fn the_route_of_a_request_is_known_to_all_that_is_begun_for_it() {
    let now = clock::now();
    let budget = Budget::begin(BoundBy::Caller, ms(800), now);
    let route = Name::from("/orders/{id}");
    let driver = Operation::arrive("order".into(), now, budget, None, None, None).on_route(route.clone());
    let op = driver.operation();
    assert_eq!(op.route(), Some(&route));
    let child = op.grant("pricing").operation().unwrap();
    assert_eq!(child.route(), Some(&route));
    assert_eq!(op.detach("mail", ms(100), "the mail may be slow").route(), Some(&route));
    assert_eq!(Operation::begin("nightly", ms(100)).route(), None);
}

/// I14: counted while it runs, from the moment on when nobody waits for it, and not before.
#[tokio::test(start_paused = true)]
async fn i14_what_runs_for_nobody_is_counted_while_it_does() {
    let recorder = Recorder::new();
    let before = zombies();
    let op = begun("report", ms(100), &recorder);
    let statement = MayRunOn::new(&op, RanOn::Statement);
    let (work, done) = crate::finish::step(300);
    let step = tokio::spawn({
        let op = op.clone();
        async move { op.must_finish("charge", ms(5_000), work).await }
    });
    tokio::time::sleep(ms(50)).await;
    assert_eq!(zombies(), before, "somebody waits for both");
    tokio::time::sleep(ms(100)).await; // past the deadline, which nobody asked about
    let now = zombies();
    assert_eq!((now.statements - before.statements, now.must_finish - before.must_finish), (1, 1));
    assert_eq!(now.total() - before.total(), 2);
    step.await.unwrap().unwrap_err();
    drop(op); // an operation that has gone is over as well
    assert_eq!(zombies().statements - before.statements, 1);
    drop(statement);
    done.await.unwrap();
    crate::support::settle().await;
    assert_eq!(zombies(), before);
}

/// Which slot the last event of each operation brings, and the nearest.
#[derive(Default)]
struct Nearest(Mutex<Vec<Brought>>);

type Brought = (String, Option<usize>, Option<usize>);

impl Observer for Nearest {
    fn on(&self, event: &Event<'_>) {
        if let Event::Ended(ended) = event {
            let number = |slot: &Slot| slot.get::<usize>().copied();
            let ended = (ended.operation.to_string(), number(ended.slot), number(ended.nearest_slot));
            self.0.lock().unwrap().push(ended);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_what_serves_an_operation_brings_the_slot_of_that() {
    let nearest = Arc::new(Nearest::default());
    let now = clock::now();
    let budget = Budget::begin(BoundBy::Caller, ms(800), now);
    let driver = Operation::arrive("order".into(), now, budget, None, None, Some(nearest.clone()));
    let op = driver.operation().clone();
    op.keep(Slot::of(7_usize));
    op.must_finish("charge", ms(5_000), async { Ok::<_, ()>(()) }).await.unwrap();
    drop(op.detach("mail", ms(100), "the mail may be slow"));
    let stream = op.begin_stream(ms(5_000), BoundBy::Cap);
    driver.finish();
    drop(stream);
    let told = nearest.0.lock().unwrap().clone();
    let told: Vec<_> = told.iter().map(|(name, own, nearest)| (name.as_str(), *own, *nearest)).collect();
    // The stream is the request's own, behind its head.
    let of_the_request = [("order", Some(7), Some(7)), ("order", Some(7), Some(7))];
    assert_eq!(told, [&[("charge", None, Some(7)), ("mail", None, Some(7))][..], &of_the_request].concat());
}

/// What the result was of decides whether it is an answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_late_is_told_from_a_step_that_is() {
    #[derive(Default)]
    struct Results(Mutex<Vec<Late>>);
    impl Observer for Results {
        fn on(&self, event: &Event<'_>) {
            if let Event::Late { result, .. } = event {
                self.0.lock().unwrap().push(*result);
            }
        }
    }
    let results = Arc::new(Results::default());
    let op = Operation::begin("order", ms(100)).observed_by(results.clone());
    op.tell_if_answer_is_late();
    op.tell_if_late(op.deadline());
    assert_eq!(*results.0.lock().unwrap(), [], "neither is");
    tokio::time::advance(ms(130)).await;
    op.tell_if_answer_is_late();
    op.tell_if_late(op.deadline());
    assert_eq!(*results.0.lock().unwrap(), [Late::Answer, Late::Step]);
}
