//! `cargo xtask bench`: what a request costs above a bare service, counted beside its peers in one run.
//!
//! Decides nothing about speed but what is counted: [`cases`] are the services, [`callgrind`] counts what one more
//! request of a case costs, [`wall`] times it, [`report`] prints and judges.

use std::process::ExitCode;

mod callgrind;
mod cases;
mod report;
mod turn;
mod wall;

use cases::{Case, Failed};

const HELP: &str = "\
usage: cargo xtask bench [--json] [--check]

  --json    the same figures as JSON
  --check   fail when a target is missed
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<ExitCode, Failed> {
    if let [callgrind::DRIVE, label, times] = words {
        let case = Case::named(label).ok_or("no such case")?;
        case.prepare()?;
        case.drive(times.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut json, mut check) = (false, false);
    for word in words {
        match *word {
            "--json" => json = true,
            "--check" => check = true,
            "--help" | "-h" => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            other => return Err(format!("unknown option `{other}`\n{HELP}").into()),
        }
    }
    let report = report::Report::measure()?;
    if json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    if !check {
        return Ok(ExitCode::SUCCESS);
    }
    let missed = report.missed();
    for target in &missed {
        eprintln!("missed: {target}");
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
