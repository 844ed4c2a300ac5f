//! What starts a program outside of compose and Kubernetes: `CMD` and `ENTRYPOINT` of a Dockerfile with its `ENV`, the lines
//! of a Procfile, and `command=` of supervisord.
//!
//! A Dockerfile that a compose file builds is read with it, so that its settings belong to the service there. Of several
//! stages the last counts.

use super::command::{Arg, Config, Started, nested, read as read_command, split};
use super::environment::{self, Near, Variable};
use super::gunicorn::{FOUND, Gunicorn};
use super::started_by;
use crate::inventory::{Inventory, Name, Role};
use crate::source::{Source, folder};
use crate::walk::Repository;

/// How an image is started.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// `ENTRYPOINT` and `CMD`, one after the other.
    pub(super) args: Vec<Arg>,
    /// `ENV`.
    pub(super) variables: Vec<Variable>,
    /// The image that the last stage is made of.
    pub(super) from: String,
}

/// A Dockerfile, a Procfile or supervisord's file.
pub(super) fn mine(source: &Source) -> bool {
    is_dockerfile(source) || is_lines(source)
}

fn is_dockerfile(source: &Source) -> bool {
    let name = source.name();
    let named =
        ["Dockerfile", "Containerfile"].iter().any(|known| name == *known || name.starts_with(&format!("{known}.")));
    (named || source.extension() == "dockerfile") && !name.ends_with(".j2") && !name.ends_with(".dockerignore")
}

fn is_lines(source: &Source) -> bool {
    source.name() == "Procfile"
        || (source.name().starts_with("supervisor") && matches!(source.extension().as_str(), "conf" | "ini"))
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let folder = folder(&source.path);
    if is_dockerfile(source) {
        if !started_by::composed(repository, folder) {
            let image = Image::of(source);
            start(source, folder, None, image.args, &image.variables, repository, inventory);
        }
        return;
    }
    let mut program = String::new();
    for (at, line) in source.text.lines().enumerate() {
        let text = line.trim();
        if let Some(name) = text.strip_prefix("[program:").and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut program);
            continue;
        }
        let (key, command) = if source.name() == "Procfile" {
            let Some((key, command)) = text.split_once(':') else { continue };
            (key, command)
        } else {
            let Some((key, command)) = text.split_once('=') else { continue };
            if key.trim() != "command" {
                continue;
            }
            (program.as_str(), command)
        };
        let command = command.trim();
        let column = line.trim_end().chars().count().saturating_sub(command.chars().count()) + 1;
        let place = source.place(at + 1, column, command.chars().count());
        start(source, folder, Some(key), split(command, &place), &[], repository, inventory);
    }
}

/// A component, if it is a server whose settings are known.
fn start(
    source: &Source,
    folder: &str,
    process: Option<&str>,
    args: Vec<Arg>,
    variables: &[Variable],
    repository: &Repository,
    inventory: &mut Inventory,
) {
    // Told apart only afterwards: what starts nothing that is known leaves no component behind.
    let mut trial = Inventory::default();
    let block = args.first().map_or_else(|| source.place(1, 1, 1), |arg| arg.place.clone());
    let name = started_by::called(folder, "image");
    let shown = process.map_or(name.clone(), |process| format!("{name} {process}"));
    let component = trial.component(shown.clone(), "", Role::Service, block.clone());
    let config = |path: Option<&str>| gunicorn_file(repository, folder, path);
    let started = Started { component, product: "", variables, block: block.clone(), config: &config };
    if !read_command(&args, &started, &mut trial) {
        return;
    }
    let component = inventory.component(shown, "", Role::Service, block.clone());
    if !folder.is_empty() {
        inventory.answers_to(component, Name::of(&name));
    }
    let started = Started { component, product: "", variables, block, config: &config };
    read_command(&args, &started, inventory);
    environment::read(variables, component, &Near::default(), inventory);
}

