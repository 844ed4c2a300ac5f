//! Places that are taken and those that wait for one, in one word: whether a place is free *and* nobody waits is one look.
//!
//! Decides that a place is never taken past somebody that waits, and that one that begins to wait does so before the last
//! place is given back, or finds it free. All but `take` and `give_back` are called under the lock of the line.

use crate::word::Word;

/// Taken places in the upper half, those that wait in the lower.
pub(super) struct Slots<W>(W);

const BUSY: u64 = 1 << 32;

impl<W: Word> Slots<W> {
    pub(super) fn new() -> Self {
        Self(W::holding(0))
    }

    /// (taken, waiting)
    pub(super) fn now(&self) -> (u32, u32) {
        split(self.0.read())
    }

    /// Takes a place, if one is free and nobody waits.
    pub(super) fn take(&self, limit: u32) -> bool {
        self.change(|busy, waiting| (waiting == 0 && busy < limit).then_some((busy + 1, waiting)))
    }

    /// The same, or one more waits.
    pub(super) fn take_or_wait(&self, limit: u32) -> bool {
        let mut took = false;
        self.change(|busy, waiting| {
            took = waiting == 0 && busy < limit;
            Some(if took { (busy + 1, waiting) } else { (busy, waiting.saturating_add(1)) })
        });
        took
    }

    /// Takes a place whatever the limit: nothing is enforced.
    pub(super) fn take_anyway(&self) {
        self.change(|busy, waiting| Some((busy.saturating_add(1), waiting)));
    }

    /// Gives a place back, if nobody waits for it.
    pub(super) fn give_back(&self) -> bool {
        self.change(|busy, waiting| (waiting == 0).then_some((busy.saturating_sub(1), waiting)))
    }

    /// Gives a place back although somebody waits, if there are more than there may be.
    pub(super) fn give_up_above(&self, limit: u32) -> bool {
        self.change(|busy, waiting| (busy > limit).then_some((busy - 1, waiting)))
    }

    /// Gives a place back for which nobody was found.
    pub(super) fn give_back_last(&self) {
        self.change(|busy, waiting| Some((busy.saturating_sub(1), waiting)));
    }

    /// Takes a further place for somebody that waits.
    pub(super) fn take_for_waiting(&self, limit: u32) -> bool {
        self.change(|busy, waiting| (waiting > 0 && busy < limit).then_some((busy + 1, waiting)))
    }

    /// One waits no longer.
    pub(super) fn stop_waiting(&self) {
        self.change(|busy, waiting| Some((busy, waiting.saturating_sub(1))));
    }

    fn change(&self, mut to: impl FnMut(u32, u32) -> Option<(u32, u32)>) -> bool {
        let mut before = self.0.read();
        loop {
            let (busy, waiting) = split(before);
            let Some((busy, waiting)) = to(busy, waiting) else { return false };
            match self.0.swap_if(before, u64::from(busy) * BUSY + u64::from(waiting)) {
                Ok(()) => return true,
                Err(instead) => before = instead,
            }
        }
    }
}

fn split(word: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    let halves = ((word / BUSY) as u32, word as u32);
    halves
}

#[cfg(test)]
mod model {
    //! Every interleaving of a few threads, tried by loom.

    use super::*;
    use loom::sync::atomic::AtomicU64 as Modelled;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// One place, held by somebody. One asks for it while it is given back: it has it, or it is handed it.
    #[test]
    fn i4_nobody_waits_for_a_place_that_is_free() {
        loom::model(|| {
            let slots = Arc::new(Slots::<Modelled>::new());
            let line = Arc::new(Mutex::new(0_u32)); // those that wait
            assert!(slots.take(1));
            let asking = {
                let (slots, line) = (Arc::clone(&slots), Arc::clone(&line));
                thread::spawn(move || {
                    if slots.take(1) {
                        return true;
                    }
                    let mut line = line.lock().unwrap();
                    if slots.take_or_wait(1) {
                        return true;
                    }
                    *line += 1;
                    false
                })
            };
            let mut handed = false;
            if !slots.give_back() {
                let mut line = line.lock().unwrap();
                if *line > 0 {
                    *line -= 1;
                    slots.stop_waiting();
                    handed = true;
                } else {
                    slots.give_back_last();
                }
            }
            let took = asking.join().unwrap();
            assert!(took ^ handed, "took {took}, handed {handed}");
            assert_eq!(slots.now(), (1, 0));
        });
    }

    /// One place, held by somebody, and one that waits for it and leaves while it is given back. It is handed over and given
    /// back by whoever left, or it is free: it is not lost, and nobody waits.
    #[test]
    fn one_that_leaves_takes_no_place_with_it() {
        fn vacates(slots: &Slots<Modelled>, line: &Mutex<u32>) -> bool {
            if slots.give_back() {
                return false;
            }
            let mut line = line.lock().unwrap();
            if *line == 0 {
                slots.give_back_last();
                return false;
            }
            *line -= 1;
            slots.stop_waiting();
            true
        }
        loom::model(|| {
            let slots = Arc::new(Slots::<Modelled>::new());
            let line = Arc::new(Mutex::new(1_u32));
            assert!(slots.take(1) && !slots.take_or_wait(1));
            let leaving = {
                let (slots, line) = (Arc::clone(&slots), Arc::clone(&line));
                thread::spawn(move || {
                    let mut waiting = line.lock().unwrap();
                    if *waiting > 0 {
                        *waiting -= 1;
                        slots.stop_waiting();
                        return;
                    }
                    drop(waiting); // it was handed the place already, and has no use for it
                    assert!(!vacates(&slots, &line));
                })
            };
            vacates(&slots, &line);
            leaving.join().unwrap();
            assert_eq!(slots.now(), (0, 0));
        });
    }

    #[test]
    fn two_who_ask_for_one_place_do_not_both_have_it() {
        loom::model(|| {
            let slots = Arc::new(Slots::<Modelled>::new());
            let other = Arc::clone(&slots);
            let other = thread::spawn(move || u32::from(other.take(1)));
            let mine = u32::from(slots.take(1));
            assert_eq!(mine + other.join().unwrap(), 1);
        });
    }
}
