//! `oneclock alerts`: a policy in, rules for Prometheus out. Parses and prints; what is alerted on is decided in
//! `oneclock-alerts`.

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use oneclock_alerts::{Policy, PolicyRefused, Rules, UnitTests};

#[derive(Args)]
#[command(
    after_help = "Without a policy it writes the default rules. A policy is YAML; each key that is left out keeps its default:\n\n  \
    timeouts: { warn: 1%, page: 5% }\n  \
    zombies: { pools: { statement: 10 } }\n  \
    objective: { in_time: 99.5% }\n\n\
    To check: oneclock alerts --out oneclock.rules.yml; oneclock alerts --tests --out oneclock.tests.yml; \
    promtool test rules oneclock.tests.yml\n\
    Exit codes: 0 it ran, 1 it could not (the policy has a mistake, a file cannot be read or written), 2 the command line was \
    wrong."
)]
pub(crate) struct Arguments {
    /// What to alert on, or - for standard input
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Write here instead of to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write unit tests for promtool instead of the rules
    #[arg(long)]
    tests: bool,
    /// The file of the rules, as the tests find it from where they are
    #[arg(long, value_name = "FILE", default_value = "oneclock.rules.yml", requires = "tests")]
    rules: String,
}

/// # Errors
/// Whatever kept it from reading or writing; a mistake in the policy, with its place.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let policy = match &arguments.policy {
        Some(path) => read(path)?,
        None => Policy::default(),
    };
    let text = if arguments.tests {
        UnitTests::of(&policy, &arguments.rules).to_yaml()?
    } else {
        Rules::of(&policy).to_yaml()?
    };
    write(arguments.out.as_deref(), &text)
}

fn read(path: &Path) -> Result<Policy, Box<dyn Error>> {
    let (name, text) = if path.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).map_err(|error| format!("standard input: {error}"))?;
        ("standard input".into(), text)
    } else {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        (path.display().to_string(), text)
    };
    Ok(Policy::parse(&text).map_err(|refused| in_file(&name, &refused))?)
}

/// `alerts.yml:2:3: there is no key …`
fn in_file(name: &str, refused: &PolicyRefused) -> String {
    let space = if refused.line.is_some() { "" } else { " " };
    format!("{name}:{space}{refused}")
}

/// To a file, or to standard output, whose reader may have seen enough.
pub(crate) fn write(out: Option<&Path>, text: &str) -> Result<ExitCode, Box<dyn Error>> {
    match out {
        Some(path) => std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?,
        None => match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        },
    }
    Ok(ExitCode::SUCCESS)
}
