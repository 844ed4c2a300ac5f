//! What a command line starts, and what it says about time: gunicorn, uvicorn, hypercorn, uWSGI, PostgreSQL, MySQL, Redis.
//!
//! Scripts that a command runs are not read. A shell's `&&`, `;` and `|` part one command from the next.

mod words;

pub(super) use words::{Arg, nested, split};

use super::environment::Variable;
use super::gunicorn::Gunicorn;
use crate::inventory::{ComponentId, Inventory, On};
use crate::source::Place;

/// A component, and how it is started.
pub(super) struct Started<'a> {
    /// Which one.
    pub(super) component: ComponentId,
    /// The product of its image, if that is known: options alone are that one's.
    pub(super) product: &'a str,
    /// What its environment says.
    pub(super) variables: &'a [Variable],
    /// Where nothing is said.
    pub(super) block: Place,
    /// gunicorn's file: by the path of `-c`, or without one what gunicorn finds by itself. `None` where nobody can know.
    pub(super) config: &'a dyn Fn(Option<&str>) -> Config,
}

/// A file of settings that a command reads beside its arguments.
pub(super) enum Config {
    /// There is none.
    None,
    /// There may be one, and it cannot be seen from here.
    Unseen,
    /// What it says.
    Says(Box<Gunicorn>),
}

const PROGRAMS: &[&str] = &[
    "gunicorn",
    "uvicorn",
    "hypercorn",
    "uwsgi",
    "postgres",
    "mysqld",
    "mariadbd",
    "redis-server",
    "valkey-server",
    "fastapi",
];

/// Reads a command, and says whether it starts a server whose settings are known.
pub(super) fn read(args: &[Arg], started: &Started<'_>, inventory: &mut Inventory) -> bool {
    let mut any = false;
    for command in args.split(|arg| matches!(arg.text.as_str(), "&&" | ";" | "|" | "||" | "&")) {
        if let Some((program, at)) = program(command) {
            any = true;
            run(program, command.get(at + 1..).unwrap_or_default(), started, inventory);
        }
    }
    let only_options = args.first().is_some_and(|arg| arg.text.starts_with('-'));
    let implied = match started.product {
        "PostgreSQL" => "postgres",
        "MySQL" | "MariaDB" => "mysqld",
        "Redis" | "Valkey" => "redis-server",
        _ => "",
    };
    if !any && only_options && !implied.is_empty() {
        run(implied, args, started, inventory);
    }
    any
}

/// The program of a command, which wrappers may stand before (`exec`, `poetry run`, `tini --`), and where it is.
fn program(command: &[Arg]) -> Option<(&'static str, usize)> {
    const FAR: usize = 10;
    command.iter().take(FAR).enumerate().find_map(|(at, arg)| {
        let base = arg.text.rsplit('/').next().unwrap_or_default();
        let known = PROGRAMS.iter().find(|program| **program == base)?;
        // `python -m uvicorn` is one, `pip install gunicorn` and `--app gunicorn` are none.
        let before = at.checked_sub(1).and_then(|before| command.get(before)).map_or("", |arg| arg.text.as_str());
        let is_value = (before.starts_with('-') && !matches!(before, "-m" | "--"))
            || matches!(before, "install" | "add" | "which");
        (!is_value).then_some((*known, at))
    })
}

fn run(program: &str, args: &[Arg], started: &Started<'_>, inventory: &mut Inventory) {
    let on = || On::Component(started.component);
    match program {
        "gunicorn" => super::gunicorn::run(args, started, inventory),
        "uvicorn" => {
            let keep =
                option(args, &["--timeout-keep-alive"]).or_else(|| variable(started, "UVICORN_TIMEOUT_KEEP_ALIVE"));
            let grace = option(args, &["--timeout-graceful-shutdown"])
                .or_else(|| variable(started, "UVICORN_TIMEOUT_GRACEFUL_SHUTDOWN"));
            for (id, written) in [("uvicorn.keep_alive", keep), ("uvicorn.graceful_shutdown", grace)] {
                let written = written.as_ref().map(|arg| (arg.text.as_str(), arg.place.clone()));
                inventory.say_or_default(on(), id, written, &started.block);
            }
        }
        "hypercorn" => {
            let configured = option(args, &["-c", "--config"]).is_some();
            for (id, names) in [
                ("hypercorn.keep_alive", ["--keep-alive"].as_slice()),
                ("hypercorn.graceful", &["--graceful-timeout"]),
                ("hypercorn.read_timeout", &["--read-timeout"]),
            ] {
                match option(args, names) {
                    Some(arg) => inventory.say(on(), id, &arg.text, arg.place),
                    None if !configured => inventory.unsaid(on(), id, started.block.clone()),
                    None => {}
                }
            }
        }
        "uwsgi" => {
            for (key, id) in super::uwsgi::KEYS {
                let short = if *key == "harakiri" { "-t" } else { "" };
                let underscored = format!("--{}", key.replace('-', "_"));
                let written = option(args, &[&format!("--{key}"), &underscored, short]);
                if let Some(arg) = written.filter(|arg| super::uwsgi::is_time(id, &arg.text)) {
                    inventory.say(on(), id, &arg.text, arg.place);
                }
            }
        }
        "postgres" => assigned(args, super::stores::POSTGRESQL, started, inventory),
        "mysqld" | "mariadbd" => assigned(args, super::stores::MYSQL, started, inventory),
        "redis-server" | "valkey-server" => {
            for (key, id) in super::stores::REDIS {
                if let Some(arg) = option(args, &[&format!("--{key}")]) {
                    inventory.say(on(), id, &arg.text, arg.place);
                }
            }
        }
        _ => {}
    }
}

/// `-c name=value`, `--name=value`, where the name may be written with either of `-` and `_`.
fn assigned(args: &[Arg], keys: &[(&str, &str)], started: &Started<'_>, inventory: &mut Inventory) {
    let written = args.iter().enumerate().filter_map(|(at, arg)| match arg.text.as_str() {
        "-c" => args.get(at + 1).map(|next| (next, next.text.as_str())),
        text => text.strip_prefix("--").or_else(|| text.strip_prefix("-c")).map(|rest| (arg, rest)),
    });
    for (arg, text) in written {
        let Some((name, value)) = text.split_once('=') else { continue };
        let name = name.trim().replace('-', "_").to_ascii_lowercase();
        if let Some((_, id)) = keys.iter().find(|(key, _)| *key == name) {
            inventory.say(On::Component(started.component), id, value, arg.place.clone());
        }
    }
}

/// The value of an option: `--name value`, `--name=value`, `-n value`. The last one counts.
pub(super) fn option(args: &[Arg], names: &[&str]) -> Option<Arg> {
    args.iter().enumerate().rev().find_map(|(at, arg)| {
        names.iter().filter(|name| !name.is_empty()).find_map(|name| {
            let rest = arg.text.strip_prefix(name)?;
            if rest.is_empty() {
                return args.get(at + 1).cloned();
            }
            let value = if name.starts_with("--") { rest.strip_prefix('=')? } else { rest };
            Some(Arg { text: value.to_owned(), place: arg.place.clone() })
        })
    })
}

fn variable(started: &Started<'_>, key: &str) -> Option<Arg> {
    let variable = started.variables.iter().find(|variable| variable.key == key)?;
    Some(Arg { text: variable.value.clone(), place: variable.place.clone() })
}
