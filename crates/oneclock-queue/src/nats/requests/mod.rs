//! Request and reply over NATS, with the caller's deadline. Described with the module above.

mod answering;
mod client;
mod error;
mod messages;
mod replies;
mod responder;

pub use client::{Requests, RequestsBuilder};
pub use error::{BadRequests, RequestError};
pub use messages::{Answer, Declined, Question};
pub use responder::{BadResponder, Responder, ResponderBuilder};
