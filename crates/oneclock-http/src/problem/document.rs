//! A problem as HTTP says it: a problem document (RFC 9457), and the ledger in it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Response, StatusCode};
use oneclock_core::ledger::{EntryId, Ledger};
use oneclock_core::wire::server_timing::Account;
use oneclock_core::{Tick, Trust};
use serde_json::{Map, Value, json};

use super::{PROBLEM_JSON, Problem};
use crate::names;

impl Problem {
    /// The response for a caller of this trust.
    pub fn to_response(&self, trust: Trust) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(self.document(trust).to_string()));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.write_extensions(&mut response);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        self.write_reason(headers);
        self.write_retry_after(headers);
        response
    }

    pub(super) fn write_extensions(&self, response: &mut Response<Bytes>) {
        if let Some(nothing) = self.nothing {
            response.extensions_mut().insert(nothing);
        }
    }

    pub(super) fn write_reason(&self, headers: &mut HeaderMap) {
        if let Some(reason) = self.reason {
            headers.insert(names::REASON, HeaderValue::from_static(reason.as_str()));
        }
    }

    /// Only where coming again is welcome, and only if it fits what the caller has left.
    pub(super) fn write_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(wait) = self.come_again_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
    }

    fn document(&self, trust: Trust) -> Value {
        let mut document = Map::new();
        let kind = self.word.map_or_else(|| "about:blank".to_owned(), |word| format!("urn:oneclock:{word}"));
        document.insert("type".into(), kind.into());
        document.insert("title".into(), self.title.as_ref().into());
        document.insert("status".into(), self.status.into());
        if let Some(detail) = &self.detail {
            document.insert("detail".into(), detail.as_str().into());
        }
        if trust == Trust::Inside {
            self.insights(&mut document);
        }
        Value::Object(document)
    }

    fn insights(&self, document: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                document.insert(name.into(), value);
            }
        };
        put("insight", self.insight.as_deref().map(Value::from));
        put("bound", self.bound.map(|bound| bound.by.as_str().into()));
        put("budget_ms", self.bound.map(|bound| millis(bound.limit)));
        put("stage", self.stage.map(|stage| stage.as_str().into()));
        put("elapsed_ms", self.elapsed.map(millis));
        put("remaining_ms", self.remaining.map(millis));
        put("outcome", self.outcome.map(|outcome| outcome.as_str().into()));
        put("ledger", self.ledger.as_ref().map(|(ledger, until)| ledger_json(ledger, *until)));
    }
}

/// A ledger as JSON: its entries with their parts and with what the far side told of its own (`there`), what was folded, and
/// what no entry covers.
pub fn ledger_json(ledger: &Ledger, until: Tick) -> Value {
    let folded: Vec<Value> = ledger
        .folded()
        .iter()
        .map(|folded| json!({ "name": folded.name.as_str(), "count": folded.count, "sum_ms": millis(folded.sum) }))
        .collect();
    let mut account = json!({
        "entries": entries_json(ledger, None, until),
        "unaccounted_ms": millis(ledger.unaccounted(until)),
    });
    if !folded.is_empty() {
        account["folded"] = folded.into();
    }
    account
}

fn entries_json(ledger: &Ledger, part_of: Option<EntryId>, until: Tick) -> Vec<Value> {
    ledger
        .parts_of(part_of)
        .map(|(id, entry)| {
            let mut json = json!({
                "name": entry.name.as_str(),
                "stage": entry.stage.as_str(),
                "at_ms": millis(entry.began.since(ledger.began())),
                "took_ms": millis(entry.ended.unwrap_or(until).since(entry.began)),
            });
            if entry.ended.is_none() {
                json["open"] = true.into();
            }
            // Entries nest two deep: a call and its stages.
            let parts = if part_of.is_none() { entries_json(ledger, Some(id), until) } else { Vec::new() };
            if !parts.is_empty() {
                json["parts"] = parts.into();
            }
            if let Some(told) = ledger.told_of(id) {
                json["there"] = account_json(told);
            }
            json
        })
        .collect()
}

/// What the far side of an entry told of its own time.
fn account_json(account: &Account) -> Value {
    let entries = account.spent.iter();
    let entries: Vec<Value> =
        entries.map(|spent| json!({ "name": spent.name.as_str(), "took_ms": millis(spent.took) })).collect();
    json!({
        "operation": account.operation.as_str(),
        "took_ms": millis(account.took),
        "entries": entries,
        "unaccounted_ms": millis(account.unaccounted),
        "left_ms": millis(account.left),
    })
}

/// Milliseconds with three decimals, which is what the clock is good for.
pub(super) fn millis(span: Duration) -> Value {
    let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    if micros % 1_000 == 0 { (micros / 1_000).into() } else { (micros as f64 / 1_000.0).into() }
}
