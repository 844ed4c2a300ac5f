//! Terraform: functions, APIs, load balancers and queues of AWS, Cloud Run and backend services of Google Cloud.
//!
//! A folder is a module: its files are read together, once. `var.x` is the variable's default, `local.x` what is written
//! there, both only as far as they are plain; all else is unknown. `timeouts {}` is about Terraform itself and not read.
//! Not read: what a module is called with, `dynamic` blocks, other providers, overrides, and the JSON notation.

mod aws;
mod google;
mod module;

use self::module::Module;
use crate::inventory::{Inventory, Why};
use crate::source::{Source, folder};
use crate::walk::Repository;

/// As the list of readers has it.
pub(super) const NAME: &str = "Terraform";

/// More files than this, or more text, are no folder that somebody wrote.
const MOST_FILES: usize = 512;
const LARGEST: usize = 16 * 1024 * 1024;

pub(super) fn mine(source: &Source) -> bool {
    source.extension() == "tf" && !overrides(&source.path)
}

/// Terraform's JSON: recognised, and not read.
pub(super) fn is_json(source: &Source) -> bool {
    source.name().ends_with(".tf.json")
}

/// `override.tf` and `x_override.tf` change other files; nearly always they are somebody's own.
fn overrides(path: &str) -> bool {
    path.ends_with("override.tf")
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let here = folder(&source.path);
    // The first file of a folder that is offered stands for all of them.
    if inventory.files.iter().any(|file| folder(&file.path) == here && file.readers.contains(&NAME)) {
        return;
    }
    let mut sources = vec![source.clone()];
    let mut bytes = source.text.len();
    for path in repository.folder(here) {
        if !path.ends_with(".tf") || overrides(&path) || *path == *source.path {
            continue;
        }
        match repository.open(&path) {
            Ok(other) if sources.len() < MOST_FILES && bytes + other.text.len() <= LARGEST => {
                bytes += other.text.len();
                sources.push(other);
            }
            Ok(other) => {
                inventory.leave_out(Why::TooLarge, other.place(1, 1, 1), "too much for one module of Terraform")
            }
            Err(error) => {
                let unopened = Source::new(path, "");
                inventory.leave_out(Why::Unreadable, unopened.place(1, 1, 1), error.to_string());
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let files = module::parsed(&sources, inventory);
    let mut module = Module::of(&files);
    aws::components(&mut module, inventory);
    google::components(&mut module, inventory);
    aws::calls(&module, inventory);
}
