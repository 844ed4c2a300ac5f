//! docs/peers.md: the table as a document. Everything in it is measured or stands beside its measurement.

use std::fmt::Write as _;
use std::path::Path;

use crate::cell::Mark;
use crate::table::Table;

/// Writes it.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(to: &Path, table: &Table) -> Result<(), String> {
    std::fs::write(to, markdown(table)).map_err(|error| format!("{}: {error}", to.display()))
}

fn markdown(table: &Table) -> String {
    let mut text = format!(
        "# What proxies do with time\n\n\
        <!-- Written by `cargo xtask peers behaviour`: change the rows in tests/peers and run it again. -->\n\n\
        A request goes through a proxy to a service that knows nothing of deadlines and writes down what reaches it, when, \
        with which fields, and how its work is ended. Every proxy is a real one, every cell was measured, and every mark is \
        computed by the same lines for all of them: ✓ right, ✗ not right, – the proxy has no such notion.\n\n\
        What is right is said by [the contract](contract.md), whose rules stand beside each row. Others do not promise it, \
        so ✗ means that somebody else has to keep this rule, not that their program is broken.\n\n\
        Measured on {}, {}, over the loopback interface, with `cargo xtask peers behaviour`. Times are from the caller's \
        first byte on, and a few milliseconds are the machine's.\n\n",
        table.date, table.machine
    );
    text.push_str("| | sent | right |");
    for (column, version) in &table.columns {
        let _ = write!(text, " {} |", column.title(version));
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|".repeat(table.columns.len()));
    text.push('\n');
    for (case, cells) in &table.rows {
        let _ = write!(text, "| `{}` | {} | {} ({}) |", case.name, case.sent, case.right, case.rules);
        for cell in cells {
            let _ = write!(text, " {} |", cell.line());
        }
        text.push('\n');
    }
    text.push_str("\n## With which settings\n\n");
    text.push_str(
        "Each has the timeouts and retries that the rows ask for, in its own words: 1 s for a route, 0.4 s for an attempt, 3 \
        retries, one request at a time where one has to wait. Where the same proxy stands there twice, the second one has every \
        setting of its own that helps.\n\n\
        | | configuration | set beside that | right | not right | no such notion |\n|---|---|---|---|---|---|\n",
    );
    for (index, (column, version)) in table.columns.iter().enumerate() {
        let [right, wrong, none] = [Mark::Right, Mark::Wrong, Mark::NoSuchNotion].map(|mark| table.count(index, mark));
        let (title, file, set) = (column.title(version), column.file, column.set);
        let _ =
            writeln!(text, "| {title} | [{file}](../tests/peers/config/{file}) | {set} | {right} | {wrong} | {none} |");
    }
    text.push_str(NOTES);
    text
}

const NOTES: &str = "
## Notes

- **Fields.** The field that a proxy itself writes is `x-remaining-ms` for oneclock and `x-envoy-expected-rq-timeout-ms` for
  Envoy. HAProxy and nginx have none; their rows were sent `x-remaining-ms`, which they pass on as it came.
- **Where a clock begins.** A limit that begins when the upload is over (Envoy's `timeout`) bounds no upload. One that begins
  anew at each read (`timeout server`, `proxy_read_timeout`) bounds no answer that trickles, either.
- **Retries** of HAProxy have no limit for their sum; nginx's says when the last of them may begin.
- **Pages of errors** can be written for HAProxy and nginx, so that gRPC's callers get a status. That is not measured here.
- **HTTP/2 to the service** is spoken for gRPC; nginx does it by `grpc_pass`.
- How oneclock and Envoy go together is another question, which [the guide](guide/envoy.md) answers, measured too.
";

#[cfg(test)]
mod tests {
    use crate::cases;

    /// What the document says was measured is what would be measured now.
    #[test]
    fn the_document_has_every_row_in_its_words() {
        let text = include_str!("../../../docs/peers.md");
        for case in cases::all() {
            let row = format!("| `{}` | {} | {} ({}) | ✓ ", case.name, case.sent, case.right, case.rules);
            assert!(text.contains(&row), "docs/peers.md: run `cargo xtask peers behaviour` for the row\n{row}");
        }
    }
}
