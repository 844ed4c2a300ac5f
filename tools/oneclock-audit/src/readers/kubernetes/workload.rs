//! A workload: what runs its pods, taken as one component.

use std::collections::HashMap;

use oneclock_yaml::Node;

use super::super::command::{Arg, Config, Started, nested, read as read_command, split};
use super::super::environment::{self, Near, Variable};
use super::super::images;
use super::Head;
use crate::amount::{Unit, Zero, amount};
use crate::inventory::{ComponentId, Inventory, Name, On, Role};
use crate::source::Source;

/// A workload and its pods.
pub(super) struct Workload<'a> {
    kind: &'a str,
    name: &'a str,
    namespace: Option<&'a str>,
    object: &'a Node,
    /// What every pod of it is.
    pod: &'a Node,
}

// === Workload ===

impl<'a> Workload<'a> {
    /// `None` for what runs nothing.
    pub(super) fn of(head: &Head<'a>, object: &'a Node) -> Option<Self> {
        let pod = match (head.group, head.kind) {
            ("apps" | "extensions", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch", "Job") => {
                object.at(&["spec", "template"])?
            }
            ("batch", "CronJob") => object.at(&["spec", "jobTemplate", "spec", "template"])?,
            ("", "Pod") => object,
            _ => return None,
        };
        Some(Self { kind: head.kind, name: head.name, namespace: head.namespace, object, pod })
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    pub(super) fn namespace(&self) -> Option<&'a str> {
        self.namespace
    }

    /// The labels of its pods.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let labels = self.pod.at(&["metadata", "labels"]).map(Node::entries).unwrap_or_default();
        labels.iter().filter_map(|(key, value)| Some((key.text.as_str(), value.text()?)))
    }

    /// Whether its pods have a label.
    pub(super) fn has(&self, key: &str, value: &str) -> bool {
        self.pod.at(&["metadata", "labels"]).and_then(|labels| labels.text_at(&[key])) == Some(value)
    }

    /// Everything that it says. `names` are those of the services that select it.
    pub(super) fn read(
        &self,
        source: &Source,
        names: &[&str],
        maps: &HashMap<&str, &Node>,
        near: &Near<'_>,
        inventory: &mut Inventory,
    ) {
        let Some(spec) = self.pod.find("spec") else { return };
        let containers = spec.find("containers").map(Node::items).unwrap_or_default();
        let image = containers.first().and_then(|container| container.text_at(&["image"]));
        let batch = matches!(self.kind, "Job" | "CronJob");
        let (product, role) = match image.and_then(images::product) {
            Some((product, role)) if !batch => (product, role),
            Some((product, _)) => (product, Role::Worker),
            None => ("", if batch { Role::Worker } else { Role::Service }),
        };
        let component = inventory.component(self.name, product, role, source.of(self.object));
        // Nobody calls a job.
        let own = [self.name];
        let names = if names.is_empty() && !batch { &own } else { names };
        for name in names.iter().take(64) {
            inventory.answers_to(component, Name::of(name).map(|name| name.within(self.namespace)));
        }
        self.ends(source, spec, containers, component, inventory);
        for container in containers {
            let variables = variables(source, container, maps);
            let product = container.text_at(&["image"]).and_then(images::product).map_or("", |(product, _)| product);
            let args = args(source, container);
            let config = |_: Option<&str>| Config::Unseen;
            let block = source.of(container);
            let started = Started { component, product, variables: &variables, block, config: &config };
            let told = read_command(&args, &started, inventory);
            let left: Vec<Variable> = variables
                .iter()
                .filter(|variable| {
                    !told || !environment::is_product_key(&variable.key) || variable.key.starts_with("PG")
                })
                .cloned()
                .collect();
            environment::read(&left, component, near, inventory);
            probes(source, container, component, inventory);
        }
    }

    /// How long it may run, and how long it has to end.
    fn ends(
        &self,
        source: &Source,
        spec: &Node,
        containers: &[Node],
        component: ComponentId,
        inventory: &mut Inventory,
    ) {
        let on = || On::Component(component);
        let grace = spec.find("terminationGracePeriodSeconds").and_then(|node| Some((node.text()?, source.of(node))));
        // Beside the first one run sidecars, whose hooks are about themselves.
        let sleep = containers.first().and_then(pre_stop);
        match (sleep, grace) {
            (Some(sleep), grace) if sleep > 0 => {
                let whole = grace.as_ref().map_or("30", |(text, _)| text);
                let whole = amount(whole, Unit::Seconds, Zero::Literal).ok().and_then(|amount| amount.after());
                let left = whole.map(|whole| whole.as_secs().saturating_sub(sleep).to_string());
                match (left, grace) {
                    (Some(left), Some((_, place))) => {
                        inventory.say(on(), "kubernetes.grace_after_pre_stop", &left, place)
                    }
                    (Some(left), None) => {
                        inventory.follows(on(), "kubernetes.grace_after_pre_stop", &left, source.of(spec))
                    }
                    (None, grace) => inventory.say_or_default(on(), "kubernetes.grace", grace, &source.of(spec)),
                }
            }
            (_, grace) => inventory.say_or_default(on(), "kubernetes.grace", grace, &source.of(spec)),
        }
        let job = match self.kind {
            "CronJob" => self.object.at(&["spec", "jobTemplate", "spec", "activeDeadlineSeconds"]),
            "Job" => self.object.at(&["spec", "activeDeadlineSeconds"]),
            _ => None,
        };
        let deadlines = [
            (job.or_else(|| spec.find("activeDeadlineSeconds")), "kubernetes.active_deadline"),
            (self.object.at(&["spec", "progressDeadlineSeconds"]), "kubernetes.progress_deadline"),
        ];
        for (node, id) in deadlines {
            if let Some((text, place)) = node.and_then(|node| Some((node.text()?, source.of(node)))) {
                inventory.say(on(), id, text, place);
            }
        }
    }
}

