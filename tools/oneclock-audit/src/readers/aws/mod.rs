//! AWS templates: CloudFormation and SAM, in YAML or JSON.
//!
//! Read are functions, the APIs and load balancers in front of them, queues and what is fetched from them, distributions,
//! and state machines. `Ref`, `Fn::Sub` and `Fn::GetAtt` (`!Ref` and so on) lead to a resource or to a parameter's
//! `Default`; all other functions are unknown. Not read: API definitions in files of their own, state machines in texts,
//! nested stacks, and what a deployment passes in instead of a default.

mod edge;
mod queue;
mod template;

use oneclock_yaml::Node;

use self::template::Template;
use crate::inventory::{ComponentId, Inventory, Name, On, Role};
use crate::source::Source;

/// A template has one of these.
pub(super) const WORDS: &[&str] = &[
    "AWS::Serverless::",
    "AWS::Lambda::",
    "AWS::SQS::",
    "AWS::ElasticLoadBalancingV2::",
    "AWS::ApiGateway",
    "AWS::CloudFront::",
    "AWS::StepFunctions::",
];

pub(super) fn read(source: &Source, document: &Node, inventory: &mut Inventory) -> bool {
    let Some(mut template) = Template::of(source, document) else { return false };
    template.functions(document.at(&["Globals", "Function"]), inventory);
    template.everything(inventory);
    true
}

impl Template<'_> {
    /// The functions: they have to be there before anything leads to them.
    fn functions(&mut self, globals: Option<&Node>, inventory: &mut Inventory) {
        for (id, resource) in self.all() {
            let serverless = match kind(resource) {
                "AWS::Serverless::Function" => true,
                "AWS::Lambda::Function" => false,
                _ => continue,
            };
            let properties = resource.find("Properties");
            let function = inventory.component(id, "AWS Lambda", Role::Service, self.source.of(resource));
            inventory
                .answers_to(function, properties.and_then(|own| own.text_at(&["FunctionName"])).and_then(Name::of));
            self.components.insert(id, function);
            let globals = globals.filter(|_| serverless);
            let written =
                properties.and_then(|own| own.find("Timeout")).or_else(|| globals.and_then(|all| all.find("Timeout")));
            self.say_or_default(On::Component(function), "aws.lambda.timeout", written, resource, inventory);
            if let Some(invoke) = properties.and_then(|own| own.find("EventInvokeConfig")) {
                self.asynchronous(function, invoke, inventory);
            }
        }
    }

    fn asynchronous(&self, function: ComponentId, invoke: &Node, inventory: &mut Inventory) {
        self.say(
            On::Component(function),
            "aws.lambda.async.max_retries",
            invoke.find("MaximumRetryAttempts"),
            inventory,
        );
        self.say(
            On::Component(function),
            "aws.lambda.async.max_event_age",
            invoke.find("MaximumEventAgeInSeconds"),
            inventory,
        );
    }

    fn everything(&mut self, inventory: &mut Inventory) {
        // What is called or read from comes before what leads to it.
        for (id, resource) in self.all() {
            match kind(resource) {
                "AWS::SQS::Queue" => self.queue(id, resource, inventory),
                "AWS::Serverless::Api" | "AWS::ApiGateway::RestApi" => {
                    self.gateway(id, resource, "API Gateway (REST)", inventory)
                }
                "AWS::Serverless::HttpApi" => self.gateway(id, resource, "API Gateway (HTTP)", inventory),
                "AWS::ApiGatewayV2::Api" => self.gateway(id, resource, version_two(resource), inventory),
                "AWS::ElasticLoadBalancingV2::LoadBalancer" => self.balancer(id, resource, inventory),
                "AWS::ElasticLoadBalancingV2::TargetGroup" => self.targets(id, resource, inventory),
                "AWS::CloudFront::Distribution" => self.distribution(id, resource, inventory),
                "AWS::Serverless::StateMachine" | "AWS::StepFunctions::StateMachine" => {
                    self.machine(id, resource, inventory)
                }
                _ => {}
            }
        }
        for (id, resource) in self.all() {
            match kind(resource) {
                "AWS::Serverless::Function" => self.events(id, resource, inventory),
                "AWS::ApiGateway::Method" => self.method(resource, inventory),
                "AWS::ApiGatewayV2::Integration" => self.integration(resource, inventory),
                "AWS::ElasticLoadBalancingV2::Listener" | "AWS::ElasticLoadBalancingV2::ListenerRule" => {
                    self.listener(resource, inventory);
                }
                "AWS::Lambda::EventSourceMapping" => self.mapping(resource, inventory),
                "AWS::Lambda::EventInvokeConfig" => {
                    if let Some(properties) = resource.find("Properties") {
                        let function = properties.find("FunctionName").and_then(|node| self.component(node));
                        if let Some(function) = function {
                            self.asynchronous(function, properties, inventory);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn kind(resource: &Node) -> &str {
    resource.text_at(&["Type"]).unwrap_or_default()
}

fn version_two(resource: &Node) -> &'static str {
    if resource.text_at(&["Properties", "ProtocolType"]) == Some("WEBSOCKET") {
        "API Gateway (WebSocket)"
    } else {
        "API Gateway (HTTP)"
    }
}
