//! Several observers in the place of one.

use std::fmt;
use std::sync::Arc;

use oneclock::events::{AnswerHead, CallBegan, Event, Fields, Observer, RequestBegan, Slot, Target};

/// Tells each event to each of its observers, in order. A request and a call have one slot each, which holds what each of them
/// keeps there; of two things of one type the first is found.
///
/// ```
/// use oneclock::events::Counting;
/// use oneclock_telemetry::{Logs, Several, trace::Spans};
/// use std::sync::Arc;
///
/// let all = Several::new().and(Spans::new()).and(Logs::new()).and(Counting::default());
/// let job = oneclock::Operation::begin("job", std::time::Duration::from_secs(1)).observed_by(Arc::new(all));
/// # drop(job);
/// ```
#[derive(Clone, Default)]
pub struct Several(Vec<Arc<dyn Observer>>);

impl Several {
    /// None yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// These, and `observer`.
    #[must_use]
    pub fn and(self, observer: impl Observer) -> Self {
        self.and_shared(Arc::new(observer))
    }

    /// The same, for one that is held elsewhere too.
    #[must_use]
    pub fn and_shared(mut self, observer: Arc<dyn Observer>) -> Self {
        self.0.push(observer);
        self
    }

    fn all(&self, ask: impl Fn(&Arc<dyn Observer>) -> Slot) -> Slot {
        self.0.iter().fold(Slot::default(), |kept, observer| kept.and(ask(observer)))
    }
}

impl Observer for Several {
    fn on(&self, event: &Event<'_>) {
        for observer in &self.0 {
            observer.on(event);
        }
    }

    fn request_began(&self, request: &RequestBegan<'_>) -> Slot {
        self.all(|observer| observer.request_began(request))
    }

    fn begun(&self, call: &CallBegan<'_>) -> Slot {
        self.all(|observer| observer.begun(call))
    }

    fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
        for observer in &self.0 {
            observer.carry(slot, fields);
        }
    }

    fn addressed(&self, slot: &Slot, target: &Target<'_>) {
        for observer in &self.0 {
            observer.addressed(slot, target);
        }
    }

    fn answered(&self, slot: &Slot, answer: &AnswerHead<'_>) {
        for observer in &self.0 {
            observer.answered(slot, answer);
        }
    }
}

impl fmt::Debug for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Several").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::time::Duration;

    use oneclock::Operation;

    use super::*;

    /// Fills the slot with its number, and carries what it finds there.
    struct Number(Option<u8>, Arc<Mutex<Vec<String>>>);

    impl Observer for Number {
        fn on(&self, event: &Event<'_>) {
            if let Event::Called(called) = event {
                self.1.lock().unwrap().push(format!("{:?} {:?}", self.0, called.slot.get::<u8>()));
            }
        }

        fn begun(&self, _: &CallBegan<'_>) -> Slot {
            self.0.map_or_else(Slot::default, Slot::of)
        }

        fn carry(&self, slot: &Slot, fields: &mut dyn Fields) {
            if let (Some(own), Some(kept)) = (self.0, slot.get::<u8>())
                && own == *kept
            {
                fields.set("x-number", &own.to_string());
            }
        }
    }

    #[derive(Default)]
    struct Sent(BTreeMap<&'static str, String>);

    impl Fields for Sent {
        fn get(&self, name: &str) -> Option<&str> {
            self.0.get(name).map(String::as_str)
        }

        fn set(&mut self, name: &'static str, value: &str) {
            self.0.insert(name, value.to_owned());
        }

        fn remove(&mut self, name: &'static str) {
            self.0.remove(name);
        }
    }

    /// Keeps a word beside each call.
    struct Word(Arc<Mutex<Vec<String>>>);

    impl Observer for Word {
        fn on(&self, event: &Event<'_>) {
            if let Event::Called(called) = event {
                self.0.lock().unwrap().push(format!("{:?}", called.slot.get::<&str>()));
            }
        }

        fn begun(&self, _: &CallBegan<'_>) -> Slot {
            Slot::of("word")
        }
    }

    #[test]
    fn each_finds_what_it_keeps_beside_what_others_keep() {
        let heard = Arc::default();
        let one = |number| Number(number, Arc::clone(&heard));
        let all = Several::new().and(one(Some(1))).and(Word(Arc::clone(&heard))).and(one(None));
        let op = Operation::begin("order", Duration::from_secs(1)).observed_by(Arc::new(all));
        drop(op.grant("inventory").call().unwrap());
        assert_eq!(*heard.lock().unwrap(), ["Some(1) Some(1)", "Some(\"word\")", "None Some(1)"]);
    }

    #[test]
    fn each_hears_each_event_and_of_two_of_one_type_the_first_is_found() {
        let heard = Arc::default();
        let one = |number| Number(number, Arc::clone(&heard));
        let all = Several::new().and(one(None)).and(one(Some(1))).and(one(Some(2)));
        let op = Operation::begin("order", Duration::from_secs(1)).observed_by(Arc::new(all));
        let call = op.grant("inventory").call().unwrap();
        let mut sent = Sent::default();
        call.carry(&mut sent);
        assert_eq!(sent.get("x-number"), Some("1"));
        drop(call);
        assert_eq!(*heard.lock().unwrap(), ["None Some(1)", "Some(1) Some(1)", "Some(2) Some(1)"]);
    }
}
