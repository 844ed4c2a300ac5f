//! Queues, and the functions that work them off: a message comes back while it is worked on where the queue waits less
//! long than the function may take.

use oneclock_yaml::Node;

use super::Template;
use crate::inventory::{ComponentId, Edge, Inventory, Name, On, Role, To};

impl<'a> Template<'a> {
    pub(super) fn queue(&mut self, id: &'a str, resource: &Node, inventory: &mut Inventory) {
        let queue = inventory.component(id, "Amazon SQS", Role::Broker, self.source.of(resource));
        self.components.insert(id, queue);
        let own = |name: &str| resource.at(&["Properties", name]);
        inventory.answers_to(queue, own("QueueName").and_then(Node::text).and_then(Name::of));
        let on = On::Component(queue);
        self.say_or_default(on.clone(), "aws.sqs.visibility_timeout", own("VisibilityTimeout"), resource, inventory);
        self.say_or_default(on.clone(), "aws.sqs.retention", own("MessageRetentionPeriod"), resource, inventory);
        let most = own("RedrivePolicy").and_then(|policy| policy.find("maxReceiveCount"));
        self.say(on, "aws.sqs.max_receive_count", most, inventory);
    }

    /// `AWS::Lambda::EventSourceMapping`.
    pub(super) fn mapping(&self, resource: &Node, inventory: &mut Inventory) {
        let Some(properties) = resource.find("Properties") else { return };
        let function = properties.find("FunctionName").and_then(|function| self.component(function));
        let Some(function) = function else { return };
        self.fetched(
            properties.find("EventSourceArn"),
            function,
            resource,
            "event source",
            Some(properties),
            inventory,
        );
    }

    /// A function is handed what lies in a queue or a stream of this template.
    pub(super) fn fetched(
        &self,
        from: Option<&Node>,
        function: ComponentId,
        at: &Node,
        label: &str,
        properties: Option<&Node>,
        inventory: &mut Inventory,
    ) {
        let Some(queue) = from.and_then(|from| self.component(from)) else { return };
        let edge = On::Edge(inventory.edge(Edge::new(queue, To::Component(function), label, self.source.of(at))));
        for (id, name) in [
            ("aws.event_source.max_retries", "MaximumRetryAttempts"),
            ("aws.event_source.batch_window", "MaximumBatchingWindowInSeconds"),
        ] {
            self.say(edge.clone(), id, properties.and_then(|own| own.find(name)), inventory);
        }
    }
}
