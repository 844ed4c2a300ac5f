//! What is asked of the server: one command or a pipeline of them.
//!
//! Decides where it may run, what of it the server holds back and for how long, and what is left to do with an answer that nobody
//! took. What one command needs is told by `command`.

use std::borrow::Cow;
use std::time::Duration;

use redis::{Cmd, Pipeline, Value};

use crate::command::{
    LAST_IN_MILLIS, Needs, held_for, is_one_of, is_script, name_of, needs, put_back, reads, server_holds,
};
use crate::error::Access;

/// One command or several, sent together.
#[derive(Clone, Debug)]
pub(crate) enum Request<'a> {
    One(Cow<'a, Cmd>),
    Many { asked: Cow<'a, Pipeline>, sent: Cow<'a, Pipeline> },
}

/// What an answer that nobody took says of the server, and what can be done about it.
#[derive(Clone, Debug)]
pub(crate) enum Orphan {
    /// Nothing was taken.
    Nothing,
    /// An element was taken out; this puts it back to where it was.
    PutBack(Cmd),
    /// It was done, and stays so: what was moved is where others find it; what cannot be put back is gone.
    Done,
}

/// How long the server holds the commands of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) each: Duration,
    pub(crate) commands: u32,
}

/// Where a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Shared,
    Own,
}

/// A command that cannot be sent on a connection that others use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotShared {
    pub(crate) command: String,
    pub(crate) instead: &'static str,
}

// === Request ===

impl<'a> Request<'a> {
    pub(crate) fn one(command: &'a Cmd) -> Self {
        if command.is_no_response() {
            // Without its answer nothing would be known of it.
            let mut command = command.clone();
            command.set_no_response(false);
            return Self::One(Cow::Owned(command));
        }
        Self::One(Cow::Borrowed(command))
    }

    pub(crate) fn many(pipeline: &'a Pipeline) -> Self {
        Self::Many { asked: Cow::Borrowed(pipeline), sent: Cow::Borrowed(pipeline) }
    }

