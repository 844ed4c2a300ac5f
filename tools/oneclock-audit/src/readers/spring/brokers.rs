//! `RabbitMQ` and Kafka under Spring: the brokers that are called, and what bounds a message.

use super::tree::Tree;
use super::{App, resolved};
use crate::inventory::{Inventory, On};

const LISTENERS: &[&str] = &["simple", "direct"];

/// Kafka's own names, as they stand under `properties`.
const KAFKA: &[(&str, &str)] = &[
    ("spring.kafka.max_poll_interval", "max.poll.interval.ms"),
    ("spring.kafka.session_timeout", "session.timeout.ms"),
    ("spring.kafka.request_timeout", "request.timeout.ms"),
    ("spring.kafka.delivery_timeout", "delivery.timeout.ms"),
];

pub(super) fn read(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    rabbit(app, document, inventory);
    kafka(app, document, inventory);
}

fn rabbit(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let Some(rabbit) = document.at("spring.rabbitmq") else { return };
    let port = rabbit.text("port").map(resolved).filter(|port| port.parse::<u16>().is_ok()).unwrap_or("5672");
    let edge = match (rabbit.written("addresses"), rabbit.written("host")) {
        (Some((many, place)), _) => app.call(many.split(',').next().unwrap_or(many), "RabbitMQ", place, inventory),
        (None, Some((host, place))) => app.call(&format!("{}:{port}", resolved(host)), "RabbitMQ", place, inventory),
        (None, None) => None,
    };
    let on = edge.map_or_else(|| app.itself(), On::Edge);
    let rows = [
        ("spring.rabbitmq.connection_timeout", "connection-timeout"),
        ("spring.rabbitmq.channel_rpc_timeout", "channel-rpc-timeout"),
        ("spring.rabbitmq.requested_heartbeat", "requested-heartbeat"),
        ("spring.rabbitmq.template.reply_timeout", "template.reply-timeout"),
    ];
    app.say_all(rabbit, &rows, &on, inventory);
    let on_itself = app.itself();
    for (part, on) in LISTENERS
        .iter()
        .map(|kind| (format!("listener.{kind}.retry"), &on_itself))
        .chain([("template.retry".to_owned(), &on)])
    {
        let Some(retry) = rabbit.at(&part) else { continue };
        if retry.text("enabled") != Some("true") {
            continue; // off unless it is asked for
        }
        let block = retry.place(&app.start);
        let ids = if part.starts_with("listener") {
            [
                ("spring.rabbitmq.listener.max_attempts", "max-attempts"),
                ("spring.rabbitmq.listener.initial_interval", "initial-interval"),
            ]
        } else {
            [
                ("spring.rabbitmq.template.max_attempts", "max-attempts"),
                ("spring.rabbitmq.template.initial_interval", "initial-interval"),
            ]
        };
        for (id, path) in ids {
            match retry.written(path) {
                Some((text, place)) => inventory.say(on.clone(), id, text, place),
                None => app.default(on, id, &[&format!("spring.rabbitmq.{part}.{path}")], &block, inventory),
            }
        }
    }
}

fn kafka(app: &App<'_>, document: &Tree, inventory: &mut Inventory) {
    let Some(kafka) = document.at("spring.kafka") else { return };
    let edge = kafka.at("bootstrap-servers").and_then(|servers| {
        let (many, place) = servers.own().or_else(|| servers.children().find_map(Tree::own))?;
        app.call(resolved(many).split(',').next().unwrap_or(many), "Kafka", place, inventory)
    });
    let on = edge.map_or_else(|| app.itself(), On::Edge);
    for (id, name) in KAFKA {
        let consumer = *id == "spring.kafka.max_poll_interval" || *id == "spring.kafka.session_timeout";
        let whose = if consumer { app.itself() } else { on.clone() };
        for part in ["properties", "consumer.properties", "producer.properties"] {
            app.say(&whose, id, kafka.written(&format!("{part}.{name}")), inventory);
        }
    }
    app.say(&app.itself(), "spring.kafka.max_poll_interval", kafka.written("consumer.max-poll-interval"), inventory);
    app.say(&on, "spring.kafka.producer.retries", kafka.written("producer.retries"), inventory);
}
