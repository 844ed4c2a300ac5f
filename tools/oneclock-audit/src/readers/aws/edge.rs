//! Where outsiders come in: APIs, load balancers, distributions; and state machines, which call for others.

use oneclock_yaml::Node;

use super::Template;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};

impl<'a> Template<'a> {
    pub(super) fn gateway(&mut self, id: &'a str, resource: &Node, product: &str, inventory: &mut Inventory) {
        let component = inventory.component(id, product, Role::Gateway, self.source.of(resource));
        self.components.insert(id, component);
    }

    /// The API of an event that names none: SAM makes it.
    fn implicit(&mut self, id: &'a str, product: &str, at: &Node, inventory: &mut Inventory) -> ComponentId {
        *self
            .components
            .entry(id)
            .or_insert_with(|| inventory.component(id, product, Role::Gateway, self.source.of(at)))
    }

    /// The events of a SAM function.
    pub(super) fn events(&mut self, id: &'a str, resource: &'a Node, inventory: &mut Inventory) {
        let Some(function) = self.components.get(id).copied() else { return };
        for (key, event) in resource.at(&["Properties", "Events"]).map(Node::entries).unwrap_or_default() {
            let properties = event.find("Properties");
            let property = |name: &str| properties.and_then(|own| own.find(name));
            match event.text_at(&["Type"]) {
                Some("Api") => {
                    let api = property("RestApiId").and_then(|api| self.leads_to(api));
                    let elsewhere = api.is_some_and(|(_, api)| {
                        ["DefinitionBody", "DefinitionUri"].iter().any(|own| api.at(&["Properties", own]).is_some())
                    });
                    let from = match property("RestApiId") {
                        Some(api) => self.component(api),
                        None => Some(self.implicit("ServerlessRestApi", "API Gateway (REST)", event, inventory)),
                    };
                    let Some(from) = from else { continue };
                    let edge = self.route(from, function, event, properties, inventory);
                    if !elsewhere {
                        inventory.unsaid(edge, "aws.apigateway.rest_timeout", self.source.of(event));
                    }
                }
                Some("HttpApi") => {
                    let from = match property("ApiId") {
                        Some(api) => self.component(api),
                        None => Some(self.implicit("ServerlessHttpApi", "API Gateway (HTTP)", event, inventory)),
                    };
                    let Some(from) = from else { continue };
                    let edge = self.route(from, function, event, properties, inventory);
                    let written = property("TimeoutInMillis");
                    self.say_or_default(edge, "aws.apigateway.http_timeout", written, event, inventory);
                }
                Some("SQS") => self.fetched(property("Queue"), function, event, &key.text, properties, inventory),
                Some("Kinesis" | "DynamoDB") => {
                    self.fetched(property("Stream"), function, event, &key.text, properties, inventory)
                }
                _ => {}
            }
        }
    }

    fn route(
        &self,
        from: ComponentId,
        to: ComponentId,
        event: &Node,
        own: Option<&Node>,
        inventory: &mut Inventory,
    ) -> On {
        let text = |names: [&str; 2]| names.iter().find_map(|name| own.and_then(|own| own.text_at(&[name])));
        let (method, path) = (text(["Method", "method"]), text(["Path", "path"]));
        let label = format!("route {} {}", method.unwrap_or("ANY").to_ascii_uppercase(), path.unwrap_or_default());
        let mut edge = Edge::new(from, To::Component(to), label.trim_end(), self.source.of(event));
        edge.path = path.map(str::to_owned);
        let any = method.is_none_or(|method| method.eq_ignore_ascii_case("any") || method == "*");
        edge.methods = if any { Vec::new() } else { method.iter().map(|method| method.to_ascii_uppercase()).collect() };
        On::Edge(inventory.edge(edge))
    }

