//! Keys over gRPC: tonic's own server and client over sockets, and the words of each protocol in memory with paused time.

mod calls;
mod server;
mod words;