    fn commands(&self) -> Box<dyn Iterator<Item = &Cmd> + '_> {
        match self {
            Self::One(command) => Box::new(std::iter::once(command.as_ref())),
            Self::Many { asked, .. } => Box::new(asked.cmd_iter()),
        }
    }

    /// Where it may run: where the most demanding of its commands may.
    pub(crate) fn needs(&self) -> Result<Place, NotShared> {
        let mut place = Place::Shared;
        for command in self.commands() {
            match needs(command) {
                Needs::Shared => {}
                // In a transaction nothing blocks: the server answers at once that nothing is there.
                Needs::Own(_) if self.is_atomic() => {}
                Needs::Own(_) if is_one_of(name_of(command).as_bytes(), LAST_IN_MILLIS) && !self.is_pipeline() => {
                    let instead = "it waits for the writes of its own connection: send it in one pipeline behind them";
                    return Err(NotShared { command: name_of(command), instead });
                }
                Needs::Own(_) => place = Place::Own,
                Needs::Refused { instead } => return Err(NotShared { command: name_of(command), instead }),
            }
        }
        Ok(place)
    }

    /// The same, with each command that blocks held by the server for its part of what is left. `None` if that is too little.
    pub(crate) fn fitted(self, left: Duration) -> Option<(Self, Held)> {
        let blocking = self.commands().filter(|command| matches!(needs(command), Needs::Own(_))).count();
        let commands = u32::try_from(blocking.max(1)).unwrap_or(u32::MAX);
        let held = server_holds(left / commands)?;
        let fit = |command: &Cmd| match needs(command) {
            Needs::Own(timeout) => Some(held_for(command, timeout, held)),
            Needs::Shared | Needs::Refused { .. } => None,
        };
        let fitted = match self {
            Self::One(command) => match fit(&command) {
                Some(fitted) => Self::One(Cow::Owned(fitted)),
                None => Self::One(command),
            },
            Self::Many { asked, .. } => {
                let mut sent = Pipeline::with_capacity(asked.len());
                for command in asked.cmd_iter() {
                    sent.add_command(fit(command).unwrap_or_else(|| command.clone()));
                }
                Self::Many { asked, sent: Cow::Owned(sent) }
            }
        };
        Some((fitted, Held { each: held, commands }))
    }

    /// What it does to the server, as far as its words tell.
    pub(crate) fn access(&self) -> Access {
        if self.commands().all(reads) { Access::Reads } else { Access::Writes }
    }

    /// Whether an error of the server leaves open how much of it was done.
    pub(crate) fn may_be_half_done(&self) -> bool {
        self.access() != Access::Reads && (self.is_pipeline() || self.commands().any(is_script))
    }

    /// The same, for a task.
    pub(crate) fn into_owned(self) -> Request<'static> {
        match self {
            Self::One(command) => Request::One(Cow::Owned(command.into_owned())),
            Self::Many { asked, sent } => {
                Request::Many { asked: Cow::Owned(asked.into_owned()), sent: Cow::Owned(sent.into_owned()) }
            }
        }
    }

    /// What became of an answer that came after its caller had left.
    pub(crate) fn orphan(&self, answer: &Value) -> Orphan {
        match (self, answer) {
            (_, Value::Nil) => Orphan::Nothing,
            (Self::One(command), _) => put_back(command, answer).map_or(Orphan::Done, Orphan::PutBack),
            (Self::Many { .. }, _) => Orphan::Done,
        }
    }

    /// Whether the server can be asked to let it go: a single command, since the next one of a pipeline would begin then.
    pub(crate) fn can_be_let_go(&self) -> bool {
        !self.is_pipeline()
    }

    fn is_pipeline(&self) -> bool {
        matches!(self, Self::Many { .. })
    }

    fn is_atomic(&self) -> bool {
        matches!(self, Self::Many { asked, .. } if asked.is_transaction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::words;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn command(text: &str) -> Cmd {
        let mut command = Cmd::new();
        for word in text.split(' ') {
            command.arg(word);
        }
        command
    }

    fn text(command: &Cmd) -> String {
        words(command).map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn held(asked: &str, left: Duration, want: &str) {
        let asked = command(asked);
        match Request::one(&asked).fitted(left) {
            Some((Request::One(fitted), _)) => assert_eq!(text(&fitted), want),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn i2_the_server_holds_a_blocking_command_no_longer_than_what_is_left() {
        held("BLPOP jobs 0", ms(5_000), "BLPOP jobs 4.950");
        held("blpop jobs 30", ms(5_000), "blpop jobs 4.950");
        held("BRPOP jobs more 0.5", ms(5_000), "BRPOP jobs more 0.500");
        held("BLMOVE a b LEFT RIGHT 0", ms(80), "BLMOVE a b LEFT RIGHT 0.070");
        held("BZPOPMIN z 9", ms(800), "BZPOPMIN z 0.750");
        held("BLMPOP 0 2 a b LEFT", ms(800), "BLMPOP 0.750 2 a b LEFT");
        held("XREAD COUNT 1 BLOCK 0 STREAMS s $", ms(800), "XREAD COUNT 1 BLOCK 750 STREAMS s $");
        held("XREADGROUP GROUP g c BLOCK 100 STREAMS s >", ms(800), "XREADGROUP GROUP g c BLOCK 100 STREAMS s >");
        held("BLPOP jobs soon", ms(800), "BLPOP jobs soon");
        held("BLPOP jobs -1", ms(800), "BLPOP jobs -1");
        held("GET 5", ms(800), "GET 5");
    }

    #[test]
    fn zero_is_never_sent_since_it_means_for_ever() {
        let blpop = command("BLPOP jobs 0");
        assert!(Request::one(&blpop).fitted(ms(2)).is_none());
        for left in 3..2_000 {
            let Some((Request::One(fitted), _)) = Request::one(&blpop).fitted(ms(left)) else {
                panic!("{left} ms left")
            };
            let seconds: f64 = text(&fitted).rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap();
            assert!(seconds >= 0.001 && seconds < left as f64 / 1_000.0, "{left} ms left, {seconds} s sent");
        }
        let asked = command("BLPOP jobs 0.0001");
        let Some((Request::One(fitted), _)) = Request::one(&asked).fitted(ms(500)) else { panic!() };
        assert_eq!(text(&fitted), "BLPOP jobs 0.001");
    }

    #[test]
    fn blocking_commands_of_one_pipeline_share_what_is_left() {
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("k").arg(1).ignore().cmd("WAIT").arg(1).arg(0).cmd("BLPOP").arg("jobs").arg(0);
        let request = Request::many(&pipeline);
        assert_eq!(request.needs(), Ok(Place::Own));
        let Some((Request::Many { sent, .. }, held)) = request.fitted(ms(1_000)) else { panic!() };
        assert_eq!(sent.cmd_iter().map(text).collect::<Vec<_>>(), ["SET k 1", "WAIT 1 450", "BLPOP jobs 0.450"]);
        assert_eq!(held, Held { each: ms(450), commands: 2 });
    }

    #[test]
    fn what_blocks_gets_a_connection_of_its_own_and_what_changes_one_is_refused() {
        let needs = |text| Request::one(&command(text)).needs().map_err(|not| not.command);
        for text in ["BLPOP k 1", "bzpopmax k 1", "XREAD BLOCK 0 STREAMS s $", "BLMOVE a b LEFT LEFT 1"] {
            assert_eq!(needs(text), Ok(Place::Own), "{text}");
        }
        for text in ["GET k", "XREAD STREAMS block 0", "CLIENT ID", "EVAL s 0", "NEW.COMMAND"] {
            assert_eq!(needs(text), Ok(Place::Shared), "{text}");
        }
        for text in ["subscribe c", "MULTI", "WATCH k", "SELECT 1", "client reply off", "MONITOR", "WAIT 1 0"] {
            assert!(needs(text).is_err(), "{text}");
        }
        let mut atomic = redis::pipe();
        atomic.atomic().cmd("BLPOP").arg("jobs").arg(0);
        assert_eq!(Request::many(&atomic).needs(), Ok(Place::Shared), "in a transaction it does not block");
        atomic.cmd("SELECT").arg(1);
        assert!(Request::many(&atomic).needs().is_err());
    }

    #[test]
    fn what_was_popped_for_nobody_is_put_back_to_where_it_was() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let back = |asked: &str, answer: Value| match Request::one(&command(asked)).orphan(&answer) {
            Orphan::PutBack(command) => text(&command),
            other => format!("{other:?}"),
        };
        let element = || Value::Array(vec![bulk("jobs"), bulk("j1")]);
        assert_eq!(back("blpop jobs 0", element()), "LPUSH jobs j1");
        assert_eq!(back("BRPOP jobs more 0", element()), "RPUSH jobs j1");
        let scored = Value::Array(vec![bulk("z"), bulk("m"), bulk("1.5")]);
        assert_eq!(back("BZPOPMIN z 0", scored), "ZADD z NX 1.5 m");
        assert_eq!(back("BLMOVE a b LEFT RIGHT 0", bulk("j1")), "Done");
        assert_eq!(back("BLPOP jobs 0", Value::Nil), "Nothing");
    }

    #[test]
    fn only_what_is_known_to_read_is_read_only() {
        let access = |text| Request::one(&command(text)).access();
        assert_eq!((access("get k"), access("XREAD STREAMS s 0")), (Access::Reads, Access::Reads));
        for text in ["SET k 1", "INCR k", "EVAL s 0", "GETDEL k", "XREADGROUP GROUP g c STREAMS s >", "NEW.COMMAND"] {
            assert_eq!(access(text), Access::Writes, "{text}");
        }
        let mut pipeline = redis::pipe();
        pipeline.cmd("GET").arg("a").cmd("GET").arg("b");
        assert_eq!(Request::many(&pipeline).access(), Access::Reads);
        pipeline.cmd("DEL").arg("a");
        assert_eq!(Request::many(&pipeline).access(), Access::Writes);
        assert!(Request::many(&pipeline).may_be_half_done());
    }
}
