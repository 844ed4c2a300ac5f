//! Traces of others through `explain`'s library: every file of traces under a folder, a table of what was found, and a failure
//! where a sum does not hold.

use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use oneclock_trace::{Format, Limits, Told, Total, explain};

/// What one file came to.
struct Outcome {
    file: String,
    told: Result<Total, String>,
    /// Traces whose rows do not sum to what they should.
    wrong: Vec<String>,
}

/// Programs that hold traces: those that write one out as a literal are read, the others are named.
const PROGRAMS: &[&str] = &["js", "ts", "java", "py", "go"];
const DATA: &[&str] = &["json", "jsonl", "ndjson"];

/// Everything under a folder that has to do with traces.
#[derive(Default)]
pub(super) struct Found {
    outcomes: Vec<Outcome>,
    /// Programs that hold traces.
    programs: Vec<String>,
    /// JSON without a trace.
    others: usize,
}

impl Found {
    /// Explains every file of traces under a folder.
    pub(super) fn under(folder: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        walk(folder, &mut files)?;
        files.sort();
        let mut found = Self::default();
        for path in &files {
            let file = path.strip_prefix(folder).unwrap_or(path).display().to_string();
            let ends_in = |endings: &[&str]| {
                path.extension().is_some_and(|extension| endings.iter().any(|ending| extension == *ending))
            };
            if ends_in(PROGRAMS) && holds_traces(path) {
                match written_out(path) {
                    Some(traces) => found.outcomes.push(told_of(traces.as_slice(), file)),
                    None => found.programs.push(file),
                }
            } else if ends_in(DATA) {
                match one(path, file) {
                    Some(outcome) => found.outcomes.push(outcome),
                    None => found.others += 1,
                }
            }
        }
        Ok(found)
    }

    /// Whether there is any.
    pub(super) const fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// # Errors
    /// A sum that does not hold.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let wrong = |outcome: &Outcome| format!("{}: {}", outcome.file, outcome.wrong.join("; "));
        let wrong: Vec<String> = self.outcomes.iter().filter(|outcome| !outcome.wrong.is_empty()).map(wrong).collect();
        if wrong.is_empty() { Ok(()) } else { Err(format!("corpus: sums do not hold:\n{}", wrong.join("\n"))) }
    }
}

fn holds_traces(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| {
        let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
        any(&["spanID:", "\"spanID\"", "\\\"traceId\\\""]) && any(&["startTime", "timestamp"])
    })
}

