//! AWS in Terraform: the same functions, APIs, load balancers, queues and distributions as in its own templates.

use super::module::{Module, Part, Written};
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};

/// What has limits of its own.
pub(super) fn components(module: &mut Module<'_>, inventory: &mut Inventory) {
    for (kind, name, part) in module.of_kind(&["aws_lambda_function"]) {
        let function = inventory.component(name, "AWS Lambda", Role::Service, part.place());
        inventory.answers_to(function, plain_name(module, part, "function_name"));
        module.stands(kind, name, function);
        module.say_or_default(On::Component(function), "aws.lambda.timeout", part.value("timeout"), part, inventory);
    }
    for (kind, name, part) in module.of_kind(&["aws_sqs_queue"]) {
        queue(module, kind, name, part, inventory);
    }
    for (kind, name, part) in module.of_kind(&["aws_api_gateway_rest_api"]) {
        let api = inventory.component(name, "API Gateway (REST)", Role::Gateway, part.place());
        module.stands(kind, name, api);
    }
    for (kind, name, part) in module.of_kind(&["aws_apigatewayv2_api"]) {
        let websocket = part.value("protocol_type").and_then(Written::text) == Some("WEBSOCKET");
        let product = if websocket { "API Gateway (WebSocket)" } else { "API Gateway (HTTP)" };
        let api = inventory.component(name, product, Role::Gateway, part.place());
        module.stands(kind, name, api);
    }
    for (kind, name, part) in module.of_kind(&["aws_lb", "aws_alb"]) {
        balancer(module, kind, name, part, inventory);
    }
    for (kind, name, part) in module.of_kind(&["aws_lb_target_group", "aws_alb_target_group"]) {
        let group = inventory.component(name, "AWS target group", Role::Between, part.place());
        module.stands(kind, name, group);
        let delay = part.value("deregistration_delay");
        module.say_or_default(On::Component(group), "aws.alb.deregistration_delay", delay, part, inventory);
    }
    for (kind, name, part) in module.of_kind(&["aws_cloudfront_distribution"]) {
        let distribution = inventory.component(name, "CloudFront", Role::Gateway, part.place());
        module.stands(kind, name, distribution);
    }
}

fn plain_name<'a>(module: &Module<'a>, part: Part<'a>, name: &str) -> Option<Name> {
    part.value(name).and_then(|value| module.plain(value)).and_then(Name::of)
}

fn queue<'a>(module: &mut Module<'a>, kind: &'a str, name: &'a str, part: Part<'a>, inventory: &mut Inventory) {
    let queue = inventory.component(name, "Amazon SQS", Role::Broker, part.place());
    inventory.answers_to(queue, plain_name(module, part, "name"));
    module.stands(kind, name, queue);
    let on = On::Component(queue);
    let visible = part.value("visibility_timeout_seconds");
    module.say_or_default(on.clone(), "aws.sqs.visibility_timeout", visible, part, inventory);
    module.say_or_default(on.clone(), "aws.sqs.retention", part.value("message_retention_seconds"), part, inventory);
    let most = part.value("redrive_policy").and_then(|policy| policy.encoded("maxReceiveCount"));
    module.say(on, "aws.sqs.max_receive_count", most, inventory);
}

/// One for HTTP; one for connections has another limit, which is not for requests.
fn balancer<'a>(module: &mut Module<'a>, kind: &'a str, name: &'a str, part: Part<'a>, inventory: &mut Inventory) {
    let written = part.value("load_balancer_type");
    if written.is_some_and(|written| module.plain(written) != Some("application")) {
        return;
    }
    let balancer = inventory.component(name, "AWS load balancer", Role::Gateway, part.place());
    module.stands(kind, name, balancer);
    for (id, name) in [("aws.alb.idle_timeout", "idle_timeout"), ("aws.alb.client_keep_alive", "client_keep_alive")] {
        module.say_or_default(On::Component(balancer), id, part.value(name), part, inventory);
    }
}

