//! What a caller is told, in each protocol, as the vectors have it (`conformance/statuses.json`). Contract 5, P3, X3, X5.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use http::HeaderMap;
use oneclock_core::{Reason, Trust};
use oneclock_http::{Problem, Protocol};
use serde_json::Value;

fn rows() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/statuses.json");
    let mut vectors: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(vectors["version"], 1);
    serde_json::from_value(vectors["cases"].take()).unwrap()
}

/// The answer to a caller outside: its status, its fields and its document.
fn told(row: &Value, protocol: Protocol) -> (u16, HeaderMap, Value) {
    let reason = Reason::from_word(row["reason"].as_str().unwrap()).unwrap();
    let (head, body) = Problem::new(reason).to_answer(protocol, Trust::Outside).into_parts();
    assert_eq!(head.headers["oneclock-reason"], row["reason"].as_str().unwrap(), "{protocol:?}");
    (head.status.as_u16(), head.headers, serde_json::from_slice(&body).unwrap_or_default())
}

#[test]
fn http_is_told_what_the_vectors_say() {
    for row in rows() {
        let (status, _, document) = told(&row, Protocol::Http);
        assert_eq!((&row["http"], &row["http"]), (&Value::from(status), &document["status"]), "{row}");
    }
}

#[test]
fn grpc_is_told_what_the_vectors_say() {
    for row in rows().into_iter().filter(|row| !row["grpc"].is_null()) {
        let (status, headers, _) = told(&row, Protocol::Grpc);
        assert_eq!((status, headers["grpc-status"].to_str().unwrap()), (200, &*row["grpc"].to_string()), "{row}");
    }
}

/// Where the contract names a code of Connect's, it is told that, and where it names none the one that has gRPC's number: the
/// two are the same list. P3 is the exception, and who takes gRPC's number there too says that the service is broken.
#[test]
fn p3_connect_is_told_what_the_vectors_say() {
    let of_number = [(1, "canceled"), (4, "deadline_exceeded"), (13, "internal"), (14, "unavailable")];
    let mut named = 0;
    for row in rows().into_iter().filter(|row| !row["grpc"].is_null()) {
        let (status, _, document) = told(&row, Protocol::ConnectUnary);
        assert_eq!(row["http"], status, "{row}");
        let (_, by_number) = of_number.iter().find(|(number, _)| row["grpc"] == *number).expect("a code");
        match row.get("connect") {
            Some(code) => {
                named += 1;
                assert_eq!(&document["code"], code, "{row}");
                assert_ne!(document["code"], *by_number, "the naive way: {row}");
            }
            None => assert_eq!(document["code"], *by_number, "{row}"),
        }
    }
    assert_eq!(named, 1);
}
