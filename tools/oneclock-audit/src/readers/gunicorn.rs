//! gunicorn: command lines, `GUNICORN_CMD_ARGS`, and `gunicorn.conf.py`, of which the lines `name = literal` are read
//! (`int(os.environ.get("X", "60"))` counts as its default, a name as what was assigned to it); no other Python.
//!
//! What `timeout` means depends on the workers. A sync worker that is busy cannot say that it lives: its request is
//! killed. Those that are known otherwise say so while requests run, so that it bounds no request. Of a class that somebody
//! wrote, or that is named where nobody looked, nobody knows which of the two it is: that is listed, and what all classes
//! have in common is read.

use std::collections::HashMap;

use super::command::{Arg, Config, Started, option, split};
use super::started_by;
use crate::amount::shortened;
use crate::inventory::{ComponentId, Inventory, On, Role, Why};
use crate::source::{Place, Source, folder};
use crate::walk::Repository;

/// Workers that are not sync, by the end of the name: gunicorn's own, by name and by class, and those of uvicorn and aiohttp.
const CONCURRENT: &[&str] = &[
    "aiohttpworker",
    "asgi",
    "asgiworker",
    "eventlet",
    "eventletworker",
    "gaiohttp",
    "gevent",
    "gevent_pywsgi",
    "gevent_wsgi",
    "geventpywsgiworker",
    "geventworker",
    "gthread",
    "gunicorntokiowebworker",
    "gunicornuvloopwebworker",
    "gunicornwebworker",
    "threadworker",
    "tornado",
    "tornadoworker",
    "uvicornh11worker",
    "uvicornworker",
];

/// How its workers take requests.
enum Workers {
    /// One at a time, and nothing else meanwhile.
    Sync,
    /// Several, or one and its own signs of life.
    Concurrent,
    /// Nobody knows: of a class by this name, if there is one.
    Unknown(Option<String>),
}

/// What was said about one gunicorn.
#[derive(Clone, Debug, Default)]
pub(super) struct Gunicorn {
    timeout: Option<Arg>,
    graceful: Option<Arg>,
    keepalive: Option<Arg>,
    class: Option<Arg>,
    threads: Option<Arg>,
}

/// The file that gunicorn finds by itself where it is started.
pub(super) const FOUND: &str = "gunicorn.conf.py";

/// A command that starts it: arguments win over the environment, and that over the file.
pub(super) fn run(args: &[Arg], started: &Started<'_>, inventory: &mut Inventory) {
    let said = Gunicorn::of_args(args);
    let environment = started.variables.iter().find(|variable| variable.key == "GUNICORN_CMD_ARGS");
    let environment = environment.map(|variable| Gunicorn::of_args(&split(&variable.value, &variable.place)));
    let said = environment.map_or(said.clone(), |lower| said.over(lower));
    let path = option(args, &["-c", "--config"]);
    match (started.config)(path.as_ref().map(|arg| arg.text.trim_start_matches("file:"))) {
        Config::None => said.tell(started.component, &started.block, true, inventory),
        Config::Unseen => said.tell(started.component, &started.block, false, inventory),
        Config::Says(lower) => said.over(*lower).tell(started.component, &started.block, true, inventory),
    }
}

/// `gunicorn.conf.py` and what is called like it.
pub(super) fn mine(source: &Source) -> bool {
    let name = source.name();
    name.ends_with(".py") && name.contains("gunicorn") && name.contains("conf")
}

/// A file of its own: read here unless something that starts gunicorn is described above it, which reads it then.
pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let folder = folder(&source.path);
    let found = source.name() == FOUND && started_by::starts(repository, folder, "gunicorn");
    if found || started_by::named(repository, folder, source.name()) {
        return;
    }
    let said = Gunicorn::of_file(source);
    let block = source.place(1, 1, 1);
    let component = inventory.component(started_by::called(folder, "gunicorn"), "", Role::Service, block.clone());
    // The command that starts it was not seen, and may say more.
    said.tell(component, &block, false, inventory);
}

// === Gunicorn ===

impl Gunicorn {
    fn of_args(args: &[Arg]) -> Self {
        Self {
            timeout: option(args, &["--timeout", "-t"]),
            graceful: option(args, &["--graceful-timeout"]),
            keepalive: option(args, &["--keep-alive"]),
            class: option(args, &["--worker-class", "-k"]),
            threads: option(args, &["--threads"]),
        }
    }

