//! What can go wrong between this process and the broker.

use std::time::Duration;

use lapin::ErrorKind;

/// What went wrong. The source of a [`BrokerError`](crate::BrokerError), or of [`NotSettled::Failed`](crate::NotSettled::Failed).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The address is none.
    #[error("the address is none: {0}")]
    Address(String),
    /// It asks for TLS, which this build does not have.
    #[error("the address asks for TLS, which this build does not have: switch on the feature `rabbitmq-tls`")]
    NoTls,
    /// The queue has no name.
    #[error("the queue has no name")]
    NoName,
    /// A name or an identifier is longer than the protocol takes.
    #[error("a name is longer than the 255 bytes that AMQP takes, with the endings of the lanes")]
    NameTooLong,
    /// A header field's name, the id or the content type is longer than the protocol takes.
    #[error("{0} is longer than the 255 bytes that AMQP takes")]
    TooLong(&'static str),
    /// All header fields together are more than one frame.
    #[error("the header fields take {size} bytes, more than the {most} of a frame that was agreed with the broker")]
    HeadersTooLong {
        /// What they take, in bytes.
        size: usize,
        /// What a frame takes, in bytes.
        most: usize,
    },
    /// The broker did not answer in time.
    #[error("the broker did not answer within {0:?}")]
    TookTooLong(Duration),
    /// No queue takes it.
    #[error("no queue took the message ({code} {text}): is the queue there, and bound to the exchange?")]
    Returned {
        /// The broker's code.
        code: u16,
        /// The broker's words.
        text: String,
    },
    /// A queue refused it.
    #[error("a queue refused the message: it is full, or it failed")]
    Refused,
    /// The channel does not confirm.
    #[error("the broker does not confirm what is published")]
    NotConfirmed,
    /// Nobody may publish any more.
    #[error("the queue was closed")]
    Closed,
    /// What the client or the broker says.
    #[error(transparent)]
    Amqp(#[from] lapin::Error),
}

impl Trouble {
    /// Whether trying again cannot mend it: the broker knows us and refuses, or what was asked is impossible.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Amqp(error) => match error.kind() {
                // Invalid path, access refused, not found, resource locked, precondition failed, not allowed.
                ErrorKind::ProtocolError(error) => matches!(error.get_id(), 402..=406 | 530),
                ErrorKind::AuthProviderError(_) | ErrorKind::InvalidProtocolVersion(_) => true,
                _ => false,
            },
            Self::TookTooLong(_) => false,
            _ => true,
        }
    }
}
