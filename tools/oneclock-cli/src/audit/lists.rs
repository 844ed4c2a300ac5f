//! What the audit knows, whatever is audited: its rules, what each means, and every setting.

use std::error::Error;
use std::fmt::Write;

use oneclock_audit::{catalogue, every_rule};
use serde_json::json;

pub(super) fn rules(json: bool) -> Result<String, Box<dyn Error>> {
    let rules: Vec<_> = every_rule().collect();
    if json {
        let rules: Vec<_> = rules.iter().map(|rule| json!({"id": rule.id, "says": rule.says})).collect();
        return Ok(serde_json::to_string(&rules)? + "\n");
    }
    let width = rules.iter().map(|rule| rule.id.len()).max().unwrap_or_default();
    let mut text = String::new();
    for rule in rules {
        writeln!(text, "{:<width$}  {}", rule.id, rule.says)?;
    }
    text.push_str("\noneclock audit --explain RULE says what it means, and the way out\n");
    Ok(text)
}

/// # Errors
/// There is no such rule.
pub(super) fn explained(id: &str) -> Result<String, Box<dyn Error>> {
    let Some(rule) = every_rule().find(|rule| rule.id == id) else {
        let ids: Vec<&str> = every_rule().map(|rule| rule.id).collect();
        return Err(format!("there is no rule `{id}`; there are: {}", ids.join(", ")).into());
    };
    Ok(rule.page.to_owned())
}

/// Settings with what they mean, a row each.
pub(super) fn catalogue(json: bool) -> Result<String, Box<dyn Error>> {
    let all = catalogue::all();
    if json {
        let rows = serde_json::to_value(&all)?;
        return Ok(serde_json::to_string(&json!({"dated": catalogue::dated(), "settings": rows}))? + "\n");
    }
    let mut rows =
        vec![["product", "setting", "limits", "a number is", "default", "versions", "source"].map(str::to_owned)];
    for known in &all {
        let word = |value: serde_json::Value| value.as_str().unwrap_or_default().replace('_', " ");
        let kind = word(serde_json::to_value(known.kind)?);
        let unit = word(serde_json::to_value(known.unit)?);
        let checked = word(serde_json::to_value(known.checked)?);
        let default = known.default().map_or_else(|| "–".to_owned(), |amount| amount.to_string());
        let source = format!("{} ({checked})", known.source);
        rows.push([known.product.clone(), known.key.clone(), kind, unit, default, known.versions.clone(), source]);
    }
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            write!(line, "{cell:<width$}  ", width = widths.get(at).copied().unwrap_or(0))?;
        }
        writeln!(text, "{}", line.trim_end())?;
    }
    writeln!(text, "\n{} settings, gone through on {}", all.len(), catalogue::dated())?;
    Ok(text)
}
