//! `oneclock playbook`: what to do when an alert fires. Parses and prints; what it says is written in `oneclock-alerts`.

use std::error::Error;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use oneclock_alerts::{Entry, playbook};

use crate::alerts::write;

#[derive(Args)]
#[command(after_help = "Exit codes: 0 it ran, 1 it could not, 2 the command line was wrong.")]
pub(crate) struct Arguments {
    /// Which entry; without it the table of contents, and with --markdown or --json all of them
    #[arg(value_name = "NAME", value_parser = entries())]
    entry: Option<Entry>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print Markdown instead of text: what `runbook_url` of a policy can lead to
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn entries() -> impl TypedValueParser<Value = Entry> {
    PossibleValuesParser::new(Entry::ALL.iter().map(|entry| entry.name()))
        .map(|name| Entry::named(&name).unwrap_or(Entry::Timeouts)) // one of these
}

/// # Errors
/// Whatever kept it from writing.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let pages = || Entry::ALL.iter().map(|entry| entry.page());
    let text = match arguments.entry.map(Entry::page) {
        Some(page) if arguments.json => serde_json::to_string_pretty(&page)? + "\n",
        Some(page) if arguments.markdown => page.to_markdown(),
        Some(page) => page.to_text(),
        None if arguments.json => serde_json::to_string_pretty(&pages().collect::<Vec<_>>())? + "\n",
        None if arguments.markdown => playbook::to_markdown(),
        None => playbook::contents(),
    };
    write(None, &text)
}
