//! What each reader finds in small files of the shape of its format: who calls whom, and every setting with its value,
//! whether anybody wrote it, and its place.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

mod aws;
mod dapr;
mod envoy;
mod gateway_api;
mod grpc;
mod istio;
mod linkerd;
mod oneclock;
mod serverless;
mod spring;
mod terraform;
mod compose;
mod kubernetes;
mod servers;
mod stores;
mod caddy;
mod gateways;
mod haproxy;
mod ingress;
mod kong;
mod nginx;
mod traefik;
mod told;
mod topology;
#[path = "../support/written.rs"]
mod written;