/// What leads from one to another.
pub(super) fn calls(module: &Module<'_>, inventory: &mut Inventory) {
    for (_, _, part) in module.of_kind(&["aws_api_gateway_integration"]) {
        let mock = part.value("type").and_then(Written::text) == Some("MOCK");
        let method = part.value("http_method").and_then(Written::text).filter(|method| *method != "ANY");
        // A function that is only told to begin: nobody waits for it.
        let invoked = part.value("request_parameters").and_then(|all| all.ending(".x-amz-invocation-type"));
        let event =
            invoked.and_then(Written::text).is_some_and(|text| text.trim_matches('\'').eq_ignore_ascii_case("Event"));
        if mock || event {
            continue;
        }
        let Some(On::Edge(id)) = call(module, part, ["rest_api_id", "uri"], "integration", inventory) else { continue };
        if let (Some(edge), Some(method)) = (inventory.edges.get_mut(id.0), method) {
            edge.methods = vec![method.to_owned()];
        }
        let limit = part.value("timeout_milliseconds");
        module.say_or_default(On::Edge(id), "aws.apigateway.rest_timeout", limit, part, inventory);
    }
    for (_, _, part) in module.of_kind(&["aws_apigatewayv2_integration"]) {
        let api = part.value("api_id").and_then(|api| module.leads_to(api));
        let websocket =
            api.and_then(|api| inventory.components.get(api.0)).is_some_and(|api| api.product.contains("WebSocket"));
        let Some(edge) = call(module, part, ["api_id", "integration_uri"], "integration", inventory) else { continue };
        let id = if websocket { "aws.apigateway.websocket_timeout" } else { "aws.apigateway.http_timeout" };
        module.say_or_default(edge, id, part.value("timeout_milliseconds"), part, inventory);
    }
    for (_, _, part) in module.of_kind(&["aws_lb_listener", "aws_alb_listener"]) {
        let Some(from) = part.value("load_balancer_arn").and_then(|from| module.leads_to(from)) else { continue };
        for action in part.parts("default_action") {
            let groups = action.parts("forward").flat_map(|forward| forward.parts("target_group").collect::<Vec<_>>());
            let arns =
                action.value("target_group_arn").into_iter().chain(groups.filter_map(|group| group.value("arn")));
            for to in arns.filter_map(|arn| module.leads_to(arn)) {
                inventory.edge(Edge::new(from, To::Component(to), "listener", action.place()));
            }
        }
    }
    for (_, _, part) in module.of_kind(&["aws_lb_target_group_attachment", "aws_alb_target_group_attachment"]) {
        call(module, part, ["target_group_arn", "target_id"], "target", inventory);
    }
    functions(module, inventory);
    for (kind, name, part) in module.of_kind(&["aws_cloudfront_distribution"]) {
        if let Some(from) = module.component(kind, name) {
            origins(module, from, part, inventory);
        }
    }
}

/// What hands work to functions, and how often.
fn functions(module: &Module<'_>, inventory: &mut Inventory) {
    for (_, _, part) in module.of_kind(&["aws_lambda_event_source_mapping"]) {
        let Some(edge) = call(module, part, ["event_source_arn", "function_name"], "event source", inventory) else {
            continue;
        };
        for (id, name) in [
            ("aws.event_source.max_retries", "maximum_retry_attempts"),
            ("aws.event_source.batch_window", "maximum_batching_window_in_seconds"),
        ] {
            module.say(edge.clone(), id, part.value(name), inventory);
        }
    }
    for (_, _, part) in module.of_kind(&["aws_lambda_function_event_invoke_config"]) {
        let Some(function) = part.value("function_name").and_then(|function| module.leads_to(function)) else {
            continue;
        };
        for (id, name) in [
            ("aws.lambda.async.max_retries", "maximum_retry_attempts"),
            ("aws.lambda.async.max_event_age", "maximum_event_age_in_seconds"),
        ] {
            module.say(On::Component(function), id, part.value(name), inventory);
        }
    }
}

fn origins<'a>(module: &Module<'a>, from: ComponentId, part: Part<'a>, inventory: &mut Inventory) {
    for origin in part.parts("origin") {
        // Without it the origin is a bucket, for which the limits are others.
        let Some(custom) = origin.parts("custom_origin_config").next() else { continue };
        let Some(to) = origin.value("domain_name").and_then(|to| target(module, to)) else { continue };
        let mut edge = Edge::new(from, to, "origin", origin.place());
        // It asks again for what may be asked again only.
        edge.spares_unsafe = Some(true);
        let edge = On::Edge(inventory.edge(edge));
        for (id, value) in [
            ("aws.cloudfront.read_timeout", custom.value("origin_read_timeout")),
            ("aws.cloudfront.connect_timeout", origin.value("connection_timeout")),
            ("aws.cloudfront.connect_attempts", origin.value("connection_attempts")),
        ] {
            module.say_or_default(edge.clone(), id, value, origin, inventory);
        }
    }
}

/// From what one value leads to, to what the other does.
fn call<'a>(
    module: &Module<'a>,
    part: Part<'a>,
    ends: [&str; 2],
    label: &str,
    inventory: &mut Inventory,
) -> Option<On> {
    let [from, to] = ends;
    let from = module.leads_to(part.value(from)?)?;
    let to = target(module, part.value(to)?)?;
    Some(On::Edge(inventory.edge(Edge::new(from, to, label, part.place()))))
}

/// A resource of the module, or a name that is written.
fn target<'a>(module: &Module<'a>, value: Written<'a>) -> Option<To> {
    let resource = module.leads_to(value).map(To::Component);
    let name = || module.plain(value).filter(|text| !text.starts_with("arn:")).and_then(Name::of).map(To::Name);
    resource.or_else(name)
}
