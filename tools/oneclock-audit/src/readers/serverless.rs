//! The Serverless Framework (`serverless.yml`) on AWS: its functions, the APIs in front of them, the queues that they
//! work off, and the templates under `resources`.
//!
//! `${…}` is filled in when it is deployed: unknown. Not read: files that are pulled in, and what plugins add.

use std::collections::HashMap;

use oneclock_yaml::Node;

use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};
use crate::source::Source;

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let provider = match document.find("provider") {
        Some(provider) if provider.text().is_some() => provider.text(),
        Some(provider) => provider.text_at(&["name"]),
        None => None,
    };
    let named = source.name().starts_with("serverless");
    let functions = document.find("functions");
    if provider != Some("aws") || !(named || document.find("service").is_some() && functions.is_some()) {
        return false;
    }
    let before = inventory.components.len();
    let resources = document.find("resources");
    for resources in resources.into_iter().chain(resources.map(Node::items).unwrap_or_default()) {
        super::aws::read(source, resources, inventory);
    }
    let resources = inventory.components.iter().enumerate().skip(before);
    let queues =
        resources.filter(|(_, one)| one.product == "Amazon SQS").map(|(at, one)| (one.name.clone(), ComponentId(at)));
    let mut found = Found { queues: queues.collect(), ..Found::default() };
    // A list of functions is a list of files and maps.
    let several = functions.map(Node::items).unwrap_or_default();
    let maps = functions.into_iter().chain(several).flat_map(Node::entries);
    for (name, function) in maps.filter(|(_, function)| function.text().is_none()) {
        one(source, document, &name.text, function, &mut found, inventory);
    }
    true
}

/// The APIs that the framework makes, once they are needed, and the queues of the templates.
#[derive(Default)]
struct Found {
    queues: HashMap<String, ComponentId>,
    rest: Option<ComponentId>,
    http: Option<ComponentId>,
}

fn one(source: &Source, document: &Node, name: &str, function: &Node, found: &mut Found, inventory: &mut Inventory) {
    let component = inventory.component(name, "AWS Lambda", Role::Service, source.of(function));
    inventory.answers_to(component, function.text_at(&["name"]).and_then(Name::of));
    let limit = function.find("timeout").or_else(|| document.at(&["provider", "timeout"]));
    say_or_default(source, &On::Component(component), "serverless.timeout", limit, function, inventory);
    for (id, key) in [
        ("aws.lambda.async.max_retries", "maximumRetryAttempts"),
        ("aws.lambda.async.max_event_age", "maximumEventAge"),
    ] {
        say(source, &On::Component(component), id, function.find(key), inventory);
    }
    let service = document.text_at(&["service"]).unwrap_or("service");
    for (kind, event) in function.find("events").map(Node::items).unwrap_or_default().iter().flat_map(Node::entries) {
        match kind.text.as_str() {
            "http" => {
                let api =
                    found.rest.get_or_insert_with(|| gateway(source, service, "API Gateway (REST)", event, inventory));
                let edge = route(source, *api, component, event, inventory);
                say_or_default(source, &edge, "aws.apigateway.rest_timeout", event.find("timeout"), event, inventory);
            }
            "httpApi" => {
                let api =
                    found.http.get_or_insert_with(|| gateway(source, service, "API Gateway (HTTP)", event, inventory));
                let edge = route(source, *api, component, event, inventory);
                // The framework leaves it out, and warns of a function that may take longer.
                inventory.unsaid(edge, "aws.apigateway.http_timeout", source.of(event));
            }
            "sqs" => queue(source, component, event, found, inventory),
            _ => {}
        }
    }
}

fn gateway(source: &Source, service: &str, product: &str, event: &Node, inventory: &mut Inventory) -> ComponentId {
    inventory.component(service, product, Role::Gateway, source.of(event))
}

/// `POST /orders`, or a mapping.
fn route(source: &Source, from: ComponentId, to: ComponentId, event: &Node, inventory: &mut Inventory) -> On {
    let mut words = event.text().unwrap_or_default().split_whitespace();
    let method = event.text_at(&["method"]).or_else(|| words.next());
    let path = event.text_at(&["path"]).or_else(|| words.next());
    let label = format!("route {} {}", method.unwrap_or("ANY").to_ascii_uppercase(), path.unwrap_or_default());
    let mut edge = Edge::new(from, To::Component(to), label.trim_end(), source.of(event));
    edge.path = path.map(str::to_owned);
    let one = method.filter(|method| !method.eq_ignore_ascii_case("any") && *method != "*");
    edge.methods = one.iter().map(|method| method.to_ascii_uppercase()).collect();
    On::Edge(inventory.edge(edge))
}

/// A queue by its ARN, or one of the templates under `resources`.
fn queue(source: &Source, function: ComponentId, event: &Node, found: &Found, inventory: &mut Inventory) {
    let arn = event.find("arn").unwrap_or(event);
    let Some(queue) = own_queue(arn, found).or_else(|| other_queue(source, arn, inventory)) else { return };
    let edge = On::Edge(inventory.edge(Edge::new(queue, To::Component(function), "sqs", source.of(event))));
    say(source, &edge, "aws.event_source.batch_window", event.find("maximumBatchingWindow"), inventory);
}

/// `!GetAtt Jobs.Arn`, or `Fn::GetAtt` with a text or a list.
fn own_queue(arn: &Node, found: &Found) -> Option<ComponentId> {
    let function = arn.find("Fn::GetAtt").unwrap_or(arn);
    let text = function.text().or_else(|| function.items().first()?.text())?;
    found.queues.get(text.split('.').next().unwrap_or(text)).copied()
}

fn other_queue(source: &Source, arn: &Node, inventory: &mut Inventory) -> Option<ComponentId> {
    let text = arn.text().filter(|text| text.starts_with("arn:"))?;
    let name = Name::of(text.rsplit(':').next().unwrap_or(text))?;
    let queue = inventory.component(name.host.as_str(), "Amazon SQS", Role::Broker, source.of(arn));
    inventory.answers_to(queue, Some(name));
    Some(queue)
}

/// A setting, where it is written; what is filled in later is unknown, whatever stands in it.
fn say(source: &Source, on: &On, id: &str, node: Option<&Node>, inventory: &mut Inventory) {
    let Some((text, node)) = node.and_then(|node| Some((node.text()?, node))) else { return };
    if text.contains("${") {
        inventory.unknown(on.clone(), id, text, source.of(node));
    } else {
        inventory.say(on.clone(), id, text, source.of(node));
    }
}

fn say_or_default(source: &Source, on: &On, id: &str, node: Option<&Node>, block: &Node, inventory: &mut Inventory) {
    match node {
        Some(_) => say(source, on, id, node, inventory),
        None => inventory.unsaid(on.clone(), id, source.of(block)),
    }
}