/// How many seconds a container only sleeps before it is told to stop.
fn pre_stop(container: &Node) -> Option<u64> {
    let hook = container.at(&["lifecycle", "preStop"])?;
    if let Some(seconds) = hook.text_at(&["sleep", "seconds"]) {
        return seconds.parse().ok();
    }
    let command = hook.at(&["exec", "command"])?;
    let mut words = command.items().iter().filter_map(Node::text).flat_map(str::split_whitespace);
    let sleeps = |word: &str| word.rsplit('/').next() == Some("sleep");
    words.find(|word| sleeps(word))?;
    words.next()?.trim_end_matches(['s', ';', '"', '\'']).parse().ok()
}

fn probes(source: &Source, container: &Node, component: ComponentId, inventory: &mut Inventory) {
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"].iter().filter_map(|key| container.find(key)) {
        for (key, id) in [("timeoutSeconds", "kubernetes.probe.timeout"), ("periodSeconds", "kubernetes.probe.period")]
        {
            let written = probe.find(key).and_then(|node| Some((node.text()?, source.of(node))));
            inventory.say_or_default(On::Component(component), id, written, &source.of(probe));
        }
    }
}

/// `command` and `args`, one after the other.
fn args(source: &Source, container: &Node) -> Vec<Arg> {
    let mut args = Vec::new();
    for node in ["command", "args"].iter().filter_map(|key| container.find(key)) {
        match node.text() {
            Some(text) => args.extend(split(text, &source.of(node))),
            None => args.extend(
                node.items()
                    .iter()
                    .filter_map(|item| Some(Arg { text: item.text()?.to_owned(), place: source.of(item) })),
            ),
        }
    }
    nested(args)
}

/// `env`, and `envFrom` where the map stands in the same file.
fn variables(source: &Source, container: &Node, maps: &HashMap<&str, &Node>) -> Vec<Variable> {
    let own = container.find("env").map(Node::items).unwrap_or_default().iter().filter_map(|entry| {
        let key = entry.text_at(&["name"])?.to_owned();
        let from = entry.at(&["valueFrom", "configMapKeyRef"]);
        let mapped = || maps.get(from?.text_at(&["name"])?)?.find(from?.text_at(&["key"])?);
        let node = entry.find("value").or_else(mapped)?;
        Some(Variable { key, value: node.text()?.to_owned(), place: source.of(node) })
    });
    let from = container.find("envFrom").map(Node::items).unwrap_or_default().iter();
    let from = from.filter_map(|entry| maps.get(entry.text_at(&["configMapRef", "name"])?)).take(4);
    let from = from.flat_map(|map| map.entries().iter().take(200)).filter_map(|(key, node)| {
        Some(Variable { key: key.text.clone(), value: node.text()?.to_owned(), place: source.of(node) })
    });
    own.chain(from).collect()
}