/// All files below a folder.
pub(super) fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("corpus: {}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        let name = entry.file_name();
        if kind.is_dir() && name != "node_modules" && name != ".git" {
            walk(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

/// The traces that a program has as object literals of their own, `const trace = { … };`, one for each line. A literal of
/// names, strings and numbers is YAML.
fn written_out(path: &Path) -> Option<Vec<u8>> {
    let text = fs::read_to_string(path).ok()?;
    let mut traces = Vec::new();
    for after in text.split("\nconst ").skip(1) {
        let Some((_, literal)) = after.split_once(" = {\n") else { continue };
        let Some((literal, _)) = literal.split_once("\n};") else { continue };
        let Ok(trace) = serde_saphyr::from_str::<serde_json::Value>(&format!("{{\n{literal}\n}}")) else { continue };
        if trace.get("spans").is_some() {
            traces.extend_from_slice(trace.to_string().as_bytes());
            traces.push(b'\n');
        }
    }
    (!traces.is_empty()).then_some(traces)
}

/// `None` for a file that has nothing to do with traces.
fn one(path: &Path, file: String) -> Option<Outcome> {
    let outcome = match fs::File::open(path) {
        Ok(opened) => told_of(opened, file),
        Err(error) => return Some(Outcome { file, told: Err(error.to_string()), wrong: Vec::new() }),
    };
    let nothing = outcome.told.as_ref().is_ok_and(|total| total.formats.is_empty());
    let says = || fs::read_to_string(path).is_ok_and(|text| text.contains("traceI") || text.contains("resourceSpans"));
    (!nothing || says()).then_some(outcome)
}

fn told_of(traces: impl Read, file: String) -> Outcome {
    let mut wrong = Vec::new();
    let told = {
        let total = explain(traces, Limits::default(), |told| {
            if let Told::Trace(trace) = told {
                let rows = trace.spans.iter();
                let sum = rows.fold(trace.between_roots_ns, |sum, row| sum.saturating_add(row.unaccounted_ns));
                if sum != trace.operations_ns() {
                    wrong.push(format!("trace {}: {sum} ns of {}", trace.id, trace.operations_ns()));
                }
            }
        });
        total.map_err(|error| error.to_string())
    };
    if let Ok(total) = &told {
        wrong.extend(total.wrong.iter().cloned());
    }
    Outcome { file, told, wrong }
}

/// A row a file, and what it comes to.
pub(super) fn table(Found { outcomes, programs, others }: &Found) -> String {
    let mut text = String::from(
        "| file | format | traces | spans | elapsed | ran on, proven | ended after, no claim | begun after | retries | resets | \
         cut off | odd | problems | sums |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for Outcome { file, told, wrong } in outcomes {
        let sums = if wrong.is_empty() { "hold" } else { "**do not hold**" };
        let row = match told {
            Err(error) => format!("| {file} | {error} ||||||||||||{sums} |"),
            Ok(total) => {
                let format: Vec<&str> = total.formats.keys().map(|format| named(*format)).collect();
                let odd = &total.oddities;
                let odd = odd.duplicates + odd.circles + odd.missing_parents + odd.without_time + odd.negative;
                let problem = match total.problems.first() {
                    Some(problem) => format!("{}: {}", total.problem_count, problem.text.replace('|', "/")),
                    None => String::new(),
                };
                format!(
                    "| {file} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {odd} | {problem} | {sums} |",
                    if format.is_empty() { "not recognised".to_owned() } else { format.join(", ") },
                    total.traces,
                    total.spans,
                    micros(total.elapsed_ns),
                    counted(total.zombies.count, total.zombies.ns),
                    counted(total.unproven.count, total.unproven.ns),
                    counted(total.begun_after.count, total.begun_after.ns),
                    total.retries.count,
                    total.resets.iter().map(|hop| hop.count).sum::<u64>(),
                    total.unrecorded.count,
                )
            }
        };
        let _ = writeln!(text, "{row}");
    }
    let sum =
        |of: fn(&Total) -> u64| outcomes.iter().filter_map(|outcome| outcome.told.as_ref().ok()).map(of).sum::<u64>();
    let _ = writeln!(
        text,
        "\n{} files of traces: {} traces, {} spans; {} ran on after their parents, proven, {} began after, \
         and {} more ended after as recorded; {others} \
         other JSON files have no trace in them.",
        outcomes.len(),
        sum(|total| total.traces),
        sum(|total| total.spans),
        sum(|total| total.zombies.count),
        sum(|total| total.begun_after.count),
        sum(|total| total.unproven.count),
    );
    if !programs.is_empty() {
        let _ = writeln!(text, "\nPrograms that hold traces, and are no JSON:\n");
        for program in programs {
            let _ = writeln!(text, "- {program}");
        }
    }
    text
}

fn named(format: Format) -> &'static str {
    match format {
        Format::Otlp => "OTLP",
        Format::Jaeger => "Jaeger",
        Format::Zipkin => "Zipkin",
    }
}

fn micros(nanos: u64) -> String {
    match nanos / 1_000 {
        micros @ 10_000.. => format!("{} ms", micros / 1_000),
        micros => format!("{micros} µs"),
    }
}

fn counted(count: u64, nanos: u64) -> String {
    if count == 0 { "0".to_owned() } else { format!("{count} ({})", micros(nanos)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(folder: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder)
    }

    #[test]
    fn every_file_of_traces_has_its_row_and_no_other_file_has_one() {
        let folder = here("tools/oneclock-trace/tests/data");
        let found = Found::under(&folder).expect("the folder can be read");
        assert_eq!(found.verdict(), Ok(()));
        let table = table(&found);
        for row in [
            "| basket.js | Jaeger | 1 | 2 |",
            "| cart.zipkin.json | Zipkin | 1 |",
            "| checkout.otlp.jsonl | OTLP | 1 |",
            "| reports.jaeger.json | Jaeger | 1 |",
        ] {
            assert!(table.contains(row), "{table}");
        }
        assert!(table.contains("4 files of traces: 4 traces, 25 spans"), "{table}");
    }

    #[test]
    fn a_sum_that_does_not_hold_is_a_failure() {
        let folder = here("conformance");
        let mut found = Found::under(&folder).expect("the folder can be read");
        assert!(found.others > 0);
        assert!(found.is_empty());
        let wrong = vec!["trace 1: 5 ns of 6".to_owned()];
        found.outcomes.push(Outcome { file: "a.json".to_owned(), told: Err(String::new()), wrong });
        let error = "corpus: sums do not hold:\na.json: trace 1: 5 ns of 6".to_owned();
        assert_eq!(found.verdict(), Err(error));
    }
}
