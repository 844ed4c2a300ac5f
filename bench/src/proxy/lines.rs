//! A caller's connection, and what is asked on it.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use oneclock_bench::Failed;
use oneclock_bench::line::{self, Http1, Http2};

use crate::origin::ANSWER;
use crate::system::Protocol;

#[derive(Debug)]
pub(crate) enum Line {
    Http1(Http1),
    Http2(Http2),
}

impl Line {
    pub(crate) async fn connect(to: SocketAddr, protocol: Protocol) -> Result<Self, Failed> {
        Ok(match protocol {
            Protocol::Http1 => Self::Http1(line::http1(to).await?),
            Protocol::Http2 => Self::Http2(line::http2(to).await?),
        })
    }

    /// `number` of them.
    pub(crate) async fn several(number: usize, to: SocketAddr, protocol: Protocol) -> Result<Vec<Self>, Failed> {
        let mut lines = Vec::with_capacity(number);
        for _ in 0..number {
            lines.push(Self::connect(to, protocol).await?);
        }
        Ok(lines)
    }

    /// Asks once, and reads the answer to its end. Anything but what the service says is an error.
    pub(crate) async fn ask(&mut self) -> Result<(), Failed> {
        let answer = match self {
            Self::Http1(line) => {
                line.ready().await?;
                line.send_request(request("/cart?id=7")?).await?
            }
            Self::Http2(line) => {
                line.ready().await?;
                line.send_request(request("http://bench/cart?id=7")?).await?
            }
        };
        let (head, body) = answer.into_parts();
        let said = body.collect().await?.to_bytes();
        if head.status != StatusCode::OK || *said != *ANSWER {
            return Err(format!("the answer was {} with {} bytes", head.status, said.len()).into());
        }
        Ok(())
    }
}

/// As a browser or a service asks, with a budget.
fn request(target: &str) -> Result<Request<Full<Bytes>>, Failed> {
    let mut request = Request::get(target)
        .header("user-agent", "bench/1.0")
        .header("accept", "application/json")
        .header("accept-encoding", "gzip, br")
        .header("x-remaining-ms", "1900");
    if target.starts_with('/') {
        request = request.header("host", "bench");
    }
    Ok(request.body(Full::default())?)
}