    /// What a file of Python assigns at its top level.
    pub(super) fn of_file(source: &Source) -> Self {
        let mut known: HashMap<&str, Arg> = HashMap::new();
        for (at, line) in source.text.lines().enumerate() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let plain = name.trim_end();
            if plain.is_empty()
                || !plain.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                || value.starts_with('=')
            {
                continue;
            }
            let text = literal(value, &known);
            let before = line.chars().count() - value.trim_start().chars().count();
            let place = source.place(at + 1, before + 1, value.trim().chars().count());
            known.insert(plain, Arg { text, place });
        }
        let of = |name: &str| known.get(name).cloned();
        Self {
            timeout: of("timeout"),
            graceful: of("graceful_timeout"),
            keepalive: of("keepalive"),
            class: of("worker_class"),
            threads: of("threads"),
        }
    }

    /// What this one does not say, the lower one does.
    fn over(self, lower: Self) -> Self {
        Self {
            timeout: self.timeout.or(lower.timeout),
            graceful: self.graceful.or(lower.graceful),
            keepalive: self.keepalive.or(lower.keepalive),
            class: self.class.or(lower.class),
            threads: self.threads.or(lower.threads),
        }
    }

    /// `whole`: whether all that could say anything was seen, so that what is not said has its default.
    fn tell(&self, component: ComponentId, block: &Place, whole: bool, inventory: &mut Inventory) {
        let on = || On::Component(component);
        let one = |id: &str, arg: &Option<Arg>, default: bool, inventory: &mut Inventory| match arg {
            Some(arg) => inventory.say(on(), id, &arg.text, arg.place.clone()),
            None if default && whole => inventory.unsaid(on(), id, block.clone()),
            None => {}
        };
        match self.workers(whole) {
            Workers::Sync => one("gunicorn.timeout", &self.timeout, true, inventory),
            Workers::Concurrent => one("gunicorn.heartbeat", &self.timeout, false, inventory),
            Workers::Unknown(class) => {
                one("gunicorn.heartbeat", &self.timeout, false, inventory);
                let why = match class {
                    Some(class) => format!("worker_class `{}` is not known here", shortened(&class)),
                    None => "worker_class is not said here".to_owned(),
                };
                for (id, arg, what) in [
                    ("gunicorn.timeout", &self.timeout, "whether it ends a request is not judged"),
                    ("gunicorn.keepalive", &self.keepalive, "whether a connection is kept is not judged"),
                ] {
                    if let Some(arg) = arg {
                        inventory.unknown(on(), id, &why, arg.place.clone());
                        inventory.leave_out(Why::NotUnderstood, arg.place.clone(), format!("{why}: {what}"));
                    }
                }
            }
        }
        one("gunicorn.graceful_timeout", &self.graceful, true, inventory);
        // Sync workers keep no connection.
        if matches!(self.workers(whole), Workers::Concurrent) {
            one("gunicorn.keepalive", &self.keepalive, true, inventory);
        }
    }

    /// Sync is what it takes where nothing at all says otherwise, and more than one thread makes threads of it.
    fn workers(&self, whole: bool) -> Workers {
        let Some(class) = self.class.as_ref().map(|arg| arg.text.as_str()).or(whole.then_some("sync")) else {
            return Workers::Unknown(None);
        };
        let lower = class.to_ascii_lowercase();
        let last = lower.rsplit(['.', '#', ':']).next().unwrap_or(&lower);
        let sync = matches!(last, "sync" | "syncworker");
        let one_thread = self.threads.as_ref().is_none_or(|arg| arg.text.trim() == "1");
        match (sync, one_thread) {
            (true, true) => Workers::Sync,
            (true, false) => Workers::Concurrent,
            // A class of somebody's own is called after what it is made of, as a rule.
            (false, _) if CONCURRENT.iter().any(|known| last.ends_with(known)) => Workers::Concurrent,
            (false, _) => Workers::Unknown(Some(class.trim_matches(['{', '}', ' ']).to_owned())),
        }
    }
}

/// `60`, `"60"`, `int(x)`, `os.environ.get("X", "60")`, `os.getenv("X", 60)`, `x`: the value, or the text in `{{ }}`, which
/// counts as unknown.
fn literal(text: &str, known: &HashMap<&str, Arg>) -> String {
    let mut text = text.split(" #").next().unwrap_or_default().trim();
    for _ in 0..3 {
        let inner = ["int(", "float(", "str("].iter().find_map(|call| text.strip_prefix(call)?.strip_suffix(')'));
        let Some(inner) = inner else { break };
        text = inner.trim();
    }
    let unquoted = text.trim_matches(['"', '\'']);
    if let Some(arg) = known.get(text) {
        return arg.text.clone();
    }
    if !unquoted.is_empty()
        && unquoted.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
        && !is_name(text)
    {
        return unquoted.to_owned();
    }
    let asks = ["os.environ.get(", "os.getenv(", "environ.get(", "getenv(", "env.int(", "env.str(", "env(", "config("];
    let call = asks.iter().find_map(|call| text.strip_prefix(call)?.strip_suffix(')'));
    let default = call.and_then(|inner| inner.split_once(',')).map(|(_, default)| default.trim());
    let default = default.map(|default| default.strip_prefix("default=").unwrap_or(default).trim_matches(['"', '\'']));
    match default {
        Some(default)
            if !default.is_empty()
                && default.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')) =>
        {
            default.to_owned()
        }
        _ => format!("{{{{ {text} }}}}"),
    }
}

/// A name of Python, which is no text.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}
