//! `.env`, `.env.example`, `web.env`: files of variables that no compose file beside them reads.
//!
//! Whom they call is not said (a file of an environment has no program), only what they say about time.

use super::environment::{self, Near, Variable, is_product_key, lines};
use super::started_by;
use crate::inventory::{Inventory, Role};
use crate::source::{Source, folder};
use crate::walk::Repository;

/// By its name.
pub(super) fn mine(source: &Source) -> bool {
    let name = source.name().to_ascii_lowercase();
    let plain =
        [".example", ".sample", ".dist", ".template"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    plain == ".env" || plain == "env" || plain.starts_with(".env.") || plain.ends_with(".env")
}

pub(super) fn read(source: &Source, repository: &Repository, inventory: &mut Inventory) {
    let folder = folder(&source.path);
    let beside = |name: &str| repository.open(&started_by::within(folder, name)).is_ok();
    if started_by::COMPOSE.iter().any(|name| beside(name)) || started_by::mounted(repository, folder, source.name()) {
        return;
    }
    let said: Vec<Variable> = lines(source).into_iter().filter(speaks_of_time).collect();
    if said.is_empty() {
        return;
    }
    let mut trial = Inventory::default();
    let place = source.place(1, 1, 1);
    let name = started_by::called(folder, source.name());
    let component = trial.component(name.clone(), "", Role::Service, place.clone());
    environment::read(&said, component, &Near::default(), &mut trial);
    if trial.settings.is_empty() {
        inventory.left_out.extend(trial.left_out);
        return;
    }
    let component = inventory.component(name, "", Role::Service, place);
    environment::read(&said, component, &Near::default(), inventory);
}

fn speaks_of_time(variable: &Variable) -> bool {
    is_product_key(&variable.key) || variable.key.contains("TIMEOUT") || variable.value.contains("timeout")
}
