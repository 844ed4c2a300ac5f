//! What each reader finds in small files of the shape of its format: who calls whom, and every setting with its value,
//! whether anybody wrote it, and its place.

#![allow(clippy::expect_used, reason = "a test without its files says so")]

mod aws;
mod caddy;
mod compose;
mod dapr;
mod envoy;
mod gateway_api;
mod gateways;
mod grpc;
mod haproxy;
mod ids;
mod ingress;
mod istio;
mod kong;
mod kubernetes;
mod linkerd;
mod nginx;
mod oneclock;
mod proto;
mod serverless;
mod servers;
mod spring;
mod stores;
mod terraform;
mod told;
mod topology;
mod traefik;
#[path = "../support/written.rs"]
mod written;