    /// `AWS::ApiGateway::Method`.
    pub(super) fn method(&self, resource: &Node, inventory: &mut Inventory) {
        let Some(integration) = resource.at(&["Properties", "Integration"]) else { return };
        if integration.text_at(&["Type"]) == Some("MOCK") || is_event(integration) {
            return;
        }
        let from = resource.at(&["Properties", "RestApiId"]).and_then(|api| self.component(api));
        let to = integration.find("Uri").and_then(|uri| self.to(uri));
        let (Some(from), Some(to)) = (from, to) else { return };
        let method = resource.text_at(&["Properties", "HttpMethod"]).filter(|method| *method != "ANY");
        let mut edge = Edge::new(from, to, format!("method {}", method.unwrap_or("ANY")), self.source.of(resource));
        edge.methods = method.iter().map(|method| (*method).to_owned()).collect();
        let edge = On::Edge(inventory.edge(edge));
        self.say_or_default(
            edge,
            "aws.apigateway.rest_timeout",
            integration.find("TimeoutInMillis"),
            integration,
            inventory,
        );
    }

    /// `AWS::ApiGatewayV2::Integration`.
    pub(super) fn integration(&self, resource: &Node, inventory: &mut Inventory) {
        let Some(properties) = resource.find("Properties") else { return };
        let api = properties.find("ApiId");
        let from = api.and_then(|api| self.component(api));
        let to = properties.find("IntegrationUri").and_then(|uri| self.to(uri));
        let (Some(from), Some(to)) = (from, to) else { return };
        let edge = On::Edge(inventory.edge(Edge::new(from, to, "integration", self.source.of(resource))));
        let websocket = api
            .and_then(|api| self.leads_to(api))
            .is_some_and(|(_, api)| super::version_two(api).contains("WebSocket"));
        let id = if websocket { "aws.apigateway.websocket_timeout" } else { "aws.apigateway.http_timeout" };
        self.say_or_default(edge, id, properties.find("TimeoutInMillis"), resource, inventory);
    }

    fn to(&self, uri: &Node) -> Option<To> {
        self.component(uri)
            .map(To::Component)
            .or_else(|| uri.text().filter(|uri| uri.contains("://")).and_then(Name::of).map(To::Name))
    }

    /// A load balancer for HTTP; one for connections has another limit, which is not for requests.
    pub(super) fn balancer(&mut self, id: &'a str, resource: &Node, inventory: &mut Inventory) {
        if resource.text_at(&["Properties", "Type"]).is_some_and(|kind| kind != "application") {
            return;
        }
        let component = inventory.component(id, "AWS load balancer", Role::Gateway, self.source.of(resource));
        self.components.insert(id, component);
        let attributes = resource.at(&["Properties", "LoadBalancerAttributes"]);
        for (setting, key) in [
            ("aws.alb.idle_timeout", "idle_timeout.timeout_seconds"),
            ("aws.alb.client_keep_alive", "client_keep_alive.seconds"),
        ] {
            self.say_or_default(On::Component(component), setting, attribute(attributes, key), resource, inventory);
        }
    }

    pub(super) fn targets(&mut self, id: &'a str, resource: &Node, inventory: &mut Inventory) {
        let component = inventory.component(id, "AWS target group", Role::Between, self.source.of(resource));
        self.components.insert(id, component);
        let written =
            attribute(resource.at(&["Properties", "TargetGroupAttributes"]), "deregistration_delay.timeout_seconds");
        self.say_or_default(On::Component(component), "aws.alb.deregistration_delay", written, resource, inventory);
        for target in resource.at(&["Properties", "Targets"]).map(Node::items).unwrap_or_default() {
            if let Some(to) = target.find("Id").and_then(|id| self.component(id)) {
                inventory.edge(Edge::new(component, To::Component(to), "target", self.source.of(target)));
            }
        }
    }

    /// A listener leads from its balancer to the groups of its actions.
    pub(super) fn listener(&self, resource: &Node, inventory: &mut Inventory) {
        let own = |name: &str| resource.at(&["Properties", name]);
        let listener = own("ListenerArn").and_then(|listener| self.leads_to(listener)).map(|(_, listener)| listener);
        let balancer =
            own("LoadBalancerArn").or_else(|| listener.and_then(|one| one.at(&["Properties", "LoadBalancerArn"])));
        let Some(from) = balancer.and_then(|balancer| self.component(balancer)) else { return };
        for action in ["DefaultActions", "Actions"].iter().filter_map(|name| own(name)).flat_map(Node::items) {
            let groups = action.at(&["ForwardConfig", "TargetGroups"]).map(Node::items).unwrap_or_default();
            let arns = action
                .find("TargetGroupArn")
                .into_iter()
                .chain(groups.iter().filter_map(|group| group.find("TargetGroupArn")));
            for to in arns.filter_map(|arn| self.component(arn)) {
                inventory.edge(Edge::new(from, To::Component(to), "listener", self.source.of(action)));
            }
        }
    }

