//! Starting other programs: always said aloud first, never with an open stdin, and an error that can be pasted back.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, io};

/// A `cargo` that works in `root` and sees the environment of the person's shell. `cargo run` adds variables of the
/// xtask package to it, and some build scripts watch those: left in, every change between the two would rebuild.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = program(root, &env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Any other program, in `root`.
pub(crate) fn program(root: &Path, name: &OsStr) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Whether the command can be started and succeeds. Silent.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Runs with the output left where it goes.
pub(crate) fn run(mut command: Command) -> Result<(), String> {
    announce(&command);
    let status = command.status().map_err(|error| not_started(&command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(&command))) }
}

/// Runs silently and returns what was written to stdout; stderr stays visible.
pub(crate) fn output(mut command: Command) -> Result<String, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| not_started(&command, &error))?;
    if !output.status.success() {
        return Err(format!("`{}` ended with {}", shown(&command), output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{}` wrote something that is not UTF-8", shown(&command)))
}

/// The stream in which a program reports; the other one is left where it goes.
#[derive(Clone, Copy)]
pub(crate) enum Reports {
    Stdout,
    Stderr,
}

/// Runs, passes the output on as it comes, and shows each line of the reports to `read`.
pub(crate) fn watch(mut command: Command, reports: Reports, read: &mut dyn FnMut(&str)) -> Result<(), String> {
    announce(&command);
    match reports {
        Reports::Stdout => command.stdout(Stdio::piped()),
        Reports::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn().map_err(|error| not_started(&command, &error))?;
    let copied = match reports {
        Reports::Stdout => child.stdout.take().map(|stream| copy(stream, &mut io::stdout(), read)),
        Reports::Stderr => child.stderr.take().map(|stream| copy(stream, &mut io::stderr(), read)),
    };
    let status = child.wait().map_err(|error| not_started(&command, &error))?;
    if let Some(Err(error)) = copied {
        return Err(format!("the output of `{}` could not be passed on: {error}", shown(&command)));
    }
    if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", shown(&command))) }
}

fn copy(from: impl Read, to: &mut dyn Write, read: &mut dyn FnMut(&str)) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        to.write_all(&line)?;
        read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    to.flush()
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut text = String::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            let _ = write!(text, "{}={} ", name.to_string_lossy(), quoted(value));
        }
    }
    let name = Path::new(command.get_program()).file_stem().unwrap_or(command.get_program());
    text.push_str(&name.to_string_lossy());
    for argument in command.get_args() {
        let _ = write!(text, " {}", quoted(argument));
    }
    text
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains(' ') { format!("'{word}'") } else { word.into_owned() }
}

fn announce(command: &Command) {
    eprintln!("$ {}", shown(command));
}

fn not_started(command: &Command, error: &io::Error) -> String {
    format!("`{}` could not be run: {error}", shown(command))
}
