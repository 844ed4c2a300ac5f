//! All that was measured: for a terminal, as JSON, and who is right how often.

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::cases::Case;
use crate::cell::{Cell, Mark};
use crate::proxies::Column;

/// The whole table.
#[derive(Debug)]
pub(crate) struct Table {
    /// With their programs' versions.
    pub(crate) columns: Vec<(&'static Column, String)>,
    /// Each with a cell for every column.
    pub(crate) rows: Vec<(&'static Case, Vec<Cell>)>,
    pub(crate) date: String,
    pub(crate) machine: String,
}

impl Table {
    /// The rows in which this column is not right.
    pub(crate) fn wrong(&self, name: &str) -> Vec<&'static str> {
        let Some(index) = self.columns.iter().position(|(column, _)| column.name == name) else { return Vec::new() };
        let wrong = |cells: &[Cell]| cells.get(index).is_some_and(|cell| cell.mark != Mark::Right);
        self.rows.iter().filter(|(_, cells)| wrong(cells)).map(|(case, _)| case.name).collect()
    }

    /// In how many rows the column at this place is so.
    pub(crate) fn count(&self, index: usize, mark: Mark) -> usize {
        self.rows.iter().filter(|(_, cells)| cells.get(index).is_some_and(|cell| cell.mark == mark)).count()
    }

    /// For people.
    pub(crate) fn print(&self) {
        for (case, cells) in &self.rows {
            anstream::println!(
                "\n{0}{1}{0:#}  {2}\n  right: {3} ({4})",
                Style::new().bold(),
                case.name,
                case.sent,
                case.right,
                case.rules
            );
            for ((column, _), cell) in self.columns.iter().zip(cells) {
                let color = match cell.mark {
                    Mark::Right => Style::new().fg_color(Some(AnsiColor::Green.into())),
                    Mark::Wrong => Style::new().fg_color(Some(AnsiColor::Red.into())),
                    Mark::NoSuchNotion => Style::new().dimmed(),
                };
                anstream::println!("  {color}{:<17} {}{color:#}", column.name, cell.line());
            }
        }
        println!();
        for (index, (column, version)) in self.columns.iter().enumerate() {
            let [right, wrong, none] =
                [Mark::Right, Mark::Wrong, Mark::NoSuchNotion].map(|mark| self.count(index, mark));
            println!("{:<17} {version:<8} {right:>2} right, {wrong:>2} wrong, {none:>2} no such notion", column.name);
        }
    }

    /// For scripts.
    pub(crate) fn json(&self) -> Value {
        let columns: Vec<_> = self
            .columns
            .iter()
            .map(|(column, version)| {
                json!({ "name": column.name, "title": column.title(version), "version": version, "configuration": column.file })
            })
            .collect();
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|(case, cells)| {
                let cells = self.columns.iter().zip(cells).map(|((column, _), cell)| {
                    (column.name.to_owned(), json!({ "mark": cell.mark.word(), "measured": cell.said }))
                });
                json!({
                    "name": case.name, "sent": case.sent, "right": case.right, "rules": case.rules,
                    "cells": cells.collect::<serde_json::Map<_, _>>(),
                })
            })
            .collect();
        json!({ "date": self.date, "machine": self.machine, "columns": columns, "rows": rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use crate::proxies::COLUMNS;

    /// Ours has to have every notion: what it does not know is no excuse.
    #[test]
    fn only_what_is_right_is_not_wrong() {
        let row = |ours: Cell| (cases::all().next().expect("a row"), vec![ours, Cell::failed("it broke")]);
        let table = |ours: Cell| Table {
            columns: COLUMNS.iter().take(2).map(|column| (column, "1.0.0".to_owned())).collect(),
            rows: vec![row(ours)],
            date: String::new(),
            machine: String::new(),
        };
        assert_eq!(table(Cell::judged(true, "")).wrong("oneclock"), Vec::<&str>::new());
        assert_eq!(table(Cell::judged(false, "")).wrong("oneclock"), ["leave-http1"]);
        assert_eq!(table(Cell::no_such_notion("")).wrong("oneclock"), ["leave-http1"]);
        assert_eq!(table(Cell::judged(true, "")).wrong("envoy"), ["leave-http1"]);
    }
}