    pub(super) fn distribution(&mut self, id: &'a str, resource: &Node, inventory: &mut Inventory) {
        let Some(config) = resource.at(&["Properties", "DistributionConfig"]) else { return };
        let component = inventory.component(id, "CloudFront", Role::Gateway, self.source.of(resource));
        self.components.insert(id, component);
        for alias in config.find("Aliases").map(Node::items).unwrap_or_default() {
            inventory.answers_to(component, alias.text().and_then(Name::of));
        }
        for origin in config.find("Origins").map(Node::items).unwrap_or_default() {
            // Without it the origin is a bucket, for which the limits are others.
            let Some(custom) = origin.find("CustomOriginConfig") else { continue };
            let Some(domain) = origin.find("DomainName") else { continue };
            let to =
                self.component(domain).map(To::Component).or_else(|| domain.text().and_then(Name::of).map(To::Name));
            let Some(to) = to else { continue };
            let mut edge = Edge::new(component, to, "origin", self.source.of(origin));
            // It asks again for what may be asked again only.
            edge.spares_unsafe = Some(true);
            let edge = On::Edge(inventory.edge(edge));
            self.say_or_default(
                edge.clone(),
                "aws.cloudfront.read_timeout",
                custom.find("OriginReadTimeout"),
                origin,
                inventory,
            );
            self.say_or_default(
                edge.clone(),
                "aws.cloudfront.connect_timeout",
                origin.find("ConnectionTimeout"),
                origin,
                inventory,
            );
            self.say_or_default(
                edge,
                "aws.cloudfront.connect_attempts",
                origin.find("ConnectionAttempts"),
                origin,
                inventory,
            );
        }
    }

    /// A state machine whose definition stands in the template; its outermost states.
    pub(super) fn machine(&mut self, id: &'a str, resource: &Node, inventory: &mut Inventory) {
        let component = inventory.component(id, "AWS Step Functions", Role::Service, self.source.of(resource));
        self.components.insert(id, component);
        let Some(definition) = resource.at(&["Properties", "Definition"]) else { return };
        self.say(On::Component(component), "aws.stepfunctions.timeout", definition.find("TimeoutSeconds"), inventory);
        for (name, state) in definition.find("States").map(Node::entries).unwrap_or_default() {
            let called = state.at(&["Parameters", "FunctionName"]).or_else(|| state.at(&["Arguments", "FunctionName"]));
            let Some(to) = called.or_else(|| state.find("Resource")).and_then(|called| self.component(called)) else {
                continue;
            };
            let edge = Edge::new(component, To::Component(to), format!("state {}", name.text), self.source.of(state));
            let edge = On::Edge(inventory.edge(edge));
            self.say(edge.clone(), "aws.stepfunctions.state_timeout", state.find("TimeoutSeconds"), inventory);
            if let Some(retry) = state.find("Retry").and_then(|retry| retry.items().first()) {
                self.say_or_default(
                    edge,
                    "aws.stepfunctions.max_attempts",
                    retry.find("MaxAttempts"),
                    retry,
                    inventory,
                );
            }
        }
    }
}

/// The value of `[{Key: …, Value: …}]`.
fn attribute<'b>(attributes: Option<&'b Node>, key: &str) -> Option<&'b Node> {
    let items = attributes.map(Node::items).unwrap_or_default();
    items.iter().find(|item| item.text_at(&["Key"]) == Some(key)).and_then(|item| item.find("Value"))
}

/// Whether a function is only told to begin: nobody waits for it.
fn is_event(integration: &Node) -> bool {
    let parameters = integration.find("RequestParameters").map(Node::entries).unwrap_or_default();
    let said = |text: &str| text.trim_matches('\'').eq_ignore_ascii_case("Event");
    parameters.iter().any(|(key, value)| {
        key.text.to_ascii_lowercase().ends_with(".x-amz-invocation-type") && value.text().is_some_and(said)
    })
}