/// gunicorn's file, from a folder in which it starts. The path is one inside the image: its end may be one in here.
pub(super) fn gunicorn_file(repository: &Repository, folder: &str, path: Option<&str>) -> Config {
    let open = |path: &str| started_by::beside(folder, path).and_then(|path| repository.open(&path).ok());
    let source = match path {
        Some(path) => {
            let path = path.trim_start_matches("python:").trim_start_matches('/');
            let ends = std::iter::successors(Some(path), |path| path.split_once('/').map(|(_, rest)| rest));
            ends.take(8).find_map(open)
        }
        None => open(FOUND),
    };
    match (source, path) {
        (Some(source), _) => Config::Says(Box::new(Gunicorn::of_file(&source))),
        (None, Some(_)) => Config::Unseen,
        (None, None) => Config::None,
    }
}

// === Image ===

impl Image {
    /// What the last stage of a Dockerfile says.
    pub(super) fn of(source: &Source) -> Self {
        let (mut entry, mut command, mut variables): (Vec<Arg>, Vec<Arg>, Vec<Variable>) =
            (Vec::new(), Vec::new(), Vec::new());
        let mut from = String::new();
        let mut lines = source.text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let text = line.trim_start();
            let indent = line.chars().count() - text.chars().count();
            let Some((word, rest)) = text.split_once(char::is_whitespace) else { continue };
            let mut rest = rest.trim().to_owned();
            while rest.ends_with('\\') {
                let Some((_, next)) = lines.next() else { break };
                rest.pop();
                if !next.trim_start().starts_with('#') {
                    rest.push(' ');
                    rest.push_str(next.trim());
                } else {
                    rest.push('\\');
                }
            }
            let place = source.place(at + 1, indent + word.chars().count() + 2, 1);
            match word.to_ascii_uppercase().as_str() {
                "FROM" => {
                    entry.clear();
                    command.clear();
                    variables.clear();
                    let image = rest.split_whitespace().find(|word| !word.starts_with("--"));
                    image.unwrap_or_default().clone_into(&mut from);
                }
                "ENTRYPOINT" => {
                    entry = args(&rest, &place);
                    command.clear();
                }
                "CMD" => command = args(&rest, &place),
                "ENV" => variables.extend(env(&rest, &place)),
                _ => {}
            }
        }
        entry.extend(command);
        Self { args: nested(entry), variables, from }
    }
}

/// The form of a list, `["gunicorn", "-t", "60"]`, or that of a shell.
fn args(text: &str, place: &crate::source::Place) -> Vec<Arg> {
    match serde_json::from_str::<Vec<String>>(text) {
        Ok(list) => {
            let of = |(at, text): (usize, String)| Arg { text, place: within(place, at) };
            nested(positions(text, &list).into_iter().zip(list).map(of).collect())
        }
        Err(_) => split(text, place),
    }
}

/// The column of each item of a list, as far as they are written without escapes.
fn positions(text: &str, list: &[String]) -> Vec<usize> {
    const MOST: usize = 256;
    if list.len() > MOST {
        return vec![1; list.len()];
    }
    let mut from = 0;
    let mut columns = Vec::new();
    for item in list {
        let at = text.get(from..).and_then(|rest| rest.find(&format!("\"{item}\""))).map_or(from, |at| from + at);
        columns.push(text.get(..at).map_or(0, |before| before.chars().count()) + 1);
        from = at + item.len();
    }
    columns
}

fn within(place: &crate::source::Place, column: usize) -> crate::source::Place {
    let column = place.column.saturating_add(u32::try_from(column).unwrap_or(u32::MAX));
    crate::source::Place { column, ..place.clone() }
}

/// `A=1 B="2 3"`, or the old `A 1`.
fn env(text: &str, place: &crate::source::Place) -> Vec<Variable> {
    let of =
        |(key, value): (&str, &str)| Variable { key: key.to_owned(), value: value.to_owned(), place: place.clone() };
    let words = split(text, place);
    match words.first().map(|word| word.text.contains('=')) {
        Some(true) => words.iter().filter_map(|word| Some(of(word.text.split_once('=')?))).collect(),
        _ => text.split_once(char::is_whitespace).map(|(key, value)| of((key, value.trim()))).into_iter().collect(),
    }
}
