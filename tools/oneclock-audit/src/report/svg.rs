//! The graph as a picture: layered from left to right, from the outside in. A call that does not fit is red or amber, with
//! the rule's id; every arrow says how long its caller waits.
//!
//! One file, complete in itself: no script, nothing that is loaded, light or dark as the reader has it. Every text in it
//! comes from anybody's files and is escaped.

mod layout;
mod nodes;

use std::fmt::Write;

use layout::{Arrow, Layout};

use super::words::{counted, fit, sum};
use super::{Report, coverage};
use crate::rules::Severity;

const STYLE: &str = "\
text{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1c2430}\
.page{fill:#ffffff}.box{fill:#f4f6f9;stroke:#9aa7b8}.outside{fill:#e8eefb;stroke:#6c86bd}.between{stroke-dasharray:5 3}\
.nobody{fill:none;stroke:#9aa7b8;stroke-dasharray:2 3}.small{font-size:11px;fill:#5b6878}.strong{font-weight:600}\
.title{font-size:16px;font-weight:600}\
.arrow{fill:none;stroke:#7b899b;stroke-width:1.4}.head{fill:#7b899b}.back{stroke-dasharray:6 4}\
.halo{paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}\
.arrow.error{stroke:#c62828;stroke-width:2.4}.head.error{fill:#c62828}text.error{fill:#b71c1c;font-weight:600}\
.arrow.warning{stroke:#b26a00;stroke-width:2}.head.warning{fill:#b26a00}text.warning{fill:#8a5200;font-weight:600}\
@media (prefers-color-scheme:dark){text{fill:#e6eaf0}.page{fill:#151a21}.box{fill:#222a35;stroke:#57657a}\
.outside{fill:#25304a;stroke:#6c86bd}.small{fill:#a3afbf}.halo{stroke:#151a21}\
text.error{fill:#ff8a80}text.warning{fill:#ffc46b}}";

/// Above and beside the drawing.
const MARGIN: f64 = 28.0;
/// For the title, above.
const TOP: f64 = 66.0;

impl Report<'_> {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let nodes::Drawn { nodes, links, nodes_left, links_left } = nodes::drawn(self);
        let layout = Layout::of(&nodes, &links);
        let coverage = coverage::line(self.audited);
        let found = sum(self.audited);
        let wide = layout.width.max(text_width(&coverage, 11.0).min(900.0)).max(560.0);
        let (width, height) = (MARGIN.mul_add(2.0, wide), TOP + layout.height + 64.0);
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" aria-labelledby=\"title about\">\n\
             <title id=\"title\">Who calls whom, and how long each waits</title>\n<desc id=\"about\">{}. {}. Broken: {}.</desc>\n\
             <style>{STYLE}</style>\n<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"30\">Who calls whom, and how long each waits</text>\n\
             <text class=\"small\" x=\"{MARGIN}\" y=\"48\">{}</text>\n<g transform=\"translate({MARGIN} {TOP})\">\n",
            escaped(&found),
            escaped(&coverage),
            escaped(&broken_ones(&nodes, &links)),
            escaped(&found),
        );
        for arrow in &layout.arrows {
            line(&mut svg, arrow);
        }
        for (node, place) in nodes.iter().zip(&layout.boxes) {
            node.write(&mut svg, place);
        }
        // Words last: no line and no box covers them.
        for (link, arrow) in links.iter().zip(&layout.arrows) {
            words(&mut svg, link, arrow);
        }
        svg.push_str("</g>\n");
        let more = match (nodes_left, links_left) {
            (0, 0) => String::new(),
            (nodes, links) => format!("{} and {} left out. ", counted(nodes, "service"), counted(links, "call")),
        };
        let _ = writeln!(
            svg,
            "<text class=\"small\" x=\"{MARGIN}\" y=\"{:.0}\">{}red: an error, amber: a warning, dashed: nobody here answers to \
             the name</text>\n<text class=\"small\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>\n</svg>",
            TOP + layout.height + 28.0,
            escaped(&more),
            TOP + layout.height + 46.0,
            escaped(&fit(&coverage, 180)),
        );
        svg
    }
}

/// In words, for whoever hears the picture.
fn broken_ones(nodes: &[nodes::Node], links: &[nodes::Link]) -> String {
    let name = |at: usize| nodes.get(at).map_or("", |node| &node.name);
    let broken = links.iter().filter(|link| !link.rules.is_empty());
    let all: Vec<String> = broken
        .map(|link| format!("{} to {} ({})", name(link.from), name(link.to), link.rules.join(", ")))
        .take(20)
        .collect();
    if all.is_empty() { "none".to_owned() } else { all.join("; ") }
}

fn line(svg: &mut String, arrow: &Arrow) {
    let class = class(arrow.severity);
    let back = if arrow.back { " back" } else { "" };
    let (mut x, mut y) = arrow.from;
    let (end, last) = arrow.to;
    let mut way = format!("M{x:.1} {y:.1}");
    // Straight where words are, and past columns; bent between.
    let straight = if arrow.back { end - 30.0 } else { end - arrow.words - 20.0 };
    for (to, until, height) in arrow.past.iter().copied().chain([(straight, end - 8.0, last)]) {
        let bend = ((to - x) / 2.0).max(if arrow.back { 60.0 } else { 12.0 });
        let _ = write!(way, "C{:.1} {y:.1} {:.1} {height:.1} {to:.1} {height:.1}H{until:.1}", x + bend, to - bend);
        (x, y) = (until, height);
    }
    let _ = writeln!(
        svg,
        "<path class=\"arrow{class}{back}\" d=\"{way}\"/><path class=\"head{class}\" d=\"M{end:.1} {last:.1}l-9 -4.5v9z\"/>",
    );
}

fn words(svg: &mut String, link: &nodes::Link, arrow: &Arrow) {
    let (x, y) = arrow.to;
    let x = x - 14.0;
    let class = class(arrow.severity);
    let _ = writeln!(
        svg,
        "<text class=\"halo small{class}\" text-anchor=\"end\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
        y - 5.0,
        escaped(&link.limit),
    );
    if !link.rules.is_empty() {
        let _ = writeln!(
            svg,
            "<text class=\"halo small{class}\" text-anchor=\"end\" x=\"{x:.1}\" y=\"{:.1}\">✗ {}</text>",
            y + 13.0,
            escaped(&link.told_rules()),
        );
    }
}

const fn class(severity: Option<Severity>) -> &'static str {
    match severity {
        Some(Severity::Error) => " error",
        Some(Severity::Warning) => " warning",
        _ => "",
    }
}

/// About as wide as a browser draws it.
#[allow(clippy::cast_precision_loss, reason = "a text that is drawn is short")]
fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

/// For text and attributes alike.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML has no way to write most of these, escaped or not.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') || super::words::is_turning(c) => {
                escaped.push('\u{fffd}')
            }
            c => escaped.push(c),
        }
    }
    escaped
}
