//! For programs: everything, in a shape that only grows. Fields may be added; none is renamed, moved or given another
//! meaning without another [`SCHEMA`]. Times are in milliseconds (`_ms`), lines and columns from one, columns in characters.

use serde_json::{Value, json};

use super::{Report, Way, coverage, words};
use crate::amount::Amount;
use crate::audited::{Audited, Found};
use crate::rules::{Finding, Severity};
use crate::source::Place;

/// The shape's name.
pub(crate) const SCHEMA: &str = "oneclock-audit/1";

impl Report<'_> {
    /// All of it.
    #[must_use]
    pub fn json(&self) -> Value {
        let audited = self.audited;
        let ignored = audited.ignored.iter().map(|ignored| {
            let mut value = finding(&ignored.finding);
            value["reason"] = ignored.reason.as_str().into();
            value["ignored_at"] = place(&ignored.place);
            value
        });
        let known = audited.findings.iter().filter(|found| found.known).count();
        json!({
            "schema": SCHEMA,
            "version": env!("CARGO_PKG_VERSION"),
            "catalogue": crate::catalogue::dated(),
            "totals": {
                "errors": audited.count(Severity::Error),
                "warnings": audited.count(Severity::Warning),
                "notes": audited.count(Severity::Note),
                "in_baseline": known,
                "ignored": audited.ignored.len(),
                "stale": audited.stale.len(),
            },
            "findings": audited.findings.iter().map(found).collect::<Vec<_>>(),
            "ignored": ignored.collect::<Vec<_>>(),
            "stale": audited.stale,
            "ways": self.ways.iter().map(way).collect::<Vec<_>>(),
            "components": self.components(),
            "calls": self.calls(),
            "coverage": covered(audited),
        })
    }

    fn components(&self) -> Vec<Value> {
        let all = self.audited.inventory.components.iter();
        all.map(|component| {
            json!({
                "name": component.name,
                "product": component.product,
                "role": component.role,
                "answers_to": component.names.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "reader": component.reader,
                "at": place(&component.place),
            })
        })
        .collect()
    }

    fn calls(&self) -> Vec<Value> {
        let calls = self.graph.hops.iter();
        calls
            .map(|hop| {
                let settings = hop.limits.all().iter().map(|setting| self::setting(setting));
                json!({
                    "from": self.graph.name(hop.from),
                    "to": self.graph.callee(hop),
                    "answered": hop.to.is_some(),
                    "others": hop.others,
                    "label": hop.call.label,
                    "methods": hop.call.methods,
                    "path": hop.call.path,
                    "propagates": hop.call.propagates,
                    "effects": hop.effects,
                    "streaming": hop.call.streaming,
                    "tries": hop.limits.tries().filter(|_| hop.limits.knows_tries()),
                    "waits": words::patience(&hop.limits),
                    "waits_ms": hop.limits.patience().time().map(millis),
                    "settings": settings.collect::<Vec<_>>(),
                    "at": place(&hop.call.place),
                })
            })
            .collect()
    }
}

fn millis(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn place(place: &Place) -> Value {
    json!({"path": &*place.file, "line": place.line, "column": place.column, "width": place.width})
}

fn finding(finding: &Finding) -> Value {
    let related = finding.related.iter().map(|related| {
        let mut value = place(&related.place);
        value["says"] = related.says.as_str().into();
        value
    });
    json!({
        "rule": finding.rule,
        "severity": finding.severity,
        "says": finding.says,
        "label": finding.label,
        "consequence": finding.consequence,
        "help": finding.help,
        "between": finding.between,
        "at": place(&finding.place),
        "related": related.collect::<Vec<_>>(),
    })
}

fn found(found: &Found) -> Value {
    let mut value = finding(&found.finding);
    value["fingerprint"] = found.fingerprint.as_str().into();
    value["in_baseline"] = found.known.into();
    value
}

fn setting(setting: &crate::inventory::Setting) -> Value {
    let known = setting.known;
    let (limit, count) = (setting.amount.after().map(millis), setting.amount.times());
    json!({
        "id": known.id,
        "product": known.product,
        "key": known.key,
        "kind": known.kind,
        "stated": setting.stated,
        "versions": known.versions,
        "value": setting.amount.to_string(),
        "ms": limit,
        "times": count,
        "unlimited": setting.amount == Amount::Never,
        "at": place(&setting.place),
    })
}

fn way(way: &Way<'_>) -> Value {
    let layers = way.layers.iter().map(|layer| {
        json!({
            "layer": layer.who,
            "kind": layer.setting.map(|setting| setting.known.kind),
            "says": layer.kind,
            "limit": layer.limit,
            "limit_ms": layer.time.map(millis),
            "stated": layer.stated,
            "setting": layer.setting.map(|setting| setting.known.id.as_str()),
            "p99_ms": layer.p99.map(millis),
            "ratio": layer.ratio(),
            "at": layer.place.map(place),
        })
    });
    json!({"names": way.names, "rules": way.rules, "alike": way.alike, "layers": layers.collect::<Vec<_>>()})
}

fn covered(audited: &Audited<'_>) -> Value {
    let left =
        audited.left_out.iter().map(|left| json!({"why": left.why, "says": left.says, "at": place(&left.place)}));
    json!({
        "says": coverage::line(audited),
        "readers": coverage::by_reader(audited.inventory),
        "files": audited.inventory.files,
        "left_out": left.collect::<Vec<_>>(),
    })
}
