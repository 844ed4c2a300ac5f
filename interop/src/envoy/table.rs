//! The table as text, JSON and Markdown. Decides how the guide's table is compared with the measured one: word by word.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::proxy::VERSION;
use super::row::{Measured, Row};

/// A row with what came of it.
pub(super) struct Line<'r> {
    pub(super) row: &'r Row,
    pub(super) measured: Result<Measured, String>,
}

const BEGIN: &str = "<!-- table: written by `cargo run -p oneclock-interop -- envoy --write` -->\n";
const END: &str = "<!-- table: end -->";

/// Prints one line for people.
pub(super) fn print(line: &Line<'_>) {
    let Row { id, case, by_default, kept, .. } = line.row;
    println!("{id:<4} {case}");
    match &line.measured {
        Ok(measured) => {
            for (title, claim, seen) in
                [("by default", by_default, &measured.by_default), ("kept", kept, &measured.kept)]
            {
                println!("     {title}: {claim}");
                for seen in seen {
                    println!("       {seen}");
                }
            }
        }
        Err(error) => println!("     NOT TRUE: {error}\n     by default: {by_default}\n     kept: {kept}"),
    }
}

/// All of it for scripts.
pub(super) fn json(lines: &[Line<'_>]) -> String {
    let rows: Vec<_> = lines
        .iter()
        .map(|line| {
            let Row { id, case, by_default, kept, .. } = line.row;
            let empty = Measured::default();
            let (measured, error) = match &line.measured {
                Ok(measured) => (measured, None),
                Err(error) => (&empty, Some(error)),
            };
            json!({
                "id": id, "case": case, "by_default": by_default, "kept": kept, "true": error.is_none(), "error": error,
                "measured": { "by_default": measured.by_default, "kept": measured.kept },
            })
        })
        .collect();
    let all = json!({ "envoy": VERSION, "rows": rows });
    format!("{all:#}")
}

/// Every line of the guide's YAML must stand in the configuration that was run, comments aside.
pub(super) fn snippets(guide: &Path, configuration: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(guide).map_err(|error| format!("{}: {error}", guide.display()))?;
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim().to_owned();
    let lines: Vec<_> = configuration.lines().map(bare).collect();
    let mut within = false;
    for line in text.lines() {
        match line {
            "```yaml" => within = true,
            "```" => within = false,
            _ if within && !bare(line).starts_with('#') && !lines.contains(&bare(line)) => {
                return Err(format!(
                    "{}: `{}` does not stand in the configuration that was run",
                    guide.display(),
                    line.trim()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Compares the table in `guide` with this one, or writes it there.
pub(super) fn guide(guide: &Path, lines: &[Line<'_>], write: bool) -> Result<(), String> {
    let name = guide.display();
    let text = std::fs::read_to_string(guide).map_err(|error| format!("{name}: {error}"))?;
    let missing = || format!("{name} has no place for the table, `{}` to `{END}`", BEGIN.trim());
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (there, after) = rest.split_once(END).ok_or_else(missing)?;
    let table = markdown(lines);
    if there == table {
        return Ok(());
    }
    if !write {
        return Err(format!("{name} has another table than the one that was measured; --write writes this one"));
    }
    std::fs::write(guide, format!("{before}{BEGIN}{table}{END}{after}")).map_err(|error| format!("{name}: {error}"))
}

fn markdown(lines: &[Line<'_>]) -> String {
    let mut table = "| | sent | by default | with the settings |\n|---|---|---|---|\n".to_owned();
    for Line { row: Row { id, case, by_default, kept, .. }, .. } in lines {
        let _ = writeln!(table, "| {id} | {case} | {by_default} | {kept} |");
    }
    table
}
