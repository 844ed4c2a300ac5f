//! What of a queue cannot work, found when it is opened.

use std::fmt;
use std::time::Duration;

/// A queue cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadNats {
    /// Its name cannot be one.
    #[error("{name:?} is no name for a queue: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A limit of zero.
    #[error("{limit} of 0 would let nothing through: give it at least 1")]
    Zero {
        /// Which one.
        limit: &'static str,
    },
    /// A lease that no heartbeat could keep.
    #[error(
        "a lease of {lease:?} cannot be kept up, since a third of it has to be enough for the way to the server and back: give it at least 1s"
    )]
    Lease {
        /// The lease.
        lease: Duration,
    },
    /// The stream does not take what is published to this subject.
    #[error(
        "stream {stream} does not take {subject}: add it to its subjects, or name another stream or other subjects"
    )]
    NotTaken {
        /// The stream.
        stream: String,
        /// The subject.
        subject: String,
    },
    /// The stream confirms nothing.
    #[error("stream {stream} confirms nothing (no_ack), so that nobody would know whether work is there")]
    NoAck {
        /// The stream.
        stream: String,
    },
    /// A native time to live was asked for, and the stream does not take one.
    #[error(
        "stream {stream} takes no time to live for a message: that needs a server of 2.11 or newer, and allow_msg_ttl; or leave native_ttl out"
    )]
    NoTtl {
        /// The stream.
        stream: String,
    },
    /// The queue stands otherwise than it is asked for, and others count by how it stands.
    #[error(
        "consumer {consumer} of stream {stream} stands with {stands}, and {said} is asked for: say the same, or nothing, which takes what \
         stands (`declared_elsewhere` makes nothing, either); `change_what_stands` changes lease and max_ack_pending for all who have the \
         queue open"
    )]
    Differs {
        /// The stream.
        stream: String,
        /// The consumer.
        consumer: String,
        /// How it stands.
        stands: Setting,
        /// How it is asked for.
        said: Setting,
    },
    /// The server did not open its stream.
    #[error("stream {stream} could not be opened")]
    Stream {
        /// The stream.
        stream: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server did not open a consumer.
    #[error("consumer {consumer} of stream {stream} could not be opened")]
    Consumer {
        /// The stream.
        stream: String,
        /// The consumer.
        consumer: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A setting of a queue that is one for all who open it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// For how long a delivery is somebody's unless it is renewed.
    Lease(Duration),
    /// How many deliveries may be under way.
    MaxAckPending(i64),
    /// What its consumer reads.
    Subject(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(lease) => write!(f, "a lease of {lease:?}"),
            Self::MaxAckPending(deliveries) => write!(f, "a max_ack_pending of {deliveries}"),
            Self::Subject(subject) => write!(f, "the subject {subject:?}"),
        }
    }
}
