//! A dashboard for Grafana, of the same metrics as the rules.
//!
//! Decides the form: rows of panels on a grid, the variables, and that nothing in it names a data source. What is asked
//! stands in `panels` and `overload`. Every metric that is declared has its place there; a test says which one has not.

use serde_json::{Value, json};

mod overload;
mod panels;

pub use panels::Unit;

/// The dashboard.
#[derive(Clone, Debug)]
pub struct Dashboard {
    rows: Vec<Row>,
}

/// A row: what belongs together.
#[derive(Clone, Debug)]
struct Row {
    title: &'static str,
    panels: Vec<Panel>,
}

/// A picture with its lines.
#[derive(Clone, Debug)]
struct Panel {
    title: &'static str,
    description: &'static str,
    unit: Unit,
    lines: Vec<Line>,
}

/// What one expression draws.
#[derive(Clone, Debug)]
struct Line {
    expr: String,
    legend: &'static str,
}

/// One expression of the dashboard, and where it stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Expression<'a> {
    /// The panel's title.
    pub panel: &'static str,
    /// As Grafana gets it, with its variables.
    pub expr: &'a str,
}

/// Whose series: chosen at the top of the dashboard.
const CHOSEN: &str = "job=~\"$job\"";
const DATASOURCE: &str = "${datasource}";

/// The columns of Grafana's grid, and how many of them and of its rows a panel takes.
const COLUMNS: usize = 24;
const WIDE: usize = 8;
const HIGH: usize = 8;

impl Dashboard {
    /// The dashboard. It needs no policy: whoever looks at it chooses.
    #[expect(clippy::new_without_default, reason = "there is one, and it is made, not empty")]
    pub fn new() -> Self {
        Self { rows: panels::rows() }
    }

    /// As Grafana imports it.
    ///
    /// ```
    /// let dashboard = oneclock_alerts::Dashboard::new().to_json();
    /// assert_eq!(dashboard["uid"], "oneclock");
    /// assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 20));
    /// ```
    pub fn to_json(&self) -> Value {
        let mut panels = Vec::new();
        let (mut id, mut y) = (0, 0);
        let mut next = || {
            id += 1;
            id
        };
        for row in &self.rows {
            panels.push(json!({
                "id": next(), "type": "row", "title": row.title, "collapsed": false, "panels": [],
                "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
            }));
            y += 1;
            for (index, panel) in row.panels.iter().enumerate() {
                let (x, down) = (index * WIDE % COLUMNS, index * WIDE / COLUMNS * HIGH);
                panels.push(panel.to_json(next(), x, y + down));
            }
            y += (row.panels.len() * WIDE).div_ceil(COLUMNS) * HIGH;
        }
        json!({
            "uid": "oneclock",
            "title": "oneclock: one budget",
            "description": "Written by `oneclock dashboard`. What to do: `oneclock playbook`.",
            "tags": ["oneclock"],
            "schemaVersion": 39,
            "version": 1,
            "editable": true,
            "graphTooltip": 1,
            "timezone": "browser",
            "refresh": "30s",
            "time": { "from": "now-1h", "to": "now" },
            "timepicker": {},
            "annotations": { "list": [] },
            "links": [],
            "templating": { "list": [datasource_variable(), job_variable()] },
            "panels": panels,
        })
    }

    /// Every expression in it, for whoever wants to ask a Prometheus whether it understands them.
    pub fn expressions(&self) -> impl Iterator<Item = Expression<'_>> {
        let panels = self.rows.iter().flat_map(|row| &row.panels);
        panels.flat_map(|panel| panel.lines.iter().map(|line| Expression { panel: panel.title, expr: &line.expr }))
    }
}

impl Panel {
    fn to_json(&self, id: u32, x: usize, y: usize) -> Value {
        let datasource = json!({ "type": "prometheus", "uid": DATASOURCE });
        let targets: Vec<_> = ('A'..)
            .zip(&self.lines)
            .map(|(letter, line)| {
                json!({
                    "refId": letter.to_string(), "datasource": datasource, "expr": line.expr,
                    "legendFormat": line.legend, "range": true, "editorMode": "code",
                })
            })
            .collect();
        json!({
            "id": id, "type": "timeseries", "title": self.title, "description": self.description,
            "datasource": datasource,
            "gridPos": { "x": x, "y": y, "w": WIDE, "h": HIGH },
            "targets": targets,
            "fieldConfig": {
                "defaults": {
                    "unit": self.unit.as_grafana_spells_it(), "min": 0,
                    "custom": { "drawStyle": "line", "fillOpacity": 10, "showPoints": "never", "spanNulls": false },
                },
                "overrides": [],
            },
            "options": {
                "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true },
                "tooltip": { "mode": "multi", "sort": "desc" },
            },
        })
    }
}

fn datasource_variable() -> Value {
    json!({
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
        "hide": 0, "includeAll": false, "multi": false, "options": [], "current": {}, "regex": "",
    })
}

fn job_variable() -> Value {
    let query = format!("label_values({}, job)", oneclock_telemetry::names::OPERATIONS.name);
    json!({
        "name": "job", "label": "Service", "type": "query", "refresh": 2, "sort": 1, "hide": 0,
        "datasource": { "type": "prometheus", "uid": DATASOURCE },
        "definition": query, "query": { "query": query, "refId": "job" },
        "includeAll": true, "allValue": ".*", "multi": true, "options": [], "regex": "",
        "current": { "selected": true, "text": ["All"], "value": ["$__all"] },
    })
}
