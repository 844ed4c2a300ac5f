//! A template: its resources by their names, and where a value leads.

use std::collections::HashMap;

use oneclock_yaml::{Key, Node, Value};

use crate::inventory::{ComponentId, Inventory, On};
use crate::source::Source;

/// A template that is read.
pub(super) struct Template<'a> {
    /// The file.
    pub(super) source: &'a Source,
    resources: &'a [(Key, Node)],
    by_name: HashMap<&'a str, &'a Node>,
    parameters: HashMap<&'a str, &'a Node>,
    /// What stands for a resource.
    pub(super) components: HashMap<&'a str, ComponentId>,
}

/// What a value comes to.
enum Written<'a> {
    Text(&'a str),
    Unknown(String),
}

impl<'a> Template<'a> {
    /// A document that has resources of AWS.
    pub(super) fn of(source: &'a Source, document: &'a Node) -> Option<Self> {
        let resources = document.find("Resources")?.entries();
        let types =
            |(_, resource): &(Key, Node)| resource.text_at(&["Type"]).is_some_and(|kind| kind.starts_with("AWS::"));
        if !resources.iter().any(types) {
            return None;
        }
        let by_name = resources.iter().map(|(key, node)| (key.text.as_str(), node)).collect();
        let parameters = document.find("Parameters").map(Node::entries).unwrap_or_default();
        let parameters = parameters.iter().map(|(key, node)| (key.text.as_str(), node)).collect();
        Some(Self { source, resources, by_name, parameters, components: HashMap::new() })
    }

    /// All resources, as they stand.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        self.resources.iter().map(|(key, node)| (key.text.as_str(), node))
    }

    /// The resource that a value leads to.
    pub(super) fn leads_to(&self, value: &Node) -> Option<(&'a str, &'a Node)> {
        match &value.value {
            Value::Scalar(text) => self.named_in(text),
            Value::List(items) => items.iter().find_map(|item| self.leads_to(item)),
            Value::Map(entries) => {
                let function = |key: &str| key == "Ref" || key.starts_with("Fn::");
                entries.iter().filter(|(key, _)| function(&key.text)).find_map(|(_, inner)| self.leads_to(inner))
            }
            Value::Null => None,
        }
    }

    /// `Queue`, `Queue.Arn`, `arn:aws:…/${Function.Arn}/invocations`.
    fn named_in(&self, text: &str) -> Option<(&'a str, &'a Node)> {
        let known = |name: &str| self.by_name.get_key_value(name).map(|(name, node)| (*name, *node));
        let whole = text.split('.').next().and_then(known);
        let inside = || text.split("${").skip(1).find_map(|rest| known(rest.split(['}', '.']).next()?.trim()));
        whole.or_else(inside)
    }

    /// What stands for the resource that a value leads to. An alias or a version leads on to its function.
    pub(super) fn component(&self, value: &Node) -> Option<ComponentId> {
        let (name, resource) = self.leads_to(value)?;
        self.components.get(name).copied().or_else(|| {
            let function = resource.at(&["Properties", "FunctionName"])?;
            let (name, _) = self.leads_to(function)?;
            self.components.get(name).copied()
        })
    }

    fn written<'b>(&self, node: &'b Node) -> Written<'b>
    where
        'a: 'b,
    {
        match &node.value {
            Value::Scalar(text) => match self.parameters.get(text.as_str()) {
                Some(parameter) => self.default(text, parameter),
                None if text.starts_with(|c: char| c.is_alphabetic()) || text.contains("${") => {
                    Written::Unknown(text.clone())
                }
                None => Written::Text(text),
            },
            Value::Map(entries) => match entries.as_slice() {
                [(key, inner)] if key.text == "Ref" => {
                    match inner.text().and_then(|name| self.parameters.get_key_value(name)) {
                        Some((name, parameter)) => self.default(name, parameter),
                        None => Written::Unknown(inner.text().unwrap_or_default().to_owned()),
                    }
                }
                [(key, _), ..] => Written::Unknown(key.text.clone()),
                [] => Written::Unknown(String::new()),
            },
            _ => Written::Unknown("a function of the template".to_owned()),
        }
    }

    fn default<'b>(&self, name: &str, parameter: &'b Node) -> Written<'b> {
        match parameter.text_at(&["Default"]) {
            Some(text) => Written::Text(text),
            None => Written::Unknown(format!("parameter {name}")),
        }
    }

    /// A setting, where it is written.
    pub(super) fn say(&self, on: On, id: &str, value: Option<&Node>, inventory: &mut Inventory) {
        let Some(node) = value else { return };
        let place = self.source.of(node);
        match self.written(node) {
            Written::Text(text) => inventory.say(on, id, text, place),
            Written::Unknown(why) => inventory.unknown(on, id, &why, place),
        }
    }

    /// A setting as it is written, or what holds otherwise.
    pub(super) fn say_or_default(
        &self,
        on: On,
        id: &str,
        value: Option<&Node>,
        block: &Node,
        inventory: &mut Inventory,
    ) {
        match value {
            Some(_) => self.say(on, id, value, inventory),
            None => inventory.unsaid(on, id, self.source.of(block)),
        }
    }
}
