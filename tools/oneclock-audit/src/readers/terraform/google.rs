//! Google Cloud in Terraform: Cloud Run, and the backend services of its load balancers.

use super::module::Module;
use crate::inventory::{Inventory, Name, On, Role};

pub(super) fn components(module: &mut Module<'_>, inventory: &mut Inventory) {
    for (kind, name, part) in module.of_kind(&["google_cloud_run_v2_service", "google_cloud_run_service"]) {
        let service = inventory.component(name, "Google Cloud Run", Role::Service, part.place());
        let own = part.value("name").and_then(|name| module.plain(name)).and_then(Name::of);
        inventory.answers_to(service, own);
        module.stands(kind, name, service);
        let template = part.parts("template").next();
        let limit = match kind {
            "google_cloud_run_v2_service" => template.and_then(|template| template.value("timeout")),
            _ => template
                .and_then(|template| template.parts("spec").next())
                .and_then(|spec| spec.value("timeout_seconds")),
        };
        module.say_or_default(On::Component(service), "gcp.cloudrun.timeout", limit, part, inventory);
    }
    for (kind, name, part) in module.of_kind(&["google_compute_backend_service"]) {
        let backend = inventory.component(name, "Google Cloud load balancer", Role::Gateway, part.place());
        module.stands(kind, name, backend);
        // Its default depends on what stands behind it, which this file may not say.
        module.say(On::Component(backend), "gcp.backend_service.timeout", part.value("timeout_sec"), inventory);
    }
}
