//! What one request does, from its number alone: a run can be repeated, though not its interleaving.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// The field that says whose request it is, and whose answer.
pub(super) const ID: &str = "x-id";
/// The field that tells the service what to do.
pub(super) const DOES: &str = "x-does";
/// What a request gets that says nothing, and the most that it gets.
pub(super) const WHEN_ABSENT: Duration = Duration::from_secs(2);
/// With less left the proxy need not begin: the most that any of its configurations says.
pub(super) const MIN_USEFUL: Duration = Duration::from_millis(6);

/// How a request is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    Http1,
    Http2,
    Grpc,
    WebSocket,
}

/// What the service does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    /// Answers after so many milliseconds, with so many bytes.
    Answers { after: u64, bytes: usize },
    /// Sends the head and half of so many bytes, then resets.
    ResetsMidway { bytes: usize },
    /// Resets without an answer.
    ResetsBefore,
    /// Closes without an answer.
    ClosesBefore,
    /// Never answers.
    Stalls,
}

/// What is said of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Nothing,
    Ms(u64),
    /// A value that cannot be read.
    Malformed,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) way: Way,
    pub(super) does: Does,
    pub(super) said: Said,
    /// To an upstream that takes no connection.
    pub(super) to_nobody: bool,
    /// A POST with so many bytes, else a GET.
    pub(super) upload: Option<usize>,
    /// After which the caller leaves.
    pub(super) leaves: Option<Duration>,
}

impl Plan {
    pub(super) fn of(seed: u64, number: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed.rotate_left(32) ^ number);
        let way = match dice.random_range(0..1_000) {
            0..450 => Way::Http1,
            450..800 => Way::Http2,
            800..995 => Way::Grpc,
            _ => Way::WebSocket,
        };
        let small = dice.random_range(1..2_000);
        let does = match dice.random_range(0..100) {
            0..70 => Does::Answers { after: 0, bytes: small },
            70..74 => Does::Answers { after: 0, bytes: dice.random_range(1..300_000) },
            74..86 => Does::Answers { after: dice.random_range(1..300), bytes: small },
            86..89 => Does::ResetsMidway { bytes: dice.random_range(2..200_000) },
            89..93 => Does::ResetsBefore,
            93..97 => Does::ClosesBefore,
            _ => Does::Stalls,
        };
        let said = match dice.random_range(0..100) {
            0..25 => Said::Nothing,
            25..27 => Said::Ms(0),
            27..29 => Said::Ms(dice.random_range(1..5)),
            29..30 => Said::Malformed,
            30..60 => Said::Ms(dice.random_range(5..200)),
            _ => Said::Ms(dice.random_range(200..3_000)),
        };
        let to_nobody = dice.random_range(0..100) < 3;
        let upload = match dice.random_range(0..100) {
            0..10 => Some(small),
            10..12 => Some(dice.random_range(0..100_000)),
            _ => None,
        };
        let leaves = (dice.random_range(0..100) < 15).then(|| Duration::from_millis(dice.random_range(0..60)));
        if way == Way::WebSocket {
            let does = Does::Answers { after: 0, bytes: 0 }; // what comes back is what was said
            return Self { way, does, said: Said::Nothing, to_nobody: false, upload: None, leaves };
        }
        Self { way, does, said, to_nobody, upload, leaves }
    }

    /// What the proxy gives it at most.
    pub(super) fn budget(&self) -> Duration {
        match self.said {
            Said::Ms(ms) => Duration::from_millis(ms).min(WHEN_ABSENT),
            Said::Nothing | Said::Malformed => WHEN_ABSENT,
        }
    }

    /// Whether it might be repeated without harm.
    pub(super) fn may_repeat(&self) -> bool {
        self.upload.is_none() && self.way != Way::Grpc
    }

    /// Whether something else than an answer may come of it with time left.
    pub(super) fn fails(&self) -> bool {
        self.to_nobody || !matches!(self.does, Does::Answers { .. })
    }
}

/// What is said to the request of this number: as many bytes, all of them its own.
pub(super) fn said_to(id: u64, bytes: usize) -> Vec<u8> {
    let own = format!("{id};");
    own.bytes().cycle().take(bytes).collect()
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::Grpc, Self::WebSocket];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Http1 => "HTTP/1.1",
            Self::Http2 => "HTTP/2",
            Self::Grpc => "gRPC",
            Self::WebSocket => "WebSocket",
        }
    }
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answers { after, bytes } => write!(f, "answers {after} {bytes}"),
            Self::ResetsMidway { bytes } => write!(f, "resets-midway 0 {bytes}"),
            Self::ResetsBefore => f.write_str("resets-before"),
            Self::ClosesBefore => f.write_str("closes-before"),
            Self::Stalls => f.write_str("stalls"),
        }
    }
}

impl FromStr for Does {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(' ');
        let word = words.next();
        let mut number = || words.next().and_then(|number| number.parse::<u64>().ok());
        let (after, bytes) = (number(), number().and_then(|bytes| usize::try_from(bytes).ok()));
        match (word, after, bytes) {
            (Some("answers"), Some(after), Some(bytes)) => Ok(Self::Answers { after, bytes }),
            (Some("resets-midway"), _, Some(bytes)) => Ok(Self::ResetsMidway { bytes }),
            (Some("resets-before"), ..) => Ok(Self::ResetsBefore),
            (Some("closes-before"), ..) => Ok(Self::ClosesBefore),
            (Some("stalls"), ..) => Ok(Self::Stalls),
            _ => Err(format!("nothing to do: {text}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_as_it_was_written() {
        for number in 0..1_000 {
            let does = Plan::of(1, number).does;
            assert_eq!(does.to_string().parse(), Ok(does));
        }
        assert!("answers 1".parse::<Does>().is_err());
    }

    #[test]
    fn what_is_said_to_two_differs() {
        assert_eq!(said_to(12, 7), b"12;12;1");
        assert_ne!(said_to(12, 300), said_to(13, 300));
    }
}
